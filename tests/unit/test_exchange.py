"""Exchanges of rosters: of any size that a roster may have, with the largest records there are."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from keel import codec
from keel.mesh import exchange, roster
from keel.mesh.entry import MAX_BYTES, Entry
from keel.mesh.envelope import MAX_MESSAGE_BYTES, MAX_REPLY_BYTES, MESSAGE_KIND
from keel.mesh.exchange import BUCKETS, MAX_HASHES, RosterAnswer, RosterAsk
from keel.mesh.records import GENESIS
from keel.mesh.roster import BOUNDS, MAX_BATCH, MAX_ORPHANS, UNKNOWN, Roster
from keel.mesh.wire import Envelope, Signature, encode, payload_type
from keel.types import RecordHash
from tests.factories_mesh import Mesh
from tests.scale import exchanged, roster_of

MESH = Mesh()
A = MESH.admission("f", "a")
MOST = sum(bound.total for bound in (*BOUNDS.values(), UNKNOWN))
MESSAGE_FIELDS = 600
"""Bytes of a message beside its body."""


def holding(count: int, size: int) -> Roster:
    """A roster of that many records of that size; the door is not asked."""
    held = MESH.roster(A)
    (entry,) = held.entries.values()
    made = {one.record: one for one in (_copy(entry, number, size) for number in range(count))}
    return replace(held, entries=made)


def _copy(entry: Entry, number: int, size: int) -> Entry:
    record = RecordHash(hashlib.sha256(b"%d" % number).hexdigest())
    return replace(entry, record=record, raw=b"%d" % number + b" " * size)


def sent_size(body: object) -> int:
    signature = Signature(key="ab" * 32, value=bytes(64))
    message = Envelope(
        payload_type=payload_type(MESSAGE_KIND),
        payload=codec.dumps(body) + bytes(MESSAGE_FIELDS),
        signatures=(signature,),
    )
    return len(encode(message))


def test_all_that_a_roster_may_hold_fits_one_list_and_one_load() -> None:
    assert MOST <= MAX_HASHES
    assert MOST + MAX_ORPHANS <= MAX_BATCH


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(900, id="as members make them"),
        pytest.param(max(s for kind, s in MAX_BYTES.items() if kind != GENESIS), id="largest"),
    ],
)
def test_the_largest_rosters_fit_the_channels_messages(size: int) -> None:
    mine, theirs = holding(200, size), holding(MOST, size)
    summed = exchange.reply_to(theirs, exchange.opening(mine))
    listing = exchange.next_ask(mine, summed)
    assert listing is not None
    opened = exchange.reply_to(theirs, listing)
    assert opened.have
    assert sent_size(opened) <= MAX_REPLY_BYTES
    told = exchange.next_ask(MESH.roster(A), opened)
    assert told is not None
    assert sent_size(exchange.reply_to(theirs, told)) <= MAX_REPLY_BYTES
    lacking = RosterAnswer(digest="other", have=_others(MOST))
    following = exchange.next_ask(mine, lacking)
    assert following is not None
    assert following.records
    assert sent_size(following) <= MAX_MESSAGE_BYTES


def test_a_list_of_more_hashes_than_any_roster_has_is_no_message() -> None:
    with pytest.raises(ValueError, match="more than"):
        RosterAnswer(digest="other", have=_others(MAX_HASHES + 1))


LARGE = 200
CHANGES = {
    "nothing changed": ((), ()),
    "mine is newer": (("m1",), ()),
    "theirs is newer": ((), ("m7",)),
    "both are newer": (("m1", "m2"), ("m7",)),
    "the founder is": (("f",), ()),
}


@pytest.fixture(scope="module")
def large() -> Roster:
    return roster_of(MESH, LARGE)


def newer(held: Roster, names: tuple[str, ...]) -> Roster:
    return roster.merge(held, [MESH.said(name, counter=2) for name in names]).roster


@pytest.mark.parametrize(("mine", "theirs"), CHANGES.values(), ids=CHANGES.keys())
def test_bytes_follow_what_changed_and_not_what_there_is(
    large: Roster, mine: tuple[str, ...], theirs: tuple[str, ...]
) -> None:
    few = roster_of(MESH, 20)
    small = exchanged(newer(few, mine), newer(few, theirs))
    done = exchanged(newer(large, mine), newer(large, theirs))
    assert roster.digest(done.mine) == roster.digest(done.theirs)
    assert roster.digest(done.mine) == roster.digest(newer(large, mine + theirs))
    sums_and_lists = 12_000 * bool(mine + theirs)
    assert done.sent <= small.sent + sums_and_lists
    assert small.trips == 1 + bool(mine + theirs)
    assert done.trips <= small.trips + 1


def test_a_newcomer_learns_a_large_roster_whole(large: Roster) -> None:
    done = exchanged(MESH.roster(), large)
    assert roster.digest(done.mine) == roster.digest(large)


def test_a_large_roster_tells_a_newcomer_everything(large: Roster) -> None:
    done = exchanged(large, MESH.roster())
    assert roster.digest(done.theirs) == roster.digest(large)


def test_nothing_is_left_to_say_when_the_listed_bucket_holds_the_same(large: Roster) -> None:
    """The rest of the difference came from a third member meanwhile: the next sync tells it."""
    listed = exchange.reply_to(large, RosterAsk(digest="other", buckets=(0,)))
    assert exchange.next_ask(large, replace(listed, digest="other")) is None


@pytest.mark.parametrize(
    "buckets",
    [
        pytest.param((BUCKETS,), id="beyond the last"),
        pytest.param((-1,), id="negative"),
        pytest.param((1, 1), id="twice"),
        pytest.param((2, 1), id="out of order"),
    ],
)
def test_buckets_are_numbers_each_once(buckets: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="buckets"):
        RosterAsk(digest="other", buckets=buckets)
    with pytest.raises(ValueError, match="buckets"):
        RosterAnswer(digest="other", buckets=buckets)


@pytest.mark.parametrize(
    "sums",
    [
        pytest.param(("ab" * 16,) * (BUCKETS - 1), id="too few"),
        pytest.param(("xy" * 16,) * BUCKETS, id="no hex"),
    ],
)
def test_sums_are_one_for_each_bucket(sums: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="bucket|hex"):
        RosterAnswer(digest="other", sums=sums)


def _others(count: int) -> tuple[RecordHash, ...]:
    return tuple(
        RecordHash(hashlib.sha256(b"other %d" % number).hexdigest()) for number in range(count)
    )
