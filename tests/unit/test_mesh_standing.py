"""Who is in and who is out: one named case per rule S1 to S6 and V1 to V4."""

from __future__ import annotations

import pytest

from keel.errors import Internal
from keel.mesh import roster, votes
from keel.mesh.members import chain, view
from keel.mesh.standing import admission_in, judge
from tests.factories_mesh import Mesh, key

MESH = Mesh()
A, B, C, D = (MESH.admission("f", name) for name in "abcd")
X = MESH.admission("a", "x")
Y = MESH.admission("x", "y")
NAMES = {key(name): name for name in "fabcdxyzs"}


def live(*raws: bytes) -> str:
    """The names of the live members, in order."""
    return "".join(sorted(NAMES[one.key] for one in view(MESH.roster(*raws)).members))


def lower_hash(first: bytes, second: bytes) -> tuple[bytes, bytes]:
    """The two, the one with the lower hash first."""
    lower, upper = sorted((first, second), key=lambda raw: MESH.hashes(raw))
    return lower, upper


A_REMOVES_X = MESH.removal("a", "x")
BY_F = MESH.removal("f", "a")
FARTHER = [B, *(MESH.admission(*pair) for pair in ("bc", "cd", "dy"))]
"""Another way to y, longer than that through a and x."""
A_AND_B = MESH.removal("a", "b", mutual=True), MESH.removal("b", "a", mutual=True)


@pytest.mark.parametrize(
    ("raws", "expected"),
    [
        pytest.param([], "f", id="S1-the-founder-alone"),
        pytest.param([A, X, Y], "afxy", id="S1-a-chain"),
        pytest.param([A, Y], "af", id="S1-a-chain-with-a-hole"),
        pytest.param([MESH.admission("x", "z"), MESH.admission("z", "x")], "f", id="S1-a-circle"),
        pytest.param([A, MESH.removal("f", "a")], "f", id="S3-removed-by-the-admitter"),
        pytest.param([A, MESH.removal("a", "a")], "f", id="S3-removed-by-itself"),
        pytest.param([A, MESH.removal("f", "f", standing=[A])], "a", id="S1-the-founder-left"),
        pytest.param([A, MESH.removal("f", "f")], "", id="S2-the-founder-left-and-lists-nobody"),
        pytest.param(
            [A, B, MESH.removal("a", "b", mutual=True)], "af", id="S3-removed-by-mutual-roots"
        ),
        pytest.param([A, B, MESH.removal("a", "b")], "abf", id="S3-no-right"),
        pytest.param(
            [A, X, MESH.removal("f", "x")], "afx", id="S3-the-admitters-admitter-has-none"
        ),
        pytest.param([A, MESH.removal("a", "f")], "af", id="S3-the-founder-has-no-admitter"),
        pytest.param(
            [A, B, MESH.said("a", roots=["b"]), MESH.said("b"), MESH.removal("a", "b")],
            "abf",
            id="S3-one-sided-roots",
        ),
        pytest.param([A, X, MESH.removal("f", "a")], "f", id="S2-its-admissions-fall-unlisted"),
        pytest.param(
            [A, X, Y, MESH.removal("f", "a", standing=[X])], "fxy", id="S2-listed-ones-stand"
        ),
        pytest.param(
            [A, X, MESH.admission("a", "z"), MESH.removal("f", "a", standing=[X])],
            "fx",
            id="S2-a-backdated-admission",
        ),
        pytest.param(
            [
                A,
                X,
                MESH.admission("a", "z"),
                MESH.removal("f", "a", standing=[X]),
                MESH.removal("f", "a", standing=[MESH.admission("a", "z")], n=1),
            ],
            "fxz",
            id="S2-lists-are-united",
        ),
        pytest.param(
            [A, X, A_REMOVES_X, MESH.removal("f", "a", standing=[X, A_REMOVES_X])],
            "f",
            id="S3-a-listed-removal-by-a-removed-signer",
        ),
        pytest.param(
            [A, X, A_REMOVES_X, MESH.removal("f", "a", standing=[X])],
            "fx",
            id="S3-an-unlisted-one-is-void",
        ),
        pytest.param(
            [A, X, MESH.removal("a", "a", standing=[X, A_REMOVES_X]), A_REMOVES_X],
            "f",
            id="S3-who-leaves-lists-its-own-removals",
        ),
        pytest.param(
            [A, X, MESH.admission("b", "x"), B, MESH.removal("f", "a"), MESH.removal("b", "x")],
            "bf",
            id="S4-the-other-admitter-when-the-nearest-is-gone",
        ),
        pytest.param(
            [A, X, Y, MESH.admission("a", "y"), MESH.removal("x", "y")],
            "afxy",
            id="S4-not-the-farther-admitter",
        ),
        pytest.param(
            [A, X, Y, MESH.admission("a", "y"), MESH.removal("a", "y")],
            "afx",
            id="S4-the-nearer-admitter",
        ),
        pytest.param(
            [A, B, MESH.admission("b", "a"), MESH.removal("b", "a")],
            "abf",
            id="S4-admitting-again-gives-no-right",
        ),
        pytest.param(
            [A, MESH.admission("a", "f"), MESH.removal("a", "f")],
            "af",
            id="S4-admitting-the-founder-gives-no-right",
        ),
        pytest.param(
            [A, X, B, MESH.admission("b", "x"), MESH.removal("f", "a")],
            "bfx",
            id="S1-live-while-any-admission-stands",
        ),
        pytest.param(
            [A, MESH.removal("f", "a"), B, MESH.admission("b", "a", n=1)],
            "bf",
            id="S1-once-removed-never-live-again",
        ),
        pytest.param(
            [A, X, Y, MESH.admission("f", "y"), MESH.removal("f", "a"), MESH.removal("x", "y")],
            "fy",
            id="S3-a-signer-whose-chain-fell-has-no-say",
        ),
        pytest.param(
            [A, X, Y, MESH.admission("f", "y"), BY_F, MESH.removal("x", "y", mutual=True)],
            "fy",
            id="S3-nor-by-mutual-roots",
        ),
        pytest.param(
            [A, B, MESH.removal("s", "b", mutual=True)], "abf", id="S3-nor-has-a-stranger"
        ),
        pytest.param(
            [A, X, Y, *FARTHER, BY_F, MESH.removal("d", "y")],
            "bcdf",
            id="S4-a-nearer-admitter-whose-chain-fell-stands-in-nobodys-way",
        ),
        pytest.param(
            [A, X, Y, *FARTHER, MESH.removal("d", "y")],
            "abcdfxy",
            id="S4-one-whose-chain-stands-does",
        ),
        pytest.param(
            [A, MESH.admission("s", "a"), MESH.removal("s", "a"), MESH.removal("f", "a")],
            "f",
            id="S4-a-strangers-admission-gives-no-right-and-takes-none",
        ),
        pytest.param(
            [A, X, MESH.removal("x", "a", mutual=True), MESH.removal("a", "x")],
            "af",
            id="S5-of-mutual-removals-the-nearer-ones",
        ),
        pytest.param(
            [A, MESH.removal("f", "a"), MESH.removal("a", "f", mutual=True)],
            "f",
            id="S5-nobody-outruns-the-founder",
        ),
    ],
)
def test_who_is_live(raws: list[bytes], expected: str) -> None:
    assert live(*raws) == expected


