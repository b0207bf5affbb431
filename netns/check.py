"""Runs the scenarios, each in a lab of its own; `netns/check` is its command.

(C1) A scenario counts when it ran and raised nothing. Nothing is run again, but for a link whose
     measurement before the scenario was void: once.
(C2) Every name in required.txt has to be there and to pass, and every scenario has to be in it.
(C3) Some run side by side: mostly they wait for a link's delay or a timer. None knows of another,
     and a link that suffers by it is found void before it counts.
(C4) The table comes whatever happens: a scenario whose process dies, or never ends, is one that
     failed, and the others go on. Why each failed stands below it: of a long run often only the end
     is kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from netns import build, image, mesh
from netns.lab import Lab, forget_snapshot, has_snapshot
from netns.scenario import (
    SHORT,
    STANDARD,
    Failed,
    Report,
    Scenario,
    discover,
    is_void,
    measure_link,
)
from netns.topology import names

REQUIRED = Path(__file__).parent / "scenarios" / "required.txt"
SEEDS = (1, 2)  # of the first and of the second try of a link
AT_ONCE = 4  # each takes about a third of a core; KEEL_SCENARIOS_AT_ONCE says otherwise
LONGEST_SECONDS = 1500  # no scenario takes half of it, on a busy machine either
WHY_CHARS = 600
ENDS_SECONDS = 60  # a process that has told its result
SPAWN = multiprocessing.get_context("spawn")
HEADERS = ("SCENARIO", "ROWS", "SECONDS", "RESULT", "LINK", "WIREGUARD", "SEED")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How one scenario ended."""

    name: str
    rows: tuple[str, ...]
    seconds: float
    verdict: str  # "passed" or why not, in a word
    why: str = ""  # its traceback's end, or what became of its process
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
    """The table that ends every run, its last line, and why each failed."""
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
    lines.append(f"{passed} passed, {len(results) - passed} failed")
    lines += [f"{one.name}: {one.why}" for one in results if one.why]
    return "\n".join(lines) + "\n"


def snapshot_name(scenario: Scenario, run: int) -> str:
    """The joined lab of this run (a process id) that scenarios of one kind begin from."""
    wanted = scenario
    kind = (wanted.members, wanted.link, wanted.mode, wanted.family, wanted.image)
    return f"check-{run}-{hashlib.sha256(repr(kind).encode()).hexdigest()[:8]}"


def lab_name(scenario: Scenario, run: int) -> str:
    return f"check-{run}-{scenario.name.replace('_', '-')}"[:32].rstrip("-")


def in_order(scenarios: Sequence[Scenario], required: Sequence[str]) -> list[Scenario]:
    """As required.txt lists them: the long ones first, so that the last to end is a short one."""
    places = {name: place for place, name in enumerate(required)}
    return sorted(scenarios, key=lambda one: places.get(one.name, len(places)))


def run_scenario(scenario: Scenario, run: int) -> Result:
    """Bring a lab up, measure its link, run, take it down."""
    report = Report(scenario.name)
    report.note(f"-- begins: {', '.join(scenario.rows) or 'the lab'}")
    begun = time.monotonic()
    lab = Lab(lab_name(scenario, run))
    ran, why = {}, ""
    try:
        with lab:
            seed = _bring_up(lab, scenario, run, report)
            ran = {**lab.backends(), "seed": str(seed)}
            try:
                scenario.run(lab, report)
            except BaseException:
                lab.collect_failure()
                raise
        verdict = "passed"
    except VoidLink as error:
        verdict, why = "void", str(error)
        report.note(why)
    except Exception as error:  # noqa: BLE001 - one scenario's end, whatever it is, must not end the others
        verdict, why = "failed", reason(error)
        report.note(traceback.format_exc())
    report.note(f"-- {verdict}")
    return Result(
        name=scenario.name,
        rows=scenario.rows,
        seconds=time.monotonic() - begun,
        verdict=verdict,
        why=why,
        **ran,
    )


