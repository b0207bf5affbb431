"""A world that was arranged earlier is as good as one that was just arranged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.net import CARRIED
from tests.flow.arranged import arranged
from tests.flow.conftest import MOST, fault
from tests.flow.world import World

runs: list[str] = []


@arranged
def pair(scratch: Path, names: str = "ab") -> World:
    runs.append(names)
    world = World(scratch)
    world.mesh(names, mode="cloud")
    world.timers()
    return world


def below(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_copies_are_equal_and_share_nothing(tmp_path: Path) -> None:
    runs.clear()
    one, other = pair(tmp_path / "one"), pair(tmp_path / "other")
    assert runs == ["ab"]
    assert below(tmp_path / "one") == below(tmp_path / "other") != {}
    one.leave("b")
    one.net.cut("a", "b")
    one.net.clock.sleep(3600)
    assert other.loaded("b").address in other.peers("a")
    assert not other.net.is_cut("a", "b")
    assert other.net.clock.monotonic() < 3600
    assert below(tmp_path / "other") == below(pair(tmp_path / "third").net.scratch)


def test_another_argument_is_another_world(tmp_path: Path) -> None:
    pair(tmp_path / "two")
    assert set(pair(tmp_path / "three", "abc").net.nodes) == {*"abc"}


def test_a_copy_lives_on_its_own_disks_and_hears_its_own_timers(tmp_path: Path) -> None:
    pair(tmp_path / "one")
    world = pair(tmp_path / "other")
    node = world.net.nodes["b"]
    assert node.root == tmp_path / "other/b"
    assert node.paths.spec.is_relative_to(node.root)
    world.node("c", mode="cloud")
    world.join("c", world.invite("a"))
    world.settle()
    world.timers()
    assert world.agree("abc")
    assert not (tmp_path / "one/c").exists()


def test_what_is_arranged_is_not_on_the_bill_of_who_asks_first(tmp_path: Path) -> None:
    before = CARRIED.copy()
    world = pair(tmp_path / "first", "abcd")
    assert before == CARRIED
    carried = len(world.net.exchanges)
    world.timers()
    assert CARRIED.total() - before.total() == len(world.net.exchanges) - carried > 0


@pytest.mark.parametrize(
    ("sent", "markers", "fine"),
    [
        pytest.param(MOST, (), True, id="fast"),
        pytest.param(MOST + 1, ("parametrize",), False, id="not fast, and not marked"),
        pytest.param(MOST + 1, ("parametrize", "lives"), True, id="marked"),
        pytest.param(MOST + 1, ("slow",), True, id="slow anyway"),
    ],
)
def test_a_test_whose_nodes_send_much_is_no_fast_one(
    sent: int, markers: tuple[str, ...], fine: bool
) -> None:
    assert (fault(sent, markers) == "") == fine


def state(world: World) -> object:
    return below(world.net.scratch), world.net.exchanges, world.loaded("b"), world.etcd.log


def test_a_world_begins_as_one_did_that_began_alike(tmp_path: Path) -> None:
    one, other = World(tmp_path / "one"), World(tmp_path / "other")
    net, clock = other.net, other.net.clock
    one.mesh("ab")
    before = CARRIED.total()
    other.mesh("ab", spare="")
    assert state(one) == state(other)
    assert (other.net is net, net.clock is clock, CARRIED.total()) == (True, True, before)
    assert other.net.nodes["b"].root == tmp_path / "other/b"
    one.leave("b")
    clock.sleep(60)
    assert other.loaded("b").address in other.peers("a")
    assert clock.monotonic() - one.net.clock.monotonic() == 60


def test_a_world_of_another_net_begins_by_itself(tmp_path: Path) -> None:
    one, other, third = (World(tmp_path / name) for name in ("one", "other", "third"))
    one.mesh("ab")
    other.net.default_one_way_seconds = 1.0
    other.mesh("ab")
    assert other.net.clock.monotonic() > one.net.clock.monotonic()
    third.net.clock.after(0.5, lambda: None)  # nothing can copy this
    third.mesh("ab")
    assert third.loaded("b").address in third.peers("a")


def test_later_a_beginning_is_played_as_any_other_change(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.node("a", mode="cloud")
    before = CARRIED.total()
    world.mesh("ab", mode="cloud")
    assert CARRIED.total() > before
    assert world.agree("ab")


def test_links_and_modes_are_copied(tmp_path: Path) -> None:
    @arranged
    def linked(scratch: Path) -> None:
        (scratch / "empty").mkdir(mode=0o700)
        (scratch / "file").write_bytes(b"x")
        (scratch / "file").chmod(0o640)
        (scratch / "link").symlink_to("file")

    linked(tmp_path / "copy")
    found = {path.name: path.lstat().st_mode for path in (tmp_path / "copy").iterdir()}
    assert found == {"empty": 0o40700, "file": 0o100640, "link": 0o120777}
    assert (tmp_path / "copy/link").read_bytes() == b"x"
