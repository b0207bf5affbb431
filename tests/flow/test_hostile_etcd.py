"""A member that is one, signs what it says, and lies about the registry: nobody else is harmed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from keel.cli import status
from keel.errors import PeerError, Refused
from keel.mesh import (
    drafts,
    etcd,
    etcdcert,
    etcdenrol,
    etcdissue,
    etcdlived,
    etcdmemory,
    etcdown,
    etcdrevoke,
    etcdstore,
    etcdtaken,
    members,
    receive,
    store,
    wire,
)
from keel.mesh.asked import Act
from keel.mesh.etcdbirth import probe_capable
from keel.mesh.etcdcrl import Reason
from keel.mesh.etcdgrants import granted_to
from keel.mesh.etcdholder import holder_of
from keel.mesh.etcdmsg import ProbeAnswer
from keel.mesh.etcdrequests import MAX_UNEXPIRED
from keel.mesh.records import HOLDER, Generation, HolderRecord
from keel.types import Capability, EtcdMemberId, Fingerprint, Secret
from tests.flow import growing
from tests.flow.world import World

pytestmark = pytest.mark.lives


@pytest.fixture
def world(tmp_path: Path) -> World:
    """a (the holder), b and c are voters; b is the hostile one."""
    made = World(tmp_path)
    made.cluster("abc")
    made.timers()
    made.timers()
    return made


def lies(world: World, name: str, **twists: Callable[[Any], Any]) -> None:
    """From now on that member's answers to these kinds are what `twist` makes of the true ones."""
    node = world.net.nodes[name]
    doors = etcd.doors()
    kinds = dict(doors.etcd)
    for kind, twist in twists.items():
        kinds[kind] = replace(kinds[kind], act=_twisted(kinds[kind].act, twist))
    twisted = replace(doors, etcd=kinds)
    node.handler = lambda path, source, body: receive.receive(
        node.host, world.spec(name), twisted, path, source, body
    )


def _twisted(act: Act | None, twist: Callable[[Any], Any]) -> Act:
    assert act is not None
    return lambda asked: twist(act(asked))


def forged(said: ProbeAnswer, values: dict[str, object]) -> ProbeAnswer:
    """What this keel itself would not say."""
    copy = replace(said)
    for name, value in values.items():
        object.__setattr__(copy, name, value)
    return copy


def refuse(_: object) -> object:
    raise Refused("not-now", "no", "no")


UNPROVEN: dict[str, dict[str, object]] = {
    "an epoch": {"epoch": 2**53 - 1},
    "a CRL number": {"crl_number": 2**53 - 1},
    "an intermediate": {"intermediate": "ab" * 20},
}
OUT_OF_RANGE: dict[str, dict[str, object]] = {
    "an epoch of 64 bits": {"epoch": 2**63},
    "an epoch of a thousand digits": {"epoch": 10**1000},
    "a negative epoch": {"epoch": -1},
    "a CRL number that no CRL has": {"crl_number": 10**60},
    "a holder's epoch": {"holder_epoch": 2**63},
}


@pytest.mark.parametrize("claim", UNPROVEN)
def test_who_claims_more_than_it_can_show_does_not_stop_the_holder(
    world: World, claim: str
) -> None:
    host = world.host("a")
    before = etcdstore.load_book(host).epoch, etcdstore.load_crl(host)
    lies(world, "b", probe=lambda said: replace(said, **UNPROVEN[claim]))
    for _ in range(3):
        world.timers()
    assert etcdstore.load_restored(host) is None
    assert etcdissue.require_signer(host)
    assert (etcdstore.load_book(host).epoch, etcdstore.load_crl(host)) == before
    kept = etcdstore.load_failures(host).entries
    assert [(one.code, one.subject) for one in kept] == [("memory-unproven", "memory")]
    assert kept[0].text.startswith("b ")


@pytest.mark.parametrize("claim", OUT_OF_RANGE)
def test_who_answers_with_a_number_that_is_none_has_not_answered(world: World, claim: str) -> None:
    host = world.host("a")
    lies(world, "b", probe=lambda said: forged(said, OUT_OF_RANGE[claim]))
    found = probe_capable(host, world.loaded("a"))
    assert [one.display for one in found] == ["c"]
    assert etcdstore.load_restored(host) is None


def test_who_claims_more_and_then_says_nothing_stops_the_holder_once_an_hour_at_most(
    world: World,
) -> None:
    """With one more who answers: of two others both have to be heard."""
    host = world.host("a")
    world.node("d")
    world.join("d", world.invite("a"))
    world.settle()
    world.timers()
    world.timers()
    lies(world, "b", probe=lambda said: replace(said, epoch=said.epoch + 1), tell=refuse)
    numbers = []
    for _ in range(8):
        world.timers("a", "c", "d")
        numbers.append(_crl_number(world))
    assert len(set(numbers)) <= 2
    assert etcdstore.load_restored(host) is None
    world.net.clock.sleep(etcdmemory.DOUBTED_SECONDS)
    world.timers("a", "c", "d")
    world.timers("a", "c", "d")
    assert _crl_number(world) <= max(numbers) + 1


