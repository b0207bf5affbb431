"""The rules of the network window (M10)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv6Address, IPv6Network
from pathlib import Path

import pytest

from keel import codec
from keel.errors import Refused, StateCorrupt
from keel.mesh import window
from keel.mesh.window import Change, Confirmer, Means, Removing, Resetting, Settings, Stage, Window
from keel.types import Endpoint, Nonce, SigningKey

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WHERE = Path("window.json")
PREFIX = IPv6Network("fd00:1:2:3::/64")
ADDRESS = {name: IPv6Address(f"fd00:1:2:3::{name}") for name in "abcd"}
OUTSIDE = IPv4Address("198.51.100.7")
KEY = {name: SigningKey(name * 64) for name in "abcde"}

REMOVING = Removing(subject=KEY["b"], name="b", address=ADDRESS["b"], means=Means.REMOVAL)
BEFORE = Settings(port=51820, mtu=1280)
RESETTING = Resetting(before=BEFORE, after=replace(BEFORE, port=51999))


def armed(change: Change = REMOVING, witnesses: str = "cd", sessions: object = ()) -> Window:
    return window.arm(
        change,
        id=Nonce("0" * 32),
        now=NOW,
        witnesses=[KEY[name] for name in witnesses],
        sessions=sessions,  # type: ignore[arg-type]  # a table of tuples
        prefix=PREFIX,
    )


def test_a_record_is_read_as_it_was_written() -> None:
    for change in (REMOVING, RESETTING):
        found = replace(armed(change), extra={"later": 1})
        assert codec.read_state(Window, WHERE, codec.dumps(found)) == found


@pytest.mark.parametrize(
    "wrong",
    [
        {"removing": None},
        {"removing": REMOVING, "resetting": RESETTING},
    ],
    ids=["no change", "two changes"],
)
def test_a_record_is_for_exactly_one_change(wrong: dict[str, object]) -> None:
    raw = codec.to_json(armed()) | codec.to_json(wrong)
    with pytest.raises(StateCorrupt):
        codec.read_state(
            Window, WHERE, codec.dumps({k: v for k, v in raw.items() if v is not None})
        )


def test_it_lasts_two_minutes() -> None:
    assert (armed().ends - armed().opened).total_seconds() == 120


def test_the_subject_is_no_witness_of_its_own_removal() -> None:
    assert armed(witnesses="bdc").witnesses == (KEY["c"], KEY["d"])
    assert armed(RESETTING, witnesses="bc").witnesses == (KEY["b"], KEY["c"])


@pytest.mark.parametrize(
    ("change", "witnesses", "sessions", "confirmer"),
    [
        (REMOVING, "c", (), Confirmer.MEMBERS),
        (REMOVING, "c", (OUTSIDE, ADDRESS["c"]), Confirmer.MEMBERS),
        (REMOVING, "c", (OUTSIDE, ADDRESS["b"]), Confirmer.OPERATOR),
        (REMOVING, "b", (), Confirmer.OPERATOR),
        (RESETTING, "b", (OUTSIDE,), Confirmer.MEMBERS),
        (RESETTING, "b", (ADDRESS["c"],), Confirmer.OPERATOR),
        (RESETTING, "", (), Confirmer.OPERATOR),
    ],
    ids=[
        "a witness",
        "SSH elsewhere",
        "SSH from the subject",
        "only the subject answered",
        "settings and SSH outside",
        "settings and SSH inside",
        "nobody answered",
    ],
)
def test_only_the_operator_confirms_what_cuts_him_off_or_nobody_can_judge(
    change: Change, witnesses: str, sessions: object, confirmer: Confirmer
) -> None:
    found = armed(change, witnesses, sessions)
    assert (found.confirmer, bool(found.why)) == (confirmer, confirmer is Confirmer.OPERATOR)


@pytest.mark.parametrize(
    ("witnesses", "answered", "enough"),
    [
        ("c", "c", True),
        ("c", "", False),
        ("cd", "c", False),
        ("cd", "cd", True),
        ("acd", "cd", True),
        ("acd", "ce", False),
        ("cd", "cbe", False),
    ],
)
def test_more_than_half_of_the_witnesses_confirm(
    witnesses: str, answered: str, enough: bool
) -> None:
    assert window.suffices(armed(witnesses=witnesses), [KEY[n] for n in answered]) is enough


def test_no_answer_confirms_what_is_the_operators() -> None:
    assert not window.suffices(armed(sessions=(ADDRESS["b"],)), [KEY["c"], KEY["d"]])


def test_nothing_leads_back() -> None:
    confirmed, undoing = window.confirm(armed()), window.undo(armed())
    assert (window.confirm(confirmed).stage, window.undo(undoing).stage) == (
        Stage.CONFIRMED,
        Stage.UNDOING,
    )
    with pytest.raises(Refused) as refused:
        window.confirm(undoing)
    assert refused.value.rule == "window-undone"
    with pytest.raises(Refused) as refused:
        window.undo(confirmed)
    assert refused.value.rule == "window-confirmed"


@pytest.mark.parametrize("stage", Stage)
def test_what_it_says_holds_until_it_is_being_undone(stage: Stage) -> None:
    holds = stage is not Stage.UNDOING
    removal, settings = replace(armed(), stage=stage), replace(armed(RESETTING), stage=stage)
    assert window.suspended(removal) == ({KEY["b"]} if holds else set())
    assert window.in_force(settings, BEFORE) == (RESETTING.after if holds else BEFORE)


def test_without_a_record_everything_is_as_below_it() -> None:
    assert window.suspended(None) == window.suspended(armed(RESETTING)) == frozenset()
    assert window.in_force(None, BEFORE) == window.in_force(armed(), BEFORE) == BEFORE


def test_another_change_is_told_what_waits_and_until_when() -> None:
    error = window.open_error(armed())
    assert (error.rule, error.summary()) == (
        "window-open",
        "the removal of b waits for its confirmation until 2026-01-01T00:02:00Z",
    )


def test_a_change_of_settings_names_them() -> None:
    both = replace(BEFORE, mtu=1300, endpoints=(Endpoint.parse("192.0.2.1:1"),))
    found = armed(Resetting(before=BEFORE, after=both))
    assert window.describe(found) == "the change of mtu and endpoints"
    assert window.describe(armed(RESETTING)) == "the change of port"