def test_of_mutual_removals_at_one_distance_the_lower_hash_counts() -> None:
    lower, upper = lower_hash(*A_AND_B)
    winner = "a" if lower == A_AND_B[0] else "b"
    assert live(A, B, lower, upper) == live(A, B, upper, lower) == "".join(sorted(winner + "f"))


def test_a_removal_listed_by_a_later_weighed_one_counts_after_all() -> None:
    """b removes a and lists what a removed; by hash alone a's own would have been void."""
    by_f = MESH.removal("f", "a", standing=[X])
    by_b = MESH.removal("b", "a", standing=[X, A_REMOVES_X], mutual=True)
    assert live(A, B, X, A_REMOVES_X, by_f, by_b) == "bf"


def test_who_drops_a_root_afterwards_does_not_undo_its_removal() -> None:
    removal = MESH.removal("a", "b", mutual=True)
    newer = MESH.said("b", counter=9)
    assert live(A, B, removal, newer) == "af"


def test_a_backdated_removal_is_void_for_whoever_was_removed_by_a_nearer_one() -> None:
    removals = [MESH.removal("a", "x", n=n) for n in range(8)]
    assert live(A, X, MESH.removal("f", "a", standing=[X]), *removals) == "fx"


ALL = [A, B, C, D]


@pytest.mark.parametrize(
    ("cast", "expected"),
    [
        pytest.param([MESH.vote(n, "d", ALL) for n in "ab"], "abcdf", id="V2-two-of-five"),
        pytest.param([MESH.vote(n, "d", ALL) for n in "abc"], "abcf", id="V2-three-of-five"),
        pytest.param(
            [MESH.vote("a", "d", ALL), *(MESH.vote("b", "d", ALL, n=n) for n in range(3))],
            "abcdf",
            id="V2-one-voter-counts-once",
        ),
        pytest.param(
            [MESH.vote("a", "d", [A, C, D]), *(MESH.vote(n, "d", ALL) for n in "bc")],
            "abcf",
            id="V2-the-union-of-electorates",
        ),
        pytest.param(
            [MESH.vote("a", "d", [A, B, D]), MESH.vote("b", "d", [A, B, C, D])],
            "abcdf",
            id="V2-a-small-electorate-does-not-shrink-the-others",
        ),
        pytest.param(
            [MESH.vote("a", "d", [A, B, D]), MESH.vote("c", "d", [A, C, D])],
            "abcdf",
            id="V3-a-union-too-large-for-all-voters",
        ),
        pytest.param(
            [MESH.vote("a", "d", [B, C, D]), *(MESH.vote(n, "d", [B, C, D]) for n in "bc")],
            "abcdf",
            id="V1-the-voter-is-not-in-it",
        ),
        pytest.param(
            [MESH.vote(n, "d", [A, B, C]) for n in "abc"], "abcdf", id="V1-the-subject-is-not-in-it"
        ),
        pytest.param(
            [MESH.vote(n, "d", [*ALL, X]) for n in "abc"],
            "abcdf",
            id="V1-an-admission-nobody-knows",
        ),
    ],
)
def test_votes(cast: list[bytes], expected: str) -> None:
    assert live(*ALL, *cast) == expected


