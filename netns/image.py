"""The appliance image: layers of Debian 13, kept in a cache outside the checkout, each named by a
hash of its recipe.

    bare        Debian with systemd as PID 1 and what every appliance has
    appliance   on bare: all that the packages `keel` and `keel-overlay-etcd` depend on, so that
                installing them needs no network; `repo/` beside it is a local apt repository of
                just those packages
    test        on appliance: what runs the unit tests with Debian's own Python
    build       on appliance: what builds and lints packages
    mail        on appliance: a mail server; a scenario installs it from the layer's `repo/`

A layer's `root/` is the whole tree for `bare`, for the others the upper directory of an overlay.
Debian comes from the mirror that this machine's own apt uses.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from netns.sandbox import SHOWN_LOG, SandboxFailed, run_in_layers

SUITE = "trixie"
FORMAT = 1  # counts changes of this module that change a layer without changing its recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What a layer is made of. `setup` is a shell script that runs inside, after the packages."""

    name: str
    packages: tuple[str, ...]
    setup: str = ""
    parent: Recipe | None = None

    def key(self) -> str:
        """A hash of everything that decides the layer's content, but for Debian's own updates."""
        parent = self.parent.key() if self.parent else ""
        facts = [FORMAT, SUITE, self.name, sorted(self.packages), self.setup, parent]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]

    def chain(self) -> tuple[Recipe, ...]:
        """This recipe and its parents, topmost first, as overlayfs wants them."""
        return (self, *(self.parent.chain() if self.parent else ()))


BARE = Recipe(
    name="bare",
    packages=(
        *("systemd", "systemd-sysv", "dbus", "udev", "procps", "less", "apt-utils", "faketime"),
        *("iproute2", "iputils-ping", "nftables", "wireguard-tools", "wireguard-go", "tcpdump"),
        *("openssh-server", "curl", "openssl", "ca-certificates"),
    ),
    # No network in a lab: what would look for one is masked. The ssh keys are everybody's, which
    # harms nobody here.
    setup="""
        for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer \\
                e2scrub_all.timer fstrim.timer systemd-networkd-wait-online.service \\
                getty.target console-getty.service; do
            ln -sf /dev/null "/etc/systemd/system/$unit"
        done
        mkdir -p /var/log/journal /etc/systemd/journald.conf.d
        printf '[Journal]\\nRateLimitIntervalSec=0\\n' > /etc/systemd/journald.conf.d/lab.conf
        rm -f /etc/hostname /etc/resolv.conf
        : > /etc/resolv.conf
        : > /etc/machine-id
    """,
)
APPLIANCE = Recipe(
    name="appliance",
    parent=BARE,
    packages=(
        *("python3", "python3-cryptography", "python3-nacl", "python3-requests"),
        *("python3-waitress", "python3-pyroute2", "python3-jinja2", "python3-ruamel.yaml"),
        *("python3-rich", "python3-prometheus-client", "etcd-server", "etcd-client"),
    ),
)
TEST = Recipe(
    name="test",
    parent=APPLIANCE,
    packages=(
        *("python3-pytest", "python3-pytest-xdist", "python3-hypothesis", "python3-coverage"),
        *("zlint", "make", "git", "shellcheck"),
    ),
)
BUILD = Recipe(
    name="build",
    parent=APPLIANCE,
    packages=(
        *("build-essential", "debhelper", "dh-python", "dh-sequence-python3", "fakeroot"),
        *("pybuild-plugin-pyproject", "python3-all", "python3-setuptools", "python3-pytest"),
        *("python3-shtab", "python3-argparse-manpage", "bash-completion", "lintian", "git"),
    ),
)
MAIL = Recipe(name="mail", parent=APPLIANCE, packages=("dma",))
RECIPES = {recipe.name: recipe for recipe in (BARE, APPLIANCE, TEST, BUILD, MAIL)}


class NoMirror(Exception):
    def __str__(self) -> str:
        return (
            "apt knows no Debian mirror on this machine\n"
            "hint: run `apt-get update`, or set KEEL_MIRROR to a mirror"
        )


def cache() -> Path:
    """The cache's directory; made when it is not there."""
    path = Path(os.environ.get("KEEL_CACHE", "/var/cache/keel"))
    path.mkdir(parents=True, exist_ok=True)
    return path.resolve()


def say(text: str) -> None:
    sys.stderr.write(f"lab: {text}\n")


def layer(name: str) -> Path:
    """The directory of one layer, made first if need be; several processes may call at once."""
    return _ensure(RECIPES[name])


def roots(name: str) -> list[Path]:
    """The trees of a layer and of those below it, topmost first."""
    return [_ensure(recipe) / "root" for recipe in reversed(RECIPES[name].chain())][::-1]


