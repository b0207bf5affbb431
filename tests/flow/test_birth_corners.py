"""Births that do not go by the book: a holder that died at its desk, earlier ones that come first,
a formation without a quorum, a stray beside it (E8, E10, E16)."""

from __future__ import annotations

from pathlib import Path

import pytest

from keel.errors import KeelError, Refused
from keel.mesh import etcdbirth, etcdcert, etcdmember, etcdstore, etcdtaken, store, talk, wire
from keel.mesh.etcdmsg import GiveUp, GiveUpAnswer
from keel.mesh.etcdstate import Stage
from keel.mesh.exchange import ETCD_PATH
from keel.mesh.token import EtcdHint
from keel.types import FormationId
from tests.flow.kill import tolerate
from tests.flow.test_birth_flow import assert_one_cluster, born, remove, two_joined
from tests.flow.world import World


def test_a_holder_that_died_between_the_record_and_its_note_gives_the_same_birth(
    tmp_path: Path,
) -> None:
    """The reservation is on disk, the invite does not know of it yet: the same command has the
    same formation signed again."""
    world, token = two_joined(tmp_path)
    holder = world.net.nodes["a"]
    reserved = False

    def between(text: str) -> bool:
        nonlocal reserved
        reserved |= text.startswith("disk rename") and text.endswith("formation.json")
        return reserved and "/mesh/invites/" in text

    holder.effects.crash_on = between
    tolerate(lambda: world.join("c", token))
    assert holder.effects.dead
    holder.new_life()
    joined = world.join("c", token)
    assert joined.etcd.state is EtcdHint.FORMS
    (formation,) = etcdstore.load_book(world.host("a")).formations
    world.rest(*"abc")
    assert_one_cluster(world)
    assert etcdstore.load_cluster(world.host("c")).formation == formation.formation


def test_a_token_says_what_the_join_will_come_to(tmp_path: Path) -> None:
    """That it forms the cluster only where exactly one other is ready, and only the holder's."""
    world = World(tmp_path)
    for name in "abcd":
        world.node(name, mode="cloud" if name == "d" else "cloud_advanced")
    world.create("a")
    assert world.invite("a").etcd is EtcdHint.WAITING
    world.join("b", world.invite("a"))
    world.join("d", world.invite("a"))
    world.settle()
    world.make_capable("d")
    world.sync("d")  # it says so, and has no certificate yet
    third = world.invite("a")
    (root,) = etcdstore.load_roots(world.host("a"))
    assert (third.etcd, third.holder, third.root) == (
        EtcdHint.FORMS,
        "a",
        etcdcert.fingerprint(root),
    )
    assert (world.invite("b").etcd, world.invite("b").holder) == (EtcdHint.WAITING, "a")
    world.join("c", third)
    assert world.invite("a").etcd is EtcdHint.WAITING
    world.settle()
    world.rest(*"abc")
    assert world.invite("a").etcd is EtcdHint.RUNNING


def test_those_who_were_granted_earlier_form_first(tmp_path: Path) -> None:
    """b slept while c came, so nobody formed; d finds both awake, and waits for its turn."""
    world, _ = two_joined(tmp_path)
    world.net.nodes["b"].alive = False
    world.join("c", world.invite("a"))
    world.settle()
    world.net.nodes["b"].alive = True
    world.node("d")
    joined = world.join("d", world.invite("a"))
    assert joined.etcd.state is EtcdHint.WAITING
    assert joined.etcd.note == "others were granted earlier and form first"
    world.rest(*"abc")
    (cluster,) = world.etcd.births()
    assert {one.name for one in cluster.voters()} == {
        f"keel-{world.loaded(name).address.packed.hex()}" for name in "abc"
    }


