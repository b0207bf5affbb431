"""The state directory's records: rules R1 to R5."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from keel import codec
from keel.errors import StateCorrupt
from keel.mesh.etcdstate import (
    Cluster,
    Failures,
    Lived,
    Marker,
    Queue,
    Queued,
    Stage,
    Wanted,
    dequeue,
    enqueue,
    entry_of,
    fail,
    give_reasons,
    give_up,
    mark_formed,
    marker_for,
    matches,
    mend,
    start,
    tried,
)
from keel.types import EtcdClusterId, EtcdMemberId, FormationId, RecordHash
from tests.etcd.make import F1, F2, NONCE, key
from tests.pki.make import NOW

WHERE = Path("/var/lib/keel/etcd/cluster.json")
HASH = RecordHash("0" * 64)


def started(
    cluster: Cluster | None = None,
    *,
    formation: FormationId = F1,
    epoch: int = 1,
    replaced: EtcdMemberId | None = None,
) -> Cluster:
    return start(
        cluster or Cluster(),
        formation=formation,
        nonce=NONCE,
        record=HASH,
        epoch=epoch,
        cluster_id=EtcdClusterId(2**63 + 1),
        replaced=replaced,
    )


@pytest.mark.parametrize(
    "record",
    [Cluster(), started(), mark_formed(started()), Lived(counter=3)],
    ids=["idle", "starting", "formed", "lived"],
)
def test_state_reads_back_as_it_was_written(record: object) -> None:
    assert codec.read_state(type(record), WHERE, codec.dumps(record)) == record


def test_no_file_is_no_record() -> None:
    assert codec.read_state(Cluster, WHERE, None) is None


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b'{"stage":"formed"}',
        b'{"stage":"starting","formation":"0101010101010101"}',
        codec.dumps(started()).replace(b'"given_up":[]', b'"given_up":["0101010101010101"]'),
    ],
    ids=["empty", "torn", "formed without an ID", "starting without a record", "given up"],
)
def test_what_does_not_parse_is_corrupt_and_names_its_path(raw: bytes) -> None:
    with pytest.raises(StateCorrupt) as caught:
        codec.read_state(Cluster, WHERE, raw)
    assert str(WHERE) in caught.value.summary()


def test_unknown_fields_survive_every_transition() -> None:
    found = codec.read_state(Cluster, WHERE, b'{"attempt":0,"epoch":0,"given_up":[],"later":1}')
    assert found is not None
    for cluster in (
        started(found),
        mark_formed(started(found)),
        give_up(started(found), F1),
    ):
        assert cluster.extra == {"later": 1}


def test_a_birth_is_attempt_one_and_stays_so_when_its_record_is_signed_again() -> None:
    first = started()
    again = started(first, epoch=2)
    assert (first.stage, first.attempt) == (Stage.STARTING, 1)
    assert (again.attempt, again.epoch) == (1, 2)


def test_another_formation_is_another_attempt() -> None:
    given_up = give_up(started(), F1)
    assert given_up.stage is Stage.IDLE
    assert given_up.given_up == (F1,)
    assert (started(given_up, formation=F2).attempt, started(given_up, formation=F2).epoch) == (
        2,
        1,
    )


def test_a_formed_cluster_stays_formed_when_a_newer_record_is_taken() -> None:
    formed = mark_formed(started())
    assert started(formed, epoch=7) == replace(formed, epoch=7)


def test_giving_up_a_formation_that_was_never_begun_leaves_the_stage_alone() -> None:
    assert give_up(started(), F2) == replace(started(), given_up=(F2,))
    assert give_up(give_up(Cluster(), F2), F2).given_up == (F2,)


def test_only_the_marker_of_this_formation_and_attempt_matches() -> None:
    mine = started()
    assert marker_for(Cluster()) is None
    assert marker_for(mine) == Marker(formation=F1, attempt=1)
    assert matches(marker_for(mine), mine)
    assert matches(marker_for(mine), mark_formed(mine))
    assert not matches(None, mine)
    assert not matches(marker_for(mine), Cluster())
    assert not matches(Marker(formation=F2, attempt=1), mine)
    assert not matches(Marker(formation=F1, attempt=2), mine)


def queued(name: str, what: Wanted = Wanted.ENROL, why: str = "the holder is silent") -> Queued:
    return Queued(what=what, subject=key(name), since=NOW, why=why)


def test_a_wish_keeps_its_place_and_its_time() -> None:
    queue = enqueue(enqueue(Queue(), queued("b")), queued("c"))
    later = replace(queued("b"), since=NOW + timedelta(hours=1), why="no window")
    again = enqueue(queue, later)
    assert again.entries == (replace(queued("b"), why="no window"), queued("c"))


def test_tries_are_counted() -> None:
    queue = enqueue(enqueue(Queue(), queued("b")), queued("c"))
    [b, c] = tried(queue, queued("b"), NOW, "timed out").entries
    assert (b.attempts, b.last_try, b.why) == (1, NOW, "timed out")
    assert c == queued("c")


def test_what_is_served_leaves_the_queue() -> None:
    queue = Queue()
    for name in "bcd":
        queue = enqueue(queue, queued(name, Wanted.LEARNER))
    left = dequeue(dequeue(queue, Wanted.LEARNER, key("c")), Wanted.ENROL, key("d"))
    assert [one.subject for one in left.entries] == [key("b"), key("d")]


def test_a_failure_keeps_its_beginning_until_it_is_gone() -> None:
    def noted(failures: Failures, hours: int) -> Failures:
        return fail(
            failures,
            code="leaf-renewal",
            subject="web-1",
            text="the disk is full",
            remedy="make room",
            now=NOW + timedelta(hours=hours),
        )

    twice = noted(noted(Failures(), 0), 5)
    [one] = twice.entries
    assert (one.since, one.last) == (NOW, NOW + timedelta(hours=5))
    assert mend(twice, code="leaf-renewal", subject="web-2") == twice
    assert mend(twice, code="leaf-renewal", subject="web-1") == Failures()


@pytest.mark.parametrize("before", [started(), mark_formed(started())], ids=["starting", "formed"])
def test_a_new_place_is_begun_once(before: Cluster) -> None:
    """Its data of the old place no longer matches; the same place again changes nothing of that."""
    anew = started(before, epoch=2, replaced=EtcdMemberId(7))
    assert (anew.stage, anew.attempt, anew.replaced) == (Stage.STARTING, before.attempt + 1, 7)
    assert not matches(marker_for(before), anew)
    again = started(anew, epoch=3, replaced=EtcdMemberId(7))
    assert (again.attempt, again.replaced, again.epoch) == (anew.attempt, 7, 3)
    assert started(again, epoch=4).attempt == anew.attempt
    formed = started(mark_formed(again), epoch=5, replaced=EtcdMemberId(7))
    assert (formed.stage, formed.attempt) == (Stage.FORMED, anew.attempt)
    assert give_up(again, F1).replaced == 7


def test_only_the_reasons_of_those_who_wait_for_the_same_change() -> None:
    mine, other = queued("a"), replace(queued("a"), what=Wanted.REVOKE)
    queue = enqueue(enqueue(Queue(), mine), other)
    told = give_reasons(queue, mine.what, {mine.subject: "so", key("x"): "-"})
    found = entry_of(told, mine.what, mine.subject)
    assert found == replace(mine, why="so")
    assert entry_of(told, Wanted.REVOKE, other.subject) == other
    assert entry_of(told, mine.what, key("x")) is None
