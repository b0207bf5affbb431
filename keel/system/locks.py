"""Locks between processes: flock on a file that holds its holder's pid.

The kernel drops the lock with the process, so a killed keel never leaves one behind. The file
itself stays: removing it would let two processes lock two files of one name.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from keel.errors import DiskTrouble, LockHeld
from keel.ports import Clock, Console, Deadline
from keel.system.disk import NO_FOLLOW

POLL_SECONDS = 0.1
SILENT_SECONDS = 1.0
"""After that whoever waits is told for what."""


class Flocks:
    """keel.ports.Locks; the console shows what is waited for."""

    def __init__(self, clock: Clock, console: Console) -> None:
        self._clock = clock
        self._console = console

    @contextmanager
    def hold(self, path: Path, *, what: str, wait_seconds: float = 0.0) -> Iterator[None]:
        descriptor = _open(path)
        try:
            self._wait(descriptor, what, Deadline.after(self._clock, wait_seconds))
            _note(descriptor, f"{os.getpid()}\n".encode())
            try:
                yield
            finally:
                _note(descriptor, b"")
        finally:
            os.close(descriptor)

    def _wait(self, descriptor: int, what: str, deadline: Deadline) -> None:
        silent = Deadline.after(self._clock, SILENT_SECONDS)
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                held = LockHeld(_holder(descriptor), what)
                if deadline.passed(self._clock):
                    raise held from error
                if silent.passed(self._clock):
                    self._console.waiting(f"waiting: {held.summary()}")
                self._clock.sleep(min(POLL_SECONDS, deadline.remaining(self._clock)))
            else:
                return


def _open(path: Path) -> int:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | NO_FOLLOW, 0o600)
    except OSError as error:
        raise DiskTrouble(path, error.errno or 0) from error


def _note(descriptor: int, text: bytes) -> None:
    """Who holds it; on a full disk it holds all the same, and nobody is told by whom."""
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text, 0)


def _holder(descriptor: int) -> int | None:
    text = os.pread(descriptor, 32, 0).strip()
    return int(text) if text.isdigit() else None
