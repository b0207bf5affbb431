"""A pass of the tend: a list of duties behind boundaries of their own (E14)."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from keel.errors import LockHeld
from keel.mesh import etcdstore, etcdtend
from keel.mesh.duty import Result
from keel.mesh.etcdstate import Queued, Wanted, enqueue
from keel.ports import UnitState
from keel.unitnames import FAST_TIMER
from tests.fakes.machine import FakeUnits
from tests.flow.world import World

GARBAGE = b"-----BEGIN"


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.node("a")
    made.create("a")
    made.settle()
    return made


def results(world: World) -> dict[str, Result]:
    return {one.name: one.result for one in world.tend("a")}


def test_every_duty_says_one_sentence_in_the_order_of_the_list(world: World) -> None:
    duties = world.tend("a")
    assert [one.name for one in duties] == list(etcdtend.DUTIES)
    assert all(one.text and "\n" not in one.text for one in duties)


def test_a_pass_says_in_words_how_far_this_nodes_etcd_is(world: World) -> None:
    def said() -> str:
        return {one.name: one.text for one in world.tend("a")}["etcd"]

    assert said() == "no etcd runs here yet"
    for name in "bc":
        world.node(name)
        world.join(name, world.invite("a"))
    world.settle()
    assert said() == "etcd runs here as a member of the cluster"


def test_a_duty_that_fails_is_kept_until_it_works_and_stops_no_other(world: World) -> None:
    place = world.host("a").paths.etcd_record
    place.write_bytes(GARBAGE)
    found = results(world)
    assert found["etcd"] is Result.FAILED
    assert found["lived"] is Result.NOTHING
    (kept,) = [f for f in etcdstore.load_failures(world.host("a")).entries if f.subject == "etcd"]
    assert kept.code == "state-corrupt"
    place.unlink()
    assert results(world)["etcd"] is Result.NOTHING
    assert not etcdstore.load_failures(world.host("a")).entries


class OddUnits(FakeUnits):
    """systemd as nobody thought of it."""

    def state(self, unit: str) -> UnitState:
        raise ValueError("with a secret in it")


def test_a_bug_in_a_duty_is_kept_by_its_place_and_stops_no_other(world: World) -> None:
    host = replace(world.host("a"), units=OddUnits(world.net.nodes["a"].effects))
    duties = etcdtend.tend(host, lambda: world.spec("a"), world.enable_spec)
    found = {one.name: one for one in duties}
    assert found["etcd"].result is Result.FAILED
    assert found["lived"].result is Result.NOTHING
    (kept,) = [f for f in etcdstore.load_failures(host).entries if f.subject == "etcd"]
    assert kept.code == "internal"
    assert re.fullmatch(r"a bug in keel: ValueError at .*test_tend\.py:\d+", kept.text)


def test_a_duty_that_fails_differently_is_kept_once(world: World) -> None:
    host = world.host("a")
    cluster = host.paths.etcd_cluster
    host.paths.etcd_record.write_bytes(GARBAGE)
    world.tend("a")
    host.paths.etcd_record.unlink()
    cluster.write_bytes(b"{")
    world.tend("a")
    kept = [f for f in etcdstore.load_failures(host).entries if f.subject == "etcd"]
    assert [str(cluster) in f.text for f in kept] == [True]


def test_two_passes_are_never_at_work_at_once(world: World) -> None:
    host = world.host("a")
    with (
        host.locks.hold(host.paths.tend_lock, what="the tend"),
        pytest.raises(LockHeld),
    ):
        world.tend("a")


def test_what_comes_while_a_pass_ends_is_not_left_to_the_slow_timer(world: World) -> None:
    """Its kick met a running unit: the fast timer that was just stopped starts again."""
    host = world.host("a")

    def comes() -> None:
        wish = Queued(
            what=Wanted.RELAY, subject=world.loaded("a").key, since=host.clock.now(), why="it came"
        )
        etcdstore.save_queue(host, enqueue(etcdstore.load_queue(host), wish))

    world.net.nodes["a"].units.unit(FAST_TIMER).active = True
    world.net.nodes["a"].units.on_stop[FAST_TIMER] = comes
    world.tend("a")
    assert world.net.nodes["a"].units.unit(FAST_TIMER).active


def test_a_damaged_list_of_failures_stops_no_duty_and_is_begun_anew(world: World) -> None:
    host = world.host("a")
    world.host("a").paths.etcd_record.write_bytes(GARBAGE)
    host.paths.etcd_failures.write_bytes(GARBAGE)
    found = results(world)
    assert [*found] == list(etcdtend.DUTIES)
    failed = {name for name, result in found.items() if result is Result.FAILED}
    assert "etcd" in failed
    assert {one.subject for one in etcdstore.load_failures(host).entries} == failed
