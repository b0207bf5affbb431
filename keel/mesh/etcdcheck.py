"""Which of the holder's words a member believes: its grants, statements and cluster records.

Pure. A signature is verified before what it covers is parsed (keel.mesh.wire); a check that cannot
be made counts as failed. The lists are in the docstrings, in order; one test per number, each
Refused by a rule of its own. What members ask of the holder is keel.mesh.etcdrequests'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import IPv6Address
from typing import NamedTuple, TypeVar

from cryptography import x509

from keel import codec
from keel.errors import BadValue, PkiRejected, Refused
from keel.mesh import etcdchain, wire
from keel.mesh.birth import BIRTH_SIZE, RECORD_LIFE
from keel.mesh.etcdcert import PublicKeyHash, fingerprint, generation_of, parse_certificate
from keel.mesh.etcdcert import verify_root_signature as signed_by_root
from keel.mesh.etcdcrl import Crl, read_crl
from keel.mesh.etcdids import birth_id, cluster_token
from keel.mesh.etcdmsg import (
    KIND_CLUSTER,
    KIND_ENROLMENT,
    KIND_GIVEN_UP,
    KIND_REVOCATION,
    MAX_RECORD_BYTES,
    ClusterRecord,
    Grant,
    RecordState,
)
from keel.mesh.etcdstate import Cluster, Stage
from keel.mesh.etcdtrust import encode_bundle
from keel.mesh.records import HOLDER, HolderRecord
from keel.types import Fingerprint, MeshId, RecordHash, SigningKey

T = TypeVar("T")


class Rules(NamedTuple):
    """The rules of the first two checks, which every kind shares."""

    malformed: str
    signature: str


RULES = {
    KIND_ENROLMENT: Rules("enrolment-malformed", "enrolment-signature"),
    HOLDER: Rules("holder-malformed", "holder-signature"),
    KIND_CLUSTER: Rules("record-malformed", "record-signature"),
    KIND_REVOCATION: Rules("revocation-malformed", "revocation-signature"),
    KIND_GIVEN_UP: Rules("given-up-malformed", "given-up-signature"),
}

MAX_SKEW = timedelta(seconds=300)
"""How far two members' clocks may differ before keel itself waits (design section 3)."""

ASK_HOLDER = "nothing is changed; let the holder send it again: `keel mesh etcd tend` there"
ASK_AGAIN = "nothing is changed; run `keel mesh etcd tend` on its sender, with the same keel"
LOOK = "nothing is changed; look at `keel mesh etcd status` here and at the holder"


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
    holder: SigningKey | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedGrant:
    grant: Grant
    intermediate: x509.Certificate
    roots: tuple[x509.Certificate, ...]
    holder: HolderRecord
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
    holder: SigningKey | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedRecord:
    """`again`: exactly this record was taken before (nothing to do, not refused)."""

    record: ClusterRecord
    record_hash: RecordHash
    holder: HolderRecord
    again: bool


def check_grant(grant: Grant, context: GrantContext, now: datetime) -> CheckedGrant:
    """May the member use this? In order: 1 grant-other-mesh, 2 grant-not-for-me, 3 grant-roots
    (one or two roots of keel's profile), 4 grant-root-unknown (E2), 5 grant-chain (by the root,
    for my key and address), 6 grant-crl, 7 grant-revoked, 8 the holder statement's own."""
    if grant.mesh != context.mesh:  # 1
        raise Refused("grant-other-mesh", "the grant is for another mesh", ASK_HOLDER)
    if (grant.address, grant.ed25519) != (context.address, context.key):  # 2
        raise Refused("grant-not-for-me", "the grant is another member's", ASK_HOLDER)
    roots = _grant_roots(grant)  # 3
    named = {fingerprint(root) for root in roots}
    known = context.pinned and named & context.pinned
    if not (named <= context.pinned or (context.trusted and (known or not context.pinned))):  # 4
        raise Refused(
            "grant-root-unknown",
            "the grant brings a root that neither the invite nor a trust root vouches for",
            "get a new invite from the holder, or `keel mesh trust add --root` its node here",
        )
    intermediate = _grant_intermediate(grant, roots, context, now)  # 5
    crl = _grant_crl(grant, roots)  # 6
    if crl.revokes(intermediate):  # 7
        raise Refused(
            "grant-revoked",
            "the granted intermediate is revoked already",
            "`keel mesh leave` here, then join again with a new invite",
        )
    holder = check_holder(  # 8
        grant.holder,
        roots,
        mesh=context.mesh,
        held_epoch=context.holder_epoch,
        held=context.holder,
    )
    return CheckedGrant(
        grant=grant, intermediate=intermediate, roots=roots, holder=holder, crl_number=crl.number
    )


