"""Disks that were put back: the holder asks before it signs, a voter is not started (design 3)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from keel.cli import status
from keel.errors import Refused
from keel.mesh import (
    etcdbirth,
    etcdissue,
    etcdmemory,
    etcdrestored,
    etcdrevoke,
    etcdstore,
    store,
)
from keel.mesh.duty import Result
from keel.mesh.etcdgrants import live_grant
from keel.mesh.etcdmsg import Tell, TellAnswer
from keel.mesh.etcdstate import Restored
from keel.mesh.receive import Asked
from keel.types import LOCALHOST
from tests.flow.arranged import arranged
from tests.flow.held import crl
from tests.flow.removing import remove
from tests.flow.world import World

pytestmark = pytest.mark.lives

LAST_WEEK = 7 * 24 * 3600.0


@arranged
def two_with_last_weeks_copy(scratch: Path) -> World:
    """a (the holder), b and c are voters. Of a and c there is a copy of last week; since then d has
    joined and c's neighbour e was removed."""
    made = World(scratch)
    made.cluster("abc", spare="de")
    made.join("e", made.invite("a"))
    made.settle()
    made.timers("a", "b", "c", "e")
    for name in "ac":
        copy(made, name)
    made.net.clock.sleep(LAST_WEEK)
    made.timers("a", "b", "c", "e")
    remove(made, "a", "e")
    made.join("d", made.invite("a"))
    made.settle()
    made.timers("a", "b", "c", "d")
    made.timers("a", "b", "c", "d")
    assert crl(made, "b").number == 2
    return made


@pytest.fixture
def world(tmp_path: Path) -> World:
    return two_with_last_weeks_copy(tmp_path)


def places(world: World, name: str) -> tuple[Path, Path]:
    root = world.net.nodes[name].root
    return root / "var/lib", root.with_name(f"{name}-last-week")


def copy(world: World, name: str) -> None:
    here, there = places(world, name)
    shutil.copytree(here, there)


def put_back(world: World, name: str) -> None:
    """The machine starts again from the copy."""
    here, there = places(world, name)
    world.net.nodes[name].power_off()
    shutil.rmtree(here)
    shutil.copytree(there, here)
    world.refused.clear()
    world.boot(name)


def rules(world: World, name: str) -> list[str]:
    return [getattr(error, "rule", "") for who, error in world.refused if who == name]


def codes(world: World, name: str) -> set[str]:
    found = status.look(world.host(name))["warnings"]
    assert isinstance(found, list)
    return {one["code"] for one in found}


# --- the holder


def test_a_holder_that_was_put_back_unites_what_its_members_hold_and_signs_on(
    world: World,
) -> None:
    epochs = [etcdstore.load_cluster(world.host(name)).epoch for name in "bcd"]
    put_back(world, "a")
    host = world.host("a")
    assert etcdstore.load_book(host).epoch < max(epochs)
    world.settle()
    world.timers("a")
    assert etcdstore.load_restored(host) is None
    assert etcdstore.load_book(host).epoch > max(epochs)
    assert crl(world, "a").number > 2
    gone = etcdstore.load_intermediate(world.host("e"))
    assert gone is not None
    assert crl(world, "a").revokes(gone[1].certificate)
    d = world.loaded("d")
    assert live_grant(etcdstore.load_ledger(host), d.address, d.key) is not None
    world.timers("a", "b", "c", "d")
    world.timers("a", "b", "c", "d")
    assert {crl(world, name).number for name in "abc"} == {crl(world, "a").number}


def test_nothing_is_signed_until_more_than_half_of_the_others_answered(world: World) -> None:
    for name in "cd":
        world.net.nodes[name].power_off()
    put_back(world, "a")
    host = world.host("a")
    world.timers("a")
    assert etcdstore.load_restored(host) is not None
    with pytest.raises(Refused) as caught:
        etcdissue.require_signer(host)
    assert caught.value.rule == "holder-restored"
    with pytest.raises(Refused):
        etcdrevoke.issue(host, world.loaded("a"))
    found = etcdrestored.duty(host, world.loaded("a"))
    assert (found.result, found.open) == (Result.WAITING, True)
    assert found.waiting[0].waiting_for == "c, d"
    world.net.nodes["b"].power_off()
    world.boot("c")
    world.settle()
    world.timers("a")
    assert etcdstore.load_restored(host) is None  # b was heard before, c now
    assert crl(world, "a").number == 3


