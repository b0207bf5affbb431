"""Joins that do not go by the book: begun twice, answered wrongly, without a way back (M2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from ipaddress import IPv6Address
from pathlib import Path
from typing import cast

import pytest

from keel.codec import BadValue
from keel.errors import KeelError, LockHeld, PeerError, Refused
from keel.mesh import admit, join, joinmsg, pendingjoin, store, sync, talk, tended, up
from keel.mesh.exchange import HELLO, HELLO_PATH, Hello, HelloAnswer
from keel.mesh.identity import prefix_of
from keel.mesh.invite import Phase, derive
from keel.mesh.joinmsg import Admitted
from keel.mesh.server import HttpReply
from keel.mesh.token import Token, parse_token
from keel.outcome import Done
from keel.ports import ChannelOut, Deadline
from keel.spec.parse import parse_spec
from tests.flow.arranged import arranged
from tests.flow.kill import tolerate
from tests.flow.world import World

MINUTE = 60.0


@arranged
def three_members_and_one_outside(scratch: Path) -> World:
    """a, b and c are one mesh; d is to join it."""
    made = World(scratch)
    made.mesh("abc", spare="d", mode="cloud")
    made.timers()
    return made


@pytest.fixture
def world(tmp_path: Path) -> World:
    return three_members_and_one_outside(tmp_path)


def unconfirmed(world: World, token: Token) -> None:
    """d has its answer, and its hello does not arrive."""
    world.net.lose("request", source="d", path="/v1/hello", count=9999)
    with pytest.raises(PeerError):
        world.join("d", token)


def asked(world: World, path: str, source: str) -> int:
    return sum((one.path, one.source) == (path, source) for one in world.net.exchanges)


def test_a_join_that_died_with_its_answer_in_hand_does_not_ask_again(world: World) -> None:
    token = world.invite("a")
    victim = world.net.nodes["d"]
    victim.effects.crash_on = lambda text: "mesh/.genesis" in text
    assert victim.dies(lambda: world.join("d", token))
    victim.new_life()
    before = asked(world, "/v1/join", "d")
    world.join("d", token)
    world.settle()
    world.timers()
    assert asked(world, "/v1/join", "d") == before
    assert world.agree("abcd")


def test_a_join_that_was_begun_is_given_up_by_hand(world: World) -> None:
    world.net.cut("a", "d")
    with pytest.raises(PeerError):
        world.join("d", world.invite("a"))
    host, spec = world.host("d"), world.spec("d")
    (begun,) = host.files.names(host.paths.pending_joins)
    assert join.discard_pending(host, spec).value == (begun,)
    assert host.files.names(host.paths.pending_joins) == ()
    assert join.discard_pending(host, spec).changed == ()


def test_a_join_that_was_cut_off_leaves_no_interface_when_it_is_given_up(world: World) -> None:
    victim = world.net.nodes["d"]
    victim.effects.crash_on = lambda text: text.startswith("post ") and text.endswith("/v1/join")
    assert victim.dies(lambda: world.join("d", world.invite("a")))
    victim.new_life()
    host, spec = world.host("d"), world.spec("d")
    assert host.wireguard.show("keel0") is not None
    join.discard_pending(host, spec)
    assert host.wireguard.show("keel0") is None


def test_a_handshake_of_a_join_that_was_cut_off_says_nothing_of_the_next(world: World) -> None:
    """The interface of a join that was killed stays, and with it what WireGuard counted."""
    token, victim = world.invite("a"), world.net.nodes["d"]
    world.net.lose("reply", path="/v1/join", count=99)
    posts = iter(range(9))
    victim.effects.crash_on = lambda text: text.endswith("/v1/join") and next(posts) == 1
    assert victim.dies(lambda: world.join("d", token))
    victim.new_life()
    world.net.losses.clear()
    world.net.clock.sleep(5)
    world.net.cut("a", "d")
    with pytest.raises(PeerError) as caught:
        world.join("d", token)
    assert caught.value.remedy().startswith("one of three: ")


def a_cut(world: World) -> None:
    world.net.cut("a", "d")


def a_lost_confirmation(world: World) -> None:
    world.net.lose("request", source="d", path="/v1/hello", count=9999)


def mend(world: World) -> None:
    world.net.heal()
    world.net.losses.clear()


@pytest.mark.parametrize("fault", [a_cut, a_lost_confirmation])
@pytest.mark.parametrize(("seconds", "joins"), [(40.0, True), (75.0, False)])
def test_a_join_is_patient_for_a_minute_with_its_inviter_and_ends_then(
    world: World, fault: Callable[[World], None], seconds: float, joins: bool
) -> None:
    token = world.invite("a")
    fault(world)
    world.net.clock.after(seconds, lambda: mend(world))
    refused = tolerate(lambda: world.join("d", token))
    assert (refused is None) is joins
    world.net.clock.sleep(30.0)
    world.join("d", token)
    assert world.agree("ad")


def test_a_member_gives_nothing_up_and_keeps_its_interface(world: World) -> None:
    unconfirmed(world, world.invite("a"))
    host = world.host("d")
    join.discard_pending(host, world.spec("d"))
    assert host.wireguard.show("keel0") is not None


def test_an_interface_that_is_not_wireguards_does_not_keep_a_join_from_being_given_up(
    world: World,
) -> None:
    host, spec = world.host("d"), world.spec("d")
    world.net.nodes["d"].wireguard.taken.add("keel0")
    with pytest.raises(Refused) as caught:
        world.join("d", world.invite("a"))
    assert caught.value.rule == "interface-taken"
    assert len(join.discard_pending(host, spec).value) == 1


def test_a_node_refuses_its_own_invite_which_stays_open(world: World) -> None:
    token = world.invite("a")
    with pytest.raises(Refused) as caught:
        world.join("a", token)
    assert caught.value.rule == "join-own-invite"
    world.join("d", token)
    assert world.agree("ad")


def test_a_join_that_is_finished_by_a_second_command_says_that_it_joined(world: World) -> None:
    token = world.invite("a")
    unconfirmed(world, token)
    world.net.losses.clear()
    done = world.joined("d", token)
    assert done.changed == (f"member/{done.value.node.address} joined",)
    assert world.joined("d", token).changed == ()


@pytest.mark.parametrize("command", ["create", "join"])
def test_a_fresh_member_of_a_machine_that_is_up_for_long_was_not_untended(
    world: World, command: str
) -> None:
    """Cut off before its timers were started, that is."""
    world.node("e")
    world.net.clock.sleep(86400.0)
    victim = world.net.nodes["e"]
    victim.effects.crash_on = lambda text: text.startswith("enable ")
    run = {"create": lambda: world.create("e"), "join": lambda: world.join("e", world.invite("a"))}
    assert victim.dies(run[command])
    victim.new_life()
    assert store.load(world.host("e")) is not None
    assert tended.silent_seconds(world.host("e")) is None


def test_a_join_that_its_node_s_own_sync_confirms_first_is_a_join(world: World) -> None:
    """The timer runs as soon as this node is a member, while the command still prepares."""
    token = world.invite("a")
    victim, synced = world.net.nodes["d"], list[str]()

    def sync_before(text: str) -> bool:
        if text.startswith("enable ") and not synced:
            synced.append(text)
            world.sync("d")
        return False

    victim.effects.crash_on = sync_before
    done = world.joined("d", token)
    assert synced
    assert done.changed == (f"member/{done.value.node.address} joined",)
    assert pendingjoin.load(victim.host, token.mesh) is None
    assert world.agree("ad")


def test_an_unconfirmed_member_is_told_by_its_timer_and_refused_by_the_others(
    world: World,
) -> None:
    unconfirmed(world, world.invite("a"))
    world.sync("d")
    assert "the join is not confirmed yet" in "\n".join(world.net.nodes["d"].console.said)
    assert {one.name for one in world.loaded("b").view.members} == {"a", "b", "c"}
    assert not world.agree("ad")


def test_an_unconfirmed_member_whose_inviter_left_is_told_to_begin_anew(world: World) -> None:
    unconfirmed(world, world.invite("b"))
    world.leave("b")
    host, node = world.host("d"), world.loaded("d")
    with store.locked(host, "the mesh"):
        store.merge_into(host, node, world.loaded("a").roster.raws.values())
    with pytest.raises(Refused) as caught:
        world.sync("d")
    assert caught.value.rule == "inviter-removed"


def test_a_token_of_one_that_left_meets_silence(world: World) -> None:
    token = world.invite("b")
    world.leave("b")
    world.timers("a", "c")
    before = world.loaded("c").view
    with pytest.raises(PeerError) as caught:
        world.join("c", token)
    assert caught.value.reason == "no-answer"
    assert world.loaded("c").view == before
    assert isinstance(world.sync("c"), Done)
    assert pendingjoin.load(world.host("c"), token.mesh) is None


def test_a_member_that_is_refused_by_another_inviter_keeps_its_open_confirmation(
    world: World,
) -> None:
    first = world.invite("a")
    unconfirmed(world, first)
    other = world.make_invite("b")
    admit.cancel(world.host("b"), world.spec("b"), other.state.invite)
    world.net.losses.clear()
    with pytest.raises(Refused):
        world.join("d", parse_token(other.token.reveal().decode()))
    world.sync("d")
    world.timers()
    assert world.agree("abcd")


def answering(world: World, token: Token, change: Callable[[Admitted], Admitted]) -> None:
    """From now on a signs another answer than it should."""
    inviter = world.net.nodes["a"]
    honest = inviter.handler
    keys = derive(token.secret, mesh=token.mesh, invite=token.invite, prefix=prefix_of(token.mesh))

    def handler(path: str, source: object, body: bytes) -> HttpReply | tuple[int, bytes]:
        reply = honest(path, source, body)  # type: ignore[arg-type]
        if path != "/v1/join":
            return reply
        assert isinstance(reply, tuple)
        answer = joinmsg.open_answer(
            reply[1], keys, inviter=token.inviter, mesh=token.mesh, request=body
        )
        assert answer.admitted is not None
        changed = replace(answer, admitted=change(answer.admitted))
        return 200, joinmsg.seal_answer(changed, keys, world.loaded("a").identity.signing, body)

    inviter.handler = handler


@pytest.mark.parametrize("reason", ["wrong-genesis", "not-admitted"])
def test_an_inviter_that_answers_with_another_mesh_or_for_another_key_is_not_followed(
    world: World, tmp_path: Path, reason: str
) -> None:
    token = world.invite("a")
    other = World(tmp_path / "other")
    other.node("x", mode="cloud")
    foreign = other.create("x").roster.founding.raw
    told = next(iter(world.loaded("a").roster.raws.values()))
    answering(
        world,
        token,
        lambda admitted: replace(admitted, genesis=foreign)
        if reason == "wrong-genesis"
        else replace(admitted, admission=told),
    )
    with pytest.raises(PeerError) as caught:
        world.join("d", token)
    assert caught.value.reason == reason
    assert store.load(world.host("d")) is None


# --- the inviter's side


def waits(world: World, token: Token, *, seconds: float) -> object:
    host = world.host("a")
    return admit.wait_until_spent(host, token.invite, Deadline.after(host.clock, seconds))


def joins(world: World, token: Token) -> None:
    world.join("d", token)


def test_who_waits_for_an_invite_sees_it_spent(world: World) -> None:
    token = world.invite("a")
    world.net.clock.after(MINUTE, lambda: joins(world, token))
    state = waits(world, token, seconds=10 * MINUTE)
    assert state.phase is Phase.SPENT  # type: ignore[attr-defined]


def test_who_waits_for_an_invite_is_told_that_nobody_came_yet(world: World) -> None:
    token = world.invite("a")
    with pytest.raises(PeerError) as caught:
        waits(world, token, seconds=MINUTE)
    assert caught.value.reason == "not-joined-yet"


def test_who_waits_for_an_invite_is_told_when_it_lapses(world: World) -> None:
    token = world.invite("a", life=timedelta(minutes=10))
    with pytest.raises(PeerError) as caught:
        waits(world, token, seconds=60 * MINUTE)
    assert caught.value.reason == "invite-lapsed"


# --- names, doors and peers


def test_a_host_whose_name_is_none_needs_one_in_its_spec(tmp_path: Path) -> None:
    world = World(tmp_path)
    node = world.node("a", mode="cloud")
    node.machine.name = "-.example"
    spec = parse_spec(node.paths.spec.read_bytes().replace(b"{name: a}", b"{}"), file=tmp_path)
    with pytest.raises(Refused) as caught:
        join.create.create(world.host("a"), spec)
    assert caught.value.rule == "no-name"


def test_a_path_that_the_channel_does_not_have_is_not_found(world: World) -> None:
    status, _ = world.net.nodes["a"].handler("/v1/nothing", world.loaded("b").address, b"")
    assert status == 404


def test_peers_of_an_interface_that_is_gone_are_left_for_when_it_is_back(world: World) -> None:
    world.net.nodes["a"].wireguard.devices.clear()
    assert up.set_peers(world.host("a"), world.spec("a"), ()) == ()
    world.up("a")
    assert len(world.peers("a")) >= 2


class Broken:
    """A channel on which every exchange fails in one way of its own."""

    def __init__(self, failure: Exception) -> None:
        self._failure = failure

    def post_all(
        self, requests: Mapping[IPv6Address, bytes], path: str, **_: object
    ) -> Mapping[IPv6Address, bytes | Exception]:
        return dict.fromkeys(requests, self._failure)


@pytest.mark.parametrize(
    ("failure", "found"),
    [
        pytest.param(OSError("too many open files"), PeerError, id="its pool"),
        pytest.param(BadValue("answer", "too large"), BadValue, id="an answer refused unread"),
    ],
)
def test_a_failure_of_the_channel_itself_is_an_answer_that_did_not_come(
    world: World, failure: Exception, found: type[KeelError]
) -> None:
    host = replace(world.host("a"), channel=cast("ChannelOut", Broken(failure)))
    node = world.loaded("a")
    peers = talk.others(node)
    answers = talk.ask_all(
        host,
        node,
        dict.fromkeys(peers, Hello(digest="0" * 32)),
        HELLO,
        HelloAnswer,
        path=HELLO_PATH,
    )
    assert [type(one) for one in answers.values()] == [found, found]


def test_a_silent_members_next_endpoint_is_the_first_when_wireguard_has_none_of_them(
    world: World,
) -> None:
    host = world.host("a")
    (peer, *_) = host.wireguard.show("keel0").peers  # type: ignore[union-attr]
    endpoints = up.endpoints_of(world.loaded("a"), talk.others(world.loaded("a"))[0])
    two = (*endpoints, replace(endpoints[0], port=1))
    silent = replace(peer, latest_handshake=None, endpoint=None)
    assert sync.next_endpoint(two, silent) == two[0]
    assert sync.next_endpoint(two, replace(silent, endpoint=two[0])) == two[1]
    assert sync.next_endpoint(endpoints, replace(silent, endpoint=endpoints[0])) is None
    assert sync.next_endpoint((), silent) is None


def test_a_leave_that_died_after_its_removal_was_signed_signs_no_second_one(world: World) -> None:
    victim = world.net.nodes["b"]
    victim.effects.crash_on = lambda text: text.startswith("post ")
    tolerate(lambda: world.leave("b"))
    victim.new_life()
    world.leave("b")
    world.timers("a", "c")
    view = world.loaded("a").view
    assert [len(records) for records in view.removed.values()] == [1]


DURING = {
    "the same join": lambda world, token: world.join("d", token),
    "a leave": lambda world, _: world.leave("d"),
    "giving it up": lambda world, _: join.discard_pending(world.host("d"), world.spec("d")),
}


@pytest.mark.parametrize("name", DURING)
def test_what_would_pull_the_ground_from_under_a_join_is_told_that_one_runs(
    world: World, name: str
) -> None:
    """In another terminal on d, while a answers."""
    token = world.invite("a")
    honest = world.net.nodes["a"].handler
    told: list[KeelError | None] = []

    def slow(path: str, source: IPv6Address, body: bytes) -> HttpReply | tuple[int, bytes]:
        if path == "/v1/join" and not told:
            told.append(tolerate(lambda: DURING[name](world, token)))
        return honest(path, source, body)

    world.net.nodes["a"].handler = slow
    world.join("d", token)
    world.settle()
    assert isinstance(told[0], LockHeld)
    assert world.loaded("a").address in world.peers("d")
    world.sync("d")
    assert world.agree("abcd")
