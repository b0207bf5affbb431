"""Whether most members contradict this node's clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from keel.mesh.clocks import Heard, ahead_by, is_off

NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)


def heard(*ahead: float) -> Heard:
    return Heard(ahead=ahead, now=NOW, monotonic=1000.0)


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
