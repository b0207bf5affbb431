"""A member whose data is lost gets a new place, by whole nodes (design section 5, Replacement)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Literal

import pytest

from keel.cli.etcd import Recover
from keel.errors import EtcdError, Exit, KeelError, PeerError, Refused
from keel.mesh import etcdgrow, etcdrecover, etcdstore, etcdtaken, growth
from keel.mesh.duty import Duty, Result
from keel.mesh.etcdstate import Lived, Stage
from keel.mesh.members import find
from keel.outcome import Done, Waiting
from keel.types import LOCALHOST
from keel.unitnames import FAST_TIMER
from tests.fakes.etcd import UNIT
from tests.flow.growing import (
    BORN,
    grow,
    learners,
    membership,
    off,
    the_cluster,
    three_voters,
    voters,
)
from tests.flow.world import World

pytestmark = pytest.mark.lives


@pytest.fixture
def world(tmp_path: Path) -> World:
    return three_voters(tmp_path)


def lose(world: World, name: str) -> None:
    """Its etcd's data is gone; the rest of its disk is there."""
    node = world.net.nodes[name]
    node.units.stop(UNIT)
    node.files.remove(node.paths.etcd_data)
    world.net.clock.sleep(20)


def recover(world: World, name: str) -> Done[str] | Waiting:
    return etcdrecover.recover(world.host(name), world.spec(name), world.loaded(name))


def preview(world: World, name: str) -> list[tuple[str, str]]:
    plan = etcdrecover.preview(world.host(name), world.spec(name), world.loaded(name))
    return [(step.action, step.subject) for step in plan.steps]


def refused(run: Callable[[], object]) -> str:
    with pytest.raises(Refused) as caught:
        run()
    return caught.value.rule


def own_id(world: World, name: str) -> int:
    url = f"https://[{world.loaded(name).address.compressed}]:2380"
    return next(one.id for one in the_cluster(world).members.values() if one.peer_url == url)


def duty(world: World, name: str, which: str) -> Duty:
    return next(one for one in world.tend(name) if one.name == which)


def whole_again(world: World, name: str) -> None:
    for _ in range(12):
        if voters(world) == BORN and world.formed(BORN):
            break
        world.timers(*BORN, seconds=7.0)
    world.timers(*BORN)
    assert world.host(name).etcd_at(LOCALHOST).get(b"early") == b"kept"
    assert etcdstore.load_cluster(world.host(name)).stage is Stage.FORMED
    assert not etcdtaken.wants_replacement(world.host(name), world.loaded(name).key)
    assert len(the_cluster(world).members) == 3
    assert len(world.etcd.births()) == 1


@pytest.mark.parametrize("name", ["b", "a"], ids=["a member", "the holder itself"])
def test_lost_data_comes_back_under_a_new_id(world: World, name: str) -> None:
    lose(world, name)
    before = own_id(world, name)
    assert preview(world, name) == [
        ("remove-member", name),
        ("add-learner", name),
        ("send-record", name),
        ("set-data-aside", "/var/lib/keel-etcd/data"),
        ("start-etcd", "etcd.service"),
    ]
    assert (own_id(world, name), learners(world)) == (before, [])
    assert isinstance(recover(world, name), Done)
    assert learners(world) == [name]
    assert world.net.nodes["a"].units.unit(FAST_TIMER).active
    whole_again(world, name)
    assert own_id(world, name) != before


def test_one_that_has_the_record_of_its_new_place_is_signed_no_other_before_it_starts(
    world: World,
) -> None:
    lose(world, "b")
    guard = world.etcd.guards["b"]
    world.etcd.guards["b"] = lambda: False
    recover(world, "b")
    world.timers(*BORN, seconds=7.0)
    before = etcdstore.load_book(world.host("a")).epoch
    for _ in range(2):
        world.timers(*BORN, seconds=7.0)
    assert etcdstore.load_book(world.host("a")).epoch == before
    world.etcd.guards["b"] = guard
    whole_again(world, "b")


def test_the_command_shows_its_plan_and_then_does_it(world: World) -> None:
    lose(world, "b")
    shown = Recover(dry_run=True).run(world.host("b"))
    assert shown.text.splitlines()[0] == "remove-member b: its data is lost, so is its old ID"
    did = Recover(dry_run=False).run(world.host("b"))
    assert did.text.startswith("this member has a new place")
    assert did.exit is Exit.DONE
    whole_again(world, "b")


