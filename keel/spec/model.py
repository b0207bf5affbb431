"""What the operator wants of this node, as typed values with defaults; nothing of its file.

Owns the shape of /etc/keel/spec.yaml (design section 3) and `SETTINGS`, the table from which
keel.spec(5) is made. Parsing is keel.spec.parse's work.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from keel.types import Capability, Endpoint, Mode, NodeName

DEFAULT_INTERFACE = "keel0"
DEFAULT_PORT = 51820
MIN_MTU = 1280
"""IPv6 does not work on a link below it."""
MAX_MTU = 1420
"""1500 less WireGuard's 80 bytes over IPv6; more would be cut on every underlay we know."""
DEFAULT_KEEPALIVE = 10
MAX_ENDPOINTS = 8


class TcpBound(StrEnum):
    """Whether this host bounds TCP's silence after a cut (design section 5)."""

    AUTO = "auto"
    OFF = "off"


class Overlay(StrEnum):
    DISABLED = "disabled"
    ENABLED = "enabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    mode: Mode = Mode.CLOUD
    stated: bool = field(default=False, compare=False)
    """Whether the spec has a mode at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    name: NodeName | None = None
    """None: the host name's first label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WireGuardSpec:
    interface: str = DEFAULT_INTERFACE
    port: int = DEFAULT_PORT
    mtu: int = MIN_MTU
    endpoints: tuple[Endpoint, ...] = ()
    """Empty: this host's own global addresses with `port`."""
    keepalive: int = DEFAULT_KEEPALIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    wireguard: WireGuardSpec = field(default_factory=WireGuardSpec)
    tcp_bound: TcpBound = TcpBound.AUTO


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlays:
    etcd: Overlay = Overlay.DISABLED


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookChannel:
    url: str = field(repr=False)
    """With a secret in it, as most have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MailChannel:
    to: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandChannel:
    argv: tuple[str, ...] = field(repr=False)


AlertChannel = WebhookChannel | MailChannel | CommandChannel


@dataclass(frozen=True, slots=True, kw_only=True)
class Monitor:
    channels: tuple[AlertChannel, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """The whole spec; `Spec()` is what an empty file means."""

    installation: Installation = field(default_factory=Installation)
    node: Node = field(default_factory=Node)
    network: Network = field(default_factory=Network)
    overlays: Overlays = field(default_factory=Overlays)
    monitor: Monitor = field(default_factory=Monitor)
    unread: str = ""
    """What is wrong with the file, when this is what the node knows of itself instead."""

    @property
    def etcd_enabled(self) -> bool:
        return self.overlays.etcd is Overlay.ENABLED


def capability(spec: Spec, *, overlay_installed: bool) -> Capability:
    """Whether this node can run etcd: its mode and the installed overlay together (E1)."""
    if spec.installation.mode is Mode.CLOUD_ADVANCED and overlay_installed:
        return Capability.ETCD
    return Capability.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One key of the spec for keel.spec(5)."""

    path: str
    default: str
    text: str


SETTINGS = (
    Setting(
        path="installation.mode",
        default="cloud",
        text="local, cloud or cloud_advanced. Only a cloud_advanced node with the package "
        "keel-overlay-etcd counts as capable of carrying etcd.",
    ),
    Setting(
        path="node.name",
        default="the host name",
        text="This node's name in the mesh: 1 to 63 of a-z, 0-9 and -. It is taken when the node "
        "creates or joins a mesh; a change after that changes nothing.",
    ),
    Setting(
        path="network.wireguard.interface",
        default=DEFAULT_INTERFACE,
        text="The WireGuard interface, which keel owns. It begins with keel, so that the installed "
        ".network file keeps systemd-networkd away from it. Choose it before the node creates or "
        "joins a mesh; on a member it cannot be changed.",
    ),
    Setting(
        path="network.wireguard.port",
        default=str(DEFAULT_PORT),
        text="The one UDP port that other members have to reach.",
    ),
    Setting(
        path="network.wireguard.mtu",
        default=str(MIN_MTU),
        text=f"From {MIN_MTU} to {MAX_MTU}. Leave it, unless every path between the members is "
        "known to carry more.",
    ),
    Setting(
        path="network.wireguard.endpoints",
        default="[]",
        text="Where others reach this node: literal addresses with a port, IPv6 in brackets, as in "
        '"203.0.113.7:51820". Empty means this host\'s own global addresses with the port above; '
        "behind NAT name the outer address here.",
    ),
    Setting(
        path="network.wireguard.keepalive",
        default=str(DEFAULT_KEEPALIVE),
        text="Seconds between packets that keep a path open, from 1 to 25.",
    ),
    Setting(
        path="network.tcp_bound",
        default="auto",
        text="auto: a capable node bounds how long TCP stays silent after a cut, for the whole "
        "host (net.ipv4.tcp_rto_max_ms=2000 where the kernel has it, else net.ipv4.tcp_retries2=5)."
        " off: it does not, and etcd may take two minutes to come back after a cut.",
    ),
    Setting(
        path="overlays.etcd",
        default="disabled",
        text="disabled or enabled. keel sets it to enabled when this node is to be a member of the "
        "etcd cluster; everything else in the file is left as it is. Setting it to disabled on a "
        "member of the cluster neither stops etcd nor takes the node out.",
    ),
    Setting(
        path="monitor.channels",
        default="[]",
        text="{type: webhook, url: URL}, {type: mail, to: ADDRESS} or {type: command, argv: "
        "[PROGRAM, ARGUMENT...]}. Each is told of a warning once, reminded daily, and told when it "
        "is over; the journal always is. A webhook gets JSON (keel.alert/1) by POST, a command the "
        "same on its standard input, mail goes by /usr/sbin/sendmail. `keel mesh etcd alert "
        "--test` tries each.",
    ),
)
