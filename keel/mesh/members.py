"""Who the members are: the view that every node has of equal records.

Owns the choice among what members claim: newest self records, WireGuard keys, names. Who is a
member at all is keel.mesh.standing's.

(N1) What a member says of itself comes from its self record of the highest counter; before it made
     one, from its admission. Two of one counter: the lower hash, and the warning `clone`.
(N2) A WireGuard key that two live members claim stays with the one that had it: first whoever's
     admission names it, the nearer to the founder, then the lower key of the admitter, and only of
     one admitter's the earlier; then whoever has it longer by `wireguard_since` (never before the
     admission), the nearer, the lower hash. Only records decide, so every node decides alike. An
     admission goes first because somebody else attests it, and its time last because whoever
     admits can write any: so by a puppet only that member takes another's key which, by admitting
     it once more, could remove it as well (keel.mesh.standing, S4). Every join makes a fresh key,
     so an honest member never claims one that another's admission names.
(N3) A member whose claim loses stays a member without a WireGuard key, and both are warned of.
(N4) Two live members of one name both stay, shown as name~hex of their signing keys. A member has
     every name that an admitter gave it: whoever admits another's member once more, under another
     name, does not free the first one for a puppet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from ipaddress import IPv6Address, IPv6Network

from keel.errors import Refused
from keel.mesh.identity import prefix_of
from keel.mesh.records import Admission, Genesis, SelfRecord
from keel.mesh.roster import Roster
from keel.mesh.standing import Standing, admission_in, judge
from keel.mesh.votes import Tally
from keel.types import Capability, Endpoint, MeshId, NodeName, RecordHash, SigningKey, WgKey

CLONE = "clone"
WIREGUARD_KEY_TWICE = "wireguard-key-twice"
NAME_TWICE = "name-twice"

_SHORTEST_MARK = 4
"""Hex digits after the ~: two of 200 equal names share them in one mesh of three hundred; then
more are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A live member. `wireguard` is None while its key belongs to another member (N3), `claimed` is
    the key it says it has in any case; `called` are all its names, `display` is the name, or
    name~hex when another live member has the same one (N4); `remover` is the admitter that may
    remove it, when one lives; `self_counter` and `said_at` are None until its first self record."""

    name: NodeName
    called: frozenset[NodeName]
    display: str
    key: SigningKey
    address: IPv6Address
    wireguard: WgKey | None
    claimed: WgKey
    next_wireguard: WgKey | None
    endpoints: tuple[Endpoint, ...]
    capability: Capability
    roots: tuple[SigningKey, ...]
    admitted_by: SigningKey
    remover: SigningKey | None
    admitted_at: datetime
    admission: RecordHash
    self_counter: int | None
    said_at: datetime | None
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
    """What equal records show on every node: members by address, removed keys with what removed
    them, votes that are under way."""

    mesh: MeshId
    prefix: IPv6Network
    founder: SigningKey
    members: tuple[Member, ...]
    removed: Mapping[SigningKey, tuple[RecordHash, ...]]
    tallies: Mapping[SigningKey, Tally]
    warnings: tuple[RosterWarning, ...]

    def by_key(self, key: SigningKey) -> Member | None:
        """The live member with this signing key."""
        return next((one for one in self.members if one.key == key), None)

    def by_address(self, address: IPv6Address) -> Member | None:
        """The live member with this overlay address."""
        return next((one for one in self.members if one.address == address), None)

    def named(self, name: NodeName) -> tuple[Member, ...]:
        """The live members of this name; a claim to a taken name is refused."""
        return tuple(one for one in self.members if name in one.called)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claims:
    """What speaks for one live member, before claims are weighed against each other."""

    key: SigningKey
    admission: Admission | Genesis
    called: frozenset[NodeName]
    record: RecordHash
    said: SelfRecord | None
    said_record: RecordHash
    cloned: bool
    distance: int
    remover: SigningKey | None

    @property
    def wireguard(self) -> WgKey:
        return self.said.wireguard if self.said else self.admission.wireguard

    def rank(self) -> tuple[bool, int, str, datetime, int, RecordHash]:
        """The order in which claims to one WireGuard key win (N2)."""
        if self.said is None or self.said.wireguard == self.admission.wireguard:
            by = self.admission.admitted_by if isinstance(self.admission, Admission) else self.key
            return False, self.distance, by, self.admission.time, self.distance, self.record
        since = max(self.said.wireguard_since, self.admission.time)
        return True, 0, "", since, self.distance, self.said_record


def view(roster: Roster) -> View:
    """The members by these records; the same for the same records in any order."""
    standing = judge(roster.founding, roster.entries.values())
    claims = _claims(roster, standing)
    owners = _owners(claims)
    displays = _displays(claims)
    members = sorted(
        (_member(roster, one, owners, displays[one.key]) for one in claims),
        key=lambda one: one.address,
    )
    return View(
        mesh=roster.mesh,
        prefix=prefix_of(roster.mesh),
        founder=roster.founding.genesis.ed25519,
        members=tuple(members),
        removed=standing.removed,
        tallies=standing.tallies,
        warnings=_warnings(members, claims, owners),
    )


def find(seen: View, text: str) -> Member:
    """A live member by name, name~hex, overlay address or signing key; Refused
    (member-unknown, or member-ambiguous naming all addresses)."""
    name, tilde, mark = text.partition("~")
    found = [
        one
        for one in seen.members
        if text in (one.key, one.address.compressed, *one.called)
        or (tilde and mark and name in one.called and one.key.startswith(mark))
    ]
    if not found:
        raise Refused(
            "member-unknown",
            f"no live member is called {text}",
            "`keel mesh status` lists the members with their names and addresses",
        )
    if len(found) > 1:
        which = ", ".join(f"{one.display} is {one.address.compressed}" for one in found)
        raise Refused(
            "member-ambiguous",
            f"{len(found)} members are called {text}: {which}",
            "name the one you mean by its address",
        )
    return found[0]


def chain(roster: Roster, key: SigningKey) -> tuple[bytes, ...]:
    """The records that prove a live member, genesis first; Refused (member-unknown).

    Records that removed a signer on the way but left its admission standing are no part of it.
    """
    standing = judge(roster.founding, roster.entries.values())
    if key not in standing.live:
        raise Refused(
            "member-unknown",
            f"no live member has the key {key}",
            "`keel mesh sync` asks the other members for what this node may lack",
        )
    return (roster.founding.raw, *(one.raw for one in standing.chain(key)))


def _claims(roster: Roster, standing: Standing) -> list[_Claims]:
    said: dict[SigningKey, list[tuple[RecordHash, SelfRecord]]] = defaultdict(list)
    for record in sorted(roster.entries):
        entry = roster.entries[record]
        if isinstance(entry.body, SelfRecord):
            said[entry.signer].append((record, entry.body))
    found = []
    for key in sorted(standing.live):
        admitted = standing.admission.get(key)
        newest = said.get(key, [])
        admission = admission_in(admitted) if admitted else roster.founding.genesis
        found.append(
            _Claims(
                key=key,
                admission=admission,
                called=standing.called.get(key, frozenset((admission.name,))),
                record=admitted.record if admitted else roster.founding.record,
                said=newest[0][1] if newest else None,
                said_record=newest[0][0] if newest else roster.founding.record,
                cloned=len(newest) > 1,
                distance=standing.distance[key],
                remover=standing.remover[key],
            )
        )
    return found


def _owners(claims: Sequence[_Claims]) -> dict[WgKey, SigningKey]:
    """Whose each WireGuard key is (N2); a present key goes before anybody's next one."""
    owners: dict[WgKey, SigningKey] = {}
    for one in sorted(claims, key=_Claims.rank):
        owners.setdefault(one.wireguard, one.key)
    for one in sorted(claims, key=_Claims.rank):
        if one.said and one.said.next_wireguard:
            owners.setdefault(one.said.next_wireguard, one.key)
    return owners


