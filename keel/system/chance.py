"""The only place where keel takes unpredictable bytes."""

from __future__ import annotations

import os


class SystemChance:
    """keel.ports.Chance: the kernel's."""

    def bytes(self, size: int) -> bytes:
        return os.urandom(size)
