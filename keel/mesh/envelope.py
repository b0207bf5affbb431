"""The members' channel: one signed message, one signed answer bound to it, and what was seen.

Owns the formats and the numbered checks of the receiver and of the asker. Who is a member comes in
as a mapping; what a kind does is the caller's. Checks of a message, in order:
 1 size        256 KiB
 2 source      the address of a live member, or of an unexpired claim (which may only say hello)
 3 form        an envelope with one signature around a message
 4 mesh
 5 sender      is the key that the source address belongs to
 6 receiver    is this node
 7 signature   the sender's; up to here the answer is plain, from here on refusals are signed
 8 freshness   300 s either way; both clocks are named. Not for kinds that prove themselves
 9 nonce       not seen before
10 kind        one that this path serves
11 body        strictly of the kind's form
Nothing of a message is acted upon before 11; 4 to 6 only read it, to refuse by the right reason.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ipaddress import IPv6Address
from typing import Any, Generic, TypeVar

from keel import codec
from keel.errors import BadSignature, BadValue, PeerError
from keel.mesh import wire
from keel.mesh.keys import SigningPair
from keel.mesh.nonces import NonceLedger
from keel.mesh.refusal import Refusal, Rejection, both_clocks, parse_plain, plain
from keel.types import MeshId, Nonce, SigningKey, parse_hex

T = TypeVar("T")

MAX_MESSAGE_BYTES = 256 << 10
MAX_REPLY_BYTES = 1 << 20
FRESH = timedelta(seconds=300)
HELLO = "hello"
MESSAGE_KIND = "message"
REPLY_KIND = "reply"

_KIND = re.compile(r"[a-z][a-z-]{0,31}")

CHECKS = (
    "channel-size",
    "channel-source",
    "channel-form",
    "channel-mesh",
    "channel-sender",
    "channel-receiver",
    "channel-signature",
    "channel-stale",
    "channel-replay",
    "channel-kind",
    "channel-body",
)
"""Every reason, in the order in which the checks run; `channel-flood` stands beside the ninth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What one member asks of another. `body` is the JSON form of the kind's dataclass."""

    mesh: MeshId
    sender: SigningKey
    receiver: SigningKey
    kind: str
    time: datetime
    nonce: Nonce
    body: Mapping[str, object]

    def __post_init__(self) -> None:
        parse_hex(self.nonce, size=16)
        if not _KIND.fullmatch(self.kind):
            raise ValueError("a kind is a short word")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Exactly one of `body` and `refusal`; `request` is SHA-256 of the message's exact bytes."""

    mesh: MeshId
    sender: SigningKey
    receiver: SigningKey
    kind: str
    time: datetime
    request: str
    body: Mapping[str, object] | None = None
    refusal: Refusal | None = None

    def __post_init__(self) -> None:
        if (self.body is None) == (self.refusal is None):
            raise ValueError("a reply either answers or refuses")


@dataclass(frozen=True, slots=True, kw_only=True)
class Serves:
    """A kind that a path serves: its body's dataclass, and whether it has to be fresh."""

    body: type
    fresh: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelView:
    """What the receiver knows: itself, the live members, and the unexpired claims."""

    mesh: MeshId
    me: SigningKey
    members: Mapping[IPv6Address, SigningKey]
    claims: Mapping[IPv6Address, SigningKey] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A message that passed every check. `ledger` knows its nonce: keep it, and append `line` to
    the nonces' file (when there is one) before the message has an effect."""

    message: Message
    body: Any
    claim: bool
    request: str
    ledger: NonceLedger
    line: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Turned:
    """A message that failed a check. `asker` is there when the rejection is proven and has to be
    sealed for that key."""

    rejection: Rejection
    request: str
    kind: str = ""
    asker: SigningKey | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered(Generic[T]):
    """A proven answer: its body, and what the answering member's clock said."""

    body: T
    time: datetime


def seal_message(message: Message, pair: SigningPair) -> bytes:
    """The message's exact bytes, signed by its sender."""
    return wire.encode(wire.seal(MESSAGE_KIND, message, pair))


def check_message(
    raw: bytes,
    *,
    source: IPv6Address,
    view: ChannelView,
    serves: Mapping[str, Serves],
    ledger: NonceLedger,
    now: datetime,
) -> Accepted | Turned:
    """The eleven checks over one message; `serves` holds the kinds of the path it came by."""
    opened = _authenticate(raw, source, view, serves)
    if isinstance(opened, Rejection):
        return Turned(rejection=opened, request=message_hash(raw))
    rejected, body = _examine(opened, view, serves, ledger, source=source, now=now)
    if rejected:
        return Turned(
            rejection=rejected, request=message_hash(raw), kind=opened.kind, asker=opened.sender
        )
    grown, line = ledger.add(opened.sender, opened.nonce, opened.time, now)
    return Accepted(
        message=opened,
        body=body,
        claim=source not in view.members,
        request=message_hash(raw),
        ledger=grown,
        line=line,
    )


def _authenticate(
    raw: bytes, source: IPv6Address, view: ChannelView, serves: Mapping[str, Serves]
) -> Message | Rejection:
    """Checks 1 to 7."""
    if len(raw) > MAX_MESSAGE_BYTES:
        return _plain("channel-size", "the message is too large", status=413)
    key = view.members.get(source)
    if key is None and HELLO in serves:
        key = view.claims.get(source)
    if key is None:
        return _plain("channel-source", "no live member has the source address")
    try:
        envelope = wire.decode(raw, max_bytes=MAX_MESSAGE_BYTES)
        if len(envelope.signatures) != 1:
            raise BadValue("signatures", "expected one signature")
        message = codec.loads(Message, envelope.payload, max_bytes=MAX_MESSAGE_BYTES)
    except BadValue as error:
        return _plain("channel-form", f"not a message: {error.problem}", status=400)
    if message.mesh != view.mesh:
        return _plain("channel-mesh", "the message is for another mesh")
    if message.sender != key:
        return _plain("channel-sender", "the source address is not the sender's")
    if message.receiver != view.me:
        return _plain("channel-receiver", "the message is for another receiver")
    try:
        wire.verified(envelope, MESSAGE_KIND, key)
    except BadSignature:
        return _plain("channel-signature", "the message is not signed by its sender")
    return message