def made_once(target: Path, make: Callable[[Path], None]) -> Path:
    """`target`; if missing, one process makes it in a temporary directory and renames it."""
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with _locked(target.with_name(f".{target.name}.lock")):
        if not target.exists():
            scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
            try:
                scratch.chmod(0o755)
                make(scratch)
                scratch.rename(target)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    return target


@contextlib.contextmanager
def one_at_a_time(what: str) -> Iterator[None]:
    """Only one process at a time does what has this name."""
    with _locked(_lock_of(what)):
        yield


def forget_turns(what: str) -> None:
    """Nobody will do it any more."""
    _lock_of(what).unlink(missing_ok=True)


def _lock_of(what: str) -> Path:
    return cache() / f".{what}.lock"


def parse_index_targets(text: str) -> dict[str, str]:
    """Archive label -> mirror, from `apt-get indextargets` as `origin|label|uri`; first wins."""
    mirrors: dict[str, str] = {}
    for line in text.splitlines():
        origin, label, uri = line.split("|")
        if origin == "Debian":
            mirrors.setdefault(label, uri.rstrip("/"))
    return mirrors


def sources(mirrors: dict[str, str]) -> str:
    """sources.list of the image for these mirrors."""
    if "Debian" not in mirrors:
        raise NoMirror
    lines = [f"deb {mirrors['Debian']} {suite} main" for suite in (SUITE, f"{SUITE}-updates")]
    if "Debian-Security" in mirrors:
        lines.append(f"deb {mirrors['Debian-Security']} {SUITE}-security main")
    return "".join(f"{line}\n" for line in lines)


def write_repository(directory: Path) -> None:
    """Make the .debs in a directory an apt repository (`deb [trusted=yes] file:DIR ./`)."""
    stanzas = []
    for deb in sorted(directory.glob("*.deb")):
        control = subprocess.run(
            ["dpkg-deb", "--field", deb], check=True, capture_output=True, text=True
        ).stdout
        digest = hashlib.sha256(deb.read_bytes()).hexdigest()
        stanzas.append(
            f"{control}Filename: ./{deb.name}\nSize: {deb.stat().st_size}\nSHA256: {digest}\n"
        )
    (directory / "Packages").write_text("\n".join(stanzas))


def _ensure(recipe: Recipe) -> Path:
    target = cache() / "layers" / f"{recipe.name}-{recipe.key()}"
    return made_once(target, lambda scratch: _make(recipe, scratch))


def _make(recipe: Recipe, scratch: Path) -> None:
    if recipe.parent:
        roots(recipe.parent.name)
    say(f"making image layer {recipe.name} (once; a minute or two)")
    if recipe.parent is None:
        _bootstrap(recipe, scratch)
    else:
        _extend(recipe, scratch)


def _bootstrap(recipe: Recipe, scratch: Path) -> None:
    log = scratch / "log"
    argv = ["mmdebstrap", "--variant=minbase", f"--include={','.join(recipe.packages)}"]
    argv += ["--dpkgopt=force-unsafe-io", SUITE, str(scratch / "root"), "-"]
    with log.open("wb") as out:
        done = subprocess.run(
            argv, input=sources(_mirrors()).encode(), stdout=out, stderr=out, check=False
        )
    if done.returncode != 0:
        sys.stderr.write(log.read_text(errors="replace")[-SHOWN_LOG:])
        raise SandboxFailed("mmdebstrap", done.returncode)
    subprocess.run(["chroot", scratch / "root", "sh", "-euc", recipe.setup], check=True)


def _extend(recipe: Recipe, scratch: Path) -> None:
    assert recipe.parent
    (scratch / "root").mkdir(mode=0o755)
    script = f"""
        apt-get update -q
        apt-get install -q -y --no-install-recommends -o APT::Keep-Downloaded-Packages=true \\
            {" ".join(recipe.packages)}
        rm -rf /var/lib/apt/lists/*
        {recipe.setup}
    """
    run_in_layers(
        roots(recipe.parent.name),
        script,
        what=f"making image layer {recipe.name}",
        upper=scratch / "root",
        network=True,
        log=scratch / "log",
    )
    (scratch / "repo").mkdir()
    for deb in (scratch / "root/var/cache/apt/archives").glob("*.deb"):
        deb.rename(scratch / "repo" / deb.name)
    write_repository(scratch / "repo")


def _mirrors() -> dict[str, str]:
    if "KEEL_MIRROR" in os.environ:
        return {"Debian": os.environ["KEEL_MIRROR"]}
    argv = ["apt-get", "indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(REPO_URI)"]
    return parse_index_targets(
        subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    )


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
