"""A node whose clock most members contradict signs and starts nothing until it is right."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from keel.errors import Refused
from keel.mesh import etcdcredentials, etcdstore, status, talk
from keel.mesh.duty import Duty, Result
from keel.mesh.liveness import Liveness
from tests.flow.world import World

WRONG = timedelta(minutes=10)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Three members; nothing that was kicked by the third join has run yet."""
    world = World(tmp_path)
    for name in "abc":
        world.node(name)
    world.create("a")
    world.join("b", world.invite("a"))
    world.settle()
    world.join("c", world.invite("a"))
    return world


def set_clock(world: World, name: str, wrong_by: timedelta) -> None:
    world.net.nodes[name].clock.wrong_by = wrong_by
    world.sync(name)


def duty(duties: tuple[Duty, ...], name: str) -> Duty:
    return next(one for one in duties if one.name == name)


def until_born(world: World) -> int:
    for _ in range(6):
        world.settle()
        for name in "abc":
            world.tend(name)
        world.net.clock.sleep(5)
    (cluster,) = world.etcd.births()
    return len(cluster.voters())


@pytest.mark.parametrize("wrong_by", [WRONG, -WRONG], ids=["ahead", "behind"])
def test_a_holder_of_a_wrong_clock_gives_no_birth_until_it_is_right(
    world: World, wrong_by: timedelta
) -> None:
    set_clock(world, "a", wrong_by)
    waits = duty(world.tend("a"), "birth")
    assert (waits.result, waits.waiting[0].waiting_for) == (Result.WAITING, "the clock")
    assert etcdstore.load_cluster(world.host("a")).formation is None
    world.net.nodes["a"].clock.wrong_by = timedelta()
    assert duty(world.tend("a"), "birth").result is Result.DONE
    assert until_born(world) == 3


def test_a_member_of_a_wrong_clock_starts_no_etcd_until_it_is_right(world: World) -> None:
    world.settle()
    started = set(world.etcd.processes)
    host = world.host("b")
    host.units.stop("etcd.service")
    set_clock(world, "b", WRONG)
    waits = duty(world.tend("b"), "etcd")
    assert (waits.result, waits.waiting[0].waiting_for) == (Result.WAITING, "the clock")
    assert "b" not in world.etcd.processes
    world.net.nodes["b"].clock.wrong_by = timedelta()
    assert until_born(world) == 3
    assert started <= set(world.etcd.processes)


def test_a_holder_of_a_wrong_clock_grants_nothing(world: World) -> None:
    set_clock(world, "a", WRONG)
    with pytest.raises(Refused) as caught:
        etcdcredentials.grant_oneself(world.host("a"), world.loaded("a"))
    assert caught.value.rule == "clock-off"
    world.net.nodes["a"].clock.wrong_by = timedelta()
    etcdcredentials.grant_oneself(world.host("a"), world.loaded("a"))


def test_one_member_of_a_wrong_clock_does_not_hold_up_the_others(world: World) -> None:
    world.net.nodes["c"].clock.wrong_by = WRONG
    world.sync("a")
    assert not talk.clock_is_off(world.host("a"))


def test_a_damaged_hint_of_the_clocks_is_as_good_as_none(world: World) -> None:
    set_clock(world, "b", WRONG)
    assert talk.clock_is_off(world.host("b"))
    world.net.nodes["b"].paths.clocks.write_bytes(b"{")
    assert not talk.clock_is_off(world.host("b"))


@pytest.mark.parametrize("wrong_by", [WRONG, -WRONG])
def test_status_tells_a_clock_that_is_too_far_off_for_an_answer(
    world: World, wrong_by: timedelta
) -> None:
    """c refuses the greeting as stale, and signs that: it is up, and its clock is known."""
    world.settle()
    world.net.nodes["c"].clock.wrong_by = wrong_by
    found = status.look(world.host("a"), world.spec("a"))
    (seen,) = (one for one in found.members if one.member.display == "c")
    assert (seen.state, seen.clock_offset) == (Liveness.UP, wrong_by)
