"""The join request and its answer: exact bytes, a MAC under the invite and a signature on each.

Owns the formats of `/v1/join` and of the fallback's files. Whether a request is granted is judged
in keel.mesh.redeem; what an answer makes of a node is the join flow's.

Rules:
(J1) A frame is a magic line, for a request the invite id (16) and the nonce (16), then the MAC (32)
     and a DSSE envelope to its end.
(J2) MAC = HMAC-SHA256 over the length-prefixed direction, invite id, nonce, for an answer SHA-256
     of the request's exact bytes, and the envelope. `req` keys requests, `ans` answers: neither can
     be taken for the other.
(J3) The request's envelope is signed by the joiner's Ed25519 key (possession), the answer's by the
     inviter's, which the token pins.
(J4) Every proven refusal is an answer too. What is not a frame proves nothing.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from keel.errors import BadSignature, BadValue, PeerError
from keel.mesh import wire
from keel.mesh.keys import SigningPair
from keel.mesh.refusal import Refusal, parse_plain
from keel.mesh.token import EtcdHint, InviteKeys
from keel.types import (
    Capability,
    Endpoint,
    InviteId,
    MeshId,
    NodeName,
    Nonce,
    Secret,
    SigningKey,
    WgKey,
    parse_hex,
    parse_wg_key,
)

MAX_REQUEST_BYTES = 64 << 10
"""An enrolment is below 4 KiB; the rest is head room."""
MAX_ANSWER_BYTES = 1 << 20
"""A roster of 200 members fits."""
MAX_ENDPOINTS = 8
PROTOCOL = 1
REQUEST_KIND = "join-request"
ANSWER_KIND = "join-answer"

_REQUEST_MAGIC = b"keel/1 join-request\n"
_ANSWER_MAGIC = b"keel/1 join-answer\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinHead:
    """What is read of any version's request before its version is known."""

    mesh: MeshId
    version: int
    extra: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """What the joiner asks for. `time` is its own clock; `enrolment` is the etcd part's envelope,
    always there when it is capable (E1) and carried unread."""

    mesh: MeshId
    invite: InviteId
    nonce: Nonce
    ed25519: SigningKey
    wireguard: WgKey
    name: NodeName
    capability: Capability
    time: datetime
    version: int = PROTOCOL
    endpoints: tuple[Endpoint, ...] = ()
    enrolment: bytes | None = None

    def __post_init__(self) -> None:
        parse_hex(self.nonce, size=16)
        parse_hex(self.ed25519, size=32)
        parse_wg_key(self.wireguard)
        if len(self.endpoints) > MAX_ENDPOINTS:
            raise ValueError(f"a node has at most {MAX_ENDPOINTS} endpoints")


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdPart:
    """The answer's etcd part. Its envelopes are opaque here; no join fails because of them."""

    state: EtcdHint = EtcdHint.NONE
    holder: SigningKey | None = None
    grant: bytes | None = None
    cluster_record: bytes | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """What the joiner needs to be a member: envelopes as bytes. `roster` holds every record that
    the inviter has, its own admission chain among them. The inviter's roots are not its business:
    a joiner's root is its inviter, and no other (M6)."""

    admission: bytes
    genesis: bytes
    roster: tuple[bytes, ...]
    etcd: EtcdPart = field(default_factory=EtcdPart)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    """Exactly one of `admitted` and `refusal`. `time` is the inviter's clock."""

    mesh: MeshId
    invite: InviteId
    request: str
    time: datetime
    admitted: Admitted | None = None
    refusal: Refusal | None = None

    def __post_init__(self) -> None:
        if (self.admitted is None) == (self.refusal is None):
            raise ValueError("an answer either admits or refuses")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFrame:
    """A request taken apart, nothing of it verified yet."""

    invite: InviteId
    nonce: Nonce
    mac: bytes
    envelope: bytes
    raw: bytes = field(repr=False)


def seal_request(request: JoinRequest, keys: InviteKeys, pair: SigningPair) -> bytes:
    """The request's exact bytes; every try makes new ones (nonce, time)."""
    envelope = wire.encode(wire.seal(REQUEST_KIND, request, pair))
    mac = _request_mac(keys, nonce=request.nonce, envelope=envelope)
    head = bytes.fromhex(request.invite) + bytes.fromhex(request.nonce)
    return _REQUEST_MAGIC + head + mac + envelope


