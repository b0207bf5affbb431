"""What `keel mesh etcd form` sees: every member's word, and this node's own state.

Owns the look; changes nothing. What follows from it is keel.mesh.forming's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv6Address

from keel.errors import EtcdError, KeelError, PeerError
from keel.mesh import (
    birth,
    etcdcert,
    etcdown,
    etcdreserve,
    etcdstore,
    etcdtaken,
    selfrecord,
    spread,
    store,
    talk,
)
from keel.mesh.behind import BEHIND
from keel.mesh.envelope import Answered
from keel.mesh.etcdgrants import Ledger, first_granted, granted_to
from keel.mesh.etcdholder import holder_of, is_told
from keel.mesh.etcdids import address_of_url
from keel.mesh.etcdmsg import PROBE, PROBE_SECONDS, Probe, ProbeAnswer
from keel.mesh.etcdstate import Stage, Wanted
from keel.mesh.exchange import ETCD_PATH
from keel.mesh.forming import FormView, Peer
from keel.mesh.members import Member
from keel.mesh.reservation import Reservation, live
from keel.mesh.store import Node
from keel.mesh.wgconf import FULL_PACKET
from keel.ports import Deadline, Host
from keel.spec.model import Spec
from keel.types import LOCALHOST, Capability, Fingerprint, SigningKey

BEHIND_SECONDS = 60.0
"""A member that came back hears the others within its sync's period, most often within seconds."""
PAUSE_SECONDS = 2.0
NARROW = "narrow"
ONLY_SMALL = f"it answers small messages, and full packets ({FULL_PACKET} bytes) do not pass"


def observe(
    host: Host,
    spec: Spec,
    node: Node,
    *,
    without: frozenset[SigningKey],
    reserved: frozenset[SigningKey] = frozenset(),
    unasked: frozenset[SigningKey] = frozenset(),
) -> tuple[FormView, Mapping[str, Member]]:
    """Every member's word, beside what this node knows; and who is meant by a step's subject.
    `unasked`: whose silence is known already."""
    others = sorted(talk.others(node), key=lambda one: one.display)
    asked = [one for one in others if one.key not in unasked]
    if asked:
        host.console.waiting(f"asking {', '.join(one.display for one in asked)}")
    heard = dict(_ask(host, node, asked))
    deadline = Deadline.after(host.clock, BEHIND_SECONDS)
    while (away := [m for m in asked if _is_behind(heard[m])]) and not deadline.passed(host.clock):
        names = ", ".join(one.display for one in away)
        host.console.waiting(f"{names} was away and asks the others first who still is a member")
        host.clock.sleep(PAUSE_SECONDS)
        heard |= _ask(host, node, away)
    for member in _narrow(host, node, heard, without):
        heard[member] = PeerError(member.display, NARROW, ONLY_SMALL)
    ledger = etcdstore.load_ledger(host)
    peers = tuple(_peer(ledger, member, heard.get(member)) for member in others)
    return _view(host, spec, node, peers, without, reserved), {one.display: one for one in others}


def _ask(
    host: Host, node: Node, members: Sequence[Member]
) -> Mapping[Member, Answered[ProbeAnswer] | KeelError]:
    return talk.ask_all(
        host,
        node,
        dict.fromkeys(members, Probe()),
        PROBE,
        ProbeAnswer,
        path=ETCD_PATH,
        timeout_seconds=PROBE_SECONDS,
    )


def _narrow(
    host: Host,
    node: Node,
    heard: Mapping[Member, Answered[ProbeAnswer] | KeelError],
    without: frozenset[SigningKey],
) -> tuple[Member, ...]:
    """Who answers small messages only: whatever it said now, no further step gets through."""
    said = [one for one, answer in heard.items() if isinstance(answer, Answered)]
    full = spread.answered(spread.ping(host, node, said, full=True)) if said else ()
    silent = [
        one
        for one, answer in heard.items()
        if one not in full
        and one.key not in without
        and (one in said or spread.said_at(answer) is None)
    ]
    return tuple(spread.small_only(host, node, silent))


