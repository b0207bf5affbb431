"""Every command that keel tells a person to type is one that it has."""

from __future__ import annotations

import ast
import functools
import re
import shlex
import tokenize
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path

import pytest

import keel
from keel.cli.parser import build, verb_parser
from keel.cli.tree import TREE
from keel.cli.verb import Group, Verb

REPOSITORY = Path(keel.__file__).parent.parent
QUOTED = re.compile(r"\\?`(keel(?: [^`\\]*)?)\\?`")
FENCED = re.compile(r"^```\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HOLE = "VALUE"
"""What an f-string fills in."""


def said_in_python(path: Path) -> Iterator[str]:
    """Every literal of a module (joined, its holes filled) and every comment that can name a
    command: telling comments apart takes as long as all the rest."""
    text = path.read_text()
    tree = ast.parse(text)
    inside = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else HOLE for part in node.values
            )
        elif isinstance(node, ast.Constant) and id(node) not in inside:
            yield str(node.value)
    if not re.search(r"#.*`keel", text):
        return
    with path.open("rb") as file:
        yield from (
            t.string for t in tokenize.tokenize(file.readline) if t.type == tokenize.COMMENT
        )


def said_in_text(path: Path) -> Iterator[str]:
    """A document or script; a line of a fenced block that starts with keel is a command, too."""
    text = path.read_text()
    yield text
    for block in FENCED.findall(text):
        lines = [line.partition("#")[0].strip() for line in block.splitlines()]
        yield from (f"`{line}`" for line in lines if line.startswith("keel "))


@functools.cache
def commands() -> list[tuple[str, str]]:
    """Where it is said, and what."""
    texts = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
    texts += [p for p in sorted((REPOSITORY / "debian").rglob("*")) if p.is_file()]
    texts += [p for p in sorted((REPOSITORY / "systemd").rglob("*")) if p.is_file()]
    found = set()
    for path in (*sorted((REPOSITORY / "keel").rglob("*.py")), *texts):
        said = said_in_python(path) if path.suffix == ".py" else said_in_text(path)
        for text in said:
            for command in QUOTED.findall(text):
                found.add((str(path.relative_to(REPOSITORY)), " ".join(command.split())))
    return sorted(found)


def verb_of(words: list[str]) -> tuple[Verb | None, list[str]]:
    """The verb that the words lead to (None: a group, named as such), and what is left of them.
    `a|b` stands for both."""
    here: Group | Verb = TREE
    while words and isinstance(here, Group) and not words[0].startswith("-"):
        names = words[0].split("|")
        children = {child.name: child for child in here.children}
        lacking = [name for name in names if name not in children]
        if lacking:
            raise LookupError(f"{here.name} has no {', '.join(lacking)}")
        here, words = children[names[0]], words[1:]
    return (here if isinstance(here, Verb) else None), words


def check(command: str) -> None:
    """LookupError when the tree has no such command or the command no such option."""
    verb, left = verb_of(shlex.split(command)[1:])
    parser: ArgumentParser = (
        build(TREE) if verb is None else verb_parser(verb, prog=f"keel {verb.name}")
    )
    known = {option for action in parser._actions for option in action.option_strings}
    known |= {"--help", "-h", "-v", "--verbose", "--color"}
    for word in left:
        if word.startswith("-") and word.partition("=")[0] not in known:
            raise LookupError(f"{command} has no {word}")


def test_the_walk_sees_what_is_said() -> None:
    found = {command for _, command in commands()}
    assert {"keel mesh status", "keel spec apply", "keel mesh invite --cancel ID"} <= found
    assert len(found) > 20


@pytest.mark.parametrize(
    "command",
    ["keel mesh fly", "keel fly", "keel mesh etcd fly --now", "keel mesh join --fly", "keel --fly"],
)
def test_a_command_that_is_not_there_is_found(command: str) -> None:
    with pytest.raises(LookupError):
        check(command)


def test_every_command_that_is_said_exists() -> None:
    wrong = []
    for where, command in commands():
        try:
            check(command)
        except LookupError as error:
            wrong.append(f"{where}: `{command}`: {error}")
    assert not wrong, "\n".join(wrong)
