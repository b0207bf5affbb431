"""A joiner's request for its certificate comes to the holder by two ways (E2, E9, E12)."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from keel import codec
from keel.errors import PeerError
from keel.mesh import (
    etcd,
    etcdbirth,
    etcdcert,
    etcdcredentials,
    etcdenrol,
    etcdissue,
    etcdstore,
    receive,
    status,
    talk,
)
from keel.mesh.duty import Duty, Result
from keel.mesh.etcdmsg import Grant, TakeGrant, TakeGrantAnswer
from keel.mesh.etcdstate import Queued, Wanted, enqueue
from keel.mesh.limits import ADMITS
from keel.mesh.members import find
from keel.mesh.reservation import Reservation
from keel.outcome import Waiting
from keel.types import Capability, SigningKey
from keel.unitnames import FAST_TIMER
from tests.flow.arranged import arranged
from tests.flow.world import World


@arranged
def two_that_can_and_one_that_cannot(scratch: Path) -> World:
    """a holds the root and b is its member; c and d have no token yet. x cannot run etcd."""
    made = World(scratch)
    for name in "abcd":
        made.node(name)
    made.node("x", mode="cloud")
    made.create("a")
    for name in "bx":
        made.join(name, made.invite("a"))
        made.settle()
    made.timers("a", "b", "x")
    return made


@pytest.fixture
def world(tmp_path: Path) -> World:
    return two_that_can_and_one_that_cannot(tmp_path)


def granted(world: World, name: str) -> bool:
    return etcdstore.load_intermediate(world.host(name)) is not None


def queued(world: World, name: str) -> list[tuple[Wanted, str, int]]:
    node = world.loaded(name)
    shown = {member.key: member.display for member in node.view.members}
    return [
        (one.what, shown[one.subject], one.attempts)
        for one in etcdstore.load_queue(world.host(name)).entries
        if one.what in (Wanted.ENROL, Wanted.RELAY)
    ]


def shown(world: World, name: str) -> tuple[Waiting, ...]:
    """What status says that it waits for."""
    return status.whole(world.host(name), world.spec(name))[1].waiting


def duty(duties: tuple[Duty, ...], name: str) -> Duty:
    return next(one for one in duties if one.name == name)


def hastens(world: World, name: str) -> bool:
    return world.net.nodes[name].units.unit(FAST_TIMER).active


def refused(world: World, name: str, code: str) -> bool:
    return code in {one.code for one in etcdstore.load_failures(world.host(name)).entries}


def test_a_joiner_that_cannot_reach_the_holder_gets_its_grant_through_its_inviter(
    world: World,
) -> None:
    world.net.cut("a", "c")
    world.join("c", world.invite("b"))
    assert queued(world, "c") == [(Wanted.ENROL, "c", 1)]
    world.settle()
    assert granted(world, "c")
    assert queued(world, "b") == []
    world.timers("b", "c")
    assert queued(world, "c") == []
    assert not hastens(world, "b")


@pytest.mark.parametrize("named", [True, False], ids=["its token named", "no token named"])
def test_a_joiner_takes_from_the_holder_the_root_that_is_vouched_for(
    world: World, named: bool
) -> None:
    """The holder is neither its inviter nor its trust root, and its inviter is off."""
    world.net.cut("a", "c")
    token = world.invite("b")
    world.join("c", token if named else replace(token, root=None))
    world.kicks.clear()
    world.sync("b")
    world.net.nodes["b"].power_off()
    world.kicks.clear()
    world.net.heal()
    world.sync("a")
    world.sync("c")
    world.tend("c")
    assert granted(world, "c") is named


def test_one_that_cannot_run_etcd_relays_as_well_and_vouches_for_the_root(world: World) -> None:
    """The token of x names no root, and the holder is no trust root of c: by itself c is granted
    what it may not believe."""
    world.net.lose("request", source="x", path="/v1/etcd", count=1)
    world.join("c", world.invite("x"))
    world.settle()
    world.tend("c")
    assert refused(world, "c", "grant-root-unknown")
    assert hastens(world, "x")
    world.tend("x")
    assert granted(world, "c")
    world.timers("c", "x")
    assert not refused(world, "c", "grant-root-unknown")
    assert not hastens(world, "x")
    world.rest("a", "b", "c")
    assert len(world.etcd.births()) == 1


@pytest.mark.lives
def test_while_the_holder_is_off_both_say_so_and_ask_again_in_seconds(world: World) -> None:
    token = world.invite("b")
    world.net.nodes["a"].power_off()
    world.join("c", token)
    world.settle()
    (own,) = shown(world, "c")
    (relayed,) = shown(world, "b")
    assert (own.what, own.waiting_for, own.why) == ("a grant", "a", "no answer")
    assert (relayed.what, relayed.waiting_for) == ("the grant of c", "a")
    since = own.since
    assert since is not None
    world.net.clock.sleep(600)
    waits = duty(world.tend("c"), "credentials")
    assert (waits.result, waits.open) == (Result.WAITING, True)
    assert duty(world.tend("b"), "relay").open
    assert shown(world, "c")[0].since == since
    assert hastens(world, "b")
    assert hastens(world, "c")
    assert queued(world, "c")[0][2] > 1
    world.boot("a")
    world.rest("a", "b", "c")
    assert len(world.etcd.births()) == 1
    assert queued(world, "b") == queued(world, "c") == []
    for name in "bc":
        world.timers(name)
        assert not hastens(world, name)


def test_a_holder_that_has_not_heard_of_the_joiner_hears_of_it_with_the_request(
    world: World,
) -> None:
    """No roster reaches a, and c cannot: b's request brings the chain of admissions along."""
    world.net.cut("a", "c")
    world.net.lose("request", source="b", path="/v1/roster", count=99)
    world.join("c", world.invite("b"))
    world.tend("b")
    assert granted(world, "c")
    names = {member.display for member in world.loaded("a").view.members}
    assert names == {"a", "b", "c", "x"}


