"""The birth of the registry by whole nodes: late, wiped, powered off, redeemed twice. Judged by the
etcds and by keys written before, not by keel's own status."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from keel.errors import EtcdError, Refused
from keel.mesh import (
    birth,
    drafts,
    etcdbirth,
    etcdcert,
    etcdholder,
    etcdissue,
    etcdown,
    etcdstore,
    etcdtaken,
    records,
    store,
    wire,
)
from keel.mesh.duty import Result
from keel.mesh.etcdmsg import RecordState
from keel.mesh.etcdstate import Stage
from keel.mesh.token import Token
from keel.types import LOCALHOST, Nonce
from tests.fakes.etcd import UNIT
from tests.flow.arranged import arranged
from tests.flow.world import World

pytestmark = pytest.mark.lives

NAMES = "abc"


@arranged
def two_joined(scratch: Path) -> tuple[World, Token]:
    """A mesh of two capable nodes, and an invite for the third."""
    world = World(scratch)
    for name in NAMES:
        world.node(name)
    world.create("a")
    world.join("b", world.invite("a"))
    world.settle()
    world.timers("a", "b")
    return world, world.invite("a")


@arranged
def born(scratch: Path) -> World:
    world, token = two_joined(scratch)
    world.join("c", token)
    world.rest(*NAMES)
    assert_one_cluster(world)
    return world


def test_the_pass_in_which_a_birth_ends_is_followed_by_another_one_soon(tmp_path: Path) -> None:
    """Only that one knows of the cluster from its start, and sees to who waits for a place."""
    world, token = two_joined(tmp_path)
    world.join("c", token)
    passes = [[duty for duty in world.tend(name) if duty.name == "etcd"] for name in "bcabcabc"]
    changed = [duty for (duty,) in passes if duty.result is Result.DONE]
    assert changed
    assert all(duty.open for duty in changed)
    assert not any(duty.open for duty in passes[-1])


def assert_one_cluster(world: World) -> None:
    (cluster,) = world.etcd.births()
    assert len(cluster.voters()) == 3
    world.host("a").etcd_at(LOCALHOST).put(b"key", b"value")
    for name in NAMES:
        assert world.host(name).etcd_at(LOCALHOST).get(b"key") == b"value"


def refused_starts(world: World) -> set[tuple[str, str]]:
    return {(name, error.rule) for name, error in world.refused if isinstance(error, Refused)}


def test_the_third_that_is_off_for_hours_joins_the_cluster_that_the_others_formed(
    tmp_path: Path,
) -> None:
    world, token = two_joined(tmp_path)
    guard = world.etcd.guards["c"]
    world.etcd.guards["c"] = lambda: False  # the power goes before its etcd is up
    world.join("c", token)
    world.net.nodes["c"].power_off()
    world.rest("a", "b")
    world.host("a").etcd_at(LOCALHOST).put(b"early", b"kept")
    world.net.clock.sleep(timedelta(hours=3).total_seconds())
    world.etcd.guards["c"] = guard
    world.boot("c")
    world.rest(*NAMES)
    assert_one_cluster(world)
    assert world.host("c").etcd_at(LOCALHOST).get(b"early") == b"kept"


def test_one_that_is_slower_than_the_others_joins_without_another_record(tmp_path: Path) -> None:
    world, token = two_joined(tmp_path)
    guard = world.etcd.guards["b"]
    world.etcd.guards["b"] = lambda: False
    world.join("c", token)
    world.rest("a", "c", rounds=3)
    epoch = etcdstore.load_book(world.host("a")).epoch
    world.etcd.guards["b"] = guard
    world.net.clock.sleep(30)
    assert etcdstore.load_book(world.host("a")).epoch == epoch
    assert "b" in world.etcd.processes


@pytest.mark.parametrize("wiped", ["ab", "bc", "ac"])
def test_two_of_three_wiped_never_serve_an_empty_cluster(tmp_path: Path, wiped: str) -> None:
    world = born(tmp_path)
    for name in NAMES:
        world.net.nodes[name].units.stop(UNIT)
    for name in wiped:
        world.net.nodes[name].files.remove(world.net.nodes[name].paths.etcd_data)
    for name in NAMES:
        world.net.nodes[name].units.start(UNIT, block=False)
    world.net.clock.sleep(60)
    assert len(world.etcd.births()) == 1
    for name in wiped:
        assert (name, "start-data-missing") in refused_starts(world)
        with pytest.raises(EtcdError):
            world.host(name).etcd_at(LOCALHOST).get(b"key")
        world.timers(name)
        (failure,) = etcdstore.load_failures(world.host(name)).entries
        assert failure.code == "etcd-data-missing"
        assert "move it back" in failure.remedy


def test_all_three_come_back_after_a_power_cut(tmp_path: Path) -> None:
    world = born(tmp_path)
    for name in NAMES:
        world.net.nodes[name].power_off()
    for name in NAMES:
        world.boot(name)
    world.rest(*NAMES)
    (cluster,) = world.etcd.births()
    assert cluster.leader
    assert world.host("c").etcd_at(LOCALHOST).get(b"key") == b"value"


def test_two_invites_redeemed_at_one_moment_form_once(tmp_path: Path) -> None:
    world, first = two_joined(tmp_path)
    world.node("d")
    second = world.invite("a")
    world.join("c", first)
    world.join("d", second)
    world.rest(*NAMES)
    (cluster,) = world.etcd.births()
    assert len(cluster.voters()) == 3
    assert etcdstore.load_cluster(world.host("d")).stage is Stage.IDLE
    assert store.load(world.host("d")) is not None
    assert [one.over for one in etcdstore.load_book(world.host("a")).formations] == [False]


def test_a_holder_that_died_before_its_note_of_the_confirmation_gives_birth_all_the_same(
    tmp_path: Path,
) -> None:
    world, token = two_joined(tmp_path)
    world.join("c", token)
    host = world.host("a")
    book = etcdstore.load_book(host)
    (formation,) = book.formations
    unconfirmed = birth.HolderBook(
        epoch=book.epoch, formations=(replace(formation, confirmed=False),)
    )
    etcdstore.save_book(host, unconfirmed)
    world.rest(*NAMES)
    assert_one_cluster(world)


def test_an_older_copy_of_the_book_learns_the_cluster_and_its_members_again(tmp_path: Path) -> None:
    world = born(tmp_path)
    host, node = world.host("a"), world.loaded("a")
    (before,) = etcdstore.load_book(host).formations
    etcdstore.save_book(host, birth.HolderBook())
    etcdbirth.holder_duty(host, node)
    book = etcdstore.load_book(host)
    assert book.formed == before.formation
    assert {one.address for one in book.formations[0].members} == {
        one.address for one in before.members
    }


def test_a_leader_that_was_seen_without_a_record_to_go_by_makes_no_note_and_no_birth(
    tmp_path: Path,
) -> None:
    world = born(tmp_path)
    host = world.host("a")
    host.files.remove(host.paths.etcd_record)
    etcdstore.save_book(host, birth.HolderBook())
    etcdbirth.holder_duty(host, world.loaded("a"))
    assert etcdstore.load_book(host) == birth.HolderBook()


def test_the_holder_signs_no_record_that_nobody_lacks(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.mesh("abc")
    world.tends("abc")
    before = etcdstore.load_book(world.host("a")).epoch
    world.net.clock.sleep(3 * 3600)
    for name in "abc":
        world.tend(name)
    world.settle()
    assert etcdstore.load_book(world.host("a")).epoch == before


def remove(world: World, name: str) -> None:
    """Its own removal, as `leave` signs it, on the holder's disk."""
    there = world.loaded(name)
    removal = drafts.make_removal(
        there.roster,
        there.identity.signing,
        there.key,
        now=world.net.clock.now(),
        nonce=Nonce(world.host(name).chance.bytes(16).hex()),
    )
    with store.locked(world.host("a"), "the mesh"):
        store.merge_into(world.host("a"), world.loaded("a"), (wire.encode(removal),))
    world.net.nodes[name].power_off()


