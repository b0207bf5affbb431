"""A capable node that is in no cluster says what it waits for, and for whom."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from keel.mesh import status
from keel.mesh.etcdlook import Phase
from keel.outcome import Waiting
from tests.flow.world import World


@pytest.fixture
def pair(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.mesh("ab", spare="cd")
    world.tend("a")
    return world


def waits(world: World, name: str) -> tuple[Phase, tuple[Waiting, ...]]:
    found = status.whole(world.host(name), world.spec(name))[1]
    return found.phase, found.waiting


def test_two_are_ready_and_keep_nobody_waiting(pair: World) -> None:
    for name in "ab":
        assert waits(pair, name) == (Phase.READY, ())


def test_without_a_grant_the_holder_is_named(pair: World) -> None:
    pair.net.nodes["a"].alive = False
    pair.join("c", pair.invite("b"))
    phase, (waiting,) = waits(pair, "c")
    assert phase is Phase.WAITING
    assert (waiting.waiting_for, waiting.why) == ("a", "no answer")
    assert waiting.since is not None


def test_who_comes_fourth_is_a_learner_and_keeps_nobody_waiting(pair: World) -> None:
    for name in "cd":
        pair.join(name, pair.invite("a"))
        pair.settle()
    assert waits(pair, "d") == (Phase.LEARNER, ())


def test_who_comes_while_a_voter_is_down_waits_for_a_place(pair: World) -> None:
    pair.join("c", pair.invite("a"))
    pair.settle()
    pair.rest("a", "b", "c")
    pair.net.nodes["c"].power_off()
    pair.join("d", pair.invite("a"))
    pair.settle()
    phase, (waiting,) = waits(pair, "d")
    assert phase is Phase.READY
    assert waiting.what == "a place in the cluster"


def test_lost_data_is_shown_and_fails_no_look(pair: World) -> None:
    pair.join("c", pair.invite("a"))
    pair.settle()
    for name in "abc":
        pair.tend(name)
    lost = pair.net.nodes["b"]
    lost.units.stop("etcd.service")
    shutil.rmtree(lost.paths.etcd_data)
    _, (waiting,) = waits(pair, "b")
    assert waiting.waiting_for == "the operator"
    assert "data is gone" in waiting.why
