import statistics

import pytest

from netns.link import Counters, Pair, Shaper
from netns.topology import Quality, names, parse_quality

A, B, C = names(3)
AB: Pair = (A, B)
BA: Pair = (B, A)
BAD = parse_quality("125ms,12.5ms,1%")


def make_shaper(quality: Quality, *, seed: int = 1, pair: Pair = AB) -> Shaper:
    shaper = Shaper(seed)
    shaper.shape(pair, quality)
    return shaper


def arrivals_ms(shaper: Shaper, count: int, pair: Pair = AB) -> list[float | None]:
    """When each of `count` packets, all sent at 0, arrives; None for those that don't."""
    times: list[float | None] = []
    for number in range(count):
        shaper.offer(pair, b"%d" % number, 0.0)
        wait = shaper.wait_seconds(0.0)
        times.append(None if wait is None else wait * 1000)
        shaper.due(float("inf"))
    return times


def test_delay_is_what_was_asked_and_jitter_spreads_evenly_around_it() -> None:
    times = [time for time in arrivals_ms(make_shaper(BAD), 20_000) if time is not None]
    assert min(times) >= 112.5
    assert max(times) <= 137.5
    assert statistics.mean(times) == pytest.approx(125, abs=0.5)
    assert statistics.pstdev(times) == pytest.approx(25 / 12**0.5, abs=0.2)


@pytest.mark.parametrize("percent", [0, 1, 5, 50, 100])
def test_loss_is_what_was_asked(percent: int) -> None:
    times = arrivals_ms(make_shaper(Quality(loss_percent=percent)), 20_000)
    assert times.count(None) / 200 == pytest.approx(percent, abs=1)


def test_a_packet_arrives_once_and_not_before_its_time() -> None:
    shaper = make_shaper(Quality(delay_ms=100))
    shaper.offer(AB, b"x", 5.0)
    assert shaper.wait_seconds(5.0) == pytest.approx(0.1)
    assert shaper.due(5.0999) == []
    assert shaper.due(5.1001) == [(B, b"x")]
    assert shaper.due(9.0) == []
    assert shaper.wait_seconds(9.0) is None


def test_packets_of_one_moment_stay_in_order() -> None:
    shaper = make_shaper(Quality(delay_ms=10))
    for number in range(100):
        shaper.offer(AB, bytes([number]), 0.0)
    assert [packet[0] for _, packet in shaper.due(1.0)] == list(range(100))


def test_packets_leave_in_order_of_time_across_pairs() -> None:
    shaper = make_shaper(Quality(delay_ms=50))
    shaper.shape((C, B), Quality(delay_ms=10))
    shaper.offer(AB, b"slow", 0.0)
    shaper.offer((C, B), b"fast", 0.0)
    assert shaper.due(1.0) == [(B, b"fast"), (B, b"slow")]


def test_a_cut_cuts_one_direction_and_healing_brings_the_quality_back() -> None:
    shaper = make_shaper(Quality(delay_ms=10))
    shaper.shape(BA, Quality(cut=True))
    shaper.offer(AB, b"there", 0.0)
    shaper.offer(BA, b"back", 0.0)
    assert shaper.due(1.0) == [(B, b"there")]
    shaper.shape(BA, Quality())
    shaper.offer(BA, b"back", 1.0)
    assert shaper.due(1.0) == [(A, b"back")]


def test_what_is_larger_than_the_link_is_dropped() -> None:
    shaper = make_shaper(Quality(mtu=1280))
    shaper.offer(AB, bytes(1280), 0.0)
    shaper.offer(AB, bytes(1281), 0.0)
    assert [len(packet) for _, packet in shaper.due(0.0)] == [1280]


def test_a_direction_that_nobody_shaped_carries_nothing() -> None:
    shaper = Shaper(1)
    shaper.offer(AB, b"x", 0.0)
    assert shaper.wait_seconds(0.0) is None


def test_every_packet_is_counted_exactly_once() -> None:
    shaper = make_shaper(Quality(loss_percent=50, mtu=100))
    for size in [10] * 1000 + [101] * 7:
        shaper.offer(AB, bytes(size), 0.0)
    shaper.shape(AB, Quality(cut=True))
    for _ in range(3):
        shaper.offer(AB, b"x", 0.0)
    counts = shaper.counters[AB]
    carried = counts.carried
    assert counts == Counters(
        carried=carried, carried_bytes=10 * carried, lost=1000 - carried, cut=3, too_big=7
    )
    assert 400 < carried < 600


def test_the_same_seed_gives_the_same_luck_and_another_seed_another() -> None:
    assert arrivals_ms(make_shaper(BAD), 500) == arrivals_ms(make_shaper(BAD), 500)
    assert arrivals_ms(make_shaper(BAD), 500) != arrivals_ms(make_shaper(BAD, seed=2), 500)


def test_one_pairs_traffic_does_not_change_anothers_luck() -> None:
    disturbed = make_shaper(BAD)
    disturbed.shape(BA, BAD)
    arrivals_ms(disturbed, 100, BA)
    assert arrivals_ms(disturbed, 500) == arrivals_ms(make_shaper(BAD), 500)
