"""Exchanges of rosters: of any size that a roster may have, with the largest records there are."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from keel import codec
from keel.mesh import exchange
from keel.mesh.entry import MAX_BYTES, Entry
from keel.mesh.envelope import MAX_MESSAGE_BYTES, MAX_REPLY_BYTES, MESSAGE_KIND
from keel.mesh.exchange import MAX_HASHES, RosterAnswer
from keel.mesh.records import GENESIS
from keel.mesh.roster import BOUNDS, MAX_BATCH, MAX_ORPHANS, UNKNOWN, Roster
from keel.mesh.wire import Envelope, Signature, encode, payload_type
from keel.types import RecordHash
from tests.factories_mesh import Mesh

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
    opened = exchange.reply_to(theirs, exchange.opening(mine))
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


def _others(count: int) -> tuple[RecordHash, ...]:
    return tuple(
        RecordHash(hashlib.sha256(b"other %d" % number).hexdigest()) for number in range(count)
    )
