"""Changes of etcd's member list: the only caller of add, promote and remove.

Owns the order list, change, list again, and what an answer or its loss means (etcd-3.5.16's words
are keel.mesh.etcdwords'). Decides nothing: who is to be added, promoted or removed is said by
keel.mesh.growth and by the removal's flow.

Rules:
(C1) The list is read first, linearizably: what is so already is not asked for again.
(C2) A change whose answer is lost may have been made: the list is read again and says so.
(C3) A change is asked of this node's own etcd, or of the first other one that serves; a promotion
     of the leader, because a follower hides the reason of a refusal.
(C4) Members are found by the address in their peer URL, or by ID; never by a URL's text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv6Address

from keel.errors import EtcdError
from keel.etcdport import EtcdApi, EtcdMember
from keel.mesh.etcdids import address_of_url, id_text, peer_url
from keel.mesh.etcdwords import Cause, cause_of, corrupt_members
from keel.mesh.growth import ONE_AT_A_TIME, VOTER_DOWN
from keel.outcome import Waiting
from keel.ports import Host
from keel.types import LOCALHOST

STATUS_SECONDS = 5.0
"""For one voter's word when etcd says that one is down: some round trips and a lost packet."""

Members = tuple[EtcdMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberList:
    """etcd's list, linearizably read; `at` is where it was read, `leader` where the leader is;
    `corrupt`: the IDs whose data etcd calls so."""

    members: Members
    at: IPv6Address
    leader: IPv6Address
    corrupt: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """It is so now, by this call; `members` is the list after it. `member` is the one added or
    promoted; None after a removal."""

    members: Members
    member: EtcdMember | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlreadySo:
    """It was so before; nothing was asked for."""

    members: Members
    member: EtcdMember | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VoterDown:
    """etcd adds (and hardly removes) nobody while a voter is not connected. `silent`: the voters
    whose etcd did not answer; () while all do, and one has not been connected for 5 s."""

    silent: tuple[IPv6Address, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoQuorum:
    """No etcd that could be asked has a leader."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerInTheWay:
    """etcd takes one learner at a time, and this one is there."""

    learner: EtcdMember


@dataclass(frozen=True, slots=True, kw_only=True)
class NotInSync:
    """etcd itself says that the learner has not caught up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """No answer, and the list does not show the change (it may come yet), or one that is not known
    here; look again in the next pass."""

    why: str


Change = Changed | AlreadySo | VoterDown | NoQuorum | LearnerInTheWay | NotInSync | Unknown


def read_list(host: Host, others: Iterable[IPv6Address] = ()) -> MemberList | NoQuorum:
    """etcd's list, from this node's own etcd or from the first of the others that serves it."""
    why = "no etcd was asked"
    for at in (LOCALHOST, *others):
        try:
            status = host.etcd_at(at).status(timeout_seconds=STATUS_SECONDS)
            if status.leader and not status.learner:
                members = host.etcd_at(at).members()
                found = next((m for m in members if m.id == status.leader), None)
                leader = address_of(found) if found and status.leader != status.member_id else None
                return MemberList(
                    members=members,
                    at=at,
                    leader=leader or at,
                    corrupt=corrupt_members(status.errors),
                )
            why = "it is a learner" if status.learner else "it has no leader"
        except EtcdError as error:
            why = error.summary()
    return NoQuorum(why=why)


def add(host: Host, address: IPv6Address, others: Iterable[IPv6Address] = ()) -> Change:
    """Add the member at the address as a learner, unless it is listed."""
    before = read_list(host, others)
    if isinstance(before, NoQuorum):
        return before
    if (mine := by_address(before.members, address)) is not None:
        return AlreadySo(members=before.members, member=mine)
    if (learner := learner_of(before.members)) is not None:
        return LearnerInTheWay(learner=learner)
    return _change(
        host,
        before,
        before.at,
        lambda api: api.add_learner(peer_url(address)),
        lambda members: by_address(members, address),
    )


def promote(host: Host, member_id: int, others: Iterable[IPv6Address] = ()) -> Change:
    """Make the learner a voter. keel's own gate comes first: etcd promotes dead ones."""
    before = read_list(host, others)
    if isinstance(before, NoQuorum):
        return before
    mine = by_id(before.members, member_id)
    if mine is None:
        return Unknown(why="the learner is not listed any more")
    if not mine.learner:
        return AlreadySo(members=before.members, member=mine)
    return _change(
        host,
        before,
        before.leader,
        lambda api: api.promote(member_id),
        lambda members: next((m for m in members if m.id == member_id and not m.learner), None),
    )


def remove(host: Host, member_id: int, others: Iterable[IPv6Address] = ()) -> Change:
    """Take the member with that ID out of the list."""
    before = read_list(host, others)
    if isinstance(before, NoQuorum):
        return before
    mine = by_id(before.members, member_id)
    if mine is None:
        return AlreadySo(members=before.members)
    return _change(
        host,
        before,
        before.at,
        lambda api: api.remove(member_id),
        lambda members: None if by_id(members, member_id) else mine,
        gone=True,
    )


def disarm_gone(host: Host, found: MemberList) -> tuple[int, ...]:
    """Take back the alarms of members that are in the list no more: their data is nobody's, and
    while one stands etcd writes nothing anywhere. Whose were taken back."""
    gone = sorted(one for one in found.corrupt if by_id(found.members, one) is None)
    done = []
    for member_id in gone:
        try:
            host.etcd_at(found.at).disarm(member_id)
        except EtcdError:
            continue  # the next pass sees it again
        done.append(member_id)
    return tuple(done)


def by_address(members: Members, address: IPv6Address) -> EtcdMember | None:
    return next((m for m in members if address_of(m) == address), None)


def by_id(members: Members, member_id: int) -> EtcdMember | None:
    return next((m for m in members if m.id == member_id), None)


def learner_of(members: Members) -> EtcdMember | None:
    return next((m for m in members if m.learner), None)


def waiting(what: str, change: Change, names: Mapping[IPv6Address, str]) -> Waiting:
    """What a change that was not made waits for, in the nodes' names."""
    match change:
        case VoterDown(silent=()):
            why = "etcd waits until every voter has been connected for five seconds"
            return Waiting(what=what, waiting_for="a steady connection", why=why)
        case VoterDown(silent=silent):
            whom = ", ".join(names.get(one, one.compressed) for one in silent)
            return Waiting(what=what, waiting_for=whom, why=VOTER_DOWN)
        case LearnerInTheWay(learner=learner):
            where = address_of(learner)
            name = names.get(where) if where else None
            return Waiting(what=what, waiting_for=name or text_of(learner), why=ONE_AT_A_TIME)
        case NoQuorum(why=why) | Unknown(why=why):
            return Waiting(what=what, waiting_for="the next pass", why=why)
        case NotInSync():
            why = "etcd itself says that it has not caught up"
            return Waiting(what=what, waiting_for="the next pass", why=why)
        case Changed() | AlreadySo():
            return Waiting(what=what, waiting_for="nobody", why="it is so")


def text_of(member: EtcdMember) -> str:
    """How a member is called that is nobody's: its ID, as etcdctl prints it."""
    return id_text(member.id)


def address_of(member: EtcdMember) -> IPv6Address | None:
    """Where the member's etcd is, by its peer URL."""
    return address_of_url(member.peer_urls[0]) if member.peer_urls else None


def addresses(members: Members) -> tuple[IPv6Address, ...]:
    """Exactly the members', in order: what a record lists."""
    return tuple(sorted(found for m in members if (found := address_of(m)) is not None))


def _change(
    host: Host,
    before: MemberList,
    at: IPv6Address,
    ask: Callable[[EtcdApi], object],
    made: Callable[[Members], EtcdMember | None],
    *,
    gone: bool = False,
) -> Change:
    """Ask, and read the list again whatever came of it (C2)."""
    refused: EtcdError | None = None
    try:
        ask(host.etcd_at(at))
    except EtcdError as error:
        refused = error
    cause = None if refused is None else cause_of(refused)
    if cause is Cause.UNHEALTHY:
        return VoterDown(silent=silent_voters(host, before.members))
    if cause is Cause.NOT_IN_SYNC:
        return NotInSync()
    # Whoever took itself out has no etcd to ask any more: the others have the list.
    others = (before.at, *addresses(before.members)) if gone else (before.at,)
    after = read_list(host, [one for one in dict.fromkeys(others) if one != LOCALHOST])
    if isinstance(after, NoQuorum):
        return after
    found = made(after.members)
    if found is not None:
        return Changed(members=after.members, member=None if gone else found)
    learner = learner_of(after.members)
    if cause is Cause.TOO_MANY_LEARNERS and learner is not None:
        return LearnerInTheWay(learner=learner)
    return Unknown(why="the list does not show it" if refused is None else refused.summary())


def silent_voters(host: Host, members: Members) -> tuple[IPv6Address, ...]:
    """The voters whose etcd does not answer, or hears no leader, one after another."""
    found = []
    for address in addresses(tuple(m for m in members if not m.learner)):
        try:
            if host.etcd_at(address).status(timeout_seconds=STATUS_SECONDS).leader:
                continue
        except EtcdError:
            pass
        found.append(address)
    return tuple(found)