def test_a_formation_that_lost_its_quorum_is_given_up_before_another_is_born(
    tmp_path: Path,
) -> None:
    world, token = two_joined(tmp_path)
    for name in "bc":
        world.etcd.guards[name] = lambda: False
    world.join("c", token)
    world.settle()
    world.tend("a")
    lost = etcdstore.load_cluster(world.host("a")).formation
    assert lost is not None
    for name in "bc":
        remove(world, name)
    world.kicks.clear()
    world.tend("a")
    assert etcdstore.load_cluster(world.host("a")).given_up == (lost,)
    for name in "de":
        world.node(name)
        world.join(name, world.invite("a"))
        world.settle()
    world.rest(*"ade")
    (cluster,) = world.etcd.births()
    assert len(cluster.voters()) == 3
    assert etcdstore.load_cluster(world.host("a")).formation != lost


def runs_since_a_moment(world: World) -> None:
    world.etcd.undecided.add("b")
    world.etcd.processes["b"].had_leader = False


def is_off(world: World) -> None:
    world.net.nodes["b"].units.stop(UNIT)


def is_cut_off(world: World) -> None:
    world.net.cut("b", "a")
    world.net.cut("b", "c")


@pytest.mark.parametrize(
    ("stage", "etcd"),
    [
        pytest.param(Stage.FORMED, is_off, id="noted"),
        pytest.param(Stage.STARTING, runs_since_a_moment, id="seen now, not yet noted"),
        pytest.param(Stage.STARTING, is_cut_off, id="seen once, not yet noted"),
    ],
)
def test_a_formation_with_a_leader_is_not_given_up(
    tmp_path: Path, stage: Stage, etcd: Callable[[World], None]
) -> None:
    world = born(tmp_path)
    host = world.host("b")
    cluster = replace(etcdstore.load_cluster(host), stage=stage)
    etcdstore.save_cluster(host, cluster)
    etcd(world)
    assert etcdown.sees_leader(host) is (etcd is runs_since_a_moment)
    assert cluster.formation is not None
    with pytest.raises(Refused) as caught:
        etcdtaken.give_up(host, world.loaded("b"), cluster.formation)
    assert caught.value.rule == "formation-alive"
    assert etcdstore.load_cluster(host) == cluster


