"""How this node is and how the spec wants it, in one normal form: names to texts.

Pure: keel.spec.apply observes and executes. What is compared is what apply owns, and no more: the
interface's parameters and endpoints, TCP's bound, the channel's address, and which units run.
Deliberately left out: peers (the roster's, `keel mesh up` keeps them), and all of a node that is in
no mesh.
Port, MTU and endpoints are compared as they are in force: applying them takes a network window.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from ipaddress import IPv6Address

from keel import codec
from keel.mesh import etcdplan, window
from keel.mesh.firewallrules import CHANNEL_PORT
from keel.mesh.window import Settings, settings_of
from keel.outcome import Plan, Step
from keel.ports import UnitState, WgDevice
from keel.spec.model import Overlay, Spec, TcpBound
from keel.types import Capability, Endpoint, Mode
from keel.unitnames import CHANNEL_SOCKET, ETCD_UNIT, MESH_UNIT, SYNC_TIMER, TEND_TIMER

NOTHING = "-"
"""What a name has on a side where there is no such thing."""

UNITS = (MESH_UNIT, CHANNEL_SOCKET, SYNC_TIMER, TEND_TIMER)
"""What runs on a member; the registry's timer has nothing to do on a node that is not capable."""

RUNS = "enabled, active"
CERTIFICATES = "etcd.certificates"
CHANNELS = "monitor.channels"
CERTIFICATE_SOON = timedelta(days=7)

Facts = Mapping[str, str]


class Action(StrEnum):
    """The steps of apply's Plan, in the order in which they are done."""

    WRITE_CHANNEL = "write-channel-address"
    RESET = "change-network"
    RAISE = "raise-interface"
    BOUND_TCP = "bound-tcp"
    UNBOUND_TCP = "unbound-tcp"
    ENABLE = "enable-unit"
    KEEP_CHANNELS = "keep-channels"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A node, observed. `address`: its own in the mesh, None when it is in none; `tcp_bound`:
    `off` when nothing bounds it."""

    address: IPv6Address | None
    device: WgDevice | None
    tcp_bound: str
    capability: Capability
    units: Mapping[str, UnitState]
    channel_drop_in: bytes | None
    settled: Settings | None = None
    """What is in force; None before the interface was first raised."""
    channels_kept: bool = True
    """The monitor's channels are kept as the spec has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """What a member took when it became one. `interface`: None before it was raised; `in_cluster`:
    its etcd is of the cluster, or begins to be."""

    name: str
    interface: str | None
    in_cluster: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    name: str
    now: str
    wanted: str


def differences(spec: Spec, view: NodeView) -> tuple[Difference, ...]:
    """What differs, in the order of its names; none for a node in no mesh."""
    now, want = observed(spec, view), wanted(spec, view)
    return tuple(
        Difference(name=name, now=now.get(name, NOTHING), wanted=want[name])
        for name in sorted(want)
        if now.get(name, NOTHING) != want[name]
    )


def decide(spec: Spec, view: NodeView) -> Plan:
    """The steps from here to there; empty exactly when nothing differs."""
    found = {item.name: item for item in differences(spec, view)}
    reset = {f"wireguard.{name}" for name in resets(spec, view.settled)}
    steps = [_step(Action.RESET, item) for name, item in found.items() if name in reset]
    if (channel := found.get("channel.listen")) is not None:
        steps.append(_step(Action.WRITE_CHANNEL, channel))
    for item in found.values():
        if item.name.startswith("wireguard.") and item.name not in reset:
            steps.append(_step(Action.RAISE, item))
    if (bound := found.get("tcp_bound")) is not None:
        action = Action.UNBOUND_TCP if bound.wanted == "off" else Action.BOUND_TCP
        steps.append(_step(action, bound))
    for item in found.values():
        if item.name.startswith("unit."):
            steps.append(_step(Action.ENABLE, item))
    if (channels := found.get(CHANNELS)) is not None:
        steps.append(_step(Action.KEEP_CHANNELS, channels))
    return Plan(steps=tuple(steps))


def resets(spec: Spec, settled: Settings | None) -> tuple[str, ...]:
    """Which settings apply would change under a network window; one that merely drifted on the
    interface is put right without."""
    return () if settled is None else window.differences(settled, settings_of(spec))


OF_THE_CLUSTER = ("installation.mode", "overlays.etcd")
"""What is fixed only while this node is in the cluster."""


def fixed_differences(spec: Spec, member: Fixed) -> tuple[Difference, ...]:
    """Where the spec wants what a member cannot become any more; apply leaves these alone."""
    wireguard = spec.network.wireguard
    pairs = (
        ("installation.mode", Mode.CLOUD_ADVANCED.value, spec.installation.mode.value),
        ("network.wireguard.interface", member.interface, wireguard.interface),
        ("node.name", member.name, spec.node.name or member.name),
        ("overlays.etcd", Overlay.ENABLED.value, spec.overlays.etcd.value),
    )
    return tuple(
        Difference(name=name, now=now, wanted=want)
        for name, now, want in pairs
        if now is not None and now != want and (member.in_cluster or name not in OF_THE_CLUSTER)
    )


def etcd_differences(plan: Plan) -> tuple[Difference, ...]:
    """What etcd's own Plan would change, in the same form."""
    return tuple(
        Difference(name=name, now=step.why, wanted=want)
        for step in plan.steps
        for name, want in (_ETCD[etcdplan.Action(step.action)],)
    )


