"""What one duty of a tend came to: one typed result and one sentence (E14)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from keel.outcome import Waiting


class Result(StrEnum):
    NOTHING = "nothing"
    DONE = "done"
    WAITING = "waiting"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Duty:
    """What became of one duty. `open`: a transition is under way, and the next pass should come
    in seconds instead of minutes."""

    name: str
    result: Result
    text: str
    waiting: tuple[Waiting, ...] = ()
    open: bool = False


def nothing(name: str, text: str) -> Duty:
    """There was nothing to do, and why."""
    return Duty(name=name, result=Result.NOTHING, text=text)


def done(name: str, text: str, *, is_open: bool = False) -> Duty:
    """Something is different now."""
    return Duty(name=name, result=Result.DONE, text=text, open=is_open)


def waits(name: str, *waiting: Waiting, is_open: bool = False) -> Duty:
    """Something has to happen first; the sentence is that of the first."""
    return Duty(
        name=name, result=Result.WAITING, text=waiting[0].text, waiting=waiting, open=is_open
    )