def test_what_is_left_of_the_data_is_moved_aside(world: World) -> None:
    node = world.net.nodes["b"]
    node.units.stop(UNIT)
    world.net.clock.sleep(20)
    recover(world, "b")
    whole_again(world, "b")
    kept = [name for name in node.files.names(node.paths.etcd_data.parent) if "data." in name]
    assert len(kept) == 1


def test_one_whose_data_etcd_calls_corrupt_serves_nothing(world: World) -> None:
    world.etcd.corrupt.add("b")
    assert membership(world, "a").result is Result.NOTHING
    before = own_id(world, "b")
    recover(world, "b")
    world.etcd.corrupt.clear()
    with pytest.raises(EtcdError):
        world.host("a").etcd_at(LOCALHOST).put(b"late", b"no")
    whole_again(world, "b")
    assert own_id(world, "b") != before
    assert the_cluster(world).alarms == set()
    world.host("a").etcd_at(LOCALHOST).put(b"late", b"kept")


def test_an_alarm_that_cannot_be_taken_back_now_is_taken_back_by_a_later_pass(
    world: World,
) -> None:
    the_cluster(world).alarms.add(7)
    world.etcd.lost_requests["disarm"] = 1
    assert "alarm" not in membership(world).text
    assert "alarm" in membership(world).text
    assert the_cluster(world).alarms == set()
    the_cluster(world).alarms.add(own_id(world, "b"))
    assert "alarm" not in membership(world).text  # it is a member: its data has to go first


def test_an_old_disk_is_not_taken_for_a_restored_one_again(world: World) -> None:
    host = world.host("b")
    world.net.nodes["b"].units.stop(UNIT)
    world.net.clock.sleep(20)
    known = world.loaded("a").view.by_key(world.loaded("b").key)
    assert known is not None
    etcdstore.save_lived(host, Lived(counter=0))
    recover(world, "b")
    assert etcdstore.load_lived(host).counter >= known.lived


@pytest.mark.parametrize(
    ("name", "effect", "whose"),
    [
        ("b", "post ", "b"),
        ("b", "answer ", "b"),
        ("a", "post ", "a"),
        ("a", "start keel-mesh-etcd.service", "a"),
    ],
    ids=[
        "the tend has it all done before the holder is asked",
        "the tend takes its place after the holder has answered",
        "the holder's tend has done all before it asks itself",
        "the holder's tend takes its place before the command does",
    ],
)
def test_who_comes_second_with_the_new_place_is_not_refused(
    world: World, name: str, effect: str, whose: str
) -> None:
    """The command and passes of the tend do the same at once; the wish is on disk by then."""
    lose(world, name)
    node, key, came = world.net.nodes[name], world.loaded(name).key, list[str]()

    def meanwhile(text: str) -> bool:
        wished = etcdtaken.wants_replacement(node.host, key)
        if text.startswith(effect) and wished and not came:
            came.append(text)
            world.tend(whose)
            world.tend(whose)
        return False

    node.effects.crash_on = meanwhile
    assert isinstance(recover(world, name), Done)
    assert came
    assert not etcdtaken.wants_replacement(node.host, key)
    whole_again(world, name)


@pytest.mark.parametrize("kind", ["remove", "add_learner"])
@pytest.mark.parametrize("lost", ["answer", "request"])
def test_a_change_that_was_not_answered_is_made_once(world: World, kind: str, lost: str) -> None:
    book = world.etcd.lost_answers if lost == "answer" else world.etcd.lost_requests
    lose(world, "b")
    book[kind] = 1
    recover(world, "b")
    whole_again(world, "b")
    assert book[kind] == 0


@pytest.mark.parametrize("lost", ["request", "reply"])
def test_the_holders_answer_is_lost_and_the_tend_goes_on(
    world: World, lost: Literal["request", "reply"]
) -> None:
    lose(world, "b")
    world.net.lose(lost, source="b", path="/v1/etcd", count=1, skip=1)
    with pytest.raises(PeerError):
        recover(world, "b")
    assert etcdtaken.wants_replacement(world.host("b"), world.loaded("b").key)
    whole_again(world, "b")


def test_the_holder_is_off_and_the_wish_is_not_kept_before_it_said_yes(world: World) -> None:
    lose(world, "b")
    off(world, "a")
    with pytest.raises(PeerError):
        recover(world, "b")
    assert not etcdtaken.wants_replacement(world.host("b"), world.loaded("b").key)


