"""How a member's request comes to the holder: by itself, and through its inviter (E2, E9).

Owns the asking, the relay and their entries in queue.json. What a grant is worth is
keel.mesh.etcdcheck's; who signs it, keel.mesh.etcdissue's.

Rules:
(Q1) A joiner's enrolment is in its inviter's queue before the invite is spent, and leaves it when
     the joiner has a grant, is no member, or the holder or the joiner said no for good.
(Q2) Both ways lead to one grant: the holder gives the same one again for the same key.
(Q3) What is queued is shown with whom it waits for, and tried every few seconds (the fast timer)
     for a day, by the slow one after it.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from keel.errors import PeerError, Refused
from keel.mesh import etcdcert, etcdreserve, etcdstore, etcdtaken, members, store, talk
from keel.mesh.duty import Duty, done, nothing, waits
from keel.mesh.etcdholder import candidates, holder_member
from keel.mesh.etcdmsg import Enroll, EnrollAnswer, Grant, TakeGrant, TakeGrantAnswer
from keel.mesh.etcdstate import Queued, Wanted, dequeue, enqueue, entry_of, tried
from keel.mesh.exchange import ETCD_PATH
from keel.mesh.invite import Claim
from keel.mesh.members import Member
from keel.mesh.store import Node
from keel.mesh.trust import may_ask
from keel.outcome import Waiting
from keel.ports import Host
from keel.types import SigningKey

ENROLL = "enroll"
GRANT = "grant"
RELAY = "relay"

UNKNOWN_HOLDER = "no holder of the etcd root is known here yet"
FINAL = ("enrolment-", "grant-")
"""What begins so says no to this very request; only an admission may still come to the holder."""
NOT_YET = "enrolment-not-admitted"
HASTE = timedelta(days=1)
"""A pass every few seconds costs; who is gone for longer may wait five minutes when it is back."""


def relay(host: Host, node: Node) -> Duty:
    """An inviter that is not the holder asks it for those that it let in, and hands each its grant.
    So a joiner gets one that the holder does not know or that it cannot reach itself."""
    entries = _entries(host, Wanted.RELAY)
    if not entries:
        return nothing(RELAY, "nobody's request is to be relayed")
    holders = candidates(host, node)
    if not holders:
        return nothing(RELAY, UNKNOWN_HOLDER)
    came_of = [_relay_one(host, node, entry, holders) for entry in entries]
    left = tuple(one for one in came_of if isinstance(one, Waiting))
    if left:
        return waits(RELAY, *left, is_open=is_open(host, node))
    return done(RELAY, "; ".join(one for one in came_of if isinstance(one, str)))


def to_relay(host: Host, claim: Claim) -> None:
    """Queue a joiner's enrolment before its confirmation counts (Q1); nothing for a joiner without
    one or one that was granted in the answer. Hold the lock."""
    if claim.enrolment is None or claim.etcd.grant is not None:
        return
    if etcdstore.load_authority(host) is not None:
        return
    entry = Queued(
        what=Wanted.RELAY,
        subject=claim.ed25519,
        since=host.clock.now(),
        why="it was not asked yet",
        envelope=claim.enrolment,
    )
    etcdstore.save_queue(host, enqueue(etcdstore.load_queue(host), entry))


def waiting(host: Host, node: Node) -> tuple[Waiting, ...]:
    """What is queued here and for whom it waits; nothing while no holder is known."""
    holder = holder_member(host, node)
    found = []
    for entry in (*_entries(host, Wanted.ENROL), *_entries(host, Wanted.RELAY)):
        subject = node.view.by_key(entry.subject)
        if subject is None or holder is None:
            continue
        what = "a grant" if entry.what is Wanted.ENROL else f"the grant of {subject.display}"
        found.append(waiting_for(what, holder, entry))
    return tuple(found)


def is_open(host: Host, node: Node) -> bool:
    """Whether a request that somebody could serve was queued here within a day (Q3)."""
    now = host.clock.now()
    return any(one.since and now - one.since < HASTE for one in waiting(host, node))


def take(host: Host, node: Node, grant: Grant, giver: SigningKey) -> TakeGrantAnswer:
    """A grant that another member brings, unless this node has one already."""
    with store.locked(host, "the mesh"):
        held = etcdstore.load_intermediate(host)
        if held is not None:
            return TakeGrantAnswer(intermediate=etcdcert.serial_of(held[1].certificate))
        reserved = etcdreserve.held(host)
        if reserved is not None and reserved.by != giver and not etcdstore.load_roots(host):
            raise Refused(
                "reserved-for-another",
                "this member is reserved for a node that forms the cluster, and takes no other"
                " first root",
                "nothing: the timer tries again once that is through",
            )
        trusted = may_ask(node.trust, giver)
        checked = etcdtaken.take_grant(host, node, grant, trusted=trusted)
    return TakeGrantAnswer(intermediate=etcdcert.serial_of(checked.intermediate))


def ask(host: Host, node: Node, holder: Member, request: bytes, subject: SigningKey) -> Grant:
    """The holder's grant for a member's request; PeerError by its reason."""
    body = Enroll(enrolment=request, admissions=members.chain(node.roster, subject))
    return talk.ask(host, node, holder, ENROLL, body, EnrollAnswer, path=ETCD_PATH).body.grant


def not_yet(host: Host, what: Wanted, subject: SigningKey, why: str) -> Queued:
    """Queue it, or note one more try that came to nothing."""
    now = host.clock.now()
    with store.locked(host, "the mesh"):
        queue = etcdstore.load_queue(host)
        entry = entry_of(queue, what, subject)
        if entry is None:
            entry = Queued(what=what, subject=subject, since=now, why=why)
            queue = enqueue(queue, entry)
        etcdstore.save_queue(host, tried(queue, entry, now, why))
    return replace(entry, why=why)


def served(host: Host, what: Wanted, subject: SigningKey) -> None:
    """It is done with; absent is fine."""
    if entry_of(etcdstore.load_queue(host), what, subject) is None:
        return
    with store.locked(host, "the mesh"):
        etcdstore.save_queue(host, dequeue(etcdstore.load_queue(host), what, subject))


def waiting_for(what: str, whom: Member, entry: Queued) -> Waiting:
    """An entry of the queue in words."""
    return Waiting(what=what, waiting_for=whom.display, why=entry.why, since=entry.since)


def _relay_one(host: Host, node: Node, entry: Queued, holders: tuple[Member, ...]) -> Waiting | str:
    """What one request came to: what it waits for still, or how it ended. Of several that claim to
    hold the root one that grants what the joiner does not believe says nothing for the others."""
    joiner = node.view.by_key(entry.subject)
    if joiner is None:
        served(host, Wanted.RELAY, entry.subject)
        return "who asked is no member any more"
    said: list[tuple[Member, PeerError]] = []
    for holder in holders:
        whom = holder
        try:
            grant = ask(host, node, holder, entry.envelope or b"", joiner.key)
            whom, body = joiner, TakeGrant(grant=grant)
            talk.ask(host, node, joiner, GRANT, body, TakeGrantAnswer, path=ETCD_PATH)
        except PeerError as error:
            said.append((whom, error))
            continue
        served(host, Wanted.RELAY, joiner.key)
        return f"relayed the request of {joiner.display} to {holder.display}"
    open_ones = [one for one in said if not _is_final(one[1])]
    if open_ones:
        whom, first = open_ones[0]
        entry = not_yet(host, Wanted.RELAY, joiner.key, first.text)
        return waiting_for(f"the grant of {joiner.display}", whom, entry)
    served(host, Wanted.RELAY, joiner.key)
    whom, last = said[-1]
    return f"{whom.display} refused the request of {joiner.display}: {last.text}"


def _is_final(error: PeerError) -> bool:
    return error.reason != NOT_YET and error.reason.startswith(FINAL)


def _entries(host: Host, what: Wanted) -> tuple[Queued, ...]:
    return tuple(one for one in etcdstore.load_queue(host).entries if one.what is what)
