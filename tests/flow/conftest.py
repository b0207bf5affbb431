"""What a flow's test may cost and still be one of the fast ones.

A test in which the nodes send more than `MOST` requests to one another plays a good part of their
lives; it, or its module, bears a marker, and `make test` leaves it to `make lives`. Requests are
counted and not seconds: a machine that is busy changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from tests.fakes.net import CARRIED

MOST = 70
"""They take about half a second."""
MARKED = frozenset({"lives", "slow", "long", "exhaustive"})


def fault(sent: int, markers: Iterable[str]) -> str:
    """What is wrong with a test that bears these; empty when nothing is."""
    if sent <= MOST or MARKED.intersection(markers):
        return ""
    return f"its nodes sent {sent} requests, {MOST} are fast: mark it `lives`"


@pytest.fixture(autouse=True)
def _fast_or_marked(request: pytest.FixtureRequest) -> Iterator[None]:
    before = CARRIED.total()
    yield
    sent = CARRIED.total() - before
    found = fault(sent, (marker.name for marker in request.node.iter_markers()))
    assert not found, found