@pytest.mark.lives
def test_who_joins_while_a_formation_without_a_quorum_stands_waits_until_it_is_given_up(
    tmp_path: Path,
) -> None:
    world, token = two_joined(tmp_path)
    for name in "bc":
        world.etcd.guards[name] = lambda: False
    world.join("c", token)
    world.settle()
    world.tend("a")
    lost = etcdstore.load_cluster(world.host("a")).formation
    for name in "bc":
        remove(world, name)
    world.kicks.clear()
    notes = []
    for name in "de":
        world.node(name)
        notes.append(world.join(name, world.invite("a")).etcd.note)
        world.kicks.clear()
    assert "an earlier formation has to be given up first" in notes
    world.settle()
    world.rest(*"ade")
    (cluster,) = world.etcd.births()
    assert len(cluster.voters()) == 3
    assert etcdstore.load_cluster(world.host("a")).formation != lost


def test_a_join_beside_a_running_tend_is_a_join_and_says_so(tmp_path: Path) -> None:
    world, token = two_joined(tmp_path)
    host = world.host("c")
    with host.locks.hold(host.paths.tend_lock, what="the tend"):
        world.join("c", token)
    assert store.load(host) is not None
    world.rest(*"abc")
    assert_one_cluster(world)


def test_a_stray_that_holds_nothing_goes_before_keels_own_starts(tmp_path: Path) -> None:
    world, token = two_joined(tmp_path)
    paths = world.net.nodes["c"].paths
    paths.stray_data.mkdir(parents=True)
    (paths.stray_data / "snap").write_bytes(b"")
    paths.stray_marker.parent.mkdir(parents=True, exist_ok=True)
    paths.stray_marker.write_bytes(b"")
    world.join("c", token)
    world.rest(*"abc")
    assert_one_cluster(world)
    assert not paths.stray_data.exists()


def test_a_stray_of_somebody_elses_is_left_alone_and_named(tmp_path: Path) -> None:
    world, token = two_joined(tmp_path)
    paths = world.net.nodes["c"].paths
    paths.stray_data.mkdir(parents=True)
    (paths.stray_data / "snap").write_bytes(b"theirs")
    world.join("c", token)
    world.settle()
    world.timers()
    assert (paths.stray_data / "snap").read_bytes() == b"theirs"
    with pytest.raises(Refused) as caught:
        world.host("c").overlay.remove_stray()
    assert caught.value.rule == "etcd-stray-foreign"


def test_no_leaf_is_signed_before_the_holder_granted(tmp_path: Path) -> None:
    world = World(tmp_path)
    for name in "ab":
        world.node(name, mode="cloud")
    world.create("a")
    with pytest.raises(Refused) as caught:
        etcdmember.issue_leaves(world.host("a"), world.loaded("a"))
    assert caught.value.rule == "no-intermediate"


def test_a_member_of_a_cluster_gives_up_another_formation_and_stays_in_its_own(
    tmp_path: Path,
) -> None:
    world = born(tmp_path)
    host = world.host("b")
    before = etcdstore.load_cluster(host)
    raw = etcdtaken.give_up(host, world.loaded("b"), FormationId("0" * 32))
    assert wire.signers(wire.decode(raw, max_bytes=len(raw))) == (world.loaded("b").key,)
    after = etcdstore.load_cluster(host)
    assert (after.stage, after.formation) == (Stage.FORMED, before.formation)
    world.timers()
    assert_one_cluster(world)


def test_the_others_give_a_formation_up_by_their_signed_words(tmp_path: Path) -> None:
    world, _ = two_joined(tmp_path)
    formation, node = FormationId("0" * 32), world.loaded("a")
    question = dict.fromkeys(talk.others(node), GiveUp(formation=formation))
    (answer,) = talk.ask_all(
        world.host("a"), node, question, etcdbirth.GIVE_UP, GiveUpAnswer, path=ETCD_PATH
    ).values()
    assert not isinstance(answer, KeelError)
    raw = answer.body.statement
    assert wire.signers(wire.decode(raw, max_bytes=len(raw))) == (world.loaded("b").key,)
    assert formation in etcdstore.load_cluster(world.host("b")).given_up
