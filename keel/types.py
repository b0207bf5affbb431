"""Names for the values that could be mistaken for one another.

Owns the newtypes and the few value classes that every other module speaks. Parses them from text;
knows nothing of files, JSON or the network.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NewType

MeshId = NewType("MeshId", str)
"""The first 16 bytes of SHA-256 over the genesis payload, as 32 lower-case hex digits."""

SigningKey = NewType("SigningKey", str)
"""An Ed25519 public key as 64 lower-case hex digits; it is a member's identity."""

WgKey = NewType("WgKey", str)
"""A WireGuard (X25519) public key as `wg` prints it: 44 characters of base64."""

NodeName = NewType("NodeName", str)
Fingerprint = NewType("Fingerprint", str)
"""SHA-256 over a certificate's DER, as 64 lower-case hex digits."""

RecordHash = NewType("RecordHash", str)
"""SHA-256 over a record's exact payload bytes, as 64 lower-case hex digits."""

InviteId = NewType("InviteId", str)
"""16 random bytes as 32 lower-case hex digits."""

Nonce = NewType("Nonce", str)
"""16 random bytes as 32 lower-case hex digits."""

FormationId = NewType("FormationId", str)
"""8 random bytes as 16 lower-case hex digits; names one attempt to give birth to a cluster."""

EtcdMemberId = NewType("EtcdMemberId", int)
EtcdClusterId = NewType("EtcdClusterId", int)

NAME_PATTERN = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
LOCALHOST = IPv6Address("::1")
_HEX = re.compile(r"[0-9a-f]+").fullmatch


class Mode(StrEnum):
    """How a node is installed; only `cloud_advanced` can carry etcd (E1)."""

    LOCAL = "local"
    CLOUD = "cloud"
    CLOUD_ADVANCED = "cloud_advanced"


class Capability(StrEnum):
    """Whether a member can run etcd: mode and the etcd overlay together (E1)."""

    NONE = "none"
    ETCD = "etcd"


class Secret:
    """Bytes that never show in a repr, a log or a traceback."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes) -> None:
        self._value = bytes(value)

    def reveal(self) -> bytes:
        """The bytes themselves; call it as late as possible."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(<hidden>)"

    def __eq__(self, other: object) -> bool:
        import hmac

        return isinstance(other, Secret) and hmac.compare_digest(self._value, other._value)

    def __hash__(self) -> int:
        return hash((Secret, len(self._value)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a WireGuard socket can be reached on the underlay: a literal address and a UDP port.

    Host names are refused: WireGuard resolves once, when it is set, and never again.
    """

    host: IPv4Address | IPv6Address
    port: int

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """From `203.0.113.7:51820` or `[2001:db8::7]:51820`; ValueError says what is wrong."""
        host, colon, port_text = text.rpartition(":")
        if not colon or not port_text.isascii() or not port_text.isdigit():
            raise ValueError(
                "an endpoint is ADDRESS:PORT, as in 203.0.113.7:51820 or [2001:db8::7]:51820"
            )
        port = int(port_text)
        if not 1 <= port <= 65535:
            raise ValueError("a port is a number from 1 to 65535")
        bracketed = host.startswith("[") and host.endswith("]")
        if bracketed != (":" in host):
            raise ValueError(
                "brackets belong around an IPv6 address, as in [2001:db8::7]:51820, and only there"
            )
        try:
            address = ip_address(host[1:-1] if bracketed else host)
        except ValueError as error:
            raise ValueError(f"{host} is no address; a host name is not taken") from error
        if isinstance(address, IPv6Address) and address.scope_id is not None:
            raise ValueError("a link-local zone means nothing to other nodes")
        return cls(host=address, port=port)

    def is_special(self) -> bool:
        """Whether it names no other machine of the underlay, so that no packet should go there."""
        host = self.host
        return host.is_unspecified or host.is_loopback or host.is_multicast or host.is_link_local

    def __str__(self) -> str:
        host = f"[{self.host.compressed}]" if self.host.version == 6 else str(self.host)
        return f"{host}:{self.port}"


def parse_hex(text: str, *, size: int) -> str:
    """Lower-case hex of exactly `size` bytes; ValueError otherwise."""
    if len(text) != 2 * size or not _HEX(text):
        raise ValueError(f"expected {2 * size} lower-case hex digits")
    return text


def parse_wg_key(text: str) -> WgKey:
    """A WireGuard key in its one canonical base64 form; ValueError otherwise."""
    try:
        raw = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("a WireGuard key is 44 characters of base64") from error
    if len(raw) != 32 or base64.b64encode(raw).decode() != text:
        raise ValueError("a WireGuard key is 44 characters of base64")
    return WgKey(text)


def parse_name(text: str) -> NodeName:
    """A node's name: a DNS label in lower case; ValueError otherwise."""
    if not NAME_PATTERN.fullmatch(text):
        raise ValueError("a name has 1 to 63 of a-z, 0-9 and -, and neither starts nor ends with -")
    return NodeName(text)
