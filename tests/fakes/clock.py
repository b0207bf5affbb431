"""Time and chance under control: one world clock, a clock for each node that may be wrong."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial

START = datetime(2026, 1, 1, tzinfo=UTC)
PLAYED_OUT_SECONDS = 900.0


class VirtualClock:
    """True time. Passing time runs the events that fall due, in order, each at its own moment."""

    def __init__(self, start: datetime = START) -> None:
        self._start = start
        self._elapsed = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._target = 0.0
        """Until when the sleep lasts that is being slept."""

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        return self._elapsed

    def sleep(self, seconds: float) -> None:
        self._target = target = self._elapsed + max(0.0, seconds)
        while self._events and self._events[0][0] <= target:
            due, _, event = heapq.heappop(self._events)
            self._elapsed = max(self._elapsed, due)
            event()
        self._elapsed = max(self._elapsed, target)

    def leap(self, seconds: float) -> None:
        """Time passes, and nothing that comes back every few seconds is played out: it goes on
        afterwards from where it was."""
        self._elapsed += seconds
        self._events = [(due + seconds, number, event) for due, number, event in self._events]

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        """Run `event` once that many seconds have passed."""
        heapq.heappush(self._events, (self._elapsed + seconds, next(self._order), event))

    def every(self, seconds: float, event: Callable[[], None]) -> None:
        """Run `event` again and again, as a timer unit does. In a sleep of hours only the runs of
        its last quarter are played out."""

        self.after(seconds, partial(self._run_again, seconds, event))

    def _run_again(self, seconds: float, event: Callable[[], None]) -> None:
        self.every(seconds, event)
        if self._target - self._elapsed <= PLAYED_OUT_SECONDS:
            event()


class NodeClock:
    """keel.ports.Clock of one node: true time plus what its wall clock is wrong by."""

    def __init__(self, world: VirtualClock) -> None:
        self.world = world
        self.wrong_by = timedelta()
        self.booted = 0.0
        """When it was last switched on, by the world's monotonic clock."""

    def now(self) -> datetime:
        return self.world.now() + self.wrong_by

    def monotonic(self) -> float:
        return self.world.monotonic() - self.booted

    def sleep(self, seconds: float) -> None:
        self.world.sleep(seconds)


class SeededChance:
    """keel.ports.Chance that gives the same each time."""

    def __init__(self, seed: int | str = 0) -> None:
        self._random = random.Random(seed)

    def bytes(self, size: int) -> bytes:
        return self._random.randbytes(size)
