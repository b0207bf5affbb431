"""The passes that a warm process runs by itself instead of having systemd start them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from keel import secretcache
from keel.cli.errands import Errand, WarmUnits, warmed
from keel.errors import Refused
from keel.mesh import keys
from keel.types import Secret
from keel.unitnames import CHANNEL_SOCKET, FAST_TIMER, MESH_UNIT, SYNC_UNIT, TEND_UNIT
from tests.fakes.effects import Effects
from tests.fakes.machine import FakeUnits
from tests.flow.world import World

PATIENCE = 10.0


class Gate:
    """A pass that tells when it runs, and runs until it is let go."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.go_on = threading.Semaphore(0)
        self.ran = 0

    def __call__(self) -> None:
        self.begun.release()
        assert self.go_on.acquire(timeout=PATIENCE)
        self.ran += 1

    def until_begun(self) -> bool:
        return self.begun.acquire(timeout=PATIENCE)


def wait_for_all(name: str) -> None:
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join(PATIENCE)


def test_asking_returns_before_the_pass_has_ended() -> None:
    gate = Gate()
    Errand("alone", gate).ask()
    assert gate.until_begun()
    assert gate.ran == 0
    gate.go_on.release()
    wait_for_all("alone")
    assert gate.ran == 1


def test_one_more_pass_follows_however_often_it_is_asked_for_while_one_runs() -> None:
    gate = Gate()
    errand = Errand("often", gate)
    errand.ask()
    assert gate.until_begun()
    for _ in range(5):
        errand.ask()
    gate.go_on.release()
    assert gate.until_begun()
    gate.go_on.release()
    wait_for_all("often")
    assert gate.ran == 2


@pytest.mark.parametrize("fails", [False, True])
def test_no_secret_is_remembered_once_a_pass_has_ended(fails: bool) -> None:
    seen: list[int] = []

    def reckon() -> None:
        keys.wg_pair(Secret(bytes(32)))
        seen.append(secretcache.count())
        if fails:
            raise Refused("no-way", "it could not be", "try again")

    secretcache.forget()
    Errand("reckoning", reckon).ask()
    wait_for_all("reckoning")
    assert (seen, secretcache.count()) == ([1], 0)


def test_it_is_busy_from_the_asking_to_the_end_of_the_pass(real: FakeUnits) -> None:
    gate = Gate()
    units = units_with(real, gate)
    assert not units.busy()
    units.start(TEND_UNIT, block=False)
    assert units.busy()
    assert gate.until_begun()
    assert units.busy()
    gate.go_on.release()
    wait_for_all("here")
    assert not units.busy()


def test_a_failed_pass_is_told_and_the_next_one_runs(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise Refused("no-way", "it could not be", "try again")

    errand = Errand("failing", fail)
    for _ in range(2):
        errand.ask()
        wait_for_all("failing")
    assert capsys.readouterr().err.count("it could not be") == 2


@pytest.fixture
def real() -> FakeUnits:
    return FakeUnits(Effects())


def units_with(real: FakeUnits, run: Callable[[], object]) -> WarmUnits:
    return WarmUnits(real, {TEND_UNIT: Errand("here", run)})


def test_a_kicked_pass_runs_here_and_systemd_starts_nothing(real: FakeUnits) -> None:
    ran: list[str] = []
    units_with(real, lambda: ran.append("tend")).start(TEND_UNIT, block=False)
    wait_for_all("here")
    assert ran == ["tend"]
    assert not real.unit(TEND_UNIT).starts


def test_whoever_waits_for_a_pass_has_systemd_start_it(real: FakeUnits) -> None:
    units_with(real, lambda: None).start(TEND_UNIT)
    assert real.unit(TEND_UNIT).starts == 1


def test_of_units_that_start_together_each_starts_where_it_belongs(real: FakeUnits) -> None:
    ran: list[str] = []
    warm = units_with(real, lambda: ran.append("tend"))
    warm.start(TEND_UNIT, FAST_TIMER, block=False)
    wait_for_all("here")
    assert ran == ["tend"]
    assert (real.unit(TEND_UNIT).starts, real.unit(FAST_TIMER).starts) == (0, 1)


def test_every_other_unit_is_systemds(real: FakeUnits) -> None:
    warm = units_with(real, lambda: None)
    warm.enable(CHANNEL_SOCKET, MESH_UNIT)
    warm.start(CHANNEL_SOCKET, block=False)
    assert real.unit(CHANNEL_SOCKET).starts == 1
    assert warm.state(CHANNEL_SOCKET) == real.state(CHANNEL_SOCKET)
    warm.restart(CHANNEL_SOCKET)
    assert real.unit(CHANNEL_SOCKET).starts == 2
    warm.stop(CHANNEL_SOCKET)
    warm.disable(MESH_UNIT)
    warm.reload_configuration()
    assert not real.unit(CHANNEL_SOCKET).active
    assert real.enabled() == {CHANNEL_SOCKET}
    assert real.reloads == 1
    warm.schedule(SYNC_UNIT, seconds=5)
    assert warm.scheduled(SYNC_UNIT)
    assert real.scheduled(SYNC_UNIT)
    warm.unschedule(SYNC_UNIT)
    assert not real.scheduled(SYNC_UNIT)


@pytest.mark.parametrize(
    ("unit", "name", "said"),
    [(TEND_UNIT, "tend", "birth: nothing"), (SYNC_UNIT, "sync", "exchanged rosters with b")],
)
def test_a_member_runs_its_own_passes_with_what_it_has_loaded(
    unit: str,
    name: str,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    world = World(tmp_path)
    world.node("a")
    world.node("b")
    world.create("a")
    world.join("b", world.invite("a"))
    world.settle()
    host, units = warmed(world.host("a"))
    starts = world.net.nodes["a"].units.unit(unit).starts
    host.units.start(unit, block=False)
    wait_for_all(name)
    assert not units.busy()
    assert said in capsys.readouterr().err
    assert world.net.nodes["a"].units.unit(unit).starts == starts
