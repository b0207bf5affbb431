"""Who the members are: the view that every node has of equal records.

Owns the choice among a member's own claims (newest self record, WireGuard keys, names).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from ipaddress import IPv6Address, IPv6Network

from keel.mesh.roster import Roster
from keel.types import Capability, Endpoint, MeshId, NodeName, RecordHash, SigningKey, WgKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A live member. `wireguard` is None while its key belongs to another member (see warnings);
    `display` is the name, or name~hex when another live member has the same one."""

    name: NodeName
    display: str
    key: SigningKey
    address: IPv6Address
    wireguard: WgKey | None
    next_wireguard: WgKey | None
    endpoints: tuple[Endpoint, ...]
    capability: Capability
    roots: tuple[SigningKey, ...]
    admitted_by: SigningKey
    admitted_at: datetime
    admission: RecordHash
    self_counter: int | None
    lived: int
    versions: tuple[str, ...]
    distance: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RosterWarning:
    """Something in the records that a person must look at; `code` is of the warnings table."""

    code: str
    subject: SigningKey
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What equal records show on every node: members by address, removed keys with the removals."""

    mesh: MeshId
    prefix: IPv6Network
    founder: SigningKey
    members: tuple[Member, ...]
    removed: Mapping[SigningKey, tuple[RecordHash, ...]]
    warnings: tuple[RosterWarning, ...]

    def by_key(self, key: SigningKey) -> Member | None:
        """The live member with this signing key."""
        return next((one for one in self.members if one.key == key), None)

    def by_address(self, address: IPv6Address) -> Member | None:
        """The live member with this overlay address."""
        return next((one for one in self.members if one.address == address), None)


def view(roster: Roster) -> View:
    """The members by these records; the same for the same records in any order."""
    raise NotImplementedError


def find(seen: View, text: str) -> Member:
    """A live member by name, name~hex, overlay address or signing key; Refused
    (member-unknown, member-ambiguous naming both addresses)."""
    raise NotImplementedError


def chain(roster: Roster, key: SigningKey) -> tuple[bytes, ...]:
    """The records that prove a live member, genesis first; Refused (member-unknown)."""
    raise NotImplementedError
