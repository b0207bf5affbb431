"""What a node says to many members at once: a signed ping, and records that they may lack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from keel.errors import KeelError, PeerError
from keel.mesh import exchange, roster, selfrecord, talk
from keel.mesh.envelope import Answered
from keel.mesh.exchange import Hello, HelloAnswer, RosterAnswer, RosterAsk
from keel.mesh.members import Member
from keel.mesh.store import Node
from keel.ports import Host, Meanwhile

TELL_SECONDS = 15.0
"""What is told reaches whoever answers within it; sync tells the rest."""

SMALL_SECONDS = 5.0
"""A packet or two each way."""


def ping(
    host: Host,
    node: Node,
    members: Iterable[Member],
    *,
    full: bool = False,
    with_self: bool = False,
    timeout_seconds: float = talk.PING_SECONDS,
    meanwhile: Meanwhile | None = None,
) -> Mapping[Member, Answered[HelloAnswer] | KeelError]:
    """Ask each for a signed answer, in parallel. `full`: in full packets, without which nothing
    but the small ping works; `with_self`: the same, and tells it this node's newest self record,
    which may have another endpoint. `meanwhile` is run while the answers are on their way."""
    return talk.ask_all(
        host,
        node,
        {member: _hello(node, member, full=full, with_self=with_self) for member in members},
        exchange.HELLO,
        HelloAnswer,
        path=exchange.HELLO_PATH,
        timeout_seconds=timeout_seconds,
        meanwhile=meanwhile,
    )


def _hello(node: Node, member: Member, *, full: bool, with_self: bool) -> Hello:
    """A self record fills more than a packet of any MTU that keel sets; its own is not news to the
    one that is asked, so that nothing changes there."""
    own = selfrecord.newest(node) if with_self else None
    filling = selfrecord.newest_of(node, member.key) if full else None
    return Hello(digest=roster.digest(node.roster), record=own or filling)


def small_only(
    host: Host, node: Node, silent: Iterable[Member]
) -> Mapping[Member, Answered[HelloAnswer]]:
    """Of those that kept silent to what takes full packets, who answers a small message."""
    asked = tuple(silent)
    heard = ping(host, node, asked, timeout_seconds=SMALL_SECONDS) if asked else {}
    return {member: answer for member, answer in heard.items() if isinstance(answer, Answered)}


def answered(answers: Mapping[Member, object]) -> tuple[Member, ...]:
    """Those that live: they answered, or refused in a signed word."""
    return tuple(member for member, answer in answers.items() if said_at(answer) is not None)


def said_at(answer: object) -> datetime | None:
    """The member's clock in its signed word. A signed refusal is one, too: a clock that is minutes
    off is met with nothing else."""
    match answer:
        case Answered():
            return answer.time
        case PeerError():
            return answer.said_at
        case _:
            return None


def tell(
    host: Host,
    node: Node,
    members: Iterable[Member],
    records: tuple[bytes, ...],
    *,
    timeout_seconds: float = TELL_SECONDS,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Give each these records, in parallel: whom it reached, and whom sync has to tell."""
    asked = tuple(members)
    if asked:
        host.console.waiting(f"telling {', '.join(sorted(member.display for member in asked))}")
    ask = RosterAsk(digest=roster.digest(node.roster), records=records)
    answers = talk.ask_all(
        host,
        node,
        dict.fromkeys(asked, ask),
        exchange.ROSTER,
        RosterAnswer,
        path=exchange.ROSTER_PATH,
        timeout_seconds=timeout_seconds,
    )
    told = sorted(m.display for m, answer in answers.items() if not isinstance(answer, KeelError))
    return tuple(told), tuple(sorted(m.display for m in asked if m.display not in told))
