"""A removed member's place in etcd: the gates before, the end of it after, what is said (E18)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from keel.cli import status
from keel.cli.remove import document, notes
from keel.errors import Exit, Refused
from keel.mesh import drafts, etcdchange, etcdcrl, etcdremove, etcdstore, store, wire
from keel.mesh import remove as remove_flow
from keel.mesh.duty import Result
from keel.mesh.etcdstate import Stage
from keel.mesh.expulsion import Consent
from keel.mesh.removal import Mode
from keel.mesh.window import Means
from keel.outcome import Done, Incomplete
from keel.types import LOCALHOST
from keel.unitnames import TEND_UNIT
from tests.fakes.etcd import UNIT, Cluster, Member
from tests.flow.arranged import arranged
from tests.flow.growing import grow, three_voters, voters
from tests.flow.kill import tolerate
from tests.flow.removing import NONCE, before, member, remove, sign
from tests.flow.test_refusals import disk
from tests.flow.world import World


@arranged
def three_voters_and_one_without_etcd(scratch: Path) -> World:
    """a, b and c are voters; a founded and holds the root. d is a member without etcd."""
    made = World(scratch)
    for name in "abc":
        made.node(name)
    made.node("d", mode="cloud")
    made.create("a")
    for name in "bcd":
        made.join(name, made.invite("a"))
        made.settle()
    made.rest("a", "b", "c")
    made.timers(seconds=60.0)
    return made


@pytest.fixture
def world(tmp_path: Path) -> World:
    return three_voters_and_one_without_etcd(tmp_path)


def cluster(world: World) -> Cluster:
    (found,) = world.etcd.births()
    return found


def listed(world: World) -> set[str]:
    """The names of the nodes that etcd lists."""
    at = {world.loaded(name).address.packed.hex(): name for name in "abc"}
    return {at[one.name.removeprefix("keel-")] for one in cluster(world).members.values()}


def crash(world: World, name: str) -> None:
    world.net.nodes[name].power_off()
    world.net.clock.sleep(10)


def two_voters(world: World) -> World:
    remove(world, "a", "c")
    world.net.clock.sleep(10)
    assert listed(world) == {"a", "b"}
    return world


def still_counted(world: World, name: str) -> list[str]:
    """What the node's status says of removed members that etcd lists."""
    return [one["text"] for one in told(world, name) if one["code"] == "etcd-still-listed"]


def told(world: World, name: str) -> list[dict[str, str]]:
    warned = status.look(world.host(name))["warnings"]
    assert isinstance(warned, list)
    return warned


def serves(world: World, name: str) -> bool:
    return tolerate(lambda: world.host(name).etcd_at(LOCALHOST).put(b"k", b"v")) is None


# --- the gates


def test_one_of_three_may_go_and_the_end_of_fault_tolerance_is_said(world: World) -> None:
    (told,) = before(world, "a", "c")
    assert "2 voters are left" in told
    assert listed(world) == {"a", "b", "c"}


def test_a_dead_one_may_go(world: World) -> None:
    crash(world, "c")
    assert before(world, "a", "c")


def test_who_is_in_no_cluster_may_always_go(world: World) -> None:
    crash(world, "b")
    assert before(world, "a", "d") == ()


def test_a_node_that_is_ready_and_not_listed_may_go(world: World) -> None:
    world.node("e")
    world.join("e", world.invite("a"))
    world.settle()
    assert before(world, "b", "e") == ()


def _one_down(world: World) -> None:
    crash(world, "b")


def _no_quorum(world: World) -> None:
    crash(world, "b")
    crash(world, "c")


def _own_etcd_down(world: World) -> None:
    """This node's own etcd does not run, and with it one voter is missing already."""
    world.net.nodes["a"].units.stop(UNIT)
    world.net.clock.sleep(10)


@pytest.mark.parametrize(
    ("arrange", "by"),
    [
        pytest.param(_one_down, "a", id="one of the others is down"),
        pytest.param(_no_quorum, "a", id="there is no quorum now"),
        pytest.param(_own_etcd_down, "a", id="this node's own etcd is down"),
        pytest.param(_one_down, "d", id="told by a node without etcd"),
    ],
)
def test_whose_going_would_cost_the_quorum_is_refused(
    world: World, arrange: Callable[[World], None], by: str
) -> None:
    arrange(world)
    unchanged = disk(world.net.nodes[by])
    with pytest.raises(Refused) as caught:
        before(world, by, "c")
    assert (caught.value.rule, caught.value.exit) == ("removal-no-quorum", Exit.REFUSED)
    assert disk(world.net.nodes[by]) == unchanged
    assert len(cluster(world).members) == 3
    assert isinstance(before(world, by, "c", Consent(without_quorum=True)), tuple)


