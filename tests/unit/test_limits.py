"""The token buckets: average, burst, and that they forget."""

from __future__ import annotations

from keel.mesh.limits import KICKS, MAX_KEYS, SOURCE_RATE, TOTAL_RATE, Buckets, Rate

RATE = Rate(per_second=2.0, burst=3)


def test_a_burst_passes_then_the_average() -> None:
    buckets = Buckets(RATE)
    assert [buckets.take("a", 0.0) for _ in range(4)] == [True, True, True, False]
    assert [buckets.take("a", 0.5) for _ in range(2)] == [True, False]
    assert [buckets.take("a", 60.0) for _ in range(4)] == [True, True, True, False]


def test_one_key_does_not_use_up_another() -> None:
    buckets = Buckets(RATE)
    for _ in range(9):
        buckets.take("a", 0.0)
    assert buckets.take("b", 0.0)


def test_no_rate_is_no_limit() -> None:
    buckets = Buckets(None)
    assert all(buckets.take("a", 0.0) for _ in range(1000))


def test_full_buckets_are_forgotten_and_emptied_ones_are_not() -> None:
    buckets = Buckets(RATE)
    for number in range(MAX_KEYS):
        buckets.take(number, 0.0)
    for _ in range(9):
        buckets.take("flooder", 10.0)
    for number in range(9):
        buckets.take(("late", number), 10.0)
    assert len(buckets) < 20
    assert not buckets.take("flooder", 10.0)


def test_four_members_that_flood_leave_room_for_the_others() -> None:
    """Of nine; a birth's dozens come through at once from each."""
    birth = 36
    flood = 4 * SOURCE_RATE.burst
    assert birth <= SOURCE_RATE.burst
    assert flood + birth <= TOTAL_RATE.burst
    assert 5 * SOURCE_RATE.per_second <= TOTAL_RATE.per_second


def test_what_has_a_pass_run_may_be_said_about_as_often_as_the_fast_timer_runs() -> None:
    seconds = 5.0
    assert 1.0 <= KICKS.rate.per_second * seconds < 2.0
