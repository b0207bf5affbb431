"""A join that is never confirmed leaves no grant and no reservation behind (E5, E10)."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from keel.errors import PeerError
from keel.mesh import admit, etcdcert, etcdcrl, etcdlapse, etcdstore
from keel.mesh.duty import Duty, Result
from keel.mesh.etcdgrants import granted_to, live_grant
from keel.mesh.etcdstate import Queued, Wanted, enqueue
from keel.mesh.invite import Claim
from keel.mesh.token import Token
from tests.flow.arranged import arranged
from tests.flow.world import World

HALF_AN_HOUR = timedelta(minutes=30)


@arranged
def one_that_never_confirmed(scratch: Path) -> World:
    """a holds the root, b is its member; c was granted and promised a birth; it never confirmed."""
    made = World(scratch)
    made.mesh("ab", spare="cd")
    made.timers("a", "b")
    made.tokens["c"] = made.invite("a", life=HALF_AN_HOUR)
    lose_confirmation(made, "c", made.tokens["c"])
    return made


@pytest.fixture
def world(tmp_path: Path) -> World:
    return one_that_never_confirmed(tmp_path)


def lose_confirmation(world: World, name: str, token: Token) -> None:
    world.net.lose("request", source=name, path="/v1/hello", count=999)
    with pytest.raises(PeerError):
        world.join(name, token)


def expire(world: World) -> None:
    world.net.clock.sleep(HALF_AN_HOUR.total_seconds())


def cancel(world: World) -> None:
    admit.cancel(world.host("a"), world.spec("a"), world.tokens["c"].invite)


def claims(world: World) -> Duty:
    return next(one for one in world.tend("a") if one.name == etcdlapse.NAME)


def grants(world: World, name: str) -> tuple[int, bool]:
    """How many the node was given, and whether the newest holds."""
    node, ledger = world.loaded(name), etcdstore.load_ledger(world.host("a"))
    given = granted_to(ledger, node.address, node.key)
    return len(given), live_grant(ledger, node.address, node.key) is not None


def crl(world: World) -> etcdcrl.Crl:
    host = world.host("a")
    return etcdcrl.read_crl(etcdstore.load_crl(host) or b"", etcdstore.load_roots(host))


def watched(world: World) -> list[Wanted]:
    return [one.what for one in etcdstore.load_queue(world.host("a")).entries]


@pytest.mark.parametrize("end", [expire, cancel])
def test_what_an_unconfirmed_join_was_given_ends_with_its_claim(world: World, end: object) -> None:
    assert watched(world) == [Wanted.CONFIRMATION]
    assert claims(world).result is Result.NOTHING
    assert (grants(world, "c"), crl(world).number) == ((1, True), 1)
    end(world)  # type: ignore[operator]
    world.timers("a")
    assert (grants(world, "c"), crl(world).number) == ((1, False), 2)
    (line,) = granted_to(
        etcdstore.load_ledger(world.host("a")), world.loaded("c").address, world.loaded("c").key
    )
    assert [one.serial for one in crl(world).revoked] == [line.serial]
    assert [one.over for one in etcdstore.load_book(world.host("a")).formations] == [True]
    assert watched(world) == []


@pytest.mark.parametrize("end", [expire, cancel])
def test_the_next_one_forms_at_once_and_not_when_the_reservation_ends(
    world: World, end: object
) -> None:
    end(world)  # type: ignore[operator]
    world.timers("a")
    world.join("d", world.invite("a"))
    world.rest("a", "b", "d")
    (cluster,) = world.etcd.births()
    assert len(cluster.voters()) == 3


def test_the_same_node_comes_back_and_gets_another_certificate(world: World) -> None:
    expire(world)
    world.timers("a")
    world.net.losses.clear()
    world.join("c", world.invite("a"))
    world.rest("a", "b", "c")
    assert grants(world, "c") == (2, True)
    held = etcdstore.load_intermediate(world.host("c"))
    assert held is not None
    assert not crl(world).revokes(held[1].certificate)
    assert etcdcert.serial_of(held[1].certificate) not in {one.serial for one in crl(world).revoked}
    assert len(world.etcd.births()) == 1


def test_a_confirmed_join_keeps_what_it_was_given(world: World) -> None:
    world.net.losses.clear()
    world.join("c", world.tokens["c"])
    world.settle()
    assert watched(world) == []
    expire(world)
    world.timers("a")
    assert (grants(world, "c"), crl(world).number) == ((1, True), 1)


def test_a_note_that_a_kill_left_behind_goes_once_its_node_is_a_member(world: World) -> None:
    host = world.host("a")
    entry = Queued(
        what=Wanted.CONFIRMATION, subject=world.loaded("b").key, since=host.clock.now(), why=""
    )
    etcdstore.save_queue(host, enqueue(etcdstore.load_queue(host), entry))
    assert claims(world).result is Result.NOTHING
    assert watched(world) == [Wanted.CONFIRMATION]
    assert grants(world, "b") == (1, True)


def test_a_member_that_is_admitted_once_more_is_not_watched(world: World) -> None:
    node = world.loaded("a")
    member = world.loaded("b")
    claim = Claim(
        ed25519=member.key,
        wireguard=member.identity.wireguard.public,
        name=node.view.by_key(member.key).name,  # type: ignore[union-attr]
        address=member.address,
        capability=node.view.by_key(member.key).capability,  # type: ignore[union-attr]
        time=world.net.clock.now(),
        admission=b"",
    )
    before = watched(world)
    etcdlapse.watch(world.host("a"), node, claim)
    assert watched(world) == before


def test_a_holder_of_a_wrong_clock_ends_no_claim(world: World) -> None:
    world.net.nodes["a"].clock.wrong_by = timedelta(hours=2)
    world.sync("a")
    waits = claims(world)
    assert (waits.result, waits.waiting[0].waiting_for) == (Result.WAITING, "the clock")
    assert grants(world, "c") == (1, True)
    world.net.nodes["a"].clock.wrong_by = timedelta()
