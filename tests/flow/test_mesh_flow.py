"""Create, invite, join, sync and leave as whole nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from keel.mesh import members, roster
from tests.flow.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_three_nodes_become_one_mesh(world: World) -> None:
    for name in "abc":
        world.node(name, mode="cloud")
    world.create("a")
    for name in "bc":
        world.join(name, world.invite("a"))
        world.settle()
    for name in "abc":
        world.sync(name)
    views = [world.loaded(name) for name in "abc"]
    assert [[m.name for m in sorted(v.view.members, key=lambda m: m.name)] for v in views] == [
        ["a", "b", "c"]
    ] * 3
    assert len({roster.digest(v.roster) for v in views}) == 1
    assert members.find(views[2].view, "b").address == views[1].address


def test_the_third_capable_node_gives_birth_to_one_cluster(world: World) -> None:
    for name in "abc":
        world.node(name)
    world.create("a")
    for name in "bc":
        world.join(name, world.invite("a"))
        world.settle()
    for _ in range(6):
        for name in "abc":
            world.tend(name)
        world.settle()
        world.net.clock.sleep(5)
    (cluster,) = world.etcd.births()
    assert len(cluster.voters()) == 3
