"""Recording stand-ins for the machine: programs, units, firewall, facts, the terminal."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

from keel.errors import AlertFailed, DiskTrouble, ProcFailed
from keel.monitor import Sample
from keel.ports import Clock, Completed, Console, UnitRuns, UnitState
from keel.system.locks import Flocks
from keel.types import Endpoint
from tests.fakes.effects import Effects


@dataclass(frozen=True, slots=True)
class Call:
    argv: tuple[str, ...]
    stdin: bytes = b""


class FakeProc:
    """keel.ports.Proc. `answers` maps the longest matching start of an argv to what it gives:
    output, a Completed, or a function of the Call that returns either. No answer: empty success."""

    def __init__(self, effects: Effects | None = None) -> None:
        self.effects = effects if effects is not None else Effects()
        self.calls: list[Call] = []
        self.answers: dict[
            tuple[str, ...], bytes | Completed | Callable[[Call], bytes | Completed]
        ] = {}

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout_seconds: float = 30.0,
        check: bool = True,
    ) -> Completed:
        self.effects.happen(f"run {' '.join(argv)}")
        call = Call(tuple(argv), stdin)
        self.calls.append(call)
        answer = self._answer(call)
        if check and answer.returncode != 0:
            raise ProcFailed(call.argv, answer.returncode, answer.stderr.decode())
        return answer

    def _answer(self, call: Call) -> Completed:
        for length in range(len(call.argv), 0, -1):
            if call.argv[:length] in self.answers:
                answer = self.answers[call.argv[:length]]
                if callable(answer):
                    answer = answer(call)
                if isinstance(answer, bytes):
                    return Completed(returncode=0, stdout=answer, stderr=b"")
                return answer
        return Completed(returncode=0, stdout=b"", stderr=b"")


@dataclass
class FakeUnit:
    active: bool = False
    failed: bool = False
    enabled: bool = False
    masked: bool = False
    until_boot: bool = False
    """The mask is of --runtime."""
    stale: bool = False
    starts: int = 0
    starting: bool = False
    """What comes before its program runs (ExecStartPre)."""
    comes_up: bool = False
    """Its program runs and has not said that it is ready."""
    runs: UnitRuns = field(default_factory=UnitRuns)


def _mask(unit: FakeUnit) -> str:
    return ("masked-runtime" if unit.until_boot else "masked") if unit.masked else ""


class FakeUnits:
    """keel.ports.Units. `on_start` and `on_stop` say what a unit does; a start hook that returns
    False fails it, one that returns None leaves it inactive (a condition that does not hold, or a
    program that ended well). A start that is not blocking runs its hook at once all the same."""

    def __init__(self, effects: Effects) -> None:
        self.effects = effects
        self.units: dict[str, FakeUnit] = {}
        self.on_start: dict[str, Callable[[], bool | None]] = {}
        self.on_stop: dict[str, Callable[[], None]] = {}
        self.reloads = 0
        self.after: Callable[[float, Callable[[], None]], None] = _never
        """How time passes; a fake node sets its clock's."""
        self.timers: dict[str, object] = {}

    def unit(self, name: str) -> FakeUnit:
        return self.units.setdefault(name, FakeUnit())

    def enabled(self) -> set[str]:
        return {name for name, unit in self.units.items() if unit.enabled and not unit.masked}

    def state(self, unit: str) -> UnitState:
        found = self.units.get(unit, FakeUnit())
        return UnitState(
            active="failed" if found.failed else "active" if found.active else "inactive",
            sub="running" if found.active else "dead",
            main_pid=1000 + found.starts if found.active and not found.starting else 0,
            invocation_id=f"{found.starts:032x}" if found.starts else "",
            enabled=_mask(found) or ("enabled" if found.enabled else "disabled"),
            stale=found.stale,
            runs=found.runs,
            comes_up=found.comes_up,
        )

    def start(self, *units: str, block: bool = True) -> None:
        for unit in units:  # systemd takes one job after another: a kill may come in between
            self.effects.happen(f"start {unit}")
            if not self.unit(unit).active:
                self._start(unit)

    def stop(self, unit: str) -> None:
        self.effects.happen(f"stop {unit}")
        self._stop(unit)

    def restart(self, unit: str, *, block: bool = True) -> None:
        self.effects.happen(f"restart {unit}")
        self._stop(unit)
        self._start(unit)

    def enable(self, *units: str) -> None:
        self.effects.happen(f"enable {' '.join(units)}")
        for unit in units:
            self.unit(unit).enabled = True
        for each in self.units.values():
            each.stale = True  # so systemd says of all, loaded or not, until it is reloaded

    def disable(self, unit: str) -> None:
        self.effects.happen(f"disable {unit}")
        self.unit(unit).enabled = False

    def reload_configuration(self) -> None:
        self.effects.happen("daemon-reload")
        self.reloads += 1
        for unit in self.units.values():
            unit.stale = False

    def mask(self, call: Call) -> bytes:
        """What `systemctl mask` and `unmask` do, as an answer of FakeProc."""
        unit, runtime = self.unit(call.argv[-1]), "--runtime" in call.argv
        if call.argv[1] == "mask":
            unit.masked, unit.until_boot = True, runtime
        elif runtime == unit.until_boot:  # each removes its own kind of mask alone
            unit.masked = unit.until_boot = False
        return b""

    def schedule(self, unit: str, *, seconds: float) -> None:
        self.effects.happen(f"schedule {unit} in {seconds:.0f} s")
        if unit in self.timers:
            raise ProcFailed(["systemd-run", f"--unit={unit}"], 1, f"{unit} was already loaded")
        token = self.timers[unit] = object()
        self.after(seconds, partial(self._due, unit, token))

    def _due(self, unit: str, token: object) -> None:
        if self.timers.get(unit) is token:
            del self.timers[unit]
            self.start_without_effect(unit)

    def unschedule(self, unit: str) -> None:
        self.effects.happen(f"unschedule {unit}")
        self.timers.pop(unit, None)

    def scheduled(self, unit: str) -> bool:
        return unit in self.timers

    def power_off(self) -> None:
        """Everything stops, as in a crash of the machine."""
        self.timers.clear()
        for name, unit in self.units.items():
            if unit.active:
                unit.active = False
                self.on_stop.get(name, lambda: None)()
            unit.failed = False

    def start_without_effect(self, unit: str) -> None:
        """A start by systemd itself: a boot, Restart=, another unit's wish."""
        if not self.unit(unit).active:
            self._start(unit)

    def _start(self, unit: str) -> None:
        found = self.unit(unit)
        if found.masked:
            raise ProcFailed(["systemctl", "start", unit], 1, f"Unit {unit} is masked.")
        found.starts += 1
        found.active, found.failed = True, False
        found.starting = True
        try:
            went = self.on_start.get(unit, lambda: True)()
        finally:
            found.starting = False
        if not went:
            found.active, found.failed = False, went is False

    def _stop(self, unit: str) -> None:
        found = self.unit(unit)
        was_active = found.active
        found.active = found.failed = False
        if was_active:
            self.on_stop.get(unit, lambda: None)()


