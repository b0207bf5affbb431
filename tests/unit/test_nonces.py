"""The ledger's rules N1 to N4."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from keel.errors import BadValue
from keel.mesh.nonces import (
    KEPT,
    MAX_PER_SENDER,
    REWRITE_AFTER,
    NonceLedger,
    parse_nonces,
)
from tests.channelkit import NOW, OTHER, PEER, nonce

A, B = PEER.public, OTHER.public
SECOND = timedelta(seconds=1)


def _with(count: int, *, time: datetime = NOW) -> NonceLedger:
    ledger = NonceLedger()
    for number in range(count):
        ledger, _ = ledger.add(A, nonce(number), time, NOW)
    return ledger


def test_a_nonce_is_known_for_its_sender_until_360_seconds_after_the_messages_time() -> None:
    ledger = _with(1)
    assert ledger.knows(A, nonce(0), NOW, NOW, fresh_only=True)
    assert not ledger.knows(B, nonce(0), NOW, NOW, fresh_only=True)
    assert not ledger.knows(A, nonce(1), NOW, NOW, fresh_only=True)
    assert ledger.pruned(NOW + 360 * SECOND).seen == ledger.seen
    assert ledger.pruned(NOW + 361 * SECOND).seen == {}


def test_what_was_let_go_stays_refused_when_the_clock_runs_back() -> None:
    ledger = _with(1).pruned(NOW + KEPT + SECOND)
    assert ledger.knows(A, nonce(0), NOW, NOW, fresh_only=True)
    assert not ledger.knows(A, nonce(0), NOW + SECOND, NOW, fresh_only=True)
    assert not ledger.knows(A, nonce(0), NOW, NOW, fresh_only=False)


def test_what_a_clock_far_ahead_let_go_refuses_nothing_once_it_is_right() -> None:
    """A day ten years ahead, of two members that were wrong together."""
    ahead = NOW + timedelta(days=3650)
    ledger, _ = NonceLedger().add(A, nonce(0), ahead, ahead)
    ledger = ledger.pruned(ahead + KEPT + SECOND)
    assert ledger.knows(A, nonce(1), ahead, ahead, fresh_only=True)
    assert not ledger.knows(A, nonce(1), NOW, NOW, fresh_only=True)
    grown, _ = ledger.add(A, nonce(1), NOW, NOW)
    assert grown.rewrite_due()
    rewritten, raw = grown.dump()
    assert not rewritten.rewrite_due()
    assert parse_nonces(raw) == rewritten
    assert not rewritten.knows(A, nonce(2), ahead, ahead, fresh_only=True)


def test_what_a_clock_far_ahead_wrote_down_takes_no_senders_room() -> None:
    ahead = NOW + timedelta(hours=2)
    ledger = NonceLedger()
    for number in range(MAX_PER_SENDER):
        ledger, _ = ledger.add(A, nonce(number), ahead, ahead)
    assert ledger.full(A, ahead)
    assert not ledger.full(A, NOW)
    assert ledger.knows(A, nonce(0), ahead, NOW, fresh_only=True)


def test_a_time_far_ahead_does_not_hold_its_place_for_ever() -> None:
    ledger = _with(1, time=NOW + timedelta(days=9000))
    assert ledger.pruned(NOW + timedelta(seconds=661)).seen == {}


def test_a_time_long_past_takes_no_place() -> None:
    ledger, line = NonceLedger().add(A, nonce(0), datetime(1970, 1, 1, tzinfo=UTC), NOW)
    assert (ledger, line) == (NonceLedger(), None)


def test_a_sender_that_floods_locks_out_itself_alone_and_not_for_ever() -> None:
    ledger = _with(MAX_PER_SENDER)
    assert ledger.full(A, NOW)
    assert not ledger.full(B, NOW)
    assert not ledger.full(A, NOW + KEPT + SECOND)
    assert not _with(MAX_PER_SENDER - 1).full(A, NOW)


def test_the_file_brings_back_what_was_appended() -> None:
    ledger, raw = NonceLedger(), b""
    for sender, label in ((A, "x"), (B, "y"), (A, "z")):
        ledger, line = ledger.add(sender, nonce(label), NOW, NOW)
        assert line is not None
        raw += line + b"\n"
    assert parse_nonces(raw) == ledger


def test_a_rewrite_keeps_the_floor_and_leaves_out_what_ended() -> None:
    ledger, _ = _with(3).add(B, nonce("late"), NOW + 2 * SECOND, NOW)
    pruned, raw = ledger.pruned(NOW + KEPT + SECOND).dump()
    assert parse_nonces(raw) == pruned
    assert raw.count(b"\n") == pruned.lines == 2
    assert parse_nonces(raw).knows(A, nonce(0), NOW, NOW, fresh_only=True)


def test_a_rewrite_is_due_when_the_file_is_much_longer_than_what_is_kept() -> None:
    assert not NonceLedger(lines=REWRITE_AFTER - 1).rewrite_due()
    assert NonceLedger(lines=REWRITE_AFTER).rewrite_due()
    assert not NonceLedger(lines=REWRITE_AFTER, seen=_with(1).seen).rewrite_due()


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("", id="empty"),
        pytest.param("floor", id="floor without a value"),
        pytest.param(f"12 {nonce(1)}", id="without a sender"),
        pytest.param(f"-1 {nonce(1)} {A}", id="negative"),
        pytest.param(f"12 {nonce(1)} {A} ", id="a tail"),
        pytest.param(f"1\xb2 {nonce(1)} {A}", id="not ASCII"),
    ],
)
def test_a_line_that_is_none_is_named(line: str) -> None:
    raw = f"12 {nonce(0)} {A}\n{line}\n".encode()
    with pytest.raises(BadValue) as caught:
        parse_nonces(raw)
    assert caught.value.path == "line 2"


def test_of_two_floors_the_higher_counts_and_an_empty_file_knows_nothing() -> None:
    assert parse_nonces(b"floor 9\nfloor 7\n").floor == 9
    assert parse_nonces(b"") == NonceLedger()
