"""Runs commands by turns and prints, as JSON, what each took: wall and CPU seconds, a pair a run.

Arguments: how often, then the commands, each one argument.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time


def measure(command: str) -> tuple[float, float]:
    before, begun = os.times(), time.perf_counter()
    argv = ["sh", "-c", f"exec {command}"]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    took, after = time.perf_counter() - begun, os.times()
    cpu = after.children_user + after.children_system
    return took, cpu - before.children_user - before.children_system


def main(times: str, *commands: str) -> None:
    found: dict[str, list[tuple[float, float]]] = {command: [] for command in commands}
    for _ in range(int(times)):
        for command in commands:
            found[command].append(measure(command))
    json.dump(found, sys.stdout)


main(*sys.argv[1:])
