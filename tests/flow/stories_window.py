"""Kill stories of the network window: by a removal, by new settings, and of its undoing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from keel.mesh import netwindow, store
from keel.mesh.removal import Mode
from keel.spec import apply
from tests.flow.arranged import arranged
from tests.flow.kill import Story, tolerate
from tests.flow.world import World

PORT = 51999
TIMER = 125.0
"""Seconds after which whatever was armed is undone."""


@arranged
def three(scratch: Path) -> World:
    world = World(scratch)
    world.mesh("abc", mode="cloud")
    world.timers()
    world.net.clock.sleep(2)
    return world


@arranged
def edited(scratch: Path) -> World:
    """a's spec has another port and endpoint."""
    world = three(scratch)
    spec = world.net.nodes["a"].paths.spec
    spec.write_text(
        spec.read_text().replace("port: 51820", f'port: {PORT}, endpoints: ["203.0.113.1:{PORT}"]')
    )
    return world


@arranged
def removal_armed(scratch: Path) -> World:
    """Over an SSH session from b, so that only the operator could confirm it."""
    world = three(scratch)
    world.net.nodes["a"].machine.sessions = (world.loaded("b").address,)
    world.remove("a", "b")
    return world


@arranged
def reset_armed(scratch: Path) -> World:
    world = edited(scratch)
    world.net.nodes["a"].machine.sessions = (world.loaded("b").address,)
    apply.apply(world.host("a"))
    return world


@arranged
def votes_pending(scratch: Path) -> World:
    """b has voted on the founder, whom nobody may remove by right; one vote more suffices."""
    world = three(scratch)
    world.remove("b", "a", Mode.VOTE)
    world.timers()
    return world


def remove(name: str, whom: str, mode: Mode = Mode.PLAIN) -> Callable[[World], object]:
    return lambda world: world.remove(name, whom, mode)


def remove_again(name: str, whom: str, mode: Mode = Mode.PLAIN) -> Callable[[World], object]:
    """The timer undoes what was armed, the sync goes on with what was confirmed; typed again."""

    def again(world: World) -> None:
        world.settle()
        world.net.clock.sleep(TIMER)
        world.timers(name)
        world.remove(name, whom, mode)
        world.settle()
        world.timers(*(other for other in world.net.nodes if other != whom))

    return again


def confirm(world: World) -> None:
    world.confirm("a")


def confirm_again(world: World) -> None:
    """Typed again while it still waits; else the sync has gone on, or the timer was first."""
    tolerate(lambda: world.confirm("a"))
    world.net.nodes["a"].machine.sessions = ()
    remove_again("a", "b")(world)


def settings(world: World) -> None:
    apply.apply(world.host("a"))


def settings_again(world: World) -> None:
    world.settle()
    world.net.clock.sleep(TIMER)
    world.timers("a")
    apply.apply(world.host("a"))
    world.settle()
    world.timers()


def the_timer(world: World) -> None:
    world.net.clock.sleep(TIMER)


def timers(world: World) -> None:
    world.settle()
    world.timers()
    world.net.clock.sleep(TIMER)
    world.timers()


def gone(whom: str, *names: str) -> Callable[[World], None]:
    """These know of it, let it in no more, and hold one roster; nothing waits, nothing was signed
    twice."""

    def holds(world: World) -> None:
        address = world.loaded(whom).address
        for name in names:
            node = world.loaded(name)
            assert sorted(one.display for one in node.view.members) == sorted(names)
            assert address not in world.peers(name)
            assert not store.window_is_open(world.host(name))
            assert not world.host(name).units.scheduled(netwindow.UNDO_UNIT)
        assert world.agree(names)
        kinds = [one.kind for one in world.loaded(names[0]).roster.entries.values()]
        assert kinds.count("removal") <= 1
        assert kinds.count("vote") in (0, 2)

    return holds


def as_before(world: World) -> None:
    for name in "abc":
        others = {world.loaded(other).address for other in "abc" if other != name}
        assert others <= world.peers(name)
        assert len(world.loaded(name).view.members) == 3
    (device,) = world.net.nodes["a"].wireguard.devices.values()
    assert device.port == 51820
    ended(world)


def changed(world: World) -> None:
    (device,) = world.net.nodes["a"].wireguard.devices.values()
    assert device.port == PORT
    for name in "abc":
        me = world.loaded(name).view.by_key(world.loaded("a").key)
        assert me is not None
        assert [str(one) for one in me.endpoints] == [f"203.0.113.1:{PORT}"]
    assert apply.differences(world.host("a")) == ()
    ended(world)


def ended(world: World) -> None:
    assert store.load_window(world.host("a")) is None
    assert not world.host("a").units.scheduled(netwindow.UNDO_UNIT)
    assert world.agree("abc")


STORIES = {
    "window by removal": Story(
        three, remove("a", "b"), remove_again("a", "b"), gone("b", "a", "c"), "a", 34
    ),
    "removal, another member": Story(
        three, remove("a", "b"), remove_again("a", "b"), gone("b", "a", "c"), "c", 18
    ),
    "window by votes": Story(
        votes_pending,
        remove("c", "a", Mode.VOTE),
        remove_again("c", "a", Mode.VOTE),
        gone("a", "b", "c"),
        "c",
        38,
    ),
    "window by apply": Story(edited, settings, settings_again, changed, "a", 40),
    "window, confirmed by hand": Story(
        removal_armed, confirm, confirm_again, gone("b", "a", "c"), "a", 16
    ),
    "window by removal, undone": Story(removal_armed, the_timer, timers, as_before, "a", 11),
    "window by apply, undone": Story(reset_armed, the_timer, timers, as_before, "a", 11),
}
