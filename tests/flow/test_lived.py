"""Before a start over data the peers are asked how long they saw this disk live."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv6Address
from pathlib import Path

import pytest

from keel.etcdport import EtcdApi
from keel.mesh import behind, etcdlived, etcdstore, selfrecord
from keel.mesh.etcdlived import highest_lived
from tests.fakes.etcd import UNIT
from tests.flow.arranged import arranged
from tests.flow.test_status import formed
from tests.flow.world import World


@arranged
def two_members(scratch: Path) -> World:
    world = World(scratch)
    world.mesh("ab")
    return world


@pytest.fixture
def pair(tmp_path: Path) -> World:
    return two_members(tmp_path)


def test_a_peer_remembers_the_highest_lived_that_it_was_told(pair: World) -> None:
    assert highest_lived(pair.host("b")) == 0
    selfrecord.refresh(pair.host("b"), pair.spec("b"), pair.loaded("b"), lived=7)
    pair.sync("b")
    pair.settle()
    assert highest_lived(pair.host("b")) == 7


def test_peers_that_are_silent_are_asked_for_a_minute(pair: World) -> None:
    pair.net.cut("a", "b")
    before = pair.net.clock.monotonic()
    assert highest_lived(pair.host("b")) is None
    assert 60 <= pair.net.clock.monotonic() - before < 65


def test_each_start_of_etcd_counts_within_the_hour_as_well(tmp_path: Path) -> None:
    world = World(tmp_path)
    formed(world)
    world.tend("b")
    before = etcdstore.load_lived(world.host("b")).counter
    world.tend("b")
    assert etcdstore.load_lived(world.host("b")).counter == before
    world.net.nodes["b"].units.restart(UNIT)
    world.net.clock.sleep(20)
    world.tend("b")
    world.tend("b")
    assert etcdstore.load_lived(world.host("b")).counter == before + 1


def test_an_hour_is_counted_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    formed(world)
    world.tend("b")
    before = etcdstore.load_lived(world.host("b")).counter
    for seconds, counted in ((3500, 0), (200, 1), (3300, 1), (400, 2)):
        world.net.clock.sleep(seconds)
        world.tend("b")
        world.tend("b")
        assert etcdstore.load_lived(world.host("b")).counter == before + counted


def test_a_start_that_comes_while_one_is_counted_is_counted_as_well(tmp_path: Path) -> None:
    world = World(tmp_path)
    formed(world)
    world.tend("b")
    world.net.clock.sleep(3600)
    before = etcdstore.load_lived(world.host("b")).counter
    host = world.host("b")
    units = world.net.nodes["b"].units

    def and_restarts(address: IPv6Address) -> EtcdApi:
        units.restart(UNIT)  # after the pass began, before it counts
        world.net.clock.sleep(20)
        return host.etcd_at(address)

    etcdlived.duty(replace(host, etcd_at=and_restarts), world.spec("b"))
    world.tend("b")
    world.tend("b")
    assert etcdstore.load_lived(host).counter == before + 2


def test_a_count_that_a_node_may_not_tell_yet_is_told_once_it_may(tmp_path: Path) -> None:
    world = World(tmp_path)
    formed(world)
    world.tend("b")
    behind.mark(world.host("b"))
    world.net.nodes["b"].units.restart(UNIT)
    world.net.clock.sleep(20)
    assert {duty.name for duty in world.tend("b") if duty.open} == {etcdlived.NAME}
    mine = etcdstore.load_lived(world.host("b")).counter
    assert highest_lived(world.host("b")) == mine - 1
    world.sync("b")
    world.tend("b")
    world.sync("b")
    world.settle()
    assert highest_lived(world.host("b")) == mine == etcdstore.load_lived(world.host("b")).counter


def test_alone_there_is_nobody_to_ask(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.node("a")
    world.create("a")
    before = world.net.clock.monotonic()
    assert highest_lived(world.host("a")) is None
    assert world.net.clock.monotonic() == before
