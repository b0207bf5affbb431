"""The holder's flow of growing: the tend's duty `membership`, a fourth's admission, new places for
members that lost their data (E11, E12, E14).

Owns the order of effects around keel.mesh.growth's decisions. The list is etcd's
(keel.mesh.etcdchange), the records are keel.mesh.etcdspread's.

Rules:
(G1) Peers and etcd are asked before the lock is taken; it is never held across a change of etcd's.
(G2) What is about to be added or taken out is on disk before etcd is asked.
(G3) One step, then look again: every pass goes on from whatever it finds.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import datetime, timedelta
from ipaddress import IPv6Address

from keel.errors import KeelError, Refused
from keel.etcdport import EtcdMember
from keel.mesh import (
    etcdbirth,
    etcdchange,
    etcdissue,
    etcdspread,
    etcdstate,
    etcdstore,
    growth,
    refusal,
    selfrecord,
    store,
    talk,
    up,
)
from keel.mesh.birth import Party
from keel.mesh.duty import Duty, done, nothing, waits
from keel.mesh.etcdchange import AlreadySo, Changed
from keel.mesh.etcdids import id_text
from keel.mesh.etcdmsg import PlaceAnswer, ReplaceAnswer
from keel.mesh.etcdplan import until_clock, until_window
from keel.mesh.etcdsight import Joiner, Sight, look
from keel.mesh.etcdstate import Wanted
from keel.mesh.growth import AddLearner, Grown, Growth, LookAgain, Promote, TakeOut
from keel.mesh.invite import Claim
from keel.mesh.joinmsg import EtcdPart
from keel.mesh.members import Member
from keel.mesh.store import Node
from keel.mesh.token import EtcdHint
from keel.outcome import Plan, Waiting
from keel.ports import Host
from keel.types import EtcdMemberId, SigningKey

NAME = "membership"
GROWTH = "the cluster's growth"
MAX_STEPS = 8
"""Far more than one pass takes: add, look, look, promote, and the next in line."""
LOOK_SECONDS = 1.0
"""Between the two looks at a learner: some round trips of raft's."""
STARTS_SOON = timedelta(minutes=10)
"""So long after its admission the holder looks every few seconds for a learner that starts."""

log = logging.getLogger(__name__)


def duty(host: Host, node: Node) -> Duty:
    """Bring the next one in, promote who has caught up, and see to it that every member has the
    record that it needs; at the holder of a cluster only."""
    if etcdstore.load_authority(host) is None:
        return nothing(NAME, "another node holds the root")
    if etcdstore.load_book(host).formed is None:
        return nothing(NAME, "there is no cluster yet")
    if talk.clock_is_off(host):
        return waits(NAME, until_clock(GROWTH))
    if store.window_is_open(host):
        return waits(NAME, until_window(GROWTH))
    return _go_on(host, node)


def give_etcd_part(host: Host, node: Node, claim: Claim) -> EtcdPart:
    """The registry's part of an admission; where there is a cluster already the joiner is added
    as a learner before it is answered, if it is its turn (E11)."""
    part = etcdbirth.give_etcd_part(host, node, claim)
    if part.state is not EtcdHint.RUNNING:
        return part
    joiner = Party(address=claim.address, key=claim.ed25519)
    try:
        found = at_admission(host, node, joiner, claim.name)
    except KeelError as error:  # the grant stands, and the tend goes on
        return replace(part, note=refusal.for_others(error))
    if isinstance(found, str):
        return replace(part, note=found)
    return replace(part, cluster_record=found, note=None)


def at_admission(host: Host, node: Node, joiner: Party, name: str) -> bytes | str:
    """The record of a joiner that is a learner now, or why it is not one yet."""
    sight = look(host, node, joiner=Joiner(party=joiner, name=name))
    if isinstance(sight, Waiting):
        return sight.text
    if etcdchange.by_address(sight.listed, joiner.address) is not None:
        return etcdspread.record_for(host, node, sight.listed, joiner.address)
    decided = growth.plan_growth(sight.view, host.clock.now())
    if isinstance(decided, AddLearner) and decided.party == joiner:
        added = _add(host, decided, sight)
        if not isinstance(added, Waiting):
            return etcdspread.record_for(host, node, added, joiner.address)
        return added.text
    line = [one.party for one in sight.view.line]
    why = decided.text if isinstance(decided, Waiting) else growth.ONE_AT_A_TIME
    return f"place {line.index(joiner) + 1} of {len(line)} in the line for the cluster: {why}"


