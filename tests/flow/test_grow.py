"""A cluster that grows, by whole nodes: the fourth and the fifth, lost answers, a voter down, one
that never starts, a dead one (E9, E11, E12). Judged by the etcds, not by keel's own status."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from keel.cli.form import ReplaceLearner
from keel.errors import Refused
from keel.mesh import etcdgrow, etcdrecover, etcdstore, etcdtaken, etcdtend, growth, store
from keel.mesh.birth import Party
from keel.mesh.duty import Result
from keel.mesh.etcdlook import Phase
from keel.mesh.etcdstate import Stage
from keel.mesh.token import EtcdHint
from keel.types import LOCALHOST, FormationId
from keel.unitnames import FAST_TIMER
from tests.fakes.etcd import UNIT
from tests.flow.growing import (
    BORN,
    grow,
    learners,
    membership,
    off,
    status_of,
    the_cluster,
    three_voters,
    voters,
    waits,
    waits_for_nothing,
)
from tests.flow.kill import tolerate
from tests.flow.world import World

pytestmark = pytest.mark.lives


@pytest.fixture
def world(tmp_path: Path) -> World:
    return three_voters(tmp_path)


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


def test_two_that_join_at_once_come_in_one_after_the_other(world: World) -> None:
    world.etcd.catch_up_seconds = 60.0
    tokens = [world.invite("a"), world.invite("a")]
    world.join("d", tokens[0])
    answered = world.join("e", tokens[1])
    assert answered.etcd.cluster_record is None
    assert answered.etcd.note is not None
    assert answered.etcd.note.startswith("place 1 of 1 in the line for the cluster: ")
    world.timers(*"abcde", seconds=1.0)
    assert waits(world, "e").startswith("a place in the cluster waits for a: place 1 of 1")
    world.etcd.catch_up_seconds = 6.0
    grow(world, *"abcde")
    world.timers()
    assert waits_for_nothing(world, *"abcde")
    assert [error for _, error in world.refused] == []
    for name in "de":
        assert etcdstore.load_failures(world.host(name)).entries == ()
        assert etcdstore.load_queue(world.host(name)).entries == ()
        assert world.host(name).etcd_at(LOCALHOST).get(b"early") == b"kept"


def test_a_holder_that_died_as_it_added_one_goes_on_with_that_one(world: World) -> None:
    """Not with the one before it in the line, which did not answer then."""
    off(world, "c")
    for name in "de":
        world.join(name, world.invite("a"))
        world.timers("a", "b", name)
    off(world, "d")
    world.kicks.clear()
    world.boot("c")
    dies(world, "etcd add_learner", lambda: world.timers("b", "c", "a", seconds=20.0))
    world.boot("d")
    world.kicks.clear()
    world.sync("d")
    membership(world)
    assert learners(world) == ["e"]
    grow(world, *"abcde")


def test_one_that_was_added_and_taken_out_before_its_answer_gets_a_record_that_says_so(
    world: World,
) -> None:
    token = world.invite("a")
    dies(world, "etcd answer add_learner", lambda: world.join("d", token))
    (first,) = (one.id for one in the_cluster(world).members.values() if one.learner)
    pass_by(world, *BORN, seconds=600.0, rounds=7)
    assert len(the_cluster(world).members) == 3
    raw = world.join("d", token).etcd.cluster_record
    assert raw is not None
    assert etcdtaken.parse_record(raw).replaces == first
    grow(world, *"abcd")


def dies(world: World, at: str, run: Callable[[], object]) -> None:
    """The holder dies just before an effect that begins so, and comes back as a new process."""
    holder = world.net.nodes["a"]
    holder.effects.crash_on = lambda text: text.startswith(at)
    for _ in range(5):
        tolerate(run)
        if holder.effects.dead:
            break
    assert holder.effects.dead
    holder.new_life()


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


def pass_by(world: World, *names: str, seconds: float, rounds: int) -> None:
    """Rounds of the timers so far apart; what comes every few seconds is not played out between."""
    for _ in range(rounds):
        world.timers(*names, seconds=20.0)
        world.net.clock.leap(seconds - 20.0)


def test_a_learner_that_never_starts_gives_way_after_an_hour_and_goes_last(world: World) -> None:
    guard = world.etcd.guards["d"]
    world.etcd.guards["d"] = lambda: False
    world.join("d", world.invite("a"))
    world.join("e", world.invite("a"))
    pass_by(world, *"abcde", seconds=600.0, rounds=5)
    assert learners(world) == ["d"]
    pass_by(world, *"abcde", seconds=300.0, rounds=4)
    assert voters(world) == "abce"
    assert learners(world) == ["d"]
    world.etcd.guards["d"] = guard
    grow(world, *"abcde")
    assert len(the_cluster(world).members) == 5


def test_for_ten_minutes_a_learner_that_has_not_started_is_looked_for_every_few_seconds(
    world: World,
) -> None:
    fast = world.net.nodes["a"].units.unit(FAST_TIMER)
    world.etcd.guards["d"] = lambda: False
    world.join("d", world.invite("a"))
    for seconds, looked_for in ((1.0, True), (540.0, True), (120.0, False)):
        world.net.clock.sleep(seconds)
        assert membership(world).waiting[0].waiting_for == "d"
        assert fast.active is looked_for


def test_a_slow_learner_is_never_taken_out(world: World) -> None:
    world.etcd.catch_up_seconds = 7 * 3600.0
    world.join("d", world.invite("a"))
    world.join("e", world.invite("a"))
    pass_by(world, *"abcde", seconds=2 * 3600.0, rounds=3)
    assert (voters(world), learners(world)) == ("abc", ["d"])
    world.etcd.catch_up_seconds = 6.0
    grow(world, *"abcde")


def test_a_dead_learner_is_not_promoted_and_is_reported_after_a_day(world: World) -> None:
    a_dead_learner(world)
    world.join("e", world.invite("a"))
    for _ in range(3):
        world.timers(*"abce", seconds=60.0)
    assert voters(world) == "abc"
    duty = membership(world)
    assert (duty.waiting[0].waiting_for, duty.waiting[0].why) == ("d", "its etcd does not answer")
    pass_by(world, *"abce", seconds=5 * 3600.0, rounds=6)
    assert voters(world) == "abc"
    (failure,) = etcdstore.load_failures(world.host("a")).entries
    assert failure.code == "learner-silent"
    world.boot("d")
    grow(world, *"abcde")
    world.timers("a")
    assert etcdstore.load_failures(world.host("a")).entries == ()


# --- what keeps the holder from it


def test_while_a_change_to_the_network_waits_nobody_comes_in(world: World) -> None:
    token = world.invite("b")
    world.open_window("a", "c")
    world.join("d", token)
    world.tend("d")
    assert [one.waiting_for for one in membership(world).waiting] == ["the change to the network"]
    assert learners(world) == []
    store.end_window(world.host("a"))
    grow(world, *"abcd")


def test_with_a_wrong_clock_the_holder_brings_nobody_in(world: World) -> None:
    off(world, "c")
    world.join("d", world.invite("a"))
    world.boot("c")
    world.net.nodes["a"].clock.wrong_by = timedelta(minutes=10)
    world.sync("a")
    assert [one.waiting_for for one in membership(world).waiting] == ["the clock"]
    assert learners(world) == []


def test_without_a_leader_it_waits_for_one(world: World) -> None:
    for name in "bc":
        off(world, name)
    (waiting,) = membership(world).waiting
    assert waiting.waiting_for == "the cluster's leader"
    answered = world.join("d", world.invite("a"))
    assert answered.etcd.note is not None
    assert "the cluster's leader" in answered.etcd.note


def test_others_than_the_holder_leave_it_to_it(world: World) -> None:
    assert membership(world, "b").text == "another node holds the root"


def test_a_book_that_can_not_be_read_keeps_nobody_out_of_the_mesh(world: World) -> None:
    token = world.invite("a")
    host = world.host("a")
    host.files.write(host.paths.growth, b"?")
    answered = world.join("d", token)
    assert answered.etcd.grant is not None
    assert answered.etcd.note == "a file of its state cannot be read"  # which one is a's affair
    assert store.load(world.host("d")) is not None


# --- a learner's place for the next in line


def a_dead_learner(world: World) -> None:
    """It has caught up, and etcd would promote it."""
    world.etcd.lost_requests["promote"] = 99
    world.join("d", world.invite("a"))
    world.settle()
    world.tend("d")
    world.net.clock.sleep(10)
    off(world, "d")
    world.etcd.lost_requests.clear()


def refused(world: World, name: str) -> str:
    with pytest.raises(Refused) as caught:
        etcdgrow.replace_learner(world.host("a"), world.loaded("a"), name)
    return caught.value.rule


def test_only_a_silent_learner_that_keeps_another_waiting_is_taken_out_by_hand(
    world: World,
) -> None:
    assert refused(world, "b") == "replace-learner-unknown"
    a_dead_learner(world)
    assert refused(world, "b") == "replace-learner-unknown"
    assert refused(world, "d") == "replace-learner-nobody-waits"
    world.join("e", world.invite("a"))
    world.timers(*"abce")
    shown = ReplaceLearner(name="d", dry_run=True).run(world.host("a"))
    assert shown.text.splitlines()[1] == "add-learner e: it is next in line; by the tend"
    assert learners(world) == ["d"]
    world.etcd.lost_requests["remove"] = 1
    did = ReplaceLearner(name="d", dry_run=False).run(world.host("a"))
    assert did.text.startswith("the removal of d waits for the next pass")
    did = ReplaceLearner(name="d", dry_run=False).run(world.host("a"))
    assert did.text == "d was taken out; the next in line is added by the tend"
    grow(world, *"abce")
    world.boot("d")
    world.timers("d", "a")
    assert learners(world) == []  # its data served: its operator gives that up, nobody else
    etcdrecover.recover(world.host("d"), world.spec("d"), world.loaded("d"))
    grow(world, *"abcde")


def test_one_that_answers_is_not_taken_out_by_hand(world: World) -> None:
    world.etcd.catch_up_seconds = 3600.0
    world.join("d", world.invite("a"))
    world.join("e", world.invite("a"))
    world.timers(*"abcde", seconds=10.0)
    assert refused(world, "d") == "replace-learner-answers"


def test_without_a_leader_no_learner_is_taken_out(world: World) -> None:
    a_dead_learner(world)
    for name in "bc":
        off(world, name)
    assert refused(world, "d") == "replace-no-quorum"


# --- records, and what is nobody's


def test_a_learner_that_somebody_else_added_and_that_never_starts_goes(world: World) -> None:
    world.host("a").etcd_at(LOCALHOST).add_learner("https://[fd00::99]:2380")
    world.timers(*BORN)
    (waiting,) = membership(world).waiting
    assert waiting.why == "its etcd has not started yet"
    world.net.clock.sleep(3700)
    world.timers(*BORN)
    assert len(the_cluster(world).members) == 3


def test_whoever_can_not_run_etcd_any_more_leaves_the_line(world: World) -> None:
    off(world, "c")
    world.join("d", world.invite("a"))
    world.timers("a", "b", "d")
    spec = world.net.nodes["d"].paths.spec
    spec.write_text(spec.read_text().replace("cloud_advanced", "cloud"))
    world.boot("c")
    for _ in range(3):
        world.timers(*"abcd", seconds=20.0)
    assert (learners(world), voters(world)) == ([], BORN)
    assert growth.in_line(etcdstore.load_queue(world.host("a"))) == ()


def test_whom_the_holder_has_blocked_stands_in_no_line(world: World) -> None:
    off(world, "c")
    world.join("d", world.invite("b"))
    world.timers("a", "b", "d")
    key = world.loaded("d").key
    assert key in growth.in_line(etcdstore.load_queue(world.host("a")))
    world.remove("a", "d")
    assert key in world.loaded("a").blocked
    membership(world)
    assert growth.in_line(etcdstore.load_queue(world.host("a"))) == ()


def test_one_who_asks_again_is_given_the_record_again(world: World) -> None:
    world.join("d", world.invite("a"))
    joiner = Party(address=world.loaded("d").address, key=world.loaded("d").key)
    first = etcdgrow.at_admission(world.host("a"), world.loaded("a"), joiner, "d")
    assert first == etcdgrow.at_admission(world.host("a"), world.loaded("a"), joiner, "d")
    world.net.clock.sleep(3700)
    later = etcdgrow.at_admission(world.host("a"), world.loaded("a"), joiner, "d")
    assert isinstance(later, bytes)
    assert later != first


def test_a_learner_that_was_off_for_hours_gets_a_record_that_lives(world: World) -> None:
    world.etcd.guards["d"] = lambda: False
    world.net.lose("request", source="a", target="d", count=99)
    token = world.invite("b")
    world.join("d", token)
    for _ in range(3):
        world.timers(*"abcd", seconds=10.0)
    world.net.losses.clear()
    world.net.clock.sleep(2 * 3600)
    del world.etcd.guards["d"]
    grow(world, *"abcd", rounds=40)


def test_a_holder_that_lost_its_book_signs_nothing(world: World) -> None:
    host = world.host("a")
    book = etcdstore.load_book(host)
    etcdstore.save_book(host, replace(book, formed=FormationId("ff" * 8)))
    duties = etcdtend.tend(host, lambda: world.spec("a"), world.enable_spec)
    failed = {duty.name: duty.text for duty in duties if duty.result is Result.FAILED}
    assert "not in the holder's book" in failed["membership"]


def test_a_holder_that_is_in_no_cluster_signs_once_for_the_others(world: World) -> None:
    host = world.host("a")
    mine = next(
        one.id
        for one in the_cluster(world).members.values()
        if world.loaded("a").address.compressed in one.peer_url
    )
    world.host("b").etcd_at(LOCALHOST).remove(mine)
    world.net.nodes["a"].units.stop(UNIT)
    world.net.clock.sleep(20)
    assert membership(world).text == "told c, b"
    before = etcdstore.load_book(host).epoch
    assert membership(world).result is Result.NOTHING
    assert etcdstore.load_book(host).epoch == before


def test_who_was_not_granted_yet_says_that_it_waits_for_the_holder(world: World) -> None:
    world.node("x", mode="cloud")
    world.join("x", world.invite("a"))
    world.make_capable("x")
    why = "a place in the cluster waits for a: it has not granted this node's certificate yet"
    assert waits(world, "x") == why
