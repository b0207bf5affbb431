"""Who goes by what means, as plain values (M9)."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv6Address

import pytest

from keel.errors import Refused
from keel.mesh import removal
from keel.mesh.drafts import Right
from keel.mesh.removal import Mode, RemovalView
from keel.mesh.votes import Tally
from keel.mesh.window import Means
from keel.types import SigningKey

ME, OTHER = SigningKey("a" * 64), SigningKey("b" * 64)
VIEW = RemovalView(
    me=ME,
    subject=OTHER,
    name="b",
    address=IPv6Address("fd00::b"),
    right=Right.NONE,
    is_holder=False,
    answers=False,
    blocked=False,
    voted=False,
    listed=False,
)


@pytest.mark.parametrize(
    ("right", "holder", "mode", "means"),
    [
        (Right.ADMITTER, False, Mode.PLAIN, Means.REMOVAL),
        (Right.MUTUAL_ROOTS, False, Mode.PLAIN, Means.REMOVAL),
        (Right.ADMITTER, False, Mode.VOTE, Means.REMOVAL),
        (Right.ADMITTER, False, Mode.LOST, Means.REMOVAL),
        (Right.NONE, False, Mode.PLAIN, Means.BLOCK),
        (Right.NONE, False, Mode.VOTE, Means.VOTE),
        (Right.NONE, False, Mode.LOST, Means.VOTE),
        (Right.ADMITTER, True, Mode.LOST, Means.VOTE),
    ],
)
def test_the_strongest_means_is_taken_and_a_lost_holder_goes_by_votes_alone(
    right: Right, holder: bool, mode: Mode, means: Means
) -> None:
    assert removal.decide(replace(VIEW, right=right, is_holder=holder), mode) is means


@pytest.mark.parametrize(
    ("view", "mode", "rule"),
    [
        (replace(VIEW, subject=ME), Mode.PLAIN, "remove-self"),
        (replace(VIEW, is_holder=True, right=Right.ADMITTER), Mode.PLAIN, "remove-holder"),
        (replace(VIEW, is_holder=True), Mode.VOTE, "remove-holder"),
        (replace(VIEW, is_holder=True, answers=True), Mode.LOST, "remove-holder"),
        (replace(VIEW, answers=True), Mode.LOST, "lost-answers"),
    ],
    ids=["itself", "the holder", "the holder by vote", "a living holder", "one that answers"],
)
def test_who_does_not_go(view: RemovalView, mode: Mode, rule: str) -> None:
    with pytest.raises(Refused) as refused:
        removal.decide(view, mode)
    assert refused.value.rule == rule


@pytest.mark.parametrize(
    ("means", "blocked", "voted", "done"),
    [
        (Means.REMOVAL, True, True, False),
        (Means.BLOCK, True, False, True),
        (Means.BLOCK, False, False, False),
        (Means.VOTE, True, False, False),
        (Means.VOTE, False, True, False),
        (Means.VOTE, True, True, True),
    ],
)
def test_what_is_done_has_no_steps(means: Means, blocked: bool, voted: bool, done: bool) -> None:
    view = replace(VIEW, blocked=blocked, voted=voted)
    assert removal.is_done(view, means) is done
    assert bool(removal.plan(view, means)) is not done


def test_the_plan_of_a_listed_member_says_that_etcd_lists_it() -> None:
    steps = removal.plan(replace(VIEW, right=Right.ADMITTER, listed=True), Means.REMOVAL).steps
    assert [step.action for step in steps] == [
        "arm-window",
        "drop-peer",
        "confirm",
        "sign-removal",
        "tell-members",
        "etcd-member",
    ]


def test_a_vote_and_a_block_leave_etcd_alone_and_a_block_tells_nobody() -> None:
    seen = replace(VIEW, blocked=False, listed=True)
    window = ["arm-window", "drop-peer", "confirm"]
    for means, last in (
        (Means.VOTE, ["block-here", "cast-vote", "tell-members"]),
        (Means.BLOCK, ["block-here"]),
    ):
        assert [s.action for s in removal.plan(seen, means).steps] == [*window, *last]
        blocked = removal.plan(replace(seen, blocked=True), means).steps
        assert [s.action for s in blocked] == (last if means is Means.VOTE else [])


def test_the_plan_of_one_that_etcd_does_not_list_ends_with_its_telling() -> None:
    steps = removal.plan(replace(VIEW, right=Right.ADMITTER), Means.REMOVAL).steps
    assert [step.action for step in steps][-2:] == ["sign-removal", "tell-members"]


def test_votes_are_counted_in_words() -> None:
    tally = Tally(voters=1, electorate=3, counts=False, votes=frozenset(), listed=frozenset())
    assert removal.count_text(None) == "no vote counts yet"
    assert removal.count_text(tally) == "1 of 3 voted, 2 are needed"
    enough = replace(tally, voters=2, counts=True)
    assert removal.count_text(enough) == "2 of 3 voted, 2 are needed: removed for all"