def _displays(claims: Sequence[_Claims]) -> dict[SigningKey, str]:
    """The names, with as many digits of the key behind as tell equal names apart (N4)."""
    by_name: dict[NodeName, list[SigningKey]] = defaultdict(list)
    for one in claims:
        for name in one.called:
            by_name[name].append(one.key)
    shown: dict[SigningKey, str] = {}
    for one in claims:
        name = one.admission.name
        found = by_name[name]
        digits = _SHORTEST_MARK
        while len({key[:digits] for key in found}) < len(found):
            digits += 1
        shown[one.key] = f"{name}~{one.key[:digits]}" if len(found) > 1 else name
    return shown


def _member(
    roster: Roster, claims: _Claims, owners: Mapping[WgKey, SigningKey], display: str
) -> Member:
    admission, said = claims.admission, claims.said
    next_wireguard = said.next_wireguard if said else None
    return Member(
        name=admission.name,
        called=claims.called,
        display=display,
        key=claims.key,
        address=roster.founding.address_of(claims.key),
        wireguard=claims.wireguard if owners[claims.wireguard] == claims.key else None,
        claimed=claims.wireguard,
        next_wireguard=(
            next_wireguard if next_wireguard and owners[next_wireguard] == claims.key else None
        ),
        endpoints=said.endpoints if said else (),
        capability=said.capability if said else admission.capability,
        roots=said.roots if said else (),
        admitted_by=admission.admitted_by if isinstance(admission, Admission) else claims.key,
        remover=claims.remover,
        admitted_at=admission.time,
        admission=claims.record,
        self_counter=said.counter if said else None,
        said_at=said.time if said else None,
        lived=said.lived if said else 0,
        versions=said.versions if said else (),
        distance=claims.distance,
    )


def _warnings(
    members: Sequence[Member], claims: Sequence[_Claims], owners: Mapping[WgKey, SigningKey]
) -> tuple[RosterWarning, ...]:
    by_key = {one.key: one for one in members}
    found = [
        RosterWarning(
            code=CLONE,
            subject=one.key,
            text=f"{by_key[one.key].display} signed two self records of one number:"
            " two machines run with its key",
        )
        for one in claims
        if one.cloned
    ]
    found += [
        RosterWarning(
            code=WIREGUARD_KEY_TWICE,
            subject=one.key,
            text=f"{by_key[one.key].display} claims the WireGuard key of"
            f" {by_key[owners[one.wireguard]].display}",
        )
        for one in claims
        if owners[one.wireguard] != one.key
    ]
    found += [
        RosterWarning(
            code=NAME_TWICE,
            subject=one.key,
            text=f"{one.display} at {one.address.compressed} has the name of another member",
        )
        for one in members
        if one.display != one.name
    ]
    return tuple(found)