def split_request(raw: bytes) -> RequestFrame:
    """The frame alone (J1); BadValue when it is none."""
    at = len(_REQUEST_MAGIC)
    if not raw.startswith(_REQUEST_MAGIC) or len(raw) <= at + 64:
        raise BadValue("", "not a join request")
    return RequestFrame(
        invite=InviteId(raw[at : at + 16].hex()),
        nonce=Nonce(raw[at + 16 : at + 32].hex()),
        mac=raw[at + 32 : at + 64],
        envelope=raw[at + 64 :],
        raw=raw,
    )


def request_mac_holds(frame: RequestFrame, keys: InviteKeys) -> bool:
    """Whether its sender holds the invite's secret (J2)."""
    wanted = _request_mac(keys, nonce=frame.nonce, envelope=frame.envelope)
    return hmac.compare_digest(wanted, frame.mac)


def seal_answer(answer: JoinAnswer, keys: InviteKeys, pair: SigningPair, request: bytes) -> bytes:
    """The answer to exactly these request bytes; ValueError when it says it answers others."""
    if answer.request != request_hash(request):
        raise ValueError("the answer names another request")
    envelope = wire.encode(wire.seal(ANSWER_KIND, answer, pair))
    mac = _answer_mac(keys, request=request, envelope=envelope)
    return _ANSWER_MAGIC + mac + envelope


def open_answer(
    raw: bytes, keys: InviteKeys, *, inviter: SigningKey, mesh: MeshId, request: bytes
) -> JoinAnswer:
    """The proven answer, which may be a refusal. PeerError by the reason otherwise: unproven (not a
    frame, or a plain no), answer-mac, answer-signature, answer-form, answer-other."""
    envelope = _split_answer(raw)[1]
    if not answer_mac_holds(raw, keys, request=request):
        raise _bad("answer-mac", "the answer does not belong to this invite and request")
    try:
        answer = wire.open_as(
            JoinAnswer, wire.decode(envelope, max_bytes=MAX_ANSWER_BYTES), ANSWER_KIND, inviter
        )
    except BadSignature as error:
        raise _bad("answer-signature", "the answer is not signed by the inviter") from error
    except BadValue as error:
        raise _bad("answer-form", f"the answer makes no sense: {error.summary()}") from error
    if (answer.mesh, answer.invite, answer.request) != (mesh, keys.invite, request_hash(request)):
        raise _bad("answer-other", "the answer belongs to another request, invite or mesh")
    return answer


def request_hash(request: bytes) -> str:
    """What ties an answer to a request: SHA-256 over its exact bytes, in hex."""
    return hashlib.sha256(request).hexdigest()


def authentication(key: Secret, *fields: bytes) -> bytes:
    """HMAC-SHA256 over the fields, each behind its length in 8 bytes (J2)."""
    message = b"".join(len(item).to_bytes(8, "big") + item for item in fields)
    return hmac.digest(key.reveal(), message, "sha256")


def answer_mac_holds(raw: bytes, keys: InviteKeys, *, request: bytes) -> bool:
    """Whether a frame answers these request bytes under this invite (J2)."""
    found, envelope = _split_answer(raw)
    return hmac.compare_digest(_answer_mac(keys, request=request, envelope=envelope), found)


def _split_answer(raw: bytes) -> tuple[bytes, bytes]:
    at = len(_ANSWER_MAGIC)
    if not raw.startswith(_ANSWER_MAGIC) or not at + 32 < len(raw) <= MAX_ANSWER_BYTES:
        said = parse_plain(raw)
        raise _bad(
            "unproven",
            f"it said only: {said.summary}" if said else "its answer is not a join answer",
        )
    return raw[at : at + 32], raw[at + 32 :]


def _request_mac(keys: InviteKeys, *, nonce: str, envelope: bytes) -> bytes:
    ids = bytes.fromhex(keys.invite), bytes.fromhex(nonce)
    return authentication(keys.request, b"request", *ids, envelope)


def _answer_mac(keys: InviteKeys, *, request: bytes, envelope: bytes) -> bytes:
    frame = split_request(request)
    ids = bytes.fromhex(keys.invite), bytes.fromhex(frame.nonce)
    digest = hashlib.sha256(request).digest()
    return authentication(keys.answer, b"answer", *ids, digest, envelope)


def _bad(reason: str, text: str) -> PeerError:
    return PeerError(
        "the inviter",
        reason,
        text,
        remedy="run the same `keel mesh join` again; if it stays, make a new invite",
    )
