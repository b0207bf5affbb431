"""Growing the cluster: the holder's line of waiting nodes, its learner, and the planner over them
(E11, E12, E14).

Pure: the world comes in as plain values, one decision comes out; the caller takes one step, looks
again and asks again, from any interrupted state.
(L1) One learner at a time: the next one waits in line, in the order in which they were ready.
(L2) A learner is added only for a node that answered in this pass, and while every voter answers.
(L3) It is promoted by keel's own gate: it answers and hears the leader, its applied index is near
     the leader's commit in two looks in a row, and every voter answers and hears the leader.
(L4) One that never started goes after an hour, to the end of the line; a slow one never goes.
(L5) One that started and was not heard for a day, while another waits, is reported; only a person
     takes it out.
(L6) Whoever lost its data gets a new place under a new ID, its old one removed first, and only
     while the others are a quorum without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from ipaddress import IPv6Address

from keel.mesh.birth import Party
from keel.mesh.etcdstate import Queue, Queued, Wanted, dequeue, enqueue
from keel.outcome import Plan, Step, Waiting
from keel.types import EtcdMemberId, SigningKey

NEVER_STARTED = timedelta(hours=1)
SILENT = timedelta(hours=24)
HEARD_EVERY = timedelta(minutes=10)
"""How often it is written down that a learner answers."""
NEAR_ENTRIES = 100
"""Of the log: what a busy registry writes in a round trip or two."""
VOTER_DOWN = "etcd adds no member while a voter is down"
ONE_AT_A_TIME = "etcd takes one learner at a time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """What a member's keel says in this pass of its own etcd, asked on its own machine."""

    member_id: EtcdMemberId
    leader: EtcdMemberId
    commit: int
    applied: int
    learner: bool

    def __post_init__(self) -> None:
        if any(not 0 <= one < 2**64 for one in (self.member_id, self.leader)):
            raise ValueError("an ID of etcd's has 64 bits")
        if any(not 0 <= one < 2**64 for one in (self.commit, self.applied)):
            raise ValueError("an index of etcd's has 64 bits")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A member as etcd lists it. `key`: whose it is in the mesh (or in an open claim), None when
    nobody's; `started`: it has published itself once."""

    id: EtcdMemberId
    address: IPv6Address
    name: str
    key: SigningKey | None
    learner: bool
    started: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """The admission under way. `key` is None for one that nobody knows; `replaces`: the ID that its
    node had before; `heard`: when its etcd last answered."""

    address: IPv6Address
    since: datetime
    key: SigningKey | None = None
    heard: datetime | None = None
    replaces: EtcdMemberId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Former:
    """An ID that a node had in the cluster and will never have again."""

    key: SigningKey
    id: EtcdMemberId


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthBook:
    """growth.json, the holder's: the one admission that is open, and the IDs that were taken out
    of the list and whose nodes are to come back."""

    open: Open | None = None
    former: tuple[Former, ...] = ()
    extra: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiter:
    """A node in the line. `answers`: it answered a signed question in this pass."""

    name: str
    party: Party
    answers: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthView:
    """What the holder knows in one pass. `words` by etcd's ID; `near`: the learner that was near
    the leader in the look before this one; `replacing`: members that ask for a new place."""

    members: tuple[Listed, ...]
    words: Mapping[EtcdMemberId, Word]
    line: tuple[Waiter, ...]
    book: GrowthBook
    near: EtcdMemberId | None = None
    replacing: frozenset[SigningKey] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class AddLearner:
    """Note it as open, then add it; `replaces` goes into its record."""

    party: Party
    name: str
    replaces: EtcdMemberId | None
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Promote:
    """The gate is open; `numbers` are what it was judged by."""

    member: Listed
    numbers: str
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAgain:
    """Near once; a second look decides."""

    member: Listed
    numbers: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeOut:
    """Remove this ID: its node never started (back to the end of the line), or asks for a new
    place (`again`)."""

    member: Listed
    again: bool
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """Nothing to do: everybody who can be is in the cluster."""


Growth = AddLearner | Promote | LookAgain | TakeOut | Waiting | Grown


def plan_growth(view: GrowthView, now: datetime) -> Growth:
    """The one next step of the holder, or what it waits for."""
    learner = next((one for one in view.members if one.learner), None)
    if learner is not None:
        return _with_learner(view, learner, now)
    lost = next((one for one in view.members if _asks_anew(view, one)), None)
    if lost is not None:
        return _take_out_lost(view, lost)
    return _next_in_line(view)


