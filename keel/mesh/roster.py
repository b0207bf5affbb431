"""The roster: every record of the mesh that this node holds, and how two rosters become one.

Owns the door (what is let in, what bounds it) and the digest. Who is a member by these records is
keel.mesh.standing's and keel.mesh.members's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from keel.mesh.records import Genesis
from keel.types import MeshId, RecordHash


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """Immutable; `raws` holds the exact bytes of every record but the genesis, by record id."""

    mesh: MeshId
    genesis: Genesis
    genesis_raw: bytes
    raws: Mapping[RecordHash, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotTaken:
    """A record that was refused at the door: its id (or the hash of its bytes), rule and text."""

    record: RecordHash
    rule: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """The new roster, what was added to it, and what was refused."""

    roster: Roster
    added: tuple[RecordHash, ...]
    refused: tuple[NotTaken, ...]


def founded(genesis_raw: bytes, mesh: MeshId | None = None) -> Roster:
    """The roster of a genesis alone; BadValue/BadSignature, Refused if it is not this mesh's."""
    raise NotImplementedError


def merge(roster: Roster, raws: Iterable[bytes]) -> Merged:
    """The union of a roster and the records that somebody sent; nothing goes by absence."""
    raise NotImplementedError


def digest(roster: Roster) -> str:
    """32 hex digits that are equal exactly when two rosters hold the same records."""
    raise NotImplementedError
