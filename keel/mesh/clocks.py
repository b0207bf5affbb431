"""Whether this node's clock is right, by what the members' signed answers say of the time.

Pure. keel issues and forms nothing while its clock differs from most answering members' by five
minutes or more (design section 3). Each sync keeps what it heard in /run, with both of its own
clocks: a wall clock that was set since moves every difference by as much as it left the monotonic
one, so that the judgement follows at once, in either direction, without asking again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

LIMIT = timedelta(seconds=300)
"""As far apart as two members' messages may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """How far each answering member's clock was ahead of this node's, in seconds, and what this
    node's own two clocks said then."""

    ahead: tuple[float, ...]
    now: datetime
    monotonic: float
    extra: Mapping[str, object] = field(default_factory=dict)


def ahead_by(said: datetime, asked: datetime, heard: datetime) -> timedelta:
    """How far a member's clock is surely from ours: nothing while what it said lies between the
    question and the answer; positive when it is ahead."""
    return said - min(max(said, asked), heard)


@dataclass(frozen=True, slots=True, kw_only=True)
class Highest:
    """The highest time that this node has seen and had reason to believe."""

    time: datetime
    extra: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What speaks for and against the clock. `heard` members answered in this boot, `differ` of
    them by five minutes or more; `before`: the highest time seen, when the clock is before it and
    nobody was heard; `damaged`: nobody was heard, and that time cannot be read."""

    heard: int = 0
    differ: int = 0
    before: datetime | None = None
    damaged: bool = False

    @property
    def off(self) -> bool:
        """Whether nothing may be signed by it; what cannot be judged counts as wrong."""
        return 2 * self.differ > self.heard or self.before is not None or self.damaged


def judge(
    heard: Heard | None,
    highest: Highest | None,
    *,
    now: datetime,
    monotonic: float,
    damaged: bool = False,
) -> Judged:
    """Whether this node's clock can be right, by those that answered in this boot; by `highest`
    while there are none."""
    if heard is None or heard.monotonic > monotonic:
        before = highest.time if highest is not None and now < highest.time else None
        return Judged(before=before, damaged=damaged)
    was_set = (now - heard.now).total_seconds() - (monotonic - heard.monotonic)
    differ = [one for one in heard.ahead if abs(one - was_set) >= LIMIT.total_seconds()]
    return Judged(heard=len(heard.ahead), differ=len(differ))


def vouched(judged: Judged, *, ntp: bool) -> bool:
    """Whether the time may be kept as the highest seen: most members agree with it, or, while none
    was heard, NTP does. A damaged file is the operator's to replace."""
    return not judged.off if judged.heard else ntp and not judged.damaged