def _crl_number(world: World) -> int:
    host = world.host("a")
    return etcdmemory.held_crl_number(host)


def test_only_what_a_node_signed_itself_says_how_long_its_disk_lived(world: World) -> None:
    b = world.loaded("b")
    record = drafts.make_self(
        b.roster,
        b.identity.signing,
        wireguard=b.identity.wireguard.public,
        endpoints=(),
        capability=Capability.ETCD,
        roots=(),
        lived=10**9,
        now=world.net.clock.now(),
    )
    before = etcdlived.highest_lived(world.host("a"))
    lies(world, "b", probe=lambda said: replace(said, newest_of_you=wire.encode(record)))
    assert etcdlived.highest_lived(world.host("a")) == before
    lies(world, "b", probe=lambda said: replace(said, newest_of_you=b"{}"))
    assert etcdlived.highest_lived(world.host("a")) == before
    world.net.nodes["a"].power_off()
    world.boot("a")
    world.timers()
    world.timers()
    assert world.formed("abc")


def test_nobody_speaks_for_the_etcd_of_another(tmp_path: Path) -> None:
    """e waits in line and says that d, a learner that is off, has caught up."""
    world = growing.three_voters(tmp_path)
    world.etcd.catch_up_seconds = 10**6
    for name in "de":
        world.join(name, world.invite("a"))
        world.settle()
    world.timers()
    world.timers()
    assert growing.learners(world) == ["d"]
    (learner,) = [m for m in growing.the_cluster(world).members.values() if m.learner]
    learner.caught_up = True  # 3.5.16 would promote it, dead or not
    growing.off(world, "d")
    voter = etcdown.word(world.host("a"))
    assert voter is not None
    word = replace(voter, member_id=EtcdMemberId(learner.id), learner=True)
    lies(world, "e", probe=lambda said: replace(said, etcd=word))
    for _ in range(4):
        world.timers("a", "b", "c", "e", seconds=5.0)
    assert growing.voters(world) == "abc"


def test_enrolments_in_a_loop_end_and_the_ledger_stays_small(world: World) -> None:
    host, node = world.host("b"), world.loaded("b")
    holder = members.find(node.view, "a")
    reasons = []
    for n in range(MAX_UNEXPIRED + 4):
        key = etcdcert.new_key(Secret(bytes(range(n, n + etcdcert.KEY_ENTROPY_BYTES))))
        request = etcdtaken.enrolment(host, node.mesh, node.identity.signing, key)
        try:
            etcdenrol.ask(host, node, holder, request, node.key)
        except PeerError as error:
            reasons.append(error.reason)
    assert reasons == ["enrolment-too-many"] * 5
    ledger = etcdstore.load_ledger(world.host("a"))
    assert len(granted_to(ledger, node.address, node.key)) == MAX_UNEXPIRED
    number = revoke_b(world)
    assert number == 2
    world.timers()
    assert _crl_number(world) == 2


def revoke_b(world: World) -> int:
    host, subject = world.host("a"), world.loaded("b")
    with store.locked(host, "the mesh"):
        return etcdrevoke.revoke(
            host,
            world.loaded("a"),
            address=subject.address,
            key=subject.key,
            reason=Reason.KEY_COMPROMISE,
        )


def test_who_calls_itself_the_holder_keeps_no_joiner_from_its_grant(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.mesh("ab")
    world.node("x", mode="cloud")
    world.join("x", world.invite("a"))
    world.settle()
    node = world.loaded("b")
    body = HolderRecord(
        mesh=node.mesh,
        ed25519=node.key,
        epoch=2**53 - 1,
        generations=(Generation(number=1, root=Fingerprint("ab" * 32)),),
    )
    envelope = wire.seal(HOLDER, body, node.identity.signing)
    fake = wire.with_signature(envelope, wire.root_key_id(Fingerprint("ab" * 32)), bytes(70))
    with store.locked(world.host("b"), "the mesh"):
        _, merged = store.merge_into(world.host("b"), node, (wire.encode(fake),))
    assert merged.added
    world.timers()
    world.node("c")
    assert holder_of(world.host("x"), world.loaded("x")) == node.key
    world.join("c", world.invite("x"))
    world.settle()
    world.timers()
    assert etcdstore.load_intermediate(world.host("c")) is not None
    assert holder_of(world.host("c"), world.loaded("c")) == world.loaded("a").key


@pytest.mark.parametrize(
    "name", ["record", "cluster.json", "queue.json", "crl.der", "holder", "failures.json"]
)
def test_a_state_file_that_cannot_be_read_is_shown_and_stops_no_look(
    world: World, name: str
) -> None:
    path = world.host("c").paths.etcd / name
    path.write_bytes(b"garbage")
    found = status.look(world.host("c"))
    assert str(path) in json.dumps(found["warnings"])
    assert status.text(found)
    seen = status.look(world.host("a"))["members"]
    assert isinstance(seen, list)
    assert {one["name"]: one["state"] for one in seen}["c"] == "up"
