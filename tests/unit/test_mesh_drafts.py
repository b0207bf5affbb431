"""What a node signs from what its roster shows."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv6Address

import pytest

from keel.errors import Refused
from keel.mesh import drafts, roster, wire
from keel.mesh.drafts import Right
from keel.mesh.identity import mesh_id_of
from keel.mesh.members import view
from keel.mesh.records import Removal, SelfRecord, Vote
from keel.mesh.roster import Roster
from keel.mesh.wire import Envelope
from keel.types import Capability, Endpoint, NodeName
from tests.factories_mesh import Mesh, at, key, nonce, pair, wg

MESH = Mesh()
A, B = MESH.admission("f", "a"), MESH.admission("f", "b")
X = MESH.admission("a", "x")
HELD = MESH.roster(A, B, X)
MUTUAL = [MESH.said("a", roots=["b"]), MESH.said("b", roots=["a"])]


def admit(held: Roster, by: str, who: str) -> Envelope:
    return drafts.make_admission(
        held,
        pair(by),
        name=NodeName(who),
        ed25519=key(who),
        wireguard=wg(who),
        capability=Capability.ETCD,
        now=at(7),
        nonce=nonce("n"),
    )


def say(held: Roster, who: str, *, wireguard: str = "", minutes: float = 7) -> Envelope:
    return drafts.make_self(
        held,
        pair(who),
        wireguard=wg(wireguard or who),
        endpoints=[Endpoint.parse("192.0.2.1:51820")],
        capability=Capability.ETCD,
        roots=[key("b"), key("f")],
        lived=3,
        now=at(minutes),
    )


def remove(held: Roster, by: str, who: str) -> Envelope:
    return drafts.make_removal(held, pair(by), key(who), now=at(8), nonce=nonce("r"))


def vote(held: Roster, by: str, who: str) -> Envelope:
    return drafts.make_vote(held, pair(by), key(who), now=at(8), nonce=nonce("v", by))


def with_records(held: Roster, *made: Envelope) -> Roster:
    merged = roster.merge(held, [wire.encode(one) for one in made])
    assert merged.refused == ()
    return merged.roster


def live(held: Roster) -> str:
    names = {key(name): name for name in "fabcxyz"}
    return "".join(sorted(names[one.key] for one in view(held).members))


def test_a_genesis_founds_a_mesh() -> None:
    made = drafts.make_genesis(
        pair("f"),
        name=NodeName("f"),
        wireguard=wg("f"),
        capability=Capability.ETCD,
        now=at(0),
        nonce=nonce("g"),
        adopted=[(key("a"), IPv6Address("fd00::a"))],
    )
    held = roster.founded(wire.encode(made), mesh_id_of(made))
    assert live(held) == "f"
    assert held.founding.address_of(key("a")) == IPv6Address("fd00::a")


def test_an_admission_makes_a_live_member_at_the_address_of_its_key() -> None:
    held = with_records(HELD, admit(HELD, "b", "c"))
    assert live(held) == "abcfx"
    found = view(held).by_key(key("c"))
    assert found is not None
    assert (found.address, found.admitted_by) == (MESH.address("c"), key("b"))


def test_self_records_count_up_from_the_highest_known() -> None:
    held = MESH.roster(A, MESH.said("a", counter=41))
    body = wire.open_as(SelfRecord, say(held, "a"), "self", key("a"))
    assert (body.counter, body.lived, body.roots) == (42, 3, tuple(sorted([key("b"), key("f")])))
    assert wire.open_as(SelfRecord, say(HELD, "b"), "self", key("b")).counter == 1


def test_a_self_record_says_since_when_the_wireguard_key_is_in_use() -> None:
    first = with_records(HELD, say(HELD, "a", minutes=7))
    kept = wire.open_as(SelfRecord, say(first, "a", minutes=9), "self", key("a"))
    changed = wire.open_as(SelfRecord, say(first, "a", wireguard="a2", minutes=9), "self", key("a"))
    assert (kept.wireguard_since, changed.wireguard_since) == (at(7), at(9))


@pytest.mark.parametrize(
    ("by", "who", "right"),
    [
        pytest.param("a", "a", Right.SUBJECT, id="oneself"),
        pytest.param("a", "x", Right.ADMITTER, id="admitter"),
        pytest.param("a", "b", Right.MUTUAL_ROOTS, id="mutual-roots"),
        pytest.param("x", "b", Right.NONE, id="none"),
        pytest.param("f", "x", Right.NONE, id="the-admitters-admitter"),
        pytest.param("a", "f", Right.NONE, id="of-the-founder"),
    ],
)
def test_who_may_remove_whom(by: str, who: str, right: Right) -> None:
    assert drafts.right_to_remove(MESH.roster(A, B, X, *MUTUAL), key(by), key(who)) is right


@pytest.mark.parametrize(
    ("by", "who", "left"),
    [
        pytest.param("a", "a", "bfx", id="leave"),
        pytest.param("f", "a", "bfx", id="admitter"),
        pytest.param("b", "a", "bfx", id="mutual-roots"),
    ],
)
def test_a_removal_counts_and_leaves_the_subjects_work_standing(
    by: str, who: str, left: str
) -> None:
    held = MESH.roster(A, B, X, *MUTUAL)
    made = remove(held, by, who)
    assert live(with_records(held, made)) == left
    assert wire.open_as(Removal, made, "removal", key(by)).standing == MESH.hashes(X)


def test_removals_by_the_subject_stand_if_they_count() -> None:
    counting, idle = MESH.removal("a", "x"), MESH.removal("a", "b")
    held = MESH.roster(A, B, X, counting, idle)
    made = remove(held, "f", "a")
    standing = wire.open_as(Removal, made, "removal", key("f")).standing
    assert set(standing) == set(MESH.hashes(X, counting))
    assert live(with_records(held, made)) == "bf"


def test_votes_of_more_than_half_remove() -> None:
    held = MESH.roster(A, B, X)
    for name in "bfx":
        assert live(held) == "abfx"
        held = with_records(held, vote(held, name, "a"))
    assert live(held) == "bfx"


def test_a_votes_electorate_are_the_admissions_live_to_its_signer_with_their_chains() -> None:
    left = remove(HELD, "a", "a")
    made = vote(with_records(HELD, left), "f", "x")
    body = wire.open_as(Vote, made, "vote", key("f"))
    genesis = MESH.empty.founding.record
    assert set(body.electorate) == {genesis, *MESH.hashes(A, B, X)}


GONE = MESH.roster(A, B, MESH.removal("f", "a"))


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        pytest.param(lambda: admit(GONE, "a", "c"), "signer-not-live", id="admit-when-removed"),
        pytest.param(lambda: admit(GONE, "f", "a"), "key-removed", id="admit-a-removed-key"),
        pytest.param(lambda: admit(HELD, "a", "a"), "self-admission", id="admit-oneself"),
        pytest.param(lambda: remove(GONE, "a", "b"), "signer-not-live", id="remove-when-removed"),
        pytest.param(lambda: remove(GONE, "f", "a"), "member-unknown", id="remove-twice"),
        pytest.param(lambda: remove(HELD, "b", "a"), "removal-needs-votes", id="without-a-right"),
        pytest.param(lambda: vote(GONE, "a", "b"), "signer-not-live", id="vote-when-removed"),
        pytest.param(lambda: vote(GONE, "b", "z"), "member-unknown", id="vote-on-a-stranger"),
    ],
)
def test_what_nobody_would_heed_is_not_signed(make: Callable[[], Envelope], rule: str) -> None:
    with pytest.raises(Refused) as refused:
        make()
    assert refused.value.rule == rule
    assert refused.value.remedy()
