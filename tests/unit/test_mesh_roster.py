"""Merging rosters: rules R1 to R5 and the bounds."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache

import pytest

from keel.errors import Refused
from keel.mesh import roster, wire
from keel.mesh.branches import LEVELS, MAX_KIND_BYTES, heads
from keel.mesh.members import view
from keel.mesh.records import MAX_CRL_BYTES, MAX_LISTED, Vote
from keel.mesh.roster import BOUNDS, MAX_BATCH, MAX_ORPHANS, MAX_PER_PAIR, UNKNOWN
from keel.types import RecordHash
from tests.factories_mesh import Mesh, at, genesis, key, nonce, respelled, seal, spoilt

MESH = Mesh()
A, B = MESH.admission("f", "a"), MESH.admission("f", "b")
X = MESH.admission("a", "x")
ALL = (A, B, X, MESH.said("a"), MESH.said("b"))


def kept(found: roster.Roster, kind: str) -> set[bytes]:
    return {one.raw for one in found.entries.values() if one.kind == kind}


def test_nothing_goes_by_absence() -> None:
    held = MESH.roster(*ALL)
    for sent in ([], [A], [A, MESH.said("a")]):
        merged = roster.merge(held, sent)
        assert (merged.roster, merged.added, merged.dropped) == (held, (), ())


FOREIGN = Mesh(genesis("g"))


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param([], id="empty"),
        pytest.param([A], id="short"),
        pytest.param([MESH.said("a", counter=1)], id="older"),
        pytest.param([FOREIGN.genesis_raw, FOREIGN.admission("g", "z")], id="foreign"),
        pytest.param([FOREIGN.removal("g", "a")], id="foreign-removal"),
        pytest.param([spoilt(MESH.removal("f", "a"))], id="forged-removal"),
        pytest.param([seal("removal", MESH.removal_body("f", "a"), "x")], id="wrongly-signed"),
        pytest.param([MESH.removal("z", "a")], id="removal-by-a-stranger"),
        pytest.param([MESH.removal("x", "a")], id="removal-without-a-right"),
        pytest.param([b"", b"{}", b"\xff"], id="garbage"),
    ],
)
def test_no_such_answer_removes_anybody_or_anything(sent: list[bytes]) -> None:
    held = MESH.roster(*ALL, MESH.said("a", counter=2))
    after = roster.merge(held, sent).roster
    assert view(after) == view(held)
    assert set(held.raws.values()) <= set(after.raws.values())


def test_each_flaw_is_named_and_the_others_are_taken() -> None:
    merged = roster.merge(
        MESH.empty, [b"", spoilt(A), FOREIGN.admission("g", "z"), B, MESH.genesis_raw]
    )
    assert [one.rule for one in merged.refused] == ["bad-value", "bad-signature", "foreign-mesh"]
    assert merged.added == MESH.hashes(B)


def test_the_received_bytes_are_kept() -> None:
    assert MESH.roster(A).raws == {MESH.hashes(A)[0]: A}


def test_what_is_known_is_not_read_again() -> None:
    held = MESH.roster(A)
    assert roster.merge(held, [A, MESH.genesis_raw]).roster is held


def test_one_record_in_two_envelopes_is_kept_once() -> None:
    """What is signed names a record: here the same two signatures stand in the other order."""
    made = MESH.succession("a", "z")
    envelope = respelled(made)
    turned = wire.encode(replace(envelope, signatures=envelope.signatures[::-1]))
    held = MESH.roster(A, made)
    assert roster.merge(held, [turned]).roster is held


def test_the_genesis_is_pinned_by_the_mesh_id() -> None:
    assert roster.founded(MESH.genesis_raw, MESH.id) == MESH.empty
    with pytest.raises(Refused) as refused:
        roster.founded(FOREIGN.genesis_raw, MESH.id)
    assert refused.value.rule == "foreign-genesis"


def test_records_that_come_before_their_admission_wait_and_then_count() -> None:
    said = MESH.said("x")
    held = MESH.roster(said, X)
    assert (held.entries, len(held.orphans)) == ({}, 2)
    assert roster.missing(held, ()) == ()
    merged = roster.merge(held, [A])
    assert set(merged.added) == set(MESH.hashes(A, X, said))
    assert merged.roster.orphans == {}


def test_orphans_count_neither_in_the_digest_nor_on_the_way_out() -> None:
    with_orphan = MESH.roster(A, MESH.said("x"))
    assert roster.digest(with_orphan) == roster.digest(MESH.roster(A))
    assert roster.offered(with_orphan) == MESH.hashes(A)
    assert len(with_orphan.raws) == 2


def test_orphans_are_few() -> None:
    strangers = [MESH.said("z", counter=n) for n in range(MAX_ORPHANS + 4)]
    forward, backward = MESH.roster(*strangers), MESH.roster(*reversed(strangers))
    assert len(forward.orphans) == MAX_ORPHANS
    assert forward == backward


def test_of_a_members_self_records_the_highest_counter_stays() -> None:
    held = MESH.roster(A, *(MESH.said("a", counter=n) for n in (2, 3, 1)))
    assert kept(held, "self") == {MESH.said("a", counter=3)}


def test_a_superseded_record_is_reported_as_dropped() -> None:
    merged = roster.merge(MESH.roster(A, MESH.said("a")), [MESH.said("a", counter=2)])
    assert merged.dropped == MESH.hashes(MESH.said("a"))
    assert merged.added == MESH.hashes(MESH.said("a", counter=2))


def test_two_self_records_of_one_counter_are_both_kept_as_proof_and_no_more() -> None:
    clones = [MESH.said("a", roots=[name]) for name in "bcdx"]
    lowest = sorted(clones, key=lambda raw: MESH.hashes(raw))[:2]
    assert kept(MESH.roster(A, *clones), "self") == set(lowest)


def test_of_lists_and_statements_the_newest_stay() -> None:
    crls = [MESH.crl("a", number=n) for n in range(6)]
    holders = [MESH.holder("a", epoch=n) for n in range(6)]
    held = MESH.roster(A, *crls, *holders)
    assert (kept(held, "crl"), kept(held, "holder")) == (set(crls[2:]), set(holders[2:]))


def test_a_newer_generation_goes_before_a_higher_number() -> None:
    old = [MESH.crl("a", number=100 + n) for n in range(6)]
    new = MESH.crl("a", generation=2, number=1)
    assert new in kept(MESH.roster(A, *old, new), "crl")


def unknown(who: str, n: int) -> bytes:
    return seal("new", MESH.removal_body(who, "x", n=n), who)


def test_unknown_kinds_are_passed_on_unread() -> None:
    held = MESH.roster(A, unknown("a", 0))
    assert unknown("a", 0) in roster.missing(held, ())
    assert view(held) == view(MESH.roster(A))


def test_a_copy_of_an_unknown_kind_with_a_spoilt_root_signature_keeps_no_good_one_out() -> None:
    good = respelled(unknown("a", 0))
    copies = [
        wire.encode(wire.with_signature(good, "root:" + "ab" * 32, value)) for value in (b"0", b"1")
    ]
    assert kept(MESH.roster(A, *copies), "new") == set(copies)


@pytest.mark.parametrize(
    ("made", "limit"),
    [
        pytest.param(
            [unknown("a", n) for n in range(UNKNOWN.per_signer + 3)],
            UNKNOWN.per_signer,
            id="unknown-of-one-signer",
        ),
        pytest.param(
            [MESH.succession("a", f"n{n}") for n in range(8)],
            BOUNDS["succession"].per_signer,
            id="successions-of-one-signer",
        ),
        pytest.param(
            [MESH.removal("a", "x", n=n) for n in range(MAX_PER_PAIR + 2)],
            MAX_PER_PAIR,
            id="removals-of-one-subject-by-one-signer",
        ),
        pytest.param(
            [MESH.removal("a", f"n{n}") for n in range(BOUNDS["removal"].per_signer + 2)],
            BOUNDS["removal"].per_signer,
            id="removals-of-one-signer",
        ),
    ],
)
def test_one_signer_adds_only_so_many_whatever_the_order(made: list[bytes], limit: int) -> None:
    forward, backward = MESH.roster(A, *made), MESH.roster(*reversed(made), A)
    assert len(forward.entries) == limit + 1
    assert forward == backward
    assert roster.merge(forward, made).roster == forward


def test_one_signer_admits_only_so_many() -> None:
    limit = BOUNDS["admission"].per_signer
    many = [MESH.admission("a", "x", n=n) for n in range(limit + 5)]
    held = MESH.roster(A, *many)
    assert len(held.entries) == limit + 1
    assert roster.merge(held, many).roster == held


def test_what_hangs_on_an_admission_that_is_not_kept_waits() -> None:
    limit = BOUNDS["admission"].per_signer
    many = sorted(
        (MESH.admission("a", f"n{n}") for n in range(limit + 1)), key=lambda raw: MESH.hashes(raw)
    )
    last = MESH.entry(many[-1])
    name = getattr(last.body, "name", "")
    child = MESH.admission(name, "y")
    held = MESH.roster(A, *many, child)
    assert last.record not in held.entries
    assert MESH.hashes(child)[0] in held.orphans


def test_one_kind_weighs_only_so_much() -> None:
    """48 KiB of DER each, 64 KiB as sent: not all of 64 signers' fit."""
    names = [f"n{n}" for n in range(BOUNDS["crl"].total)]
    admitted = [MESH.admission("f", name) for name in names]
    body = MESH.crl_body("f")
    large = [
        seal("crl", replace(body, ed25519=key(name), number=n, der=bytes(MAX_CRL_BYTES)), name)
        for name in names
        for n in range(3)
    ]
    held = MESH.roster(*admitted, *large)
    size = sum(len(raw) for raw in kept(held, "crl"))
    assert MAX_KIND_BYTES - 100_000 < size <= MAX_KIND_BYTES