def test_a_node_without_etcd_lets_go_who_may(world: World) -> None:
    assert before(world, "d", "c")


def test_whoever_waits_for_a_place_is_no_voter_that_a_node_without_etcd_counts(
    world: World,
) -> None:
    world.node("e")
    world.net.cut("a", "e")
    world.join("e", world.invite("b"))
    world.settle()
    world.sync("d")
    assert etcdstore.load_cluster(world.host("e")).stage is Stage.IDLE
    assert world.loaded("d").view.by_key(world.loaded("e").key) is not None
    assert before(world, "d", "c")


def test_the_last_but_one_is_refused_without_the_operator_s_word(world: World) -> None:
    two_voters(world)
    with pytest.raises(Refused) as caught:
        before(world, "a", "b")
    assert (caught.value.rule, caught.value.exit) == ("removal-one-voter", Exit.REFUSED)
    assert listed(world) == {"a", "b"}


def test_the_last_but_one_is_taken_out_first_while_both_serve(world: World) -> None:
    two_voters(world)
    (told,) = before(world, "a", "b", Consent(one_voter=True))
    assert "1 voter is left" in told
    assert listed(world) == {"a"}
    assert world.loaded("b").key not in world.loaded("a").view.removed
    assert remove(world, "a", "b").waiting == ()
    assert serves(world, "a")


def test_when_the_last_but_one_is_not_taken_out_nothing_else_begins(world: World) -> None:
    two_voters(world)
    seen = before(world, "a", "d")
    assert seen == ()
    world.etcd.refusals["remove"] = 1
    with pytest.raises(Refused) as caught:
        before(world, "a", "b", Consent(one_voter=True))
    assert caught.value.rule == "removal-not-taken-out"
    assert listed(world) == {"a", "b"}


# --- the end of its place


def test_a_removed_voter_is_out_of_the_list_and_its_certificates_are_revoked(world: World) -> None:
    found = remove(world, "a", "c")
    assert found.waiting == ()
    assert found.holds == (
        "etcd: c is out of the list of members",
        "etcd: CRL 2 revokes the certificates of c",
    )
    assert listed(world) == {"a", "b"}
    assert [serves(world, name) for name in "abc"] == [True, True, False]


def test_a_member_that_is_not_the_holder_removes_and_has_it_revoked(world: World) -> None:
    world.trust("b", "c")
    world.trust("c", "b")
    for name in "cba":
        world.sync(name)
    found = remove(world, "b", "c")
    assert found.waiting == ()
    assert found.holds[1] == "etcd: the holder's CRL 2 revokes the certificates of c"
    assert listed(world) == {"a", "b"}


def test_what_a_node_without_etcd_removes_the_members_take_out(world: World) -> None:
    world.trust("d", "c")
    world.trust("c", "d")
    for name in "cda":
        world.sync(name)
    found = remove(world, "d", "c")
    assert found.holds[0] == "etcd: the cluster's members take c out of their list by themselves"
    world.timers("a", "b")
    assert listed(world) == {"a", "b"}


def test_a_member_without_etcd_leaves_etcd_alone(world: World) -> None:
    found = remove(world, "a", "d")
    assert found == etcdremove.Enforced()
    assert listed(world) == {"a", "b", "c"}


def test_a_local_removal_leaves_etcd_alone(world: World) -> None:
    key = world.loaded("c").key
    assert etcdremove.after_removal(world.host("b"), world.loaded("b"), key, "c") == (
        etcdremove.Enforced()
    )
    assert listed(world) == {"a", "b", "c"}


def test_the_holder_away_its_part_waits_and_is_done_when_it_is_back(world: World) -> None:
    world.trust("b", "c")
    world.trust("c", "b")
    for name in "cba":
        world.sync(name)
    world.net.cut("a", "b")
    sign(world, "b", "c")
    key = world.loaded("c").key
    found = etcdremove.after_removal(world.host("b"), world.loaded("b"), key, "c")
    assert [one.waiting_for for one in found.waiting][-1] == "a"
    world.net.heal()
    world.timers("b", "a", "b")
    assert listed(world) == {"a", "b"}
    host = world.host("a")
    crl = etcdcrl.read_crl(etcdstore.load_crl(host) or b"", etcdstore.load_roots(host))
    assert crl.number == 2
    assert etcdstore.load_queue(world.host("b")).entries == ()


