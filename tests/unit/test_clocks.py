"""Whether most members contradict this node's clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from keel.mesh.clocks import Heard, Highest, ahead_by, judge, vouched

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)


def heard(*ahead: float) -> Heard:
    return Heard(ahead=ahead, now=NOW, monotonic=1000.0)


def is_off(heard: Heard | None, *, now: datetime, monotonic: float) -> bool:
    """The highest time seen says nothing against it."""
    return judge(heard, Highest(time=now), now=now, monotonic=monotonic).off


@pytest.mark.parametrize(
    ("ahead", "off"),
    [
        ((), False),
        ((0.0, 0.0), False),
        ((299.9, 299.9), False),
        ((300.0, 300.0), True),
        ((-300.0, -900.0), True),
        ((600.0,), True),
        ((600.0, 0.0), False),
        ((600.0, 0.0, 0.0), False),
        ((600.0, -600.0, 0.0), True),
    ],
)
def test_most_of_those_that_answered_decide(ahead: tuple[float, ...], off: bool) -> None:
    assert is_off(heard(*ahead), now=NOW, monotonic=1000.0) is off


def test_nobody_heard_says_nothing_against_it() -> None:
    assert not is_off(None, now=NOW, monotonic=1000.0)


@pytest.mark.parametrize(
    ("ahead", "jump", "off"),
    [(600.0, 600.0, False), (600.0, 0.0, True), (0.0, 400.0, True), (0.0, -400.0, True)],
    ids=["set right since", "left wrong", "set ahead since", "set back since"],
)
def test_a_clock_that_was_set_since_is_judged_at_once(ahead: float, jump: float, off: bool) -> None:
    later = NOW + timedelta(seconds=30 + jump)
    assert is_off(heard(ahead), now=later, monotonic=1030.0) is off


def test_what_another_boot_heard_is_forgotten() -> None:
    assert not is_off(heard(600.0), now=NOW, monotonic=3.0)


@pytest.mark.parametrize(("said", "seconds"), [(-5, -5.0), (0, 0.0), (1, 0.0), (2, 0.0), (7, 5.0)])
def test_only_what_is_sure_counts_as_a_difference(said: float, seconds: float) -> None:
    heard_at = NOW + timedelta(seconds=2)
    assert ahead_by(NOW + timedelta(seconds=said), NOW, heard_at).total_seconds() == seconds


SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("others", "off"),
    [(None, True), (heard(600.0), True), (heard(0.0), False), (heard(), False)],
    ids=["alone", "contradicted", "agreed", "nobody answered in this boot"],
)
def test_the_highest_time_seen_counts_only_while_nobody_was_heard(
    others: Heard | None, off: bool
) -> None:
    found = judge(others, Highest(time=NOW + SECOND), now=NOW, monotonic=1000.0)
    assert found.off is off
    assert found.before == (NOW + SECOND if others is None else None)


def test_what_cannot_be_read_counts_as_a_wrong_clock_until_somebody_is_heard() -> None:
    assert judge(None, None, now=NOW, monotonic=1000.0, damaged=True).off
    assert not judge(heard(0.0), None, now=NOW, monotonic=1000.0, damaged=True).off


@pytest.mark.parametrize(
    ("others", "ntp", "kept"),
    [
        (heard(0.0), False, True),
        (heard(600.0), True, False),
        (None, True, True),
        (None, False, False),
    ],
    ids=["most members", "against them", "NTP", "nobody"],
)
def test_a_time_is_kept_only_when_somebody_vouches_for_it(
    others: Heard | None, ntp: bool, kept: bool
) -> None:
    assert vouched(judge(others, None, now=NOW, monotonic=1000.0), ntp=ntp) is kept


def test_a_damaged_file_is_not_replaced_by_a_time_of_ntps() -> None:
    assert not vouched(judge(None, None, now=NOW, monotonic=1.0, damaged=True), ntp=True)
