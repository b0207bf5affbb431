"""etcd's v3 JSON gateway over TLS, with keel's client certificate (an adapter; E2, E7).

Speaks HTTP/1.1 by http.client to one member and returns the records of keel.ports. Debian's
gateway is not upstream's (etcd-facts, 2): 64-bit numbers are strings, zero fields are left out, an
unknown request field is ignored without a word, errors come in two shapes.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv6Address
from pathlib import Path

from keel.ports import EtcdMember, EtcdProbe, EtcdStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFiles:
    """Where keel's own client credential (chain and key in one file) and trusted roots are."""

    credential: Path
    trust: Path


class GatewayClient:
    """keel.ports.EtcdApi of the member at `address` (::1 is this node's own)."""

    def __init__(self, address: IPv6Address, files: ClientFiles) -> None:
        self._address = address
        self._files = files

    def status(self, *, timeout_seconds: float = 20.0) -> EtcdStatus:
        raise NotImplementedError

    def members(self, *, timeout_seconds: float = 20.0) -> tuple[EtcdMember, ...]:
        raise NotImplementedError

    def add_learner(self, peer_url: str, *, timeout_seconds: float = 20.0) -> EtcdMember:
        raise NotImplementedError

    def promote(self, member_id: int, *, timeout_seconds: float = 20.0) -> None:
        raise NotImplementedError

    def remove(self, member_id: int, *, timeout_seconds: float = 20.0) -> None:
        raise NotImplementedError

    def put(self, key: bytes, value: bytes, *, timeout_seconds: float = 20.0) -> None:
        raise NotImplementedError

    def get(self, key: bytes, *, timeout_seconds: float = 20.0) -> bytes | None:
        raise NotImplementedError

    def probe_peer_port(self, *, timeout_seconds: float = 20.0) -> EtcdProbe:
        raise NotImplementedError
