"""What a person sees while something slow goes on: stderr only, never data.

On a terminal the line that says what is waited for stays at the bottom and is replaced; elsewhere
it is printed when it changes and as a heartbeat at least every 15 s. Colour never carries meaning
alone; it is off unless stderr is a terminal, and off for NO_COLOR and TERM=dumb.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from typing import Literal, TextIO

from keel.ports import Clock

HEARTBEAT_SECONDS = 15.0
Colour = Literal["auto", "always", "never"]

_ERASE = "\r\x1b[K"
_DIM = "\x1b[2m"
_PLAIN = "\x1b[0m"


def use_colour(stream: TextIO, environ: Mapping[str, str], colour: Colour = "auto") -> bool:
    """Whether to colour this stream; an empty NO_COLOR counts as unset (no-color.org)."""
    if colour != "auto":
        return colour == "always"
    if environ.get("NO_COLOR") or environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


class StderrConsole:
    """keel.ports.Console. `quiet` keeps all of it back."""

    def __init__(
        self,
        clock: Clock,
        *,
        stream: TextIO | None = None,
        environ: Mapping[str, str] | None = None,
        colour: Colour = "auto",
        quiet: bool = False,
    ) -> None:
        environ = os.environ if environ is None else environ
        self._clock = clock
        self._stream = stream if stream is not None else sys.stderr
        self._live = self._stream.isatty() and environ.get("TERM") != "dumb"
        self._colour = use_colour(self._stream, environ, colour)
        self._quiet = quiet
        self._shown: str | None = None
        self._shown_at = 0.0

    def say(self, text: str) -> None:
        self.end()
        self._print(f"{text}\n")

    def waiting(self, text: str) -> None:
        now = self._clock.monotonic()
        if self._live:
            width = shutil.get_terminal_size().columns
            line = text if len(text) < width else f"{text[: width - 4]}..."
            self._print(f"{_ERASE}{_DIM}{line}{_PLAIN}" if self._colour else f"{_ERASE}{line}")
        elif text != self._shown or now - self._shown_at >= HEARTBEAT_SECONDS:
            self._print(f"{text}\n")
        else:
            return
        self._shown, self._shown_at = text, now

    def end(self) -> None:
        """Take the live line away; before anything else is written to the terminal."""
        if self._live and self._shown is not None:
            self._print(_ERASE)
        self._shown = None

    def _print(self, text: str) -> None:
        if self._quiet:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            # The reader of stderr is gone; what keel does matters more than who watches.
            self._quiet = True
