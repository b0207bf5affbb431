"""Revocation: who is obeyed, what the CRL comes to, and what waits for the holder (E5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from keel.errors import Exit, KeelError, PeerError, Refused
from keel.mesh import drafts, etcdcrl, etcdrevoke, etcdstore, keys, store, talk, trust, wire
from keel.mesh.duty import Duty, Result
from keel.mesh.etcdcrl import Reason
from keel.mesh.etcdgrants import Event, granted_to, live_grant
from keel.mesh.etcdmsg import KIND_REVOCATION, Revocation, Revoke, RevokeAnswer
from keel.mesh.etcdstate import Wanted
from keel.mesh.records import CRL, CrlRecord
from keel.mesh.store import Node
from keel.types import MeshId, Nonce
from keel.unitnames import SYNC_UNIT, TEND_UNIT
from tests.flow.arranged import arranged
from tests.flow.held import crl
from tests.flow.world import World

NONCE = Nonce("ab" * 16)


@arranged
def four_granted(scratch: Path) -> World:
    """a founded and holds the root; b and c were let in by a, d by b; all were granted."""
    made = World(scratch)
    for name in "abcd":
        made.node(name)
    made.create("a")
    for name, inviter in (("b", "a"), ("c", "a"), ("d", "b")):
        made.join(name, made.invite(inviter))
        made.settle()
    made.rest("a", "b", "c")
    made.timers()
    assert granted(made, "d")
    return made


@pytest.fixture
def world(tmp_path: Path) -> World:
    return four_granted(tmp_path)


def granted(world: World, name: str) -> bool:
    node = world.loaded(name)
    ledger = etcdstore.load_ledger(world.host("a"))
    return live_grant(ledger, node.address, node.key) is not None


def chain(world: World, name: str) -> bool:
    """Whether the holder's CRL revokes the node's intermediate."""
    found = etcdstore.load_intermediate(world.host(name))
    assert found is not None
    return crl(world).revokes(found[1].certificate)


def revoke(world: World, name: str) -> int:
    host, node = world.host("a"), world.loaded("a")
    subject = world.loaded(name)
    with store.locked(host, "the mesh"):
        return etcdrevoke.revoke(
            host, node, address=subject.address, key=subject.key, reason=Reason.KEY_COMPROMISE
        )


def remove(world: World, by: str, name: str) -> None:
    """The record alone, on `by`: the window and what follows are not this test's."""
    host, node, subject = world.host(by), world.loaded(by), world.loaded(name)
    removal = drafts.make_removal(
        node.roster, node.identity.signing, subject.key, now=host.clock.now(), nonce=NONCE
    )
    with store.locked(host, "the mesh"):
        store.merge_into(host, node, (wire.encode(removal),))


def duty(world: World, name: str) -> Duty:
    return etcdrevoke.duty(world.host(name), world.loaded(name))


# --- the holder's ledger and CRL


def test_every_intermediate_ever_granted_is_revoked_under_the_next_number(world: World) -> None:
    host = world.host("a")
    subject = world.loaded("c")
    (first,) = granted_to(etcdstore.load_ledger(host), subject.address, subject.key)
    old = replace(first, serial="0" * 39 + "1", time=first.time - timedelta(days=200))
    etcdstore.append_grant(host, old)
    assert revoke(world, "c") == 2
    assert {one.serial for one in crl(world).revoked} == {first.serial, old.serial}
    assert {one.reason for one in crl(world).revoked} == {Reason.KEY_COMPROMISE}
    assert not granted(world, "c")
    assert chain(world, "c")
    assert not chain(world, "b")


def test_what_has_ended_long_ago_by_a_time_that_was_vouched_for_is_left_out(world: World) -> None:
    host, node, subject = world.host("a"), world.loaded("a"), world.loaded("c")
    (first,) = granted_to(etcdstore.load_ledger(host), subject.address, subject.key)
    now = host.clock.now()
    past = replace(first, serial="0" * 39 + "1", not_after=now - timedelta(days=31))
    late = replace(first, serial="0" * 39 + "2", not_after=now - timedelta(days=29))
    for one in (past, late):
        etcdstore.append_grant(host, one)
    host.paths.clock.unlink(missing_ok=True)
    assert revoke(world, "c") == 2
    assert {one.serial for one in crl(world).revoked} == {first.serial, past.serial, late.serial}
    talk.save_highest_time(host, now)
    with store.locked(host, "the mesh"):
        assert etcdrevoke.publish(host, node) == 2
        assert etcdrevoke.issue(host, node) == 3
        assert etcdrevoke.publish(host, node) == 3
    assert {one.serial for one in crl(world).revoked} == {first.serial, late.serial}


