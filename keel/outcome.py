"""What a flow can come to, and the Plan that a dry run, a real run and the tend all show.

A Plan is an ordered list of named idempotent steps made by a pure `decide`. Steps are data: the
orchestrator that executes them looks their `action` up; nothing here has an effect. A rule that
says no is `keel.errors.Refused`: raised, with exit status 3 and nothing changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, TypeVar

from keel.errors import Exit

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Done(Generic[T]):
    """It is so now; `changed` says whether this run made it so."""

    value: T
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Nothing is wrong, something has to happen first; running again or the timer goes on."""

    what: str
    waiting_for: str
    why: str
    since: datetime | None = None
    remedy: str = ""
    """What the operator types, where nobody else ends it and `why` does not say it."""

    @property
    def text(self) -> str:
        """The whole of it as a sentence."""
        return f"{self.what} waits for {self.waiting_for}: {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Incomplete(Generic[T]):
    """Some of it is done, the rest is named; running again is safe."""

    value: T
    missing: tuple[str, ...]
    remedy: str


def exit_of(outcome: Done[T] | Waiting | Incomplete[T]) -> Exit:
    """The exit status of an outcome: waiting healthily is success for whoever asked."""
    match outcome:
        case Done() | Waiting():
            return Exit.DONE
        case Incomplete():
            return Exit.INCOMPLETE


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One idempotent change: what is done (`action`, on `subject`) and why, in words."""

    action: str
    subject: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Ordered steps, or none when all is as it should be, and what it waits for meanwhile."""

    steps: tuple[Step, ...] = ()
    waiting: tuple[Waiting, ...] = field(default=())

    @classmethod
    def of(cls, *steps: tuple[bool, str, str, str]) -> Plan:
        """Of (whether it is to be done, action, subject, why) the steps that are."""
        return cls(
            steps=tuple(
                Step(action=action, subject=subject, why=why)
                for do, action, subject, why in steps
                if do
            )
        )

    def then(self, *others: Plan) -> Plan:
        """This one, and the others after it."""
        every = (self, *others)
        return Plan(
            steps=tuple(step for one in every for step in one.steps),
            waiting=tuple(item for one in every for item in one.waiting),
        )

    def __bool__(self) -> bool:
        return bool(self.steps)
