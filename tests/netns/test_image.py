import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from netns.build import digest, installed_version
from netns.image import RECIPES, NoMirror, Recipe, made_once, parse_index_targets, sources


def make_recipe(
    *, packages: tuple[str, ...] = ("x", "y"), setup: str = "", parent: Recipe | None = None
) -> Recipe:
    return Recipe(name="layer", packages=packages, setup=setup, parent=parent)


def test_a_recipes_key_does_not_depend_on_the_order_of_packages() -> None:
    assert make_recipe(packages=("x", "y")).key() == make_recipe(packages=("y", "x")).key()


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(make_recipe(packages=("x",)), id="a package less"),
        pytest.param(make_recipe(setup="true"), id="a setup"),
        pytest.param(make_recipe(parent=make_recipe()), id="a parent"),
        pytest.param(
            make_recipe(parent=make_recipe(packages=("z",))), id="a parent of other packages"
        ),
    ],
)
def test_a_recipes_key_changes_with_what_it_makes(other: Recipe) -> None:
    parents = make_recipe(parent=make_recipe())
    assert other.key() not in ({make_recipe().key(), parents.key()} - {other.key()})
    assert other.key() != make_recipe().key()


def test_every_layer_stands_on_the_bare_one() -> None:
    for recipe in RECIPES.values():
        assert recipe.chain()[0] is recipe
        assert recipe.chain()[-1] is RECIPES["bare"]


def test_no_layer_of_an_appliance_has_a_kernel() -> None:
    packages = [package for recipe in RECIPES.values() for package in recipe.packages]
    assert not [package for package in packages if package.startswith("linux-image")]


TARGETS = """\
Elsewhere|Elsewhere|http://elsewhere.example/apt/
Debian|Debian|http://mirror.example/debian/
Debian|Debian|http://second.example/debian/
Debian|Debian-Security|http://mirror.example/security/
"""


def test_the_image_comes_from_the_mirror_that_apt_uses() -> None:
    assert sources(parse_index_targets(TARGETS)) == (
        "deb http://mirror.example/debian trixie main\n"
        "deb http://mirror.example/debian trixie-updates main\n"
        "deb http://mirror.example/security trixie-security main\n"
    )


def test_a_machine_without_debians_security_archive_does_without() -> None:
    assert "security" not in sources({"Debian": "http://mirror.example/debian"})


def test_a_machine_without_a_mirror_is_told_what_to_do() -> None:
    with pytest.raises(NoMirror, match="hint: run `apt-get update`"):
        sources(parse_index_targets("Elsewhere|Elsewhere|http://elsewhere.example/apt/\n"))


def test_a_layer_is_made_once(tmp_path: Path) -> None:
    made: list[Path] = []

    def make(scratch: Path) -> None:
        made.append(scratch)
        (scratch / "file").write_text("x")

    for _ in range(2):
        assert (made_once(tmp_path / "layers" / "one", make) / "file").read_text() == "x"
    assert len(made) == 1


def test_a_layer_that_several_want_at_once_is_made_once(tmp_path: Path) -> None:
    made: list[Path] = []
    together = threading.Barrier(4)

    def want() -> Path:
        together.wait()
        return made_once(tmp_path / "one", made.append)

    with ThreadPoolExecutor(4) as pool:
        found = [future.result() for future in [pool.submit(want) for _ in range(4)]]
    assert found == [tmp_path / "one"] * 4
    assert len(made) == 1


def test_a_layer_whose_making_fails_is_not_there(tmp_path: Path) -> None:
    def make(scratch: Path) -> None:
        (scratch / "half").write_text("x")
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        made_once(tmp_path / "one", make)
    assert [path.name for path in tmp_path.iterdir()] == [".one.lock"]


def test_the_packages_are_known_by_names_contents_and_modes(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("1")
    second.write_text("2")
    names = [Path("first"), Path("second")]
    before = digest(tmp_path, names)
    assert digest(tmp_path, names) == before
    first.chmod(0o755)
    runs = digest(tmp_path, names)
    first.write_text("3")
    assert len({before, runs, digest(tmp_path, names), digest(tmp_path, names[:1])}) == 4


def test_an_installed_packages_version_is_read_from_the_topmost_tree(tmp_path: Path) -> None:
    status = """\
Package: etcd-server
Status: install ok installed
Version: {}
Description: a store
 Version: not this one

Package: keel
Status: deinstall ok config-files
Version: 9
"""
    for layer, number in (("upper", "3.5.16-4"), ("lower", "3.4")):
        (tmp_path / layer / "var/lib/dpkg").mkdir(parents=True)
        (tmp_path / layer / "var/lib/dpkg/status").write_text(status.format(number))
    (tmp_path / "empty").mkdir()
    layers = [tmp_path / "empty", tmp_path / "upper", tmp_path / "lower"]
    assert installed_version(layers, "etcd-server") == "3.5.16-4"
    assert installed_version(layers, "keel") == ""
    assert installed_version(layers, "absent") == ""
