"""The one merged CRL: built by the holder, read and judged by everybody.

Rules:
(L1) One DER, signed by the current root, with the serials of every generation still trusted: etcd
     takes one file, looks at serials only, and a second root's empty CRL would readmit people.
(L2) Taken only when signed under a pinned root and of a higher number than the one held.
(L3) A root is never on it: etcd would then refuse chains that carry the root and no others.
(L4) Past its nextUpdate it still counts and still starts etcd; that it is late is a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from cryptography import x509

from keel.mesh.etcdcert import Authority, Serial
from keel.types import Fingerprint

CRL_LIFE = timedelta(days=30)
MAX_CRL_BYTES = 1 << 20  # 20 000 entries


class Reason(StrEnum):
    """Why a certificate was revoked, in X.509's words; UNSPECIFIED is left out of the CRL."""

    UNSPECIFIED = "unspecified"
    SUPERSEDED = "superseded"
    CESSATION = "cessationOfOperation"
    KEY_COMPROMISE = "keyCompromise"


@dataclass(frozen=True, slots=True, kw_only=True)
class Revoked:
    """One revoked serial; fit for keel's JSON records."""

    serial: Serial
    reason: Reason
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Crl:
    """A CRL that was read: its exact bytes and what is in them. `signer` is the root that it
    verified under."""

    der: bytes
    number: int
    this_update: datetime
    next_update: datetime
    signer: Fingerprint
    revoked: tuple[Revoked, ...]

    def late(self, now: datetime) -> bool:
        """Past its nextUpdate (L4)."""
        raise NotImplementedError

    def revokes(self, certificate: x509.Certificate) -> bool:
        raise NotImplementedError


def unite(*sets: Iterable[Revoked]) -> tuple[Revoked, ...]:
    """One entry per serial, ordered by serial: the earliest date, the gravest reason."""
    raise NotImplementedError


def new_crl(root: Authority, revoked: Iterable[Revoked], *, number: int, now: datetime) -> bytes:
    """The DER of a CRL (also of an empty one) that read_crl accepts under that root."""
    raise NotImplementedError


def read_crl(raw: bytes, roots: Sequence[x509.Certificate]) -> Crl:
    """Bounded, whole, and signed under one of the roots; PkiRejected names what is wrong."""
    raise NotImplementedError


def accept_crl(raw: bytes, roots: Sequence[x509.Certificate], *, held_number: int) -> Crl:
    """read_crl, and a higher number than the one held (0 when none is): PkiRejected `crl-number`
    otherwise (L2)."""
    raise NotImplementedError
