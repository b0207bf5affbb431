"""When a certificate is renewed: rules W1 to W7."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from ipaddress import IPv6Address

import pytest

from keel.mesh import renewal
from keel.mesh.etcdgrants import Event, GrantLine, Ledger
from keel.mesh.renewal import Action, ChainView
from keel.types import SigningKey
from tests.etcd import make
from tests.pki import make as pki
from tests.pki.make import ADDRESS, NOW

UNDER = pki.intermediate()
LEAF = pki.member(UNDER).leaf
CLIENT = pki.client(UNDER).leaf
ROOT = pki.root().certificate
DUE = renewal.due_at(LEAF, UNDER.certificate, address=ADDRESS)
VIEW = ChainView(
    address=ADDRESS,
    root=ROOT,
    intermediate=UNDER.certificate,
    asked=False,
    leaves=(LEAF, CLIENT),
    leaf_issuer=UNDER.certificate,
)
SECOND = timedelta(seconds=1)


def actions(view: ChainView, after: timedelta) -> list[str]:
    return [step.action for step in renewal.decide(view, NOW + after).steps]


def test_an_intermediate_that_was_replaced_is_renewed_before_any_leaf_of_it() -> None:
    view = replace(VIEW, superseded=True, leaf_issuer=None)
    assert actions(view, timedelta()) == [Action.RENEW_INTERMEDIATE]


def test_the_delay_of_each_member_is_its_own_and_within_its_share() -> None:
    third = LEAF.not_valid_after_utc - (LEAF.not_valid_after_utc - LEAF.not_valid_before_utc) / 3
    found = {
        renewal.due_at(LEAF, UNDER.certificate, address=IPv6Address(f"fd00::{number}"))
        for number in range(1, 9)
    }
    assert len(found) == 8
    assert all(third <= due <= third + timedelta(hours=31) for due in found if due)


@pytest.mark.parametrize(
    ("moment", "due", "late"),
    [
        pytest.param(-SECOND, False, False, id="before"),
        pytest.param(timedelta(), True, False, id="its moment"),
        pytest.param(renewal.LATE - SECOND, True, False, id="within a day"),
        pytest.param(renewal.LATE, True, True, id="after a day"),
    ],
)
def test_due_at_its_moment_and_late_after_a_day(moment: timedelta, due: bool, late: bool) -> None:
    assert DUE is not None
    of = {"address": ADDRESS, "now": DUE + moment}
    assert renewal.is_due(LEAF, UNDER.certificate, **of) is due  # type: ignore[arg-type]
    assert renewal.is_late(LEAF, UNDER.certificate, **of) is late  # type: ignore[arg-type]


def test_what_ends_with_its_issuer_is_never_due() -> None:
    late = pki.member(UNDER, now=NOW + timedelta(days=350)).leaf
    assert renewal.due_at(late, UNDER.certificate, address=ADDRESS) is None
    assert not renewal.is_due(late, UNDER.certificate, address=ADDRESS, now=NOW + timedelta(400))
    assert not renewal.is_late(late, UNDER.certificate, address=ADDRESS, now=NOW + timedelta(400))


NEWER = pki.intermediate(number=2)


@pytest.mark.parametrize(
    ("view", "after", "wanted"),
    [
        pytest.param(VIEW, timedelta(days=1), [], id="nothing is due"),
        pytest.param(VIEW, timedelta(days=22), [Action.ISSUE_LEAF], id="the leaves are due"),
        pytest.param(
            replace(VIEW, leaf_issuer=None, leaves=()),
            timedelta(days=1),
            [Action.ISSUE_LEAF],
            id="no leaf yet",
        ),
        pytest.param(
            replace(VIEW, intermediate=NEWER.certificate),
            timedelta(days=1),
            [Action.ISSUE_LEAF],
            id="leaves of the intermediate before",
        ),
        pytest.param(
            VIEW,
            timedelta(days=262),
            [Action.RENEW_INTERMEDIATE, Action.ISSUE_LEAF],
            id="the intermediate first",
        ),
        pytest.param(
            replace(VIEW, asked=True),
            timedelta(days=1),
            [Action.RENEW_INTERMEDIATE],
            id="a key waits for its grant",
        ),
    ],
)
def test_the_plan(view: ChainView, after: timedelta, wanted: list[str]) -> None:
    assert actions(view, after) == wanted


def test_the_next_moment_is_the_leaves() -> None:
    assert renewal.next_due(VIEW) == min(
        due
        for due in (DUE, renewal.due_at(CLIENT, UNDER.certificate, address=ADDRESS))
        if due is not None
    )


def test_nothing_is_ever_due_of_a_chain_that_ends_with_its_root() -> None:
    ends = replace(VIEW, root=UNDER.certificate, leaves=(), leaf_issuer=None)
    assert renewal.next_due(ends) is None


def line(name: str, *, number: int = 1, event: Event = Event.GRANTED) -> GrantLine:
    found = pki.intermediate(address=make.address(name), number=number)
    serial = make.serial_of(found.certificate)
    granted = event is Event.GRANTED
    return GrantLine(
        event=event,
        address=make.address(name),
        ed25519=SigningKey(make.key(name)),
        time=NOW + timedelta(days=number),
        serial=serial,
        generation=1 if granted else None,
        csr_key=make.public_key_hash(found.certificate) if granted else None,
        not_after=found.certificate.not_valid_after_utc if granted else None,
        intermediate=make.der(found.certificate) if granted else None,
    )


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        pytest.param((line("a"), line("b")), [], id="one each"),
        pytest.param((line("a"), line("b"), line("a", number=2)), [(2, [1])], id="a newer one"),
        pytest.param(
            (line("a"), line("a", number=2), line("a", number=3)), [(3, [1, 2])], id="two older"
        ),
        pytest.param(
            (line("a"), line("a", number=2), line("a", event=Event.REVOKED)),
            [],
            id="revoked already",
        ),
    ],
)
def test_what_a_newer_grant_replaces(
    lines: tuple[GrantLine, ...], wanted: list[tuple[int, list[int]]]
) -> None:
    found = renewal.superseded(Ledger(lines=lines), NOW)
    of = {line("a", number=number).serial: number for number in (1, 2, 3)}
    assert [(of[new.serial], [of[one] for one in renewal.serials(old)]) for new, old in found] == (
        wanted
    )


def test_what_has_ended_is_replaced_by_nothing() -> None:
    lines = (line("a"), line("a", number=2))
    assert renewal.superseded(Ledger(lines=lines), NOW + timedelta(days=400)) == ()


@pytest.mark.parametrize(
    ("leaves", "seen"),
    [
        pytest.param((), False, id="nothing was shown"),
        pytest.param((LEAF, LEAF), True, id="both ports"),
        pytest.param((LEAF, pki.member(NEWER).leaf), False, id="one port only"),
    ],
)
def test_an_intermediate_is_in_use_once_every_port_shows_it(leaves: tuple, seen: bool) -> None:
    assert renewal.in_use(leaves, UNDER.certificate) is seen


AHEAD = timedelta(days=400)


def test_what_a_clock_that_ran_ahead_dated_is_due_at_once() -> None:
    """The clock is right again; the root and the intermediate are valid, the leaves are not yet."""
    future = pki.member(UNDER, now=NOW + timedelta(days=20)).leaf
    view = replace(VIEW, leaves=(future, CLIENT))
    assert actions(view, timedelta(days=1)) == [Action.ISSUE_LEAF]


def test_an_intermediate_that_is_not_valid_yet_is_due_at_once_and_its_leaves_follow() -> None:
    future = pki.intermediate(now=NOW + AHEAD)
    leaf = pki.member(future, now=NOW + AHEAD).leaf
    view = replace(
        VIEW,
        intermediate=future.certificate,
        leaf_issuer=future.certificate,
        leaves=(leaf, leaf),
    )
    assert actions(view, timedelta(days=1)) == [Action.RENEW_INTERMEDIATE]


def test_a_clock_that_is_behind_renews_nothing() -> None:
    assert actions(VIEW, -timedelta(days=20000)) == []
    assert actions(replace(VIEW, root=None), -timedelta(days=20000)) == []
