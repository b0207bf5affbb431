"""`keel mesh sync`: exchange rosters with every member now, and tend invites and peers (M5, M8).

Owns one pass: what lapses, what is raised again, what is told and learned. The timer runs it every
minute, a confirmed join at once. Crash-only: a pass that was cut off is done again by the next.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from keel.errors import KeelError, PeerError
from keel.mesh import (
    admit,
    behind,
    exchange,
    join,
    netsettings,
    netwindow,
    network,
    pendingjoin,
    selfrecord,
    spread,
    status,
    store,
    talk,
    tended,
    up,
)
from keel.mesh.envelope import Answered
from keel.mesh.exchange import RosterAnswer, RosterAsk
from keel.mesh.invite import InviteState
from keel.mesh.liveness import PeerSample
from keel.mesh.members import Member
from keel.mesh.store import Node
from keel.outcome import Done, Incomplete, Plan
from keel.ports import Deadline, Host, WgDevice, WgPeer, WgPeerState
from keel.spec.model import Spec
from keel.types import Capability, Endpoint, InviteId, WgKey
from keel.unitnames import CHANNEL_SOCKET

ROUNDS = 8
"""Exchanges with one member in one pass; each carries 120 KiB of records."""
ROUNDS_SECONDS = 60.0
"""After that no further round begins: who dawdles costs the others a pass, not its unit's time."""
IDLE = timedelta(seconds=60)
LONG = timedelta(seconds=180)
"""Four times what makes a member down: WireGuard has begun some thirty handshakes by then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    """What a pass came to: members by display name, and how many records were new."""

    reached: tuple[str, ...]
    learned: int


def sync(host: Host, spec: Spec) -> Done[Synced] | Incomplete[Synced]:
    """One pass; Incomplete names the members that did not answer."""
    for said in network.tend(host, spec):
        host.console.say(said)
    spec = netsettings.in_force(host, spec)
    node = _tend(host, spec)
    if selfrecord.own_capability(host, spec) is Capability.ETCD:
        me = node.view.by_key(node.key)
        tended.tell_silence(host, me.display if me else "this node")
    _finish_join(host, node)
    was_behind = host.files.exists(host.paths.behind)
    reached, missing, learned = [], [], 0
    for member, outcome in sorted(_exchange_with_all(host, spec, node).items()):
        if isinstance(outcome, KeelError):
            missing.append(outcome.summary())
        else:
            reached.append(member)
            learned += outcome
    behind.heard(host, answered=len(reached), asked=len(reached) + len(missing))
    if was_behind:
        _say_what_is_new(host, spec, reached)
        if reached:
            up.kick_tend(host)  # what waited for the others, and what waited to be told to them
    talk.keep_time(host)
    value = Synced(reached=tuple(reached), learned=learned)
    if missing:
        return Incomplete(
            value=value,
            missing=tuple(missing),
            remedy="look at `keel mesh status`; the timer tries again every minute",
        )
    return Done(value=value, changed=(f"{learned} records learned",) if learned else ())


def plan(host: Host, spec: Spec) -> Plan:
    """What a pass would do now, before it hears anybody. Behind a change to the network that is
    undone first nothing else is shown."""
    window = network.plan_tend(host)
    if netwindow.plan_undo_abandoned(host):
        return window
    node, spec = store.require(host), netsettings.in_force(host, spec)
    fates = admit.lapsing(host, node)
    kept = tuple(later for _, later in fates if later is not None)
    names = ", ".join(sorted(one.display for one in talk.others(node)))
    pending = pendingjoin.load(host, node.mesh)
    called = up.peer_names(node, kept, host.clock.now())
    ends = "its time is over"
    before = (
        *(
            (later is None, "forget-invite", one.invite, "it ended a day ago")
            for one, later in fates
        ),
        *((later not in (one, None), "end-invite", one.invite, ends) for one, later in fates),
        (selfrecord.due(host, spec, node), "sign-self", "this node", "it says how it is now"),
        *((True, "renew-peer", f"invite {one}", "idle") for one, _ in _idle(host, spec, node)),
    )
    after = (
        (not up.listens(host), "start", CHANNEL_SOCKET, "the channel does not listen"),
        *(
            (True, "renew-peer", called[peer.key], f"silent; it is tried at {peer.endpoint}")
            for peer in _silent(host, spec, node, kept)
        ),
        (
            pending is not None,
            "confirm",
            "the inviter",
            "the join that was begun here ends with it",
        ),
        (bool(names), "exchange-records", names, "each learns what it lacks"),
    )
    return window.then(Plan.of(*before), up.plan(host, spec, node, kept), Plan.of(*after))


def _tend(host: Host, spec: Spec) -> Node:
    """What needs no other node: lapsed invites, this node's self record, the interface's peers."""
    with store.locked(host, "the mesh"):
        node = store.require(host)
        invites = admit.lapse(host, node)
        node = selfrecord.refresh(host, spec, node)
        renew_idle_invites(host, spec, node)
        up.bring_up(host, spec, node, invites)
        up.listen(host)
        _look_for_the_silent(host, spec, node, invites)
    return node


def _say_what_is_new(host: Host, spec: Spec, reached: Collection[str]) -> None:
    """A node that was away signs nothing before it has heard the others; then at once, because at
    where it is now they perhaps know no way to it. Whoever was silent just now hears it from them:
    nobody waits for it twice."""
    with store.locked(host, "the mesh"):
        before = store.require(host)
        node = selfrecord.refresh(host, spec, before)
    record = selfrecord.newest(node)
    if record is not None and node.roster != before.roster:
        told = [one for one in talk.others(node) if one.display in reached]
        spread.tell(host, node, told, (record,))


def renew_idle_invites(host: Host, spec: Spec, node: Node) -> tuple[InviteId, ...]:
    """Make the temporary peers anew that nothing uses: WireGuard ignores a joiner whose clock went
    back (a handshake must carry a later time than the last), and forgets that with the peer."""
    idle = _idle(host, spec, node)
    for _, key in idle:
        host.wireguard.remove_peer(spec.network.wireguard.interface, key)
    return tuple(one for one, _ in idle)


def _idle(host: Host, spec: Spec, node: Node) -> tuple[tuple[InviteId, WgKey], ...]:
    """The invites whose temporary peers were used and are not any more."""
    device = host.wireguard.show(spec.network.wireguard.interface)
    found = []
    for invite in store.load_invites(host):
        peer = up.temporary_peer(node, invite)
        state = _peer(device, peer.key)
        if state is None or state.latest_handshake is None:
            continue
        # how far apart, not how long ago: a clock that ran ahead keeps none in use
        if abs(host.clock.now() - state.latest_handshake) >= IDLE:
            found.append((invite.invite, peer.key))
    return tuple(found)


def _peer(device: WgDevice | None, key: str) -> WgPeerState | None:
    return next((p for p in device.peers if p.key == key), None) if device else None


def next_endpoint(
    endpoints: Sequence[Endpoint], state: WgPeerState, *, heard_at: Endpoint | None = None
) -> Endpoint | None:
    """The endpoint to try next with a silent member, of its own and the one at which it was heard
    last; None when what WireGuard has is all there is.

    A peer that two ends have at a wrong place would be found by neither."""
    known = [*endpoints, *([] if heard_at is None or heard_at in endpoints else [heard_at])]
    if not known or known == [state.endpoint]:
        return None
    if state.endpoint not in known:
        return known[0]
    at = known.index(state.endpoint)
    return known[(at + 1) % len(known)]


def is_silent(state: WgPeerState, sample: PeerSample, *, now: datetime, monotonic: float) -> bool:
    """Whether nothing went both ways for long. Of two witnesses one may be wrong: WireGuard's time
    of the handshake once the wall clock was set, the last answer's once /run was lost."""
    answered = sample.heard_before if sample.answered else None
    if answered is not None and monotonic - answered < LONG.total_seconds():
        return False
    shaken = state.latest_handshake
    return shaken is None or not timedelta() <= now - shaken < LONG