def lost_quorum(view: GrowthView, lost: Listed) -> tuple[str, ...]:
    """The voters that would have to come back first, or () when the others are a quorum of the
    present list without it (L6)."""
    voters = [one for one in view.members if not one.learner]
    others = [one for one in voters if one.id != lost.id]
    healthy = [one for one in others if _hears_leader(view, one)]
    if len(healthy) > len(voters) // 2:
        return ()
    return tuple(one.name for one in others if one not in healthy) or (lost.name,)


def silent_learner(view: GrowthView, now: datetime) -> Listed | None:
    """The learner that started, was not heard for a day and keeps another waiting (L5)."""
    learner = next((one for one in view.members if one.learner and one.started), None)
    if learner is None or not view.line or learner.id in view.words:
        return None
    if learner.key in view.replacing:
        return None  # it is at it
    open_one = _open_for(view, learner)
    if open_one is None or now - (open_one.heard or open_one.since) < SILENT:
        return None
    return learner


def line_up(queue: Queue, ready: Iterable[SigningKey], now: datetime) -> Queue:
    """The line with everybody who is ready, newcomers at its end in the given order; whoever is
    not ready any more has left it."""
    wanted = tuple(ready)
    for entry in queue.entries:
        if entry.what is Wanted.LEARNER and entry.subject not in wanted:
            queue = dequeue(queue, Wanted.LEARNER, entry.subject)
    standing = {e.subject for e in queue.entries if e.what is Wanted.LEARNER}
    for key in wanted:
        if key not in standing:
            queue = enqueue(
                queue, Queued(what=Wanted.LEARNER, subject=key, since=now, why="it is ready")
            )
    return queue


def in_line(queue: Queue) -> tuple[SigningKey, ...]:
    """Who waits for a place as learner, first come first."""
    return tuple(entry.subject for entry in queue.entries if entry.what is Wanted.LEARNER)


def begin(
    book: GrowthBook, party: Party, replaces: EtcdMemberId | None, now: datetime
) -> GrowthBook:
    """The admission is open from now on: durable before etcd is asked."""
    return replace(
        book, open=Open(address=party.address, since=now, key=party.key, replaces=replaces)
    )


def adopt(book: GrowthBook, learner: Listed, now: datetime) -> GrowthBook:
    """A learner that etcd lists and the book does not know: its hour begins now."""
    if book.open is not None and book.open.address == learner.address:
        return _not_ahead(book, book.open, now)
    replaces = former_id(book, learner.key) if learner.key else None
    new = Open(address=learner.address, since=now, key=learner.key, replaces=replaces)
    return replace(book, open=new)


def _not_ahead(book: GrowthBook, one: Open, now: datetime) -> GrowthBook:
    """A clock that ran ahead gives no learner more than its hour."""
    heard = None if one.heard is None else min(one.heard, now)
    if (min(one.since, now), heard) == (one.since, one.heard):
        return book
    return replace(book, open=replace(one, since=min(one.since, now), heard=heard))


def heard(book: GrowthBook, now: datetime) -> GrowthBook:
    """The open one's etcd answered."""
    return book if book.open is None else replace(book, open=replace(book.open, heard=now))


def note_former(book: GrowthBook, key: SigningKey, member_id: EtcdMemberId) -> GrowthBook:
    """That ID goes; its node's data of it is never to be used again. Durable before the removal."""
    kept = tuple(one for one in book.former if one.key != key)
    return replace(book, former=(*kept, Former(key=key, id=member_id)))


def former_id(book: GrowthBook, key: SigningKey) -> EtcdMemberId | None:
    return next((one.id for one in book.former if one.key == key), None)


def settled(book: GrowthBook, voters: Iterable[SigningKey]) -> GrowthBook:
    """The book once these are voters: their admissions are over."""
    keys = set(voters)
    over = book.open is not None and book.open.key in keys
    return replace(
        book,
        open=None if over else book.open,
        former=tuple(one for one in book.former if one.key not in keys),
    )


def closed(book: GrowthBook) -> GrowthBook:
    """The open admission is given up."""
    return replace(book, open=None)


def gate(view: GrowthView, learner: Listed) -> str | Waiting:
    """keel's own gate (L3): the numbers of an open one, or what it waits for."""
    what = f"the promotion of {learner.name}"
    word = view.words.get(learner.id)
    if word is None or not word.leader:
        why = "its etcd does not answer" if word is None else "its etcd hears no leader"
        return Waiting(what=what, waiting_for=learner.name, why=why)
    deaf = _deaf_voters(view)
    if deaf:
        return Waiting(what=what, waiting_for=deaf, why="every voter has to answer first")
    leader = view.words.get(word.leader)
    if leader is None or leader.leader != word.leader:
        return Waiting(what=what, waiting_for="the next pass", why="the leader changed just now")
    numbers = f"applied {word.applied} of {leader.commit}"
    if leader.commit - word.applied > NEAR_ENTRIES:
        return Waiting(what=what, waiting_for=learner.name, why=f"it catches up: {numbers}")
    return numbers