class FakeFirewall:
    """keel.ports.Firewall; `ruleset` is what holds now."""

    def __init__(self, effects: Effects) -> None:
        self.effects = effects
        self.ruleset: str | None = None

    def load(self, ruleset: str) -> None:
        self.effects.happen("firewall load")
        self.ruleset = ruleset

    def drop(self) -> None:
        self.effects.happen("firewall drop")
        self.ruleset = None


@dataclass
class FakeMachine:
    """keel.ports.Machine with facts that a test may change."""

    effects: Effects
    name: str = "node"
    hosts: tuple[Endpoint, ...] = ()
    root: bool = True
    tcp: str = "off"
    sessions: tuple[IPv4Address | IPv6Address, ...] = ()
    ntp: bool = False

    def hostname(self) -> str:
        return self.name

    def underlay_endpoints(self, port: int) -> tuple[Endpoint, ...]:
        return tuple(Endpoint(host=each.host, port=port) for each in self.hosts)

    def is_root(self) -> bool:
        return self.root

    def ssh_sessions(self) -> tuple[IPv4Address | IPv6Address, ...]:
        return self.sessions

    def clock_synchronized(self) -> bool:
        return self.ntp

    def bound_tcp(self) -> str:
        self.effects.happen("bound tcp")
        self.tcp = "tcp_rto_max_ms=2000"
        return self.tcp

    def tcp_bound_now(self) -> str:
        return self.tcp

    def unbound_tcp(self) -> None:
        self.effects.happen("unbound tcp")
        self.tcp = "off"


