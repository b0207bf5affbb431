"""New records: what a node signs, from what its roster shows.

Owns how admissions, removals, votes and self records are composed. Signs; sends and keeps nothing:
the caller merges `wire.encode` of the result into its roster.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from ipaddress import IPv6Address

from keel.errors import Refused
from keel.mesh import wire
from keel.mesh.keys import SigningPair
from keel.mesh.members import View, view
from keel.mesh.records import (
    ADMISSION,
    GENESIS,
    REMOVAL,
    SELF,
    VERSIONS,
    VOTE,
    Admission,
    AdoptedMember,
    Genesis,
    Removal,
    SelfRecord,
    Vote,
)
from keel.mesh.roster import Roster
from keel.mesh.standing import judge
from keel.mesh.wire import Envelope
from keel.types import (
    Capability,
    Endpoint,
    NodeName,
    Nonce,
    RecordHash,
    SigningKey,
    WgKey,
)


class Right(StrEnum):
    """By what right a member may remove another mesh-wide; NONE needs votes."""

    SUBJECT = "subject"
    ADMITTER = "admitter"
    MUTUAL_ROOTS = "mutual-roots"
    NONE = "none"


def make_genesis(
    pair: SigningPair,
    *,
    name: NodeName,
    wireguard: WgKey,
    capability: Capability,
    now: datetime,
    nonce: Nonce,
    adopted: Sequence[tuple[SigningKey, IPv6Address]] = (),
) -> Envelope:
    """The founder's genesis; wire.encode of it goes to roster.founded."""
    body = Genesis(
        name=name,
        ed25519=pair.public,
        wireguard=wireguard,
        capability=capability,
        time=now,
        nonce=nonce,
        adopted=tuple(AdoptedMember(ed25519=key, address=address) for key, address in adopted),
    )
    return wire.seal(GENESIS, body, pair)


def make_admission(
    roster: Roster,
    pair: SigningPair,
    *,
    name: NodeName,
    ed25519: SigningKey,
    wireguard: WgKey,
    capability: Capability,
    now: datetime,
    nonce: Nonce,
) -> Envelope:
    """An admission by `pair`, with the address that the key has in this mesh.

    Refused (signer-not-live, key-removed, self-admission, address-taken).
    """
    seen = view(roster)
    _expect_live(seen, pair)
    if ed25519 == pair.public:
        raise Refused("self-admission", "this node is a member already", "nothing is left to do")
    if ed25519 in seen.removed:
        raise Refused(
            "key-removed",
            f"the key of {name} was removed from this mesh and can never be a member again",
            "`keel mesh leave` on that node moves its keys aside; then join it with a new invite",
        )
    body = Admission(
        mesh=roster.mesh,
        name=name,
        ed25519=ed25519,
        address=roster.founding.address_of(ed25519),
        wireguard=wireguard,
        capability=capability,
        admitted_by=pair.public,
        time=now,
        nonce=nonce,
    )
    return wire.seal(ADMISSION, body, pair)


def make_self(
    roster: Roster,
    pair: SigningPair,
    *,
    wireguard: WgKey,
    endpoints: Sequence[Endpoint],
    capability: Capability,
    roots: Sequence[SigningKey],
    lived: int,
    now: datetime,
    next_wireguard: WgKey | None = None,
) -> Envelope:
    """The next self record of `pair`: the highest counter in the roster, and one.

    `roots` are the operator-made ones only. `wireguard_since` is kept while the key stays.
    """
    own = [
        one.body
        for one in roster.entries.values()
        if isinstance(one.body, SelfRecord) and one.signer == pair.public
    ]
    since = [one.wireguard_since for one in own if one.wireguard == wireguard]
    body = SelfRecord(
        mesh=roster.mesh,
        ed25519=pair.public,
        wireguard=wireguard,
        wireguard_since=min(since, default=now),
        next_wireguard=next_wireguard,
        endpoints=tuple(endpoints),
        capability=capability,
        roots=tuple(sorted(roots)),
        versions=VERSIONS,
        lived=lived,
        counter=max((one.counter for one in own), default=0) + 1,
        time=now,
    )
    return wire.seal(SELF, body, pair)


