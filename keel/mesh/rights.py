"""Who may read what this node keeps secret, as its disk has it (design section 3).

Owns which names are secret and whose they are to be. Looks at modes and owners, opens nothing and
mends nothing: a key that others could read may have been read, and that is for a person to judge.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from keel.ports import Access, Host

ROOT = "root"
ETCD = "etcd"
OTHERS = 0o077
"""What a group and the others may do with it: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposed:
    """A name that is not as it has to be: what is wrong, and what mends it."""

    path: Path
    why: str
    remedy: str


def exposed(host: Host) -> tuple[Exposed, ...]:
    """Every secret of this node that others may read, or that is not its owner's."""
    found = []
    for path, owner, mode in _secrets(host):
        access = host.files.access(path)
        why = None if access is None else _wrong(access, owner)
        if why is not None:
            remedy = f"`chown {owner}: {path} && chmod {mode:o} {path}`; who could read it may have"
            found.append(Exposed(path=path, why=why, remedy=remedy))
    return tuple(found)


def _wrong(access: Access, owner: str) -> str | None:
    if access.owner != owner:
        return f"it belongs to {access.owner}, not to {owner}"
    if access.mode & OTHERS:
        return f"its mode {access.mode:04o} lets others use it"
    return None


def _secrets(host: Host) -> Iterator[tuple[Path, str, int]]:
    """Every name, its owner and its mode."""
    paths, names = host.paths, host.files.names
    for directory in (paths.mesh, paths.etcd):
        yield directory, ROOT, 0o700
    for path in (paths.signing_key, paths.wireguard_key):
        yield path, ROOT, 0o600
    for name in names(paths.invites):
        yield paths.invites / name, ROOT, 0o600
    for mesh in names(paths.pending_joins):
        for name in ("signing.key", "wireguard.key", "etcd.key"):
            yield paths.pending_joins / mesh / name, ROOT, 0o600
    for kind, files in (
        (paths.etcd / "intermediate", ("key.pem",)),
        (paths.etcd / "leaf", ("member.pem", "client.pem")),
        (paths.roots, ("root.key",)),
    ):
        for number in names(kind):
            for name in files:
                yield kind / number / name, ROOT, 0o600
    if host.files.exists(paths.etcd_data):
        yield paths.etcd_data.parent, ETCD, 0o700
        yield paths.etcd_data, ETCD, 0o700
    yield paths.laid, ETCD, 0o700
    for name in names(paths.laid):
        yield paths.laid / name, ETCD, 0o600
