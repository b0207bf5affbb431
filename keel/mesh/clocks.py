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


def is_off(heard: Heard | None, *, now: datetime, monotonic: float) -> bool:
    """Whether this node's clock differs from most of those that answered; nobody heard in this
    boot says nothing against it."""
    if heard is None or heard.monotonic > monotonic:
        return False
    was_set = (now - heard.now).total_seconds() - (monotonic - heard.monotonic)
    differ = [one for one in heard.ahead if abs(one - was_set) >= LIMIT.total_seconds()]
    return 2 * len(differ) > len(heard.ahead)
