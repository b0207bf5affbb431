"""One member is silent: what a command waits for it, in seconds of the world's clock. Each silent
question costs its whole timeout, so no command asks twice what it could know from the first."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from keel.mesh import behind, etcdrecover, etcdremove, status
from keel.mesh.duty import Result
from keel.mesh.removal import Mode
from tests.fakes.etcd import UNIT
from tests.flow.arranged import arranged
from tests.flow.removing import sign
from tests.flow.world import World

NAMES = "abcde"
PROBE, PING, TELL = 8.0, 10.0, 10.0


@arranged
def five_voters_of_which_one_is_cut_off(scratch: Path) -> World:
    """a is the holder; b admitted nobody; nothing comes from d since a moment after the last look
    at it."""
    made = World(scratch)
    made.cluster(NAMES)
    for _ in range(2):
        made.timers(seconds=20)
    for name in "abce":
        made.net.cut("d", name)
    made.kicks.clear()
    made.net.clock.sleep(50)
    return made


@pytest.fixture
def world(tmp_path: Path) -> World:
    return five_voters_of_which_one_is_cut_off(tmp_path)


def look(world: World) -> object:
    return status.whole(world.host("a"), world.spec("a"))


def sync_after_a_boot(world: World) -> object:
    """At another place, of which the others are told."""
    behind.mark(world.host("b"))
    world.net.nodes["b"].move(IPv4Address("198.51.100.7"))
    return world.sync("b")


def recover_without_data(world: World) -> object:
    node = world.net.nodes["b"]
    node.units.stop(UNIT)
    node.files.remove(node.paths.etcd_data)
    return etcdrecover.recover(node.host, world.spec("b"), world.loaded("b"))


@pytest.mark.parametrize(
    ("command", "seconds"),
    [
        pytest.param(look, PING, id="status"),
        pytest.param(lambda world: world.sync("a"), PING, id="sync"),
        pytest.param(sync_after_a_boot, PING, id="sync after a boot"),
        pytest.param(lambda world: world.tend("a"), PROBE, id="tend on the holder"),
        pytest.param(lambda world: world.tend("b"), 0, id="tend"),
        pytest.param(lambda world: world.make_invite("a"), 0, id="invite"),
        pytest.param(lambda world: world.remove("a", "d"), PROBE, id="remove it"),
        pytest.param(
            lambda world: world.remove("a", "d", Mode.LOST, typed="d"),
            PING + PROBE,
            id="remove it as lost",
        ),
        pytest.param(
            lambda world: world.remove("a", "c"),
            PROBE + PING + TELL + PROBE,
            id="remove another",
        ),
        pytest.param(lambda world: world.remove("b", "c"), PROBE + PING, id="block another"),
        pytest.param(lambda world: world.leave("c"), PROBE + TELL, id="leave"),
        pytest.param(recover_without_data, 3 * PROBE, id="recover"),
    ],
)
def test_a_silent_member_is_waited_for_so_often(
    world: World, command: Callable[[World], object], seconds: float
) -> None:
    before = world.net.clock.monotonic()
    command(world)
    assert world.net.clock.monotonic() - before == pytest.approx(seconds, abs=0.9)


def test_of_two_that_were_removed_each_goes_by_what_the_members_say_then(world: World) -> None:
    for name in "cd":
        sign(world, "a", name)
    before = world.net.clock.monotonic()
    found = etcdremove.duty(world.host("a"), world.loaded("a"))
    (cluster,) = world.etcd.births()
    assert (found.result, len(cluster.members)) == (Result.DONE, 3)
    assert world.net.clock.monotonic() == before  # nobody who is a member still is silent