def test_without_a_quorum_it_stays_listed_until_any_tend_with_the_evidence_can(
    world: World,
) -> None:
    crash(world, "b")
    sign(world, "a", "c")
    remover = world.net.nodes["a"]
    remover.effects.done.clear()
    key = world.loaded("c").key
    found = etcdremove.after_removal(world.host("a"), world.loaded("a"), key, "c")
    assert found.waiting[0].what == "the end of c's place in etcd"
    assert f"start {TEND_UNIT}" in remover.effects.done
    assert listed(world) == {"a", "b", "c"}
    duty = etcdremove.duty(world.host("a"), world.loaded("a"))
    assert duty.result is Result.WAITING
    assert still_counted(world, "a") == ["etcd still counts c, which was removed from the mesh"]
    world.boot("b")
    world.settle()
    world.net.clock.sleep(10)
    world.timers("b")
    assert listed(world) == {"a", "b"}
    assert any("etcd remove" in str(one) for one in world.net.nodes["b"].effects.done)


@pytest.mark.parametrize(
    ("healed_after", "done"),
    [pytest.param(14.0, True, id="an election"), pytest.param(34.0, False, id="an outage")],
)
def test_the_command_waits_for_etcd_as_long_as_an_election_takes(
    world: World, healed_after: float, done: bool
) -> None:
    sign(world, "a", "c")
    world.net.cut("a", "b")
    world.net.clock.sleep(10)
    world.net.clock.after(healed_after, world.net.heal)
    key = world.loaded("c").key
    found = etcdremove.after_removal(world.host("a"), world.loaded("a"), key, "c")
    assert (found.waiting == ()) is done
    world.net.clock.sleep(30)
    world.timers("a")
    assert listed(world) == {"a", "b"}


def test_for_ten_minutes_the_tend_looks_every_few_seconds_for_the_quorum_that_a_removal_takes(
    world: World,
) -> None:
    crash(world, "b")
    sign(world, "a", "c")
    for minutes, soon in ((0, True), (9, True), (2, False)):
        world.net.clock.sleep(60.0 * minutes)
        duty = etcdremove.duty(world.host("a"), world.loaded("a"))
        assert (duty.result, duty.open) == (Result.WAITING, soon)


@pytest.mark.parametrize(
    ("minutes", "soon"), [pytest.param(0, True, id="at once"), pytest.param(11, False, id="later")]
)
def test_a_vote_that_somebody_dates_to_the_end_of_time_changes_nothing_of_that(
    world: World, minutes: int, soon: bool
) -> None:
    crash(world, "b")
    sign(world, "a", "c")
    liar, host = world.loaded("d"), world.host("a")
    end = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    vote = drafts.make_vote(
        liar.roster, liar.identity.signing, world.loaded("b").key, now=end, nonce=NONCE
    )
    with store.locked(host, "the mesh"):
        store.merge_into(host, world.loaded("a"), (wire.encode(vote),))
    world.net.clock.sleep(60.0 * minutes)
    duty = etcdremove.duty(host, world.loaded("a"))
    assert (duty.result, duty.open) == (Result.WAITING, soon)


@arranged
def five_voters(scratch: Path) -> World:
    made = three_voters(scratch)
    for last in "de":
        made.join(last, made.invite("a"))
        grow(made, *"abcde"[: 1 + "abcde".index(last)])
    made.timers()
    return made


def test_of_two_that_go_the_second_waits_when_another_voter_failed_meanwhile(
    tmp_path: Path,
) -> None:
    """etcd would take it out: by its own count the one that goes helps to the end."""
    world = five_voters(tmp_path)
    for name in "de":
        sign(world, "a", name)

    def b_fails(text: str) -> bool:
        if text.startswith("etcd answer remove"):
            world.net.nodes["b"].power_off()
        return False

    world.net.nodes["a"].effects.crash_on = b_fails
    duty = etcdremove.duty(world.host("a"), world.loaded("a"))
    assert [one.waiting_for for one in duty.waiting] == ["b"]
    assert len(voters(world)) == 4
    assert serves(world, "a")


def test_the_answer_of_the_removal_is_lost_and_it_is_seen_to_be_done(world: World) -> None:
    world.etcd.lost_answers["remove"] = 1
    assert remove(world, "a", "c").waiting == ()
    assert listed(world) == {"a", "b"}