def _fillers(kind: str) -> list[bytes]:
    """More than a bound takes of what b alone can sign, each as heavy as it may be."""
    hashes = tuple(RecordHash(f"{n:064x}") for n in range(MAX_LISTED))
    if kind == "removal":
        bodies: list[object] = [
            replace(MESH.removal_body("b", f"n{n}"), standing=hashes) for n in range(60)
        ]
    else:
        vote = Vote(
            mesh=MESH.id,
            subject=key("n"),
            standing=(),
            electorate=hashes,
            voter=key("b"),
            time=at(1),
            nonce=nonce("vote"),
        )
        bodies = [replace(vote, subject=key(f"n{n}")) for n in range(60)]
    made = [seal(kind, body, "b") for body in bodies]
    assert sum(map(len, made)) > MAX_KIND_BYTES
    return made


Y = MESH.admission("x", "y")
BY_ADMITTER = MESH.removal("x", "y")
BY_VOTES = tuple(MESH.vote(by, "y", [A, B, X, Y]) for by in "fax")


@pytest.mark.parametrize(
    ("kind", "evidence"),
    [
        pytest.param("removal", (BY_ADMITTER,), id="removals, and a removal"),
        pytest.param("vote", BY_VOTES, id="votes, and votes that suffice"),
    ],
)
def test_who_was_removed_stays_so_however_much_a_nearer_member_signs(
    kind: str, evidence: tuple[bytes, ...]
) -> None:
    held = MESH.roster(A, B, X, Y, *evidence)
    assert key("y") in view(held).removed
    flooded = roster.merge(held, _fillers(kind)).roster
    assert key("y") in view(flooded).removed
    again = MESH.roster(A, B, X, Y, *_fillers(kind), *evidence)
    assert roster.digest(again) == roster.digest(flooded)