def place(host: Host, key: SigningKey) -> PlaceAnswer:
    """Where that node stands in the line; from this node's disk alone."""
    if etcdstore.load_book(host).formed is None:
        return PlaceAnswer(cluster=False, of=0, why="there is no cluster yet")
    queue = etcdstore.load_queue(host)
    line = growth.in_line(queue)
    entry = etcdstate.entry_of(queue, Wanted.LEARNER, key)
    if entry is None:
        return PlaceAnswer(cluster=True, of=len(line), why="the holder's next pass sees to it")
    return PlaceAnswer(cluster=True, of=len(line), place=line.index(key) + 1, why=entry.why)


def replace_member(host: Host, node: Node, asker: Member, *, dry_run: bool) -> ReplaceAnswer:
    """Give a member that lost its data a new place: its old ID out, its address in as a learner,
    a record that says so. Refused by rule; run again after any interruption it goes on."""
    etcdissue.require_authority(host)
    talk.refuse_wrong_clock(host)
    if store.window_is_open(host):
        raise Refused(
            "replace-window",
            "a change to the network waits for its confirmation",
            "confirm it or wait until it is undone, then run this again",
        )
    sight = _look_for(host, node, asker)
    _check_replacement(sight, asker)
    steps = growth.replacement_plan(asker.display).steps
    known = selfrecord.newest_of(node, asker.key)
    if dry_run:
        return ReplaceAnswer(steps=steps, newest_of_you=known)
    while True:
        mine = etcdchange.by_address(sight.listed, asker.address)
        if mine is not None and mine.learner and not mine.client_urls:
            raw = etcdspread.record_for(host, node, sight.listed, asker.address)
            up.kick_tend(host)  # which promotes it
            return ReplaceAnswer(steps=steps, newest_of_you=known, record=raw)
        decided = growth.plan_growth(sight.view, host.clock.now())
        mine_too = isinstance(decided, AddLearner | TakeOut | Waiting)
        stuck = _execute(host, decided, sight) if mine_too else _OTHERS_FIRST
        if isinstance(stuck, Waiting):
            return ReplaceAnswer(
                steps=steps, newest_of_you=known, waiting_for=stuck.waiting_for, why=stuck.why
            )
        sight = _look_for(host, node, asker)


def replace_learner(host: Host, node: Node, name: str, *, dry_run: bool = False) -> str | Plan:
    """Take the silent learner of that name out for the next in line; Refused unless it is one that
    does not answer and keeps another waiting. For `form --replace-learner`."""
    etcdissue.require_authority(host)
    sight = look(host, node)
    if isinstance(sight, Waiting):
        raise _no_quorum(sight.waiting_for)
    learner = next((one for one in sight.view.members if one.learner), None)
    if learner is None or learner.name != name:
        raise Refused(
            "replace-learner-unknown",
            f"{name} is not a learner of the cluster",
            "look at `keel mesh etcd status`; only a learner is replaced by this",
        )
    if learner.id in sight.view.words:
        raise Refused(
            "replace-learner-answers",
            f"{name} answers; it is brought in by itself",
            "nothing: the holder's timer promotes it once it has caught up",
        )
    if not sight.view.line:
        raise Refused(
            "replace-learner-nobody-waits",
            f"nobody waits for the place of {name}",
            "leave it: a learner that is off costs nothing",
        )
    step = TakeOut(
        member=learner, again=False, plan=growth.next_plan(name, sight.view.line[0].name)
    )
    if dry_run:
        return step.plan
    stuck = _take_out(host, step, sight)
    if isinstance(stuck, Waiting):
        return stuck.text
    return f"{name} was taken out; the next in line is added by the tend"


