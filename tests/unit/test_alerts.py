"""Alerted once, reminded daily, closed when gone, kept across restarts: rules A1 to A5."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from keel import codec
from keel.mesh import alerts
from keel.mesh.alerts import MAX_OPEN, Alerts, Event
from keel.mesh.warnings import Warning, warn

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOLD, REMIND = timedelta(minutes=5), timedelta(days=1)
AT_ONCE = warn("etcd-failed", subject="renewal", detail="no answer")
SLOW = warn("member-down", subject="b", detail="no answer for 50 s")
HOOK, MAIL = "webhook 1", "mail root"
SECOND = timedelta(seconds=1)


def look(state: Alerts, *warnings: Warning, at: datetime = NOW) -> Alerts:
    return alerts.seen(state, warnings, at)


def tell(state: Alerts, channel: str, at: datetime = NOW) -> tuple[Alerts, list[Event]]:
    items = alerts.due(state, channel, at)
    return alerts.accepted(state, channel, items, at), [item.event for item in items]


def test_a_channel_is_told_once_and_reminded_each_day() -> None:
    state, events = tell(look(Alerts(), AT_ONCE), HOOK)
    assert events == [Event.RAISED]
    for at, wanted in (
        (NOW, []),
        (NOW + REMIND - SECOND, []),
        (NOW + REMIND, [Event.REMINDER]),
        (NOW + REMIND + SECOND, []),
        (NOW + 2 * REMIND, [Event.REMINDER]),
    ):
        state, events = tell(look(state, AT_ONCE, at=at), HOOK, at)
        assert events == wanted


def test_a_clock_that_ran_ahead_for_a_while_keeps_no_alert_back() -> None:
    year = timedelta(days=365)
    ahead = NOW + year
    state, _ = tell(look(Alerts(), AT_ONCE, at=ahead), HOOK, ahead)
    assert tell(look(state, AT_ONCE, at=NOW), HOOK)[1] == [Event.REMINDER]
    slow = look(look(Alerts(), SLOW, at=ahead), SLOW, at=NOW)
    assert [item.event for item in alerts.due(slow, HOOK, NOW)] == [Event.RAISED]


def test_what_is_over_is_told_once_and_goes() -> None:
    state, _ = tell(look(Alerts(), AT_ONCE), HOOK)
    state, events = tell(look(state), HOOK)
    assert events == [Event.CLOSED]
    assert state.open == ()


def test_it_goes_only_once_every_channel_that_was_told_knows() -> None:
    state, _ = tell(look(Alerts(), AT_ONCE), HOOK)
    state, _ = tell(state, MAIL)
    state, _ = tell(look(state), HOOK)
    assert len(state.open) == 1
    assert alerts.due(state, HOOK, NOW) == ()
    state, events = tell(look(state), MAIL)
    assert (events, state.open) == ([Event.CLOSED], ())


def test_what_heals_within_five_minutes_is_told_to_nobody() -> None:
    state = look(Alerts(), SLOW)
    assert alerts.due(state, HOOK, NOW + HOLD - SECOND) == ()
    assert look(state, at=NOW + HOLD - SECOND).open == ()
    assert [item.event for item in alerts.due(state, HOOK, NOW + HOLD)] == [Event.RAISED]


def test_its_text_may_change_and_it_is_still_the_same() -> None:
    state, _ = tell(look(Alerts(), SLOW), HOOK, NOW + HOLD)
    later = warn("member-down", subject="b", detail="no answer for 600 s")
    state = look(state, later, at=NOW + 2 * HOLD)
    assert (len(state.open), state.open[0].text, state.open[0].since) == (1, later.text, NOW)
    assert alerts.due(state, HOOK, NOW + 2 * HOLD) == ()


def test_another_subject_is_another_alert() -> None:
    state, _ = tell(look(Alerts(), AT_ONCE), HOOK)
    other = warn("etcd-failed", subject="crl", detail="no answer")
    assert len(alerts.due(look(state, AT_ONCE, other), HOOK, NOW)) == 1


def test_one_that_comes_back_before_its_end_was_told_is_told_anew() -> None:
    state, _ = tell(look(Alerts(), AT_ONCE), HOOK)
    state = look(look(state), AT_ONCE, at=NOW + HOLD)
    assert state.open[0].since == NOW + HOLD
    assert [item.event for item in alerts.due(state, HOOK, NOW + HOLD)] == [Event.RAISED]


def test_what_a_channel_did_not_take_stays_due_and_the_failure_keeps_its_beginning() -> None:
    state = alerts.failed(look(Alerts(), AT_ONCE), HOOK, "no answer", NOW)
    state = alerts.failed(state, HOOK, "it answered 500", NOW + HOLD)
    (failing,) = state.failing
    assert (failing.since, failing.text) == (NOW, "it answered 500")
    state, events = tell(state, HOOK, NOW + HOLD)
    assert (events, state.failing) == ([Event.RAISED], ())


def test_what_is_not_due_yet_is_not_forgotten_for_another_that_was_told() -> None:
    state, events = tell(look(Alerts(), AT_ONCE, SLOW), HOOK)
    assert events == [Event.RAISED]
    state = alerts.only(state, [HOOK])
    assert [one.code for one in state.open] == ["etcd-failed", "member-down"]
    later = NOW + HOLD
    assert tell(look(state, AT_ONCE, SLOW, at=later), HOOK, later)[1] == [Event.RAISED]


def test_a_channel_that_the_spec_names_no_more_holds_nothing_up() -> None:
    state, _ = tell(look(Alerts(), AT_ONCE), HOOK)
    state = alerts.failed(look(state), HOOK, "no answer", NOW)
    state = alerts.only(state, [MAIL])
    assert (state.open, state.failing) == ((), ())


def test_the_journal_is_always_a_channel() -> None:
    state, _ = tell(look(Alerts(), AT_ONCE), alerts.JOURNAL)
    assert alerts.only(state, []) == state


def test_it_is_kept_as_it_is() -> None:
    state, _ = tell(look(Alerts(), AT_ONCE, SLOW), HOOK)
    state = alerts.failed(state, MAIL, "no answer", NOW)
    assert codec.loads(Alerts, codec.dumps(state), max_bytes=1 << 20, strict=False) == state


def test_what_is_open_is_bounded() -> None:
    many = [warn("etcd-failed", subject=str(number)) for number in range(MAX_OPEN + 9)]
    assert len(look(Alerts(), *many).open) == MAX_OPEN


@pytest.mark.parametrize(
    ("at", "over", "words"),
    [
        pytest.param(NOW, False, "critical: etcd: renewal failed", id="raised"),
        pytest.param(NOW + REMIND, False, "still critical: etcd: renewal", id="reminder"),
        pytest.param(NOW, True, "over: etcd: renewal failed", id="closed"),
    ],
)
def test_the_sentence_says_why_it_is_told(at: datetime, over: bool, words: str) -> None:
    state = look(Alerts(), AT_ONCE)
    if over or at != NOW:
        state, _ = tell(state, HOOK)
    state = look(state) if over else state
    (item,) = alerts.due(state, HOOK, at)
    assert alerts.sentence(item).startswith(words)