def _examine(
    message: Message,
    view: ChannelView,
    serves: Mapping[str, Serves],
    ledger: NonceLedger,
    *,
    source: IPv6Address,
    now: datetime,
) -> tuple[Rejection | None, object]:
    """Checks 8 to 11, and the body."""
    served = serves.get(message.kind)
    fresh_only = served is None or served.fresh
    if fresh_only and abs(message.time - now) > FRESH:
        return _stale(message, now), None
    if ledger.knows(message.sender, message.nonce, message.time, now, fresh_only=fresh_only):
        return _proven("channel-replay", "the message was seen before"), None
    if ledger.full(message.sender, now):
        return _proven("channel-flood", "too many messages from this member", status=429), None
    if served is None or (source not in view.members and message.kind != HELLO):
        return _proven("channel-kind", f"this path does not serve {message.kind}", status=404), None
    try:
        return None, codec.from_json(served.body, message.body, path="body")
    except BadValue as error:
        text = f"the body makes no sense at {error.path}"
        return _proven("channel-body", text, status=400), None


def seal_reply(reply: Reply, pair: SigningPair) -> bytes:
    """The answer's exact bytes, signed by the receiver of the message."""
    return wire.encode(wire.seal(REPLY_KIND, reply, pair))


def message_hash(raw: bytes) -> str:
    """What ties an answer to a message: SHA-256 over its exact bytes, in hex."""
    return hashlib.sha256(raw).hexdigest()


def refuse(turned: Turned, view: ChannelView, pair: SigningPair, now: datetime) -> bytes:
    """The bytes of a no: signed once the asker is proven, plain before."""
    if turned.asker is None:
        return plain(turned.rejection.rule, turned.rejection.text)
    return seal_reply(
        Reply(
            mesh=view.mesh,
            sender=view.me,
            receiver=turned.asker,
            kind=turned.kind,
            time=now,
            request=turned.request,
            refusal=turned.rejection.refusal(),
        ),
        pair,
    )


def answer(accepted: Accepted, body: object, *, pair: SigningPair, now: datetime) -> bytes:
    """The signed bytes of an answer: a body dataclass, or a Refusal that the flow came to."""
    message = accepted.message
    return seal_reply(
        Reply(
            mesh=message.mesh,
            sender=message.receiver,
            receiver=message.sender,
            kind=message.kind,
            time=now,
            request=accepted.request,
            body=None if isinstance(body, Refusal) else codec.to_json(body),
            refusal=body if isinstance(body, Refusal) else None,
        ),
        pair,
    )


def open_reply(raw: bytes, cls: type[T], *, request: bytes, member: str) -> Answered[T]:
    """The asker's checks of an answer, against the exact message that it sent. PeerError by the
    reason otherwise: the rule of a refusal (which proves nothing when it came in plain), or
    reply-form, reply-signature, reply-other, reply-body."""
    asked = codec.loads(
        Message,
        wire.decode(request, max_bytes=MAX_MESSAGE_BYTES).payload,
        max_bytes=MAX_MESSAGE_BYTES,
    )
    said = parse_plain(raw)
    if said:
        raise PeerError(member, said.code, f"{said.summary} (unsigned)")
    try:
        envelope = wire.decode(raw, max_bytes=MAX_REPLY_BYTES)
        reply = wire.open_as(Reply, envelope, REPLY_KIND, asked.receiver)
    except BadSignature as error:
        raise PeerError(member, "reply-signature", "its answer is not signed by it") from error
    except BadValue as error:
        raise PeerError(
            member, "reply-form", f"its answer is malformed: {error.problem}"
        ) from error
    expected = (asked.mesh, asked.receiver, asked.sender, asked.kind, message_hash(request))
    if (reply.mesh, reply.sender, reply.receiver, reply.kind, reply.request) != expected:
        raise PeerError(member, "reply-other", "its answer belongs to another message")
    if reply.refusal:
        refused = reply.refusal
        raise PeerError(
            member, refused.rule, refused.text, remedy=refused.remedy, said_at=reply.time
        )
    try:
        return Answered(body=codec.from_json(cls, reply.body, path="body"), time=reply.time)
    except BadValue as error:
        raise PeerError(
            member, "reply-body", f"its answer makes no sense at {error.path}"
        ) from error


def _stale(message: Message, now: datetime) -> Rejection:
    clocks = both_clocks(ours=now, theirs=message.time)
    return Rejection(
        rule="channel-stale",
        text=f"the message is of {clocks['your_clock']} and this node's clock says"
        f" {clocks['our_clock']}",
        remedy="set the wrong clock right (`timedatectl set-ntp true`), then run this again",
        proven=True,
        details=clocks,
    )


def _plain(rule: str, text: str, *, status: int = 403) -> Rejection:
    return Rejection(rule=rule, text=text, remedy=_REMEDY, proven=False, status=status)


def _proven(rule: str, text: str, *, status: int = 403) -> Rejection:
    return Rejection(rule=rule, text=text, remedy=_REMEDY, proven=True, status=status)


_REMEDY = "run `keel mesh status` on both nodes; both should run the same version of keel"
