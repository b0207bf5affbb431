"""What an operator did to etcd by hand: status tells it, and the tend does no harm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from keel.cli import status
from keel.mesh import etcdmember, etcdplan, etcdstore
from keel.ports import UnitRuns
from tests.fakes.etcd import UNIT, Member
from tests.flow.growing import BORN, the_cluster, three_voters
from tests.flow.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return three_voters(tmp_path)


def said(world: World, name: str, code: str) -> list[str]:
    warned = status.look(world.host(name))["warnings"]
    assert isinstance(warned, list)
    return [f"{one['text']}; {one['remedy']}" for one in warned if one["code"] == code]


def added(url: str, *, learner: bool) -> Callable[[World], None]:
    """`etcdctl member add` of something that keel knows nothing of."""

    def act(world: World) -> None:
        the_cluster(world).members[0x99] = Member(0x99, url, learner=learner)

    return act


def own(world: World, name: str) -> Member:
    address = world.loaded(name).address.compressed
    return next(m for m in the_cluster(world).members.values() if f"[{address}]" in m.peer_url)


def moved(world: World) -> None:
    """`etcdctl member update` of c."""
    own(world, "c").peer_url = "https://c.example:2380"


STRANGERS = {
    "a learner elsewhere": (added("http://10.1.2.3:2380", learner=True), "lists 99, "),
    "a learner by name": (added("https://example.com:2380", learner=True), "lists 99, "),
    "a learner without URLs": (added("", learner=True), "lists 99, "),
    "a voter on another net": (added("https://[fd00::99]:2380", learner=False), "lists fd00::99, "),
    "a member's new address": (moved, "lists keel-"),
}


@pytest.mark.parametrize("how", STRANGERS)
def test_a_member_that_keel_did_not_add_is_named_with_the_line_that_takes_it_out(
    world: World, how: str
) -> None:
    act, words = STRANGERS[how]
    assert said(world, "a", "etcd-stranger") == []
    act(world)
    world.timers(*BORN, seconds=10.0)
    for name in BORN:
        (text,) = said(world, name, "etcd-stranger")
        assert words in text
        assert "etcdctl member remove" in text
    assert len(world.etcd.births()) == 1
    assert set("ab") <= set(world.etcd.processes)


def test_one_who_joins_just_now_is_no_stranger(world: World) -> None:
    world.join("d", world.invite("a"))
    assert any(one.learner for one in the_cluster(world).members.values())
    assert [said(world, name, "etcd-stranger") for name in BORN] == [[], [], []]


def test_a_voter_that_was_taken_out_by_hand_says_so_and_is_not_started_again(world: World) -> None:
    members = the_cluster(world).members
    del members[own(world, "c").id]
    for _ in range(2):
        world.timers(*BORN, seconds=20.0)
    assert said(world, "c", "etcd-removed")
    codes = {one.code for one in etcdstore.load_failures(world.host("c")).entries}
    assert codes == {"etcd-member-removed"}
    assert "c" not in world.etcd.processes


def test_etcd_s_users_are_told_and_not_taken_for_an_etcd_that_is_down(world: World) -> None:
    world.etcd.users = True
    world.timers(*BORN)
    for name in BORN:
        found = status.look(world.host(name))
        (warned,) = as_rows(found["warnings"])
        assert warned["code"] == "etcd-auth"
        assert "auth disable" in warned["remedy"]
        assert "election" not in status.text(found)
    (waiting,) = etcdmember.plan(world.host("c"), world.spec("c"), world.loaded("c")).waiting
    assert waiting == etcdplan.BARRED
    world.etcd.users = False
    world.timers(*BORN)
    assert [status.look(world.host(name))["warnings"] for name in BORN] == [[], [], []]


def test_an_etcd_that_was_stopped_or_disabled_is_started_and_enabled_again(world: World) -> None:
    units = world.net.nodes["c"].units
    units.stop(UNIT)
    units.disable(UNIT)
    world.timers(*BORN)
    assert (units.unit(UNIT).active, units.unit(UNIT).enabled) == (True, True)
    assert status.look(world.host("c"))["warnings"] == []


@pytest.mark.parametrize("runtime", [False, True], ids=["for good", "until the next boot"])
def test_an_etcd_that_was_masked_stays_down_and_says_what_starts_it(
    world: World, runtime: bool
) -> None:
    unit = world.net.nodes["c"].units.unit(UNIT)
    world.net.nodes["c"].units.stop(UNIT)
    unit.masked, unit.until_boot = True, runtime
    for _ in range(2):
        world.timers(*BORN)
    assert "c" not in world.etcd.processes
    (text,) = said(world, "c", "etcd-down")
    assert "masked" in text
    assert "systemctl unmask etcd" in text
    assert etcdstore.load_failures(world.host("c")).entries == ()
    assert said(world, "a", "etcd-voter-silent")
    unit.masked = unit.until_boot = False
    world.timers(*BORN)
    assert [status.look(world.host(name))["warnings"] for name in BORN] == [[], [], []]


def test_a_mask_under_a_running_etcd_is_told_before_it_matters(world: World) -> None:
    world.net.nodes["c"].units.unit(UNIT).masked = True
    world.timers(*BORN)
    assert "c" in world.etcd.processes
    (text,) = said(world, "c", "etcd-waits")
    assert "the start of etcd waits for the operator" in text


def test_an_etcd_that_ends_whenever_it_is_started_is_not_said_to_wait_for_a_leader(
    world: World,
) -> None:
    world.net.nodes["c"].units.stop(UNIT)
    world.etcd.guards["c"] = lambda: False
    world.timers(*BORN)
    (text,) = said(world, "c", "etcd-down")
    assert "it ends whenever it is started" in text
    assert "journalctl -u etcd" in text
    assert "recover --replace" in text
    assert "election" not in status.text(status.look(world.host("c")))


def without_the_guard(world: World) -> Callable[[], bool]:
    """`systemctl revert etcd`, and c's etcd starts as Debian's unit would have it."""
    node = world.net.nodes["c"]
    node.paths.etcd_drop_in.unlink()
    guard = world.etcd.guards["c"]
    world.etcd.guards["c"] = lambda: True
    node.units.restart(UNIT)
    return guard


def test_an_etcd_that_was_started_without_the_guard_is_told_and_not_touched(world: World) -> None:
    guard = without_the_guard(world)
    (text,) = said(world, "c", "etcd-unguarded")
    assert "`keel mesh etcd tend`" in text  # first keel's settings have to be there
    starts = world.net.nodes["c"].units.unit(UNIT).starts
    for _ in range(2):
        world.timers(*BORN)
    assert world.net.nodes["c"].paths.etcd_drop_in.exists()
    assert world.net.nodes["c"].units.unit(UNIT).starts == starts
    (text,) = said(world, "c", "etcd-unguarded")
    assert text.endswith("`systemctl restart etcd`")
    duty = next(one for one in world.tend("c") if one.name == "etcd")
    assert "without keel's guard" in duty.text
    world.etcd.guards["c"] = guard
    world.net.nodes["c"].units.restart(UNIT)
    world.timers(*BORN)
    assert [status.look(world.host(name))["warnings"] for name in BORN] == [[], [], []]


def test_one_that_does_not_answer_either_says_that_it_was_not_let_start(world: World) -> None:
    without_the_guard(world)
    del world.etcd.processes["c"]
    world.timers(*BORN)
    assert said(world, "c", "etcd-unguarded")
    assert said(world, "c", "etcd-down") == []


def test_a_unit_that_somebody_changed_is_told_and_starts_nothing(world: World) -> None:
    unit = world.net.nodes["c"].units.unit(UNIT)
    unit.runs = UnitRuns(start="{ path=/opt/etcd ; argv[]=/opt/etcd ; }")
    world.timers(*BORN)
    (text,) = said(world, "c", "etcd-unit-changed")
    assert "another program, /opt/etcd" in text
    assert "systemctl cat etcd" in text
    world.net.nodes["c"].units.stop(UNIT)
    starts = unit.starts
    world.timers(*BORN)
    assert unit.starts == starts
    assert said(world, "c", "etcd-unit-changed")
    assert said(world, "c", "etcd-down") == []
    unit.runs = UnitRuns()
    world.timers(*BORN)
    assert [status.look(world.host(name))["warnings"] for name in BORN] == [[], [], []]


def as_rows(value: object) -> list[dict[str, str]]:
    assert isinstance(value, list)
    return value
