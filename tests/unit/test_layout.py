"""The house's own rules: the contracts see every module, and each of them can turn red."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import keel

REPOSITORY = Path(keel.__file__).parent.parent
TOOLS = Path(sys.executable).parent
PYPROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
MODULES = sorted((REPOSITORY / "keel").rglob("*.py"))

MAX_LINES = 450
"""Below the docstring."""
GROUND = {"keel", "keel.__main__", "keel.mesh", "keel.spec", "keel.cli", "keel.system"}
"""Packages and the way in; packages below a layer's package belong to that layer."""


def name_of(path: Path) -> str:
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layered() -> set[str]:
    contract = PYPROJECT["tool"]["importlinter"]["contracts"][0]
    return {name.strip(" ()\n") for layer in contract["layers"] for name in re.split("[:|]", layer)}


def test_every_module_is_in_one_layer_of_the_rings() -> None:
    names = {name_of(path) for path in MODULES} - GROUND
    packages = tuple(f"{name}." for name in layered())
    outside = sorted(n for n in names if n not in layered() and not n.startswith(packages))
    assert not outside, f"add to the layers in pyproject.toml: {', '.join(outside)}"


def test_no_layer_names_a_module_that_is_gone() -> None:
    named = {name for name in layered() if name not in {name_of(path) for path in MODULES}}
    assert not named


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(
        REPOSITORY / "keel", tmp_path / "keel", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path)
    return tmp_path


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [TOOLS / "lint-imports", "--no-cache"],
        cwd=root,
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(root)},
        timeout=120,
    )


def plant(root: Path, module: str, line: str) -> None:
    path = root / f"{module.replace('.', '/')}.py"
    path.write_text(f"{path.read_text()}\n{line}\n")


@pytest.mark.tools
def test_the_contracts_hold(copy: Path) -> None:
    done = lint_imports(copy)
    assert done.returncode == 0, done.stdout


VIOLATIONS = {
    "pure-imports-a-flow": ("keel.mesh.roster", "import keel.mesh.sync", "rings"),
    "pure-imports-an-adapter": ("keel.mesh.wire", "import keel.system.clock", "rings"),
    "ground-imports-pure": ("keel.errors", "import keel.mesh.wire", "rings"),
    "flow-imports-the-cli": ("keel.mesh.sync", "import keel.cli.render", "rings"),
    "flow-imports-the-machine": ("keel.mesh.sync", "import keel.system.clock", "doors"),
    "flow-imports-the-channel": ("keel.mesh.join", "import keel.mesh.client", "doors"),
    "flow-imports-the-gateway": ("keel.mesh.etcd", "import keel.mesh.etcdclient", "doors"),
    "command-imports-an-adapter": ("keel.cli.mesh", "import keel.system.units", "doors"),
}


@pytest.mark.tools
@pytest.mark.parametrize(("module", "line", "contract"), VIOLATIONS.values(), ids=VIOLATIONS)
def test_a_planted_import_turns_its_contract_red(
    copy: Path, module: str, line: str, contract: str
) -> None:
    plant(copy, module, line)
    done = lint_imports(copy)
    assert done.returncode == 1
    plain = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
    broken = [text for text in plain.splitlines() if text.endswith("BROKEN")]
    assert any(text.startswith(contract) for text in broken), done.stdout


BANNED = {
    "clock": ("from datetime import UTC, datetime\n\nNOW = datetime.now(UTC)\n", "TID251"),
    "sleep": ("import time\n\ntime.sleep(1)\n", "TID251"),
    "random": ("import random\n\nDICE = random.random()\n", "TID251"),
    "secrets": ("import secrets\n\nKEY = secrets.token_bytes(32)\n", "TID251"),
    "subprocess": ("import subprocess\n\nsubprocess.run([])\n", "TID251"),
    "pyroute2-wireguard": ("from pyroute2 import WireGuard\n\nWG = WireGuard()\n", "TID251"),
    "broad-except": ("try:\n    pass\nexcept Exception:\n    pass\n", "BLE001"),
    "print": ('print("x")\n', "T201"),
}


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """The rules, and rooms without modules: ruff looks at the planted one alone."""
    for room in ("keel/mesh", "keel/cli"):
        (tmp_path / room).mkdir(parents=True)
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.mark.tools
@pytest.mark.parametrize(("source", "rule"), BANNED.values(), ids=BANNED)
@pytest.mark.parametrize("module", ["keel/mesh/planted.py", "keel/cli/planted.py"])
def test_a_banned_call_turns_lint_red(empty: Path, module: str, source: str, rule: str) -> None:
    if (module, rule) == ("keel/cli/planted.py", "T201"):
        return  # the command line's outer shell prints
    (empty / module).write_text(source)
    done = subprocess.run(
        [TOOLS / "ruff", "check", "--no-cache", "--output-format=concise", module],
        cwd=empty,
        capture_output=True,
        text=True,
    )
    assert rule in done.stdout


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_is_short_says_what_it_owns_and_hides_no_line(path: Path) -> None:
    text = path.read_text()
    assert text.rpartition('"""\n\nfrom __future__')[2].count("\n") <= MAX_LINES
    assert "pragma: no " + "cover" not in text
    assert not re.search(r"\b(TODO|FIXME|XXX)\b", text)
    if text.strip():
        assert ast.get_docstring(ast.parse(text))