def _go_on(host: Host, node: Node) -> Duty:
    """Steps until one waits or nothing is left."""
    near: EtcdMemberId | None = None
    did: list[str] = []
    while True:
        sight = look(host, node, near=near)
        if isinstance(sight, Waiting):
            return waits(NAME, sight)
        told = etcdspread.spread(host, node, sight.listed, sight.answers)
        if told:
            did.append(f"told {', '.join(told)}")
        did += [
            f"took back the alarm that the data of {id_text(one)}, which is gone, is corrupt"
            for one in etcdchange.disarm_gone(host, sight.found)
        ]
        _report_silent(host, sight)
        decided = growth.plan_growth(sight.view, host.clock.now())
        near = decided.member.id if isinstance(decided, LookAgain) else None
        came_to = _execute(host, decided, sight)
        if isinstance(came_to, str):
            did.append(came_to)
        over = isinstance(came_to, Waiting) or isinstance(decided, Grown)
        if over or len(did) >= MAX_STEPS:
            return _end(host, sight, decided, came_to, did)


def _end(
    host: Host, sight: Sight, decided: Growth, came_to: str | Waiting | None, did: list[str]
) -> Duty:
    """The duty's word, and each waiting node's reason on disk for whoever asks for its place."""
    waiting = _line_waits(host, sight, came_to) if isinstance(came_to, Waiting) else ()
    is_open = not isinstance(decided, Waiting | Grown) or _moves(sight, host.clock.now())
    if did:
        made = done(NAME, "; ".join(did), is_open=is_open)
        return replace(made, waiting=waiting)
    if waiting:
        return waits(NAME, *waiting, is_open=is_open)
    return nothing(NAME, "everybody who can be is in the cluster")


def _execute(host: Host, decided: Growth, sight: Sight) -> str | Waiting | None:
    """What was done in words, what it waits for, or None when there was only to look."""
    match decided:
        case AddLearner():
            added = _add(host, decided, sight)
            return added if isinstance(added, Waiting) else f"{decided.name} is a learner now"
        case Promote():
            return _promote(host, decided, sight)
        case TakeOut():
            return _take_out(host, decided, sight)
        case LookAgain():
            log.info("learner %s: %s", decided.member.name, decided.numbers)
            host.clock.sleep(LOOK_SECONDS)
            return None
        case Waiting():
            return decided
        case Grown():
            return None


def _add(host: Host, decided: AddLearner, sight: Sight) -> tuple[EtcdMember, ...] | Waiting:
    """The list with the new learner in it; the intent is on disk first (G2)."""
    with store.locked(host, "the mesh"):
        book = growth.begin(
            etcdstore.load_growth(host), decided.party, decided.replaces, host.clock.now()
        )
        etcdstore.save_growth(host, book)
    change = etcdchange.add(host, decided.party.address, sight.doors)
    if not isinstance(change, Changed | AlreadySo):
        return etcdchange.waiting(f"{decided.name} as a learner", change, _names(sight))
    with store.locked(host, "the mesh"):
        queue = etcdstore.load_queue(host)
        left = etcdstate.dequeue(queue, Wanted.LEARNER, decided.party.key)
        etcdstore.save_queue(host, left)
    log.info("learner %s: added at %s", decided.name, decided.party.address)
    return change.members


def _promote(host: Host, decided: Promote, sight: Sight) -> str | Waiting:
    name = decided.member.name
    change = etcdchange.promote(host, decided.member.id, sight.doors)
    if not isinstance(change, Changed | AlreadySo):
        return etcdchange.waiting(f"the promotion of {name}", change, _names(sight))
    with store.locked(host, "the mesh"):
        keys = (decided.member.key,) if decided.member.key else ()
        etcdstore.save_growth(host, growth.settled(etcdstore.load_growth(host), keys))
    log.info("learner %s: promoted, near the leader twice: %s", name, decided.numbers)
    return f"{name} is a voter now ({decided.numbers}, twice)"


