"""Verifies chains link by link, and what is received or about to be installed as a whole.

cryptography 43 has no path validation that knows keel's client leaf, key identifiers, a bridge or
two roots at once, so the steps are keel's own (tests hold them against the library's and
openssl's). Numbered; each is PkiRejected with a name of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from ipaddress import IPv6Address

from cryptography import x509

from keel.mesh.etcdcert import PublicKeyHash
from keel.mesh.etcdpki import Credential
from keel.types import MeshId


class Purpose(StrEnum):
    """Which end of TLS the chain is presented for."""

    SERVER = "server"
    CLIENT = "client"


def verify_chain(
    chain: Sequence[x509.Certificate],
    roots: Sequence[x509.Certificate],
    *,
    now: datetime,
    purpose: Purpose,
    address: IPv6Address | None = None,
) -> x509.Certificate:
    """The root that the chain (leaf first, no root in it) ends in; PkiRejected otherwise. With an
    address the leaf must be that member's: its SAN when a server, SAN or URI when a client."""
    raise NotImplementedError


def check_grant(
    intermediate: x509.Certificate,
    root: x509.Certificate,
    *,
    mesh: MeshId,
    address: IPv6Address,
    key: PublicKeyHash,
    now: datetime,
) -> None:
    """What a member checks before it takes a grant: the root is this mesh's, the intermediate is
    the root's own, for this address and for the key that was asked for, in time. Whether the root
    may be pinned (E2) is the caller's question."""
    raise NotImplementedError


def check_credential(
    credential: Credential,
    roots: Sequence[x509.Certificate],
    *,
    now: datetime,
    address: IPv6Address,
) -> None:
    """What is checked before a credential is laid or etcd is started with it: key, profile of
    leaf and intermediate, chain for every purpose that the leaf is for."""
    raise NotImplementedError
