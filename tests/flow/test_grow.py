"""A cluster that grows, by whole nodes: the fourth and the fifth, lost answers, a voter down, one
that never starts, a dead one (E9, E11, E12). Judged by the etcds, not by keel's own status."""

from __future__ import annotations

from pathlib import Path

import pytest

from keel.mesh import etcdlook, etcdstore, growth, status
from keel.mesh.duty import Duty, Result
from keel.mesh.etcdlook import EtcdSeen, Phase
from keel.mesh.etcdstate import Stage
from keel.mesh.token import EtcdHint
from keel.types import LOCALHOST
from tests.fakes.etcd import UNIT, Cluster
from tests.flow.world import World

BORN = "abc"


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Three voters; the first holds the root."""
    world = World(tmp_path)
    for name in "abcde":
        world.node(name)
    world.create("a")
    for name in "bc":
        world.join(name, world.invite("a"))
        world.settle()
    world.rest(*BORN)
    world.timers(*BORN, seconds=7.0)
    world.host("a").etcd_at(LOCALHOST).put(b"early", b"kept")
    return world


def the_cluster(world: World) -> Cluster:
    (cluster,) = world.etcd.births()
    return cluster


def voters(world: World) -> str:
    """The names of the voters by etcd's own list."""
    names = {f"keel-{world.loaded(n).address.packed.hex()}": n for n in joined(world)}
    return "".join(sorted(names.get(one.name, "?") for one in the_cluster(world).voters()))


def joined(world: World) -> list[str]:
    return [name for name in world.net.nodes if world.host(name).paths.genesis.exists()]


def membership(world: World, name: str = "a") -> Duty:
    return next(duty for duty in world.tend(name) if duty.name == "membership")


def grow(world: World, *names: str, rounds: int = 20) -> None:
    """Timers on these until all of them are voters."""
    wanted = "".join(sorted(names))
    for _ in range(rounds):
        if voters(world) == wanted:
            return
        world.timers(*names, seconds=5.0)
    raise AssertionError(f"voters are {voters(world)}; {membership(world)}; {world.etcd.log}")


def test_the_fourth_is_a_learner_before_it_is_answered_and_then_a_voter(world: World) -> None:
    token = world.invite("a")
    assert token.etcd is EtcdHint.RUNNING
    answered = world.join("d", token)
    assert answered.etcd.state is EtcdHint.RUNNING
    assert answered.etcd.cluster_record is not None
    assert voters(world) == BORN
    assert [one.learner for one in the_cluster(world).members.values()].count(True) == 1
    grow(world, *"abcd")
    world.timers(*"abcd")
    assert world.host("d").etcd_at(LOCALHOST).get(b"early") == b"kept"
    assert etcdstore.load_cluster(world.host("d")).stage is Stage.FORMED
    assert membership(world).result is Result.NOTHING


def status_of(world: World, name: str) -> EtcdSeen:
    host, spec = world.host(name), world.spec(name)
    seen = status.look(host, spec)
    roles = {key: etcdlook.Role(said) for key, said in seen.etcd_roles.items()}
    return etcdlook.look(host, spec, seen.node, roles)


def waits(world: World, name: str) -> str:
    (waiting,) = status_of(world, name).waiting
    return f"{waiting.what} waits for {waiting.waiting_for}: {waiting.why}"


def off(world: World, name: str) -> None:
    world.net.nodes[name].power_off()
    world.kicks.clear()
    world.net.clock.sleep(20)


def learners(world: World) -> list[str]:
    names = {f"[{world.loaded(n).address.compressed}]": n for n in joined(world)}
    found = [one for one in the_cluster(world).members.values() if one.learner]
    return [names[one.peer_url.removeprefix("https://").removesuffix(":2380")] for one in found]


def test_two_that_join_at_once_come_in_one_after_the_other(world: World) -> None:
    tokens = [world.invite("a"), world.invite("a")]
    world.join("d", tokens[0])
    answered = world.join("e", tokens[1])
    assert answered.etcd.cluster_record is None
    assert answered.etcd.note is not None
    assert answered.etcd.note.startswith("place 1 of 1 in the line for the cluster: d as a learner")
    world.timers(*"abcde", seconds=1.0)
    assert waits(world, "e").startswith("a place in the cluster waits for a: place 1 of 1")
    grow(world, *"abcde")
    world.timers()
    assert waits_for_nothing(world, *"abcde")
    assert [error for _, error in world.refused] == []
    for name in "de":
        assert etcdstore.load_failures(world.host(name)).entries == ()
        assert world.host(name).etcd_at(LOCALHOST).get(b"early") == b"kept"


def waits_for_nothing(world: World, *names: str) -> bool:
    return all(status_of(world, name).waiting == () for name in names)