def test_while_another_voter_is_down_the_new_place_waits_for_it(world: World) -> None:
    for name in "de":
        world.join(name, world.invite("a"))
    grow(world, *"abcde")
    world.timers(*"abcde")
    lose(world, "b")
    off(world, "c")
    said = Recover(dry_run=False).run(world.host("b"))
    assert said.text == (
        f"a new place in the cluster waits for c: {growth.VOTER_DOWN}; the timer goes on"
    )
    assert voters(world) == "acde"
    waiting = duty(world, "b", "replacement").waiting
    assert [one.waiting_for for one in waiting] == ["c"]
    world.boot("c")
    grow(world, *"abcde")


def test_a_voter_that_serves_again_needs_no_new_place(world: World) -> None:
    node = world.net.nodes["b"]
    node.units.stop(UNIT)
    world.net.clock.sleep(20)
    world.net.lose("request", source="b", path="/v1/etcd", count=1, skip=1)
    with pytest.raises(PeerError):
        recover(world, "b")
    before = own_id(world, "b")
    node.units.start(UNIT, block=False)
    world.net.clock.sleep(20)
    assert duty(world, "b", "replacement").text.startswith("this member's etcd serves again")
    whole_again(world, "b")
    assert own_id(world, "b") == before


def test_while_the_holder_is_off_the_tend_says_for_whom_the_wish_waits(world: World) -> None:
    lose(world, "b")
    world.net.lose("request", source="b", path="/v1/etcd", count=1, skip=1)
    with pytest.raises(PeerError):
        recover(world, "b")
    off(world, "a")
    (waiting,) = duty(world, "b", "replacement").waiting
    assert waiting.what == "a new place in the cluster"
    assert waiting.waiting_for == "a"


def test_another_that_came_in_between_goes_first(world: World) -> None:
    lose(world, "b")
    at, url = world.net.nodes["a"].etcd_at, "https://[fd00::99]:2380"

    class Racing:
        """Once b is out, somebody else's learner is there."""

        def __getattr__(self, name: str) -> object:
            return getattr(at(LOCALHOST), name)

        def remove(self, member_id: int, *, timeout_seconds: float = 20.0) -> None:
            at(LOCALHOST).remove(member_id)
            at(LOCALHOST).add_learner(url)

    world.net.nodes["a"].etcd_at = (  # type: ignore[assignment]
        lambda where: Racing() if where == LOCALHOST else at(where)
    )
    found = recover(world, "b")
    assert isinstance(found, Waiting)


# --- refusals: each by its own reason, and nothing is changed


def test_a_member_that_serves_is_refused(world: World) -> None:
    assert refused(lambda: recover(world, "b")) == "replace-serves"
    assert refused(lambda: preview(world, "b")) == "replace-serves"


def test_one_that_can_not_run_etcd_is_refused(world: World) -> None:
    world.net.nodes["b"].overlay_etcd_installed = False
    assert refused(lambda: recover(world, "b")) == "replace-not-capable"


@pytest.mark.parametrize("at", ["a", "b"])
def test_while_a_change_to_the_network_waits_it_is_refused(world: World, at: str) -> None:
    lose(world, "b")
    world.open_window(at, "c")
    before = own_id(world, "b")
    assert refused(lambda: recover(world, "b")) == "replace-window"
    assert own_id(world, "b") == before


@pytest.mark.parametrize("at", ["a", "b"])
def test_under_a_wrong_clock_it_is_refused(world: World, at: str) -> None:
    lose(world, "b")
    world.net.nodes[at].clock.wrong_by = timedelta(minutes=10)
    world.sync(at)
    before, holder = own_id(world, "b"), world.loaded("a")
    asker = find(holder.view, "b")

    def asked() -> object:
        if at == "b":
            return recover(world, "b")
        return etcdgrow.replace_member(world.host("a"), holder, asker, dry_run=False)

    assert refused(asked) == "clock-off"
    assert own_id(world, "b") == before


def test_without_a_quorum_of_the_others_it_is_refused(world: World) -> None:
    lose(world, "b")
    off(world, "c")
    assert refused(lambda: recover(world, "b")) == "replace-no-quorum"
    assert not etcdtaken.wants_replacement(world.host("b"), world.loaded("b").key)


def test_of_four_with_one_down_another_is_no_quorum_less(world: World) -> None:
    world.join("d", world.invite("a"))
    grow(world, *"abcd")
    lose(world, "b")
    off(world, "c")
    assert refused(lambda: recover(world, "b")) == "replace-no-quorum"
    assert len(the_cluster(world).members) == 4


