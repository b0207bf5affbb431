"""Single files of keel's state put back to an older moment, or gone, beside newer ones: the node
goes on, or stops with the path and a cure; never a second cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509

from keel.mesh import etcdcrl, etcdrecover, etcdstore
from keel.mesh.birth import HolderBook
from keel.mesh.duty import Result
from keel.mesh.etcdconf import MEMBER_FILE
from keel.mesh.etcdpki import encode_credential
from keel.mesh.etcdstate import Stage
from keel.outcome import Done
from tests.fakes.etcd import UNIT
from tests.flow.growing import BORN, grow, learners, membership, off, three_voters
from tests.flow.world import World

pytestmark = pytest.mark.lives


@pytest.fixture
def world(tmp_path: Path) -> World:
    return three_voters(tmp_path)


def stopped(world: World, name: str) -> None:
    """Its etcd stands still, as after a start of the machine that its guard refused."""
    world.net.nodes[name].units.stop(UNIT)
    world.net.clock.sleep(20)


def codes(world: World, name: str) -> dict[str, str]:
    return {one.code: one.remedy for one in etcdstore.load_failures(world.host(name)).entries}


def reserved_only(book: HolderBook) -> HolderBook:
    """The holder's book as it was between the third's admission and its confirmation."""
    (one,) = book.formations
    return HolderBook(epoch=1, formations=(replace(one, confirmed=False),))


OLDER_BOOKS = {
    "before any formation": lambda _: HolderBook(),
    "of the reservation": reserved_only,
}


@pytest.mark.parametrize("when", OLDER_BOOKS)
@pytest.mark.parametrize("cluster_too", [False, True], ids=["the book", "book and cluster.json"])
def test_an_older_book_of_the_holder_gives_no_second_birth_while_the_cluster_is_away(
    world: World, when: str, cluster_too: bool
) -> None:
    for name in "bc":
        off(world, name)
    host = world.host("a")
    etcdstore.save_book(host, OLDER_BOOKS[when](etcdstore.load_book(host)))
    if cluster_too:
        host.files.remove(host.paths.etcd_cluster)
        stopped(world, "a")
    world.net.clock.leap(7200)
    for name in "de":
        world.join(name, world.invite("a"))
        world.settle()
    for _ in range(3):
        world.timers("a", "d", "e", seconds=5.0)
    assert len(world.etcd.births()) == 1
    assert etcdstore.load_cluster(world.host("d")).stage is Stage.IDLE
    for name in "bc":
        world.boot(name)
    world.settle()
    for _ in range(3):
        world.timers(seconds=20.0)
    assert len(world.etcd.clusters) == 1
    assert cluster_too or membership(world).result is not Result.FAILED


def test_a_book_that_lost_its_cluster_while_nobody_answered_knows_it_again(world: World) -> None:
    for name in "bc":
        off(world, name)
    host = world.host("a")
    etcdstore.save_book(host, HolderBook())
    world.tend("a")
    for name in "bc":
        world.boot(name)
    world.settle()
    for _ in range(3):
        world.timers(*BORN, seconds=20.0)
    world.join("d", world.invite("a"))
    assert membership(world).result is not Result.FAILED
    assert learners(world) == ["d"]


@pytest.mark.parametrize("name", ["a", "c"])
def test_a_cluster_json_that_is_gone_is_named_and_a_new_place_is_the_cure(
    world: World, name: str
) -> None:
    host = world.host(name)
    host.files.remove(host.paths.etcd_cluster)
    stopped(world, name)
    world.timers(*BORN, seconds=20.0)
    failed = codes(world, name)
    assert "etcd-state-older" in failed
    assert "recover --replace" in failed["etcd-state-older"]
    _replaced(world, name)


def test_a_cluster_json_of_the_place_before_is_named_and_a_new_place_is_the_cure(
    world: World,
) -> None:
    host = world.host("c")
    before = etcdstore.load_cluster(host)
    world.net.nodes["c"].units.stop(UNIT)
    host.files.remove(host.paths.etcd_data)
    world.net.clock.sleep(20)
    _replaced(world, "c")
    etcdstore.save_cluster(host, before)
    stopped(world, "c")
    world.timers(*BORN, seconds=20.0)
    failed = codes(world, "c")
    assert "etcd-state-older" in failed
    assert "recover --replace" in failed["etcd-state-older"]
    _replaced(world, "c")


def _replaced(world: World, name: str) -> None:
    for _ in range(3):
        found = etcdrecover.recover(world.host(name), world.spec(name), world.loaded(name))
        world.settle()
        if isinstance(found, Done):
            break
    grow(world, *BORN)
    for _ in range(3):
        world.timers(*BORN, seconds=10.0)
    assert name in world.etcd.processes
    assert codes(world, name) == {}


@pytest.mark.parametrize("how", ["gone", "of the birth"])
def test_a_record_that_is_not_the_newest_taken_is_sent_again(world: World, how: str) -> None:
    host = world.host("c")
    born = etcdstore.load_record(host)
    assert born is not None
    world.join("d", world.invite("a"))
    world.settle()
    grow(world, *"abcd")
    newest = etcdstore.load_record(host)
    assert newest not in (None, born)
    if how == "gone":
        host.files.remove(host.paths.etcd_record)
    else:
        etcdstore.save_record(host, born)
    for _ in range(2):
        world.timers(*"abcd", seconds=20.0)
    assert etcdstore.load_record(host) == etcdstore.load_record(world.host("a"))


def test_a_formation_that_was_confirmed_while_the_holder_was_off_is_the_one_that_goes_on(
    tmp_path: Path,
) -> None:
    """The holder died before it noted the confirmation, and somebody else comes first."""
    world = World(tmp_path)
    world.mesh("ab", spare="cd")
    token, other = world.invite("a"), world.invite("a")
    world.join("c", token)
    host = world.host("a")
    (formation,) = etcdstore.load_book(host).formations
    etcdstore.save_book(host, reserved_only(etcdstore.load_book(host)))
    world.kicks.clear()
    world.net.clock.sleep(4000)
    world.join("d", other)
    assert [one.formation for one in etcdstore.load_book(host).formations] == [formation.formation]
    world.settle()
    world.rest(*"abc")
    assert world.formed("abc")


def renewed(world: World, name: str) -> None:
    """It has the next intermediate, and the one before is revoked."""
    host = world.host(name)
    before = _own_intermediate(world, name)
    etcdstore.begin_intermediate(host)
    for _ in range(3):
        world.timers(*BORN, seconds=10.0)
    assert _revoked(world, before)
    assert not _revoked(world, _own_intermediate(world, name))


def _own_intermediate(world: World, name: str) -> x509.Certificate:
    found = etcdstore.load_intermediate(world.host(name))
    assert found is not None
    return found[1].certificate


def _revoked(world: World, certificate: x509.Certificate) -> bool:
    host = world.host("a")
    crl = etcdcrl.read_crl(etcdstore.load_crl(host) or b"", etcdstore.load_roots(host))
    return crl.revokes(certificate)


@pytest.mark.parametrize("leaves_too", [False, True], ids=["intermediate", "and its leaves"])
@pytest.mark.parametrize("name", ["a", "c"])
def test_an_intermediate_that_was_renewed_since_is_renewed_again(
    world: World, name: str, leaves_too: bool
) -> None:
    renewed(world, name)
    host = world.host(name)
    host.files.remove(host.paths.intermediate(2))
    if leaves_too:
        for number in range(2, etcdstore.whole_leaves(host) + 1):
            host.files.remove(host.paths.leaf(number))
    laid = host.overlay.laid(MEMBER_FILE)
    world.net.partition("a", "bc")
    world.tend("c")
    if name == "c" and not leaves_too:
        assert host.overlay.laid(MEMBER_FILE) == laid  # what is laid is better than what is known
    world.net.heal()
    for _ in range(3):
        world.timers(*BORN, seconds=10.0)
    assert not _revoked(world, _own_intermediate(world, name))
    leaves = etcdstore.load_leaves(host)
    assert leaves is not None
    assert leaves.member.chain[0] == _own_intermediate(world, name)
    assert host.overlay.laid(MEMBER_FILE) == encode_credential(leaves.member)
    assert codes(world, name) == {}
