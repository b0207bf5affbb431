"""A row of the bench's table, and whether what was measured keeps the goal; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

HEAD = "| what | keel | beside it | goal |\n|---|---|---|---|"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What docs/evidence/bench.md has a line for."""

    what: str
    keel: str
    beside: str = ""
    goal: str = ""

    def __str__(self) -> str:
        return f"| {self.what} | {self.keel} | {self.beside} | {self.goal} |"


def table(rows: Sequence[Row]) -> str:
    """As in docs/evidence/bench.md."""
    return "\n".join([HEAD, *map(str, rows)])


def listed(values: Sequence[float], digits: int = 2) -> str:
    return ", ".join(f"{value:.{digits}f}" for value in values)


def at_most(values: Sequence[float], limit: float, unit: str) -> str:
    """A goal for every run."""
    kept = sum(value <= limit for value in values)
    return f"{limit:g}{unit}, every run: {_verdict(kept, len(values))}"


def ratios(ours: Sequence[float], theirs: Sequence[float], limit: float) -> str:
    """A goal beside what ran in the same round."""
    found = [one / other for one, other in zip(ours, theirs, strict=True)]
    kept = sum(value <= limit for value in found)
    return f"{limit:g} x, every round: {listed(found)}: {_verdict(kept, len(found))}"


def _verdict(kept: int, tried: int) -> str:
    if tried and kept == tried:
        return "met"
    return f"**not met** ({kept} of {tried})"
