"""keel.mesh.liveness: rules V1 to V4."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keel import codec
from keel.mesh.liveness import (
    DOWN_SECONDS,
    SUSPECT_SECONDS,
    Answer,
    Liveness,
    PeerSample,
    Samples,
    judge,
    silent_at_most,
    silent_seconds,
    take,
)
from keel.types import Endpoint
from tests.unit.test_wgconf import PUBLIC, make_device, make_key, make_state

KEY = make_key(1)


def _look(previous: Samples, received: int, now: float, *, answered: bool = False) -> Samples:
    device = make_device(make_state(1, received_bytes=received))
    return take(previous, device, now=now, answered=[KEY] if answered else [])


def _heard(after: float, before: float) -> PeerSample:
    return PeerSample(received_bytes=1, sampled_at=before, heard_after=after, heard_before=before)


@pytest.mark.parametrize(
    ("sample", "now", "answer", "expected"),
    [
        pytest.param(None, 100, Answer.NOT_ASKED, Liveness.DOWN, id="no peer"),
        pytest.param(None, 100, Answer.GIVEN, Liveness.UP, id="an answer is proof enough"),
        pytest.param(
            PeerSample(received_bytes=0, sampled_at=99),
            100,
            Answer.MISSING,
            Liveness.DOWN,
            id="never",
        ),
        pytest.param(_heard(99, 99), 100, Answer.NOT_ASKED, Liveness.UP, id="just heard"),
        pytest.param(_heard(99, 99), 100, Answer.MISSING, Liveness.SUSPECT, id="heard, no answer"),
        pytest.param(_heard(76, 76), 100, Answer.NOT_ASKED, Liveness.UP, id="24 s"),
        pytest.param(_heard(75, 75), 100, Answer.NOT_ASKED, Liveness.SUSPECT, id="25 s"),
        pytest.param(_heard(56, 56), 100, Answer.NOT_ASKED, Liveness.SUSPECT, id="44 s"),
        pytest.param(_heard(55, 55), 100, Answer.NOT_ASKED, Liveness.DOWN, id="45 s"),
        pytest.param(_heard(55, 55), 100, Answer.MISSING, Liveness.DOWN, id="45 s, no answer"),
        pytest.param(
            _heard(40, 100), 100, Answer.NOT_ASKED, Liveness.SUSPECT, id="looked too rarely"
        ),
    ],
)
def test_the_verdict(
    sample: PeerSample | None, now: float, answer: Answer, expected: Liveness
) -> None:
    assert judge(sample, now=now, answer=answer) is expected


def test_growth_lies_between_two_looks() -> None:
    samples = _look(_look(Samples(), 0, 10), 32, 70)
    assert samples.peers[KEY] == PeerSample(
        received_bytes=32, sampled_at=70, heard_after=10, heard_before=70, heard_at=PUBLIC
    )


def test_without_growth_the_range_stays_and_the_silence_grows() -> None:
    samples = _look(_look(_look(Samples(), 0, 10), 32, 20), 32, 50)
    assert samples.peers[KEY] == PeerSample(
        received_bytes=32, sampled_at=50, heard_after=10, heard_before=20, heard_at=PUBLIC
    )
    assert silent_seconds(samples.peers[KEY], now=51) == 31
    assert silent_at_most(samples.peers[KEY], now=51) == 41


def test_the_first_look_at_a_counter_that_is_not_zero_proves_little() -> None:
    sample = _look(Samples(), 500, 1000).peers[KEY]
    assert judge(sample, now=1000, answer=Answer.NOT_ASKED) is Liveness.SUSPECT
    assert silent_at_most(sample, now=1000) is None


def test_an_interface_that_was_made_anew_counts_from_zero() -> None:
    samples = _look(Samples(), 500, 10)
    assert _look(samples, 0, 20).peers[KEY].heard_before == 10
    assert _look(samples, 32, 20).peers[KEY].heard_before == 20


def test_an_answer_counts_as_heard_now() -> None:
    sample = _look(Samples(), 0, 10, answered=True).peers[KEY]
    assert judge(sample, now=12, answer=Answer.NOT_ASKED) is Liveness.UP


def test_it_keeps_where_a_peer_was_when_it_was_heard() -> None:
    there, moved = Endpoint.parse("192.0.2.1:1"), Endpoint.parse("192.0.2.2:2")
    seen = take(Samples(), make_device(make_state(1, endpoint=there, received_bytes=1)), now=10)
    silent = make_device(make_state(1, endpoint=moved, received_bytes=1))
    assert take(seen, silent, now=20).peers[KEY].heard_at == there
    heard = make_device(make_state(1, endpoint=moved, received_bytes=2))
    assert take(seen, heard, now=20).peers[KEY].heard_at == moved
    assert take(seen, silent, now=20, answered=[KEY]).peers[KEY].heard_at == moved


def test_samples_of_another_boot_are_forgotten() -> None:
    sample = _look(_look(Samples(), 100, 9000), 100, 5).peers[KEY]
    assert (sample.heard_after, sample.heard_before) == (0.0, 5)


def test_peers_that_are_gone_are_forgotten_and_without_an_interface_all_are() -> None:
    samples = _look(Samples(extra={"later": 1}), 1, 10)
    assert take(samples, make_device(), now=20).peers == {}
    assert take(samples, None, now=20) == Samples(extra={"later": 1})


def test_silence_of_one_never_heard_has_no_length() -> None:
    assert silent_seconds(None, now=1) is silent_at_most(None, now=1) is None
    assert silent_seconds(PeerSample(received_bytes=0, sampled_at=1), now=1) is None


def test_samples_survive_the_file() -> None:
    samples = _look(_look(Samples(extra={"later": 1}), 0, 10.5), 32, 70)
    raw = codec.dumps(samples)
    assert codec.loads(Samples, raw, max_bytes=1000, strict=False) == samples


GAPS = st.lists(st.floats(min_value=0.1, max_value=100), min_size=1, max_size=12)


@given(looks=GAPS, packets=GAPS)
def test_however_often_it_looks_it_never_says_up_or_down_against_the_packets(
    looks: list[float], packets: list[float]
) -> None:
    arrivals = list(itertools.accumulate(packets))
    samples = _look(Samples(), 0, 0.0)
    for now in itertools.accumulate(looks):
        got = [when for when in arrivals if when <= now]
        samples = _look(samples, 32 * len(got), now)
        verdict = judge(samples.peers[KEY], now=now, answer=Answer.NOT_ASKED)
        silence = now - got[-1] if got else float("inf")
        if silence < DOWN_SECONDS:
            assert verdict is not Liveness.DOWN
        if silence >= SUSPECT_SECONDS:
            assert verdict is not Liveness.UP
