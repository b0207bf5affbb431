"""Whether a member is up, from packets received and a signed answer, never from what was set.

With a keepalive of 10 s at both ends the received bytes of a living peer grow every 10 s. keel
looks at the counters now and then, so between two looks it knows only that something came after
the one and before the other: it keeps both ends of that range.

(V1) Up: a signed answer just now; or, when nobody asked, something surely received within 25 s.
(V2) Down: surely nothing received for 45 s, or never.
(V3) Suspect: what is between; also one whose packets arrive but who did not answer when asked, in
     full packets: without those nothing works.
(V4) Moments are seconds on the monotonic clock: a wall clock that jumps changes no verdict, and
     the samples live in /run, gone with the boot they belong to.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from keel.ports import WgDevice, WgPeerState
from keel.types import Endpoint, WgKey

SUSPECT_SECONDS = 25.0
"""Two keepalives lost and half a third: one lost packet is no news on a lossy link."""
DOWN_SECONDS = 45.0
"""Four keepalives lost, and the three WireGuard handshakes that follow 15 s of silence."""


class Liveness(StrEnum):
    UP = "up"
    SUSPECT = "suspect"
    DOWN = "down"


class Answer(StrEnum):
    """What came of asking a member for a signed answer in this pass."""

    GIVEN = "given"
    MISSING = "missing"
    NOT_ASKED = "not-asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSample:
    """One peer's counter when last looked at, and when it last grew: after `heard_after`, not
    after `heard_before`; both None when nothing is known to have come yet."""

    received_bytes: int
    sampled_at: float
    heard_after: float | None = None
    heard_before: float | None = None
    heard_at: Endpoint | None = None
    """Where it was when it was heard: it may be there still when it is silent and looked for."""

    @property
    def answered(self) -> bool:
        """Whether it was an answer that was heard: packets alone may be handshakes that fail."""
        return self.heard_before is not None and self.heard_after == self.heard_before


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """What is kept in /run between two looks."""

    peers: Mapping[str, PeerSample] = field(default_factory=dict)
    extra: Mapping[str, object] = field(default_factory=dict)


def take(
    previous: Samples,
    device: WgDevice | None,
    *,
    now: float,
    answered: Collection[WgKey] = (),
) -> Samples:
    """The samples after a look at `device`. Peers that are gone are forgotten; `answered` are the
    keys of those whose signed answer arrived in this pass."""
    peers = device.peers if device is not None else ()
    return Samples(
        peers={
            peer.key: _sample(previous.peers.get(peer.key), peer, now, peer.key in answered)
            for peer in peers
        },
        extra=previous.extra,
    )


def judge(sample: PeerSample | None, *, now: float, answer: Answer) -> Liveness:
    """(V1) to (V3) for one member; without a sample there is no peer for it on the interface."""
    if answer is Answer.GIVEN:
        return Liveness.UP
    if sample is None or sample.heard_after is None or sample.heard_before is None:
        return Liveness.DOWN
    if now - sample.heard_before >= DOWN_SECONDS:
        return Liveness.DOWN
    if answer is Answer.NOT_ASKED and now - sample.heard_after < SUSPECT_SECONDS:
        return Liveness.UP
    return Liveness.SUSPECT


def silent_seconds(sample: PeerSample | None, *, now: float) -> float | None:
    """How long there was surely nothing; None when nothing ever came."""
    if sample is None or sample.heard_before is None:
        return None
    return max(0.0, now - sample.heard_before)


def silent_at_most(sample: PeerSample | None, *, now: float) -> float | None:
    """The other end of the range: something came no longer ago. None when no look bounds it."""
    if sample is None or not sample.heard_after:
        return None
    return max(0.0, now - sample.heard_after)


def _sample(before: PeerSample | None, peer: WgPeerState, now: float, answered: bool) -> PeerSample:
    if before is not None and before.sampled_at > now:
        before = None  # of another boot: /run was kept, the monotonic clock began anew
    heard = (before.heard_after, before.heard_before) if before is not None else (None, None)
    heard_at = before.heard_at if before is not None else None
    if answered:
        heard, heard_at = (now, now), peer.endpoint
    elif _grew(before, peer):
        # Without an earlier look nothing bounds it from below but the start of the clock.
        heard = (before.sampled_at if before is not None else 0.0, now)
        heard_at = peer.endpoint
    return PeerSample(
        received_bytes=peer.received_bytes,
        sampled_at=now,
        heard_after=heard[0],
        heard_before=heard[1],
        heard_at=heard_at,
    )


def _grew(before: PeerSample | None, peer: WgPeerState) -> bool:
    """A counter below the last one started again with its interface; whatever it has is new."""
    if before is None or peer.received_bytes < before.received_bytes:
        return peer.received_bytes > 0
    return peer.received_bytes > before.received_bytes
