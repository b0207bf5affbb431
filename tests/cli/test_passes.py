"""What the channel's process has done for it, and how long the process stays that does it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from keel.cli.errands import Errand, WarmUnits
from keel.cli.passes import is_needed
from keel.errors import DiskTrouble, Internal, Refused
from keel.mesh import etcdstore
from keel.mesh.etcdstate import Stage
from keel.unitnames import TEND_UNIT
from tests.fakes import fence
from tests.fakes.etcd import UNIT
from tests.flow.growing import three_voters
from tests.flow.world import World

PATIENCE = 10.0


def idle(world: World, name: str) -> WarmUnits:
    return WarmUnits(world.net.nodes[name].units, {})


@contextmanager
def at_work(world: World, name: str) -> Iterator[WarmUnits]:
    over = threading.Event()
    errand = Errand("held", lambda: over.wait(PATIENCE))
    errand.ask()
    try:
        yield WarmUnits(world.net.nodes[name].units, {TEND_UNIT: errand})
    finally:
        over.set()


@pytest.mark.parametrize(
    ("mode", "needed"),
    [
        pytest.param("cloud_advanced", True, id="a birth may come"),
        pytest.param("cloud", False, id="none may"),
    ],
)
def test_it_stays_where_a_birth_may_come(mode: str, needed: bool, tmp_path: Path) -> None:
    world = World(tmp_path)
    world.node("a", mode=mode)
    world.create("a")
    assert is_needed(world.host("a"), idle(world, "a")) is needed


def test_a_member_of_a_cluster_lets_it_go_when_no_pass_runs(tmp_path: Path) -> None:
    world = three_voters(tmp_path)
    assert not is_needed(world.host("a"), idle(world, "a"))
    with at_work(world, "a") as units:
        assert is_needed(world.host("a"), units)


def test_damaged_state_does_not_keep_it(tmp_path: Path) -> None:
    world = three_voters(tmp_path)
    world.host("a").paths.etcd_cluster.write_text("{")
    assert not is_needed(world.host("a"), idle(world, "a"))


def with_etcd_down(world: World) -> None:
    world.net.nodes["b"].units.stop(UNIT)


def before_the_leader_is_noted(world: World) -> None:
    host = world.host("b")
    etcdstore.save_cluster(host, replace(etcdstore.load_cluster(host), stage=Stage.STARTING))


@pytest.mark.parametrize("arrange", [with_etcd_down, before_the_leader_is_noted])
def test_a_clusters_etcd_is_not_halted_whoever_asks(
    arrange: Callable[[World], None], tmp_path: Path
) -> None:
    world = three_voters(tmp_path)
    arrange(world)
    before = world.net.nodes["b"].units.state(UNIT)
    with pytest.raises(Refused, match="saw a leader"):
        fence.narrowed(world.net.nodes["b"]).passes("halt")
    assert world.net.nodes["b"].units.state(UNIT) == before


def test_an_etcd_that_answers_nothing_and_whose_leader_nobody_noted_is_halted(
    tmp_path: Path,
) -> None:
    world = three_voters(tmp_path)
    before_the_leader_is_noted(world)
    with_etcd_down(world)
    assert world.net.nodes["b"].units.state(UNIT).enabled != "masked"
    fence.narrowed(world.net.nodes["b"]).passes("halt")
    assert world.net.nodes["b"].units.state(UNIT).enabled == "masked"


def test_the_channel_reads_and_writes_keels_own_state_and_nothing_of_etcds(tmp_path: Path) -> None:
    world = three_voters(tmp_path)
    host = fence.narrowed(world.net.nodes["b"])
    assert host.files.read(host.paths.genesis)
    for path in (host.paths.laid / "member.pem", host.paths.etcd_marker):
        with pytest.raises(DiskTrouble):
            host.files.read(path)
    with pytest.raises(DiskTrouble):
        host.overlay.laid("member.pem")
    with pytest.raises(DiskTrouble):
        host.files.write(host.paths.etcd_drop_in, b"")
    with pytest.raises(Internal):
        host.units.stop("etcd.service")


def test_a_claim_has_the_passes_loaded_before_the_confirmation(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.node("a")
    world.node("b")
    world.create("a")
    said: list[str] = []
    world.net.nodes["a"].overheard = said
    world.join("b", world.invite("a"))
    assert said[0] == "ready"
