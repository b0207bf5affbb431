"""What the channel's process does beside serving."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable

import pytest

from keel.cli.channel import watch
from keel.errors import DeadlinePassed
from keel.system.deadtcp import Connection

ONE = Connection(local="[fd00::1]:35568", remote="[fd00::2]:2380")


def test_dead_connections_are_looked_for_while_it_serves(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A look that fails ends nothing, neither the watching nor the service, and is told once."""
    done = threading.Event()
    serving = threading.Thread(target=done.wait, daemon=True)
    looks = 0

    def look() -> Iterable[Connection]:
        nonlocal looks
        looks += 1
        if looks <= 2:
            raise DeadlinePassed("ss", "the kernel")
        done.set()
        serving.join()
        return (ONE,)

    serving.start()
    with caplog.at_level(logging.INFO):
        watch(serving, look, every=0.0)
    assert looks == 3
    first, second = caplog.messages
    assert "not looked for" in first
    assert "[fd00::2]:2380 was dead" in second
