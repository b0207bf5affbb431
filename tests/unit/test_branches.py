"""What is charged to whom: a member together with all that it let in (B1 to B3)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

import pytest

from keel.mesh.branches import LEVELS, MAX_KIND_BYTES, SHARES, Branches
from keel.mesh.entry import Entry
from keel.mesh.standing import distances
from keel.types import RecordHash, SigningKey
from tests.factories_mesh import Mesh, hashed

TOTAL = 8 * SHARES
FOUNDER = "f"
TEMPLATE = Mesh().admission_body("f", "a")


def key(name: str) -> SigningKey:
    return SigningKey(hashed("branch", name).hex())


def record(by: str, *, size: int = 100) -> Entry:
    return Entry(
        record=RecordHash("ab" * 32), kind="removal", signer=key(by), body=None, raw=bytes(size)
    )


def admission(by: str, who: str) -> Entry:
    body = replace(TEMPLATE, ed25519=key(who), admitted_by=key(by))
    return replace(record(by), kind="admission", body=body)


def chain(first: str, length: int) -> list[tuple[str, str]]:
    """`first`1 admitted by the founder, `first`2 by that one, and so on."""
    way = [FOUNDER, *(f"{first}{number}" for number in range(1, length + 1))]
    return list(pairwise(way))


def branches(admitted: Iterable[tuple[str, str]]) -> Branches:
    admissions = [admission(by, who) for by, who in admitted]
    return Branches(distances(key(FOUNDER), admissions), admissions, TOTAL)


def flooded(admitted: Iterable[tuple[str, str]], by: str) -> Branches:
    """Somebody has signed as much as the bound takes."""
    made = branches(admitted)
    for _ in range(TOTAL):
        made.charge(record(by))
    return made


@pytest.mark.parametrize(
    ("each", "size"),
    [
        pytest.param(TOTAL // SHARES, 100, id="many"),
        pytest.param(1, MAX_KIND_BYTES // SHARES, id="few and large"),
    ],
)
@pytest.mark.parametrize("signers", ["a", "bc", "abc"], ids=["alone", "puppets", "together"])
def test_each_eighth_of_a_bound_that_a_branch_fills_puts_it_a_tier_behind(
    each: int, size: int, signers: str
) -> None:
    made = branches([("f", "a"), ("a", "b"), ("a", "c"), ("f", "x")])
    shares = [
        made.charge(record(signers[number % len(signers)], size=size))
        for number in range(each * SHARES)
    ]
    assert shares == [number // each for number in range(each * SHARES)]
    assert made.charge(record("x")) == made.charge(record("f")) == 0


@pytest.mark.parametrize(
    ("admitted", "asked"),
    [
        pytest.param([("f", "a"), ("f", "x"), ("x", "y"), ("a", "y")], "y", id="once more"),
        pytest.param(
            [
                *chain("a", LEVELS + 1),
                *chain("x", LEVELS + 1),
                (f"a{LEVELS + 1}", "y"),
                (f"x{LEVELS + 1}", "y"),
            ],
            "y",
            id="once more, deep down",
        ),
    ],
)
def test_who_is_admitted_once_more_by_a_flooder_is_drawn_into_no_flood(
    admitted: list[tuple[str, str]], asked: str
) -> None:
    flooder = "a" if ("f", "a") in admitted else f"a{LEVELS}"
    assert flooded(admitted, flooder).charge(record(asked)) == 0
    alone = [one for one in admitted if not one[0].startswith("x")]
    assert flooded(alone, flooder).charge(record(asked)) == SHARES


def test_below_the_levels_that_are_told_apart_one_goes_with_those_above() -> None:
    made = flooded(chain("a", LEVELS + 2), f"a{LEVELS + 2}")
    assert made.charge(record(f"a{LEVELS + 1}")) == SHARES


def test_a_line_of_admissions_may_be_as_long_as_a_batch_has_room_for() -> None:
    length = 3000
    made = flooded(chain("a", length), "a1")
    assert made.charge(record(f"a{length}")) == SHARES