def test_revoked_twice_it_is_one_line_and_one_number(world: World) -> None:
    assert [revoke(world, "c"), revoke(world, "c")] == [2, 2]
    lines = etcdstore.load_ledger(world.host("a")).lines
    assert [one.event for one in lines].count(Event.REVOKED) == 1


def test_the_next_crl_loses_no_serial_though_the_ledger_did(world: World) -> None:
    host = world.host("a")
    before = host.paths.grants.read_bytes()
    revoke(world, "c")
    first = crl(world).revoked
    host.paths.grants.write_bytes(before)
    assert etcdrevoke.issue(host, world.loaded("a")) == 3
    assert first
    assert crl(world).revoked == first


def test_nothing_granted_is_nothing_revoked(world: World) -> None:
    host, node = world.host("a"), world.loaded("a")
    stranger = keys.signing_pair(node.identity.signing.seed).public[::-1]
    number = etcdrevoke.revoke(
        host, node, address=node.address, key=stranger, reason=Reason.CESSATION
    )
    assert number == 1
    assert crl(world).revoked == ()


def test_what_was_superseded_goes_alone_and_once(world: World) -> None:
    host, node, subject = world.host("a"), world.loaded("a"), world.loaded("c")
    (first,) = granted_to(etcdstore.load_ledger(host), subject.address, subject.key)
    newer = replace(first, serial="0" * 39 + "2")
    etcdstore.append_grant(host, newer)
    assert first.serial is not None
    for _ in range(2):
        number = etcdrevoke.supersede(
            host, node, address=subject.address, key=subject.key, serial=first.serial
        )
        assert number == 2
    assert [(one.serial, one.reason) for one in crl(world).revoked] == [
        (first.serial, Reason.SUPERSEDED)
    ]
    assert granted(world, "c")


def test_a_kill_between_the_line_and_the_crl_is_made_good_by_the_duty(world: World) -> None:
    before = etcdstore.load_crl(world.host("a"))
    revoke(world, "c")
    etcdstore.save_crl(world.host("a"), before or b"")
    world.net.nodes["a"].overlay.lay({})
    assert duty(world, "a").result is Result.DONE
    assert crl(world).number == 2
    assert chain(world, "c")


@pytest.mark.parametrize("damage", [None, b"", b"-----BEGIN X509 CRL"], ids=str)
def test_a_crl_that_went_is_put_back_and_never_under_a_lower_number(
    world: World, damage: bytes | None
) -> None:
    revoke(world, "c")
    world.tend("a")
    path = world.host("a").paths.etcd_crl
    path.unlink() if damage is None else path.write_bytes(damage)
    assert duty(world, "a").result is Result.NOTHING
    assert crl(world).number == 2
    assert chain(world, "c")


def test_the_roster_s_copy_counts_when_it_is_newer_and_the_root_s_own(world: World) -> None:
    host = world.host("a")
    found = etcdstore.load_authority(host)
    assert found is not None
    node = world.loaded("a")
    newer = etcdcrl.new_crl(found[1], (), number=7, now=host.clock.now())
    body = CrlRecord(mesh=node.mesh, ed25519=node.key, generation=1, number=7, der=newer)
    with store.locked(host, "the mesh"):
        node, merged = store.merge_into(
            host, node, (wire.encode(wire.seal(CRL, body, node.identity.signing)),)
        )
    assert merged.added
    known = etcdrevoke.newest_known(host, node)
    assert known is not None
    assert known.number == 7
    with store.locked(host, "the mesh"):
        assert etcdrevoke.issue(host, node) == 8
        assert etcdrevoke.issue(host, node, above=20) == 21


def test_with_no_crl_left_a_new_one_has_all_that_the_ledger_revoked(world: World) -> None:
    revoke(world, "c")
    host = world.host("a")
    host.paths.etcd_crl.unlink()
    world.net.nodes["a"].overlay.lay({})
    with store.locked(host, "the mesh"):
        assert etcdrevoke.publish(host, world.loaded("a")) == 1
    assert chain(world, "c")


# --- who may ask


def envelope(world: World, by: str, of: str, *, signer: str | None = None, **over: object) -> bytes:
    """A request that names `by`; signed by it, or by another."""
    node, subject = world.loaded(by), world.loaded(of)
    body = replace(
        Revocation(
            mesh=node.mesh,
            address=subject.address,
            ed25519=subject.key,
            by=node.key,
            reason=Reason.CESSATION,
            time=world.net.clock.now(),
            nonce=NONCE,
        ),
        **over,  # type: ignore[arg-type]
    )
    pair = world.loaded(signer or by).identity.signing
    return wire.encode(wire.seal(KIND_REVOCATION, body, pair))


