"""Names, addresses and link qualities of a lab; pure.

                         the underlay: 198.51.100.0/24 and 2001:db8:64::/64
              .1 / ::1                    .2 / ::2                    .3 / ::3
        +-------------------+       +-------------------+       +-------------------+
        |   a               |       |   b               |       |   c               |
        |   keel0    wan0   |       |   keel0    wan0   |       |   keel0    wan0   |
        +--------------|----+       +--------------|----+       +--------------|----+
                       |                           |                           |
        +--------------+---------------------------+---------------------------+----+
        |   the link: for each ordered pair (from, to) its own delay, jitter, loss, |
        |   cut and MTU                                                             |
        +---------------------------------------------------------------------------+

Each appliance is Debian with systemd as PID 1, in a network namespace of its own. There is no way
from an appliance to the machine or to its network.
"""

from __future__ import annotations

import ipaddress
import re
import string
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

Name = NewType("Name", str)

INTERFACE = "wan0"
IPV4 = ipaddress.IPv4Network("198.51.100.0/24")
IPV6 = ipaddress.IPv6Network("2001:db8:64::/64")
MAX_MEMBERS = 15  # what the bands of one `prio` qdisc can tell apart
WIREGUARD_PORT = 51820


class Family(StrEnum):
    """Which addresses the underlay has."""

    DUAL = "dual"
    IPV4 = "ipv4"
    IPV6 = "ipv6"


class Mode(StrEnum):
    """installation.mode of an appliance's spec."""

    LOCAL = "local"
    CLOUD = "cloud"
    CLOUD_ADVANCED = "cloud_advanced"


class BadLink(ValueError):
    """A link's description that can't be read."""

    def __init__(self, text: str) -> None:
        super().__init__(
            f"not a link: {text!r}; write delay, jitter and loss of one direction, "
            "as in 125ms,12.5ms,1%"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """One direction between two appliances. The jitter is uniform: delay plus or minus as much."""

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss_percent: float = 0.0
    cut: bool = False
    mtu: int = 1500

    def __str__(self) -> str:
        cut = ", cut" if self.cut else ""
        mtu = f", mtu {self.mtu}" if self.mtu != 1500 else ""
        return f"{self.delay_ms:g}ms,{self.jitter_ms:g}ms,{self.loss_percent:g}%{mtu}{cut}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """An appliance as the underlay sees it."""

    name: Name
    index: int
    addresses: tuple[str, ...]  # with their prefix lengths

    @property
    def mac(self) -> str:
        return f"02:00:00:00:00:{self.index:02x}"

    @property
    def hosts(self) -> tuple[str, ...]:
        """The addresses without prefix lengths."""
        return tuple(str(ipaddress.ip_interface(address).ip) for address in self.addresses)


_QUALITY = re.compile(r"(\d+(?:\.\d+)?)ms,(\d+(?:\.\d+)?)ms,(\d+(?:\.\d+)?)%")


def parse_quality(text: str) -> Quality:
    """`DELAYms,JITTERms,LOSS%`, each of one direction. Raises BadLink."""
    match = _QUALITY.fullmatch(text.strip())
    if not match:
        raise BadLink(text)
    delay, jitter, loss = (float(number) for number in match.groups())
    if jitter > delay or loss > 100:
        raise BadLink(text)
    return Quality(delay_ms=delay, jitter_ms=jitter, loss_percent=loss)


def names(count: int) -> tuple[Name, ...]:
    """a, b, c, ..."""
    return tuple(Name(letter) for letter in string.ascii_lowercase[:count])


def node(name: Name, family: Family = Family.DUAL, *, host: int = 0) -> Node:
    """The appliance of that name; `host` ends its addresses, else its place in the alphabet."""
    index = string.ascii_lowercase.index(name) + 1
    number = host or index
    ipv4 = f"{IPV4[number]}/{IPV4.prefixlen}"
    ipv6 = f"{IPV6[number]}/{IPV6.prefixlen}"
    addresses = {Family.DUAL: (ipv4, ipv6), Family.IPV4: (ipv4,), Family.IPV6: (ipv6,)}[family]
    return Node(name=name, index=index, addresses=addresses)


def pairs(every: Iterable[Name], one: Name) -> list[tuple[Name, Name]]:
    """Both directions between one appliance and every other."""
    return [pair for other in every if other != one for pair in ((one, other), (other, one))]


def spec(member: Node, mode: Mode) -> str:
    """/etc/keel/spec.yaml of an appliance."""
    host = ipaddress.ip_address(member.hosts[0])
    endpoint = f"[{host}]:{WIREGUARD_PORT}" if host.version == 6 else f"{host}:{WIREGUARD_PORT}"
    return f"""\
installation:
  mode: {mode}
node:
  name: {member.name}
network:
  wireguard:
    interface: keel0
    port: {WIREGUARD_PORT}
    mtu: 1280
    endpoints: ["{endpoint}"]
    keepalive: 10
  tcp_bound: auto
overlays:
  etcd: disabled
"""