def test_a_revoked_leader_is_not_called_expelled_before_it_is(world: World) -> None:
    """Its CRL entry expels nobody: it leads on until etcd took it out."""
    leads = next(n for n in "abc" if world.etcd.processes[n].member == cluster(world).leader)
    remover = next(name for name in "abc" if name != leads)
    for one, other in ((remover, leads), (leads, remover)):
        world.trust(one, other)
    for name in "abcab":
        world.sync(name)
    sign(world, remover, leads)
    world.sync(remover)
    assert cluster(world).leader in cluster(world).members
    assert still_counted(world, remover) == [
        f"etcd still counts {leads}, which was removed from the mesh; while it is listed the"
        " cluster has no fault tolerance"
    ]
    assert len(told(world, remover)) == 1  # and not as silent
    world.settle()
    world.net.clock.sleep(10)
    for name in "abc":
        if name != leads:
            etcdremove.duty(world.host(name), world.loaded(name))
    assert leads not in listed(world)
    assert still_counted(world, remover) == []
    assert serves(world, remover)


def test_nothing_is_asked_of_etcd_once_the_list_was_seen_to_be_clean(world: World) -> None:
    assert etcdremove.duty(world.host("b"), world.loaded("b")).result is Result.NOTHING
    remove(world, "a", "d")
    world.timers("b")
    node = world.net.nodes["b"]
    node.effects.done.clear()
    assert etcdremove.duty(world.host("b"), world.loaded("b")).result is Result.NOTHING
    assert node.effects.done == []


def test_a_removed_member_that_somebody_added_again_is_taken_out_again(world: World) -> None:
    """The list was seen to be clean; the holder's next record tells every member that it is not."""
    address = world.loaded("c").address.compressed
    remove(world, "a", "c")
    world.timers("a", "b")
    assert listed(world) == {"a", "b"}
    world.host("a").etcd_at(LOCALHOST).add_learner(f"https://[{address}]:2380")
    world.timers("a", "b", seconds=10.0)
    world.timers("a", "b", seconds=10.0)
    assert len(cluster(world).members) == 2


def test_who_is_in_no_cluster_takes_nobody_out(world: World) -> None:
    assert etcdremove.duty(world.host("d"), world.loaded("d")).result is Result.NOTHING


# --- the removed side


def test_a_removed_node_that_hears_of_it_stops_its_etcd_and_says_what_to_do(world: World) -> None:
    host = world.host("c")
    sign(world, "a", "c")
    raws = [world.loaded("a").roster.raws[r] for r in _removals(world, "a", "c")]
    with store.locked(host, "the mesh"):
        store.merge_into(host, world.loaded("c"), raws)
    (found,) = world.tend("c")
    assert (found.name, found.result) == ("removed", Result.FAILED)
    (kept,) = etcdstore.load_failures(host).entries
    assert (kept.code, "keel mesh leave" in kept.remedy) == ("node-removed", True)
    state = host.units.state(UNIT)
    assert (state.active, state.enabled) == ("inactive", "masked")


def test_a_removed_node_that_comes_back_with_its_old_data_starts_no_etcd(world: World) -> None:
    host = world.host("c")
    remove(world, "a", "c")
    raws = [world.loaded("a").roster.raws[r] for r in _removals(world, "a", "c")]
    with store.locked(host, "the mesh"):
        store.merge_into(host, world.loaded("c"), raws)
    world.refused.clear()
    world.boot("c")
    assert [getattr(error, "rule", "") for name, error in world.refused if name == "c"][-1:] == [
        "start-removed"
    ]


def test_a_member_that_a_person_took_out_of_etcd_is_told_and_not_started_in_vain(
    world: World,
) -> None:
    found = etcdchange.read_list(world.host("a"))
    assert isinstance(found, etcdchange.MemberList)
    mine = etcdchange.by_address(found.members, world.loaded("c").address)
    assert mine is not None
    world.host("a").etcd_at(LOCALHOST).remove(mine.id)
    assert "c" not in world.etcd.processes
    world.tend("c")
    (kept,) = etcdstore.load_failures(world.host("c")).entries
    assert kept.code == "etcd-member-removed"
    assert etcdstore.load_cluster(world.host("c")).stage is Stage.FORMED
    world.net.partition("c", "ab")
    world.tend("c")
    assert "etcd-member-removed" not in {
        one.code for one in etcdstore.load_failures(world.host("c")).entries
    }


