"""What the monitor's channels are told and when: once, reminded daily, and when it is over (E15).

Pure. Owns alerts.json and the decisions over it; who sends is keel.mesh.alerting's.
(A1) A warning is open under its code and subject; its text may change meanwhile.
(A2) It is told once it held for five minutes, so that a restart alarms nobody; what no restart
     brings (AT_ONCE) is told at once.
(A3) A channel is told of it once, reminded each day, and told once when it is over; only what the
     channel accepted is noted, channel by channel, and kept across restarts.
(A4) What nobody was told of ends in silence.
(A5) A channel that fails is tried again by every pass, and said to fail until it accepts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from keel.mesh.warnings import Severity, Warning

REMIND = timedelta(days=1)
HOLD = timedelta(minutes=5)
AT_ONCE = frozenset(
    {
        "etcd-failed",
        "etcd-full",
        "etcd-corrupt",
        "certificate-ends",
        "root-not-valid",
        "crl-old",
        "clone",
        "tend-silent",
    }
)
JOURNAL = "journal"
"""The channel that is always there."""
MAX_OPEN = 256

Extra = Mapping[str, object]


class Event(StrEnum):
    """Why a channel is told of an alert."""

    RAISED = "raised"
    REMINDER = "reminder"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """A warning since it holds. `told`: when each channel last accepted it; `over`: since when it
    holds no more, while a channel that was told of it does not know yet."""

    code: str
    subject: str
    severity: Severity
    text: str
    remedy: str
    since: datetime
    over: datetime | None = None
    told: Mapping[str, datetime] = field(default_factory=dict)
    extra: Extra = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing:
    """A channel that did not accept what it was last told."""

    channel: str
    text: str
    since: datetime
    extra: Extra = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alerts:
    """alerts.json."""

    open: tuple[Alert, ...] = ()
    failing: tuple[Failing, ...] = ()
    extra: Extra = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One line of a message."""

    event: Event
    alert: Alert


def seen(state: Alerts, warnings: Iterable[Warning], now: datetime) -> Alerts:
    """The state after a look that found these warnings (A1, A4)."""
    holding = {(one.code, one.subject): one for one in warnings}
    kept = []
    for alert in state.open:
        warning = holding.pop((alert.code, alert.subject), None)
        if warning is not None:
            again = alert.over is not None
            kept.append(
                replace(
                    alert,
                    severity=warning.severity,
                    text=warning.text,
                    remedy=warning.remedy,
                    over=None,
                    since=now if again else alert.since,
                    told={} if again else alert.told,
                )
            )
        elif alert.told:
            kept.append(replace(alert, over=alert.over or now))
    new = [
        Alert(
            code=one.code,
            subject=one.subject,
            severity=one.severity,
            text=one.text,
            remedy=one.remedy,
            since=now,
        )
        for one in holding.values()
    ]
    return replace(state, open=tuple([*kept, *new][:MAX_OPEN]))


def due(state: Alerts, channel: str, now: datetime) -> tuple[Item, ...]:
    """What this channel is to be told now (A2, A3)."""
    found = []
    for alert in state.open:
        event = _event(alert, alert.told.get(channel), now)
        if event is not None:
            found.append(Item(event=event, alert=alert))
    return tuple(found)


def accepted(state: Alerts, channel: str, items: Sequence[Item], now: datetime) -> Alerts:
    """The channel took these: noted, and what all that were told know to be over goes."""
    taken = {(one.alert.code, one.alert.subject): one.event for one in items}
    kept = []
    for alert in state.open:
        event = taken.get((alert.code, alert.subject))
        told = dict(alert.told)
        if event is Event.CLOSED:
            told.pop(channel, None)
        elif event is not None:
            told[channel] = now
        if told or alert.over is None:
            kept.append(replace(alert, told=told))
    failing = tuple(one for one in state.failing if one.channel != channel)
    return replace(state, open=tuple(kept), failing=failing)


def failed(state: Alerts, channel: str, text: str, now: datetime) -> Alerts:
    """The channel did not take what it was told (A5)."""
    since = next((one.since for one in state.failing if one.channel == channel), now)
    others = tuple(one for one in state.failing if one.channel != channel)
    new = Failing(channel=channel, text=text, since=since)
    return replace(state, failing=(*others, new))


def only(state: Alerts, channels: Iterable[str]) -> Alerts:
    """Without the channels that the spec names no more: nobody waits for their word."""
    known = frozenset((JOURNAL, *channels))
    kept = []
    for alert in state.open:
        told = {name: when for name, when in alert.told.items() if name in known}
        if told or alert.over is None:
            kept.append(replace(alert, told=told))
    failing = tuple(one for one in state.failing if one.channel in known)
    return replace(state, open=tuple(kept), failing=failing)


def sentence(item: Item) -> str:
    """One line for people, without its remedy."""
    alert = item.alert
    match item.event:
        case Event.RAISED:
            return f"{alert.severity.value}: {alert.text} ({alert.code})"
        case Event.REMINDER:
            return f"still {alert.severity.value}: {alert.text} ({alert.code})"
        case Event.CLOSED:
            return f"over: {alert.text} ({alert.code})"


def _event(alert: Alert, told: datetime | None, now: datetime) -> Event | None:
    if alert.over is not None:
        return Event.CLOSED if told is not None else None
    # how far apart, not how long ago: a clock that ran ahead for a while keeps no alert back
    if told is not None:
        return Event.REMINDER if abs(now - told) >= REMIND else None
    held = alert.code in AT_ONCE or abs(now - alert.since) >= HOLD
    return Event.RAISED if held else None