def _take_out(host: Host, decided: TakeOut, sight: Sight) -> str | Waiting:
    """Its ID goes for good; its node comes back under another: at once, or behind the others."""
    one = decided.member
    with store.locked(host, "the mesh"):
        book = etcdstore.load_growth(host)
        if one.key is not None:
            book = growth.note_former(book, one.key, one.id)
        if decided.again and one.key is not None:
            party = Party(address=one.address, key=one.key)
            book = growth.begin(book, party, one.id, host.clock.now())
        etcdstore.save_growth(host, book)
    change = etcdchange.remove(host, one.id, sight.doors)
    if not isinstance(change, Changed | AlreadySo):
        return etcdchange.waiting(f"the removal of {one.name}", change, _names(sight))
    if not decided.again:
        with store.locked(host, "the mesh"):
            etcdstore.save_growth(host, growth.closed(etcdstore.load_growth(host)))
    log.info("member %s: %x removed", one.name, one.id)
    return f"{one.name} was taken out"


def _names(sight: Sight) -> dict[IPv6Address, str]:
    return {one.address: one.name for one in sight.view.members}


def _look_for(host: Host, node: Node, asker: Member) -> Sight:
    sight = look(host, node, replacing=asker.key)
    if isinstance(sight, Waiting):
        if etcdstore.load_book(host).formed is None:
            raise Refused(
                "replace-no-cluster",
                "no cluster was formed yet, so there is no place in one to replace",
                "look at `keel mesh etcd status`",
            )
        raise _no_quorum(sight.waiting_for)
    return sight


def _line_waits(host: Host, sight: Sight, stuck: Waiting) -> tuple[Waiting, ...]:
    """What is waited for, the line behind it included; each one's reason is kept for whoever asks
    for its place."""
    first = stuck.text
    reasons = {
        one.party.key: first if place == 0 else growth.ONE_AT_A_TIME
        for place, one in enumerate(sight.view.line)
    }
    with store.locked(host, "the mesh"):
        before = etcdstore.load_queue(host)
        queue = etcdstate.give_reasons(before, Wanted.LEARNER, reasons)
        if queue != before:
            etcdstore.save_queue(host, queue)
    behind = tuple(
        Waiting(what=f"{one.name} as a learner", waiting_for=stuck.waiting_for, why=reasons[key])
        for one in sight.view.line
        if (key := one.party.key) and f"{one.name} as a learner" != stuck.what
    )
    return (stuck, *behind)


def _moves(sight: Sight, now: datetime) -> bool:
    """Whether the next pass should come in seconds: a learner starts or catches up."""
    learner = next((one for one in sight.view.members if one.learner), None)
    open_one = sight.view.book.open
    if learner is None or open_one is None:
        return False
    return learner.id in sight.view.words or now - open_one.since < STARTS_SOON


def _report_silent(host: Host, sight: Sight) -> None:
    silent = growth.silent_learner(sight.view, host.clock.now())
    if silent is not None:
        raise Refused(
            "learner-silent",
            f"the learner {silent.name} was not heard for a day, and others wait for its place",
            f"start {silent.name} again; if it is lost, on the holder:"
            f" `keel mesh etcd form --replace-learner {silent.name}`",
        )


def _check_replacement(sight: Sight, asker: Member) -> None:
    """Whether the member may have a new place now; Refused by rule."""
    view = sight.view
    mine = next((one for one in view.members if one.address == asker.address), None)
    other = next((one for one in view.members if one.learner and one is not mine), None)
    if other is not None:
        raise Refused(
            "replace-learner-in-the-way",
            f"{other.name} is being brought in, and etcd takes one learner at a time",
            "run this again once it is a voter; `keel mesh etcd status` shows it",
        )
    if mine is None:
        if asker.key in {one.party.key for one in view.line}:
            return
        raise Refused(
            "replace-not-listed",
            "the cluster has no member at this node's address, and it holds no grant",
            "nothing is to be replaced: `keel mesh etcd status` says what this node waits for",
        )
    word = view.words.get(mine.id)
    if word is not None and word.leader:
        raise Refused(
            "replace-serves",
            "this member's etcd serves; there is nothing to replace",
            "look at `keel mesh etcd status`",
        )
    missing = () if mine.learner else growth.lost_quorum(view, mine)
    if missing:
        raise _no_quorum(", ".join(missing))


def _no_quorum(missing: str) -> Refused:
    return Refused(
        "replace-no-quorum",
        f"without this member the others are no quorum; missing: {missing}",
        "bring those back first, then run this again",
    )


_OTHERS_FIRST = Waiting(
    what="a new place in the cluster",
    waiting_for="the holder",
    why="another node is brought in first",
)
