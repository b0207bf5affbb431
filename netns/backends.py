"""Makes and finds the link of a running lab, whichever backend it has."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from netns import state
from netns.appliance import within
from netns.link import Link
from netns.netem import NetemLink
from netns.probe import Backend
from netns.process import SHORT_PATIENCE_SECONDS, output
from netns.state import State
from netns.userspace import UserspaceLink

# $1 checkout, $2 Python, $3 state directory, $4 seed. Leaves a child of the anchor behind.
CARRY = """
cd "$1"
setsid "$2" -m netns.userspace "$3/link.sock" "$4" </dev/null >"$3/link.log" 2>&1 &
"""


def link_of(instance: str, current: State) -> Link:
    """The link of a lab that is up."""
    if current.backend == Backend.NETEM:
        return _netem(current)
    return UserspaceLink(state.directory(instance) / "link.sock")


def create(instance: str, current: State) -> None:
    """Start the link of a lab that is coming up; nobody is attached to it yet."""
    if current.backend == Backend.NETEM:
        _netem(current).create()
        return
    directory = state.directory(instance)
    arguments = [Path(__file__).parent.parent, sys.executable, directory, current.seed]
    argv = ["sh", "-c", CARRY, "carry", *map(str, arguments)]
    subprocess.run(within(current.anchor_pid, argv), check=True)
    deadline = time.monotonic() + SHORT_PATIENCE_SECONDS
    while not (directory / "link.sock").exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the link does not start: {(directory / 'link.log').read_text()}")
        time.sleep(0.02)


def _netem(current: State) -> NetemLink:
    def run(argv: Sequence[str]) -> str:
        return output(within(current.anchor_pid, argv))

    return NetemLink(run, current.seed)
