"""How much the channel takes: numbers, and a token bucket without a clock of its own.

(L1) What a sender can make last (a kind of `at_once`) holds so few of the server's threads, all
     such kinds together, that some are left for everything else, whoever colludes. What one member
     has under way leaves a place for another.
(L2) A source has two connections, and with them two threads at most.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

MAX_KEYS = 1024
"""Sources are WireGuard peers, so there are not many; this is a bound all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """So many requests a second on average, and so many at once."""

    per_second: float
    burst: int


SOURCE_RATE = Rate(per_second=10.0, burst=40)
"""A member sends a few messages a minute, a birth some dozens at once."""
TOTAL_RATE = Rate(per_second=50.0, burst=200)
"""What two small cores verify without being busy with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The server's bounds (design section 4). A rate of None is no rate (fuzz tests)."""

    max_body_bytes: int = 256 << 10
    connections: int = 64
    per_source: int = 2
    waiting: int = 16
    waiting_seconds: float = 1.0
    request_seconds: float = 10.0
    answer_seconds: float = 30.0
    idle_seconds: float = 30.0
    look_seconds: float = 1.0
    threads: int = 12
    source_rate: Rate | None = SOURCE_RATE
    total_rate: Rate | None = TOTAL_RATE


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Of one kind of message: how many are answered at once, whoever asks, and of them how many for
    one member (None: as many as there are threads); and how often one member may ask."""

    at_once: int | None = None
    of_member: int | None = None
    rate: Rate


QUICK = Bound(rate=Rate(per_second=2.0, burst=60))
"""Answered from this node's disk; a birth or a sync of many asks often, but not for long."""
KICKS = Bound(rate=Rate(per_second=0.25, burst=20))
"""Has a pass run: hardly oftener than the fast timer would."""
LASTS = Bound(at_once=2, of_member=1, rate=Rate(per_second=0.2, burst=10))
"""Asks others, stops a unit or measures before it answers. Two at once: who form at the same time
both have to hear that they do."""
ADMITS = Bound(at_once=2, of_member=1, rate=Rate(per_second=0.5, burst=20))
"""The registry's part of a join, which may ask the whole cluster."""


class Buckets:
    """A token bucket per key, full at first; forgets the keys whose bucket is full again."""

    def __init__(self, rate: Rate | None) -> None:
        self._rate = rate
        self._levels: dict[Hashable, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._levels)

    def take(self, key: Hashable, now: float) -> bool:
        """Whether one more may pass at `now`, a monotonic time in seconds."""
        if self._rate is None:
            return True
        level = self._level(key, now, self._rate)
        if len(self._levels) >= MAX_KEYS:
            self._forget_full(now, self._rate)
        passes = level >= 1.0
        self._levels[key] = (level - 1.0 if passes else level, now)
        return passes

    def _level(self, key: Hashable, now: float, rate: Rate) -> float:
        level, since = self._levels.get(key, (float(rate.burst), now))
        return min(float(rate.burst), level + (now - since) * rate.per_second)

    def _forget_full(self, now: float, rate: Rate) -> None:
        self._levels = {
            key: entry
            for key, entry in self._levels.items()
            if self._level(key, now, rate) < rate.burst
        }
