"""How much the channel's server takes: numbers, and a token bucket without a clock of its own."""

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
    threads: int = 4
    source_rate: Rate | None = SOURCE_RATE
    total_rate: Rate | None = TOTAL_RATE


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