PUPPETS = tuple(f"p{n}" for n in range(24))
IN = tuple(MESH.admission("a", who) for who in PUPPETS)
"""a's puppets: as near to the founder as x, whom b admitted."""
BX = MESH.admission("b", "x")
XY = MESH.admission("x", "y")


def last(*raws: bytes) -> bytes:
    """Whom a bound would take last of its equals."""
    return max(raws, key=lambda raw: MESH.hashes(raw))


@cache
def flood() -> tuple[bytes, ...]:
    """More removals, and votes, than their bounds take, a few by each puppet."""
    each = BOUNDS["removal"].total // len(PUPPETS) + 2
    return tuple(
        made
        for who in PUPPETS
        for n in range(each)
        for made in (MESH.removal(who, f"n{n}"), MESH.vote(who, f"n{n}", [A]))
    )


LATE = last(*(MESH.removal("x", "y", n=n) for n in range(40)))
LATE_VOTES = tuple(
    last(*(MESH.vote(by, "y", [A, B, BX, XY], n=n) for n in range(40))) for by in "fbx"
)


@pytest.mark.parametrize("evidence", [(LATE,), LATE_VOTES], ids=["removals", "votes"])
@pytest.mark.parametrize(
    "drawn_in",
    [(), tuple(MESH.admission(who, "y") for who in PUPPETS[:3]), (MESH.admission("a", "x"),)],
    ids=["alone", "subject admitted by puppets", "signer admitted by their maker"],
)
def test_who_was_removed_stays_so_however_many_puppets_another_admits(
    evidence: tuple[bytes, ...], drawn_in: tuple[bytes, ...]
) -> None:
    ground = (A, B, BX, XY, *IN, *drawn_in)
    held = MESH.roster(*ground, *evidence)
    kept_before = {MESH.hashes(raw)[0] for raw in evidence}
    flooded = roster.merge(held, flood()).roster
    assert kept_before <= flooded.entries.keys()
    sent = [*flood(), *evidence]
    for seed in range(3):
        random.Random(seed).shuffle(sent)
        again = MESH.roster(*ground)
        for at_once in (sent[:300], sent[300:700], sent[700:]):
            again = roster.merge(again, at_once).roster
        assert roster.digest(again) == roster.digest(flooded)