RULE = r"[A-Z]\d{1,2}"
ROWS = re.compile(r"[MEROPQ]\d{1,2}")
"""The requirements' own names (docs/evidence/rows.md)."""


def test_a_rule_that_is_cited_is_the_module_s_own_or_a_requirement() -> None:
    """Another module's is cited with that module's name: `(keel.mesh.window, W1)`."""
    strange = {}
    for path in MODULES:
        text = path.read_text()
        own = set(re.findall(rf"(?:^|; )\(({RULE})\)", text, flags=re.MULTILINE))
        cited = {
            rule
            for rules in re.findall(rf"\(({RULE}(?:(?:, | to ){RULE})*)\)", text)
            for rule in re.findall(RULE, rules)
        }
        strange[name_of(path)] = {rule for rule in cited - own if not ROWS.fullmatch(rule)}
    assert {name: rules for name, rules in strange.items() if rules} == {}


def test_the_map_of_the_mesh_shows_every_room_once_and_which_are_pure() -> None:
    text = (REPOSITORY / "keel" / "mesh" / "__init__.py").read_text()
    rooms = [
        word
        for line in re.findall(r"^    [^:]+: (.+)$", text, flags=re.MULTILINE)
        for word in re.sub(r"\([^)]*\)", "", line).split()
    ]
    layers = PYPROJECT["tool"]["importlinter"]["contracts"][0]["layers"]
    pure = next(layer for layer in layers if "keel.mesh.wire)" in layer)
    there = [name_of(path) for path in MODULES if path.parent.name == "mesh"]
    assert sorted(rooms) == sorted(
        name.removeprefix("keel.mesh.") + "*" * (f"({name})" in pure)
        for name in there
        if name != "keel.mesh"
    )


OTHERS_CALL = {"get_redirect_target", "handle_accept", "maintenance"}
"""What the libraries' own classes call by these names."""
TESTS_CALL = {"CHECKS", "put"}
"""Orders of numbered checks, compared with what runs; and what writes a key to be read again."""


def test_nothing_is_defined_that_only_tests_use() -> None:
    defined, used = set(), set()
    for path in MODULES:
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            match node:
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    defined.add(name)
                case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name):
                    used.add(name)
                case ast.ImportFrom(names=names):
                    used |= {one.name for one in names if one.asname}
        for line in tree.body:
            match line:
                case (
                    ast.Assign(targets=[ast.Name(id=name)])
                    | ast.AnnAssign(target=ast.Name(id=name))
                ):
                    defined.add(name)
    own = {name for name in defined - used if not name.startswith("__")}
    assert own == OTHERS_CALL | TESTS_CALL


def test_no_test_is_skipped_or_patches_keel() -> None:
    for path in sorted((REPOSITORY / "tests").rglob("*.py")):
        if path == Path(__file__):
            continue
        text = path.read_text()
        assert not re.search(r"\b(skip|skipif|xfail|importorskip)\b\(", text), path
        assert not re.search(r"mock\.patch|monkeypatch\.setattr\((\"|')keel", text), path


def test_the_broad_excepts_are_the_three_that_are_allowed() -> None:
    found = {name_of(path) for path in MODULES if "except Exception" in path.read_text()}
    assert found == {"keel.__main__", "keel.mesh.server", "keel.mesh.etcdtend"}
    assert not any(re.search(r"except( BaseException)?:", path.read_text()) for path in MODULES)
