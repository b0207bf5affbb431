"""Counting effects, and dying between two of them.

Every effect of a fake node, down to the primitives of its disk, first calls `Effects.happen`. A
clean run counts them; a kill test runs the same again once for every number and dies just before
that effect. `Crash` is a BaseException, as a power cut asks no handler; while it travels, no clean
up has an effect any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


class Crash(BaseException):
    """The node died here; only the test catches it."""


@dataclass
class Effects:
    """What one life of one node did, in order."""

    crash_at: int | None = None
    """Die just before the effect with this number, counted from 0."""
    crash_on: Callable[[str], bool] | None = None
    """Die just before the first effect whose text satisfies this."""
    done: list[str] = field(default_factory=list)
    crashed_before: str | None = None

    @property
    def dead(self) -> bool:
        return self.crashed_before is not None

    def happen(self, text: str) -> None:
        """Note an effect, or die instead of it."""
        if self.crashed_before is not None:
            raise Crash(f"already dead, before {self.crashed_before}")
        if self.crash_at == len(self.done) or (self.crash_on is not None and self.crash_on(text)):
            self.crashed_before = text
            raise Crash(text)
        self.done.append(text)


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """Just before effect `number`, which is `text` in a clean run."""

    number: int
    text: str


def crash_points(clean: Effects, *, start: int = 0) -> Iterator[CrashPoint]:
    """Every point of a clean run from its effect `start` on (effects of the arrangement left out).

    A test sets `crash_at` of the next run's Effects to the number, runs, and demands that
    `crashed_before` is the text: a point that was not hit is a failure.
    """
    for number, text in enumerate(clean.done):
        if number >= start:
            yield CrashPoint(number, text)
