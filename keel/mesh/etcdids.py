"""Names and numbers of etcd that keel computes by itself: URLs, the token, member and cluster IDs.

etcd derives the IDs of a birth from token and peer URLs alone (its member.go and cluster.go), so
keel knows them before etcd ever ran. A member that is added later gets an ID with a time in it:
that one is read from etcd's answer, and the cluster's ID is never computed again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from ipaddress import IPv6Address
from urllib.parse import urlsplit

from keel.types import EtcdClusterId, EtcdMemberId, FormationId, MeshId

PEER_PORT = 2380
CLIENT_PORT = 2379
METRICS_PORT = 2381


def peer_url(address: IPv6Address) -> str:
    """The one spelling of a member's peer URL; the ID hangs on its text."""
    return f"https://[{address.compressed}]:{PEER_PORT}"


def client_url(address: IPv6Address) -> str:
    return f"https://[{address.compressed}]:{CLIENT_PORT}"


def address_of_url(url: str) -> IPv6Address | None:
    """The address in a URL however it was typed: addresses are compared, never text."""
    try:
        return IPv6Address(urlsplit(url).hostname or "")
    except ValueError:
        return None


def member_name(address: IPv6Address) -> str:
    """What etcd calls the member, and its certificates: `keel-` and the 32 hex digits of its
    address, without a dot or a colon."""
    return f"keel-{address.packed.hex()}"


def cluster_token(mesh: MeshId, formation: FormationId) -> str:
    """Fixed for the cluster's life."""
    return f"keel-{mesh}-{formation}"


def member_id(address: IPv6Address, token: str) -> EtcdMemberId:
    """The ID of a member of a birth."""
    return EtcdMemberId(_first_eight(peer_url(address).encode() + token.encode()))


def cluster_id(members: Iterable[EtcdMemberId]) -> EtcdClusterId:
    """The ID of the cluster that these give birth to, in any order."""
    return EtcdClusterId(_first_eight(b"".join(i.to_bytes(8, "big") for i in sorted(members))))


def birth_id(addresses: Iterable[IPv6Address], token: str) -> EtcdClusterId:
    """The cluster ID of a birth by these addresses under this token."""
    return cluster_id(member_id(address, token) for address in addresses)


def id_text(number: int) -> str:
    """Hex without leading zeros, as etcdctl prints it."""
    return f"{number:x}"


def _first_eight(data: bytes) -> int:
    # SHA-1 is etcd's choice: a name, nothing that security hangs on.
    digest = hashlib.sha1(data, usedforsecurity=False).digest()
    return int.from_bytes(digest[:8], "big")
