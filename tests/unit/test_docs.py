"""docs/mesh.md against the code: every reason that an operator can meet has its anchor."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import keel
from keel import errors
from keel.mesh import alerts
from keel.mesh.warnings import KINDS

REPOSITORY = Path(keel.__file__).parent.parent
MANUAL = REPOSITORY / "docs" / "mesh.md"
CHAPTER = "## Warnings and refusals"
REASON = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")

# Where a reason stands in a call of that name: its position among the arguments.
REASONS = {
    "Refused": 0,
    "Rejection": 0,
    "PeerError": 1,
    "_plain": 0,
    "_proven": 0,
    "_bad": 0,
    "Rules": 0,
}


def error_classes(root: type[errors.KeelError]) -> Iterator[type[errors.KeelError]]:
    for child in root.__subclasses__():
        yield child
        yield from error_classes(child)


def reasons_in(source: str) -> set[str]:
    """Every literal reason that this module can give."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if name not in REASONS:
            continue
        arguments = node.args if name == "Rules" else node.args[REASONS[name] :][:1]
        arguments = [*arguments, *(k.value for k in node.keywords if k.arg in ("rule", "reason"))]
        found |= {
            argument.value
            for argument in arguments
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
        }
    return found


@functools.cache
def in_code() -> set[str]:
    modules = sorted((REPOSITORY / "keel").rglob("*.py"))
    reasons = {reason for path in modules for reason in reasons_in(path.read_text())}
    return reasons | set(KINDS) | {error.code for error in error_classes(errors.KeelError)}


def in_manual() -> list[str]:
    return [name for name, _ in parts()]


def parts() -> list[tuple[str, str]]:
    """Each reason, and what the manual says of it, on one line."""
    chapter = MANUAL.read_text().partition(f"\n{CHAPTER}\n")[2]
    found = re.split(r"^### (\S+)$", chapter, flags=re.MULTILINE)[1:]
    return [
        (name, " ".join(text.split())) for name, text in zip(found[::2], found[1::2], strict=True)
    ]


def test_every_reason_has_an_anchor_and_no_anchor_is_stale() -> None:
    missing = sorted(in_code() - set(in_manual()))
    stale = sorted(set(in_manual()) - in_code())
    assert not missing, f"docs/mesh.md lacks ### {', ### '.join(missing)}"
    assert not stale, f"docs/mesh.md has what the code no longer says: ### {', ### '.join(stale)}"


def test_no_anchor_stands_twice_and_none_is_empty() -> None:
    names = in_manual()
    assert sorted(set(names)) == sorted(names)
    for name, body in parts():
        assert len(body) > 20, f"### {name} says nothing"


def test_reasons_have_one_form() -> None:
    classes = {error.code for error in error_classes(errors.KeelError)}
    odd = {code for code in in_code() - classes if not REASON.fullmatch(code) and "-" in code}
    assert not odd


def test_error_codes_are_unique_and_have_a_known_exit() -> None:
    found = list(error_classes(errors.KeelError))
    assert len({error.code for error in found}) == len(found)
    assert all(isinstance(error.exit, errors.Exit) for error in found)


def test_the_manual_says_the_exit_status_of_every_error() -> None:
    said = dict(parts())
    for error in error_classes(errors.KeelError):
        assert f"Exit status {int(error.exit)}." in said[error.code], error.code


def test_the_manual_names_what_is_alerted_at_once_and_nothing_else() -> None:
    section = MANUAL.read_text().partition("\n### Alerts\n")[2].partition("\n### ")[0]
    assert set(re.findall(r"\(#([a-z-]+)\)", section)) == alerts.AT_ONCE
    assert set(KINDS) >= alerts.AT_ONCE


def test_the_manual_names_every_gauge_and_no_other() -> None:
    made = {
        name
        for module in ("gauges", "tended")
        for name in re.findall(
            r'"(keel_[a-z_]+)"', (REPOSITORY / f"keel/mesh/{module}.py").read_text()
        )
    }
    assert set(re.findall(r"`(keel_[a-z_]+)", MANUAL.read_text())) == made