def ask(world: World, sender: str, revocation: bytes, *records: bytes, at: str = "a") -> int:
    node = world.loaded(sender)
    member = node.view.by_key(world.loaded(at).key)
    assert member is not None
    body = Revoke(revocation=revocation, records=records)
    return talk.ask(
        world.host(sender),
        node,
        member,
        etcdrevoke.REVOKE,
        body,
        RevokeAnswer,
        path="/v1/etcd",
    ).body.crl_number


@pytest.mark.parametrize(
    ("by", "of"),
    [
        pytest.param("c", "c", id="the node itself"),
        pytest.param("b", "d", id="its admitter"),
        pytest.param("a", "d", id="the holder itself, which roots count with"),
    ],
)
def test_those_who_may_ask_are_obeyed(world: World, by: str, of: str) -> None:
    assert ask(world, "b", envelope(world, by, of)) == 2
    assert chain(world, of)


def test_a_trust_root_of_the_holder_is_obeyed(world: World) -> None:
    world.trust("a", "c")
    assert ask(world, "c", envelope(world, "c", "d")) == 2
    assert chain(world, "d")


def _once_more_admitted(world: World) -> bytes:
    """c admits d, which b admitted, and asks as its admitter."""
    host, node, subject = world.host("c"), world.loaded("c"), world.loaded("d")
    admission = drafts.make_admission(
        node.roster,
        node.identity.signing,
        name=next(m.name for m in node.view.members if m.key == subject.key),
        ed25519=subject.key,
        wireguard=subject.identity.wireguard.public,
        capability=next(m.capability for m in node.view.members if m.key == subject.key),
        now=host.clock.now(),
        nonce=NONCE,
    )
    with store.locked(host, "the mesh"):
        store.merge_into(host, node, (wire.encode(admission),))
    world.sync("c")
    world.settle()
    return envelope(world, "c", "d")


def _blocked_root(world: World) -> bytes:
    world.trust("a", "c")
    host, node = world.host("a"), world.loaded("a")
    blocked = trust.with_block(node.trust, world.loaded("c").key, why="", now=host.clock.now())
    store.save_trust(host, blocked)
    return envelope(world, "c", "d")


def _removed_root(world: World) -> bytes:
    world.trust("a", "c")
    raw = envelope(world, "c", "b")
    remove(world, "a", "c")
    return raw


def _stale(world: World) -> bytes:
    raw = envelope(world, "c", "c")
    host, subject = world.host("a"), world.loaded("c")
    (first,) = granted_to(etcdstore.load_ledger(host), subject.address, subject.key)
    later = world.net.clock.now() + timedelta(seconds=301)
    etcdstore.append_grant(host, replace(first, time=later))
    return raw


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        pytest.param(lambda world: b"\xff", "revocation-malformed", id="no envelope"),
        pytest.param(
            lambda world: envelope(world, "c", "c", signer="d"),
            "revocation-signature",
            id="signed by another than it names",
        ),
        pytest.param(
            lambda world: envelope(world, "c", "c", mesh=MeshId("00" * 16)),
            "revocation-other-mesh",
            id="another mesh",
        ),
        pytest.param(
            lambda world: envelope(world, "c", "b"), "revocation-not-yours", id="another member's"
        ),
        pytest.param(_once_more_admitted, "revocation-not-yours", id="a second admitter's"),
        pytest.param(_blocked_root, "revocation-not-yours", id="a blocked root's"),
        pytest.param(_removed_root, "revocation-not-yours", id="a removed root's"),
        pytest.param(
            lambda world: envelope(world, "c", "c", address=world.loaded("b").address),
            "revocation-unknown",
            id="nothing granted to that pair",
        ),
        pytest.param(_stale, "revocation-old", id="granted anew since"),
    ],
)
def test_a_request_is_refused_by_its_own_reason(
    world: World, make: Callable[[World], bytes], rule: str
) -> None:
    raw = make(world)
    before = (crl(world), etcdstore.load_ledger(world.host("a")))
    with pytest.raises(PeerError) as caught:
        ask(world, "b", raw)
    assert caught.value.reason == rule
    assert (crl(world), etcdstore.load_ledger(world.host("a"))) == before


def test_a_request_of_the_last_second_that_there_is_is_one_like_any_other(world: World) -> None:
    end = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert ask(world, "b", envelope(world, "c", "c", time=end)) == crl(world).number


