"""The CRL on its way to every member: never lower, never absent, nobody's but the holder's (E5)."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from keel.mesh import (
    etcdcredentials,
    etcdcrl,
    etcdcrlspread,
    etcdissue,
    etcdrevoke,
    etcdstore,
    etcdtaken,
    roster,
    store,
    wire,
)
from keel.mesh.duty import Duty, Result
from keel.mesh.etcdcert import Serial
from keel.mesh.etcdcrl import Reason, Revoked
from keel.mesh.records import CRL, CrlRecord
from tests.flow.arranged import arranged
from tests.flow.held import crl, failed
from tests.flow.world import World
from tests.pki import make as pki

DAY = 86400.0
OLD = 20


@arranged
def three_in_a_cluster(scratch: Path) -> World:
    made = World(scratch)
    made.cluster("abc")
    return made


@pytest.fixture
def world(tmp_path: Path) -> World:
    return three_in_a_cluster(tmp_path)


def tend(world: World, name: str) -> Duty:
    return next(one for one in world.tend(name) if one.name == "crl")


def issue(world: World, *, above: int = 0) -> int:
    host = world.host("a")
    with store.locked(host, "the mesh"):
        return etcdrevoke.issue(host, store.require(host), above=above)


def laid(world: World, name: str) -> bytes:
    found = world.host(name).overlay.laid("crl.der")
    return found.reveal() if found else b""


def test_a_new_crl_is_with_every_member_and_its_etcd_after_one_exchange(world: World) -> None:
    number = issue(world)
    assert tend(world, "a").result is Result.DONE
    world.settle()
    for name in "abc":
        assert crl(world, name).number == number
        assert laid(world, name) == crl(world, name).der
    assert tend(world, "b").result is Result.NOTHING


def test_it_passes_on_through_others_while_the_holder_is_cut_off(world: World) -> None:
    world.net.cut("a", "c")
    number = issue(world)
    tend(world, "a")
    world.settle()
    world.sync("b")
    world.sync("c")
    world.settle()
    assert crl(world, "c").number == number


def test_a_lower_one_and_a_strangers_are_not_taken(world: World) -> None:
    number = issue(world, above=OLD)
    tend(world, "a")
    world.settle()
    host, node = world.host("b"), world.loaded("b")
    older = next(e.raw for e in node.roster.entries.values() if e.kind == CRL)
    forged = strangers_record(world, "b", number + 9)
    with store.locked(host, "the mesh"):
        store.save_roster(host, roster.merge(node.roster, (older, forged)).roster)
    assert tend(world, "b").result is Result.NOTHING
    assert crl(world, "b").number == number


def strangers_record(world: World, name: str, number: int) -> bytes:
    """What a member tells of a CRL that no root of this mesh signed."""
    node, now = world.loaded(name), world.host(name).clock.now()
    stranger = etcdcrl.new_crl(pki.root(now=now), (), number=number, now=now)
    body = CrlRecord(mesh=node.mesh, ed25519=node.key, generation=1, number=number, der=stranger)
    return wire.encode(wire.seal(CRL, body, node.identity.signing))


def test_a_member_that_tells_of_a_higher_number_keeps_no_crl_of_the_holder_back(
    world: World,
) -> None:
    host = world.host("a")
    with store.locked(host, "the mesh"):
        store.merge_into(host, world.loaded("a"), (strangers_record(world, "b", OLD),))
    number = issue(world)
    assert number < OLD
    assert tend(world, "a").result is Result.DONE
    world.settle()
    assert [crl(world, name).number for name in "abc"] == [number] * 3


@pytest.mark.parametrize("late", [True, False], ids=["the older one", "the newer one"])
def test_a_grant_brings_its_crl_unless_a_newer_one_is_held(world: World, late: bool) -> None:
    a, b = world.host("a"), world.host("b")
    etcdstore.begin_intermediate(b)
    request = etcdcredentials.enrolment(b, world.loaded("b"))
    admitted = {one.key: one.address for one in world.loaded("a").view.members}
    newer = 0 if late else issue(world)
    grant = etcdissue.grant(a, world.loaded("a"), request, admitted=admitted)
    if late:
        newer = issue(world)
        tend(world, "a")
        world.settle()
    assert (crl(world, "b").number == newer) is late
    with store.locked(b, "the mesh"):
        taken = etcdtaken.take_grant(b, world.loaded("b"), grant, trusted=True)
    assert (taken.crl_number < newer) is late
    found = etcdstore.load_intermediate(b)
    assert found is not None
    assert found[1].certificate == taken.intermediate
    assert crl(world, "b").number == newer


@pytest.mark.parametrize("damage", [None, b"", b"\n-----BEGIN X509 CRL-----\n", b"\x30\x03\x02"])
def test_a_copy_that_is_damaged_or_gone_is_made_good_from_another(
    world: World, damage: bytes | None
) -> None:
    number = issue(world)
    tend(world, "a")
    world.settle()
    host = world.host("b")
    for path in (host.paths.etcd_crl, host.paths.laid / "crl.der"):
        path.unlink()
        if damage is not None:
            path.write_bytes(damage)
    assert tend(world, "b").result is Result.DONE
    assert crl(world, "b").number == number
    assert laid(world, "b") == crl(world, "b").der


def test_before_any_record_tells_of_one_the_copy_that_etcd_reads_makes_it_good(
    world: World,
) -> None:
    host, before = world.host("b"), crl(world, "b")
    assert not [one for one in world.loaded("b").roster.entries.values() if one.kind == CRL]
    host.paths.etcd_crl.unlink()
    assert tend(world, "b").result is Result.DONE
    assert crl(world, "b") == before


def test_without_any_copy_the_failure_is_told(world: World) -> None:
    host = world.host("b")
    host.paths.etcd_crl.unlink()
    (host.paths.laid / "crl.der").unlink()
    assert tend(world, "b").result is Result.FAILED
    assert "crl-missing" in failed(world, "b")


def test_the_holder_signs_the_next_with_a_third_of_its_time_left(world: World) -> None:
    before = crl(world, "a")
    world.net.clock.leap(19.5 * DAY)
    assert tend(world, "a").result is Result.NOTHING
    world.net.clock.leap(1 * DAY)
    assert tend(world, "a").result is Result.DONE
    world.settle()
    for name in "abc":
        assert crl(world, name).number == before.number + 1
        assert crl(world, name).next_update > before.next_update


def test_no_crl_is_signed_by_a_clock_that_differs(world: World) -> None:
    world.net.clock.leap(21 * DAY)
    world.net.nodes["a"].clock.wrong_by = timedelta(minutes=10)
    world.sync("a")
    assert tend(world, "a").waiting[0].waiting_for == "the clock"


@pytest.mark.lives
@pytest.mark.parametrize("ago", [20, 730, 20000], ids=["days", "years", "1970"])
def test_under_clocks_that_are_all_before_the_root_the_crl_stands_and_can_be_replaced(
    world: World, ago: int
) -> None:
    """A host that gives all its machines one wrong time; nobody contradicts it, once they have
    found one another anew: WireGuard remembers a later time of each."""
    before = crl(world, "a")
    for name in "abc":
        world.net.nodes[name].clock.wrong_by = -timedelta(days=ago)
    for _ in range(5):
        world.timers(*"abc")
    assert tend(world, "a").result is not Result.FAILED
    assert crl(world, "a").number == before.number
    assert issue(world) == before.number + 1
    assert crl(world, "a").this_update < crl(world, "a").next_update
    tend(world, "a")
    assert crl(world, "a").number == before.number + 1
    for name in "abc":
        world.net.nodes[name].clock.wrong_by = timedelta()
    world.sync("a")
    tend(world, "a")
    world.settle()
    assert crl(world, "a").next_update - world.net.clock.now() > etcdcrlspread.REFRESH
    assert failed(world, "a") == []


def test_a_holder_that_was_killed_before_it_told_tells_afterwards(world: World) -> None:
    number = issue(world)
    world.net.clock.sleep(300)
    assert tend(world, "a").text == f"CRL {number} goes to every member"
    assert tend(world, "a").result is Result.NOTHING


def test_a_crl_that_no_record_carries_is_told_as_a_failure(world: World) -> None:
    host = world.host("a")
    found = etcdstore.load_authority(host)
    assert found is not None
    now = host.clock.now()
    many = [
        Revoked(serial=Serial(f"{number:040x}"), reason=Reason.SUPERSEDED, at=now)
        for number in range(1, 1500)
    ]
    etcdstore.save_crl(host, etcdcrl.new_crl(found[1], many, number=2, now=now))
    assert tend(world, "a").result is Result.FAILED
    assert "crl-too-large" in failed(world, "a")


def test_a_node_without_a_root_has_no_crl_to_tend(tmp_path: Path) -> None:
    made = World(tmp_path)
    made.node("a", mode="local")
    made.create("a")
    made.net.nodes["a"].overlay_etcd_installed = True
    made.net.nodes["a"].paths.spec.write_text("installation: {mode: cloud_advanced}\n")
    assert tend(made, "a").result is Result.NOTHING
