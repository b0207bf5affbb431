"""Recording stand-ins for the machine: programs, units, firewall, facts, the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from pathlib import Path

from keel.errors import ProcFailed, Refused
from keel.paths import Paths
from keel.ports import Clock, Completed, DataState, Files, StrayMember, UnitState
from keel.system.locks import Flocks
from keel.types import Endpoint, Secret
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
    starts: int = 0


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

    def unit(self, name: str) -> FakeUnit:
        return self.units.setdefault(name, FakeUnit())

    def state(self, unit: str) -> UnitState:
        found = self.units.get(unit, FakeUnit())
        return UnitState(
            active="failed" if found.failed else "active" if found.active else "inactive",
            sub="running" if found.active else "dead",
            main_pid=1000 + found.starts if found.active else 0,
            invocation_id=f"{found.starts:032x}" if found.starts else "",
            enabled="enabled" if found.enabled else "disabled",
        )

    def start(self, unit: str, *, block: bool = True) -> None:
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

    def enable(self, unit: str) -> None:
        self.effects.happen(f"enable {unit}")
        self.unit(unit).enabled = True

    def disable(self, unit: str) -> None:
        self.effects.happen(f"disable {unit}")
        self.unit(unit).enabled = False

    def reload_configuration(self) -> None:
        self.effects.happen("daemon-reload")
        self.reloads += 1

    def power_off(self) -> None:
        """Everything stops, as in a crash of the machine."""
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
        found.starts += 1
        found.active, found.failed = True, False
        went = self.on_start.get(unit, lambda: True)()
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
    users: set[str] = field(default_factory=lambda: {"etcd"})
    tcp: str = "off"
    synchronised: bool = True

    def hostname(self) -> str:
        return self.name

    def underlay_endpoints(self, port: int) -> tuple[Endpoint, ...]:
        return tuple(Endpoint(host=each.host, port=port) for each in self.hosts)

    def is_root(self) -> bool:
        return self.root

    def user_exists(self, name: str) -> bool:
        return name in self.users

    def bound_tcp(self) -> str:
        self.effects.happen("bound tcp")
        self.tcp = "tcp_rto_max_ms=2000"
        return self.tcp

    def tcp_bound_now(self) -> str:
        return self.tcp

    def unbound_tcp(self) -> None:
        self.effects.happen("unbound tcp")
        self.tcp = "off"

    def clock_synchronised(self) -> bool:
        return self.synchronised


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

    def __init__(self, effects: Effects, clock: Clock) -> None:
        self.effects = effects
        self.held: list[Path] = []
        self._locks = Flocks(clock)

    @contextmanager
    def hold(self, path: Path, *, what: str, wait_seconds: float = 0.0) -> Iterator[None]:
        with self._locks.hold(path, what=what, wait_seconds=wait_seconds):
            self.held.append(path)
            try:
                self.effects.happen(f"lock {path.name}")
                yield
            finally:
                self.held.remove(path)


class FakeOverlay:
    """keel.ports.EtcdOverlay on the node's own files and units, with no user etcd."""

    UNIT = "etcd.service"

    def __init__(self, paths: Paths, files: Files, units: FakeUnits) -> None:
        self._paths = paths
        self._files = files
        self._units = units
        self.masked = False
        self.unusable: set[IPv6Address] = set()

    def lay(self, files: Mapping[str, Secret]) -> tuple[str, ...]:
        laid = self._paths.laid
        self._files.make_dir(laid, owner="etcd")
        changed = [name for name in self._files.names(laid) if name not in files]
        for name in changed:
            self._files.remove(laid / name)
        for name, data in files.items():
            if self.laid(name) != data:
                self._files.write(laid / name, data.reveal(), owner="etcd")
                changed.append(name)
        return tuple(sorted(changed))

    def laid(self, name: str) -> Secret | None:
        data = self._files.read(self._paths.laid / name)
        return Secret(data) if data is not None else None

    def write_drop_in(self, text: bytes) -> bool:
        if self._files.read(self._paths.etcd_drop_in) == text:
            return False
        self._files.make_dir(self._paths.etcd_drop_in.parent, mode=0o755)
        self._files.write(self._paths.etcd_drop_in, text, mode=0o644)
        self._units.reload_configuration()
        return True

    def start(self) -> None:
        self._units.effects.happen(f"unmask {self.UNIT}")
        self.masked = False
        self._units.enable(self.UNIT)
        self._units.start(self.UNIT, block=False)

    def stop(self) -> None:
        self._units.stop(self.UNIT)
        self._units.effects.happen(f"mask {self.UNIT}")
        self.masked = True

    def data_state(self) -> DataState:
        if not self._files.exists(self._paths.etcd_data):
            return DataState.ABSENT
        present = self._files.names(self._paths.etcd_data)
        return DataState.PRESENT if present else DataState.EMPTY

    def address_usable(self, address: IPv6Address) -> bool:
        return address not in self.unusable

    def set_data_aside(self, label: str) -> Path | None:
        moved = None
        for path in (self._paths.etcd_data, self._paths.etcd_marker):
            if self._files.exists(path):
                aside = path.with_name(f"{path.name}.{label}")
                self._files.rename(path, aside)
                moved = moved or aside
        return moved

    def stray(self) -> StrayMember:
        if self._files.exists(self._paths.stray_marker):
            return StrayMember.MARKED
        present = self._files.exists(self._paths.stray_data)
        return StrayMember.FOREIGN if present else StrayMember.NONE

    def remove_stray(self) -> None:
        if self.stray() is StrayMember.FOREIGN:
            raise Refused("stray-etcd", "another's etcd data is here", "look at /var/lib/etcd")
        self._files.remove(self._paths.stray_data)
        self._files.remove(self._paths.stray_marker)
