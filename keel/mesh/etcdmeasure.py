"""What machines and paths can do before a cluster is formed on them: the channel's kind `report`.

Owns the measuring here, and the asking of the others. What is good enough is keel.mesh.fitness's.
Bounded in time; leaves nothing behind.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from datetime import datetime
from ipaddress import IPv6Address

from keel import VERSION, codec
from keel.errors import KeelError, PeerError
from keel.etcdport import DataState, StrayMember
from keel.mesh import clocks, etcdmember, fitness, selfrecord, spread, talk
from keel.mesh.asked import Asked, Kind
from keel.mesh.envelope import Answered
from keel.mesh.exchange import ETCD_PATH
from keel.mesh.firewallrules import CHANNEL_PORT
from keel.mesh.fitness import Check, Examined
from keel.mesh.formmsg import MAX_PEERS, PADDING_BYTES, ForeignEtcd, Link, Measure, Measured
from keel.mesh.limits import LASTS
from keel.mesh.members import Member
from keel.mesh.passmsg import MAX_ANSWER_BYTES, Ask, Ground
from keel.mesh.store import Node
from keel.mesh.trust import may_ask
from keel.ports import Host
from keel.spec.model import Spec
from keel.unitnames import ETCD_UNIT

REPORT = "report"
TRIES = 8
LINK_SECONDS = 12.0
"""All tries to all members; an answer of the channel has to come within thirty."""
HELD_UP_SECONDS = 0.9
"""Longer than the quickest by so much: the kernel sends the first packet again after a second."""


def kinds() -> Mapping[str, Kind]:
    return {REPORT: Kind(body=Measure, act=_report, bound=LASTS)}


def examine(host: Host, spec: Spec, node: Node, members: Iterable[Member]) -> tuple[Check, ...]:
    """Every check of this node, of these members, and of the paths between them."""
    wanted = tuple(members)[:MAX_PEERS]
    everybody = (node.address, *(one.address for one in wanted))
    if wanted:
        host.console.waiting(f"measuring on {', '.join(sorted(one.display for one in wanted))}")
    asked_at = host.clock.now()
    heard = talk.ask_all(
        host,
        node,
        {
            one: Measure(
                peers=tuple(a for a in everybody if a != one.address), padding=bytes(PADDING_BYTES)
            )
            for one in wanted
        },
        REPORT,
        Measured,
        path=ETCD_PATH,
    )
    window = (asked_at, host.clock.now())
    host.console.waiting("measuring here")
    me = node.view.by_key(node.key)
    own = Examined(
        name=me.display if me else "this node",
        address=node.address,
        measured=measure(host, spec, [one.address for one in wanted]),
    )
    return fitness.checks((own, *(_examined(one, heard[one], window) for one in heard)))


def measure(host: Host, spec: Spec, peers: Iterable[IPv6Address]) -> Measured:
    """This node's own numbers, and how it reaches these."""
    here = codec.loads(Ground, host.passes(Ask.GROUND), max_bytes=MAX_ANSWER_BYTES)
    device = host.wireguard.show(spec.network.wireguard.interface)
    times = host.gauge.connect_times(
        tuple(peers), CHANNEL_PORT, tries=TRIES, timeout_seconds=LINK_SECONDS
    )
    return Measured(
        mode=spec.installation.mode,
        capability=selfrecord.own_capability(host, spec),
        keel=VERSION,
        etcd=host.gauge.etcd_version(),
        free_bytes=here.free_bytes,
        mtu=device.mtu if device else None,
        foreign=here.foreign,
        links=tuple(_link(peer, seconds) for peer, seconds in times.items()),
        sync_seconds=here.sync_seconds,
        padding=bytes(PADDING_BYTES),
    )


def ground(host: Host) -> Ground:
    """What only a process that may look into etcd's directories can tell of `measure`."""
    data = host.paths.etcd_data.parent
    place = data if host.files.exists(data) else host.paths.mesh
    return Ground(
        foreign=_foreign(host),
        free_bytes=host.gauge.free_bytes(place),
        sync_seconds=host.gauge.sync_seconds(place),
    )


def _examined(
    one: Member, answer: Answered[Measured] | KeelError, window: tuple[datetime, datetime]
) -> Examined:
    """What came of asking a member within this window of time."""
    said = spread.said_at(answer)
    return Examined(
        name=one.display,
        address=one.address,
        measured=answer.body if isinstance(answer, Answered) else None,
        why=answer.text if isinstance(answer, PeerError) else "",
        ahead_seconds=clocks.ahead_by(said, *window).total_seconds() if said else None,
    )


def _report(asked: Asked) -> Measured:
    """Paths only for a trust root: nobody else has this node send packets about."""
    host, node = asked.host, asked.node
    obeys = may_ask(node.trust, asked.member.key)
    live = {one.address for one in talk.others(node)} if obeys else set()
    return measure(host, asked.spec, [one for one in asked.body.peers if one in live])


def _link(peer: IPv6Address, times: tuple[float | None, ...]) -> Link:
    answered = sorted(one for one in times if one is not None)
    quick = [one for one in answered if one - answered[0] < HELD_UP_SECONDS]
    return Link(
        peer=peer,
        tried=len(times),
        answered=len(answered),
        held_up=len(answered) - len(quick),
        seconds=round(statistics.median(quick), 4) if quick else None,
    )


def _foreign(host: Host) -> ForeignEtcd:
    """An etcd that keel would refuse to start over, or that runs already."""
    if host.overlay.stray() is StrayMember.FOREIGN:
        return ForeignEtcd.STRAY
    unmarked = not host.files.exists(host.paths.etcd_marker)
    if unmarked and host.overlay.data_state() in (DataState.PRESENT, DataState.NO_LOG):
        return ForeignEtcd.DATA
    runs = host.units.state(ETCD_UNIT).active in ("active", "activating", "reloading")
    if runs and not etcdmember.is_laid(host):
        return ForeignEtcd.RUNNING
    return ForeignEtcd.NONE
