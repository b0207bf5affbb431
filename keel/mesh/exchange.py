"""The channel's paths, the bodies of hello and roster, and what two rosters tell each other.

Pure. An exchange of rosters costs one round trip when they are equal, two when they differ: the
first answer lists what the other holds, the second message carries what it lacks and asks for the
rest. Of a large roster the first answer has sums alone, and a third round trip begins with the list
of those buckets that differ. So bytes follow what changed and not what there is; a message stays
below the channel's bound.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
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


LISTED = 64
"""A roster of so many records is listed whole: its sums would not be shorter by much."""

BUCKETS = 64
"""Parts of a roster by the first six bits of a record's hash; a sum each."""

MAX_SILENT_SECONDS = 2**31
"""Of a tend: 68 years, which every clock can reckon with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """I am here. `record` is the sender's newest self record, which confirms a join, or the
    receiver's own, which fills the packets of a ping."""

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
    """My roster's digest; records that you lack; hashes of those that I want; the buckets that you
    are to list, None for what you think best."""

    digest: str
    records: tuple[bytes, ...] = ()
    want: tuple[RecordHash, ...] = ()
    buckets: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        _check_hashes(self.want)
        _check_buckets(self.buckets)


@dataclass(frozen=True, slots=True, kw_only=True)
class RosterAnswer:
    """The answerer's digest after it took the records; the records that were wanted; and, while
    the digests differ, either a sum of each bucket, or the hashes of all that it holds (in these
    buckets)."""

    digest: str
    records: tuple[bytes, ...] = ()
    have: tuple[RecordHash, ...] = ()
    buckets: tuple[int, ...] | None = None
    sums: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        _check_hashes(self.have)
        _check_buckets(self.buckets)
        if self.sums is not None and len(self.sums) != BUCKETS:
            raise ValueError("a sum for each bucket")
        for one in self.sums or ():
            parse_hex(one, size=16)


def opening(mine: Roster) -> RosterAsk:
    """The first message of an exchange."""
    return RosterAsk(digest=digest(mine))


def reply_to(mine: Roster, ask: RosterAsk) -> RosterAnswer:
    """What `mine`, which has taken the ask's records already, answers."""
    own = digest(mine)
    records = batch([mine.entries[one].raw for one in ask.want if one in mine.entries])
    if own == ask.digest:
        return RosterAnswer(digest=own, records=records)
    if ask.buckets is None and len(mine.entries) > LISTED:
        return RosterAnswer(digest=own, records=records, sums=sums(mine))
    have = tuple(one for one in offered(mine) if _is_in(one, ask.buckets))
    return RosterAnswer(digest=own, records=records, have=have, buckets=ask.buckets)


def next_ask(mine: Roster, answer: RosterAnswer) -> RosterAsk | None:
    """The next message after an answer whose records `mine` has taken; None when all is told."""
    own = digest(mine)
    if own == answer.digest:
        return None
    if answer.sums is not None:
        pairs = enumerate(zip(sums(mine), answer.sums, strict=True))
        differing = tuple(number for number, (ours, theirs) in pairs if ours != theirs)
        return RosterAsk(digest=own, buckets=differing)
    elsewhere = {one for one in mine.entries if not _is_in(one, answer.buckets)}
    give = batch(missing(mine, elsewhere.union(answer.have)))
    want = [record for record in answer.have if record not in mine.entries]
    if not give and not want:
        return None
    room = MAX_WANTED if sum(map(len, give)) <= BATCH_BYTES else 0  # one large record fills it
    return RosterAsk(digest=own, records=give, want=tuple(want[:room]), buckets=answer.buckets)


def sums(mine: Roster) -> tuple[str, ...]:
    """32 hex digits for each bucket, equal when two rosters hold the same records in it."""
    hashed = [hashlib.sha256() for _ in range(BUCKETS)]
    for record in sorted(mine.entries):
        hashed[_bucket(record)].update(bytes.fromhex(record))
    return tuple(one.hexdigest()[:32] for one in hashed)


def _bucket(record: RecordHash) -> int:
    return int(record[:2], 16) * BUCKETS >> 8


def _is_in(record: RecordHash, buckets: Collection[int] | None) -> bool:
    return buckets is None or _bucket(record) in buckets


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


def _check_buckets(buckets: tuple[int, ...] | None) -> None:
    if buckets is not None and sorted(set(buckets) & set(range(BUCKETS))) != list(buckets):
        raise ValueError("numbers of buckets, each once, in order")
