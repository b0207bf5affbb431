"""What may be on the underlay: WireGuard between its two ports, and what finds the neighbours.

One half makes an appliance drop everything else, the other reads a capture and says what else was
on it.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from netns.lab import Lab
from netns.topology import INTERFACE, WIREGUARD_PORT, Name

RULES_FILE = "/etc/nftables.conf"
RULES = f"""\
flush ruleset
table inet underlay {{
  chain input {{
    type filter hook input priority filter; policy accept;
    iifname "{INTERFACE}" udp sport {WIREGUARD_PORT} udp dport {WIREGUARD_PORT} accept
    iifname "{INTERFACE}" icmpv6 type {{ nd-neighbor-solicit, nd-neighbor-advert }} accept
    iifname "{INTERFACE}" counter drop
  }}
  chain output {{
    type filter hook output priority filter; policy accept;
    oifname "{INTERFACE}" udp sport {WIREGUARD_PORT} udp dport {WIREGUARD_PORT} accept
    oifname "{INTERFACE}" icmpv6 type {{ nd-neighbor-solicit, nd-neighbor-advert }} accept
    oifname "{INTERFACE}" counter drop
  }}
}}
"""

MESSAGES = {1: "initiation", 2: "response", 3: "cookie", 4: "data"}
_FIXED_SIZES = {1: 148, 2: 92, 3: 64}
_DATA_HEADER, _BLOCK = 32, 16
_NEIGHBOURS = range(133, 138)  # router and neighbour discovery among ICMPv6's types
_ETHERNET, _RAW = 1, (12, 101)
_ARP, _IPV4, _IPV6 = 0x0806, 0x0800, 0x86DD
_UDP, _ICMPV6 = 17, 58


class BadCapture(ValueError):
    """A file that is no capture of a kind that the lab makes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a capture holds: packets by what they are, and those that should not be there."""

    kinds: dict[str, int]
    foreign: tuple[str, ...]

    @property
    def packets(self) -> int:
        return sum(self.kinds.values()) + len(self.foreign)

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.kinds.items()))
        return f"{self.packets} packets: {kinds or 'none'}; {len(self.foreign)} foreign"


def fence(lab: Lab, name: Name) -> None:
    """Drop all but WireGuard on the appliance's underlay, from now on and after every boot."""
    lab.put(name, RULES_FILE, RULES)
    lab.exec(name, ["systemctl", "enable", "--now", "nftables.service"])


def unfence(lab: Lab, name: Name) -> None:
    """Let everything through again until the next boot."""
    lab.exec(name, ["nft", "delete", "table", "inet", "underlay"])


def fence_again(lab: Lab, name: Name) -> None:
    """Undo `unfence`, leaving other tables alone."""
    lab.exec(name, ["nft", "-f", "-"], input=RULES.removeprefix("flush ruleset\n"))


def inspect(capture: Path) -> Found:
    """Judge every packet of a capture. Raises BadCapture."""
    kinds: Counter[str] = Counter()
    foreign = []
    for number, (link, packet) in enumerate(_packets(capture.read_bytes()), start=1):
        kind = kind_of(link, packet)
        if kind:
            kinds[kind] += 1
        else:
            foreign.append(f"packet {number}: {packet[:64].hex()}")
    return Found(kinds=dict(kinds), foreign=tuple(foreign))


def kind_of(link: int, packet: bytes) -> str:
    """What an allowed packet is; empty for a foreign one."""
    if link in _RAW:
        protocol = {4: _IPV4, 6: _IPV6}.get(packet[0] >> 4, 0) if packet else 0
        return _network(protocol, packet)
    return _network(int.from_bytes(packet[12:14], "big"), packet[14:])


def _network(protocol: int, packet: bytes) -> str:
    if protocol == _ARP:
        return "arp"
    if protocol == _IPV4 and len(packet) >= 20:
        fragment = int.from_bytes(packet[6:8], "big") & 0x3FFF
        end = int.from_bytes(packet[2:4], "big")
        whole = not fragment and packet[9] == _UDP
        return _datagram(packet[(packet[0] & 15) * 4 : end]) if whole else ""
    if protocol == _IPV6 and len(packet) >= 40:
        end = 40 + int.from_bytes(packet[4:6], "big")
        if packet[6] == _ICMPV6 and len(packet) > 40 and packet[40] in _NEIGHBOURS:
            return "neighbours"
        return _datagram(packet[40:end]) if packet[6] == _UDP else ""
    return ""


def _datagram(segment: bytes) -> str:
    """The name of a WireGuard message between the two ports: type, zeros and size are right."""
    if len(segment) < 12:
        return ""
    ports = struct.unpack("!HH", segment[:4])
    message = segment[8:]
    if ports != (WIREGUARD_PORT, WIREGUARD_PORT) or message[1:4] != bytes(3):
        return ""
    kind = message[0]
    if kind in _FIXED_SIZES:
        return MESSAGES[kind] if len(message) == _FIXED_SIZES[kind] else ""
    data = kind == 4 and len(message) >= _DATA_HEADER and len(message) % _BLOCK == 0
    return MESSAGES[4] if data else ""


def _packets(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """Link type and bytes of each packet of a classic pcap file, as tcpdump writes it."""
    order = {b"\xd4\xc3\xb2\xa1": "<", b"\xa1\xb2\xc3\xd4": ">"}.get(raw[:4])
    if order is None or len(raw) < 24:
        raise BadCapture("not a pcap file")
    (link,) = struct.unpack(f"{order}I", raw[20:24])
    if link not in (_ETHERNET, *_RAW):
        raise BadCapture(f"link type {link}")
    at = 24
    while at + 16 <= len(raw):
        kept, size = struct.unpack(f"{order}II", raw[at + 8 : at + 16])
        if kept < size or at + 16 + kept > len(raw):
            raise BadCapture("a packet is not whole")
        yield link, raw[at + 16 : at + 16 + kept]
        at += 16 + kept