def test_nobodys_members_are_pushed_out_by_puppets_however_far_they_are() -> None:
    """z is four admissions away from the founder, and the puppets' own are two and three."""
    honest = (A, B, BX, XY, MESH.admission("y", "z"))
    first = [MESH.admission("a", f"q{n}") for n in range(BOUNDS["admission"].per_signer)]
    more = [MESH.admission(f"q{n % 9}", f"r{n}") for n in range(BOUNDS["admission"].total)]
    flooded = roster.merge(MESH.roster(*honest), [*first, *more]).roster
    assert set(MESH.hashes(*honest)) <= flooded.entries.keys()
    assert len(kept(flooded, "admission")) == BOUNDS["admission"].total
    assert flooded.orphans == {}
    again = MESH.empty
    for sent in (honest[:1], first[:200], more[500:], honest, more[:500], first[200:]):
        again = roster.merge(again, sent).roster
    assert roster.digest(again) == roster.digest(flooded)


def test_branches_deep_down_are_told_apart_by_those_above_them() -> None:
    def chain(first: str) -> list[bytes]:
        way = [f"{first}{n}" for n in range(LEVELS + 2)]
        links = zip(["f", *way], way, strict=False)
        return [MESH.admission(by, who) for by, who in links]

    deep = chain("good"), chain("bad")
    puppets = [MESH.admission(f"bad{LEVELS}", who) for who in PUPPETS]
    evidence = last(*(MESH.removal(f"good{LEVELS + 1}", "n", n=n) for n in range(40)))
    ground = (*deep[0], *deep[1], *puppets)
    flooded = roster.merge(MESH.roster(*ground, evidence), flood()).roster
    assert MESH.hashes(evidence)[0] in flooded.entries


def test_a_member_is_in_through_whom_the_founder_or_the_holder_admitted() -> None:
    """b is the holder; y has two equally short ways in."""
    links = [("f", "a"), ("f", "b"), ("a", "x"), ("b", "p"), ("x", "z"), ("p", "z"), ("a", "p")]
    links += [("z", "a"), ("p", "x")]  # no shorter ways
    held = MESH.roster(*(MESH.admission(by, who) for by, who in links), BX)
    admissions = list(held.entries.values())
    found = heads(held.distance, admissions, beneath=(key("f"), key("b")))
    assert found == {
        **{key(one): frozenset((key(one),)) for one in "abxp"},
        key("z"): frozenset((key("x"), key("p"))),
    }
    alone = heads(held.distance, admissions, beneath=(key("a"),))
    assert alone[key("z")] == frozenset((key("x"), key("p")))
    assert alone[key("b")] == frozenset()


def test_a_batch_has_an_end() -> None:
    garbage = [b"%d" % n for n in range(MAX_BATCH + 5)]
    merged = roster.merge(MESH.empty, [*garbage, A])
    assert merged.refused[-1].rule == "batch-too-large"
    assert (len(merged.refused), merged.added) == (MAX_BATCH + 1, ())


def test_what_is_sent_first_is_of_use_by_itself() -> None:
    held = MESH.roster(*ALL, MESH.removal("a", "x"), MESH.vote("b", "x", [A, B, X]))
    sent = roster.missing(held, ())
    for count in range(len(sent) + 1):
        assert roster.merge(MESH.empty, sent[:count]).roster.orphans == {}
    assert [wire.kind_of(respelled(raw)) for raw in sent] == [
        *["admission"] * 3,
        "removal",
        *["self"] * 2,
        "vote",
    ]


def test_only_what_the_other_lacks_is_sent() -> None:
    held = MESH.roster(*ALL)
    theirs = roster.offered(MESH.roster(A, B))
    assert set(roster.missing(held, theirs)) == set(ALL) - {A, B}


def test_the_digest_tells_meshes_and_rosters_apart() -> None:
    digests = {
        roster.digest(one) for one in (MESH.empty, FOREIGN.empty, MESH.roster(A), MESH.roster(*ALL))
    }
    assert len(digests) == 4
    assert roster.digest(MESH.roster(*ALL)) == roster.digest(MESH.roster(*reversed(ALL)))