_ETCD: Mapping[etcdplan.Action, tuple[str, str]] = {
    etcdplan.Action.REMOVE_STRAY: ("etcd.stray", "none"),
    etcdplan.Action.ISSUE_LEAF: ("etcd.leaves", "this node's own"),
    etcdplan.Action.ENABLE_SPEC: ("overlays.etcd", "enabled"),
    etcdplan.Action.SET_DATA_ASIDE: ("etcd.data", "moved aside"),
    etcdplan.Action.WRITE_DROP_IN: ("etcd.unit", "with keel's drop-in"),
    etcdplan.Action.LAY_FILES: ("etcd.files", "as keel knows them"),
    etcdplan.Action.START_ETCD: (ETCD_UNIT, "runs"),
    etcdplan.Action.MARK_FORMED: ("etcd.cluster", "noted as formed"),
}
"""What a step of etcd's own Plan puts right, as the thing that differs, and how it is wanted."""


def certificate_differences(
    failures: Iterable[str], ends: Mapping[str, datetime], now: datetime
) -> tuple[Difference, ...]:
    """E15: what could not be renewed or is not shown, in words, and what ends within a week."""
    found = [*failures]
    for kind, end in ends.items():
        if end - now < CERTIFICATE_SOON:
            found.append(f"the {kind} certificate ends {codec.format_time(end)}")
    if not found:
        return ()
    return (Difference(name=CERTIFICATES, now="; ".join(found), wanted="renewed in time"),)


def wanted(spec: Spec, view: NodeView) -> Facts:
    """The normal form of the spec for this node."""
    if view.address is None:
        return {}
    wireguard = spec.network.wireguard
    facts = {
        "wireguard.interface": wireguard.interface,
        "wireguard.port": str(wireguard.port),
        "wireguard.mtu": str(wireguard.mtu),
        "wireguard.endpoints": _endpoints(wireguard.endpoints),
        "wireguard.address": view.address.compressed,
        "channel.listen": _listen(view.address),
        CHANNELS: _channels(spec),
        **{f"unit.{unit}": RUNS for unit in UNITS},
    }
    if _keepalives(view.device):
        facts["wireguard.keepalive"] = str(wireguard.keepalive)
    if spec.network.tcp_bound is TcpBound.OFF:
        facts["tcp_bound"] = "off"
    elif view.capability is Capability.ETCD:
        facts["tcp_bound"] = "on"
    return facts


def observed(spec: Spec, view: NodeView) -> Facts:
    """The normal form of the node as it is."""
    facts = {
        "channel.listen": listen_of(view.channel_drop_in or b"") or NOTHING,
        "tcp_bound": "off" if view.tcp_bound == "off" else "on",
        "wireguard.endpoints": _endpoints((view.settled or settings_of(spec)).endpoints),
        CHANNELS: _channels(spec) if view.channels_kept else "others",
        **{f"unit.{name}": _unit_text(state) for name, state in view.units.items()},
    }
    device = view.device
    if device is None:
        return facts
    return {
        **facts,
        "wireguard.interface": device.name,
        "wireguard.port": str(device.port),
        "wireguard.mtu": str(device.mtu),
        "wireguard.address": " ".join(item.compressed for item in device.addresses) or NOTHING,
        "wireguard.keepalive": " ".join(map(str, _keepalives(device))),
    }


def listen_of(drop_in: bytes) -> str:
    """The address in such a drop-in; empty when there is none."""
    found = [
        line.removeprefix("ListenStream=")
        for line in drop_in.decode(errors="replace").splitlines()
        if line.startswith("ListenStream=")
    ]
    return found[-1] if found else ""


def _keepalives(device: WgDevice | None) -> list[int]:
    """Of the members; an invite's temporary peer has a key of its own and needs none."""
    peers = device.peers if device is not None else ()
    return sorted({peer.keepalive_seconds for peer in peers if not peer.has_preshared})


def _endpoints(endpoints: tuple[Endpoint, ...]) -> str:
    return ",".join(map(str, endpoints)) or "auto"


def _listen(address: IPv6Address) -> str:
    return f"[{address.compressed}]:{CHANNEL_PORT}"


def _channels(spec: Spec) -> str:
    """How many alone: a URL may have a secret in it."""
    return f"{len(spec.monitor.channels)} by the spec"


def _unit_text(state: UnitState) -> str:
    return f"{state.enabled}, {state.active}"


def _step(action: Action, item: Difference) -> Step:
    subject = item.name.removeprefix("unit.")
    return Step(action=action.value, subject=subject, why=f"{item.now} -> {item.wanted}")
