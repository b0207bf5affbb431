"""Clusters that grow, by whole nodes: an arrangement of three voters, and what is asked of it."""

from __future__ import annotations

from pathlib import Path

from keel.mesh import status
from keel.mesh.duty import Duty
from keel.mesh.etcdlook import EtcdSeen
from keel.types import LOCALHOST
from tests.fakes.etcd import Cluster
from tests.flow.arranged import arranged
from tests.flow.world import World

BORN = "abc"


@arranged
def three_voters(scratch: Path) -> World:
    """Of five nodes; the first holds the root."""
    world = World(scratch)
    world.cluster("abc", spare="de")
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


def status_of(world: World, name: str) -> EtcdSeen:
    return status.whole(world.host(name), world.spec(name))[1]


def waits(world: World, name: str) -> str:
    (waiting,) = status_of(world, name).waiting
    return waiting.text


def off(world: World, name: str) -> None:
    world.net.nodes[name].power_off()
    world.kicks.clear()
    world.net.clock.sleep(20)


def learners(world: World) -> list[str]:
    names = {f"[{world.loaded(n).address.compressed}]": n for n in joined(world)}
    found = [one for one in the_cluster(world).members.values() if one.learner]
    return [names[one.peer_url.removeprefix("https://").removesuffix(":2380")] for one in found]


def waits_for_nothing(world: World, *names: str) -> bool:
    return all(status_of(world, name).waiting == () for name in names)
