"""A join that was begun on this node: pending-join/<mesh>/join.json (keel.mesh.join, N1 and N3).

Owns the record and where it lies. Keys lie beside it; it holds no secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from keel import codec
from keel.mesh.joinmsg import Admitted
from keel.ports import Host
from keel.types import InviteId, MeshId, SigningKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """Whom this node asked, and what it was given."""

    invite: InviteId
    inviter: SigningKey
    admitted: Admitted | None = None
    extra: Mapping[str, object] = field(default_factory=dict)


def load(host: Host, mesh: MeshId) -> Pending | None:
    """The join that is open in this mesh, if there is one."""
    path = _file(host, mesh)
    return codec.read_state(Pending, path, host.files.read(path))


def granted(host: Host, mesh: MeshId, invite: InviteId) -> Admitted | None:
    """What an earlier, interrupted run was given for the same invite."""
    found = load(host, mesh)
    return found.admitted if found and found.invite == invite else None


def save(host: Host, mesh: MeshId, found: Pending) -> None:
    """Its directory is there, with the keys."""
    host.files.write(_file(host, mesh), codec.dumps(found))


def _file(host: Host, mesh: MeshId) -> Path:
    return host.paths.pending_join(mesh) / "join.json"
