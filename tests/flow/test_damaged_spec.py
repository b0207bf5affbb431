"""A member whose spec cannot be read stays a member: only the operator's own changes wait."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from keel.cli import status
from keel.errors import SpecError
from keel.mesh import create, spread, talk
from keel.outcome import Incomplete
from keel.spec import apply, specfile
from keel.types import Capability, Mode
from tests.flow.arranged import arranged
from tests.flow.world import World


@arranged
def three_members(scratch: Path) -> World:
    """a and b are capable, c is not; a's settings are not the default ones."""
    made = World(scratch)
    spec = made.node("a").paths.spec
    spec.write_text(spec.read_text().replace("51820", "51999, mtu: 1300"))
    made.mesh("ab")
    made.node("c", mode="cloud")
    made.join("c", made.invite("a"))
    made.settle()
    return made


@pytest.fixture
def world(tmp_path: Path) -> World:
    return three_members(tmp_path)


def garbled(path: Path) -> None:
    path.write_bytes(b"network: [\n")


def of_a_later_version(path: Path) -> None:
    path.write_text(path.read_text() + "telemetry: {on: true}\n")


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def a_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere.yaml"))
    path.symlink_to(path.with_name("elsewhere.yaml"))


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def commented_out(path: Path) -> None:
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(f"# {line}" for line in lines))


def cut_short(path: Path) -> None:
    path.write_text("node: {name: a}\n")


def cut_out(path: Path) -> None:
    path.write_text('monitor: {channels: [{type: command, argv: ["/bin/tell", "mode: loud"]}]}\n')


def without_a_value(path: Path) -> None:
    path.write_text("installation: {mode: }\n")


def gone(path: Path) -> None:
    path.unlink()


DAMAGES = (garbled, of_a_later_version, a_directory, a_link, a_pipe)
LOSSES = (emptied, commented_out, cut_short, cut_out, without_a_value, gone)
"""What is a good spec on a node that was never capable."""
damages = pytest.mark.parametrize(
    "damage", [pytest.param(d, id=d.__name__) for d in (*DAMAGES, *LOSSES)]
)
Damage = Callable[[Path], None]


def spoil(world: World, damage: Damage) -> None:
    damage(world.net.nodes["a"].paths.spec)


def seen(world: World) -> object:
    (device,) = world.net.nodes["a"].wireguard.devices.values()
    return device.port, device.mtu, world.peers("a")


@damages
def test_it_syncs_answers_and_boots_as_before(world: World, damage: Damage) -> None:
    before = seen(world)
    spoil(world, damage)
    world.timers()
    world.net.nodes["a"].power_off()
    world.boot("a")
    world.timers()
    assert world.refused == []
    assert seen(world) == before
    told = world.loaded("c").view.by_key(world.loaded("a").key)
    assert told is not None
    assert told.capability is Capability.ETCD
    others = talk.others(world.loaded("c"))
    assert len(spread.answered(spread.ping(world.host("c"), world.loaded("c"), others))) == 2


@damages
@pytest.mark.parametrize("by_hand", [False, True], ids=["by its timer", "by hand"])
def test_an_open_window_is_undone(world: World, damage: Damage, by_hand: bool) -> None:
    before = seen(world)
    world.net.nodes["a"].machine.sessions = (world.loaded("b").address,)
    assert isinstance(world.remove("a", "b"), Incomplete)
    assert seen(world) != before
    spoil(world, damage)
    if by_hand:
        assert world.undo("a").changed
    else:
        world.net.clock.sleep(121)
    assert seen(world) == before


def test_an_open_window_is_confirmed(world: World) -> None:
    world.net.nodes["a"].machine.sessions = (world.loaded("b").address,)
    assert isinstance(world.remove("a", "b"), Incomplete)
    spoil(world, garbled)
    assert world.confirm("a").changed == ("member/b removed",)


@damages
def test_status_says_so(world: World, damage: Damage) -> None:
    spoil(world, damage)
    found = status.look(world.host("a"))
    (told,) = (one for one in found["warnings"] if one["code"] == "spec-invalid")
    assert str(world.host("a").paths.spec) in told["text"]


@damages
def test_what_goes_by_the_spec_alone_waits_until_it_is_mended(world: World, damage: Damage) -> None:
    spoil(world, damage)
    before = seen(world)
    with pytest.raises(SpecError):
        apply.apply(world.host("a"))
    assert seen(world) == before
    with pytest.raises(SpecError):
        specfile.enable_etcd(world.host("a"))


@pytest.mark.parametrize("damage", [pytest.param(d, id=d.__name__) for d in DAMAGES])
def test_nothing_begins_with_a_spec_that_cannot_be_read(world: World, damage: Damage) -> None:
    spoiled = world.node("d").paths.spec
    damage(spoiled)
    with pytest.raises(SpecError):
        create.create(world.host("d"), specfile.load(world.host("d")))


@pytest.mark.parametrize("loss", [pytest.param(d, id=d.__name__) for d in LOSSES])
@pytest.mark.parametrize("name", ["c", "d"], ids=["a member that is not capable", "a new node"])
def test_where_no_mode_was_ever_needed_its_absence_means_the_default(
    world: World, loss: Damage, name: str
) -> None:
    loss(world.node(name, mode="cloud").paths.spec)
    assert specfile.wanted(world.host(name)).installation.mode is Mode.CLOUD


def test_a_mode_that_is_set_at_last_is_the_operators_word(world: World) -> None:
    spoil(world, emptied)
    world.net.nodes["a"].paths.spec.write_text('{"installation": {"mode": "cloud"}}\n')
    world.timers()
    told = world.loaded("c").view.by_key(world.loaded("a").key)
    assert told is not None
    assert told.capability is not Capability.ETCD
    spoil(world, emptied)
    assert specfile.load(world.host("a")).unread == ""


ONE_LINE = """\
{"monitor": {"channels": [{"type": "webhook", "url": "https://localhost/#alerts"}]}, \
"installation": {"mode": "cloud_advanced"}}
"""
ESCAPED = 'installation: {"m\\u006fde": cloud_advanced}\n'


@pytest.mark.parametrize("spelt", [ONE_LINE, ESCAPED], ids=["one line", "escaped"])
def test_a_mode_that_is_spelt_in_an_unusual_way_is_there(world: World, spelt: str) -> None:
    world.net.nodes["a"].paths.spec.write_text(spelt)
    assert specfile.wanted(world.host("a")).installation.mode is Mode.CLOUD_ADVANCED