def test_who_knows_no_more_is_asked_once_a_boot(world: World) -> None:
    host, node = world.host("a"), world.loaded("a")
    assert etcdrestored.duty(host, node).result is Result.NOTHING
    assert host.files.exists(host.paths.holder_compared)
    world.net.nodes["a"].effects.done.clear()
    etcdrestored.duty(host, node)
    assert world.net.nodes["a"].effects.done == []
    world.net.nodes["a"].power_off()
    world.boot("a")
    world.net.partition("a", "bcd")
    assert not host.files.exists(host.paths.holder_compared)
    assert etcdrestored.duty(host, world.loaded("a")).result is Result.NOTHING
    assert not host.files.exists(host.paths.holder_compared)


def test_another_node_than_the_holder_remembers_nothing(world: World) -> None:
    assert etcdrestored.duty(world.host("b"), world.loaded("b")).result is Result.NOTHING
    assert not etcdmemory.notice(world.host("b"), world.loaded("b"), {})


def test_a_holder_put_back_before_the_birth_knows_the_cluster_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.mesh("ab", spare="c")
    copy(world, "a")
    world.join("c", world.invite("a"))
    world.settle()
    world.rest("a", "b", "c")
    formed = etcdstore.load_book(world.host("a")).formed
    put_back(world, "a")
    world.settle()
    world.timers("a", "b", "c")
    world.timers("a", "b", "c")
    book = etcdstore.load_book(world.host("a"))
    assert book.formed == formed
    assert len(world.etcd.births()) == 1


def test_what_members_say_is_believed_only_under_this_root(world: World) -> None:
    host, node = world.host("a"), world.loaded("a")
    etcdstore.save_restored(host, Restored(since=host.clock.now()))
    before = etcdstore.load_ledger(host), crl(world, "a")
    member = node.view.by_key(world.loaded("b").key)
    assert member is not None
    lies = TellAnswer(crl=b"\x30\x00", intermediate=b"\x30\x00", record=b"\xff", formed=True)
    with store.locked(host, "the mesh"):
        note = etcdrestored._take(host, node, {member: lies})
    assert note.heard == (member.key,)
    assert (etcdstore.load_ledger(host), crl(world, "a")) == before


# --- a voter


def test_a_voter_that_was_put_back_is_not_started_and_says_what_to_do(world: World) -> None:
    put_back(world, "c")
    world.settle()
    world.timers("c")
    assert "start-restored" in rules(world, "c")
    assert "c" not in world.etcd.processes
    assert "restored" in codes(world, "c")
    assert "restored" not in codes(world, "b")
    assert world.host("b").etcd_at(LOCALHOST).get(b"any") is None


def test_a_holder_whose_crl_is_damaged_is_not_taken_for_one_that_was_put_back(
    world: World,
) -> None:
    host = world.host("a")
    said = etcdbirth.probe_capable(host, world.loaded("a"))
    host.paths.etcd_crl.write_bytes(b"")
    assert not etcdmemory.notice(host, world.loaded("a"), said)
    assert etcdstore.load_restored(host) is None


def test_the_note_stays_as_it_is_while_nobody_shows_more(world: World) -> None:
    host = world.host("a")
    for name in "cd":
        world.net.nodes[name].power_off()
    put_back(world, "a")
    world.settle()
    node = world.loaded("a")
    assert etcdmemory.notice(host, node, {})
    note = host.paths.holder_restored.read_bytes()
    said = etcdbirth.probe_capable(host, node)
    assert etcdmemory.notice(host, node, said)
    assert etcdmemory.notice(host, node, {})
    assert host.paths.holder_restored.read_bytes() == note


def test_a_holder_with_a_wrong_clock_still_sees_what_its_members_can_show(world: World) -> None:
    put_back(world, "a")
    world.net.nodes["a"].clock.offset = -50 * 365 * 24 * 3600.0
    node = world.loaded("a")
    host = world.host("a")
    member = node.view.by_key(world.loaded("b").key)
    assert member is not None
    told = etcdrestored.tell(
        Asked(
            host=world.host("b"),
            spec=world.spec("b"),
            node=world.loaded("b"),
            member=member,
            body=Tell(),
        )
    )
    found = etcdstore.load_authority(host)
    assert found is not None
    shown = etcdmemory._show(node, found[1].certificate, member, told)
    assert (shown.crl_number, shown.intermediate is None) == (2, False)


def test_doubts_that_cannot_be_read_are_none(world: World) -> None:
    host = world.host("a")
    etcdmemory.doubt(host, [world.loaded("b").key])
    assert [one.key for one in etcdmemory.load_doubts(host)] == [world.loaded("b").key]
    host.files.write(host.paths.doubted, b"[")
    assert etcdmemory.load_doubts(host) == ()
