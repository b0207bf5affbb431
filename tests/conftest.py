"""What holds for every test."""

import os
import tempfile
from collections import Counter
from pathlib import Path

from _pytest.terminal import TerminalReporter
from hypothesis import settings

# Machines are shared and noisy: no test fails for taking long, and a run is the same every time.
settings.register_profile("keel", deadline=None, derandomize=True)
settings.load_profile("keel")


MEMORY = Path("/dev/shm")
ROOM_BYTES = 1 << 30


def _in_memory() -> None:
    """Scratch files go to memory where there is room and programs may be started from it: whole
    nodes rename ten thousand files, and a file system on a disk flushes at every one."""
    if "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK):
        return
    found = os.statvfs(MEMORY)
    if found.f_bavail * found.f_frsize >= ROOM_BYTES and not found.f_flag & os.ST_NOEXEC:
        os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


_in_memory()

KILLED = "killed at"
"""The property in which a kill test says (story, revival, points died at, points there are)."""


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """How many kill points there were is part of the result, so that they cannot vanish unseen."""
    points: dict[str, int] = {}
    died: Counter[str] = Counter()
    for report in terminalreporter.stats.get("passed", []):
        for name, value in report.user_properties:
            if name == KILLED:
                story, _, died_at, of = value
                points[story] = of
                died[story] += died_at
    for story in sorted(points):
        terminalreporter.write_line(f"{story}: {points[story]} points, died {died[story]} times")
    if points:
        total = f"{sum(points.values())} in {len(points)} stories"
        terminalreporter.write_line(f"kill points: {total}, died {died.total()} times")
