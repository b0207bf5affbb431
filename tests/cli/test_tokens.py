"""Where a token may come from."""

from __future__ import annotations

import io
from datetime import timedelta
from pathlib import Path

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


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


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
        tokens.read(None, stdin=io.StringIO(), ask=lambda prompt: TOKEN)
    assert "keel mesh join --help" in caught.value.remedy()


def typed(*lines: str) -> Token:
    """What these lines at the prompt come to; all of them have to be asked for."""
    left = list(lines)
    try:
        return tokens.read(None, stdin=Terminal(), ask=lambda prompt: left.pop(0))
    finally:
        assert not left


def test_a_prompt_ends_with_a_whole_token() -> None:
    assert typed(TOKEN).invite


def test_a_prompt_takes_a_wrapped_token() -> None:
    assert typed(TOKEN[:60], f" {TOKEN[60:]}") == typed(TOKEN)


def test_an_empty_line_ends_a_prompt() -> None:
    with pytest.raises(Refused) as caught:
        typed(TOKEN[:60], "")
    assert caught.value.rule == "token-damaged"


def test_a_line_that_cannot_be_the_start_of_a_token_ends_a_prompt() -> None:
    with pytest.raises(Refused) as caught:
        typed("hello")
    assert caught.value.rule == "token-prefix"


@pytest.mark.parametrize(
    ("before", "rule"), [((), "token-empty"), ((TOKEN[:60],), "token-damaged")]
)
def test_the_end_of_input_ends_a_prompt(before: tuple[str, ...], rule: str) -> None:
    left = list(before)

    def ask(prompt: str) -> str:
        if not left:
            raise EOFError
        return left.pop(0)

    with pytest.raises(Refused) as caught:
        tokens.read(None, stdin=Terminal(), ask=ask)
    assert caught.value.rule == rule


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
    assert options == Make(life=timedelta(hours=hours), wait=False)
