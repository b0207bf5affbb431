"""A node whose clock most members contradict signs and starts nothing until it is right."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from keel.cli.doctor import Doctor
from keel.errors import Refused
from keel.mesh import (
    doctor,
    etcdbirth,
    etcdcredentials,
    etcdissue,
    etcdmember,
    etcdstore,
    status,
    talk,
)
from keel.mesh.duty import Duty, Result
from keel.mesh.liveness import Liveness
from tests.flow.arranged import arranged
from tests.flow.world import World

WRONG = timedelta(minutes=10)


@arranged
def three_just_joined(scratch: Path) -> World:
    """Three members; nothing that was kicked by the third join has run yet."""
    world = World(scratch)
    world.mesh("ab", spare="c")
    world.join("c", world.invite("a"))
    return world


@pytest.fixture
def world(tmp_path: Path) -> World:
    return three_just_joined(tmp_path)


def set_clock(world: World, name: str, wrong_by: timedelta) -> None:
    world.net.nodes[name].clock.wrong_by = wrong_by
    world.sync(name)


def duty(duties: tuple[Duty, ...], name: str) -> Duty:
    return next(one for one in duties if one.name == name)


def until_born(world: World) -> int:
    for _ in range(6):
        world.settle()
        for name in "abc":
            world.tend(name)
        world.net.clock.sleep(5)
    (cluster,) = world.etcd.births()
    return len(cluster.voters())


@pytest.mark.parametrize("wrong_by", [WRONG, -WRONG], ids=["ahead", "behind"])
def test_a_holder_of_a_wrong_clock_gives_no_birth_until_it_is_right(
    world: World, wrong_by: timedelta
) -> None:
    set_clock(world, "a", wrong_by)
    waits = duty(world.tend("a"), "birth")
    assert (waits.result, waits.waiting[0].waiting_for) == (Result.WAITING, "the clock")
    assert etcdstore.load_cluster(world.host("a")).formation is None
    world.net.nodes["a"].clock.wrong_by = timedelta()
    assert duty(world.tend("a"), "birth").result is Result.DONE
    assert until_born(world) == 3


def test_a_member_of_a_wrong_clock_starts_no_etcd_until_it_is_right(world: World) -> None:
    world.settle()
    started = set(world.etcd.processes)
    host = world.host("b")
    host.units.stop("etcd.service")
    set_clock(world, "b", WRONG)
    waits = duty(world.tend("b"), "etcd")
    assert (waits.result, waits.waiting[0].waiting_for) == (Result.WAITING, "the clock")
    assert "b" not in world.etcd.processes
    world.net.nodes["b"].clock.wrong_by = timedelta()
    assert until_born(world) == 3
    assert started <= set(world.etcd.processes)


def test_a_holder_of_a_wrong_clock_grants_nothing(world: World) -> None:
    set_clock(world, "a", WRONG)
    with pytest.raises(Refused) as caught:
        etcdcredentials.grant_oneself(world.host("a"), world.loaded("a"))
    assert caught.value.rule == "clock-off"
    world.net.nodes["a"].clock.wrong_by = timedelta()
    etcdcredentials.grant_oneself(world.host("a"), world.loaded("a"))


def test_the_inviter_that_confirmed_a_join_vouches_for_the_joiners_clock(world: World) -> None:
    """Before its first sync: without NTP it would wait a minute for its first certificate."""
    assert not talk.clock_is_unheard(world.host("c"), world.loaded("c"))
    assert doctor.look_at_clock(world.host("c")).why == ""


def test_a_join_given_again_keeps_what_a_sync_heard_of_many(world: World) -> None:
    token = world.invite("a")
    world.node("d")
    world.join("d", token)
    for name in "bcd":
        world.sync(name)
    heard = talk.judge_clock(world.host("d")).heard
    world.join("d", token)
    assert talk.judge_clock(world.host("d")).heard == heard == 3


def test_one_member_of_a_wrong_clock_does_not_hold_up_the_others(world: World) -> None:
    world.net.nodes["c"].clock.wrong_by = WRONG
    world.sync("a")
    assert not talk.clock_is_off(world.host("a"))


def test_a_damaged_hint_of_the_clocks_is_as_good_as_none(world: World) -> None:
    set_clock(world, "b", WRONG)
    assert talk.clock_is_off(world.host("b"))
    world.net.nodes["b"].paths.clocks.write_bytes(b"{")
    assert not talk.clock_is_off(world.host("b"))


@pytest.mark.parametrize("wrong_by", [WRONG, -WRONG])
def test_status_tells_a_clock_that_is_too_far_off_for_an_answer(
    world: World, wrong_by: timedelta
) -> None:
    """c refuses the greeting as stale, and signs that: it is up, and its clock is known."""
    world.settle()
    world.net.nodes["c"].clock.wrong_by = wrong_by
    found = status.look(world.host("a"), world.spec("a"))
    (seen,) = (one for one in found.members if one.member.display == "c")
    assert (seen.state, seen.clock_offset) == (Liveness.UP, wrong_by)


# --- alone: what a node has seen (design section 3)

YEAR = timedelta(days=365)


@arranged
def one_kept_by_ntp(scratch: Path) -> World:
    """A founder that nobody joined, kept by NTP, booted again."""
    world = World(scratch)
    node = world.node("a")
    node.machine.ntp = True
    world.create("a")
    world.sync("a")
    return world


@pytest.fixture
def alone(tmp_path: Path) -> World:
    return one_kept_by_ntp(tmp_path)


def highest(world: World, name: str) -> timedelta | None:
    """How long ago the time was kept, by a right clock."""
    found, _ = talk.load_highest_time(world.host(name))
    return None if found is None else world.net.clock.now() - found.time


def test_a_lone_node_signs_nothing_before_a_time_that_it_has_seen(alone: World) -> None:
    alone.net.nodes["a"].clock.wrong_by = -YEAR
    alone.net.nodes["a"].machine.ntp = False
    with pytest.raises(Refused) as caught:
        etcdcredentials.grant_oneself(alone.host("a"), alone.loaded("a"))
    assert caught.value.rule == "clock-off"
    assert "doctor" in caught.value.remedy()
    alone.net.nodes["a"].clock.wrong_by = timedelta()
    etcdcredentials.grant_oneself(alone.host("a"), alone.loaded("a"))


def test_the_time_is_kept_now_and_then_and_never_lowered_by_itself(alone: World) -> None:
    assert highest(alone, "a") == timedelta()
    alone.net.clock.sleep(299)
    alone.sync("a")
    assert highest(alone, "a") == timedelta(seconds=299)
    alone.net.clock.sleep(1)
    alone.sync("a")
    assert highest(alone, "a") == timedelta()
    alone.net.nodes["a"].clock.wrong_by = -YEAR
    alone.sync("a")
    assert highest(alone, "a") == timedelta()


def test_a_time_for_which_nobody_vouches_is_not_kept(alone: World) -> None:
    node = alone.net.nodes["a"]
    node.machine.ntp = False
    node.clock.wrong_by = YEAR
    alone.sync("a")
    assert highest(alone, "a") == timedelta()


def test_what_the_members_say_goes_before_what_a_node_has_seen(world: World) -> None:
    world.settle()
    talk.save_highest_time(world.host("b"), world.net.clock.now() + YEAR)
    world.sync("b")
    assert not talk.clock_is_off(world.host("b"))
    world.net.nodes["b"].power_off()
    world.net.nodes["b"].power_on()
    assert talk.clock_is_off(world.host("b"))


def test_the_operator_may_accept_the_clock_of_a_lone_node(alone: World) -> None:
    node = alone.net.nodes["a"]
    node.machine.ntp = False
    node.clock.wrong_by = -YEAR
    found = doctor.look_at_clock(alone.host("a"))
    assert "which it has seen" in found.why
    assert "--accept-clock" in found.remedy
    accepted = doctor.accept_clock(alone.host("a"))
    assert (accepted.value.why, accepted.value.remedy) == ("", "")
    assert highest(alone, "a") == YEAR
    assert not talk.clock_is_off(alone.host("a"))


def test_a_damaged_file_of_the_time_stops_signing_until_the_clock_is_accepted(
    alone: World,
) -> None:
    host = alone.host("a")
    alone.net.nodes["a"].paths.clock.write_bytes(b"")
    alone.sync("a")
    assert talk.clock_is_off(host)
    assert "damaged" in doctor.look_at_clock(host).why
    doctor.accept_clock(host)
    assert not talk.clock_is_off(host)


def test_a_clock_that_the_members_contradict_is_not_accepted(world: World) -> None:
    set_clock(world, "b", WRONG)
    before = talk.load_highest_time(world.host("b"))
    assert "1 of 1 members' clocks differ" in doctor.look_at_clock(world.host("b")).why
    with pytest.raises(Refused) as caught:
        doctor.accept_clock(world.host("b"))
    assert caught.value.rule == "clock-contradicted"
    assert talk.load_highest_time(world.host("b")) == before


@pytest.mark.parametrize("accept", [False, True])
def test_the_command_says_what_it_found(alone: World, accept: bool) -> None:
    node = alone.net.nodes["a"]
    node.machine.ntp = False
    node.clock.wrong_by = -YEAR
    report = Doctor(accept_clock=accept, dry_run=False).run(alone.host("a"))
    document: dict[str, dict[str, object]] = report.document  # type: ignore[assignment]
    assert document["clock"]["right"] is accept
    assert ("nothing contradicts it" in report.text) is accept
    assert ("accepted" in report.text) is accept
    assert bool(report.notes) is not accept


# --- every flow that issues asks first


def test_no_leaf_and_no_root_is_made_under_a_wrong_clock(world: World, tmp_path: Path) -> None:
    world.settle()
    set_clock(world, "b", WRONG)
    with pytest.raises(Refused) as leaf:
        etcdmember.issue_leaves(world.host("b"), world.loaded("b"))
    (tmp_path / "other").mkdir()
    other = World(tmp_path / "other")
    node = other.node("z", mode="cloud")
    other.create("z")
    talk.save_highest_time(node.host, other.net.clock.now() + YEAR)
    with pytest.raises(Refused) as root:
        etcdissue.make_root(node.host, other.loaded("z"))
    assert {leaf.value.rule, root.value.rule} == {"clock-off"}


def test_a_holder_begins_no_birth_while_its_network_changes(world: World) -> None:
    host = world.host("a")
    world.open_window("a", "b")
    waits = duty(world.tend("a"), "birth")
    assert waits.waiting[0].waiting_for == "the change to the network"
    with pytest.raises(Refused) as caught:
        etcdbirth.begin(host, world.loaded("a"))
    assert caught.value.rule == "record-window"
    assert etcdstore.load_cluster(host).formation is None
    host.files.remove(host.paths.window)
    assert until_born(world) == 3
