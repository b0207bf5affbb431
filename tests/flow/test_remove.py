"""`keel mesh remove` and `leave` on whole nodes: by right, by votes, or here alone (M9)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from keel.cli import status
from keel.errors import KeelError, PeerError, Refused
from keel.mesh import (
    behind,
    drafts,
    leave,
    remove,
    selfrecord,
    spread,
    store,
    talk,
    trustflow,
    wire,
)
from keel.mesh.etcdmsg import PROBE, Probe, ProbeAnswer
from keel.mesh.removal import Action, Mode
from keel.mesh.remove import Removed
from keel.mesh.window import Means
from keel.outcome import Done
from keel.types import Nonce
from keel.unitnames import TEND_UNIT
from tests.flow.arranged import arranged
from tests.flow.test_window import mesh_of
from tests.flow.world import World


def removed(world: World, name: str, whom: str, mode: Mode = Mode.PLAIN) -> Removed:
    done = world.remove(name, whom, mode, typed=whom)
    assert isinstance(done, Done)
    return done.value


def live(world: World, name: str) -> str:
    """The members by this node's roster, in one word."""
    return "".join(sorted(member.display for member in world.loaded(name).view.members))


def codes(world: World, name: str) -> list[str]:
    found: Any = status.look(world.host(name))
    return [one["code"] for one in found["warnings"]]


def lets_in(world: World, name: str, whom: str) -> bool:
    return world.loaded(whom).address in world.peers(name)


@arranged
def four_members(scratch: Path) -> World:
    """Four members, all admitted by a."""
    made = World(scratch)
    mesh_of(made, "abcd")
    return made


@pytest.fixture
def world(tmp_path: Path) -> World:
    return four_members(tmp_path)


def test_by_right_it_is_gone_from_every_member_at_once(world: World) -> None:
    gone = world.loaded("b").address
    found = removed(world, "a", "b")
    assert (found.means, found.counts) == (Means.REMOVAL, True)
    assert (set(found.told), found.not_told) == ({"c", "d"}, ())
    assert [gone in world.peers(name) for name in "acd"] == [False] * 3
    assert [live(world, name) for name in "acd"] == ["acd"] * 3


@pytest.mark.parametrize(
    ("seconds", "told"),
    [pytest.param(14.0, True, id="14 s"), pytest.param(16.0, False, id="16 s")],
)
def test_whoever_answers_within_15_seconds_has_let_it_go_by_then(
    world: World, seconds: float, told: bool
) -> None:
    world.net.delay("a", "d", seconds / 2)
    host, node = world.host("a"), world.loaded("a")
    begun = host.clock.monotonic()
    heard, silent = spread.tell(host, node, talk.others(node), (selfrecord.newest(node) or b"",))
    assert host.clock.monotonic() - begun == min(seconds, 15.0)
    assert ("d" in heard, "d" in silent) == (told, not told)


def test_nothing_is_signed_before_the_change_is_confirmed(world: World) -> None:
    node = world.net.nodes["a"]
    node.machine.sessions = (world.loaded("b").address,)
    before = world.loaded("a").roster.raws
    world.remove("a", "b")
    assert not lets_in(world, "a", "b")
    assert world.loaded("a").roster.raws == before
    world.timers("a")
    assert world.loaded("a").roster.raws == before
    world.confirm("a")
    assert live(world, "a") == "acd"


def test_a_member_that_is_heard_no_more_is_not_heard_on_the_channel_either(world: World) -> None:
    node = world.net.nodes["a"]
    node.machine.sessions = (world.loaded("b").address,)
    world.remove("a", "b")
    b = world.loaded("b")
    me = b.view.by_key(world.loaded("a").key)
    assert me is not None
    with pytest.raises(PeerError):
        talk.ask(world.host("b"), b, me, PROBE, Probe(), ProbeAnswer, path="/v1/etcd")


