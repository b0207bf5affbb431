from __future__ import annotations

import io
import json
from datetime import UTC, datetime

import pytest

from keel.cli import render
from keel.errors import PeerError, Refused
from keel.outcome import Plan, Step, Waiting
from tests.cli.typed import Typed

COLOR = {
    "terminal": ("auto", True, {}, True),
    "pipe": ("auto", False, {}, False),
    "no-color": ("auto", True, {"NO_COLOR": "1"}, False),
    "empty-no-color-is-unset": ("auto", True, {"NO_COLOR": ""}, True),
    "dumb": ("auto", True, {"TERM": "dumb"}, False),
    "always-wins": ("always", False, {"NO_COLOR": "1"}, True),
    "never-wins": ("never", True, {}, False),
}


@pytest.mark.parametrize(("choice", "tty", "environ", "expected"), COLOR.values(), ids=COLOR)
def test_colour(choice: str, tty: bool, environ: dict[str, str], expected: bool) -> None:
    stream = Typed() if tty else io.StringIO()
    assert render.wants_color(choice, stream, environ) is expected


def test_only_the_word_error_is_coloured() -> None:
    error = Refused("rule", "not that", "do this")
    assert render.error_text(error, color=True) == (
        "keel: \x1b[1;31merror:\x1b[0m not that\nkeel: hint: do this"
    )


def test_a_tables_columns_line_up_and_no_cell_is_empty() -> None:
    found = render.table(("NAME", "STATE", "AGE"), [("a", "up", "3s"), ("longer", "", "1h")])
    assert found == ("NAME    STATE   AGE\na       up      3s\nlonger  <none>  1h")


PLAN = Plan(
    steps=(Step(action="raise", subject="keel0", why="missing"),),
    waiting=(
        Waiting(
            what="birth", waiting_for="b", why="is down", since=datetime(2026, 1, 1, tzinfo=UTC)
        ),
    ),
)


def test_a_plan_as_text_and_as_a_document() -> None:
    assert render.plan_text(PLAN) == "raise keel0: missing\nwaits for b: is down"
    assert render.plan_document(PLAN) == {
        "schema": "keel.plan/1",
        "steps": [{"action": "raise", "subject": "keel0", "why": "missing"}],
        "waiting": [{"what": "birth", "for": "b", "why": "is down"}],
    }


def test_an_empty_plan_says_so() -> None:
    assert render.plan_report(Plan()).text == "nothing to do"


STEERING = {
    "escape": ("a\x1b[2Jb", "a\\x1b[2Jb"),
    "one-byte-escape": ("a\x9b2Jb", "a\\x9b2Jb"),
    "carriage-return": ("bad\rgood", "bad\\rgood"),
    "turned-around": ("a\u202eb", "a\\u202eb"),
    "half-a-pair": ("a\ud800b", "a\\ud800b"),
    "lines-and-letters-stay": ("a\nbü", "a\nbü"),
}


@pytest.mark.parametrize(("said", "shown"), STEERING.values(), ids=STEERING)
def test_nothing_that_others_said_steers_the_terminal(said: str, shown: str) -> None:
    assert render.harmless(said) == shown
    error = PeerError("b", "reply-body", said)
    assert f"keel: error: b: {shown}" in render.error_text(error)
    raw = render.json_text(render.error_document(error))
    assert raw.isascii()
    assert "\x1b" not in raw
    assert json.loads(raw)["summary"] == f"b: {said}"
