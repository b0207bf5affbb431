"""Turns at the channel: what is under way, how often each asked, and what is forgotten."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from keel.errors import Refused
from keel.mesh.limits import Bound, Rate
from keel.mesh.turns import Turns

OFTEN = Rate(per_second=100.0, burst=100)
BOUND = Bound(at_once=2, of_member=1, rate=OFTEN)


def rule_of(turns: Turns, kind: str, member: str, bound: Bound = BOUND, now: float = 0.0) -> str:
    """Whether somebody has a turn (it ends at once), or why not."""
    try:
        with turns.taken(kind, member, bound, now):
            return "taken"
    except Refused as error:
        return error.rule


@pytest.mark.parametrize(
    ("under_way", "kind", "member", "found"),
    [
        pytest.param([], "k", "b", "taken", id="nothing under way"),
        pytest.param(["b"], "k", "b", "channel-busy", id="its own"),
        pytest.param(["c"], "k", "b", "taken", id="another's"),
        pytest.param(["c", "d"], "k", "b", "channel-busy", id="two others'"),
        pytest.param(["b", "c"], "other", "b", "taken", id="of another kind"),
    ],
)
def test_so_many_at_once(under_way: list[str], kind: str, member: str, found: str) -> None:
    turns = Turns()
    with ExitStack() as stack:
        for each in under_way:
            stack.enter_context(turns.taken("k", each, BOUND, 0.0))
        assert rule_of(turns, kind, member) == found
    assert rule_of(turns, kind, member) == "taken"
    assert len(turns) == 0


def test_a_turn_ends_with_an_error_as_well() -> None:
    turns = Turns()
    with pytest.raises(ZeroDivisionError), turns.taken("k", "b", BOUND, 0.0):
        raise ZeroDivisionError
    assert rule_of(turns, "k", "b") == "taken"


def test_what_has_no_bound_is_taken_as_often_as_there_are_threads() -> None:
    turns = Turns()
    with ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(turns.taken("k", "b", Bound(rate=OFTEN), 0.0))


def test_a_rate_is_of_a_member_and_a_kind() -> None:
    turns, bound = Turns(), Bound(rate=Rate(per_second=0.5, burst=2))
    found = [rule_of(turns, "k", "b", bound) for _ in range(3)]
    assert found == ["taken", "taken", "channel-often"]
    assert rule_of(turns, "k", "c", bound) == rule_of(turns, "other", "b", bound) == "taken"
    assert rule_of(turns, "k", "b", bound, now=2.0) == "taken"