def test_only_the_holder_revokes(world: World) -> None:
    with pytest.raises(PeerError) as caught:
        ask(world, "c", envelope(world, "c", "c"), at="b")
    assert caught.value.reason == "not-the-holder"
    with pytest.raises(Refused) as refused:
        etcdrevoke.issue(world.host("b"), world.loaded("b"))
    assert (refused.value.rule, refused.value.exit) == ("not-the-holder", Exit.REFUSED)


# --- a removal is the request


def test_a_removal_that_counts_is_obeyed_by_the_holder_s_tend(world: World) -> None:
    remove(world, "b", "d")
    world.sync("b")
    assert not chain(world, "d")
    found = duty(world, "a")
    assert (found.result, found.text) == (Result.DONE, "CRL 2 revokes who was removed")
    assert chain(world, "d")
    assert duty(world, "a").result is Result.NOTHING


def test_whoever_brings_the_removal_is_obeyed_whatever_its_right(world: World) -> None:
    subject = world.loaded("d")
    raw = envelope(world, "c", "d")
    remove(world, "b", "d")
    world.net.cut("a", "b")
    node = world.loaded("b")
    records = [node.roster.entries[one].raw for one in node.view.removed[subject.key]]
    holder = world.net.nodes["a"]
    holder.effects.done.clear()
    assert ask(world, "c", raw, *records) == 2
    assert {f"start {SYNC_UNIT}", f"start {TEND_UNIT}"} <= set(holder.effects.done)
    assert subject.key in world.loaded("a").view.removed
    assert chain(world, "d")


def test_the_pass_that_revokes_lays_and_tells_it_as_well(world: World) -> None:
    remove(world, "b", "d")
    world.sync("b")
    world.kicks.clear()
    world.tend("a")
    found = crl(world, "a")
    assert chain(world, "d")
    told = [one.body for one in world.loaded("a").roster.entries.values() if one.kind == CRL]
    assert [one.der for one in told if isinstance(one, CrlRecord)] == [found.der]
    laid = world.host("a").overlay.laid("crl.der")
    assert laid is not None
    assert laid.reveal() == found.der


def test_with_a_wrong_clock_nobody_is_revoked(world: World) -> None:
    remove(world, "b", "d")
    world.sync("b")
    world.net.nodes["a"].clock.wrong_by = timedelta(seconds=600)
    world.sync("a")
    found = duty(world, "a")
    assert (found.result, found.waiting[0].waiting_for) == (Result.WAITING, "the clock")
    assert not chain(world, "d")


# --- the holder away


def request(world: World, by: str, of: str) -> None:
    host, node, subject = world.host(by), world.loaded(by), world.loaded(of)
    with store.locked(host, "the mesh"):
        etcdrevoke.request(
            host, node, address=subject.address, key=subject.key, reason=Reason.CESSATION
        )


def queued(world: World, name: str) -> list[tuple[Wanted, int]]:
    entries = etcdstore.load_queue(world.host(name)).entries
    return [(one.what, one.attempts) for one in entries]


def test_what_the_holder_can_t_be_asked_now_is_asked_again(world: World) -> None:
    remove(world, "b", "d")
    request(world, "b", "d")
    world.net.cut("a", "b")
    found = duty(world, "b")
    assert found.result is Result.WAITING
    assert found.waiting[0].waiting_for == "a"
    assert queued(world, "b") == [(Wanted.REVOKE, 1)]
    world.net.heal()
    found = duty(world, "b")
    assert (found.result, found.text) == (Result.DONE, "the holder's CRL 2 says so")
    assert queued(world, "b") == []
    assert chain(world, "d")
    assert duty(world, "b").result is Result.NOTHING


def test_an_answer_that_is_lost_is_asked_for_again_and_comes_to_the_same(world: World) -> None:
    request(world, "b", "d")
    world.net.lose("reply", source="b", path="/v1/etcd", count=1)
    assert duty(world, "b").result is Result.WAITING
    assert duty(world, "b").result is Result.DONE
    assert crl(world).number == 2


def test_a_request_that_is_refused_for_good_is_told_and_not_kept(world: World) -> None:
    request(world, "c", "d")
    with pytest.raises(KeelError, match="only the node itself"):
        duty(world, "c")
    assert queued(world, "c") == []


def test_without_a_holder_the_request_waits(world: World) -> None:
    request(world, "b", "d")
    node = world.loaded("b")
    holder = world.loaded("a").key
    view = replace(node.view, members=tuple(one for one in node.view.members if one.key != holder))
    orphan: Node = replace(node, view=view)
    found = etcdrevoke.duty(world.host("b"), orphan)
    assert found.waiting[0].waiting_for == "the holder"
    assert queued(world, "b") == [(Wanted.REVOKE, 0)]
