"""Whole commands as scripts: tests/golden/*.txt say what goes in and exactly what comes out.

    --- given PATH            a file of the node before the first command
    --- $ keel ...            a command; what follows is about it
    --- $ write PATH          puts the lines that follow into a file
    --- stdout, --- stderr    exactly; left out: nothing
    --- exit N                left out: 0
    --- file PATH             its exact content afterwards
    --- present PATH, --- absent PATH

A word's @ is the node's root, which is shown as /. `KEEL_GOLDEN=write pytest
tests/cli/test_golden.py` writes what comes out into the scripts, to be read before it is committed.
"""

from __future__ import annotations

import io
import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from keel.cli.main import main
from tests.fakes import FakeNet, FakeNode

SCRIPTS = sorted((Path(__file__).parent.parent / "golden").glob("*.txt"))


@dataclass
class Part:
    head: str
    body: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.body)


def parse(text: str) -> tuple[list[str], list[Part]]:
    """The comment at the top, and the parts."""
    comment: list[str] = []
    parts: list[Part] = []
    for line in text.splitlines():
        if line.startswith("--- "):
            parts.append(Part(line.removeprefix("--- ")))
        elif parts:
            parts[-1].body.append(line)
        else:
            comment.append(line)
    return comment, parts


def steps(parts: list[Part]) -> list[list[Part]]:
    """Each command with what follows it."""
    found: list[list[Part]] = []
    for part in parts:
        if part.head.startswith("$ "):
            found.append([part])
        elif found:
            found[-1].append(part)
    return found


def run(node: FakeNode, command: str) -> tuple[str, str, int]:
    out, err = io.StringIO(), io.StringIO()
    argv = [word.replace("@", f"{node.root}/") for word in shlex.split(command)]
    assert argv[0] == "keel"
    status = main(argv[1:], stdout=out, stderr=err, make_host=lambda chosen, stderr: node.host)
    root = f"{node.root}/"
    return out.getvalue().replace(root, "/"), err.getvalue().replace(root, "/"), status


def write(node: FakeNode, name: str, text: str) -> None:
    target = node.root / name
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)


def seen(node: FakeNode, step: list[Part]) -> list[Part]:
    """The step as it is, with the same claims about files."""
    if step[0].head.startswith("$ write "):
        write(node, step[0].head.removeprefix("$ write "), step[0].text)
        return step
    out, err, status = run(node, step[0].head.removeprefix("$ "))
    found = [Part(step[0].head)]
    found += [
        Part(name, text.splitlines()) for name, text in (("stdout", out), ("stderr", err)) if text
    ]
    found += [Part(f"exit {status}")] if status else []
    for part in step[1:]:
        word, _, name = part.head.partition(" ")
        path = node.root / name
        if word == "file":
            found.append(Part(part.head, path.read_text().splitlines()))
        elif word in ("present", "absent"):
            found.append(Part(f"{'present' if path.exists() else 'absent'} {name}"))
    return found


def written(parts: list[Part]) -> str:
    return "".join(f"--- {part.head}\n{part.text}" for part in parts)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script(script: Path, tmp_path: Path) -> None:
    comment, parts = parse(script.read_text())
    node = FakeNet(tmp_path).node("web-1")
    for part in parts:
        word, _, name = part.head.partition(" ")
        if word == "given":
            write(node, name, part.text)
    given = [part for part in parts if part.head.startswith("given ")]
    happened = given + [part for step in steps(parts) for part in seen(node, step)]
    if os.environ.get("KEEL_GOLDEN") == "write":
        script.write_text("".join(f"{line}\n" for line in comment) + written(happened))
    assert written(happened) == written(parts)


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 2
