"""The ports of measuring, and of what another process does: parts of keel.ports in a room of their
own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from ipaddress import IPv6Address
from pathlib import Path
from typing import Protocol


class Gauge(Protocol):
    """What this machine's paths and disk can do; leaves nothing behind, bounded in time."""

    def connect_times(
        self,
        addresses: Sequence[IPv6Address],
        port: int,
        *,
        tries: int,
        timeout_seconds: float,
    ) -> Mapping[IPv6Address, tuple[float | None, ...]]:
        """What each connection took in seconds, or None; fewer tries when the time is over."""

    def sync_seconds(self, directory: Path) -> float | None:
        """The median of a small durable write there; None where it cannot be measured."""

    def free_bytes(self, directory: Path) -> int: ...

    def etcd_version(self) -> str | None: ...


Passes = Callable[[str], bytes]
"""Does for the channel's process what that may not, for a word (keel.mesh.passmsg); the answer."""
