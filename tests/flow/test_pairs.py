"""Two operators at once: another command runs whole at an effect of the first one's, on the same
node or another. Nobody meets a bug; who is refused is told why and what to do; both again, and the
end is one that the two come to one after the other. For a pass of a timer nobody is refused."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from keel.errors import KeelError, Refused
from keel.mesh import alerting, etcdenv, etcdrecover, etcdstore, store
from keel.mesh.removal import Mode
from keel.spec import apply
from tests.fakes.etcd import UNIT
from tests.flow.arranged import arranged
from tests.flow.growing import joined, learners, three_voters, voters
from tests.flow.kill import forked, tolerate
from tests.flow.world import World

Command = Callable[[World], object]


@arranged
def whole(scratch: Path) -> World:
    """Three voters; d and e hold tokens of a and of b."""
    world = three_voters(scratch)
    world.tokens = {"d": world.invite("a"), "e": world.invite("b")}
    return world


@arranged
def with_lost_data(scratch: Path, name: str = "c") -> World:
    """The same, and the data of one is gone."""
    world = whole(scratch)
    node = world.net.nodes[name]
    node.units.stop(UNIT)
    node.files.remove(node.paths.etcd_data)
    world.net.clock.sleep(20)
    return world


def holder_without_data(scratch: Path) -> World:
    return with_lost_data(scratch, "a")


def recover(name: str) -> Command:
    return lambda world: etcdrecover.recover(world.host(name), world.spec(name), world.loaded(name))


COMMANDS: dict[str, Command] = {
    "a: form": lambda world: world.form("a"),
    "a: recover": recover("a"),
    "c: recover": recover("c"),
    "a: remove c": lambda world: world.remove("a", "c"),
    "a: remove b": lambda world: world.remove("a", "b"),
    "b: remove --lost a": lambda world: world.remove("b", "a", Mode.LOST, typed="a"),
    "c: leave": lambda world: world.leave("c"),
    "a: apply": lambda world: apply.apply(world.host("a")),
    "c: apply": lambda world: apply.apply(world.host("c")),
    "a: confirm": lambda world: world.confirm("a"),
    "a: undo": lambda world: world.undo("a"),
    "a: invite": lambda world: world.make_invite("a"),
    "d: join": lambda world: world.join("d", world.tokens["d"]),
    "e: join": lambda world: world.join("e", world.tokens["e"]),
    "a: tend": lambda world: world.tend("a"),
    "c: tend": lambda world: world.tend("c"),
    "d: tend": lambda world: world.tend("d"),
    "a: sync": lambda world: world.sync("a"),
    "d: sync": lambda world: world.sync("d"),
    "a: up": lambda world: world.up("a"),
    "a: alert": lambda world: alerting.deliver(world.host("a"), world.spec("a")),
    "c: env": lambda world: etcdenv.environment(world.host("c")),
}
FIRST = ("a: form", "a: remove c", "c: leave", "d: join", "a: tend", "a: sync")
FIRST_AFTER_LOSS = ("c: recover", "a: tend", "c: tend")
SOME = (
    (whole, "d: join", "e: join"),
    (whole, "a: remove c", "c: leave"),
    (whole, "a: remove c", "a: remove b"),
    (with_lost_data, "c: recover", "a: remove c"),
    (with_lost_data, "c: recover", "d: join"),
)
TIMERS = frozenset({"a: tend", "c: tend", "d: tend", "a: sync", "d: sync", "a: up", "a: alert"})
"""What runs beside every command, unasked: nobody is refused for it."""


def run(world: World, command: str) -> KeelError | None:
    """A command's refusal, which says what to do."""
    error = tolerate(lambda: COMMANDS[command](world))
    if error is not None:
        assert error.summary()
        assert error.remedy()
    return error


def at_once(world: World, first: str, second: str, effect: int) -> None:
    """`second` just before that effect of `first`; who was refused tries again; time passes."""
    node = world.net.nodes[first[0]]
    node.new_life()
    refused: dict[str, KeelError | None] = {}

    def meanwhile(_: str) -> bool:
        if len(node.effects.done) == effect and second not in refused:
            refused[second] = None
            done = list(node.effects.done)
            refused[second] = run(world, second)
            node.effects.done[:] = done
        return False

    node.effects.crash_on = meanwhile
    failed = run(world, first)
    node.effects.crash_on = None
    assert second in refused, "that effect did not come"
    assert not (second in TIMERS and isinstance(failed, Refused)), failed
    world.settle()
    for command, error in ((first, failed), (second, refused[second])):
        if error is not None:
            run(world, command)
            world.settle()
    for _ in range(9):
        world.timers(seconds=10.0)


def holds(world: World) -> None:
    """One cluster, one view of the mesh, and every member of it that can be is a voter."""
    assert len(world.etcd.births()) == 1
    here = [name for name in joined(world) if world.loaded(name).address in _known(world)]
    views = {frozenset(m.display for m in world.loaded(name).view.members) for name in here}
    assert views == {frozenset(here)}
    for name in here:
        assert store.load_window(world.host(name)) is None
    if all(name in world.etcd.processes for name in here):
        assert voters(world) == "".join(sorted(here))
        assert learners(world) == []
        for name in here:
            assert etcdstore.load_failures(world.host(name)).entries == ()


def _known(world: World) -> set[object]:
    return {member.address for member in world.loaded("a").view.members}


def effects_of(world: World, command: str) -> list[int]:
    """Where the other one may come in: before what is no mere fsync."""
    node = world.net.nodes[command[0]]
    node.new_life()
    run(world, command)
    return [n for n, text in enumerate(node.effects.done) if not text.startswith("disk sync")]


def everywhere(
    arrange: Callable[[Path], World], first: str, second: str, scratch: Path, sample: int
) -> None:
    """At so many of the first one's effects, each from the same bytes."""
    world = arrange(scratch / "disks")
    shutil.copytree(scratch / "disks", scratch / "pristine", symlinks=True)
    places = forked(lambda: effects_of(world, first))
    chosen = random.Random(f"{first} {second}").sample(places, min(sample, len(places)))
    for effect in chosen:
        shutil.rmtree(scratch / "disks")
        shutil.copytree(scratch / "pristine", scratch / "disks", symlinks=True)
        try:
            forked(lambda at=effect: (at_once(world, first, second, at), holds(world))[0])
        except AssertionError as error:
            raise AssertionError(f"{second} at effect {effect} of {first}: {error}") from error


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arrange", "first", "second"), SOME, ids=[f"{one}, {two}" for _, one, two in SOME]
)
def test_two_commands_at_once_come_to_an_end_of_one_after_the_other(
    tmp_path: Path, arrange: Callable[[Path], World], first: str, second: str
) -> None:
    everywhere(arrange, first, second, tmp_path, 2)


@pytest.mark.long
@pytest.mark.parametrize("second", COMMANDS)
@pytest.mark.parametrize(
    ("arrange", "first"),
    [
        *((whole, one) for one in FIRST),
        *((with_lost_data, one) for one in FIRST_AFTER_LOSS),
        (holder_without_data, "a: recover"),
    ],
    ids=[*FIRST, *(f"data lost, {one}" for one in FIRST_AFTER_LOSS), "data lost, a: recover"],
)
def test_any_two_commands_at_once_come_to_an_end_of_one_after_the_other(
    tmp_path: Path, arrange: Callable[[Path], World], first: str, second: str
) -> None:
    everywhere(arrange, first, second, tmp_path, 3)
