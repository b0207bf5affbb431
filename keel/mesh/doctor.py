"""`keel mesh doctor`: what keeps this node from signing, looked at piece by piece (O5).

Owns the look at the clock and the one thing that an operator can do about it here. Changes nothing
but when it is told to accept the clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from keel import codec
from keel.errors import Refused
from keel.mesh import store, talk
from keel.mesh.clocks import Judged
from keel.outcome import Done, Plan
from keel.ports import Host

SET_RIGHT = "set this node's clock right: `timedatectl set-ntp true`, then `keel mesh sync`"
ACCEPT = "if the clock is right: `keel mesh doctor --accept-clock`; if not: `timedatectl set-time`"

UNHEARD = "no member was heard since the boot, and NTP does not keep it: nothing is renewed by it"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockFound:
    """The clock and what speaks for and against it. `why`: what is wrong; `remedy`: what to type;
    both empty while nothing is."""

    now: datetime
    highest: datetime | None
    judged: Judged
    synchronized: bool
    why: str
    remedy: str


def look_at_clock(host: Host) -> ClockFound:
    """This node's clock; asks NTP, but no member: those were heard by the last sync."""
    node = store.require(host)
    highest, _ = talk.load_highest_time(host)
    judged = talk.judge_clock(host)
    why, remedy = _verdict(judged)
    if not why and talk.clock_is_unheard(host, node):
        why, remedy = UNHEARD, ACCEPT
    return ClockFound(
        now=host.clock.now(),
        highest=highest.time if highest else None,
        judged=judged,
        synchronized=host.machine.clock_synchronized(),
        why=why,
        remedy=remedy,
    )


def accept_clock(host: Host) -> Done[ClockFound]:
    """The operator's word that the clock is right: the highest time seen is what it says now.
    Refused while most members say otherwise; it would change nothing."""
    now, kept = _acceptable(host)
    talk.save_highest_time(host, now)
    return Done(value=look_at_clock(host), changed=(f"clock {kept} accepted",))


def plan_accept_clock(host: Host) -> Plan:
    """What `accept_clock` would do now; Refused as it would be."""
    _, kept = _acceptable(host)
    return Plan.of((True, "accept-clock", kept, "from here on no time before it is believed"))


def _acceptable(host: Host) -> tuple[datetime, str]:
    """What the clock says now, also in words. Refused `clock-contradicted`."""
    found = look_at_clock(host)
    if found.judged.heard and found.judged.off:
        raise Refused("clock-contradicted", found.why, SET_RIGHT)
    return found.now, codec.format_time(found.now.replace(microsecond=0))


def _verdict(judged: Judged) -> tuple[str, str]:
    if not judged.off:
        return "", ""
    if judged.damaged:
        return "the file that keeps the highest time seen is damaged", ACCEPT
    if judged.before is not None:
        seen = codec.format_time(judged.before.replace(microsecond=0))
        return f"no member was heard, and the clock is before {seen}, which it has seen", ACCEPT
    return (
        f"{judged.differ} of {judged.heard} members' clocks differ by five minutes or more",
        SET_RIGHT,
    )
