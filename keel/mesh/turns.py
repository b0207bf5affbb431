"""Whose turn it is at the channel: the bounds of each kind of message (keel.mesh.limits, L1)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from keel.errors import Refused
from keel.mesh.limits import Bound, Buckets


class Turns:
    """What is under way, and how often each asked; `now` is the monotonic clock's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: Counter[tuple[str, Hashable]] = Counter()
        self._rates: dict[str, Buckets] = {}

    def __len__(self) -> int:
        return len(self._under_way)

    @contextmanager
    def taken(self, kind: str, member: Hashable, bound: Bound, now: float) -> Iterator[None]:
        """A turn, for as long as the context lasts; Refused `channel-often` or `channel-busy`."""
        with self._lock:
            self._refuse(kind, member, bound, now)
            self._under_way[kind, member] += 1
        try:
            yield
        finally:
            with self._lock:
                self._under_way[kind, member] -= 1
                self._under_way += Counter()  # forgets who has none

    def _refuse(self, kind: str, member: Hashable, bound: Bound, now: float) -> None:
        if not self._rates.setdefault(kind, Buckets(bound.rate)).take(member, now):
            raise Refused(
                "channel-often",
                f"more {kind} messages came from this member than any pass of keel sends",
                "wait half a minute, then run the same command again",
            )
        mine = self._under_way[kind, member]
        total = sum(n for (each, _), n in self._under_way.items() if each == kind)
        if _reached(mine, bound.of_member) or _reached(total, bound.at_once):
            raise Refused(
                "channel-busy",
                f"as many {kind} messages as may be are being answered, this member's or others'",
                "wait a minute, then run the same command again",
            )


def _reached(number: int, bound: int | None) -> bool:
    return bound is not None and number >= bound
