"""A terminal for what asks: with what an operator types, or to show something at."""

from __future__ import annotations

import io


class Typed(io.StringIO):
    def isatty(self) -> bool:
        return True