def _look_for_the_silent(
    host: Host, spec: Spec, node: Node, invites: tuple[InviteState, ...]
) -> None:
    """Each peer that is silent is tried elsewhere, and made anew: WireGuard ignores a member whose
    clock went back for as long as it ran ahead, and forgets that with the peer."""
    interface = spec.network.wireguard.interface
    for peer in _silent(host, spec, node, invites):
        host.wireguard.remove_peer(interface, peer.key)
        host.wireguard.set_peer(interface, peer)


def _silent(
    host: Host, spec: Spec, node: Node, invites: tuple[InviteState, ...]
) -> tuple[WgPeer, ...]:
    """The peers that are silent, with the endpoint to try next. One that was never looked at may be
    about to answer."""
    device = host.wireguard.show(spec.network.wireguard.interface)
    found = []
    now, monotonic = host.clock.now(), host.clock.monotonic()
    samples = status.load_samples(host).peers
    endpoints = {one.wireguard: up.endpoints_of(node, one) for one in talk.others(node)}
    temporary = {up.temporary_peer(node, one).key for one in invites}
    for peer in up.wanted_peers(spec, node, invites, now):
        state, sample = _peer(device, peer.key), samples.get(peer.key)
        if state is None or sample is None or peer.key in temporary:
            continue
        if not is_silent(state, sample, now=now, monotonic=monotonic):
            continue
        known = endpoints.get(peer.key, ())
        endpoint = next_endpoint(known, state, heard_at=sample.heard_at) or state.endpoint
        found.append(replace(peer, endpoint=endpoint))
    return tuple(found)