def test_while_another_is_brought_in_it_is_refused(world: World) -> None:
    world.etcd.guards["d"] = lambda: False
    world.join("d", world.invite("a"))
    lose(world, "b")
    assert refused(lambda: recover(world, "b")) == "replace-learner-in-the-way"
    assert len(the_cluster(world).voters()) == 3


def test_one_that_the_holder_granted_nothing_is_refused(world: World) -> None:
    off(world, "a")
    world.join("d", world.invite("b"))
    world.boot("a")
    world.net.clock.sleep(20)
    world.kicks.clear()
    world.sync("a")
    world.kicks.clear()
    assert refused(lambda: recover(world, "d")) == "replace-not-listed"


def test_where_no_holder_is_known_it_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.node("a", mode="cloud")
    world.create("a")
    spec = world.net.nodes["a"].paths.spec
    spec.write_text(spec.read_text().replace("mode: cloud", "mode: cloud_advanced"))
    world.etcd.install(world.net.nodes["a"])
    assert refused(lambda: recover(world, "a")) == "replace-no-holder"


def test_another_refusal_of_the_holders_is_told_as_it_is(world: World) -> None:
    lose(world, "b")
    world.host("a").files.write(world.host("a").paths.etcd_queue, b"not json")
    with pytest.raises(KeelError) as caught:
        recover(world, "b")
    assert not isinstance(caught.value, Refused)


def test_the_holder_replaces_no_leader_whatever_its_member_thinks(world: World) -> None:
    """Its data is there; it only looked for it in the wrong place."""
    (cluster,) = world.etcd.births()
    for name in "bc":
        if world.etcd.processes[name].member == cluster.leader:
            break
    else:
        world.net.nodes["a"].units.stop(UNIT)
        world.net.clock.sleep(20)
        world.net.nodes["a"].units.start(UNIT)
        world.net.clock.sleep(20)
        name = next(n for n in "bc" if world.etcd.processes[n].member == cluster.leader)
    asker = find(world.loaded("a").view, name)
    run = partial(etcdgrow.replace_member, world.host("a"), world.loaded("a"), asker, dry_run=False)
    assert refused(run) == "replace-serves"
    assert own_id(world, name) in cluster.members


def test_no_place_is_given_away_that_the_quorum_needs(world: World) -> None:
    lose(world, "b")
    off(world, "c")
    assert refused(lambda: recover(world, "b")) == "replace-no-quorum"


def test_no_place_is_given_away_while_another_voter_s_keel_is_silent(world: World) -> None:
    """Etcd would let it go; nobody knows whether the rest is a quorum."""
    lose(world, "b")
    world.net.lose("request", source="a", target="c", count=999)
    assert refused(lambda: recover(world, "b")) == "replace-no-quorum"
    assert len(the_cluster(world).members) == 3


def test_a_pass_that_is_at_work_just_then_is_waited_for(world: World) -> None:
    lose(world, "b")
    host = world.host("b")
    at_work = ExitStack()
    at_work.enter_context(host.locks.hold(host.paths.tend_lock, what="the tend"))
    world.net.clock.after(5.0, at_work.close)
    assert Recover(dry_run=False).run(host).exit is Exit.DONE
    whole_again(world, "b")


def test_a_pass_that_outlasts_the_command_s_patience_makes_no_failure_of_what_was_done(
    world: World,
) -> None:
    lose(world, "b")
    host = world.host("b")
    with host.locks.hold(host.paths.tend_lock, what="the tend"):
        report = Recover(dry_run=False).run(host)
    assert report.exit is Exit.DONE
    assert report.text.splitlines() == [
        "this member has a new place; its etcd starts there as a learner",
        "a pass of the timer is at work just now and goes on with it",
    ]
    whole_again(world, "b")


@pytest.mark.parametrize("look", [1, 2, 3])
def test_a_place_that_the_holder_s_tend_took_beside_its_command_is_not_given_away(
    world: World, look: int
) -> None:
    """A whole pass at one of the command's looks. For a member the channel sees to it: it answers
    one such question of a member's at a time."""
    lose(world, "a")
    node, key, seen = world.net.nodes["a"], world.loaded("a").key, list[str]()
    b = f"answer {world.loaded('b').address}"
    places: list[int] = []

    def meanwhile(text: str) -> bool:
        if text.startswith(b) and etcdtaken.wants_replacement(node.host, key):
            seen.append(text)
            if len(seen) == look:
                world.tend("a")
                places.append(own_id(world, "a"))
        return False

    node.effects.crash_on = meanwhile
    assert isinstance(recover(world, "a"), Done)
    node.effects.crash_on = None
    whole_again(world, "a")
    assert places == [own_id(world, "a")]


