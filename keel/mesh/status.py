"""`keel mesh status`: what is true now, from packets received and signed answers (M11, E21).

Owns the look at this node and at its peers. The document's shape is keel.mesh.report's; how a
member is judged is keel.mesh.liveness's. Changes nothing but the samples in /run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from keel import codec
from keel.errors import BadValue, KeelError
from keel.mesh import (
    liveness,
    netsettings,
    rights,
    selfrecord,
    spread,
    store,
    talk,
    tended,
    up,
)
from keel.mesh.clocks import ahead_by
from keel.mesh.envelope import Answered
from keel.mesh.exchange import HelloAnswer
from keel.mesh.liveness import Answer, Liveness, Samples
from keel.mesh.members import Member
from keel.mesh.rights import Exposed
from keel.mesh.store import Node
from keel.mesh.window import Window
from keel.ports import Host, Meanwhile, WgDevice, WgPeerState
from keel.spec.model import Spec
from keel.types import Capability, SigningKey

if TYPE_CHECKING:
    from keel.mesh.etcdlook import EtcdSeen
    from keel.mesh.etcdown import Own

MAX_SAMPLES_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSeen:
    """One member as this node sees it now."""

    member: Member
    state: Liveness
    peer: WgPeerState | None
    silent_seconds: float | None
    silent_at_most: float | None
    clock_offset: timedelta | None
    narrow: bool
    """It answers small messages and no full packets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshSeen:
    """This node and its members; `pending` names the inviter of an unconfirmed join."""

    node: Node
    device: WgDevice | None
    members: tuple[MemberSeen, ...]
    tcp_bound: str
    open_window: Window | None
    pending: str | None
    etcd_roles: Mapping[SigningKey, str]
    exposed: tuple[Exposed, ...]
    listens: bool
    """Whether the channel's socket is there."""
    port: int
    """Where WireGuard should listen."""
    tend_silent: Mapping[SigningKey, datetime]
    """Since when nothing tends the registry of a node, this one's too; those that say so."""

    @property
    def alone(self) -> bool:
        """Whether none of several members is heard: rather this node is cut off than all of them
        are down at once."""
        down = sum(one.state is Liveness.DOWN for one in self.members)
        return down == len(self.members) > 1


def whole(host: Host, spec: Spec) -> tuple[MeshSeen, EtcdSeen]:
    """One look at the mesh and at the registry. This node's own etcd is asked, and what shows the
    registry is loaded, while the members' answers are on their way."""
    own: Own | None = None

    def ask_own() -> None:
        from keel.mesh import etcdlook

        nonlocal own
        own = etcdlook.ask_own(host)

    seen = look(host, spec, meanwhile=ask_own)

    from keel.mesh import etcdlook
    from keel.mesh.etcdlook import Role
    from keel.mesh.etcdown import Own

    roles = {key: Role(said) for key, said in seen.etcd_roles.items() if said in set(Role)}
    return seen, etcdlook.look(host, spec, seen.node, roles, own or Own())


def look(host: Host, spec: Spec, *, meanwhile: Meanwhile | None = None) -> MeshSeen:
    """One look: the interface's counters, and a signed answer asked of every member at once."""
    node = store.require(host)
    interface = spec.network.wireguard.interface
    before = host.wireguard.show(interface)
    asked = host.clock.now()
    others = talk.others(node)
    answers = spread.ping(host, node, others, full=True, meanwhile=meanwhile)
    window = (asked, host.clock.now())
    device = host.wireguard.show(interface)
    samples = sample(host, device, answers)
    now = host.clock.monotonic()
    members = tuple(_seen(m, samples, device, answers.get(m), now, window) for m in others)
    narrow = spread.small_only(
        host, node, [one.member for one in members if _is_heard(one, before)]
    )
    said = {
        member.key: answer.body
        for member, answer in {**answers, **narrow}.items()
        if isinstance(answer, Answered)
    }
    silent = {key: one.tend_silent_seconds for key, one in said.items()}
    if selfrecord.own_capability(host, spec) is Capability.ETCD:
        silent[node.key] = tended.silent_seconds(host)
    return MeshSeen(
        node=node,
        device=device,
        members=tuple(replace(one, narrow=one.member in narrow) for one in members),
        tcp_bound=host.machine.tcp_bound_now(),
        open_window=store.load_window(host),
        pending=_pending(host, node),
        exposed=rights.exposed(host),
        listens=up.listens(host),
        port=netsettings.in_force(host, spec).network.wireguard.port,
        etcd_roles={key: one.etcd for key, one in said.items()},
        tend_silent={
            key: window[1] - timedelta(seconds=seconds)
            for key, seconds in silent.items()
            if seconds is not None
        },
    )


def _is_heard(one: MemberSeen, before: WgDevice | None) -> bool:
    """Whether its packets arrived while it was asked, and its answer did not; for who is cut off
    nobody waits twice. `before`: the interface just before."""
    was = _peer(before, one.member)
    heard = one.peer is not None and one.peer.received_bytes > (was.received_bytes if was else 0)
    return heard and one.state is Liveness.SUSPECT


def sample(
    host: Host,
    device: WgDevice | None,
    answers: Mapping[Member, object],
) -> Samples:
    """Take this look's samples and keep them in /run for the next; every sync takes one, too.
    `answers`: what each member said just now, or the KeelError that came of asking it."""
    answered = [
        member.wireguard
        for member, answer in answers.items()
        if member.wireguard is not None and spread.said_at(answer) is not None
    ]
    samples = liveness.take(
        load_samples(host), device, now=host.clock.monotonic(), answered=answered
    )
    store.keep_hint(host, host.paths.liveness, codec.dumps(samples))
    return samples


def load_samples(host: Host) -> Samples:
    """The last look's; none after a boot. They are hints of this boot alone: a file that does not
    parse is as good as none."""
    raw = host.files.read(host.paths.liveness, max_bytes=MAX_SAMPLES_BYTES)
    try:
        return codec.again(Samples, raw or b"{}", max_bytes=MAX_SAMPLES_BYTES)
    except BadValue:
        return Samples()


def _seen(
    member: Member,
    samples: Samples,
    device: WgDevice | None,
    answer: Answered[HelloAnswer] | KeelError | None,
    now: float,
    window: tuple[datetime, datetime],
) -> MemberSeen:
    said_at = spread.said_at(answer)
    taken = samples.peers.get(member.wireguard) if member.wireguard else None
    silent = liveness.silent_seconds(taken, now=now)
    return MemberSeen(
        member=member,
        state=liveness.judge(taken, now=now, answer=Answer.GIVEN if said_at else Answer.MISSING),
        peer=_peer(device, member),
        silent_seconds=silent,
        silent_at_most=silent if said_at else liveness.silent_at_most(taken, now=now),
        clock_offset=ahead_by(said_at, *window) if said_at else None,
        narrow=False,
    )


def _peer(device: WgDevice | None, member: Member) -> WgPeerState | None:
    peers = device.peers if device else ()
    return next((peer for peer in peers if peer.key == member.wireguard), None)


def _pending(host: Host, node: Node) -> str | None:
    if not host.files.exists(host.paths.pending_join(node.mesh)):
        return None

    from keel.mesh import pendingjoin  # a look seldom needs it

    pending = pendingjoin.load(host, node.mesh)  # which may just have ended
    inviter = node.view.by_key(pending.inviter) if pending else None
    return inviter.display if inviter else "its inviter"
