"""What somebody does to the interface, its peers and the channel's port by hand: the next pass puts
it right, and status says what is wrong until then.
"""

from __future__ import annotations

from ipaddress import IPv4Address
from pathlib import Path

import pytest

from keel.errors import ProcFailed
from keel.mesh.report import mesh_warnings
from keel.mesh.status import look
from keel.outcome import Done
from keel.types import Endpoint, Secret
from keel.unitnames import CHANNEL_SOCKET
from tests.fakes import FakeNode
from tests.fakes.wireguard import Device, Peer
from tests.flow.world import World

NOWHERE = Endpoint.parse("203.0.113.9:9999")
ELSEWHERE = Endpoint(host=IPv4Address("198.51.100.77"), port=51820)


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.mesh("ab", mode="cloud")
    return world


def device(world: World, name: str) -> Device:
    return world.net.nodes[name].wireguard.devices["keel0"]


def peer(world: World, name: str, of: str) -> Peer:
    return device(world, name).peers[device(world, of).key]


def codes(world: World, name: str) -> list[str]:
    seen = look(world.host(name), world.spec(name))
    return [one.code for one in mesh_warnings(world.spec(name), seen, world.net.clock.now())]


def hears(world: World, name: str) -> bool:
    return isinstance(world.sync(name), Done)


def test_two_that_have_each_other_at_a_wrong_place_find_each_other_again(world: World) -> None:
    """Neither hears the other, so neither's WireGuard learns where the other is."""
    peer(world, "a", "b").endpoint = peer(world, "b", "a").endpoint = NOWHERE
    assert not hears(world, "a")
    world.timers(seconds=60)
    assert peer(world, "a", "b").endpoint == NOWHERE  # a moment's silence moves nothing
    for _ in range(4):
        world.timers(seconds=60)
    assert hears(world, "a")
    assert hears(world, "b")


def test_where_a_silent_peer_was_heard_last_is_tried_again_by_turns(world: World) -> None:
    """b roamed, and only there it can be found: its record names an endpoint that leads nowhere."""
    own = peer(world, "a", "b").endpoint
    assert own is not None
    b = world.net.nodes["b"]
    b.outside = b.inside = IPv4Address("198.51.100.77")
    world.sync("b")
    world.sync("a")
    assert peer(world, "a", "b").endpoint == ELSEWHERE
    world.net.cut("a", "b")
    peer(world, "b", "a").endpoint = NOWHERE
    tried = set()
    for _ in range(8):
        world.timers("a", seconds=60)
        tried.add(peer(world, "a", "b").endpoint)
    assert tried == {own, ELSEWHERE}
    world.net.heal()
    for _ in range(2):
        world.timers("a", seconds=60)
    assert hears(world, "a")


def test_a_channel_whose_socket_failed_listens_again_after_the_next_pass(world: World) -> None:
    units = world.net.nodes["a"].units
    units.stop(CHANNEL_SOCKET)
    assert codes(world, "a") == ["channel-down"]
    world.sync("a")
    assert codes(world, "a") == []


def take_port(node: FakeNode) -> None:
    """Another program has the channel's."""

    def taken() -> bool:
        node.units.unit(CHANNEL_SOCKET).active = False
        raise ProcFailed(["systemctl", "start", CHANNEL_SOCKET], 1, "Job failed.")

    node.units.on_start[CHANNEL_SOCKET] = taken


def test_a_channel_whose_port_is_taken_keeps_nobody_from_joining(world: World) -> None:
    c = world.node("c", mode="cloud")
    take_port(c)
    world.join("c", world.invite("a"))
    world.settle()
    assert "channel-down" in codes(world, "c")
    del c.units.on_start[CHANNEL_SOCKET]
    world.sync("c")
    assert codes(world, "c") == []


def test_a_channel_whose_port_is_taken_keeps_the_pass_from_nothing_else(world: World) -> None:
    node = world.net.nodes["a"]
    node.units.stop(CHANNEL_SOCKET)
    take_port(node)
    del device(world, "a").peers[device(world, "b").key]
    assert hears(world, "a")
    assert any(text.startswith("the channel does not listen: ") for text in node.console.said)
    assert codes(world, "a") == ["channel-down"]


def test_an_interface_that_lost_its_address_is_named_and_put_right(world: World) -> None:
    device(world, "a").address = None
    assert codes(world, "a")[0] == "interface-changed"
    assert hears(world, "a")
    assert codes(world, "a") == []


def test_an_interface_at_another_port_is_named_and_put_right(world: World) -> None:
    device(world, "a").port = 4444
    assert codes(world, "a")[0] == "interface-changed"
    assert hears(world, "a")
    assert codes(world, "a") == []


def test_an_interface_with_another_key_is_named_and_put_right(world: World) -> None:
    device(world, "a").private = Secret(b"x" * 32)
    assert codes(world, "a")[0] == "interface-changed"
    assert hears(world, "a")
    assert codes(world, "a") == []