def ask_in_vain(world: World) -> None:
    """b's data is lost, and so is the holder's answer."""
    lose(world, "b")
    world.net.lose("reply", source="b", target="a", path="/v1/etcd", skip=1)
    with pytest.raises(PeerError):
        recover(world, "b")


def test_a_place_that_was_taken_while_the_holder_looks_is_not_given_away_again(
    world: World,
) -> None:
    ask_in_vain(world)
    effects = world.net.nodes["a"].effects
    b = f"answer {world.loaded('b').address}"
    met: list[str] = []

    def takes_its_place(effect: str) -> bool:
        if effect.startswith(b) and not met:
            met.append(effect)  # b's word that it wants a new place is on its way
            recover(world, "b")
            world.tend("b")
        return False

    effects.crash_on = takes_its_place
    world.tend("a")
    effects.crash_on = None
    assert met
    place = own_id(world, "b")
    whole_again(world, "b")
    assert own_id(world, "b") == place


def test_a_refusal_leaves_the_wish_that_is_on_disk_and_the_tend_goes_on(world: World) -> None:
    ask_in_vain(world)
    off(world, "c")
    assert refused(lambda: recover(world, "b")) == "replace-no-quorum"
    assert duty(world, "b", "replacement").result is Result.FAILED
    assert etcdtaken.wants_replacement(world.host("b"), world.loaded("b").key)
    world.boot("c")
    whole_again(world, "b")


def test_who_asks_for_its_place_is_not_sent_it(world: World) -> None:
    """Its etcd would start there while its wish still stands, and a second place were given."""
    ask_in_vain(world)
    before = etcdstore.load_cluster(world.host("b"))
    assert learners(world) == ["b"]
    world.tend("a")
    assert etcdstore.load_cluster(world.host("b")) == before
    world.tend("b")
    assert etcdstore.load_cluster(world.host("b")) != before
    assert not etcdtaken.wants_replacement(world.host("b"), world.loaded("b").key)
    place = own_id(world, "b")
    whole_again(world, "b")
    assert own_id(world, "b") == place


def test_asked_for_once_more_it_goes_on(world: World) -> None:
    ask_in_vain(world)
    assert etcdtaken.wants_replacement(world.host("b"), world.loaded("b").key)
    assert isinstance(recover(world, "b"), Done)
    whole_again(world, "b")


def test_the_tend_goes_on_with_what_was_asked_for(world: World) -> None:
    ask_in_vain(world)
    came_to = duty(world, "b", etcdrecover.NAME)
    assert (came_to.result, came_to.open) == (Result.DONE, True)
    whole_again(world, "b")


def test_a_learner_that_lost_its_data_before_it_heard_of_a_leader_is_told_the_cure(
    world: World,
) -> None:
    """It published itself once; over an empty directory etcd would panic, again and again."""
    world.etcd.catch_up_seconds = 10**6
    world.join("d", world.invite("a"))
    world.settle()
    d = world.net.nodes["d"]
    for _ in range(4):
        if any(m.learner and m.client_urls for m in the_cluster(world).members.values()):
            break
        world.timers("a", "d", seconds=5.0)
    cluster = etcdstore.load_cluster(d.host)
    etcdstore.save_cluster(d.host, replace(cluster, stage=Stage.STARTING))
    lose(world, "d")
    world.refused.clear()
    world.tend("d")
    kept = [(one.code, one.remedy) for one in etcdstore.load_failures(d.host).entries]
    assert [code for code, _ in kept] == ["etcd-data-missing"]
    assert "`keel mesh etcd recover --replace`" in kept[0][1]
    d.units.start_without_effect(UNIT)
    assert "start-data-missing" in [
        getattr(e, "rule", "") for who, e in world.refused if who == "d"
    ]
    assert not any("panics" in line for line in world.etcd.log)
    world.etcd.catch_up_seconds = 6.0
    assert isinstance(recover(world, "d"), Done)
    grow(world, "a", "b", "c", "d")
    world.timers("a", "b", "c", "d")
    assert etcdstore.load_failures(d.host).entries == ()
    assert d.host.etcd_at(LOCALHOST).get(b"early") == b"kept"
