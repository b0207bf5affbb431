"""Where keel-passes.service is asked: words on a socket of this machine (keel.mesh.passmsg).

(C1) A connection says one word, at once, or is closed; what is no word is dropped, and that is told
     at most once a minute.
(C2) A word that is answered takes a thread; while ANSWERS of them are at work no more are taken.
(C3) What nobody needs for IDLE_SECONDS ends; whoever knocks then is systemd's to wake it for.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import threading
from collections.abc import Callable, Sequence

from keel.errors import KeelError, UsageError
from keel.mesh import passmsg
from keel.mesh.passmsg import ANSWERED, Ask
from keel.mesh.refusal import refusal_of
from keel.ports import Clock

IDLE_SECONDS = 300.0
LOOK_SECONDS = 1.0
WORD_SECONDS = 1.0
"""Between a connection and its word: on a busy machine who asks may be put aside amid the two."""
TOLD_SECONDS = 60.0
ANSWERS = 4

log = logging.getLogger(__name__)


class Counter:
    """Takes the words that come by the sockets; `run` blocks until it is stopped or not needed."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        answer: Callable[[Ask], bytes],
        *,
        clock: Clock,
        needed: Callable[[], bool],
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        if not sockets:
            raise UsageError("no socket was passed; the passes are started by keel-passes.socket")
        self._listening = sockets[0]
        self._answer = answer
        self._clock = clock
        self._needed = needed
        self._look_seconds = look_seconds
        self._stopped = threading.Event()
        self._at_work = threading.BoundedSemaphore(ANSWERS)
        self._dropped = 0
        self._told = clock.monotonic() - TOLD_SECONDS

    def run(self) -> None:
        since = self._clock.monotonic()
        poll = select.poll()
        poll.register(self._listening, select.POLLIN)
        while not self._stopped.is_set():
            now = self._clock.monotonic()
            if poll.poll(self._look_seconds * 1000):
                self._take_one()
                since = now
            elif now - since >= IDLE_SECONDS:
                if not self._needed():
                    return
                since = now

    def stop(self) -> None:
        """Soon, from any thread."""
        self._stopped.set()

    def _take_one(self) -> None:
        with contextlib.suppress(OSError):  # who knocked may be gone
            way, _ = self._listening.accept()
            way.settimeout(WORD_SECONDS)
            try:
                ask = passmsg.parse_ask(way.recv(passmsg.MAX_ASK_BYTES + 1))
            except OSError:
                ask = None
            self._do(ask, way)

    def _do(self, ask: Ask | None, way: socket.socket) -> None:
        if ask is not None and ask in ANSWERED:
            if self._at_work.acquire(blocking=False):
                threading.Thread(target=self._reply, args=(ask, way), daemon=True).start()
                return
        elif ask is None:
            self._drop()
        else:
            self._obey(ask)
        way.close()

    def _obey(self, ask: Ask) -> None:
        try:
            self._answer(ask)
        except KeelError as error:
            log.warning("%s: %s", ask, error.summary())

    def _reply(self, ask: Ask, way: socket.socket) -> None:
        with way, contextlib.suppress(OSError):  # who asked may have given up
            try:
                raw = passmsg.done(self._answer(ask))
            except KeelError as error:
                raw = passmsg.refused(refusal_of(error))
            finally:
                self._at_work.release()
            way.settimeout(WORD_SECONDS)
            way.send(raw)

    def _drop(self) -> None:
        self._dropped += 1
        now = self._clock.monotonic()
        if now - self._told >= TOLD_SECONDS:
            log.warning("%d messages that are no word were dropped", self._dropped)
            self._told, self._dropped = now, 0
