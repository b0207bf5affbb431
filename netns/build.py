"""Builds the packages from the checkout and makes the layer in which they are installed;
`netns/build` is its command.

Both are kept in the cache, the packages under a hash of the sources, the layer under a hash of the
packages. `netns/`, `tests/` and `.ci/` are no sources: a change of a scenario builds nothing anew.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from netns import image
from netns.image import say
from netns.sandbox import SandboxFailed, run_in_layers

CHECKOUT = Path(__file__).resolve().parent.parent
NO_SOURCES = ("netns/", "tests/", ".ci/")

# The copy is writable and the checkout is not touched. Tests have their own ways to run.
BUILD = """
mkdir /build
cp -a /run/source /build/source
cd /build/source
chown -R root:root .
DEB_BUILD_OPTIONS=nocheck dpkg-buildpackage -us -uc -b
lintian --allow-root --fail-on error,warning --info --color never ../*.changes
cp ../*.deb /run/out/
"""
INSTALL = """
apt-get install -q -y --no-install-recommends /run/packages/*.deb
rm -rf /var/log/apt /var/log/dpkg.log /var/lib/apt/lists/*
"""


def files(checkout: Path, *, skipped: tuple[str, ...] = NO_SOURCES) -> list[Path]:
    """What the packages are made of: tracked files and new ones that aren't ignored."""
    argv = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others"]
    argv += ["--exclude-standard"]
    listed = subprocess.run(argv, cwd=checkout, check=True, capture_output=True, text=True).stdout
    names = {name for name in listed.split("\0") if name and not name.startswith(skipped)}
    return [Path(name) for name in sorted(names) if (checkout / name).is_file()]


def digest(root: Path, names: Iterable[Path]) -> str:
    """A hash over names, modes (whether executable) and contents."""
    total = hashlib.sha256()
    for name in names:
        path = root / name
        runs = path.stat().st_mode & 0o100
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{name} {runs:o} {content}\n".encode())
    return total.hexdigest()[:12]


def packages(checkout: Path = CHECKOUT) -> Path | None:
    """The directory of the checkout's .debs, built if need be; None while there is no debian/."""
    if not (checkout / "debian" / "control").exists():
        return None
    names = files(checkout)
    key = hashlib.sha256(
        f"{digest(checkout, names)} {image.RECIPES['build'].key()} {BUILD}".encode()
    ).hexdigest()
    target = image.cache() / "packages" / key[:12]
    return image.made_once(target, lambda scratch: _build(checkout, names, scratch))


def package_layer(checkout: Path = CHECKOUT) -> Path | None:
    """The layer over `appliance` with the checkout's packages; None while there are none."""
    debs = packages(checkout)
    if debs is None:
        return None
    content = digest(debs, [Path(path.name) for path in sorted(debs.glob("*.deb"))])
    key = hashlib.sha256(
        f"{content} {image.RECIPES['appliance'].key()} {INSTALL}".encode()
    ).hexdigest()
    target = image.cache() / "layers" / f"packages-{key[:12]}"
    return image.made_once(target, lambda scratch: _install(debs, scratch))


def appliance_layers(base: str, *, packages: bool) -> list[Path]:
    """The trees of an appliance, topmost first: the packages, if wanted and any, on the base."""
    lower = image.roots(base)
    if not packages or base == "bare":
        return lower
    layer = package_layer()
    return [layer / "root", *lower] if layer else lower


def installed_version(layers: Sequence[Path], package: str) -> str:
    """The version of a package in those trees, as dpkg has it; empty when it isn't installed."""
    status = next(path for layer in layers if (path := layer / "var/lib/dpkg/status").exists())
    for stanza in status.read_text().split("\n\n"):
        fields = dict(
            line.split(": ", 1) for line in stanza.splitlines() if ": " in line and line[0] != " "
        )
        if fields.get("Package") == package and fields.get("Status", "").endswith(" installed"):
            return fields["Version"]
    return ""


def _build(checkout: Path, names: Sequence[Path], scratch: Path) -> None:
    image.layer("build")
    say("building the packages")
    source = scratch / "source"
    for name in names:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(checkout / name, source / name, follow_symlinks=False)
    (scratch / "out").mkdir()
    log = scratch / "log"
    run_in_layers(
        image.roots("build"),
        BUILD,
        what="building the packages",
        binds={source: "/run/source", scratch / "out": "/run/out"},
        log=log,
    )
    for deb in (scratch / "out").iterdir():
        deb.rename(scratch / deb.name)
    (scratch / "out").rmdir()
    shutil.rmtree(source)
    image.write_repository(scratch)


def _install(debs: Path, scratch: Path) -> None:
    say("installing the packages into the image")
    (scratch / "root").mkdir(mode=0o755)
    log = scratch / "log"
    run_in_layers(
        image.roots("appliance"),
        INSTALL,
        what="installing the packages",
        upper=scratch / "root",
        binds={debs: "/run/packages"},
        log=log,
    )


def main() -> int:
    """Build, print the .debs' names."""
    if os.geteuid() != 0:
        sys.stderr.write("netns/build: error: needs root\n")
        return 77
    try:
        debs = packages()
        package_layer()
    except SandboxFailed as error:
        sys.stderr.write(f"netns/build: error: {error}\n")
        return 1
    if debs is None:
        say("there is no debian/ yet: nothing to build")
        return 0
    sys.stdout.writelines(f"{deb}\n" for deb in sorted(debs.glob("*.deb")))
    return 0