def _is_behind(heard: Answered[ProbeAnswer] | KeelError) -> bool:
    """Whether it said no only because it came back just now; it has begun to ask (M9)."""
    return isinstance(heard, PeerError) and heard.reason == BEHIND


def _peer(ledger: Ledger, member: Member, heard: Answered[ProbeAnswer] | KeelError | None) -> Peer:
    return Peer(
        name=member.display,
        key=member.key,
        address=member.address,
        capable=member.capability is Capability.ETCD,
        said=member.self_counter is not None,
        answer=heard.body if isinstance(heard, Answered) else None,
        why=heard.text if isinstance(heard, PeerError) else "no answer",
        granted=frozenset(
            line.serial
            for line in granted_to(ledger, member.address, member.key)
            if line.serial is not None
        ),
        granted_since=first_granted(ledger, member.address, member.key),
    )


def _view(
    host: Host,
    spec: Spec,
    node: Node,
    peers: tuple[Peer, ...],
    without: frozenset[SigningKey],
    reserved: frozenset[SigningKey],
) -> FormView:
    root = _own_root(host, node)
    pinned = etcdstore.load_roots(host)
    reservation = etcdreserve.load(host)
    book, cluster = etcdstore.load_book(host), etcdstore.load_cluster(host)
    holder = holder_of(host, node)
    begun = cluster.stage is not Stage.IDLE or birth.standing(book, host.clock.now()) is not None
    # a pass of the tend has yet to note the leader that this node's etcd follows
    led = cluster.stage is Stage.STARTING and etcdown.sees_leader(host)
    formed = cluster.stage is Stage.FORMED or led
    return FormView(
        name=_name(node, node.key),
        key=node.key,
        address=node.address,
        capable=selfrecord.own_capability(host, spec) is Capability.ETCD,
        window_open=store.window_is_open(host),
        holder=holder,
        holder_name=_name(node, holder),
        root=root,
        pinned=etcdcert.fingerprint(pinned[0]) if pinned else None,
        established=root is not None and _established(root, reservation, node, peers),
        granted=etcdstore.load_intermediate(host) is not None,
        formations=frozenset(one.formation for one in book.formations),
        begun=begun,
        formed=formed,
        peers=peers,
        listed=_listed(host) if formed else frozenset(),
        queued=frozenset(
            one.subject for one in etcdstore.load_queue(host).entries if one.what is Wanted.LEARNER
        ),
        without=without,
        reserved=reserved,
        held=live(reservation, host.clock.now()),
        held_name=_name(node, reservation.by) if reservation else "",
    )


def _established(
    root: Fingerprint, reservation: Reservation | None, node: Node, peers: tuple[Peer, ...]
) -> bool:
    """Whether the root stands for good: one that a form made does once another member has it."""
    by_form = reservation is not None and reservation.by == node.key
    return not by_form or any(one.answer and one.answer.root == root for one in peers)


def _own_root(host: Host, node: Node) -> Fingerprint | None:
    """The root that this node holds, once it is whole and in the roster."""
    authority = etcdstore.load_authority(host)
    whole = etcdstore.load_crl(host) is not None and is_told(host, node)
    return etcdcert.fingerprint(authority[1].certificate) if authority and whole else None


def _listed(host: Host) -> frozenset[IPv6Address]:
    """Who is in etcd's list; by the newest record while etcd itself says nothing."""
    try:
        urls = [url for one in host.etcd_at(LOCALHOST).members() for url in one.peer_urls]
    except EtcdError:
        record = etcdtaken.current_record(host)
        return frozenset(record.members if record else ())
    return frozenset(found for url in urls if (found := address_of_url(url)) is not None)


def _name(node: Node, key: SigningKey | None) -> str:
    member = node.view.by_key(key) if key else None
    return member.display if member else "a node that is gone"
