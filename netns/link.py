"""What joins the appliances: the Protocol that both backends follow, and the fate of a packet;
pure.

(R1) Each ordered pair has a random generator of its own, so that one pair's traffic never changes
another's luck.
(R2) A packet's delay is drawn when it enters. Packets leave in order of time, so jitter reorders,
as netem's does.
(R3) Every packet is counted exactly once: carried, lost, cut, or too big.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from netns.topology import Name, Node, Quality

Pair = tuple[Name, Name]


@dataclass(slots=True, kw_only=True)
class Counters:
    """What happened to one direction's packets."""

    carried: int = 0
    carried_bytes: int = 0
    lost: int = 0
    cut: int = 0
    too_big: int = 0


class Link(Protocol):
    """A backend. All calls are idempotent."""

    name: str

    def attach(self, member: Node) -> None:
        """Give the namespace of that name its interface, with its addresses, up."""
        ...

    def detach(self, member: Node) -> None:
        """Take the interface away."""
        ...

    def shape(self, qualities: Mapping[Pair, Quality]) -> None:
        """Set these directions; others stay as they are."""
        ...

    def counters(self) -> dict[Pair, Counters]:
        """What was carried and what was not, per direction, since the lab came up."""
        ...


class Shaper:
    """Decides when, and whether, each packet arrives. Time is in seconds and handed in."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._chance: dict[Pair, random.Random] = {}
        self._qualities: dict[Pair, Quality] = {}
        self._queue: list[tuple[float, int, Name, bytes]] = []
        self._accepted = 0
        self.counters: dict[Pair, Counters] = {}

    def shape(self, pair: Pair, quality: Quality) -> None:
        """Set one direction; what is already on its way arrives as it would have."""
        self._qualities[pair] = quality

    def offer(self, pair: Pair, packet: bytes, now: float) -> None:
        """A packet enters the link at `now`."""
        quality = self._qualities.get(pair)
        counters = self.counters.setdefault(pair, Counters())
        if quality is None or quality.cut:
            counters.cut += 1
            return
        if len(packet) > quality.mtu:
            counters.too_big += 1
            return
        chance = self._chance.get(pair)
        if chance is None:
            chance = self._chance[pair] = random.Random(f"{self._seed} {pair[0]} {pair[1]}")
        if chance.random() * 100 < quality.loss_percent:
            counters.lost += 1
            return
        counters.carried += 1
        counters.carried_bytes += len(packet)
        delay_ms = quality.delay_ms + quality.jitter_ms * (2 * chance.random() - 1)
        self._accepted += 1  # keeps packets of one moment in order
        heapq.heappush(self._queue, (now + delay_ms / 1000, self._accepted, pair[1], packet))

    def due(self, now: float) -> list[tuple[Name, bytes]]:
        """What arrives by `now`, in order of arrival; each packet once."""
        arrived = []
        while self._queue and self._queue[0][0] <= now:
            _, _, target, packet = heapq.heappop(self._queue)
            arrived.append((target, packet))
        return arrived

    def wait_seconds(self, now: float) -> float | None:
        """How long until the next arrival; None when nothing is on its way."""
        return max(0.0, self._queue[0][0] - now) if self._queue else None
