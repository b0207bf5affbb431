"""Protocols for every effect: what flows may ask of the machine, the network and etcd.

The real ones live in keel.system (and mesh.client, mesh.etcdclient), fakes in tests/fakes. A flow
takes one frozen Host as its first argument. Every effect is idempotent and bounded by a deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, IPv6Network
from pathlib import Path
from typing import Protocol

from keel.etcdport import EtcdAt, EtcdOverlay
from keel.gauge import Gauge, Passes
from keel.monitor import AlertsOut, MetricsOut
from keel.paths import Paths
from keel.types import Endpoint, Secret, WgKey


class Clock(Protocol):
    def now(self) -> datetime:
        """The wall clock, aware, UTC."""

    def monotonic(self) -> float:
        """Seconds that never go back; for deadlines."""

    def sleep(self, seconds: float) -> None: ...


class Chance(Protocol):
    def bytes(self, size: int) -> bytes:
        """Unpredictable bytes, good enough for keys."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on the monotonic clock; handed down, so that sub-steps share one budget."""

    at: float

    @classmethod
    def after(cls, clock: Clock, seconds: float) -> Deadline:
        return cls(clock.monotonic() + seconds)

    def remaining(self, clock: Clock) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.at - clock.monotonic())

    def passed(self, clock: Clock) -> bool:
        return self.remaining(clock) <= 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Who may use a file: its mode bits, and its owner's name."""

    mode: int
    owner: str


class Files(Protocol):
    """State on disk. A write is whole or not at all, and durable when the call returns:
    temporary file in the same directory with its final mode, fsync, rename, fsync the directory."""

    def read(self, path: Path, *, max_bytes: int = 1 << 20) -> bytes | None:
        """The bytes, or None when there is no such file; StateCorrupt when larger. Follows no
        symbolic link in the last component."""

    def write(
        self, path: Path, data: bytes, *, mode: int = 0o600, owner: str | None = None
    ) -> None:
        """Replace atomically and durably; the directory must exist."""

    def create(self, path: Path, data: bytes, *, mode: int = 0o600) -> bool:
        """As write, but only when there is no such file yet; False (nothing done) when there is."""

    def append(self, path: Path, line: bytes, *, mode: int = 0o600) -> None:
        """Add one line (without its newline) durably; a torn last line of a crash is cut first."""

    def make_dir(self, path: Path, *, mode: int = 0o700, owner: str | None = None) -> None:
        """With parents of the same mode; a directory that is there gets this mode and owner."""

    def names(self, path: Path) -> tuple[str, ...]:
        """Sorted names in a directory, without keel's own temporary files; () when absent."""

    def exists(self, path: Path) -> bool: ...

    def access(self, path: Path) -> Access | None:
        """Of the name itself, no link followed; None when there is no such name."""

    def remove(self, path: Path) -> None:
        """One file, or one directory tree; absent is fine. Durable."""

    def rename(self, source: Path, target: Path) -> None:
        """Move a file or directory to a new name (target must not exist); both parents fsynced."""


class Locks(Protocol):
    def hold(
        self, path: Path, *, what: str, wait_seconds: float = 0.0
    ) -> AbstractContextManager[None]:
        """An flock with the holder's pid inside; LockHeld when another has it after the wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    returncode: int
    stdout: bytes
    stderr: bytes


class Proc(Protocol):
    """The one door to other programs: argument lists only, a clean environment, stdin /dev/null
    unless given, bounded output and time."""

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout_seconds: float = 30.0,
        check: bool = True,
    ) -> Completed:
        """ProcFailed when `check` and the status is not 0 (127 when it does not exist)."""


class WgBackend(StrEnum):
    KERNEL = "kernel"
    USERSPACE = "wireguard-go"


@dataclass(frozen=True, slots=True, kw_only=True)
class WgPeer:
    """A peer as keel wants it."""

    key: WgKey
    allowed: IPv6Address
    endpoint: Endpoint | None = None
    keepalive_seconds: int = 10
    preshared: Secret | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WgPeerState:
    """A peer as `wg show NAME dump` reports it."""

    key: WgKey
    endpoint: Endpoint | None
    allowed: tuple[str, ...]
    latest_handshake: datetime | None
    received_bytes: int
    sent_bytes: int
    keepalive_seconds: int
    has_preshared: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WgDevice:
    """An interface with its peers; keys are public ones."""

    name: str
    key: WgKey | None
    port: int
    backend: WgBackend
    mtu: int
    addresses: tuple[IPv6Address, ...]
    peers: tuple[WgPeerState, ...]


class WireGuard(Protocol):
    """Drives the kernel's WireGuard and wireguard-go through `wg` alone."""

    def show(self, interface: str) -> WgDevice | None:
        """None when the interface does not exist."""

    def raise_interface(self, interface: str, *, port: int, mtu: int, private: Secret) -> WgBackend:
        """Make it if need be (kernel, else wireguard-go's unit), set key, port and MTU, up.
        An interface with the same key keeps its peers and sessions."""

    def set_address(self, interface: str, address: IPv6Address, prefix: IPv6Network) -> None:
        """Exactly this one ULA on the interface, as a /128, with the prefix routed to it."""

    def set_peer(self, interface: str, peer: WgPeer) -> None:
        """Add or change one peer; an endpoint of None leaves a learned one alone."""

    def remove_peer(self, interface: str, key: WgKey) -> None: ...

    def drop_interface(self, interface: str) -> None: ...


