"""The way from the channel's process to the passes: /run/keel/passes.sock (keel.mesh.passmsg).

(P1) A kick waits for nothing: whoever listens takes it when it can. One that nobody takes is lost,
     and the timer's pass does it.
(P2) The channel asks for nothing else of systemd.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

from keel.errors import DeadlinePassed, Internal, ProcFailed
from keel.mesh.passmsg import ANSWERED, MAX_ANSWER_BYTES
from keel.ports import UnitState
from keel.unitnames import PASSES_SOCKET

SEND_SECONDS = 1.0
ANSWER_SECONDS = 60.0
"""Loading all takes two seconds on a small machine, stopping an etcd longer."""

log = logging.getLogger(__name__)


class PassesSocket:
    """Says a word; the answer of one that has one."""

    def __init__(self, path: Path, *, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._path = path
        self._answer_seconds = answer_seconds

    def __call__(self, word: str) -> bytes:
        """The raw answer. A word without one is never an error (P1)."""
        try:
            return self._say(word)
        except OSError as error:
            why = error.strerror or "nobody answers"
            if word not in ANSWERED:
                log.warning("%s: %s; the timer's pass comes", word, why)
                return b""
            if isinstance(error, TimeoutError):
                raise DeadlinePassed(f"{word} at keel-passes.service", "its answer") from error
            raise ProcFailed(["systemctl", "status", PASSES_SOCKET], 1, why) from error

    def _say(self, word: str) -> bytes:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as way:
            way.settimeout(SEND_SECONDS)
            way.connect(str(self._path))
            way.send(word.encode())
            if word not in ANSWERED:
                return b""
            way.settimeout(self._answer_seconds)
            return way.recv(MAX_ANSWER_BYTES)


class KickedUnits:
    """keel.ports.Units of the channel's process: some units can be started, by their word, and
    whatever else it asks for is a bug (P2)."""

    def __init__(self, say: Callable[[str], object], words: Mapping[str, str]) -> None:
        self._say = say
        self._words = words

    def start(self, *units: str, block: bool = True) -> None:
        if block or not set(units) <= self._words.keys():
            raise _beyond(f"the start of {', '.join(units)}")
        for unit in units:
            self._say(self._words[unit])

    def state(self, unit: str) -> UnitState:
        raise _beyond(f"the state of {unit}")

    def stop(self, unit: str) -> None:
        raise _beyond(f"the stop of {unit}")

    def restart(self, unit: str, *, block: bool = True) -> None:
        raise _beyond(f"the restart of {unit}, {block=}")

    def enable(self, *units: str) -> None:
        raise _beyond(f"the enabling of {', '.join(units)}")

    def disable(self, unit: str) -> None:
        raise _beyond(f"the disabling of {unit}")

    def reload_configuration(self) -> None:
        raise _beyond("a reload")

    def schedule(self, unit: str, *, seconds: float) -> None:
        raise _beyond(f"{unit} in {seconds:.0f} s")

    def unschedule(self, unit: str) -> None:
        raise _beyond(f"no more of {unit}")

    def scheduled(self, unit: str) -> bool:
        raise _beyond(f"when {unit} starts")


def _beyond(what: str) -> Internal:
    return Internal(f"the channel asks systemd for {what}")