def right_to_remove(roster: Roster, signer: SigningKey, subject: SigningKey) -> Right:
    """By what right the signer may remove the subject, the strongest first."""
    if signer == subject:
        return Right.SUBJECT
    if signer == judge(roster.founding, roster.entries.values()).remover.get(subject):
        return Right.ADMITTER
    if _grounds(roster, signer, subject):
        return Right.MUTUAL_ROOTS
    return Right.NONE


def make_removal(
    roster: Roster, pair: SigningPair, subject: SigningKey, *, now: datetime, nonce: Nonce
) -> Envelope:
    """A removal that counts mesh-wide, all of the subject's known records standing.

    Refused (signer-not-live, member-unknown, removal-needs-votes).
    """
    seen = view(roster)
    _expect_live(seen, pair)
    name = _display(seen, subject)
    right = right_to_remove(roster, pair.public, subject)
    if right is Right.NONE:
        raise Refused(
            "removal-needs-votes",
            f"{name} is removed for all only by itself, its admitter, a member that it and you"
            " made each other's trust roots, or by votes of more than half",
            "`keel mesh leave` on that node itself, or `keel mesh remove --vote` on more than half"
            " of the members",
        )
    mutual = right is Right.MUTUAL_ROOTS
    body = Removal(
        mesh=roster.mesh,
        subject=subject,
        standing=_standing_of(roster, subject),
        grounds=_grounds(roster, pair.public, subject) if mutual else (),
        removed_by=pair.public,
        time=now,
        nonce=nonce,
    )
    return wire.seal(REMOVAL, body, pair)


def make_vote(
    roster: Roster, pair: SigningPair, subject: SigningKey, *, now: datetime, nonce: Nonce
) -> Envelope:
    """A vote to remove the subject, with the electorate that this roster shows.

    Refused (signer-not-live, member-unknown).
    """
    seen = view(roster)
    _expect_live(seen, pair)
    _display(seen, subject)
    judged = judge(roster.founding, roster.entries.values())
    chains = {one.record for key in judged.live for one in judged.chain(key)}
    body = Vote(
        mesh=roster.mesh,
        subject=subject,
        standing=_standing_of(roster, subject),
        electorate=tuple(sorted({roster.founding.record, *chains})),
        voter=pair.public,
        time=now,
        nonce=nonce,
    )
    return wire.seal(VOTE, body, pair)


def _expect_live(seen: View, pair: SigningPair) -> None:
    if seen.by_key(pair.public) is None:
        raise Refused(
            "signer-not-live",
            "this node is not a member of the mesh any more: nobody would heed what it signs",
            "`keel mesh leave`, then join with a new invite",
        )


def _display(seen: View, subject: SigningKey) -> str:
    member = seen.by_key(subject)
    if member is None:
        raise Refused(
            "member-unknown",
            f"no live member has the key {subject}",
            "`keel mesh status` lists the members with their names and addresses",
        )
    return member.display


def _standing_of(roster: Roster, subject: SigningKey) -> tuple[RecordHash, ...]:
    """The subject's admissions that this node knows and removals that count: they go on to."""
    judged = judge(roster.founding, roster.entries.values())
    counting = {record for by in judged.removed.values() for record in by}
    return tuple(
        sorted(
            one.record
            for one in roster.entries.values()
            if one.signer == subject and (one.kind == ADMISSION or one.record in counting)
        )
    )


def _grounds(roster: Roster, signer: SigningKey, subject: SigningKey) -> tuple[bytes, ...]:
    """The self records in which the two list each other, the signer's first; else none."""
    listing = {
        (one.signer, root): one.raw
        for one in roster.entries.values()
        if isinstance(one.body, SelfRecord)
        for root in one.body.roots
    }
    found = listing.get((signer, subject)), listing.get((subject, signer))
    return (found[0], found[1]) if found[0] and found[1] else ()
