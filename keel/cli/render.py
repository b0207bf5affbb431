"""Text and JSON from what commands answer; returns strings and writes nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TextIO

from keel.cli.verb import Report
from keel.errors import KeelError, PeerError, Refused
from keel.outcome import Plan

MAX_TEXT = 1000
_RED_BOLD = "\x1b[1;31m"
_RESET = "\x1b[0m"


def wants_color(choice: str, stream: TextIO, environ: Mapping[str, str]) -> bool:
    """--color wins over the environment; an empty NO_COLOR means unset."""
    if choice != "auto":
        return choice == "always"
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def error_text(error: KeelError, *, color: bool = False) -> str:
    """The two lines of every failure: what is wrong, and what to type."""
    word = f"{_RED_BOLD}error:{_RESET}" if color else "error:"
    said, remedy = _short(harmless(error.summary())), harmless(error.remedy())
    return f"keel: {word} {said}\nkeel: hint: {remedy}"


def _short(text: str) -> str:
    """What a command line or another program said may be of any length."""
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."


def error_document(error: KeelError) -> dict[str, str]:
    """The same for --json; a refusal's rule and a peer's name stand beside the code."""
    found = {"code": error.code, "summary": error.summary(), "remedy": error.remedy()}
    if isinstance(error, Refused):
        found["rule"] = error.rule
    if isinstance(error, PeerError):
        found["member"] = error.member
        found["rule"] = error.reason
    return found


def harmless(text: str) -> str:
    """The text without what steers a terminal: another node's or program's words may hold escapes,
    line ends and the marks that turn text around. Such a character shows as Python spells it."""
    return "".join(
        char if char == "\n" or char.isprintable() else ascii(char)[1:-1] for char in text
    )


def json_text(document: object) -> str:
    """ASCII alone, for the same reason (`harmless`)."""
    return json.dumps(document, indent=2, ensure_ascii=True).replace("\x7f", "\\u007f")


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns two spaces apart; empty cells read <none>, so that awk counts right."""
    cells = [list(headers), *[[cell or "<none>" for cell in row] for row in rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headers))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )


def plan_text(plan: Plan) -> str:
    """A dry run: one line per step, then what it waits for."""
    lines = [f"{step.action} {step.subject}: {step.why}" for step in plan.steps]
    lines += [f"waits for {item.waiting_for}: {item.why}" for item in plan.waiting]
    return "\n".join(lines) if lines else "nothing to do"


def plan_report(plan: Plan) -> Report:
    """What --dry-run prints."""
    return Report(text=plan_text(plan), document=plan_document(plan))


def plan_document(plan: Plan) -> dict[str, object]:
    return {
        "schema": "keel.plan/1",
        "steps": [
            {"action": step.action, "subject": step.subject, "why": step.why} for step in plan.steps
        ],
        "waiting": [
            {"what": item.what, "for": item.waiting_for, "why": item.why} for item in plan.waiting
        ],
    }
