"""Which of etcd's messages a node believes: numbered checks, each Refused by a rule of its own.

Pure. A signature is verified before what it covers is parsed (keel.mesh.wire); a check that cannot
be made counts as failed. The lists are in the docstrings, in order; one test per number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from ipaddress import IPv6Address

from cryptography import x509

from keel.mesh.birth import HolderBook
from keel.mesh.etcdcert import Authority, PublicKeyHash
from keel.mesh.etcdgrants import Ledger
from keel.mesh.etcdmsg import (
    ClusterRecord,
    Enrolment,
    GivenUp,
    Grant,
    HolderStatement,
    Revocation,
)
from keel.mesh.etcdpki import Request
from keel.mesh.etcdstate import Cluster
from keel.types import Fingerprint, FormationId, MeshId, RecordHash, SigningKey


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolmentContext:
    """The holder's. `admitted`: every key with a chain of admissions to the genesis (the roster's,
    the chain that came along, an open claim's) and its address, adopted pairs included."""

    mesh: MeshId
    admitted: Mapping[SigningKey, IPv6Address]
    removed: frozenset[SigningKey]
    ledger: Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedEnrolment:
    enrolment: Enrolment
    request: Request


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantContext:
    """The member's. `pinned`: its root's fingerprint from its trust.pem or the token; `trusted`:
    whether the giver is its inviter or one of its trust roots (who may bring the first root)."""

    mesh: MeshId
    address: IPv6Address
    key: SigningKey
    request_key: PublicKeyHash
    pinned: frozenset[Fingerprint]
    trusted: bool
    holder_epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedGrant:
    grant: Grant
    intermediate: x509.Certificate
    roots: tuple[x509.Certificate, ...]
    holder: HolderStatement
    crl_number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordContext:
    """The receiver's. `roots`: its own trust.pem's."""

    mesh: MeshId
    address: IPv6Address
    roots: tuple[x509.Certificate, ...]
    cluster: Cluster
    holder_epoch: int
    window_open: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedRecord:
    """`again`: exactly this record was taken before (nothing to do, not refused)."""

    record: ClusterRecord
    record_hash: RecordHash
    holder: HolderStatement
    again: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RevocationContext:
    """The holder's. `may_ask`: who else than the subject itself (its admitters, the holder's trust
    roots, the holder)."""

    mesh: MeshId
    may_ask: frozenset[SigningKey]
    ledger: Ledger


def seal_by_root(kind: str, body: object, root: Authority) -> bytes:
    """The encoded envelope of a body signed by the etcd root (S2)."""
    raise NotImplementedError


def check_enrolment(raw: bytes, context: EnrolmentContext) -> CheckedEnrolment:
    """1 enrolment-malformed, 2 enrolment-signature, 3 enrolment-other-mesh, 4 enrolment-removed,
    5 enrolment-not-admitted, 6 enrolment-address, 7 enrolment-request, 8 enrolment-key-reused."""
    raise NotImplementedError


def check_grant(grant: Grant, context: GrantContext, now: datetime) -> CheckedGrant:
    """1 grant-other-mesh, 2 grant-not-for-me, 3 grant-roots, 4 grant-root-unknown, 5 grant-chain,
    6 grant-crl, 7 the holder statement's."""
    raise NotImplementedError


def check_holder(
    raw: bytes, roots: Sequence[x509.Certificate], *, mesh: MeshId, held_epoch: int
) -> HolderStatement:
    """1 holder-malformed, 2 holder-signature, 3 holder-other-mesh, 4 holder-roots, 5 holder-old."""
    raise NotImplementedError


def check_record(raw: bytes, context: RecordContext, now: datetime) -> CheckedRecord:
    """1 record-malformed ... see etcdcheck's table; E10 and design section 5."""
    raise NotImplementedError


def check_revocation(raw: bytes, context: RevocationContext, now: datetime) -> Revocation:
    """1 revocation-malformed, 2 revocation-signature, 3 revocation-other-mesh,
    4 revocation-not-yours, 5 revocation-unknown."""
    raise NotImplementedError


def check_given_up(
    raw: bytes, *, mesh: MeshId, formation: FormationId, key: SigningKey, book: HolderBook
) -> GivenUp:
    """1 given-up-malformed, 2 given-up-signature, 3 given-up-other-mesh,
    4 given-up-other-formation,
    5 given-up-not-a-member."""
    raise NotImplementedError