def test_a_request_of_one_that_left_is_dropped(world: World) -> None:
    world.net.nodes["a"].power_off()
    world.join("c", world.invite("b"))
    world.settle()
    assert queued(world, "b") == [(Wanted.RELAY, "c", 1)]
    world.leave("c")
    world.settle()
    world.tend("b")
    left = {one.what for one in etcdstore.load_queue(world.host("b")).entries}
    assert Wanted.RELAY not in left
    assert duty(world.tend("b"), "relay").result is Result.NOTHING


def test_a_joiner_that_is_off_gets_its_grant_when_it_is_back(world: World) -> None:
    world.net.cut("a", "c")
    world.join("c", world.invite("b"))
    world.net.nodes["c"].power_off()
    world.settle()
    (waits,) = duty(world.tend("b"), "relay").waiting
    assert (waits.what, waits.waiting_for) == ("the grant of c", "c")
    world.net.nodes["c"].power_on()
    world.up("c")
    world.sync("c")  # who was away asks first who is still a member
    world.timers("b")
    assert granted(world, "c")
    assert queued(world, "b") == []


def test_after_a_day_the_slow_timer_is_enough(world: World) -> None:
    token = world.invite("b")
    world.net.nodes["a"].power_off()
    world.join("c", token)
    world.settle()
    world.net.clock.sleep(23 * 3600)
    for name in "bc":
        world.timers(name)
        assert hastens(world, name)
    world.net.clock.sleep(3600)
    for name in "bc":
        world.timers(name)
        assert not hastens(world, name)
        assert shown(world, name)[0].waiting_for == "a"


def put(world: World, name: str, subject: SigningKey, envelope: bytes) -> None:
    host = world.host(name)
    entry = Queued(
        what=Wanted.RELAY,
        subject=subject,
        since=host.clock.now(),
        why="a test put it there",
        envelope=envelope,
    )
    queue = etcdstore.load_queue(host)
    etcdstore.save_queue(host, enqueue(queue, entry))


def test_what_the_holder_refuses_for_good_is_relayed_once(world: World) -> None:
    put(world, "x", world.loaded("b").key, b"no envelope")
    assert "a refused the request of b" in duty(world.tend("x"), "relay").text
    assert queued(world, "x") == []


