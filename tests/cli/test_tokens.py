"""Where a token may come from."""

from __future__ import annotations

import io
import os
import pty
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TextIO

import pytest

from keel.cli import parser, tokens
from keel.cli.invite import Make, parse_life
from keel.cli.tree import TREE
from keel.errors import Refused, UsageError
from keel.mesh.token import Token
from tests.cli.test_golden import parse

GOLDEN = Path(__file__).parent.parent / "golden" / "invite.txt"
TOKEN = next(
    line for part in parse(GOLDEN.read_text())[1] for line in part.body if line.startswith("keel1.")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal:
    """Both ends of one, the program's as files."""

    operator: int
    stdin: TextIO
    stderr: TextIO

    def shown(self) -> bytes:
        """What the operator sees by now."""
        seen = b""
        while select.select([self.operator], [], [], 0)[0]:
            seen += os.read(self.operator, 4096)
        return seen


@contextmanager
def terminal() -> Iterator[Terminal]:
    operator, program = pty.openpty()
    with (
        open(program, encoding="utf-8", closefd=False) as stdin,
        open(program, "w", encoding="utf-8") as stderr,
    ):
        yield Terminal(operator=operator, stdin=stdin, stderr=stderr)
    os.close(operator)


def test_a_file_may_be_wrapped_and_indented(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(f"\n  {TOKEN[:60]}\n  {TOKEN[60:]}  \r\n")
    assert tokens.read(str(path)) == tokens.read(str(path))


def test_a_huge_or_binary_file_is_no_token(tmp_path: Path) -> None:
    path = tmp_path / "disk.img"
    path.write_bytes(b"\xff\x00" * (1 << 20))
    with pytest.raises(Refused) as caught:
        tokens.read(str(path))
    assert caught.value.rule == "token-prefix"


def test_a_file_that_is_missing_is_the_command_lines_fault(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        tokens.read(str(tmp_path / "nowhere"))


def test_stdin() -> None:
    assert tokens.read("-", stdin=io.StringIO(TOKEN)).invite


def test_without_a_terminal_nobody_is_asked() -> None:
    with pytest.raises(UsageError, match="--token-file") as caught:
        tokens.read(None, stdin=io.StringIO(TOKEN))
    assert "keel mesh join --help" in caught.value.remedy()


def pasted(text: str, *, seen: list[bytes] | None = None) -> Token:
    """What a prompt makes of this text, all of it put in at once when it asked for the first line;
    `seen` gets what the terminal showed."""
    with terminal() as there:
        shown = []

        def paste() -> None:
            shown.append(os.read(there.operator, 4096))
            os.write(there.operator, text.encode())

        hand = threading.Thread(target=paste)
        hand.start()
        try:
            return tokens.read(None, stdin=there.stdin, stderr=there.stderr)
        finally:
            hand.join()
            assert not select.select([there.stdin], [], [], 0)[0], "left for the shell"
            if seen is not None:
                seen += [*shown, there.shown()]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"{TOKEN}\n", id="one line"),
        pytest.param(f"{TOKEN[:60]}\n {TOKEN[60:120]}\n{TOKEN[120:]}\n", id="wrapped"),
        pytest.param(f"\n\n{TOKEN}\n", id="after empty lines"),
        pytest.param(f"{TOKEN[:60]}\r\n{TOKEN[60:]}\r\n", id="with empty lines between"),
        pytest.param(f'"{TOKEN[:60]}\n{TOKEN[60:]}"\n', id="in quotes"),
        pytest.param(f"> {TOKEN[:60]}\n> {TOKEN[60:]}\n", id="out of an answer"),
        pytest.param(f"{TOKEN}\nkeel mesh status\n", id="with a line that nobody asked for"),
    ],
)
def test_a_prompt_takes_a_token_as_it_is_pasted_and_shows_none_of_it(text: str) -> None:
    seen: list[bytes] = []
    assert pasted(text, seen=seen) == tokens.read("-", stdin=io.StringIO(TOKEN))
    assert b"token (not shown): " in seen[0]
    assert not [part for part in text.split() if part.encode() in b"".join(seen)]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        pytest.param(f"{TOKEN[:60]}\n\n", "token-damaged", id="an empty line is the end"),
        pytest.param("hello\nworld\n", "token-prefix", id="more lines would not make it a token"),
        pytest.param("\x04", "token-empty", id="Ctrl-D at once"),
        pytest.param("\n\x04", "token-empty", id="Ctrl-D after a line's end"),
        pytest.param(f"{TOKEN[:60]}\n\x04", "token-damaged", id="Ctrl-D in the middle"),
    ],
)
def test_a_prompt_ends_where_no_token_comes(text: str, rule: str) -> None:
    with pytest.raises(Refused) as caught:
        pasted(text)
    assert caught.value.rule == rule


def test_the_terminal_shows_again_what_is_typed_after_a_prompt() -> None:
    with terminal() as there:
        os.write(there.operator, f"{TOKEN}\n".encode())
        tokens.read(None, stdin=there.stdin, stderr=there.stderr)
        there.shown()
        os.write(there.operator, b"ls\n")
        assert there.stdin.readline() == "ls\n"
        assert b"ls" in there.shown()


def test_a_token_in_the_place_of_its_file_is_not_echoed() -> None:
    with pytest.raises(UsageError, match="never an argument") as caught:
        tokens.read(TOKEN)
    assert TOKEN[6:] not in caught.value.summary()


def test_no_file_is_the_command_lines_fault() -> None:
    with pytest.raises(UsageError, match="wants a file"):
        tokens.read("")


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1800), ("24h", 86400)])
def test_a_life(text: str, seconds: int) -> None:
    assert parse_life(text).total_seconds() == seconds


@pytest.mark.parametrize("text", ["", "30", "m", "-5m", "1d", "9999999s", "1.5h"])
def test_no_life(text: str) -> None:
    with pytest.raises(ValueError, match="a number and"):
        parse_life(text)


@pytest.mark.parametrize("other", ["--list", "--cancel 00"])
def test_a_life_is_a_new_invites_alone(other: str) -> None:
    with pytest.raises(UsageError, match="--life is for a new invite"):
        parser.parse(TREE, ["mesh", "invite", *other.split(), "--life", "30m"])


@pytest.mark.parametrize(("said", "hours"), [("", 24), ("--life 2h", 2)])
def test_without_one_it_is_a_day(said: str, hours: int) -> None:
    options = parser.parse(TREE, ["mesh", "invite", *said.split()]).options
    assert options == Make(life=timedelta(hours=hours), wait=False, dry_run=False)
