"""Which of the members' requests the holder obeys: enrolments, revocations, formations given up.

Pure. As in keel.mesh.etcdcheck: verified before parsed, numbered, one rule for each number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import IPv6Address
from typing import TypeVar

from keel.errors import BadSignature, BadValue, PkiRejected, Refused
from keel.mesh import wire
from keel.mesh.birth import Formation
from keel.mesh.etcdcheck import ASK_AGAIN, LOOK, MAX_SKEW, RULES, envelope_of
from keel.mesh.etcdgrants import Ledger, granted_to, owner_of
from keel.mesh.etcdmsg import (
    KIND_ENROLMENT,
    KIND_GIVEN_UP,
    KIND_REVOCATION,
    Enrolment,
    GivenUp,
    Revocation,
)
from keel.mesh.etcdpki import Request, check_request
from keel.types import MeshId, SigningKey

T = TypeVar("T")

MAX_UNEXPIRED = 16
"""Of one node's intermediates, revoked ones included: a year has one or two. More would be somebody
who fills the holder's ledger, and then the CRL."""
MAX_OF_BRANCH = 160
"""Of one that the founder or the holder admitted, with all that came in through it: a CRL has room
for 1200 serials (keel.mesh.records), so that no member fills it with puppets' ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolmentContext:
    """The holder's. `admitted`: every key with a chain of admissions to the genesis (the roster's,
    the chain that came along, an open claim's) and its address, adopted pairs included. `heads`:
    through whom each member is in, of those that the founder or the holder admitted."""

    mesh: MeshId
    admitted: Mapping[SigningKey, IPv6Address]
    removed: frozenset[SigningKey]
    ledger: Ledger
    now: datetime
    heads: Mapping[SigningKey, frozenset[SigningKey]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedEnrolment:
    enrolment: Enrolment
    request: Request


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
    8 enrolment-key-reused, 9 enrolment-too-many (for new keys only)."""
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
    unexpired = [
        line.csr_key
        for line in granted_to(context.ledger, enrolment.address, signer)
        if line.not_after is not None and line.not_after > context.now
    ]
    if request.key not in unexpired and len(unexpired) >= MAX_UNEXPIRED:  # 9
        raise Refused(
            "enrolment-too-many",
            f"{len(unexpired)} intermediates that were granted to this node have not ended yet",
            "`keel mesh leave` there, then join it again with a new invite: it gets new keys",
        )
    if request.key not in unexpired:
        _refuse_full_branch(signer, context)
    return CheckedEnrolment(enrolment=enrolment, request=request)


def _refuse_full_branch(signer: SigningKey, context: EnrolmentContext) -> None:
    """Still 9: of several ways in, one with room is enough."""
    unexpired = [
        context.heads.get(line.ed25519, frozenset())
        for line in context.ledger.lines
        if line.not_after is not None and line.not_after > context.now
    ]
    ways = context.heads.get(signer, frozenset())
    if ways and all(sum(way in one for one in unexpired) >= MAX_OF_BRANCH for way in ways):
        raise Refused(
            "enrolment-too-many",
            f"{MAX_OF_BRANCH} intermediates that were granted to nodes let in by the same member"
            " have not ended yet",
            "invite the node with `keel mesh invite` on the holder itself; and see who lets so many"
            " in: `keel mesh status`",
        )


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
    if granted[-1].time - revocation.time > MAX_SKEW:  # 6
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


def _by_member(cls: type[T], kind: str, raw: bytes) -> tuple[T, SigningKey]:
    """1 malformed, 2 signature: verified first, parsed then."""
    envelope = envelope_of(kind, raw)
    signers = wire.signers(envelope)
    if len(signers) != 1:
        raise Refused(RULES[kind].malformed, f"one member signs a message of {kind}", ASK_AGAIN)
    try:
        return wire.open_as(cls, envelope, kind, signers[0]), signers[0]
    except BadSignature as error:
        raise Refused(RULES[kind].signature, error.summary(), ASK_AGAIN) from error
    except BadValue as error:
        raise Refused(RULES[kind].malformed, error.summary(), ASK_AGAIN) from error
