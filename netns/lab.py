"""A lab as an object: what the verbs of `netns/lab` and the scenarios use.

with Lab("mine") as lab:
    lab.up(members=3, link=parse_quality("125ms,12.5ms,1%"))
    lab.exec(Name("a"), ["ping", "-c", "1", "198.51.100.2"])
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from netns import anchor, backends, build, image, probe, state
from netns.appliance import Machine, NotRunning, group_of
from netns.image import say
from netns.link import Counters, Link, Pair
from netns.process import PATIENCE_SECONDS, SHORT_PATIENCE_SECONDS, Capture, copy, run
from netns.state import State
from netns.topology import Family, Mode, Name, Node, Quality, names, node, pairs

BOOT_SECONDS = PATIENCE_SECONDS
POLL_SECONDS = 0.2
PERFECT = Quality()


class LabError(Exception):
    """Something that the lab's user did or forgot; the text ends with a hint."""


class ExecFailed(Exception):
    """A command in an appliance ended with a failure."""

    def __init__(
        self, name: Name, argv: Sequence[str], done: subprocess.CompletedProcess[str]
    ) -> None:
        self.done = done
        super().__init__(
            f"{name}: {' '.join(argv)}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        )


class Lab:
    """One lab instance; several may run side by side under different names."""

    def __init__(self, instance: str = "") -> None:
        self.instance = instance or os.environ.get("KEEL_LAB", "keel")
        if not self.instance.replace("-", "").isalnum() or len(self.instance) > 32:
            raise LabError(f"not a lab's name: {self.instance!r}\nhint: letters, digits and dashes")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.down()

    # --- coming up and going down

    def up(
        self,
        *,
        members: int = 3,
        link: Quality = PERFECT,
        seed: int = 1,
        mode: Mode = Mode.CLOUD_ADVANCED,
        family: Family = Family.DUAL,
        base: str = "appliance",
        packages: bool = True,
    ) -> None:
        """Boot that many appliances, joined by links of that quality, but not into a mesh."""
        layers = build.appliance_layers(base, packages=packages)
        choice = probe.decide(probe.observe(), os.environ.get("KEEL_LINK", ""))
        everyone = list(names(members))
        qualities = {pair: link for one in everyone for pair in pairs(everyone, one)}
        with self._starting(
            lambda pid: State(
                anchor_pid=pid,
                anchor_started=state.started(pid),
                members=everyone,
                layers=layers,
                backend=choice.link,
                seed=seed,
                mode=mode,
                family=family,
                qualities=qualities,
            )
        ):
            for member in everyone:
                self._machine(member).create(layers, mode)
            self._power_on(everyone)

    def down(self) -> None:
        """Remove the lab; nothing of it is left. Does nothing when there is none."""
        with state.locked(self.instance):
            found = state.read(self.instance)
            if found and state.alive(found):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(found.anchor_pid, signal.SIGKILL)
                gone = "the lab's processes to end"
                self.wait(lambda: not state.alive(found), SHORT_PATIENCE_SECONDS, gone)
            anchor.sweep_control_groups(group_of(self.instance))
            state.forget(self.instance)

    # --- one appliance

    def exec(
        self,
        name: Name,
        argv: Sequence[str],
        *,
        input: str = "",
        timeout: float = PATIENCE_SECONDS,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in an appliance as root.

        Raises ExecFailed if `check`, NotRunning, subprocess.TimeoutExpired.
        """
        command = self.machine(name).command(argv)
        done = run(command, input=input, timeout=timeout)
        if check and done.returncode != 0:
            raise ExecFailed(name, argv, done)
        return done

    def popen(self, name: Name, argv: Sequence[str]) -> subprocess.Popen[str]:
        """Start a command in an appliance, its output in pipes, in a process group of its own."""
        return subprocess.Popen(
            self.machine(name).command(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def start(self, *which: Name) -> None:
        """Switch appliances on, with the disks they had, and wait until they have booted."""
        with state.locked(self.instance):
            self._power_on([name for name in which if self.machine(name).leader() is None])

    def kill(self, *which: Name) -> None:
        """Cut appliances' power; their disks stay as they were at that moment."""
        with state.locked(self.instance):
            for name in which:
                self._power_off(self.machine(name))

    def reboot(self, name: Name) -> None:
        """Shut an appliance down in order and boot it again."""
        with contextlib.suppress(NotRunning):
            self.exec(name, ["systemctl", "poweroff"], check=False)
        self.wait(lambda: not self.running(name), BOOT_SECONDS, f"{name} to shut down")
        self.start(name)

    def running(self, name: Name) -> bool:
        return self.machine(name).leader() is not None

    def put(self, name: Name, path: str, data: str | bytes, *, mode: int = 0o644) -> None:
        """Write a file into an appliance."""
        target = self.machine(name).disk / "root" / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data.encode() if isinstance(data, str) else data)
        target.chmod(mode)

    def put_tree(self, name: Name, source: Path, path: str) -> None:
        """Copy a directory of this machine into an appliance."""
        shutil.copytree(
            source, self.machine(name).disk / "root" / path.lstrip("/"), dirs_exist_ok=True
        )

    def journal(self, name: Name, *arguments: str) -> str:
        """The appliance's journal, of all its boots, also when it is off."""
        directory = self.machine(name).disk / "root/var/log/journal"
        argv = ["journalctl", "--directory", str(directory), "--no-pager"]
        argv += ["--output", "short-precise"]
        return run([*argv, *arguments], timeout=PATIENCE_SECONDS).stdout

    def capture(self, name: Name, path: Path | None = None, *, filter: str = "") -> Capture:
        """Record an appliance's underlay from this moment on."""
        if path is None:
            descriptor, text = tempfile.mkstemp(
                prefix=f"{name}-", suffix=".pcap", dir=state.directory(self.instance)
            )
            os.close(descriptor)
            path = Path(text)
        # Small frames and a large buffer: tcpdump's own choice would hold eight packets.
        argv = ["tcpdump", "-n", "-i", "wan0", "-U", "--immediate-mode", "-s", "2048"]
        argv += ["-B", "8192", "-Z", "root", "-w", str(path), *filter.split()]
        process = subprocess.Popen(
            self.machine(name).network_command(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stderr
        for line in process.stderr:
            if b"listening on" in line:
                return Capture(path=path, process=process)
        raise OSError(f"tcpdump did not start on {name}")

    # --- the links

    def cut(self, name: Name) -> None:
        """Nothing reaches the appliance and nothing leaves it."""
        self._reshape(name, lambda quality: dataclasses.replace(quality, cut=True))

    def heal(self, name: Name) -> None:
        """Undo a cut; delay, jitter and loss are what they were."""
        self._reshape(name, lambda quality: dataclasses.replace(quality, cut=False))

    def set_link(self, name: Name, quality: Quality) -> None:
        """Set each direction to and from the appliance; a cut stays."""
        self._reshape(name, lambda old: dataclasses.replace(quality, cut=old.cut))

    def set_direction(self, source: Name, target: Name, quality: Quality) -> None:
        """Set one direction between two appliances."""
        with self._changing() as current:
            current.qualities[source, target] = quality
            self._link(current).shape({(source, target): quality})

    def readdress(self, name: Name, host: int) -> None:
        """Give the appliance's underlay other addresses (.host and ::host), as a provider would."""
        with self._changing() as current:
            current.hosts[name] = host
            self._link(current).attach(self._node(current, name))
            self._link(current).shape(current.qualities)

    def counters(self) -> dict[Pair, Counters]:
        """What the links carried and lost, per direction."""
        return self._link(self.state()).counters()

    # --- whole labs

    def save(self, snapshot: str) -> None:
        """Keep all disks as they are at one moment, as after a power cut of everything at once."""
        with state.locked(self.instance):
            current = self.state()
            target = _snapshot(snapshot)
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            scratch = Path(tempfile.mkdtemp(prefix=f".{snapshot}.", dir=target.parent))
            machines = [self._machine(name) for name in current.members]
            running = [machine for machine in machines if machine.leader()]
            try:
                for machine in running:
                    machine.freeze(frozen=True)
                for machine in machines:
                    copy(machine.disk / "upper", scratch / machine.name)
            finally:
                for machine in running:
                    machine.freeze(frozen=False)
            (scratch / "state.json").write_text(state.encode(current))
            shutil.rmtree(target, ignore_errors=True)
            scratch.rename(target)

    def load(self, snapshot: str, *, seed: int = 0) -> None:
        """Replace this lab, if there is one, by a saved one, and boot it; its seed, or another."""
        source = _snapshot(snapshot)
        if not source.exists():
            raise LabError(f"no snapshot {snapshot!r}\nhint: netns/lab save {snapshot}")
        saved = state.decode((source / "state.json").read_text())
        saved.seed = seed or saved.seed
        gone = [str(layer) for layer in saved.layers if not layer.exists()]
        if gone:
            raise LabError(f"the snapshot's image is gone: {gone[0]}\nhint: make the snapshot anew")
        self.down()
        with self._starting(
            lambda pid: dataclasses.replace(
                saved, anchor_pid=pid, anchor_started=state.started(pid)
            )
        ):
            for name in saved.members:
                machine = self._machine(name)
                copy(source / name, machine.disk / "upper")
                machine.mount(saved.layers)
            self._power_on(saved.members)

    def put_back(self, name: Name, snapshot: str) -> None:
        """An appliance's disk as it was when the lab was saved, as from a backup; leaves it off."""
        with state.locked(self.instance):
            machine = self.machine(name)
            self._power_off(machine)
            machine.unmount()
            for part in ("upper", "work"):
                shutil.rmtree(machine.disk / part)
            copy(_snapshot(snapshot) / name, machine.disk / "upper")
            machine.mount(self.state().layers)

    def backends(self) -> dict[str, str]:
        """What carries packets here: `link` and `wireguard`."""
        return {
            "link": self.state().backend,
            "wireguard": probe.decide(probe.observe()).wireguard.value,
        }

    def describe(self) -> str:
        """One line: what runs and on what; every result prints it."""
        current = self.state()
        wireguard = self.backends()["wireguard"]
        etcd = build.installed_version(current.layers, "etcd-server") or "none"
        keel = build.installed_version(current.layers, "keel") or "none"
        return (
            f"lab {self.instance}: {len(current.members)} appliances, kernel {platform.release()}, "
            f"wireguard {wireguard}, link {current.backend}, seed {current.seed}, "
            f"etcd {etcd}, keel {keel}"
        )

    def collect_failure(self, parent: Path | None = None) -> Path:
        """Keep every appliance's journal, console and keel state; prints the directory's name."""
        if parent is None:
            parent = image.cache() / "failures"
        parent.mkdir(parents=True, exist_ok=True)
        directory = Path(tempfile.mkdtemp(prefix=f"{self.instance}-", dir=parent))
        for name in self.state().members:
            target = directory / name
            target.mkdir()
            (target / "journal").write_text(self.journal(name))
            disk = self.machine(name).disk
            shutil.copy(disk / "console", target / "console")
            for path in ("var/lib/keel", "etc/keel", "etc/etcd/keel"):
                if (disk / "root" / path).exists():
                    copy(disk / "root" / path, target / path.replace("/", "-"))
        counters = "".join(f"{a}>{b} {counts}\n" for (a, b), counts in self.counters().items())
        (directory / "link").write_text(f"{self.describe()}\n{counters}")
        say(f"what is known about the failure: {directory}")
        return directory

    def wait(
        self,
        predicate: Callable[[], bool],
        deadline: float,
        what: str,
        *,
        every: float = POLL_SECONDS,
    ) -> float:
        """Poll until it holds; returns the seconds it took. Raises TimeoutError naming `what`."""
        begun = time.monotonic()
        while not predicate():
            if time.monotonic() - begun > deadline:
                raise TimeoutError(f"waited {deadline:g} s in vain for {what}")
            time.sleep(every)
        return time.monotonic() - begun

    # --- what the verbs are made of

    def state(self) -> State:
        """What the lab remembers. Raises LabError when it isn't up."""
        found = state.read(self.instance)
        if found is None or not state.alive(found):
            raise LabError(f"lab {self.instance!r} is not up\nhint: netns/lab up")
        return found

    def machine(self, name: Name) -> Machine:
        """One appliance. Raises LabError for a name that isn't in the lab."""
        members = self.state().members
        if name not in members:
            raise LabError(f"no appliance {name!r}\nhint: there are {', '.join(members)}")
        return self._machine(name)

    def _machine(self, name: Name) -> Machine:
        current = self.state()
        return Machine(
            node=self._node(current, name), instance=self.instance, anchor_pid=current.anchor_pid
        )

    def _node(self, current: State, name: Name) -> Node:
        return node(name, current.family, host=current.hosts.get(name, 0))

    def _link(self, current: State) -> Link:
        return backends.link_of(self.instance, current)

    @contextlib.contextmanager
    def _starting(self, make: Callable[[int], State]) -> Iterator[None]:
        """Make the namespaces and the link of a new lab; when the body fails, nothing is left."""
        with contextlib.ExitStack() as undo:
            with state.locked(self.instance):
                found = state.read(self.instance)
                if found and state.alive(found):
                    raise LabError(f"lab {self.instance!r} is up already\nhint: netns/lab down")
                undo.callback(self.down)
                directory = state.directory(self.instance)
                shutil.rmtree(directory, ignore_errors=True)
                directory.mkdir(mode=0o700, parents=True)
                current = make(anchor.start(directory, group_of(self.instance)))
                state.write(self.instance, current)
                backends.create(self.instance, current)
                try:
                    yield
                except TimeoutError:
                    self.collect_failure()
                    raise
            undo.pop_all()

    def _power_on(self, which: Sequence[Name]) -> None:
        current = self.state()
        link = self._link(current)
        machines = [self._machine(name) for name in which]
        for machine in machines:
            self._power_off(machine)
            machine.add_namespace()
            link.attach(machine.node)
        link.shape(current.qualities)
        for machine in machines:
            machine.boot()
        for machine in machines:
            self.wait(machine.booted, BOOT_SECONDS, f"{machine.name} to boot")
            for unit in machine.failed_units():
                say(f"{machine.name}: failed: {unit}")

    def _power_off(self, machine: Machine) -> None:
        machine.cut_power()
        self._link(self.state()).detach(machine.node)
        machine.delete_namespace()

    def _reshape(self, name: Name, change: Callable[[Quality], Quality]) -> None:
        self.machine(name)
        with self._changing() as current:
            changed = {pair: change(q) for pair, q in current.qualities.items() if name in pair}
            current.qualities |= changed
            self._link(current).shape(changed)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[State]:
        with state.locked(self.instance):
            current = self.state()
            yield current
            state.write(self.instance, current)


def _snapshot(name: str) -> Path:
    if not name.replace("-", "").isalnum():
        raise LabError(f"not a snapshot's name: {name!r}\nhint: letters, digits and dashes")
    return image.cache() / "snapshots" / name


def has_snapshot(snapshot: str) -> bool:
    """Whether a lab was saved under this name."""
    return _snapshot(snapshot).exists()


def forget_snapshot(snapshot: str) -> None:
    """Remove a saved lab; nothing happens when there is none."""
    shutil.rmtree(_snapshot(snapshot), ignore_errors=True)
