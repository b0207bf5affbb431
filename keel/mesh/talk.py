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
from keel.mesh import clocks, envelope, store
from keel.mesh.clocks import Heard, Highest, Judged
from keel.mesh.envelope import Answered, Message
from keel.mesh.members import Member
from keel.mesh.store import Node
from keel.ports import Host, Meanwhile
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
    try:
        raw = host.channel.post(member.address, path, request, timeout_seconds=timeout_seconds)
    except PeerError as error:
        raise _named(error, member) from error
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
    meanwhile: Meanwhile | None = None,
) -> Mapping[Member, Answered[T] | KeelError]:
    """A question to each, in parallel; every failure stands beside its member. `meanwhile` is run
    while the answers are on their way."""
    requests = {
        member.address: _sealed(host, node, member, kind, body)
        for member, body in questions.items()
    }
    replies = host.channel.post_all(
        requests, path, timeout_seconds=timeout_seconds, meanwhile=meanwhile
    )
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
    store.keep_hint(host, host.paths.clocks, codec.dumps(heard))


def keep_first_clock(host: Host, said: datetime, *, asked: datetime) -> None:
    """The same of one member's answer before the first sync; what a sync heard of many stays."""
    if not judge_clock(host).heard:
        keep_clocks(host, (said,), asked=asked)


def keep_time(host: Host) -> None:
    """Keep the time as the highest seen, when somebody vouches for it; NTP is asked only when
    nobody was heard in this boot."""
    highest, _ = load_highest_time(host)
    now, judged = host.clock.now(), judge_clock(host)
    if highest is not None and now - highest.time < clocks.LIMIT:
        return
    ntp = judged.heard == 0 and host.machine.clock_synchronized()
    if clocks.vouched(judged, ntp=ntp):
        save_highest_time(host, now)


def save_highest_time(host: Host, now: datetime) -> None:
    """From now on this node, while it hears nobody, believes no time before this one."""
    with store.locked(host, "the mesh"):
        host.files.write(host.paths.clock, codec.dumps(Highest(time=now)))


def load_highest_time(host: Host) -> tuple[Highest | None, bool]:
    """The highest time seen, and whether its file is damaged."""
    raw = host.files.read(host.paths.clock)
    try:
        if raw is None:
            return None, False
        return codec.again(Highest, raw, max_bytes=MAX_CLOCKS_BYTES), False
    except BadValue:
        return None, True


def judge_clock(host: Host) -> Judged:
    """What speaks for and against this node's clock."""
    raw = host.files.read(host.paths.clocks)
    try:
        heard = None if raw is None else _heard(raw)
    except BadValue:
        heard = None  # a hint of this boot, made anew within a minute
    highest, damaged = load_highest_time(host)
    now, monotonic = host.clock.now(), host.clock.monotonic()
    return clocks.judge(heard, highest, now=now, monotonic=monotonic, damaged=damaged)


def _heard(raw: bytes) -> Heard:
    return codec.again(Heard, raw, max_bytes=MAX_CLOCKS_BYTES, strict=True)


def clock_is_off(host: Host) -> bool:
    """Whether this node's clock cannot be right: it differs from most members' that answered in
    the last sync, or is before a time that this node has seen."""
    return judge_clock(host).off


def clock_is_unheard(host: Host, node: Node) -> bool:
    """Whether nobody vouches for the clock that this node booted with: NTP does not keep it, no
    other member was heard, and since the boot none of these nor the operator agreed with it. Never
    of one that is alone: there is nobody to hear."""
    if not others(node) or judge_clock(host).heard:
        return False
    highest, _ = load_highest_time(host)
    age = None if highest is None else (host.clock.now() - highest.time).total_seconds()
    if age is not None and 0 <= age <= host.clock.monotonic():  # kept since the boot
        return False
    return not host.machine.clock_synchronized()


def refuse_wrong_clock(host: Host) -> None:
    """Refused while this node may sign nothing that lives by the clock (design section 3)."""
    if clock_is_off(host):
        raise Refused(
            "clock-off",
            "this node's clock cannot be right: most members' clocks, or a time that it has seen,"
            " contradict it",
            "set it right (`timedatectl set-ntp true`), then run this again; `keel mesh doctor`"
            " says what contradicts it",
        )


def _opened(
    raw: bytes | Exception, answer: type[T], request: bytes, member: Member
) -> Answered[T] | KeelError:
    if isinstance(raw, PeerError):
        return _named(raw, member)
    if isinstance(raw, KeelError):
        return raw
    if isinstance(raw, Exception):
        return PeerError(member.display, "unreachable", f"no answer: {raw}")
    try:
        return envelope.open_reply(raw, answer, request=request, member=member.display)
    except KeelError as error:
        return error


def _named(error: PeerError, member: Member) -> PeerError:
    """The channel knows addresses alone; people know names."""
    return PeerError(member.display, error.reason, error.text, said_at=error.said_at)


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