class Firewall(Protocol):
    def load(self, ruleset: str) -> None:
        """Replace the table `inet keel` atomically with this nft text."""

    def drop(self) -> None:
        """Remove the table; absent is fine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitRuns:
    """What a start of it runs, and as whom, in systemd's own words, one command a line; all empty
    where no such unit is loaded."""

    start: str = ""
    before: str = ""
    user: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitState:
    active: str
    sub: str
    main_pid: int
    invocation_id: str
    enabled: str
    stale: bool = False
    """Its files are newer than what systemd loaded."""
    runs: UnitRuns = field(default_factory=UnitRuns)
    comes_up: bool = False
    """Its start is under way or due, and is no other try of one that came to nothing."""


class Units(Protocol):
    """systemd, through systemctl."""

    def state(self, unit: str) -> UnitState: ...

    def start(self, *units: str, block: bool = True) -> None: ...

    def stop(self, unit: str) -> None: ...

    def restart(self, unit: str, *, block: bool = True) -> None: ...

    def enable(self, *units: str) -> None:
        """At every boot. What systemd has loaded stays as it is."""

    def disable(self, unit: str) -> None: ...

    def reload_configuration(self) -> None:
        """daemon-reload."""

    def schedule(self, unit: str, *, seconds: float) -> None:
        """Start this service once after so many seconds, to the second; forgotten by a reboot.
        ProcFailed when it is scheduled already."""

    def unschedule(self, unit: str) -> None:
        """The reverse; fine when it is not scheduled."""

    def scheduled(self, unit: str) -> bool:
        """Whether its time is still to come."""


class Machine(Protocol):
    """Facts and knobs of this machine that are neither files nor units."""

    def hostname(self) -> str: ...

    def underlay_endpoints(self, port: int) -> tuple[Endpoint, ...]:
        """This node's own global underlay addresses with that port, overlays left out."""

    def is_root(self) -> bool: ...

    def ssh_sessions(self) -> tuple[IPv4Address | IPv6Address, ...]:
        """The far ends of sshd's established connections."""

    def clock_synchronized(self) -> bool:
        """Whether NTP keeps this host's clock; False when it cannot be told."""

    def bound_tcp(self) -> str:
        """Bound TCP's silence after a cut (design section 5); the setting that holds now."""

    def tcp_bound_now(self) -> str:
        """What bounds it, as `tcp_rto_max_ms=2000` or `tcp_retries2=5`; `off` when nothing does.
        Changes nothing."""

    def unbound_tcp(self) -> None:
        """Back to the kernel's defaults."""


class Console(Protocol):
    """What a person sees while something slow goes on; stderr only."""

    def say(self, text: str) -> None:
        """One line about what changed."""

    def waiting(self, text: str) -> None:
        """What is waited for and who is missing; may replace the previous such line."""


Meanwhile = Callable[[], object]


class ChannelOut(Protocol):
    """The members' channel, out: bytes in, bytes out; flows make and check the envelopes."""

    def post(
        self, address: IPv6Address, path: str, body: bytes, *, timeout_seconds: float
    ) -> bytes:
        """PeerError with reason `unreachable` or `timeout`; the body of any HTTP answer else."""

    def post_all(
        self,
        requests: Mapping[IPv6Address, bytes],
        path: str,
        *,
        timeout_seconds: float,
        meanwhile: Meanwhile | None = None,
    ) -> Mapping[IPv6Address, bytes | Exception]:
        """The same to many in parallel; every failure stands beside its member. `meanwhile` is run
        once, here, while the answers are on their way."""

    def close(self) -> None:
        """Close every kept connection (an address may have changed); a later post opens new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Everything a flow may touch; built once, by the composition root (or by a test)."""

    paths: Paths
    clock: Clock
    chance: Chance
    files: Files
    locks: Locks
    proc: Proc
    wireguard: WireGuard
    firewall: Firewall
    units: Units
    machine: Machine
    gauge: Gauge
    console: Console
    channel: ChannelOut
    etcd_at: EtcdAt
    overlay: EtcdOverlay
    alerts: AlertsOut
    metrics: MetricsOut
    passes: Passes

    @property
    def overlay_etcd_installed(self) -> bool:
        """Whether this appliance carries the etcd overlay now (E1)."""
        return self.overlay.installed()
