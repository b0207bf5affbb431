"""The channel's paths, the bodies of hello and roster, and what two rosters tell each other.

Pure. An exchange of rosters costs one round trip when they are equal, two when they differ: the
first answer lists what the other holds, the second message carries what it lacks and asks for the
rest. Bytes follow what changed; a message stays below the channel's bound.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from keel.mesh.roster import Roster, digest, missing, offered
from keel.types import RecordHash, parse_hex

HELLO = "hello"
ROSTER = "roster"
HELLO_PATH = "/v1/hello"
ROSTER_PATH = "/v1/roster"
JOIN_PATH = "/v1/join"
ETCD_PATH = "/v1/etcd"

BATCH_BYTES = 120 << 10
"""Records in one message; base64 twice and the envelope around them stay below 256 KiB."""

MAX_HASHES = 4096
"""As many as a roster holds records (keel.mesh.roster.BOUNDS)."""

MAX_WANTED = 384
"""Hashes asked for in one message, beside a batch; an answer carries about 130 records."""


MAX_SILENT_SECONDS = 2**31
"""Of a tend: 68 years, which every clock can reckon with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """I am here. `record` is the sender's newest self record: it confirms a join, and is the
    signed ping of status."""

    digest: str
    record: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HelloAnswer:
    """`etcd` is what the answerer says of its own etcd in a word (keel.mesh.etcdlook.Role)."""

    digest: str
    etcd: str = "none"
    tend_silent_seconds: int | None = None
    """For how long nothing tended its registry; None while all is well."""

    def __post_init__(self) -> None:
        if not 0 <= (self.tend_silent_seconds or 0) <= MAX_SILENT_SECONDS:
            raise ValueError("a tend is silent for a time")


@dataclass(frozen=True, slots=True, kw_only=True)
class RosterAsk:
    """My roster's digest; records that you lack; hashes of those that I want."""

    digest: str
    records: tuple[bytes, ...] = ()
    want: tuple[RecordHash, ...] = ()

    def __post_init__(self) -> None:
        _check_hashes(self.want)


@dataclass(frozen=True, slots=True, kw_only=True)
class RosterAnswer:
    """The answerer's digest after it took the records; the records that were wanted; and, while
    the digests differ, the hashes of all that it holds."""

    digest: str
    records: tuple[bytes, ...] = ()
    have: tuple[RecordHash, ...] = ()

    def __post_init__(self) -> None:
        _check_hashes(self.have)


def opening(mine: Roster) -> RosterAsk:
    """The first message of an exchange."""
    return RosterAsk(digest=digest(mine))


def reply_to(mine: Roster, ask: RosterAsk) -> RosterAnswer:
    """What `mine`, which has taken the ask's records already, answers."""
    equal = digest(mine) == ask.digest
    wanted = [mine.entries[record].raw for record in ask.want if record in mine.entries]
    return RosterAnswer(
        digest=digest(mine),
        records=batch(wanted),
        have=() if equal else offered(mine),
    )


def next_ask(mine: Roster, answer: RosterAnswer) -> RosterAsk | None:
    """The next message after an answer whose records `mine` has taken; None when all is told."""
    if digest(mine) == answer.digest or not answer.have:
        return None
    give = batch(missing(mine, answer.have))
    want = [record for record in answer.have if record not in mine.entries]
    room = MAX_WANTED if sum(map(len, give)) <= BATCH_BYTES else 0  # one large record fills it
    return RosterAsk(digest=digest(mine), records=give, want=tuple(want[:room]))


def batch(raws: Iterable[bytes], room: int = BATCH_BYTES) -> tuple[bytes, ...]:
    """As many of these, in their order, as one message carries; at least one."""
    taken: list[bytes] = []
    for raw in raws:
        room -= len(raw)
        if room < 0 and taken:
            break
        taken.append(raw)
    return tuple(taken)


def _check_hashes(hashes: tuple[RecordHash, ...]) -> None:
    if len(hashes) > MAX_HASHES:
        raise ValueError(f"more than {MAX_HASHES} hashes")
    for item in hashes:
        parse_hex(item, size=32)
