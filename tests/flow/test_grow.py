"""A cluster that grows, by whole nodes: the fourth and the fifth, lost answers, a voter down, one
that never starts, a dead one (E9, E11, E12). Judged by the etcds, not by keel's own status."""

from __future__ import annotations

from pathlib import Path

import pytest

from keel.mesh import etcdstore
from keel.mesh.duty import Duty, Result
from keel.mesh.etcdstate import Stage
from keel.mesh.token import EtcdHint
from keel.types import LOCALHOST
from tests.fakes.etcd import Cluster
from tests.flow.world import World

BORN = "abc"


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Three voters; the first holds the root."""
    world = World(tmp_path)
    for name in "abcde":
        world.node(name)
    world.create("a")
    for name in "bc":
        world.join(name, world.invite("a"))
        world.settle()
    world.rest(*BORN)
    world.timers(*BORN, seconds=7.0)
    world.host("a").etcd_at(LOCALHOST).put(b"early", b"kept")
    return world


def the_cluster(world: World) -> Cluster:
    (cluster,) = world.etcd.births()
    return cluster


def voters(world: World) -> str:
    """The names of the voters by etcd's own list."""
    names = {f"keel-{world.loaded(n).address.packed.hex()}": n for n in joined(world)}
    return "".join(sorted(names.get(one.name, "?") for one in the_cluster(world).voters()))


def joined(world: World) -> list[str]:
    return [name for name in world.net.nodes if world.host(name).paths.genesis.exists()]


def membership(world: World, name: str = "a") -> Duty:
    return next(duty for duty in world.tend(name) if duty.name == "membership")


def grow(world: World, *names: str, rounds: int = 20) -> None:
    """Timers on these until all of them are voters."""
    wanted = "".join(sorted(names))
    for _ in range(rounds):
        if voters(world) == wanted:
            return
        world.timers(*names, seconds=5.0)
    raise AssertionError(f"voters are {voters(world)}; {membership(world)}; {world.etcd.log}")


def test_the_fourth_is_a_learner_before_it_is_answered_and_then_a_voter(world: World) -> None:
    token = world.invite("a")
    assert token.etcd is EtcdHint.RUNNING
    answered = world.join("d", token)
    assert answered.etcd.state is EtcdHint.RUNNING
    assert answered.etcd.cluster_record is not None
    assert voters(world) == BORN
    assert [one.learner for one in the_cluster(world).members.values()].count(True) == 1
    grow(world, *"abcd")
    world.timers(*"abcd")
    assert world.host("d").etcd_at(LOCALHOST).get(b"early") == b"kept"
    assert etcdstore.load_cluster(world.host("d")).stage is Stage.FORMED
    assert membership(world).result is Result.NOTHING
