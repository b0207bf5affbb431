"""Which messages were seen already: a bounded, pure ledger and the form of its file.

Rules:
(N1) A nonce is kept, with its sender, until the message's time + 360 s: 60 s longer than the
     message could be fresh. A time that lies ahead counts as at most 300 s ahead.
(N2) What was let go stays refused: `floor` is the latest end that was ever pruned, and a fresh-only
     message that would have ended by then is a replay, also after the clock was set back. Not by a
     floor that only a clock far ahead can have left: nothing that is fresh now ended then.
(N3) A sender has room for so many at a time; one that floods locks out itself alone. What was
     written by a clock far ahead takes no room: it is no message of this time.
(N4) The file: one line a nonce, `<end> <nonce> <sender>`, appended before the message has an
     effect, and a line `floor <end>`. A rewrite (`dump`) leaves out what ended.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from keel.errors import BadValue
from keel.types import Nonce, SigningKey

KEPT = timedelta(seconds=360)
AHEAD = timedelta(seconds=300)
MAX_PER_SENDER = 1024
"""In 660 s; a member that behaves sends a few messages a minute."""
MAX_FILE_BYTES = 32 << 20
REWRITE_AFTER = 4096
"""Lines behind the last rewrite that are worth another."""

_LINE = re.compile(
    r"floor (?P<floor>[0-9]{1,12})"
    r"|(?P<end>[0-9]{1,12}) (?P<nonce>[0-9a-f]{32}) (?P<sender>[0-9a-f]{64})"
)

Seen = Mapping[SigningKey, Mapping[Nonce, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NonceLedger:
    """Ends (seconds since 1970) by sender and nonce; `floor` as in N2; `lines` in the file."""

    seen: Seen = field(default_factory=dict)
    floor: int = 0
    lines: int = 0
    outdated: bool = False
    """The file has a floor that is not this one."""

    def knows(
        self,
        sender: SigningKey,
        nonce: Nonce,
        time: datetime,
        now: datetime,
        *,
        fresh_only: bool,
    ) -> bool:
        """Whether this is a replay (N1), or may be one that was let go (N2)."""
        if nonce in self.seen.get(sender, {}):
            return True
        return fresh_only and _seconds(time + KEPT) <= self._believed(now).floor

    def full(self, sender: SigningKey, now: datetime) -> bool:
        """Whether this sender has no room left (N3)."""
        latest = _seconds(now + AHEAD + KEPT)
        ends = self.pruned(now).seen.get(sender, {}).values()
        return sum(end <= latest for end in ends) >= MAX_PER_SENDER

    def add(
        self, sender: SigningKey, nonce: Nonce, time: datetime, now: datetime
    ) -> tuple[NonceLedger, bytes | None]:
        """The ledger with one more, and the line to append to the file (N4); no line and only
        pruned when the nonce's time is over already."""
        end = _seconds(min(time, now + AHEAD) + KEPT)
        ledger = self.pruned(now)
        if end < _seconds(now):
            return ledger, None
        mine = {**ledger.seen.get(sender, {}), nonce: end}
        seen = {**ledger.seen, sender: mine}
        grown = dataclasses.replace(ledger, seen=seen, lines=ledger.lines + 1)
        return grown, _line(end, nonce, sender)

    def pruned(self, now: datetime) -> NonceLedger:
        """Without what ended before `now`; the latest of that becomes the floor (N2)."""
        until = _seconds(now)
        ledger = self._believed(now)
        ended = [end for ends in self.seen.values() for end in ends.values() if end < until]
        if not ended:
            return ledger
        kept = {
            sender: {nonce: end for nonce, end in ends.items() if end >= until}
            for sender, ends in self.seen.items()
        }
        seen = {sender: ends for sender, ends in kept.items() if ends}
        return dataclasses.replace(ledger, seen=seen, floor=max(ledger.floor, *ended))

    def _believed(self, now: datetime) -> NonceLedger:
        """Without a floor that a clock far ahead left (N2)."""
        if self.floor <= _seconds(now + AHEAD + KEPT):
            return self
        return dataclasses.replace(self, floor=0, outdated=True)

    def rewrite_due(self) -> bool:
        """Whether the file has grown to many more lines than there are nonces to keep, or has a
        floor that counts no more."""
        return self.outdated or self.lines >= REWRITE_AFTER + 2 * sum(map(len, self.seen.values()))

    def dump(self) -> tuple[NonceLedger, bytes]:
        """The whole file for an atomic rewrite, and the ledger that knows its length (N4)."""
        lines = [f"floor {self.floor}\n".encode()]
        for sender, ends in sorted(self.seen.items()):
            lines += [_line(end, nonce, sender) + b"\n" for nonce, end in sorted(ends.items())]
        return dataclasses.replace(self, lines=len(lines), outdated=False), b"".join(lines)


def parse_nonces(raw: bytes) -> NonceLedger:
    """The ledger in a file (N4); BadValue names the line that is none. Nothing is pruned."""
    seen: dict[SigningKey, dict[Nonce, int]] = {}
    floor = 0
    lines = raw.decode("ascii", errors="replace").splitlines()
    for number, line in enumerate(lines, start=1):
        match = _LINE.fullmatch(line)
        if not match:
            raise BadValue(f"line {number}", "not a nonce")
        if match["floor"]:
            floor = max(floor, int(match["floor"]))
        else:
            seen.setdefault(SigningKey(match["sender"]), {})[Nonce(match["nonce"])] = int(
                match["end"]
            )
    return NonceLedger(seen=seen, floor=floor, lines=len(lines))


def _seconds(time: datetime) -> int:
    return math.ceil(time.timestamp())


def _line(end: int, nonce: Nonce, sender: SigningKey) -> bytes:
    return f"{end} {nonce} {sender}".encode()