def check_holder(
    raw: bytes,
    roots: Sequence[x509.Certificate],
    *,
    mesh: MeshId,
    held_epoch: int,
    held: SigningKey | None = None,
) -> HolderRecord:
    """Who may sign? In order: 1 holder-malformed, 2 holder-signature (by one of the roots),
    3 holder-other-mesh, 4 holder-roots (names its signer), 5 holder-old, 6 holder-tie."""
    statement, _, root = _by_root(HolderRecord, HOLDER, raw, roots)
    if statement.mesh != mesh:  # 3
        raise Refused("holder-other-mesh", "the holder statement is another mesh's", LOOK)
    signer = (generation_of(root), fingerprint(root))
    if signer not in {(one.number, one.root) for one in statement.generations}:  # 4
        raise Refused("holder-roots", "the holder statement does not name its own root", LOOK)
    if statement.epoch < held_epoch:  # 5
        raise Refused(
            "holder-old",
            "the holder statement is older than one that was seen here",
            "the holder was restored or moved: look at `keel mesh etcd status` on each node",
        )
    if statement.epoch == held_epoch and held not in (None, statement.ed25519):  # 6
        raise Refused(
            "holder-tie",
            "two nodes hold the etcd root under one epoch; this one obeys the one it knew first",
            "one of them is a copy: stop it, then look at `keel mesh etcd status` on each node",
        )
    return statement


def read_record(raw: bytes, roots: Sequence[x509.Certificate]) -> ClusterRecord:
    """A record that was taken before, from this node's own disk: only 1 and 2 of check_record."""
    return _by_root(ClusterRecord, KIND_CLUSTER, raw, roots)[0]


def check_record(raw: bytes, context: RecordContext, now: datetime) -> CheckedRecord:
    """May this node act on the record (E10)? In order:
    1 record-malformed, 2 record-signature (by a root that is pinned here), 3 record-other-mesh,
    4 record-root (names the root that signed it), 5 the holder statement's own, 6 record-token,
    7 record-size (a birth has three), 8 record-cluster-id, 9 record-not-for-me; then, unless it
    was taken before: 10 record-life, 11 record-from-future, 12 record-expired,
    13 record-given-up, 14 record-other-cluster, 15 record-other-formation, 16 record-not-newer,
    17 record-second-birth, 18 record-window."""
    record, envelope, root = _by_root(ClusterRecord, KIND_CLUSTER, raw, context.roots)
    if record.mesh != context.mesh:  # 3
        raise Refused("record-other-mesh", "the cluster record is another mesh's", LOOK)
    if record.root != fingerprint(root):  # 4
        raise Refused("record-root", "the cluster record names another root", ASK_HOLDER)
    holder = check_holder(  # 5
        record.holder,
        context.roots,
        mesh=context.mesh,
        held_epoch=context.holder_epoch,
        held=context.holder,
    )
    _check_numbers(record, context)  # 6 to 9
    found = CheckedRecord(
        record=record,
        record_hash=wire.record_hash(envelope),
        holder=holder,
        again=wire.record_hash(envelope) == context.cluster.record,
    )
    if not found.again:
        _check_life(record, now)  # 10 to 12
        _check_stage(record, context)  # 13 to 18
    return found


def envelope_of(kind: str, raw: bytes) -> wire.Envelope:
    """Check 1 of every kind: an envelope of that kind, and not too large."""
    try:
        envelope = wire.decode(raw, max_bytes=MAX_RECORD_BYTES)
    except BadValue as error:
        raise Refused(RULES[kind].malformed, error.summary(), ASK_AGAIN) from error
    if wire.kind_of(envelope) != kind:
        raise Refused(RULES[kind].malformed, f"not a message of {kind}", ASK_AGAIN)
    return envelope


def _check_numbers(record: ClusterRecord, context: RecordContext) -> None:
    if record.token != cluster_token(record.mesh, record.formation):  # 6
        raise Refused("record-token", "the cluster token is not its formation's", ASK_HOLDER)
    if record.state is RecordState.NEW and len(record.members) != BIRTH_SIZE:  # 7
        raise Refused("record-size", f"a birth has {BIRTH_SIZE} members", ASK_HOLDER)
    held = context.cluster.cluster_id if context.cluster.formation == record.formation else None
    born = birth_id(record.members, record.token) if record.state is RecordState.NEW else None
    if any(known not in (None, record.cluster_id) for known in (held, born)):  # 8
        raise Refused("record-cluster-id", "the cluster ID is not the birth's", ASK_HOLDER)
    if context.address not in record.members:  # 9
        raise Refused("record-not-for-me", "the cluster record does not name this node", LOOK)


