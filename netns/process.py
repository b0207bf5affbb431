"""The lab's door to other programs."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PATIENCE_SECONDS = 300.0
"""How long a command or a look is waited for that has no limit of its own: against waiting for
ever, and no measure of speed. On a machine that others load too, the slowest seen took a third."""
SHORT_PATIENCE_SECONDS = 60.0
"""The same for what takes moments: a process that was told to end, a question to systemd."""


@dataclass(slots=True, kw_only=True)
class Capture:
    """A running capture of an appliance's underlay."""

    path: Path
    process: subprocess.Popen[bytes]

    def stop(self) -> Path:
        """End it, everything written; returns the file."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGINT)
        # until tcpdump, not only nsenter, has closed stderr
        self.process.communicate(timeout=SHORT_PATIENCE_SECONDS)
        return self.path


def run(
    argv: Sequence[str], *, input: str = "", timeout: float
) -> subprocess.CompletedProcess[str]:
    """Like subprocess.run, but a time-out ends the whole process group: nsenter's child would live
    on.
    """
    process = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        out, err = process.communicate(input, timeout=timeout)
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    return subprocess.CompletedProcess(argv, process.returncode, out, err)


def output(argv: Sequence[str]) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def copy(source: Path, target: Path) -> None:
    """A directory with owners, modes, devices and overlayfs's attributes."""
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", source, target], check=True)