def holder_statement(world: World, epoch: int) -> bytes:
    """The holder's word of that epoch, by its key and by the root's."""
    node, held = world.loaded("a"), etcdstore.load_authority(world.host("a"))
    assert held is not None
    root = etcdcert.fingerprint(held[1].certificate)
    body = records.HolderRecord(
        mesh=node.mesh,
        ed25519=node.key,
        epoch=epoch,
        generations=(records.Generation(number=1, root=root),),
    )
    envelope = wire.seal(records.HOLDER, body, node.identity.signing)
    signed = etcdcert.sign_with_root(held[1], wire.message(envelope))
    return wire.encode(wire.with_signature(envelope, wire.root_key_id(root), signed))


def test_members_obey_the_highest_holder_statement_and_never_an_older_one(tmp_path: Path) -> None:
    world = born(tmp_path)
    a, b = world.host("a"), world.host("b")
    book = etcdstore.load_book(a)

    def signed(epoch: int, statement: int) -> bytes:
        etcdstore.save_holder(a, holder_statement(world, statement))
        return etcdissue.sign_record(
            a, world.loaded("a"), book.formations[-1], epoch=epoch, state=RecordState.EXISTING
        )

    etcdtaken.take_record(b, world.loaded("b"), signed(book.epoch + 1, 2))
    assert etcdholder.held_epoch(b) == 2
    with pytest.raises(Refused) as caught:
        etcdtaken.take_record(b, world.loaded("b"), signed(book.epoch + 2, 1))
    assert caught.value.rule == "holder-old"
