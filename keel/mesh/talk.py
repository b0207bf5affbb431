"""Says something to members and believes their answers: the channel, out, with its envelopes.

Owns how a body becomes a signed message to one receiver and how an answer is opened. Every failure
is a PeerError with the member's name in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TypeVar

from keel import codec
from keel.errors import BadValue, KeelError, PeerError, Refused
from keel.mesh import clocks, envelope
from keel.mesh.clocks import Heard
from keel.mesh.envelope import Answered, Message
from keel.mesh.members import Member
from keel.mesh.store import Node
from keel.ports import Host
from keel.types import Nonce

T = TypeVar("T")

TIMEOUT_SECONDS = 30.0
"""In all, connecting included: a fresh exchange costs two round trips, a lost packet seconds."""

MAX_CLOCKS_BYTES = 1 << 20

PING_SECONDS = 10.0
"""What status and a window wait for a signed answer."""


def ask(
    host: Host,
    node: Node,
    member: Member,
    kind: str,
    body: object,
    answer: type[T],
    *,
    path: str,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Answered[T]:
    """One signed exchange with one member; PeerError by the reason."""
    request = _sealed(host, node, member, kind, body)
    raw = host.channel.post(member.address, path, request, timeout_seconds=timeout_seconds)
    return envelope.open_reply(raw, answer, request=request, member=member.display)


def ask_all(
    host: Host,
    node: Node,
    questions: Mapping[Member, object],
    kind: str,
    answer: type[T],
    *,
    path: str,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Mapping[Member, Answered[T] | KeelError]:
    """A question to each, in parallel; every failure stands beside its member."""
    requests = {
        member.address: _sealed(host, node, member, kind, body)
        for member, body in questions.items()
    }
    replies = host.channel.post_all(requests, path, timeout_seconds=timeout_seconds)
    return {
        member: _opened(replies[member.address], answer, requests[member.address], member)
        for member in questions
    }


def others(node: Node) -> tuple[Member, ...]:
    """Every live member but this node and those that it blocks by itself."""
    return tuple(
        member
        for member in node.view.members
        if member.key != node.key and member.key not in node.blocked
    )


def keep_clocks(host: Host, said: Iterable[datetime], *, asked: datetime) -> None:
    """Keep what the members' clocks said in answers to questions asked at `asked`; when nobody
    answered, what was heard before stays."""
    now = host.clock.now()
    ahead = tuple(clocks.ahead_by(one, asked, now).total_seconds() for one in said)
    if not ahead:
        return
    heard = Heard(ahead=ahead, now=now, monotonic=host.clock.monotonic())
    host.files.make_dir(host.paths.run)
    host.files.write(host.paths.clocks, codec.dumps(heard))


def clock_is_off(host: Host) -> bool:
    """Whether this node's clock differs from most members' that answered in the last sync."""
    raw = host.files.read(host.paths.clocks)
    try:
        heard = None if raw is None else codec.loads(Heard, raw, max_bytes=MAX_CLOCKS_BYTES)
    except BadValue:
        heard = None  # a hint of this boot, made anew within a minute
    return clocks.is_off(heard, now=host.clock.now(), monotonic=host.clock.monotonic())


def refuse_wrong_clock(host: Host) -> None:
    """Refused while this node may sign nothing that lives by the clock (design section 3)."""
    if clock_is_off(host):
        raise Refused(
            "clock-off",
            "this node's clock differs from most members' by five minutes or more",
            "set it right (`timedatectl set-ntp true`), then run this again",
        )


def _opened(
    raw: bytes | Exception, answer: type[T], request: bytes, member: Member
) -> Answered[T] | KeelError:
    if isinstance(raw, KeelError):
        return raw
    if isinstance(raw, Exception):
        return PeerError(member.display, "unreachable", f"no answer: {raw}")
    try:
        return envelope.open_reply(raw, answer, request=request, member=member.display)
    except KeelError as error:
        return error


def _sealed(host: Host, node: Node, member: Member, kind: str, body: object) -> bytes:
    return envelope.seal_message(
        Message(
            mesh=node.mesh,
            sender=node.key,
            receiver=member.key,
            kind=kind,
            time=host.clock.now(),
            nonce=Nonce(host.chance.bytes(16).hex()),
            body=codec.to_json(body),
        ),
        node.identity.signing,
    )