def _with_learner(view: GrowthView, learner: Listed, now: datetime) -> Growth:
    if not learner.started:
        return _unstarted(view, learner, now)
    if _asks_anew(view, learner):
        return TakeOut(member=learner, again=True, plan=replacement_plan(learner.name))
    if learner.key is None:
        return Waiting(what=learner.name, waiting_for="its removal", why=_NOBODYS)
    numbers = gate(view, learner)
    if isinstance(numbers, Waiting):
        return numbers
    if view.near != learner.id:
        return LookAgain(member=learner, numbers=numbers)
    step = Step(action="promote", subject=learner.name, why=f"near the leader twice: {numbers}")
    return Promote(member=learner, numbers=numbers, plan=Plan(steps=(step,)))


def _unstarted(view: GrowthView, learner: Listed, now: datetime) -> Growth:
    open_one = _open_for(view, learner)
    since = open_one.since if open_one else now
    if now - since < NEVER_STARTED:
        return Waiting(
            what=f"{learner.name} as a learner",
            waiting_for=learner.name,
            why="its etcd has not started yet",
            since=since,
        )
    step = Step(action="remove-member", subject=learner.name, why="it never started within an hour")
    return TakeOut(member=learner, again=False, plan=Plan(steps=(step,)))


def _take_out_lost(view: GrowthView, lost: Listed) -> Growth:
    missing = lost_quorum(view, lost)
    if missing:
        return Waiting(
            what=f"the new place of {lost.name}",
            waiting_for=", ".join(missing),
            why="the others are no quorum without it",
        )
    return TakeOut(member=lost, again=True, plan=replacement_plan(lost.name))


def replacement_plan(name: str) -> Plan:
    """What a replacement does at the holder and at the member."""
    return Plan(
        steps=(
            Step(action="remove-member", subject=name, why="its data is lost, so is its old ID"),
            Step(action="add-learner", subject=name, why="it starts over with the others' data"),
            Step(action="send-record", subject=name, why="it may start a new member"),
        )
    )


def next_plan(name: str, following: str) -> Plan:
    """What taking a silent learner out for the next one does."""
    return Plan(
        steps=(
            Step(action="remove-member", subject=name, why="it is silent, and others wait"),
            Step(action="add-learner", subject=following, why="it is next in line; by the tend"),
        )
    )


def _next_in_line(view: GrowthView) -> Growth:
    open_key = view.book.open.key if view.book.open else None
    first = sorted(view.line, key=lambda one: one.party.key != open_key)
    chosen = next((one for one in first if one.answers), None)
    if chosen is None:
        if not first:
            return Grown()
        names = ", ".join(one.name for one in first)
        return Waiting(
            what="a learner", waiting_for=names, why="a place goes to those who answer now"
        )
    deaf = _deaf_voters(view)
    if deaf:
        return voter_down(chosen.name, deaf)
    steps = (
        Step(action="add-learner", subject=chosen.name, why="it is next in line and answers"),
        Step(action="send-record", subject=chosen.name, why="it may start a new member"),
    )
    return AddLearner(
        party=chosen.party,
        name=chosen.name,
        replaces=former_id(view.book, chosen.party.key),
        plan=Plan(steps=steps),
    )


def voter_down(name: str, voters: str) -> Waiting:
    """etcd 3.5.16 adds nobody while a voter is not connected."""
    return Waiting(
        what=f"{name} as a learner",
        waiting_for=voters,
        why=VOTER_DOWN,
    )


def _open_for(view: GrowthView, learner: Listed) -> Open | None:
    found = view.book.open
    return found if found is not None and found.address == learner.address else None


def _asks_anew(view: GrowthView, one: Listed) -> bool:
    """Its node asks for a new place, and its old one is of no use: its etcd does not serve."""
    return one.key in view.replacing and not _hears_leader(view, one)


def _hears_leader(view: GrowthView, one: Listed) -> bool:
    word = view.words.get(one.id)
    return word is not None and bool(word.leader)


def _deaf_voters(view: GrowthView) -> str:
    return ", ".join(
        one.name for one in view.members if not one.learner and not _hears_leader(view, one)
    )


_NOBODYS = "etcd lists it, and it is no node of the mesh"
