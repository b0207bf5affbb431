"""Watches every process of this appliance until stdin ends; then prints what was ever seen in an
argument list or an environment, one value a line; every byte as the character of that number.
"""

from __future__ import annotations

import os
import select
import sys
from pathlib import Path

PAUSE_SECONDS = 0.03


def look(seen: set[bytes]) -> None:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for name in ("cmdline", "environ"):
            try:
                seen.update(Path("/proc", pid, name).read_bytes().split(b"\0"))
            except OSError:  # it has ended
                continue


def main() -> None:
    seen: set[bytes] = set()
    sys.stdout.write("watching\n")
    sys.stdout.flush()
    while not select.select([sys.stdin], [], [], PAUSE_SECONDS)[0]:
        look(seen)
    sys.stdout.write("\n".join(sorted(value.decode("latin-1") for value in seen)))


main()
