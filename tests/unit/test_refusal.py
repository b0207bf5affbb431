"""What a no looks like on the wire, and that nothing odd gets to a terminal through it."""

from __future__ import annotations

import errno
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from keel import codec
from keel.errors import (
    BadValue,
    DiskTrouble,
    EtcdError,
    Internal,
    KeelError,
    LockHeld,
    ProcFailed,
    Refused,
    SpecError,
    StateCorrupt,
)
from keel.mesh.refusal import (
    UNPROVEN_ANSWER,
    Plain,
    Refusal,
    Rejection,
    both_clocks,
    for_others,
    is_private,
    parse_plain,
    plain,
    refusal_of,
)
from tests.channelkit import NOW

PLACE = Path("/var/lib/keel/etcd/record")
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
    assert refusal_of(EtcdError(14, "no leader")).rule == "etcd"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (StateCorrupt(PLACE, "no JSON"), "a file of its state cannot be read"),
        (DiskTrouble(PLACE, errno.ENOSPC), "its disk does not do what keel asked"),
        (SpecError("node", "no name", file=PLACE), "its spec cannot be read"),
        (ProcFailed([str(PLACE)], 1, str(PLACE)), "a program on it failed"),
        (Internal(str(PLACE)), "a bug in keel"),
    ],
    ids=lambda value: getattr(value, "code", ""),
)
def test_what_is_a_nodes_own_business_is_told_by_its_kind_alone(
    error: KeelError, text: str
) -> None:
    refusal = refusal_of(error)
    assert (refusal.rule, refusal.text, for_others(error)) == (error.code, text, text)
    assert is_private(error)
    assert str(PLACE) in error.summary()
    assert "that member" in refusal.remedy


def test_only_these_errors_are_told_to_others_in_full_and_no_new_one() -> None:
    told = {error.__name__ for error in KeelError.__subclasses__() if error.for_others is None}
    assert told == {
        "Refused",
        "BadValue",
        "BadSignature",
        "PkiRejected",
        "PeerError",
        "EtcdError",
        "DeadlinePassed",
    }
    assert is_private(KeelError())


def test_what_concerns_both_is_told_as_it_is() -> None:
    error = Refused("some-rule", "some text", "a remedy")
    assert for_others(error) == "some text"
    assert not is_private(error)
    assert (refusal_of(error).text, refusal_of(error).remedy) == ("some text", "a remedy")


def test_a_lock_is_told_to_others_without_the_process_that_has_it_and_with_what_to_do() -> None:
    error = LockHeld(7, f"the lock {PLACE}")
    refusal = refusal_of(error)
    assert (refusal.rule, refusal.text) == ("locked", "another command is at work on it")
    assert refusal.remedy == "try again in a moment"
    assert for_others(error) == refusal.text
    assert is_private(error)


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