def test_while_no_holder_is_known_nothing_is_hastened(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.node("x", mode="cloud")
    world.create("x")
    world.node("c")
    world.join("c", world.invite("x"))
    world.settle()
    assert queued(world, "x") == [(Wanted.RELAY, "c", 0)]
    assert duty(world.tend("x"), "relay").text == etcdenrol.UNKNOWN_HOLDER
    assert not hastens(world, "x")
    assert etcdenrol.waiting(world.host("x"), world.loaded("x")) == ()


def test_a_damaged_queue_keeps_nobody_from_joining(world: World) -> None:
    queue = world.net.nodes["b"].paths.etcd_queue
    queue.write_bytes(b"{")
    world.join("c", world.invite("b"))
    world.settle()
    assert {member.display for member in world.loaded("c").view.members} == set("abcx")
    assert any("is not relayed" in said for said in world.net.nodes["b"].console.said)


def bring(world: World, giver: str, taker: str, grant: Grant) -> TakeGrantAnswer:
    node = world.loaded(giver)
    taken = find(node.view, taker)
    body = TakeGrant(grant=grant)
    return talk.ask(
        world.host(giver),
        node,
        taken,
        etcdenrol.GRANT,
        body,
        TakeGrantAnswer,
        path=etcdbirth.ETCD_PATH,
    ).body


def test_a_grant_that_a_member_brings_is_judged_and_one_that_is_held_stays(world: World) -> None:
    world.net.cut("a", "c")
    world.net.lose("request", source="b", path="/v1/etcd", count=1)
    world.join("c", world.invite("b"))
    world.settle()
    a, b = world.host("a"), world.host("b")
    request = etcdcredentials.enrolment(b, world.loaded("b"))
    admitted = {one.key: one.address for one in world.loaded("a").view.members}
    for_b = etcdissue.grant(a, world.loaded("a"), request, admitted=admitted)
    held = etcdstore.load_intermediate(b)
    assert held is not None
    before = etcdcert.serial_of(held[1].certificate)
    assert bring(world, "x", "b", for_b).intermediate == before
    with pytest.raises(PeerError) as caught:
        bring(world, "b", "c", for_b)
    assert caught.value.reason == "grant-not-for-me"
    assert not granted(world, "c")


def test_the_channels_service_says_what_is_installed_now(world: World) -> None:
    """It runs on while the overlay's package comes and goes (E1)."""
    node = world.loaded("a")
    found = []
    for installed in (True, False, True):
        world.net.nodes["b"].overlay_etcd_installed = installed
        answers = etcdbirth.probe_capable(world.host("a"), node)
        found += [one.capability for member, one in answers.items() if member.display == "b"]
    assert found == [Capability.ETCD, Capability.NONE, Capability.ETCD]


def test_one_that_is_reserved_for_another_takes_no_first_root_from_its_inviter(
    world: World,
) -> None:
    world.net.cut("a", "c")
    world.join("c", world.invite("b"))
    world.kicks.clear()
    c, b = world.host("c"), world.loaded("b")
    other = replace_by(b.key)
    held = Reservation(by=other, since=c.clock.now(), until=c.clock.now() + timedelta(minutes=9))
    c.files.write(c.paths.forming, codec.dumps(held))
    world.tend("b")
    assert not granted(world, "c")
    assert queued(world, "b") == [(Wanted.RELAY, "c", 1)]
    world.net.clock.sleep(600)
    world.tend("b")
    assert granted(world, "c")


def replace_by(key: SigningKey) -> SigningKey:
    """Another node's key."""
    return SigningKey(key[::-1])


def test_who_joins_while_the_holder_grants_to_enough_others_is_a_member_and_granted_later(
    world: World,
) -> None:
    host, doors, clock = world.host("a"), etcd.doors(), world.net.clock
    world.net.nodes["a"].handler = lambda path, source, body: receive.receive(
        host, world.spec("a"), doors, path, source, body
    )
    token = world.invite("a")
    with ExitStack() as others:
        for one in range(ADMITS.at_once or 0):
            others.enter_context(doors.turns.taken(receive.JOIN, one, ADMITS, clock.monotonic()))
        joined = world.join("c", token)
    assert joined.etcd.grant is None
    assert "as many join messages as may be" in (joined.etcd.note or "")
    world.settle()
    world.timers("a", "c")
    assert granted(world, "c")
