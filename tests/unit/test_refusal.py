"""What a no looks like on the wire, and that nothing odd gets to a terminal through it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from keel import codec
from keel.errors import BadValue, LockHeld, Refused
from keel.mesh.refusal import (
    UNPROVEN_ANSWER,
    Plain,
    Refusal,
    Rejection,
    both_clocks,
    parse_plain,
    plain,
    refusal_of,
)
from tests.channelkit import NOW

GOOD: dict[str, Any] = {"rule": "a-rule", "text": "no", "remedy": "do", "details": {"k": "v"}}


def test_a_refusal_travels_and_becomes_the_askers_error() -> None:
    refusal = Refusal(**GOOD)
    error = codec.loads(Refusal, codec.dumps(refusal), max_bytes=999).as_error()
    assert (error.rule, error.summary(), error.remedy()) == ("a-rule", "no", "do")


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"rule": "A rule"}, id="rule not in kebab case"),
        pytest.param({"text": "x" * 601}, id="long"),
        pytest.param({"text": "\u00fcber"}, id="not ASCII"),
        pytest.param({"remedy": "\x1b[2J"}, id="terminal control"),
        pytest.param({"details": {"k": "a\nb"}}, id="line break"),
        pytest.param({"details": {f"k{n}": "v" for n in range(9)}}, id="nine details"),
    ],
)
def test_a_refusal_that_a_terminal_should_not_see_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(BadValue):
        codec.from_json(Refusal, GOOD | changes)


def test_a_rejection_is_cleaned_on_its_way_out() -> None:
    rejection = Rejection(
        rule="a-rule",
        text="\x1b\u00fcber" + "x" * 700,
        remedy="do",
        proven=True,
        details={"\n": "y"},
    )
    refusal = rejection.refusal()
    assert refusal.text.startswith("??berxxx")
    assert refusal.text.endswith("x...")
    assert refusal.details == {"?": "y"}
    assert rejection.as_error().rule == "a-rule"


def test_an_error_keeps_its_rule_or_else_its_code() -> None:
    assert refusal_of(Refused("some-rule", "text", "remedy")).rule == "some-rule"
    locked = refusal_of(LockHeld(7, "the lock"))
    assert (locked.rule, locked.text) == ("locked", "the lock is held by process 7")


def test_a_plain_answer_reads_back() -> None:
    assert parse_plain(plain("code", "text")) == Plain(code="code", summary="text")
    assert parse_plain(UNPROVEN_ANSWER) is not None


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"<html>", id="HTML"),
        pytest.param(plain("code", "\x1b"), id="terminal control"),
        pytest.param(plain("code", "\u00e9"), id="not ASCII"),
        pytest.param(plain("code", "x" * 601), id="long"),
        pytest.param(plain("code", "x" * 9999), id="very long"),
    ],
)
def test_what_is_no_plain_answer_is_none(raw: bytes) -> None:
    assert parse_plain(raw) is None


def test_both_clocks_are_named_in_whole_seconds() -> None:
    assert both_clocks(ours=NOW, theirs=NOW - timedelta(seconds=1.5)) == {
        "our_clock": "2026-05-04T12:00:00Z",
        "your_clock": "2026-05-04T11:59:58Z",
    }