def reason(error: Exception) -> str:
    """The scenario's own line that raised, and what was raised; bounded."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [one for one in frames if Path(one.filename).parent.name == "scenarios"] or frames
    place = f"{Path(inside[-1].filename).name}:{inside[-1].lineno}"
    return f"{place}: {type(error).__name__}: {error}"[:WHY_CHARS]


Work = Callable[[str, int, Connection], None]
"""Runs the scenario of a name, and sends its Result."""


def run_all(
    scenarios: Sequence[Scenario],
    *,
    at_once: int,
    work: Work | None = None,
    clean: Callable[[Scenario, int], None] | None = None,
) -> list[Result]:
    """Each in a process and a lab of its own, so many side by side (C3, C4)."""
    run = os.getpid()
    each = partial(_run_apart, run=run, work=work or _run_named, clean=clean or _take_down)
    pool = ThreadPoolExecutor(at_once)
    try:
        return list(pool.map(each, scenarios))
    finally:
        pool.shutdown(cancel_futures=True)
        for name in {snapshot_name(one, run) for one in scenarios}:
            forget_snapshot(name)
            image.forget_turns(name)


def _run_apart(
    scenario: Scenario, *, run: int, work: Work, clean: Callable[[Scenario, int], None]
) -> Result:
    begun = time.monotonic()
    result, why = heard_from(work, scenario.name, run, LONGEST_SECONDS)
    if result is not None:
        return result
    Report(scenario.name).note(f"-- failed: its process {why}")
    clean(scenario, run)
    return Result(
        name=scenario.name,
        rows=scenario.rows,
        seconds=time.monotonic() - begun,
        verdict="crashed",
        why=f"its process {why}",
    )


def heard_from(work: Work, name: str, run: int, seconds: float) -> tuple[Result | None, str]:
    """What a process of its own says, or None and what became of the process (C4)."""
    hear, tell = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(target=work, args=(name, run, tell))
    process.start()
    tell.close()
    try:
        if hear.poll(seconds):
            result: Result = hear.recv()
            return result, ""
        process.kill()
        return None, f"did not end in {seconds:g} s"
    except EOFError:
        process.join()
        return None, f"ended with {process.exitcode}"
    finally:
        hear.close()
        process.join(ENDS_SECONDS)
        process.kill()


def _run_named(name: str, run: int, tell: Connection) -> None:
    (scenario,) = (one for one in discover() if one.name == name)
    tell.send(run_scenario(scenario, run))


def _take_down(scenario: Scenario, run: int) -> None:
    Lab(lab_name(scenario, run)).down()


class VoidLink(Failed):
    """Twice, the link was not what was asked for."""


def _bring_up(lab: Lab, scenario: Scenario, run: int, report: Report) -> int:
    """Returns the seed of the link that counts. Raises VoidLink."""
    if not scenario.joined:
        return _measured(lab, scenario, report, partial(_boot, lab, scenario))
    saved = snapshot_name(scenario, run)
    with image.one_at_a_time(saved):
        if not has_snapshot(saved):
            seed = _measured(lab, scenario, report, partial(_boot, lab, scenario))
            _join(lab, scenario)
            lab.save(saved)
            return seed
    return _measured(lab, scenario, report, partial(_load, lab, saved))


def _join(lab: Lab, scenario: Scenario) -> None:
    """One mesh of them all, made over a short link: how joining goes over the bad one is what other
    scenarios show."""
    everyone = names(scenario.members)
    for name in everyone:
        lab.set_link(name, SHORT)
    mesh.join_all(lab, everyone)
    for name in everyone:
        lab.set_link(name, scenario.link)


def _measured(lab: Lab, scenario: Scenario, report: Report, start: Callable[[int], None]) -> int:
    for seed in SEEDS:
        start(seed)
        report.note(lab.describe())
        if scenario.link != STANDARD or scenario.members < 2:
            return seed
        pings = measure_link(lab, names(scenario.members))
        report.note(f"link: {pings}")
        if not is_void(pings):
            return seed
        report.note("the link is not what was asked for: void")
    raise VoidLink("two void links")


def _load(lab: Lab, saved: str, seed: int) -> None:
    lab.load(saved, seed=seed)


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
    required = required_names(REQUIRED.read_text())
    chosen = [one for one in in_order(scenarios, required) if not wanted or one.name in wanted]
    at_once = int(os.environ.get("KEEL_SCENARIOS_AT_ONCE", AT_ONCE))
    begun = time.monotonic()
    results = run_all(chosen, at_once=at_once)
    if not wanted:
        results = complete(results, required)
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write("\n" + table(results))
        took = time.monotonic() - begun
        sys.stdout.write(f"{at_once} side by side, {took:.0f} seconds in all\n")
    return 0 if all(result.verdict == "passed" for result in results) else 1
