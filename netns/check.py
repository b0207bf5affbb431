"""Runs the scenarios, each in a lab of its own; `netns/check` is its command.

(C1) A scenario counts when it ran and raised nothing. Nothing is run again, but for a link whose
     measurement before the scenario was void: once.
(C2) Every name in required.txt has to be there and to pass, and every scenario has to be in it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from netns import build, mesh
from netns.lab import Lab, forget_snapshot
from netns.scenario import STANDARD, Failed, Report, Scenario, discover, is_void, measure_link
from netns.topology import names

REQUIRED = Path(__file__).parent / "scenarios" / "required.txt"
SEEDS = (1, 2)  # of the first and of the second try of a link
HEADERS = ("SCENARIO", "ROWS", "SECONDS", "RESULT", "LINK", "WIREGUARD", "SEED")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How one scenario ended."""

    name: str
    rows: tuple[str, ...]
    seconds: float
    verdict: str  # "passed" or why not, in a word
    link: str = "-"
    wireguard: str = "-"
    seed: str = "-"


def required_names(text: str) -> list[str]:
    """The names in required.txt: one a line, `#` begins a comment."""
    lines = (line.split("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line]


def complete(results: Sequence[Result], required: Iterable[str]) -> list[Result]:
    """The results, and a failed one for each name that is missing or not required (C2)."""
    ran = {result.name for result in results}
    wanted = set(required)
    missing = [
        Result(name=name, rows=(), seconds=0, verdict="missing") for name in sorted(wanted - ran)
    ]
    unknown = [
        Result(name=name, rows=(), seconds=0, verdict="not-required")
        for name in sorted(ran - wanted)
    ]
    return [*results, *missing, *unknown]


def table(results: Sequence[Result]) -> str:
    """The table that ends every run, and its last line."""
    rows = [HEADERS]
    for result in results:
        rows.append(
            (
                result.name,
                ",".join(result.rows) or "-",
                f"{result.seconds:.0f}",
                result.verdict,
                result.link,
                result.wireguard,
                result.seed,
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADERS))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    passed = sum(result.verdict == "passed" for result in results)
    return "\n".join([*lines, f"{passed} passed, {len(results) - passed} failed"]) + "\n"


class Snapshots:
    """The labs of this run that are joined already: scenarios that want the same one share it."""

    def __init__(self) -> None:
        self._names: dict[tuple[object, ...], str] = {}

    def of(self, scenario: Scenario) -> str:
        """The snapshot to begin from; empty when there is none yet, or none is wanted."""
        return self._names.get(self._key(scenario), "") if scenario.joined else ""

    def add(self, scenario: Scenario) -> str:
        """The name under which to save."""
        name = f"check-{os.getpid()}-{len(self._names)}"
        self._names[self._key(scenario)] = name
        return name

    def forget(self) -> None:
        for name in self._names.values():
            forget_snapshot(name)

    def _key(self, scenario: Scenario) -> tuple[object, ...]:
        wanted = scenario
        return (wanted.members, wanted.link, wanted.mode, wanted.family, wanted.image)


def run_scenario(scenario: Scenario, snapshots: Snapshots) -> Result:
    """Bring a lab up, measure its link, run, take it down."""
    sys.stdout.write(f"{scenario.name} ({', '.join(scenario.rows) or 'the lab'})\n")
    begun = time.monotonic()
    lab = Lab(f"check-{os.getpid()}")
    ran = {}
    try:
        with lab:
            report = Report()
            seed = _bring_up(lab, scenario, snapshots, report)
            ran = {**lab.backends(), "seed": str(seed)}
            try:
                scenario.run(lab, report)
            except BaseException:
                lab.collect_failure()
                raise
        verdict = "passed"
    except VoidLink as error:
        verdict = "void"
        sys.stdout.write(f"  {error}\n")
    except Exception:  # noqa: BLE001 - one scenario's end, whatever it is, must not end the others
        verdict = "failed"
        traceback.print_exc(file=sys.stdout)
    seconds = time.monotonic() - begun
    return Result(name=scenario.name, rows=scenario.rows, seconds=seconds, verdict=verdict, **ran)


class VoidLink(Failed):
    """Twice, the link was not what was asked for."""


def _bring_up(lab: Lab, scenario: Scenario, snapshots: Snapshots, report: Report) -> int:
    """Returns the seed of the link that counts. Raises VoidLink."""
    for seed in SEEDS:
        saved = snapshots.of(scenario)
        if saved:
            lab.load(saved, seed=seed)
        else:
            _boot(lab, scenario, seed)
        report.note(lab.describe())
        if scenario.link == STANDARD and scenario.members > 1:
            pings = measure_link(lab, names(scenario.members))
            report.note(f"link: {pings}")
            if is_void(pings):
                report.note("the link is not what was asked for: void")
                continue
        if scenario.joined and not saved:
            mesh.join_all(lab, names(scenario.members))
            lab.save(snapshots.add(scenario))
        return seed
    raise VoidLink("two void links")


def _boot(lab: Lab, scenario: Scenario, seed: int) -> None:
    lab.down()
    lab.up(
        members=scenario.members,
        link=scenario.link,
        seed=seed,
        mode=scenario.mode,
        family=scenario.family,
        base=scenario.image,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run all scenarios, or those named; 0 when every one passed."""
    wanted = list(sys.argv[1:] if argv is None else argv)
    if os.geteuid() != 0:
        sys.stderr.write("netns/check: error: needs root\n")
        return 77
    scenarios = discover()
    unknown = set(wanted) - {scenario.name for scenario in scenarios}
    if unknown:
        sys.stderr.write(f"netns/check: error: no such scenario: {', '.join(sorted(unknown))}\n")
        return 2
    build.package_layer()
    snapshots = Snapshots()
    try:
        results = [run_scenario(s, snapshots) for s in scenarios if not wanted or s.name in wanted]
    finally:
        snapshots.forget()
    if not wanted:
        results = complete(results, required_names(REQUIRED.read_text()))
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write("\n" + table(results))
    return 0 if all(result.verdict == "passed" for result in results) else 1
