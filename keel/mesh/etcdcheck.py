"""Which of etcd's messages a node believes: numbered checks, each Refused by a rule of its own.

Pure. A signature is verified before what it covers is parsed (keel.mesh.wire); a check that cannot
be made counts as failed. The lists are in the docstrings, in order; one test per number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import IPv6Address
from typing import NamedTuple, TypeVar

from cryptography import x509

from keel import codec
from keel.errors import BadSignature, BadValue, PkiRejected, Refused
from keel.mesh import etcdchain, wire
from keel.mesh.birth import BIRTH_SIZE, RECORD_LIFE, Formation
from keel.mesh.etcdcert import PublicKeyHash, fingerprint, generation_of, parse_certificate
from keel.mesh.etcdcert import verify_root_signature as signed_by_root
from keel.mesh.etcdcrl import Crl, read_crl
from keel.mesh.etcdgrants import Ledger, granted_to, owner_of
from keel.mesh.etcdids import birth_id, cluster_token
from keel.mesh.etcdmsg import (
    KIND_CLUSTER,
    KIND_ENROLMENT,
    KIND_GIVEN_UP,
    KIND_REVOCATION,
    MAX_RECORD_BYTES,
    ClusterRecord,
    Enrolment,
    GivenUp,
    Grant,
    RecordState,
    Revocation,
)
from keel.mesh.etcdpki import Request, check_request
from keel.mesh.etcdstate import Cluster, Stage
from keel.mesh.etcdtrust import encode_bundle
from keel.mesh.records import HOLDER, HolderRecord
from keel.types import Fingerprint, MeshId, RecordHash, SigningKey

T = TypeVar("T")


class _Rules(NamedTuple):
    """The rules of the first two checks, which every kind shares."""

    malformed: str
    signature: str


_RULES = {
    KIND_ENROLMENT: _Rules("enrolment-malformed", "enrolment-signature"),
    HOLDER: _Rules("holder-malformed", "holder-signature"),
    KIND_CLUSTER: _Rules("record-malformed", "record-signature"),
    KIND_REVOCATION: _Rules("revocation-malformed", "revocation-signature"),
    KIND_GIVEN_UP: _Rules("given-up-malformed", "given-up-signature"),
}

MAX_SKEW = timedelta(seconds=300)
"""How far two members' clocks may differ before keel itself waits (design section 3)."""

ASK_HOLDER = "nothing is changed; let the holder send it again: `keel mesh etcd tend` there"
ASK_AGAIN = "nothing is changed; run `keel mesh etcd tend` on its sender, with the same keel"
LOOK = "nothing is changed; look at `keel mesh etcd status` here and at the holder"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedRecord:
    """`again`: exactly this record was taken before (nothing to do, not refused)."""

    record: ClusterRecord
    record_hash: RecordHash
    holder: HolderRecord
    again: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RevocationContext:
    """The holder's. `admitters`: who admitted each key and may remove it; `trust_roots`: the
    holder's own, itself included; `removed`: keys that counting removals name."""

    mesh: MeshId
    admitters: Mapping[SigningKey, frozenset[SigningKey]]
    trust_roots: frozenset[SigningKey]
    ledger: Ledger
    removed: frozenset[SigningKey] = frozenset()


def check_enrolment(raw: bytes, context: EnrolmentContext) -> CheckedEnrolment:
    """May the holder sign this? In order: 1 enrolment-malformed, 2 enrolment-signature (by the
    member it names), 3 enrolment-other-mesh, 4 enrolment-removed, 5 enrolment-not-admitted,
    6 enrolment-address, 7 enrolment-request (the request's own form and signature),
    8 enrolment-key-reused."""
    enrolment, signer = _by_member(Enrolment, KIND_ENROLMENT, raw)
    if enrolment.ed25519 != signer:  # 2
        raise Refused("enrolment-signature", "the enrolment names another signer", ASK_AGAIN)
    if enrolment.mesh != context.mesh:  # 3
        raise Refused("enrolment-other-mesh", "the enrolment is for another mesh", ASK_AGAIN)
    if signer in context.removed:  # 4
        raise Refused(
            "enrolment-removed",
            "the enrolment is a removed member's",
            "invite the node again with `keel mesh invite`; it joins with new keys",
        )
    if signer not in context.admitted:  # 5
        raise Refused(
            "enrolment-not-admitted",
            "no chain of admissions leads to the enrolment's signer",
            "run `keel mesh sync` here and on the node that admitted it",
        )
    if context.admitted[signer] != enrolment.address:  # 6
        raise Refused(
            "enrolment-address", "the enrolment is for an address that is not its own", ASK_AGAIN
        )
    try:
        request = check_request(enrolment.csr)
    except PkiRejected as error:  # 7
        raise Refused("enrolment-request", error.summary(), ASK_AGAIN) from error
    if owner_of(context.ledger, request.key) not in (None, enrolment.address):  # 8
        raise Refused(
            "enrolment-key-reused",
            "the request's key was granted to another address before",
            "the node was copied from another: `keel mesh leave` there, then join it again",
        )
    return CheckedEnrolment(enrolment=enrolment, request=request)


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
        grant.holder, roots, mesh=context.mesh, held_epoch=context.holder_epoch
    )
    return CheckedGrant(
        grant=grant, intermediate=intermediate, roots=roots, holder=holder, crl_number=crl.number
    )