@dataclass
class FakeGauge:
    """keel.gauge.Gauge with numbers that a test may change; measuring is no effect. `links`: what
    each connection to an address took; whoever is not in it answers at once."""

    links: dict[IPv6Address, tuple[float | None, ...]] = field(default_factory=dict)
    sync: float | None = 0.002
    free: int = 10 << 30
    etcd: str | None = "3.5.16"

    def connect_times(
        self,
        addresses: Sequence[IPv6Address],
        port: int,
        *,
        tries: int,
        timeout_seconds: float,
    ) -> dict[IPv6Address, tuple[float | None, ...]]:
        return {one: self.links.get(one, (0.0,) * tries) for one in addresses}

    def sync_seconds(self, directory: Path) -> float | None:
        assert directory.is_dir()
        return self.sync

    def free_bytes(self, directory: Path) -> int:
        assert directory.is_dir()
        return self.free

    def etcd_version(self) -> str | None:
        return self.etcd


@dataclass
class RecordingConsole:
    """keel.ports.Console; saying something is not an effect that a crash can fall before."""

    said: list[str] = field(default_factory=list)
    waited: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        self.said.append(text)

    def waiting(self, text: str) -> None:
        self.waited.append(text)


class CountedLocks:
    """keel.ports.Locks: real flocks whose taking is counted."""

    def __init__(self, effects: Effects, clock: Clock, console: Console) -> None:
        self.effects = effects
        self.held: list[Path] = []
        self._locks = Flocks(clock, console)

    @contextmanager
    def hold(self, path: Path, *, what: str, wait_seconds: float = 0.0) -> Iterator[None]:
        with self._locks.hold(path, what=what, wait_seconds=wait_seconds):
            self.held.append(path)
            try:
                self.effects.happen(f"lock {path.name}")
                yield
            finally:
                self.held.remove(path)


class FakeAlerts:
    """keel.monitor.AlertsOut: what each channel took; those in `deaf` take nothing."""

    def __init__(self, effects: Effects) -> None:
        self.effects = effects
        self.taken: list[tuple[str, str]] = []
        self.deaf: set[str] = set()

    def webhook(self, url: str, document: bytes, *, timeout_seconds: float) -> None:
        self._take(url, document.decode())

    def mail(self, to: str, subject: str, text: str, *, timeout_seconds: float) -> None:
        self._take(to, f"{subject}\n{text}")

    def command(self, argv: Sequence[str], document: bytes, *, timeout_seconds: float) -> None:
        self._take(argv[0], document.decode())

    def _take(self, whom: str, what: str) -> None:
        self.effects.happen(f"alert {whom}")
        if whom in self.deaf:
            raise AlertFailed("no answer")
        self.taken.append((whom, what))


class FakeMetrics:
    """keel.monitor.MetricsOut: the newest samples."""

    def __init__(self, effects: Effects) -> None:
        self.effects = effects
        self.samples: tuple[Sample, ...] = ()
        self.broken = False

    def write(self, samples: Sequence[Sample]) -> None:
        self.effects.happen("metrics")
        if self.broken:
            raise DiskTrouble(Path("keel.prom"), errno.EROFS)
        self.samples = tuple(samples)

    def value(self, name: str, **labels: str) -> float | None:
        found = (s.value for s in self.samples if (s.name, dict(s.labels)) == (name, labels))
        return next(found, None)


def _never(seconds: float, event: Callable[[], None]) -> None:
    """The `after` of units that no world clock drives."""
