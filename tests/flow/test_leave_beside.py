"""A leave that meets a pass of the same node's, at each effect of the pass: what is left once both
have ended is a node in no mesh."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from keel.errors import KeelError, LockHeld
from keel.mesh import store
from keel.unitnames import ETCD_UNIT
from tests.flow.arranged import arranged
from tests.flow.world import World


@arranged
def stopped(tmp_path: Path) -> World:
    """Three voters; c's etcd was stopped, so that a pass lays its files and starts it."""
    world = World(tmp_path)
    world.cluster("abc")
    host = world.host("c")
    host.units.stop(ETCD_UNIT)
    for name in host.files.names(host.paths.laid):
        host.files.remove(host.paths.laid / name)
    return world


def tend(world: World) -> object:
    return world.tend("c")


def sync(world: World) -> object:
    return world.sync("c")


def effects_of(world: World, run: Callable[[World], object]) -> list[str]:
    effects = world.net.nodes["c"].effects
    before = len(effects.done)
    run(world)
    return effects.done[before:]


def leave(world: World) -> bool:
    """Whether it came to its end."""
    try:
        world.leave("c")
    except LockHeld:
        return False
    return True


def meet(world: World, number: int, run: Callable[[World], object]) -> str:
    """The pass, and a leave just before its effect of that number; before which one it was."""
    effects = world.net.nodes["c"].effects
    seen: list[str] = []
    came: list[bool] = []

    def at(text: str) -> bool:
        seen.append(text)
        if len(seen) == number + 1 and not came:
            came.append(False)
            came.append(leave(world))
        return False

    effects.crash_on = at
    try:
        run(world)
    except KeelError:
        assert came[-1:] == [True]  # it is in no mesh any more, and says so
    finally:
        effects.crash_on = None
    if came[-1:] == [False]:
        world.leave("c")
    return seen[number]


def left_behind(world: World) -> list[str]:
    """What there is on a node that left and should not be."""
    host, node = world.host("c"), world.net.nodes["c"]
    found = [
        str(path.relative_to(node.root))
        for place in (host.paths.mesh, host.paths.etcd, host.paths.laid, host.paths.etcd_data)
        for path in sorted(place.rglob("*"))
        if path.is_file()
    ]
    if store.load(host) is not None:
        found.append("a mesh")
    if node.units.unit(ETCD_UNIT).active:
        found.append("etcd")
    return [*found, *node.wireguard.devices]


@pytest.mark.lives
@pytest.mark.parametrize("run", [tend, sync])
def test_what_a_pass_does_beside_a_leave_leaves_nothing_behind(
    tmp_path: Path, run: Callable[[World], object]
) -> None:
    count = len(effects_of(stopped(tmp_path / "clean"), run))
    assert count > 5
    wrong = {}
    for number in range(count):
        world = stopped(tmp_path / str(number))
        before = meet(world, number, run)
        if found := left_behind(world):
            wrong[f"{number} {before}"] = found
    assert wrong == {}