def check_holder(
    raw: bytes, roots: Sequence[x509.Certificate], *, mesh: MeshId, held_epoch: int
) -> HolderRecord:
    """Who may sign? In order: 1 holder-malformed, 2 holder-signature (by one of the roots),
    3 holder-other-mesh, 4 holder-roots (names its signer), 5 holder-old."""
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
        record.holder, context.roots, mesh=context.mesh, held_epoch=context.holder_epoch
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


def check_revocation(raw: bytes, context: RevocationContext) -> Revocation:
    """Must the holder obey? In order: 1 revocation-malformed, 2 revocation-signature,
    3 revocation-other-mesh, 4 revocation-not-yours (a removal that counts is reason enough),
    5 revocation-unknown (nothing was granted), 6 revocation-old (granted again since it was
    signed)."""
    revocation, signer = _by_member(Revocation, KIND_REVOCATION, raw)
    if revocation.by != signer:  # 2
        raise Refused("revocation-signature", "the revocation names another signer", ASK_AGAIN)
    if revocation.mesh != context.mesh:  # 3
        raise Refused("revocation-other-mesh", "the revocation is for another mesh", ASK_AGAIN)
    subject = revocation.ed25519
    admitters = context.admitters.get(subject, frozenset())
    may_ask = {subject} | admitters | context.trust_roots
    if signer not in may_ask and subject not in context.removed:  # 4
        raise Refused(
            "revocation-not-yours",
            "only the node itself, its admitter or a trust root of the holder may ask for this",
            "ask the operator of the node that admitted it, or of the holder",
        )
    granted = granted_to(context.ledger, revocation.address, subject)
    if not granted:  # 5
        raise Refused("revocation-unknown", "nothing was ever granted to that node", LOOK)
    if revocation.time + MAX_SKEW < granted[-1].time:  # 6
        raise Refused(
            "revocation-old", "the node was granted anew after this was signed", ASK_AGAIN
        )
    return revocation


def check_given_up(raw: bytes, *, mesh: MeshId, formation: Formation, key: SigningKey) -> GivenUp:
    """Does it free the formation of this member? In order: 1 given-up-malformed,
    2 given-up-signature (by that member), 3 given-up-other-mesh, 4 given-up-other-formation,
    5 given-up-not-a-member."""
    statement, signer = _by_member(GivenUp, KIND_GIVEN_UP, raw)
    if statement.ed25519 != signer or signer != key:  # 2
        raise Refused("given-up-signature", "the statement is not that member's", ASK_AGAIN)
    if statement.mesh != mesh:  # 3
        raise Refused("given-up-other-mesh", "the statement is for another mesh", ASK_AGAIN)
    if statement.formation != formation.formation:  # 4
        raise Refused(
            "given-up-other-formation", "the statement is about another formation", ASK_AGAIN
        )
    if key not in {one.key for one in formation.members}:  # 5
        raise Refused("given-up-not-a-member", "its signer is not of that formation", ASK_AGAIN)
    return statement


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


def _by_member(cls: type[T], kind: str, raw: bytes) -> tuple[T, SigningKey]:
    """1 malformed, 2 signature: verified first, parsed then."""
    envelope = _envelope(kind, raw)
    signers = wire.signers(envelope)
    if len(signers) != 1:
        raise Refused(_RULES[kind].malformed, f"one member signs a message of {kind}", ASK_AGAIN)
    try:
        return wire.open_as(cls, envelope, kind, signers[0]), signers[0]
    except BadSignature as error:
        raise Refused(_RULES[kind].signature, error.summary(), ASK_AGAIN) from error
    except BadValue as error:
        raise Refused(_RULES[kind].malformed, error.summary(), ASK_AGAIN) from error


def _by_root(
    cls: type[T], kind: str, raw: bytes, roots: Sequence[x509.Certificate]
) -> tuple[T, wire.Envelope, x509.Certificate]:
    """1 malformed, 2 signature. The key id is a hint: every pinned root is tried."""
    envelope = _envelope(kind, raw)
    signatures = [value for _, value in wire.root_signatures(envelope)]
    signed = wire.message(envelope)
    root = next(
        (one for one in roots for value in signatures if signed_by_root(one, signed, value)), None
    )
    if root is None:
        raise Refused(
            _RULES[kind].signature,
            f"no root that this node trusts signed the message of {kind}",
            "compare the root's fingerprint in `keel mesh etcd status` here and at the holder",
        )
    try:
        return codec.loads(cls, envelope.payload, max_bytes=MAX_RECORD_BYTES), envelope, root
    except BadValue as error:
        raise Refused(_RULES[kind].malformed, error.summary(), ASK_AGAIN) from error


def _envelope(kind: str, raw: bytes) -> wire.Envelope:
    try:
        envelope = wire.decode(raw, max_bytes=MAX_RECORD_BYTES)
    except BadValue as error:
        raise Refused(_RULES[kind].malformed, error.summary(), ASK_AGAIN) from error
    if wire.kind_of(envelope) != kind:
        raise Refused(_RULES[kind].malformed, f"not a message of {kind}", ASK_AGAIN)
    return envelope
