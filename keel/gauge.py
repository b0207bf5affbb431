"""The port of measuring: a part of keel.ports that has a room of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