def test_who_was_off_learns_it_before_it_obeys_the_removed(world: World) -> None:
    """d comes back and hears b first: b is told to wait until d has asked the others."""
    world.net.nodes["d"].power_off()
    assert removed(world, "a", "b").not_told == ("d",)
    world.boot("d")
    b = world.loaded("b")
    d = b.view.by_key(world.loaded("d").key)
    assert d is not None
    assert lets_in(world, "d", "b")

    def ask() -> str:
        try:
            talk.ask(world.host("b"), b, d, PROBE, Probe(), ProbeAnswer, path="/v1/etcd")
        except PeerError as error:
            return error.reason
        return "obeyed"

    assert ask() == "channel-behind"
    world.settle()
    assert not lets_in(world, "d", "b")
    assert ask() in ("unreachable", "timeout")
    assert live(world, "d") == "acd"


def test_who_was_cut_off_from_all_is_behind_until_one_answers(world: World) -> None:
    world.net.partition("d", "abc")
    world.sync("d")
    host = world.host("d")
    world.sync("d")
    with pytest.raises(Refused) as refused:
        behind.refuse(host, "b")
    assert refused.value.rule == "channel-behind"
    tends = world.net.nodes["d"].units.unit(TEND_UNIT)
    before = tends.starts
    world.sync("d")
    assert tends.starts == before
    world.net.heal()
    world.sync("d")
    behind.refuse(host, "b")
    assert tends.starts == before + 1  # what waited for the others waits for no timer


