"""What this machine's paths and disk can do: keel.gauge.Gauge. Leaves nothing behind.

(G1) Paths are measured with TCP connections to a port that listens anyway: no privilege, no new
     port, and the kernel's own second try shows a lost packet.
(G2) The disk is measured on a file without a name: not even a directory's time changes.
"""

from __future__ import annotations

import os
import selectors
import socket
import statistics
from collections.abc import Mapping, Sequence
from ipaddress import IPv6Address
from pathlib import Path

from keel.errors import ProcFailed
from keel.ports import Clock, Deadline, Proc

TRY_SECONDS = 3.0
"""The first packet and its first repetition, on a slow path."""
SYNC_BYTES = 2048
SYNCS = 10
"""As large as etcd's usual append, and often enough for a median."""
ENOUGH_SECONDS = 2.0
"""A disk that took so long is known; whoever asked waits for an answer."""


class LinuxGauge:
    """keel.gauge.Gauge on sockets and the file system."""

    def __init__(self, proc: Proc, clock: Clock) -> None:
        self._proc = proc
        self._clock = clock

    def connect_times(
        self,
        addresses: Sequence[IPv6Address],
        port: int,
        *,
        tries: int,
        timeout_seconds: float,
    ) -> Mapping[IPv6Address, tuple[float | None, ...]]:
        found: dict[IPv6Address, list[float | None]] = {one: [] for one in addresses}
        deadline = Deadline.after(self._clock, timeout_seconds)
        for _ in range(tries):
            if deadline.passed(self._clock):
                break
            for address, seconds in self._connect_all(addresses, port).items():
                found[address].append(seconds)
        return {address: tuple(times) for address, times in found.items()}

    def sync_seconds(self, directory: Path) -> float | None:
        try:
            file = os.open(directory, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        except OSError:
            return None  # not every file system has files without a name
        try:
            took = [self._sync(file)]
            while len(took) < SYNCS and sum(took) < ENOUGH_SECONDS:
                took.append(self._sync(file))
            return statistics.median(took)
        finally:
            os.close(file)

    def free_bytes(self, directory: Path) -> int:
        found = os.statvfs(directory)
        return found.f_bavail * found.f_frsize

    def etcd_version(self) -> str | None:
        try:
            said = self._proc.run(["etcd", "--version"], timeout_seconds=10.0).stdout
        except ProcFailed:
            return None
        first = said.decode("utf-8", "replace").partition("\n")[0]
        return first.removeprefix("etcd Version: ").strip() or None

    def _sync(self, file: int) -> float:
        begun = self._clock.monotonic()
        os.pwrite(file, b"\0" * SYNC_BYTES, 0)
        os.fdatasync(file)
        return self._clock.monotonic() - begun

    def _connect_all(
        self, addresses: Sequence[IPv6Address], port: int
    ) -> dict[IPv6Address, float | None]:
        """One connection to each at once; None for whoever refused or did not answer in time."""
        found: dict[IPv6Address, float | None] = dict.fromkeys(addresses)
        begun = self._clock.monotonic()
        with selectors.DefaultSelector() as waiting:
            for address in addresses:
                one = socket.socket(socket.AF_INET6, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
                one.connect_ex((str(address), port))
                waiting.register(one, selectors.EVENT_WRITE, address)
            while waiting.get_map():
                left = begun + TRY_SECONDS - self._clock.monotonic()
                ready = waiting.select(left) if left > 0 else []
                for key, _ in ready:
                    if _error(key.fileobj) == 0:
                        found[key.data] = self._clock.monotonic() - begun
                    _close(waiting, key.fileobj)
                if not ready:
                    break
            for key in list(waiting.get_map().values()):
                _close(waiting, key.fileobj)
        return found


def _error(one: object) -> int:
    assert isinstance(one, socket.socket)  # noqa: S101  # what was registered
    return one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


def _close(waiting: selectors.BaseSelector, one: object) -> None:
    assert isinstance(one, socket.socket)  # noqa: S101  # what was registered
    waiting.unregister(one)
    one.close()