def _removals(world: World, at: str, name: str) -> tuple[str, ...]:
    return world.loaded(at).view.removed[world.loaded(name).key]


def test_the_subject_of_a_removal_is_seen_as_the_remover_sees_it(world: World) -> None:
    assert member(world, "a", "c").display == "c"


# --- as the operator types it


def test_keel_mesh_remove_says_what_is_enforced(world: World) -> None:
    done = world.remove("a", "c")
    assert isinstance(done, Done)
    found = done.value
    assert (found.counts, found.etcd, found.enforced.waiting) == (True, "", ())
    assert found.enforced.holds == (
        "etcd: c is out of the list of members",
        "etcd: CRL 2 revokes the certificates of c",
    )
    assert "keel: etcd: c is out of the list of members" in notes(found)
    assert document(found)["enforced"] == list(found.enforced.holds)
    assert listed(world) == {"a", "b"}
    assert any("2 voters are left" in text for text in world.net.nodes["a"].console.said)


def test_keel_mesh_remove_says_what_is_not_enforced_yet(world: World) -> None:
    crash(world, "b")
    for typed, rule in ((None, "name-not-typed"), ("b", "name-not-typed")):
        with pytest.raises(Refused) as caught:
            world.remove("a", "c", typed=typed, consent=Consent(without_quorum=True))
        assert caught.value.rule == rule
    with pytest.raises(Refused, match="no quorum"):
        world.remove("a", "c")
    with pytest.raises(Refused, match="no quorum"):
        remove_flow.plan(world.host("a"), "c", Mode.PLAIN)
    done = world.remove("a", "c", typed="c", consent=Consent(without_quorum=True))
    if isinstance(done, Incomplete):
        done = world.confirm("a")
    found = done.value
    assert found is not None
    (waiting,) = found.enforced.waiting
    assert waiting.what == "the end of c's place in etcd"
    assert any(text.startswith("keel: not enforced yet: the end of c's") for text in notes(found))
    assert world.loaded("c").key in world.loaded("a").view.removed
    assert listed(world) == {"a", "b", "c"}


def test_a_dry_run_takes_nobody_out(world: World) -> None:
    two_voters(world)
    with pytest.raises(Refused) as caught:
        remove_flow.plan(world.host("a"), "b", Mode.PLAIN)
    assert caught.value.rule == "removal-one-voter"
    assert remove_flow.plan(world.host("a"), "b", Mode.PLAIN, consent=Consent(one_voter=True))
    assert listed(world) == {"a", "b"}


@arranged
def a_voter_whom_the_holder_did_not_admit(scratch: Path) -> World:
    """As above, but d let b in."""
    made = World(scratch)
    for name in "abc":
        made.node(name)
    made.node("d", mode="cloud")
    made.create("a")
    for name, inviter in (("d", "a"), ("b", "d"), ("c", "a")):
        made.join(name, made.invite(inviter))
        made.settle()
    made.timers(*"abcd", seconds=30.0)
    made.rest("a", "b", "c")
    made.timers(seconds=60.0)
    return made


@pytest.mark.parametrize(
    ("mode", "command"),
    [
        pytest.param(Mode.VOTE, "keel mesh remove --vote b", id="by votes"),
        pytest.param(Mode.PLAIN, "keel mesh remove b", id="by a block"),
    ],
)
def test_of_two_voters_neither_goes_while_etcd_goes_on_counting_it(
    tmp_path: Path, mode: Mode, command: str
) -> None:
    """Its peer would go now, and its place only once the removal counts: etcd would stop."""
    world = two_voters(a_voter_whom_the_holder_did_not_admit(tmp_path))
    unchanged = disk(world.net.nodes["a"])
    for consent in (None, Consent(one_voter=True)):
        with pytest.raises(Refused) as dry:
            remove_flow.plan(world.host("a"), "b", mode, consent=consent)
        with pytest.raises(Refused) as caught:
            world.remove("a", "b", mode, typed="b", consent=consent)
        assert caught.value.rule == dry.value.rule == "removal-no-quorum"
        assert f"`{command} --without-quorum --confirm b`" in caught.value.remedy()
    assert (disk(world.net.nodes["a"]), listed(world)) == (unchanged, {"a", "b"})
    assert serves(world, "a")
    world.remove("a", "b", mode, typed="b", consent=Consent(without_quorum=True))
    world.tend("a")
    assert listed(world) == {"a", "b"}
    assert world.loaded("b").key in world.loaded("a").blocked


