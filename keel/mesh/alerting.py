"""The tend's last duty: one look at everything, kept as alerts, gauges and the journal (E15).

Owns the effects around keel.mesh.alerts. The channels are told by a unit of its own
(keel-mesh-alert.service): the tend may talk to the overlay only.

Rules:
(T1) What is to be told is on disk before anybody is told, and noted only once a channel took it:
     after a kill in between it is told twice, and never not at all.
(T2) No lock is held while a channel is talked to.
(T3) What is damaged so that nothing can be looked at is told all the more: from the failures kept.
(T4) A channel that takes nothing is a failure of its own, which the others are told of; so is a
     unit that ended before it could tell anybody, and systemd remembers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime

from keel import VERSION, codec
from keel.errors import AlertFailed, KeelError, Refused
from keel.mesh import alerts, etcdstore, lastchannels, store, tended
from keel.mesh.alerts import JOURNAL, Alerts, Event, Item
from keel.mesh.duty import Duty, done, nothing
from keel.mesh.store import Node
from keel.mesh.warnings import Severity, Warning, warn
from keel.monitor import Sample
from keel.outcome import Done, Incomplete, Plan
from keel.ports import Host
from keel.spec.model import AlertChannel, CommandChannel, MailChannel, Spec, WebhookChannel
from keel.unitnames import ALERT_UNIT

NAME = "alerts"
LOOK_SECONDS = 60.0
"""While the fast timer runs there is no new look with each of its passes."""
QUIET_SECONDS = 540.0
"""With nothing open and nothing failing every second pass looks: a look asks all members."""
SEND_SECONDS = 30.0


def duty(host: Host, spec: Spec) -> Duty:
    """Look, note what is open, say it in the journal, wake the unit that tells; Refused
    `alert-not-told` while a channel takes nothing."""
    lastchannels.keep(host, spec)
    if _looked_lately(host):
        return nothing(NAME, "looked a moment ago")
    now = host.clock.now()
    found, samples = _look(host, spec)
    with store.locked(host, "the mesh"):
        before = load(host)
        state = alerts.seen(before, found, now)
        state = alerts.only(state, [name_of(one) for one in spec.monitor.channels])
        said = alerts.due(state, JOURNAL, now)
        state = alerts.accepted(state, JOURNAL, said, now)
        if state != before:
            _save(host, state)
    for item in said:
        host.console.say(f"alert: {alerts.sentence(item)}; {item.alert.remedy}")
    broken = False
    if any(alerts.due(state, name_of(one), now) for one in spec.monitor.channels):
        broken = host.units.state(ALERT_UNIT).active == "failed"
        host.units.start(ALERT_UNIT, block=False)
    _note_look(host)
    host.metrics.write(samples)  # last: a textfile that can't be written keeps nobody untold
    if broken:
        raise Refused(
            "alert-not-told",
            f"no channel was told: {ALERT_UNIT} failed",
            f"`journalctl -u {ALERT_UNIT}`; `keel mesh etcd alert --test` tries each channel",
        )
    if state.failing:
        _say_who_fails(state)
    if said:
        return done(NAME, "; ".join(alerts.sentence(item) for item in said))
    return nothing(NAME, f"{len(state.open)} open, nothing new to tell")


def deliver(host: Host, spec: Spec) -> Done[tuple[str, ...]] | Incomplete[tuple[str, ...]]:
    """Tell each channel what it is due; the names of those that took something."""
    took, missing = [], []
    for channel in spec.monitor.channels:
        name = name_of(channel)
        items = alerts.due(load(host), name, host.clock.now())
        if not items:
            continue
        error = _send(host, channel, items)
        with store.locked(host, "the mesh"):
            now = host.clock.now()
            if error is None:
                _save(host, alerts.accepted(load(host), name, items, now))
                took.append(name)
            else:
                _save(host, alerts.failed(load(host), name, error, now))
                missing.append(f"{name}: {error}")
    return _came_of(took, missing)


def trial(host: Host, spec: Spec) -> Done[tuple[str, ...]] | Incomplete[tuple[str, ...]]:
    """Tell each channel a trial, whatever is open; nothing is noted."""
    took, missing = [], []
    for channel in spec.monitor.channels:
        error = _send(host, channel, (_trial(host.clock.now()),))
        if error is None:
            took.append(name_of(channel))
        else:
            missing.append(f"{name_of(channel)}: {error}")
    return _came_of(took, missing)


def plan(host: Host, spec: Spec, *, is_trial: bool) -> Plan:
    """Whom `deliver` or `trial` would tell now, and what."""
    now, state = host.clock.now(), load(host)
    due = {
        name: (_trial(now),) if is_trial else alerts.due(state, name, now)
        for name in (name_of(channel) for channel in spec.monitor.channels)
    }
    if any(due.values()):
        store.require(host)  # as whom it would speak
    return Plan.of(
        *(
            (bool(items), "tell", name, "; ".join(map(alerts.sentence, items)))
            for name, items in due.items()
        )
    )


def _trial(now: datetime) -> Item:
    alert = alerts.Alert(
        code="trial",
        subject="",
        severity=Severity.WARNING,
        text="this is a trial; nothing is wrong",
        remedy="nothing",
        since=now,
    )
    return Item(event=Event.RAISED, alert=alert)


def name_of(channel: AlertChannel) -> str:
    """A channel in a word without its secrets; another for each, and the same in any order."""
    match channel:
        case WebhookChannel(url=url):
            return f"webhook {_short(url)}"
        case MailChannel(to=to):
            return f"mail {to}"
        case CommandChannel(argv=argv):
            return f"command {argv[0]} {_short(' '.join(argv))}"


def load(host: Host) -> Alerts:
    path = host.paths.alerts
    return codec.read_state(Alerts, path, host.files.read(path)) or Alerts()


def _look(host: Host, spec: Spec) -> tuple[tuple[Warning, ...], tuple[Sample, ...]]:
    """Every warning that holds, and the gauges of the same look (T3). A failure is among them also
    where status tells it as the reason of another warning: it waits for no five minutes
    (keel.mesh.alerts, A2). A pass that does not look loads nothing for it."""
    from keel.mesh import etcdwarnings, gauges, report, status

    now = host.clock.now()
    try:
        seen, etcd = status.whole(host, spec)
        found = report.warnings(spec, seen, etcd, now)
        found = (*found, *(one for one in _failures(host) if one not in found))
        quorum = etcdwarnings.fault_tolerance(seen, etcd)
        every = gauges.samples(seen, etcd, found, tended=now, quorum=quorum, version=VERSION)
    except KeelError as error:
        blind = warn("etcd-failed", subject="status", detail=error.summary(), remedy=error.remedy())
        found = (*_failures(host), blind)
        every = tended.silence(now, found)
    return found, every


def _failures(host: Host) -> tuple[Warning, ...]:
    """Whatever a duty fails of, as it is told."""
    return tuple(
        warn("etcd-failed", subject=one.subject, detail=one.text, remedy=one.remedy)
        for one in etcdstore.load_failures(host).entries
    )


def _send(host: Host, channel: AlertChannel, items: Sequence[Item]) -> str | None:
    """None once the channel took them; else what is wrong."""
    node = store.require(host)
    lines = [f"{alerts.sentence(item)}\n  do: {item.alert.remedy}" for item in items]
    subject = f"keel on {_own_name(node)}: {alerts.sentence(items[0])}"
    if len(items) > 1:
        subject += f" and {len(items) - 1} more"
    message = _document(node, items, host.clock.now())
    try:
        match channel:
            case WebhookChannel(url=url):
                host.alerts.webhook(url, message, timeout_seconds=SEND_SECONDS)
            case MailChannel(to=to):
                text = "\n\n".join(lines)
                host.alerts.mail(to, subject, text, timeout_seconds=SEND_SECONDS)
            case CommandChannel(argv=argv):
                host.alerts.command(argv, message, timeout_seconds=SEND_SECONDS)
    except AlertFailed as error:
        return error.problem
    return None


def _document(node: Node, items: Sequence[Item], now: datetime) -> bytes:
    """What a webhook's body and a command's stdin hold: keel.alert/1."""
    found = {
        "schema": "keel.alert/1",
        "mesh": node.mesh,
        "node": _own_name(node),
        "time": codec.format_time(now),
        "alerts": [
            {
                "event": item.event.value,
                "code": item.alert.code,
                "subject": item.alert.subject,
                "severity": item.alert.severity.value,
                "text": item.alert.text,
                "remedy": item.alert.remedy,
                "since": codec.format_time(item.alert.since),
            }
            for item in items
        ],
    }
    return json.dumps(found).encode()


def _came_of(
    took: Sequence[str], missing: Sequence[str]
) -> Done[tuple[str, ...]] | Incomplete[tuple[str, ...]]:
    if missing:
        return Incomplete(value=tuple(took), missing=tuple(missing), remedy=REMEDY)
    return Done(value=tuple(took), changed=tuple(f"told {one}" for one in took))


REMEDY = "see monitor.channels in the spec; `keel mesh etcd alert --test` tries each"


def _say_who_fails(state: Alerts) -> None:
    first = state.failing[0]
    raise Refused(
        "alert-not-told",
        f"{first.channel} takes no alerts since {codec.format_time(first.since)}: {first.text}",
        REMEDY,
    )


def _own_name(node: Node) -> str:
    me = node.view.by_key(node.key)
    return me.display if me else "this node"


def _save(host: Host, state: Alerts) -> None:
    etcdstore.prepare(host)  # a node without a part in the registry has alerts as well
    host.files.write(host.paths.alerts, codec.dumps(state))


def _looked_lately(host: Host) -> bool:
    raw = host.files.read(host.paths.looked)
    age = host.clock.monotonic() - float(raw) if raw and raw.isdigit() else -1.0
    quiet = not (load(host).open or etcdstore.load_failures(host).entries)
    return 0 <= age < (QUIET_SECONDS if quiet else LOOK_SECONDS)


def _note_look(host: Host) -> None:
    store.keep_hint(host, host.paths.looked, f"{host.clock.monotonic():.0f}".encode())


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
