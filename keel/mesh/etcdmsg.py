"""What members tell each other about etcd: signed records, and the bodies of /v1/etcd.

Owns the forms and who signs them; etcdcheck and etcdrequests say which of them a node believes.
(S1) An enrolment, a revocation and a given-up statement are DSSE by a member's Ed25519 key.
(S2) A cluster record is DSSE by the mesh's etcd root (ECDSA P-256 over the same bytes, key id
     `root:<fingerprint>`); the holder's statement, a roster record, by the root and the holder.
(S3) A grant needs no signature of its own: the root signed the intermediate and the CRL in it.
(S4) Envelopes travel inside bodies as their exact bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from ipaddress import IPv6Address

from keel.mesh import wire
from keel.mesh.birth import RECORD_LIFE, Formation
from keel.mesh.etcdcert import Authority, Serial, fingerprint, sign_with_root
from keel.mesh.etcdcrl import Reason
from keel.mesh.etcdids import cluster_token
from keel.mesh.etcdstate import Stage
from keel.mesh.growth import Word
from keel.mesh.records import in_range
from keel.outcome import Step
from keel.types import (
    Capability,
    EtcdClusterId,
    EtcdMemberId,
    Fingerprint,
    FormationId,
    MeshId,
    Nonce,
    SigningKey,
)

KIND_ENROLMENT = "enrolment"
KIND_CLUSTER = "cluster"
KIND_REVOCATION = "revocation"
KIND_GIVEN_UP = "given-up"

PROBE = "probe"
PROBE_SECONDS = 8.0
"""Two round trips and a lost packet; a joiner waits for it inside its own fifteen seconds."""

MAX_RECORD_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrolment:
    """A member asks for its intermediate; `csr` is DER and only its key counts."""

    mesh: MeshId
    address: IPv6Address
    ed25519: SigningKey
    csr: bytes
    nonce: Nonce


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """An intermediate (DER) with the roots (DER each, newest first), the CRL and the holder's
    statement (encoded envelope)."""

    mesh: MeshId
    address: IPv6Address
    ed25519: SigningKey
    intermediate: bytes
    roots: tuple[bytes, ...]
    crl: bytes
    holder: bytes


class RecordState(StrEnum):
    """etcd's initial-cluster-state."""

    NEW = "new"
    EXISTING = "existing"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRecord:
    """Whose cluster it is, signed by the root. `members`: exactly the cluster's, in order of
    address. `replaces`: the ID that this member had before its data was lost. `holder`: the
    statement's encoded envelope."""

    mesh: MeshId
    formation: FormationId
    token: str
    cluster_id: EtcdClusterId
    epoch: int
    nonce: Nonce
    issued: datetime
    expires: datetime
    state: RecordState
    members: tuple[IPv6Address, ...]
    root: Fingerprint
    crl_number: int
    holder: bytes
    replaces: EtcdMemberId | None = None

    def __post_init__(self) -> None:
        if self.replaces is not None and self.state is RecordState.NEW:
            raise ValueError("a birth replaces nobody")
        if self.members != tuple(sorted(set(self.members))):
            raise ValueError("members are listed once and in order of address")
        in_range(self.epoch, "epoch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Revocation:
    """`by` asks the holder to revoke all that was ever granted to (address, ed25519)."""

    mesh: MeshId
    address: IPv6Address
    ed25519: SigningKey
    by: SigningKey
    reason: Reason
    time: datetime
    nonce: Nonce


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp:
    """I saw no leader of that formation and shall never start it (again); it is on my disk."""

    mesh: MeshId
    formation: FormationId
    ed25519: SigningKey
    time: datetime
    nonce: Nonce


# bodies of POST /v1/etcd, a question and its answer per kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What are you; and, `of_me`, what did I say of myself last?"""

    of_me: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeAnswer:
    """`etcd`: what the member's own etcd said just now, None while it says nothing; `replacing`:
    its operator asked for a new place in the cluster (recover --replace); `newest_of_you`: the
    asker's own newest self record as it is known there (encoded envelope)."""

    capability: Capability
    confirmed: bool
    window_open: bool
    stage: Stage
    epoch: int
    holder_epoch: int
    crl_number: int
    sees_leader: bool
    formation: FormationId | None = None
    cluster_id: EtcdClusterId | None = None
    root: Fingerprint | None = None
    intermediate: Serial | None = None
    given_up: tuple[FormationId, ...] = ()
    newest_of_you: bytes | None = None
    trusts_you: bool = False
    etcd: Word | None = None
    replacing: bool = False

    def __post_init__(self) -> None:
        for value in (self.epoch, self.holder_epoch, self.crl_number):
            in_range(value, "a number of the holder's")


@dataclass(frozen=True, slots=True, kw_only=True)
class Enroll:
    """An enrolment with the admission chain (encoded envelopes, genesis first)."""

    enrolment: bytes
    admissions: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrollAnswer:
    """The grant; a record when a birth or a place as learner came with it; else `why` not."""

    grant: Grant
    record: bytes | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeGrant:
    """Your inviter asked the holder for you (E2): this is your grant."""

    grant: Grant


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeGrantAnswer:
    """`intermediate`: the one that the member has now."""

    intermediate: Serial


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeRecord:
    """Take this record. `introductions`: roster records by which its parties know each other, as
    they may not have met: what they say first is for etcd's start."""

    record: bytes
    introductions: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeRecordAnswer:
    stage: Stage
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """Give that formation up, if you saw no leader of it."""

    formation: FormationId


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUpAnswer:
    """`statement`: the encoded envelope of a GivenUp."""

    statement: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Revoke:
    """Revoke what was granted to a node. `revocation`: the encoded envelope of a Revocation;
    `records`: roster records (encoded envelopes) by which the node is removed, if it is."""

    revocation: bytes
    records: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeAnswer:
    """The number of the CRL that says so, as it is on the holder's disk."""

    crl_number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AskPlace:
    """Where am I in the line of those who wait for a place in the cluster?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceAnswer:
    """`place` counts from 1; None while the sender is not in the line. `cluster`: there is one."""

    cluster: bool
    of: int
    why: str
    place: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AskReplace:
    """My data is lost: give me a new place in the cluster; `dry_run`: only say how."""

    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceAnswer:
    """`steps`: what the holder does; `record`: of the new place once it did; else `waiting_for` and
    `why`. `newest_of_you`: the sender's own newest self record that the holder knows."""

    steps: tuple[Step, ...]
    newest_of_you: bytes | None = None
    record: bytes | None = None
    waiting_for: str | None = None
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tell:
    """What do you hold that the holder signed? Its disk was put back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TellAnswer:
    """The CRL and the intermediate (DER), the cluster record (encoded envelope), and whether the
    cluster of that record was seen to live."""

    crl: bytes | None = None
    intermediate: bytes | None = None
    record: bytes | None = None
    formed: bool = False


def new_record(
    formation: Formation,
    *,
    mesh: MeshId,
    epoch: int,
    nonce: Nonce,
    state: RecordState,
    members: Iterable[IPv6Address],
    root: Fingerprint,
    crl_number: int,
    holder: bytes,
    now: datetime,
    replaces: EtcdMemberId | None = None,
) -> ClusterRecord:
    """The record of a formation, with an hour of life from now. `members`: a birth's own, or
    exactly those that etcd lists; `epoch`: the book's, advanced and durable before
    (keel.mesh.birth, B2)."""
    return ClusterRecord(
        mesh=mesh,
        formation=formation.formation,
        token=cluster_token(mesh, formation.formation),
        cluster_id=formation.cluster_id,
        epoch=epoch,
        nonce=nonce,
        issued=now,
        expires=now + RECORD_LIFE,
        state=state,
        members=tuple(sorted(set(members))),
        root=root,
        crl_number=crl_number,
        holder=holder,
        replaces=replaces,
    )


def seal_by_root(kind: str, body: object, root: Authority) -> bytes:
    """The encoded envelope of a body signed by the etcd root (S2)."""
    envelope = wire.seal(kind, body)
    return wire.encode(
        wire.with_signature(
            envelope,
            wire.root_key_id(fingerprint(root.certificate)),
            sign_with_root(root, wire.message(envelope)),
        )
    )