def test_a_block_by_a_voter_costs_no_fault_tolerance_and_says_nothing_of_it(world: World) -> None:
    subject = member(world, "b", "c")
    host, node = world.host("b"), world.loaded("b")
    told = {
        means: etcdremove.before_removal(
            host, node, subject, command="keel mesh remove c", means=means, dry_run=True
        )
        for means in (Means.BLOCK, Means.REMOVAL)
    }
    assert told[Means.BLOCK] == ()
    assert told[Means.REMOVAL]


def test_a_block_by_a_node_that_carries_no_etcd_passes_no_gates(tmp_path: Path) -> None:
    world = a_voter_whom_the_holder_did_not_admit(tmp_path)
    crash(world, "b")
    assert remove_flow.plan(world.host("d"), "c", Mode.PLAIN)
    with pytest.raises(Refused) as caught:
        remove_flow.plan(world.host("d"), "c", Mode.VOTE)
    assert caught.value.rule == "removal-no-quorum"


def test_a_change_to_the_network_that_begins_while_the_gates_are_asked_stops_a_vote(
    tmp_path: Path,
) -> None:
    world = a_voter_whom_the_holder_did_not_admit(tmp_path)
    world.remove("a", "b")  # a block on a alone
    world.net.delay("a", "c", 1.0)
    world.net.clock.after(1.0, lambda: world.open_window("a", "d"))
    before = world.loaded("a").roster.raws
    with pytest.raises(Refused) as caught:
        world.remove("a", "b", Mode.VOTE)
    assert caught.value.rule == "window-open"
    assert world.loaded("a").roster.raws == before


def test_a_block_on_one_node_leaves_etcd_alone_and_says_so(world: World) -> None:
    done = world.remove("b", "c")
    if isinstance(done, Incomplete):
        done = world.confirm("b")
    found = done.value
    assert found is not None
    assert "stays a member of etcd" in found.etcd
    assert found.enforced == etcdremove.Enforced()
    assert listed(world) == {"a", "b", "c"}


# --- what else may be in the way


def test_what_can_t_be_done_now_is_among_what_waits_and_nothing_fails(world: World) -> None:
    sign(world, "a", "c")
    world.net.nodes["a"].clock.wrong_by = timedelta(seconds=600)
    world.sync("a")
    world.settle()
    key = world.loaded("c").key
    found = etcdremove.after_removal(world.host("a"), world.loaded("a"), key, "c")
    assert found.holds == ()
    assert found.waiting[-1].waiting_for == "the timer"
    assert "clock" in found.waiting[-1].why


def test_when_etcd_does_not_take_it_out_the_next_pass_tries_again_soon(world: World) -> None:
    world.etcd.refusals["remove"] = 99
    found = remove(world, "a", "c")
    assert found.waiting[0].what == "the end of c's place in etcd"
    duty = etcdremove.duty(world.host("a"), world.loaded("a"))
    assert (duty.result, duty.open) == (Result.WAITING, True)
    world.etcd.refusals.clear()
    assert etcdremove.duty(world.host("a"), world.loaded("a")).result is Result.DONE


def test_a_listed_member_that_is_nobody_s_is_called_by_its_id(world: World) -> None:
    stranger = Member(0xABCDEF, "https://[fd00::9]:2380", learner=True)
    cluster(world).members[stranger.id] = stranger
    assert before(world, "a", "c")
    remove(world, "a", "c")
    assert stranger.id in cluster(world).members


def test_a_member_that_was_never_granted_has_nothing_to_be_revoked(world: World) -> None:
    world.node("e")
    world.net.cut("a", "e")
    world.net.cut("a", "b")
    world.join("e", world.invite("b"))
    world.net.heal()
    found = remove(world, "b", "e")
    assert found.holds[-1].startswith("etcd: the holder revoked nothing")


def test_a_removed_member_without_etcd_is_told_by_its_tend_as_well(world: World) -> None:
    host = world.host("d")
    sign(world, "a", "d")
    raws = [world.loaded("a").roster.raws[r] for r in _removals(world, "a", "d")]
    with store.locked(host, "the mesh"):
        store.merge_into(host, world.loaded("d"), raws)
    (found,) = world.tend("d")
    assert (found.name, found.result) == ("removed", Result.FAILED)


def test_before_there_is_a_cluster_everybody_may_go(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.node("a", mode="cloud")
    world.node("b")
    world.create("a")
    world.join("b", world.invite("a"))
    world.settle()
    assert before(world, "a", "b") == ()
