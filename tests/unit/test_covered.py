"""The gate of `make coverage` is red for what it should be red for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.covered import MOST, Line, judge, missed, read_list

REPOSITORY = Path(__file__).resolve().parents[2]
PRAGMA = "# pragma: no " + "cover"

MODULE = f"""\
from enum import Enum


class Colour(Enum):
    RED = 1
    BLUE = 2


def name(colour: Colour) -> str:
    match colour:
        case Colour.RED:
            return "red"
        case Colour.BLUE:
            return "blue"


def sign(number: int) -> str:
    if number < 0:
        return "-"
    return "+"


def never() -> None:  {PRAGMA}
    sign(0)


def half(number: int) -> int:
    if number:
        number += 1
    return number
"""
WHOLE = "name(Colour.RED), name(Colour.BLUE), sign(1), sign(-1), never(), half(0), half(1)"
COVERAGE = """\
import sys
from coverage.cmdline import main

rules = sys.argv[1]
for one, *rest in (["run", "keel/mesh/run.py"], ["combine", "--quiet"], ["json", "--quiet"]):
    assert main([one, rules, *rest]) in (0, None)
"""
"""The commands of `make coverage`, in one process."""
SIGN = 'keel/mesh/x.py | sign | return "-"'
NEVER = "keel/mesh/x.py | never | sign(0)"


def _faults(tmp_path: Path, called: str, listed: str) -> list[str]:
    """What the gate says when a program has called just this."""
    place = tmp_path / "keel/mesh"
    place.mkdir(parents=True)
    (place / "x.py").write_text(MODULE)
    (place / "run.py").write_text(f"from x import *\n{called}\n")
    (tmp_path / "build/coverage").mkdir(parents=True)
    rules = f"--rcfile={REPOSITORY / 'tests/coveragerc'}"
    subprocess.run([sys.executable, "-c", COVERAGE, rules], cwd=tmp_path, check=True)
    found = json.loads((tmp_path / "build/coverage/report.json").read_text())["files"]
    modules = {"keel/mesh/x.py": missed("keel/mesh/x.py", MODULE, found["keel/mesh/x.py"])}
    return list(judge(modules, read_list(listed, {"packages"})))


@pytest.mark.tools
@pytest.mark.parametrize(
    ("called", "listed", "faults"),
    [
        pytest.param(WHOLE, "", [], id="all ran; a match has no way past its last case"),
        pytest.param(
            WHOLE.replace("sign(-1),", ""),
            "",
            ['keel/mesh/x.py:19: never runs: return "-"'],
            id="a line that never ran",
        ),
        pytest.param(
            WHOLE.replace("sign(-1),", ""),
            f"{SIGN} | packages",
            [],
            id="a line that never ran and is listed, with the branch to it",
        ),
        pytest.param(
            WHOLE.replace("half(0),", ""),
            "",
            ["keel/mesh/x.py:28: never goes to 30"],
            id="a branch that was never taken",
        ),
        pytest.param(
            WHOLE.replace("name(Colour.BLUE),", ""),
            "",
            [
                "keel/mesh/x.py:13: never runs: case Colour.BLUE:",
                'keel/mesh/x.py:14: never runs: return "blue"',
            ],
            id="a last case that never came",
        ),
        pytest.param(
            WHOLE.replace("never(),", ""),
            "",
            ["keel/mesh/x.py:24: never runs: sign(0)"],
            id="a pragma has no power",
        ),
        pytest.param(
            WHOLE,
            f"{SIGN} | packages",
            [f"listed, but 0 lines that never ran are this: {SIGN}"],
            id="a listed line that ran",
        ),
        pytest.param(
            WHOLE,
            "keel/mesh/x.py | gone | return 1 | packages",
            ["listed, but 0 lines that never ran are this: keel/mesh/x.py | gone | return 1"],
            id="a listed line that is not there",
        ),
        pytest.param(
            WHOLE.replace("never(),", ""),
            f"{NEVER} | imagined",
            ["line 1 of the list: no scenario imagined"],
            id="a scenario that does not exist",
        ),
    ],
)
def test_the_gate_is_red_for_each_of_its_reasons(
    tmp_path: Path, called: str, listed: str, faults: list[str]
) -> None:
    assert _faults(tmp_path, called, listed) == faults


def test_only_so_many_lines_may_be_listed() -> None:
    text = "\n".join(f"keel/mesh/x.py | f | line{n} | packages" for n in range(MOST + 1))
    listed = read_list(text, {"packages"})
    assert Line("keel/mesh/x.py", "f", "line0") in listed.lines
    assert listed.faults == [f"{MOST + 1} lines are listed, {MOST} at most may be"]


def test_a_list_that_is_not_of_its_form_is_red() -> None:
    assert read_list("# a comment\n\nx | y | z\nx | 90\n", set()).faults == [
        "line 3 of the list is not of its form",
        "line 4 of the list is not of its form",
    ]


def test_no_file_asks_to_be_left_out() -> None:
    places = ("keel", "tests", "netns", "systemd", "debian", "docs")
    files = [path for place in places for path in (REPOSITORY / place).rglob("*")]
    for path in (*files, REPOSITORY / "pyproject.toml", REPOSITORY / "Makefile"):
        if path.is_file() and path.suffix in {".py", ".toml", "", ".md", ".j2", ".txt"}:
            assert PRAGMA.removeprefix("# ") not in path.read_text(errors="replace"), path