def _finish_join(host: Host, node: Node) -> None:
    """Go on with a join whose confirmation was not answered yet; later is fine."""
    pending = pendingjoin.load(host, node.mesh)
    if pending is None or pending.admitted is None:
        return
    deadline = Deadline.after(host.clock, join.TRY_SECONDS)
    try:
        join.confirm(host, pending.inviter, pending.admitted, deadline=deadline)
    except PeerError as error:
        host.console.say(f"the join is not confirmed yet: {error.summary()}")


def _exchange_with_all(host: Host, spec: Spec, node: Node) -> dict[str, int | KeelError]:
    """Rounds of exchanges, all members in parallel; how many records each taught, or its error."""
    open_with: dict[Member, RosterAsk] = {
        member: exchange.opening(node.roster) for member in talk.others(node)
    }
    found: dict[str, int | KeelError] = {}
    deadline = Deadline.after(host.clock, ROUNDS_SECONDS)
    for number in range(ROUNDS):
        if not open_with or deadline.passed(host.clock):
            break
        asked = host.clock.now()
        answers = talk.ask_all(
            host, node, open_with, exchange.ROSTER, RosterAnswer, path=exchange.ROSTER_PATH
        )
        if number == 0:
            _keep_what_was_seen(host, spec, answers, asked)
        open_with = {}
        for member, answer in answers.items():
            if isinstance(answer, KeelError):
                found[member.display] = answer
                continue
            node, learned = _take(host, spec, answer.body.records)
            before = found.get(member.display, 0)
            found[member.display] = learned + (before if isinstance(before, int) else 0)
            following = exchange.next_ask(node.roster, answer.body)
            if following is not None:
                open_with[member] = following
    return found


def _keep_what_was_seen(
    host: Host,
    spec: Spec,
    answers: Mapping[Member, Answered[RosterAnswer] | KeelError],
    asked: datetime,
) -> None:
    """Who answered and what their clocks say: for the next status, and for whoever signs."""
    device = host.wireguard.show(spec.network.wireguard.interface)
    status.sample(host, device, answers)
    said = [one.time for one in answers.values() if isinstance(one, Answered)]
    talk.keep_clocks(host, said, asked=asked)


def _take(host: Host, spec: Spec, records: tuple[bytes, ...]) -> tuple[Node, int]:
    with store.locked(host, "the mesh"):
        before = store.require(host)
        node, merged = store.merge_held(host, before, records)
        if merged.added:
            up.follow(host, spec, before, node)
    up.wake_tend(host, node, merged)
    return node, len(merged.added)
