"""What a scenario is, and what the runner lends it.

A scenario is a module in `netns/scenarios/` with

    NAME = "lab_itself"            as in required.txt
    ROWS = ("M1",)                 the rows of the requirements that it shows; may be empty
    LINK = "125ms,12.5ms,1%"       of each direction
    MEMBERS = 3                    optional, as are MODE, FAMILY, IMAGE: see Lab.up
    JOINED = False                 optional: start from appliances that are one mesh

    def run(lab: Lab, report: Report) -> None: ...

The appliances are up when `run` begins, and gone after it. It fails by raising.
"""

from __future__ import annotations

import importlib
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from netns.lab import Lab
from netns.process import SHORT_PATIENCE_SECONDS
from netns.topology import Family, Mode, Name, Quality, node, parse_quality

STANDARD = parse_quality("125ms,12.5ms,1%")
SHORT = parse_quality("5ms,0ms,0%")
"""Of what a scenario needs first and does not show."""
PINGS = 400
RTT_MS = (225.0, 290.0)
LOSS_PERCENT = (0.5, 8.0)
OUTLIERS = 0.01  # of the round trips, for a machine that is busy for a moment


class Failed(AssertionError):
    """What a scenario expected did not hold."""


class Report:
    """Prints what a scenario sees, beside its name: several may run at once."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.begun = time.monotonic()

    def note(self, text: str) -> None:
        """One line with the seconds since the scenario began."""
        sys.stdout.write(f"{self.name:14} {time.monotonic() - self.begun:6.1f} s  {text}\n")
        sys.stdout.flush()

    def expect(self, holds: bool, what: str) -> None:
        """Note what holds; raise Failed when it doesn't."""
        if not holds:
            raise Failed(what)
        self.note(what)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scenario's module, checked."""

    name: str
    rows: tuple[str, ...]
    link: Quality
    members: int
    mode: Mode
    family: Family
    image: str
    joined: bool
    run: Callable[[Lab, Report], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pings:
    """The round trips of some pings that were sent."""

    sent: int
    times_ms: tuple[float, ...]

    @property
    def loss_percent(self) -> float:
        return 100 * (1 - len(self.times_ms) / self.sent)

    def __str__(self) -> str:
        if not self.times_ms:
            return f"no answer to {self.sent} pings"
        low, middle, high = min(self.times_ms), statistics.mean(self.times_ms), max(self.times_ms)
        return (
            f"{low:.0f}/{middle:.0f}/{high:.0f} ms, {self.loss_percent:.1f} % of {self.sent} lost"
        )


def discover() -> list[Scenario]:
    """All scenarios, by name."""
    directory = Path(__file__).parent / "scenarios"
    modules = sorted(path.stem for path in directory.glob("[!_]*.py"))
    return [load(module) for module in modules]


def load(module: str) -> Scenario:
    """One scenario."""
    found = importlib.import_module(f"netns.scenarios.{module}")
    return Scenario(
        name=found.NAME,
        rows=tuple(found.ROWS),
        link=parse_quality(found.LINK),
        members=getattr(found, "MEMBERS", 3),
        mode=Mode(getattr(found, "MODE", Mode.CLOUD_ADVANCED)),
        family=Family(getattr(found, "FAMILY", Family.DUAL)),
        image=getattr(found, "IMAGE", "appliance"),
        joined=getattr(found, "JOINED", False),
        run=found.run,
    )


def ping(lab: Lab, source: Name, target: str, count: int, *, interval: float = 0.05) -> Pings:
    """Ping an address from an appliance; raises for an answer that can't be read."""
    argv = ["ping", "-n", "-c", str(count), "-i", str(interval), "-W", "2", target]
    text = lab.exec(
        source, argv, timeout=count * interval + SHORT_PATIENCE_SECONDS, check=False
    ).stdout
    return parse_pings(text, count)


def parse_pings(text: str, sent: int) -> Pings:
    """What ping printed. An answer that came twice counts once."""
    answers = dict(re.findall(r"icmp_seq=(\d+) .*time=([\d.]+) ms", text))
    return Pings(sent=sent, times_ms=tuple(float(time) for time in answers.values()))


def measure_link(lab: Lab, members: Iterable[Name]) -> Pings:
    """400 pings over the underlay, from each appliance to the next, all at once."""
    ring = list(members)
    each = -(-PINGS // len(ring))
    targets = [node(name, lab.state().family).hosts[0] for name in [*ring[1:], ring[0]]]
    with ThreadPoolExecutor(len(ring)) as pool:
        found = list(
            pool.map(
                lambda source, target: ping(lab, source, target, each, interval=0.02), ring, targets
            )
        )
    times = tuple(time for pings in found for time in pings.times_ms)
    return Pings(sent=each * len(ring), times_ms=times)


def is_void(pings: Pings) -> bool:
    """Whether the measurement is not that of the standard bad link."""
    low, high = RTT_MS
    outside = sum(not low <= time <= high for time in pings.times_ms)
    least, most = LOSS_PERCENT
    return outside > OUTLIERS * pings.sent or not least <= pings.loss_percent <= most
