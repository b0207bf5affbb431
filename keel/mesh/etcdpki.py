"""Issues etcd's certificates: roots, intermediates from verified requests, leaves, credentials.

Owns what goes into a certificate. What must be in it is said a second time and independently by
etcdprofile, which looks at everything made here before it is handed out. Pure but for the nonces
that the library draws for ECDSA: keys, serials and `now` come in.

Rules:
(P1) Nothing of a request is honoured but its key, and that only with the request's own signature.
(P2) notBefore is an hour back (clocks differ), never before the issuer's; notAfter is never after
     the issuer's.
(P3) An authority whose key is not its certificate's signs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from ipaddress import IPv6Address

from cryptography import x509

from keel.mesh.etcdcert import Authority, Generation, PublicKeyHash
from keel.types import MeshId, Secret

SERIAL_BYTES = 20
MAX_REQUEST_BYTES = 2048  # keel's own are below 300 bytes
MAX_CHAIN = 3  # an intermediate, and during a rotation a bridge behind it; one to spare


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A certificate request that passed check_request; only its key counts (P1)."""

    der: bytes
    key: PublicKeyHash


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """What a TLS end presents: its leaf, the chain above it without the root, the leaf's key."""

    leaf: x509.Certificate
    chain: tuple[x509.Certificate, ...]
    key: Secret


def new_root(
    mesh: MeshId, generation: Generation, *, key: Secret, serial: bytes, now: datetime
) -> x509.Certificate:
    """A generation's self-signed root (10 years, no pathLen: a later bridge needs it free)."""
    raise NotImplementedError


def new_request(key: Secret, address: IPv6Address) -> bytes:
    """A certificate request (DER) for the member's own intermediate key."""
    raise NotImplementedError


def check_request(raw: bytes) -> Request:
    """Size, form, P-256 and the request's own signature; PkiRejected names what is wrong."""
    raise NotImplementedError


def sign_intermediate(
    root: Authority,
    request: bytes,
    *,
    address: IPv6Address,
    number: int,
    serial: bytes,
    now: datetime,
) -> x509.Certificate:
    """A member's intermediate (1 year) for its /128 and ::1; `number` counts the member's own."""
    raise NotImplementedError


def member_leaf(
    intermediate: Authority, *, key: Secret, address: IPv6Address, serial: bytes, now: datetime
) -> x509.Certificate:
    """The member's certificate for 2379 and 2380, both as server and as client (30 days)."""
    raise NotImplementedError


def client_leaf(
    intermediate: Authority, *, key: Secret, address: IPv6Address, serial: bytes, now: datetime
) -> x509.Certificate:
    """keel's own client certificate (30 days); its URI names mesh and member."""
    raise NotImplementedError


def encode_credential(credential: Credential) -> Secret:
    """Leaf, chain and key in ONE PEM file, so that a single rename replaces all of them."""
    raise NotImplementedError


def parse_credential(raw: Secret) -> Credential:
    """The inverse, canonical form only; PkiRejected `pem`, `key` or `key-match`."""
    raise NotImplementedError


def encode_authority(authority: Authority) -> Secret:
    """An authority's certificate and key in one PEM file."""
    raise NotImplementedError


def parse_authority(raw: Secret) -> Authority:
    """The inverse, canonical form only; PkiRejected `pem`, `key` or `key-match`."""
    raise NotImplementedError
