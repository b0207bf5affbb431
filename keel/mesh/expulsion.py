"""Taking removed members out of etcd's list: who may go now, who must not, and why (E18).

Pure: what etcd lists and what the members say of themselves comes in, a judgement comes out.
(X1) Only a key that a counting removal names is taken out; the removal is the evidence, and every
     node that holds it may act on it.
(X2) A voter goes only while the other healthy voters are a quorum of the list as it is: they must
     carry the change and what comes after it.
(X3) Of two voters the last but one is taken out while both still serve, before its peer goes: one
     alone is no quorum of two.
(X4) A learner may always go. One change at a time; then everything is looked at again.
(X5) A removed member counts as nobody's help: its peer is gone, or goes any moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv6Address

from keel.errors import Refused
from keel.mesh.members import View
from keel.mesh.records import Admission
from keel.mesh.roster import Roster
from keel.outcome import Plan, Step, Waiting
from keel.types import EtcdMemberId, SigningKey

EXPEL = "expel"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A member as etcd lists it. `healthy`: its own etcd hears the leader, by its signed word of
    this pass; `removed`: a counting removal names its key (X1)."""

    id: EtcdMemberId
    name: str
    address: IPv6Address
    learner: bool
    healthy: bool
    removed: bool = False


class Gate(StrEnum):
    """What taking one member out of the cluster would mean."""

    NOT_LISTED = "not-listed"
    OPEN = "open"
    ONE_VOTER = "one-voter"
    """Two voters would become one: no quorum could take it out afterwards (X3)."""
    NO_QUORUM = "no-quorum"
    """The others would not be a quorum of the list (X2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """What the operator typed besides the command: `--without-quorum` or `--one-voter`, each with
    the name of the member that goes."""

    without_quorum: bool = False
    one_voter: bool = False


LEAVE = "keel mesh leave"


def quorum(seats: Sequence[Seat]) -> int:
    """How many voters of this list have to agree."""
    return len(_voters(seats)) // 2 + 1


def gate(seats: Sequence[Seat], subject: IPv6Address) -> Gate:
    """What it would mean if the member at this address went now."""
    mine = next((one for one in seats if one.address == subject), None)
    if mine is None:
        return Gate.NOT_LISTED
    if mine.learner or len(_helpers(seats, mine)) >= quorum(seats):
        return Gate.OPEN
    both = all(one.healthy for one in _voters(seats))
    return Gate.ONE_VOTER if len(_voters(seats)) == 2 and both else Gate.NO_QUORUM


def refuse(found: Gate, name: str, consent: Consent, *, command: str) -> None:
    """Refused when the gate is shut and the operator did not consent to what follows; `command` is
    what was typed, without its options."""
    if found is Gate.NO_QUORUM and not consent.without_quorum:
        raise Refused(
            "removal-no-quorum",
            f"without {name} the healthy voters are no quorum of the cluster, which would not"
            " even agree to take it out",
            "bring the other voters back first; out of the mesh all the same"
            f"{', and when this node was removed already' if command == LEAVE else ''}:"
            f" `{command} --without-quorum --confirm {name}`; etcd goes on listing it until a"
            " quorum is back",
        )
    if found is Gate.ONE_VOTER and not consent.one_voter:
        raise Refused(
            "removal-one-voter",
            f"{name} is one of two voters: what is left is a cluster of one, without any fault"
            " tolerance",
            f"invite another member first; or `{command} --one-voter --confirm {name}`",
        )


def warnings(seats: Sequence[Seat], subject: IPv6Address) -> tuple[str, ...]:
    """What the operator has to know before the member at this address goes (E18)."""
    mine = next((one for one in seats if one.address == subject and not one.learner), None)
    left = len(_voters(seats)) - 1
    if mine is None or left > 2:
        return ()
    return (
        f"{left} voter{'s are' if left == 2 else ' is'} left: etcd has no fault tolerance,"
        " and stops when one more fails",
    )


def plan(seats: Sequence[Seat]) -> Plan:
    """Who is to be taken out now, in order, and who waits for a quorum (X1 to X5)."""
    due = [one for one in seats if one.removed]
    due.sort(key=lambda one: (not one.learner, one.healthy, one.id))
    can_go = [one for one in due if one.learner or _may_go(seats, one)]
    steps = tuple(
        Step(action=EXPEL, subject=f"{one.id:x}", why=f"{one.name} was removed from the mesh")
        for one in can_go
    )
    missing = ", ".join(sorted(s.name for s in _voters(seats) if not s.healthy and not s.removed))
    waiting = tuple(
        still_listed(one.name, missing or "a quorum", "too few other voters are healthy")
        for one in due
        if one not in can_go
    )
    return Plan(steps=steps, waiting=waiting)


def still_listed(name: str, waiting_for: str, why: str) -> Waiting:
    """A removed member that etcd still counts."""
    return Waiting(what=f"the end of {name}'s place in etcd", waiting_for=waiting_for, why=why)


def removed_at(held: Roster, seen: View) -> dict[IPv6Address, SigningKey]:
    """Where the removed were; an address is never another key's."""
    return {held.founding.address_of(key): key for key in seen.removed}


def name_of(held: Roster, key: SigningKey) -> str:
    """What a member was called, that may be one no more."""
    founder = held.founding.genesis
    names = {
        entry.body.ed25519: entry.body.name
        for entry in held.entries.values()
        if isinstance(entry.body, Admission)
    }
    return names.get(key, founder.name if founder.ed25519 == key else key[:8])


def _may_go(seats: Sequence[Seat], mine: Seat) -> bool:
    """X2; and of two voters the removed one may always be tried: who asks has a leader still, and
    it can only become harder (X3)."""
    enough = len(_helpers(seats, mine)) >= quorum(seats)
    return enough or (len(_voters(seats)) == 2 and len(_helpers(seats, mine)) == 1)


def _helpers(seats: Sequence[Seat], mine: Seat) -> list[Seat]:
    """The healthy voters that are left without it (X5)."""
    return [one for one in _voters(seats) if one != mine and one.healthy and not one.removed]


def _voters(seats: Sequence[Seat]) -> list[Seat]:
    return [one for one in seats if not one.learner]