def test_who_is_alone_is_never_behind(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.node("a", mode="cloud")
    world.create("a")
    world.boot("a")
    assert world.host("a").files.exists(world.host("a").paths.behind)
    world.sync("a")
    behind.refuse(world.host("a"), "b")


def test_a_members_own_removal_does_not_cut_its_answer_off(world: World) -> None:
    left = leave.leave(world.host("c"), world.spec("c")).value
    assert (sorted(left.told), left.not_told) == (["a", "b", "d"], ())


def test_mutual_roots_of_the_operators_give_the_right(world: World) -> None:
    world.trust("b", "c")
    world.trust("c", "b")
    world.timers()
    found = removed(world, "b", "c")
    assert (found.means, found.counts) == (Means.REMOVAL, True)
    assert "c" not in live(world, "a")


@pytest.mark.parametrize("who", ["one", "joined"])
def test_a_root_on_one_side_gives_no_right(world: World, who: str) -> None:
    if who == "one":
        world.trust("b", "c")
        world.timers()
        found = removed(world, "b", "c")
    else:  # a joiner trusts its inviter; that is no operator's word
        world.trust("a", "b")
        world.timers()
        found = removed(world, "b", "a")
    assert (found.means, found.counts) == (Means.BLOCK, False)


def test_without_right_it_is_a_block_here_and_said_so(world: World) -> None:
    records = world.loaded("b").roster.raws
    found = removed(world, "b", "c")
    assert (found.means, found.counts, found.told) == (Means.BLOCK, False, ())
    assert not lets_in(world, "b", "c")
    assert lets_in(world, "a", "c")
    assert world.loaded("b").roster.raws == records
    world.timers()
    assert not lets_in(world, "b", "c")
    assert [live(world, name) for name in "abcd"] == ["abcd"] * 4


def test_a_block_twice_changes_nothing(world: World) -> None:
    removed(world, "b", "c")
    assert not remove.plan(world.host("b"), "c", Mode.PLAIN)
    again = world.remove("b", "c")
    assert isinstance(again, Done)
    assert again.changed == ()


def test_trust_lifts_a_block_and_trust_list_shows_both(world: World) -> None:
    def listed() -> str:
        return {name: how for name, _, how in trustflow.listing(world.host("b"))}["c"]

    removed(world, "b", "c")
    assert listed() == "blocked"
    assert "member-blocked" in codes(world, "b")
    world.trust("b", "c")
    world.settle()
    assert lets_in(world, "b", "c")
    assert listed() == "operator"
    assert "member-blocked" not in codes(world, "b")


def test_who_was_blocked_here_and_then_removed_for_all_is_no_warning_any_more(world: World) -> None:
    removed(world, "b", "c")
    assert "member-blocked" in codes(world, "b")
    removed(world, "a", "c")
    world.settle()
    assert "member-blocked" not in codes(world, "b")


def test_votes_block_here_at_once_and_count_with_more_than_half(world: World) -> None:
    """Three of four: each vote blocks where it was cast, the third takes it from all."""
    first = removed(world, "b", "d", Mode.VOTE)
    assert (first.means, first.counts) == (Means.VOTE, False)
    assert first.votes == "1 of 4 voted, 3 are needed"
    assert [lets_in(world, name, "d") for name in "abc"] == [True, False, True]
    assert live(world, "a") == "abcd"
    second = removed(world, "c", "d", Mode.VOTE)
    assert second.votes == "2 of 4 voted, 3 are needed"
    assert not second.counts
    # a admitted it: it would need no votes, so the third voter is d's own view of b, which fails
    third = drafts.make_vote(
        world.loaded("a").roster,
        world.loaded("a").identity.signing,
        world.loaded("d").key,
        now=world.net.clock.now(),
        nonce=Nonce("1" * 32),
    )
    with store.locked(world.host("a"), "the mesh"):
        store.merge_into(world.host("a"), world.loaded("a"), (wire.encode(third),))
    world.timers()
    assert [live(world, name) for name in "abc"] == ["abc"] * 3
    assert not lets_in(world, "a", "d")


def test_a_vote_is_cast_once(world: World) -> None:
    removed(world, "b", "d", Mode.VOTE)
    raws = world.loaded("b").roster.raws
    again = world.remove("b", "d", Mode.VOTE)
    assert isinstance(again, Done)
    assert (again.changed, again.value.votes) == ((), "1 of 4 voted, 3 are needed")
    assert world.loaded("b").roster.raws == raws


def test_a_block_may_be_followed_by_a_vote_without_a_window(world: World) -> None:
    removed(world, "b", "d")
    found = removed(world, "b", "d", Mode.VOTE)
    assert found.votes == "1 of 4 voted, 3 are needed"
    assert not store.window_is_open(world.host("b"))


def test_a_lost_member_goes_by_right_where_there_is_one(world: World) -> None:
    world.net.nodes["d"].power_off()
    found = removed(world, "a", "d", Mode.LOST)
    assert (found.means, found.counts) == (Means.REMOVAL, True)


def test_who_was_removed_already_is_named_so(world: World) -> None:
    address = world.loaded("b").address
    removed(world, "a", "b")
    for text in ("b", address.compressed):
        again = world.remove("a", text)
        assert isinstance(again, Done)
        assert (again.changed, again.value.counts) == ((), True)
        assert not remove.plan(world.host("a"), text, Mode.PLAIN)


@pytest.mark.parametrize("mode", [Mode.PLAIN, Mode.VOTE])
def test_who_is_removed_by_another_just_before_the_window_is_named_so(
    world: World, mode: Mode
) -> None:
    """Two operators at once: the other's removal came while the members were asked."""
    node = world.net.nodes["b"]
    begun: list[str] = []

    def meanwhile(text: str) -> bool:
        if text.startswith("post") and not begun:
            begun.append(text)
            removed(world, "a", "d")
        return False

    node.effects.crash_on = meanwhile
    found = removed(world, "b", "d", mode)
    assert begun
    assert (found.name, found.counts) == ("d", True)
    assert not store.window_is_open(node.host)
    assert live(world, "b") == "abc"
    kinds = [one.kind for one in world.loaded("b").roster.entries.values()]
    assert (kinds.count("removal"), kinds.count("vote")) == (1, 0)


def test_a_right_that_is_lost_while_the_window_is_open_leaves_a_block(world: World) -> None:
    """a is removed itself meanwhile: what it signs nobody would heed."""
    node = world.net.nodes["a"]
    node.machine.sessions = (world.loaded("b").address,)
    world.remove("a", "b")
    own = drafts.make_removal(
        world.loaded("a").roster,
        world.loaded("a").identity.signing,
        world.loaded("a").key,
        now=world.net.clock.now(),
        nonce=Nonce("1" * 32),
    )
    with store.locked(node.host, "the mesh"):
        store.merge_into(node.host, world.loaded("a"), (wire.encode(own),))
    done = world.confirm("a")
    assert done.value is not None
    assert (done.value.means, done.value.counts) == (Means.BLOCK, False)


def test_a_right_that_the_other_took_back_while_the_window_is_open_leaves_a_block(
    world: World,
) -> None:
    world.trust("b", "c")
    world.trust("c", "b")
    world.timers()
    world.net.nodes["b"].machine.sessions = (world.loaded("c").address,)
    world.remove("b", "c")
    trustflow.drop_root(world.host("c"), world.spec("c"), "b")
    world.timers("c", "a", "b")
    done = world.confirm("b")
    assert done.value is not None
    assert (done.value.means, done.value.counts) == (Means.BLOCK, False)
    assert live(world, "b") == "abcd"


def test_who_went_while_the_window_was_open_is_not_removed_twice(world: World) -> None:
    node = world.net.nodes["a"]
    node.machine.sessions = (world.loaded("b").address,)
    world.remove("a", "b")
    leave.leave(world.host("b"), world.spec("b"))
    world.timers("c", "d")
    world.sync("a")
    done = world.confirm("a")
    assert done.value is not None
    assert done.value.counts
    assert len(world.loaded("a").view.removed) == 1


def test_the_dry_run_shows_the_steps_and_does_nothing(world: World) -> None:
    node = world.net.nodes["a"]
    node.new_life()
    assert [step.action for step in remove.plan(node.host, "b", Mode.PLAIN).steps] == [
        Action.ARM,
        Action.DROP_PEER,
        Action.CONFIRM,
        Action.SIGN,
        Action.TELL,
    ]
    assert not [text for text in node.effects.done if not text.startswith("lock")]
    voting = remove.plan(world.host("b"), "c", Mode.VOTE).steps
    assert [step.action for step in voting][3:] == [Action.BLOCK, Action.VOTE, Action.TELL]
    local = remove.plan(world.host("b"), "c", Mode.PLAIN).steps
    assert [step.action for step in local][3:] == [Action.BLOCK]


@arranged
def formed(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.cluster("abc")
    return world


REFUSALS = {
    "remove-self": ("a", "a", Mode.PLAIN, "a"),
    "member-unknown": ("a", "z", Mode.PLAIN, "z"),
    "lost-answers": ("a", "b", Mode.LOST, "b"),
    "name-not-typed": ("a", "d", Mode.LOST, "c"),
}


@pytest.mark.parametrize("rule", REFUSALS)
def test_each_refusal_has_its_reason_and_changes_nothing(world: World, rule: str) -> None:
    name, whom, mode, typed = REFUSALS[rule]
    if rule == "name-not-typed":
        world.net.nodes["d"].power_off()
    node = world.net.nodes[name]
    before = {p: p.read_bytes() for p in node.paths.mesh.rglob("*") if p.is_file()}
    peers = world.peers(name)
    with pytest.raises(KeelError) as refused:
        world.remove(name, whom, mode, typed=typed)
    assert isinstance(refused.value, Refused)
    assert (refused.value.rule, refused.value.exit) == (rule, 3)
    assert {p: p.read_bytes() for p in node.paths.mesh.rglob("*") if p.is_file()} == before
    assert world.peers(name) == peers


@pytest.mark.parametrize("mode", Mode)
def test_the_holder_stays_while_it_lives(tmp_path: Path, mode: Mode) -> None:
    world = formed(tmp_path)
    with pytest.raises(Refused) as refused:
        world.remove("b", "a", mode, typed="a")
    assert (refused.value.rule, refused.value.exit) == ("remove-holder", 3)
    assert live(world, "b") == "abc"


def test_a_lost_holder_goes_by_votes_and_nobody_holds_the_root_then(tmp_path: Path) -> None:
    world = formed(tmp_path)
    world.net.nodes["a"].power_off()
    first = removed(world, "b", "a", Mode.LOST)
    assert (first.means, first.votes) == (Means.VOTE, "1 of 3 voted, 2 are needed")
    assert "stays a member of etcd" in first.etcd
    second = removed(world, "c", "a", Mode.LOST)
    assert (second.counts, second.votes) == (True, "2 of 3 voted, 2 are needed: removed for all")
    world.settle()
    world.sync("b")
    assert [live(world, name) for name in "bc"] == ["bc"] * 2