def test_an_electorate_without_the_chain_of_a_member_is_no_electorate() -> None:
    z = MESH.admission("x", "z")
    without_x = [MESH.vote(name, "d", [A, D, Y, z]) for name in "ayz"]
    assert live(A, D, X, Y, z, *without_x) == "adfxyz"


def test_friends_admitted_after_ones_removal_do_not_outvote_anybody() -> None:
    friends = [MESH.admission("a", name) for name in "xyz"]
    cast = [MESH.vote(name, "b", [A, B, *friends]) for name in "axyz"]
    assert live(A, B, *friends, *cast) == "afxyz"
    assert live(A, B, *friends, *cast, MESH.removal("f", "a")) == "bf"


def test_a_founder_that_was_voted_out_does_not_remove_the_majority() -> None:
    cast = [MESH.vote(name, "f", [A, B, C], standing=[A, B, C]) for name in "abc"]
    backdated = [MESH.removal("f", name) for name in "abc"]
    assert live(A, B, C, *cast, *backdated) == "abc"


def test_a_tally_says_how_many_of_how_many() -> None:
    cast = [MESH.vote(name, "d", ALL) for name in "ab"]
    tally = view(MESH.roster(*ALL, *cast)).tallies[key("d")]
    assert (tally.voters, tally.electorate, tally.counts) == (2, 5, False)
    assert tally.votes == frozenset(MESH.hashes(*cast))


def test_what_a_vote_that_does_not_suffice_lists_does_not_stand() -> None:
    """d let z in; who voted d out with enough others lists nobody, and b wants z to stay."""
    z = MESH.admission("d", "z")
    small = [MESH.vote(name, "d", [A, C, D]) for name in "ac"] + [MESH.vote("f", "d", [A, C, D])]
    alone = MESH.vote("b", "d", [*ALL, X, Y, z], standing=[z])
    found = view(MESH.roster(*ALL, X, Y, z, *small, alone))
    assert found.tallies[key("d")].votes == frozenset(MESH.hashes(*small))
    assert found.by_key(key("z")) is None


@pytest.mark.parametrize(
    ("raws", "signer"),
    [
        pytest.param([A, X, Y, *FARTHER, BY_F], "d", id="not of one whose chain fell"),
        pytest.param(
            [A, X, Y, MESH.admission("a", "y"), MESH.removal("f", "a", standing=[X])],
            "x",
            id="not one that fell with its signer",
        ),
    ],
)
def test_the_admission_that_speaks_for_a_member_is_one_that_stands(
    raws: list[bytes], signer: str
) -> None:
    held = MESH.roster(*raws)
    found = judge(held.founding, held.entries.values()).admission
    assert found[key("y")].signer == key(signer)


def test_whoever_admits_the_founder_again_is_not_in_its_chain() -> None:
    held = MESH.roster(A, MESH.admission("a", "f"))
    assert list(chain(held, key("f"))) == [MESH.genesis_raw]


def test_votes_on_nobody_are_no_tally() -> None:
    assert votes.tallies([], {}, MESH.empty.founding.record) == {}


@pytest.mark.parametrize(
    ("who", "expected"),
    [
        pytest.param("f", [], id="founder"),
        pytest.param("a", [A], id="admitted-by-the-founder"),
        pytest.param("y", [A, X, Y], id="through-a-removed-member-that-is-listed"),
    ],
)
def test_a_chain_proves_a_member(who: str, expected: list[bytes]) -> None:
    left = [] if who == "a" else [MESH.removal("a", "a", standing=[X])]
    held = MESH.roster(A, B, X, Y, *left)
    proof = chain(held, key(who))
    assert list(proof) == [MESH.genesis_raw, *expected]
    alone = roster.merge(roster.founded(proof[0], MESH.id), proof[1:]).roster
    assert view(alone).by_key(key(who)) is not None


def test_another_record_in_place_of_an_admission_is_a_bug() -> None:
    with pytest.raises(Internal):
        admission_in(MESH.entry(MESH.said("a")))