def _check_life(record: ClusterRecord, now: datetime) -> None:
    if record.expires - record.issued != RECORD_LIFE:  # 10
        raise Refused("record-life", "a cluster record lives for an hour", ASK_HOLDER)
    if record.issued > now + MAX_SKEW:  # 11
        raise Refused(
            "record-from-future",
            f"the cluster record is of {codec.format_time(record.issued)},"
            f" here it is {codec.format_time(now)}",
            "set both clocks right, `timedatectl` shows them; the timer tries again",
        )
    if record.expires <= now:  # 12
        raise Refused(
            "record-expired",
            f"the cluster record ended at {codec.format_time(record.expires)}",
            "nothing: the holder's timer signs it again; `keel mesh etcd tend` there hastens it",
        )


def _check_stage(record: ClusterRecord, context: RecordContext) -> None:
    cluster = context.cluster
    if record.formation in cluster.given_up:  # 13
        raise Refused("record-given-up", "this node has given that formation up", LOOK)
    formed = cluster.stage is Stage.FORMED
    if formed and record.formation != cluster.formation:  # 14
        raise Refused(
            "record-other-cluster",
            "this node is in a cluster, and the record is another's",
            "`keel mesh leave` here if it shall go to the other one, then join it again",
        )
    if cluster.stage is Stage.STARTING and record.formation != cluster.formation:  # 15
        raise Refused(
            "record-other-formation",
            "this node is starting another formation and has not given it up",
            "nothing: the holder asks this node to give the old one up, then sends it again",
        )
    if record.epoch <= cluster.epoch:  # 16
        raise Refused("record-not-newer", "a newer cluster record was taken here", LOOK)
    if formed and record.state is RecordState.NEW:  # 17
        raise Refused("record-second-birth", "the cluster was formed already", LOOK)
    if context.window_open:  # 18
        raise Refused(
            "record-window",
            "a change to the network waits here for its confirmation",
            "nothing: the change is confirmed or undone by itself; the timer goes on then",
        )


def _grant_roots(grant: Grant) -> tuple[x509.Certificate, ...]:
    try:
        roots = tuple(parse_certificate(raw) for raw in grant.roots)
        encode_bundle(roots)  # one or two, self-signed, of keel's profile
    except PkiRejected as error:
        raise Refused("grant-roots", error.summary(), ASK_HOLDER) from error
    return roots


def _grant_intermediate(
    grant: Grant, roots: tuple[x509.Certificate, ...], context: GrantContext, now: datetime
) -> x509.Certificate:
    try:
        intermediate = parse_certificate(grant.intermediate)
        root = next((one for one in roots if one.subject == intermediate.issuer), roots[0])
        etcdchain.check_grant(
            intermediate,
            root,
            mesh=context.mesh,
            address=context.address,
            key=context.request_key,
            now=now,
        )
    except PkiRejected as error:
        raise Refused("grant-chain", error.summary(), ASK_HOLDER) from error
    return intermediate


def _grant_crl(grant: Grant, roots: Sequence[x509.Certificate]) -> Crl:
    try:
        return read_crl(grant.crl, roots)
    except PkiRejected as error:
        raise Refused("grant-crl", error.summary(), ASK_HOLDER) from error


def _by_root(
    cls: type[T], kind: str, raw: bytes, roots: Sequence[x509.Certificate]
) -> tuple[T, wire.Envelope, x509.Certificate]:
    """1 malformed, 2 signature. The key id is a hint: every pinned root is tried."""
    envelope = envelope_of(kind, raw)
    signatures = [value for _, value in wire.root_signatures(envelope)]
    signed = wire.message(envelope)
    root = next(
        (one for one in roots for value in signatures if signed_by_root(one, signed, value)), None
    )
    if root is None:
        raise Refused(
            RULES[kind].signature,
            f"no root that this node trusts signed the message of {kind}",
            "compare the root's fingerprint in `keel mesh etcd status` here and at the holder",
        )
    try:
        return codec.loads(cls, envelope.payload, max_bytes=MAX_RECORD_BYTES), envelope, root
    except BadValue as error:
        raise Refused(RULES[kind].malformed, error.summary(), ASK_AGAIN) from error