@pytest.mark.parametrize("lost", ["answer", "request"])
@pytest.mark.parametrize("kind", ["add_learner", "promote"])
def test_a_change_that_was_not_answered_is_made_once(world: World, kind: str, lost: str) -> None:
    book = world.etcd.lost_answers if lost == "answer" else world.etcd.lost_requests
    book[kind] = 1
    world.join("d", world.invite("a"))
    grow(world, *"abcd")
    assert book[kind] == 0
    assert len(the_cluster(world).members) == 4


def test_while_the_holder_is_off_the_fourth_joins_and_waits_for_it(world: World) -> None:
    token = world.invite("b")
    assert (token.etcd, token.holder) == (EtcdHint.WAITING, "a")
    off(world, "a")
    answered = world.join("d", token)
    assert answered.etcd.cluster_record is None
    world.timers(*"bcd")
    found = status_of(world, "d")
    assert (found.phase, {one.waiting_for for one in found.waiting}) == (Phase.WAITING, {"a"})
    world.boot("a")
    grow(world, *"abcd")


def test_one_that_has_its_grant_waits_for_a_holder_that_is_off(world: World) -> None:
    world.etcd.lost_requests["add_learner"] = 99
    world.join("d", world.invite("a"))
    world.timers(*"abcd")
    world.etcd.lost_requests.clear()
    off(world, "a")
    world.timers("d")
    assert waits(world, "d").startswith("a place in the cluster waits for a: ")
    world.boot("a")
    grow(world, *"abcd")
    world.timers("d")
    assert waits_for_nothing(world, "d")


def test_another_inviter_names_the_holder_which_brings_the_fourth_in(world: World) -> None:
    token = world.invite("b")
    assert token.holder == "a"
    answered = world.join("d", token)
    assert answered.etcd.cluster_record is None
    grow(world, *"abcd")


def test_while_a_voter_is_down_the_fourth_waits_with_its_name(world: World) -> None:
    off(world, "c")
    answered = world.join("d", world.invite("a"))
    assert answered.etcd.note is not None
    assert "waits for c" in answered.etcd.note
    world.settle()
    duty = membership(world)
    assert (duty.result, duty.waiting[0].waiting_for) == (Result.WAITING, "c")
    world.timers("d")
    assert waits(world, "d").endswith("d as a learner waits for c: " + growth.VOTER_DOWN)
    assert learners(world) == []
    world.boot("c")
    grow(world, *"abcd")


def test_a_voter_that_just_came_back_delays_the_fourth_by_seconds(world: World) -> None:
    world.net.nodes["c"].units.stop(UNIT)
    world.net.nodes["c"].units.start(UNIT, block=False)
    answered = world.join("d", world.invite("a"))
    assert answered.etcd.note is not None
    assert "a steady connection" in answered.etcd.note
    grow(world, *"abcd")


def test_a_learner_that_never_starts_gives_way_after_an_hour_and_goes_last(world: World) -> None:
    guard = world.etcd.guards["d"]
    world.etcd.guards["d"] = lambda: False
    world.join("d", world.invite("a"))
    world.join("e", world.invite("a"))
    for _ in range(5):
        world.timers(*"abcde", seconds=600.0)
    assert learners(world) == ["d"]
    for _ in range(4):
        world.timers(*"abcde", seconds=300.0)
    assert voters(world) == "abce"
    assert learners(world) == ["d"]
    world.etcd.guards["d"] = guard
    grow(world, *"abcde")
    assert len(the_cluster(world).members) == 5


def test_a_slow_learner_is_never_taken_out(world: World) -> None:
    world.etcd.catch_up_seconds = 7 * 3600.0
    world.join("d", world.invite("a"))
    world.join("e", world.invite("a"))
    for _ in range(6):
        world.timers(*"abcde", seconds=3600.0)
    assert (voters(world), learners(world)) == ("abc", ["d"])
    world.etcd.catch_up_seconds = 6.0
    grow(world, *"abcde")


def test_a_dead_learner_is_not_promoted_and_is_reported_after_a_day(world: World) -> None:
    world.join("d", world.invite("a"))
    world.settle()
    world.tend("d")
    world.net.clock.sleep(10)  # it has caught up, and etcd would promote it
    off(world, "d")
    world.join("e", world.invite("a"))
    for _ in range(3):
        world.timers(*"abce", seconds=60.0)
    assert voters(world) == "abc"
    duty = membership(world)
    assert (duty.waiting[0].waiting_for, duty.waiting[0].why) == ("d", "its etcd does not answer")
    for _ in range(25):
        world.timers(*"abce", seconds=3600.0)
    assert voters(world) == "abc"
    (failure,) = etcdstore.load_failures(world.host("a")).entries
    assert failure.code == "learner-silent"
    world.boot("d")
    grow(world, *"abcde")
    world.timers("a")
    assert etcdstore.load_failures(world.host("a")).entries == ()
