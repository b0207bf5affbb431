"""The only place where keel looks at a clock or waits."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class SystemClock:
    """keel.ports.Clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            time.sleep(seconds)
