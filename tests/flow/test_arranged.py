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
