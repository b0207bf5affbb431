"""Where an invite's token is read from: a file, stdin or a prompt, never an argument."""

from __future__ import annotations

import select
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from keel.cli import parser
from keel.errors import Refused, UsageError

if TYPE_CHECKING:
    from keel.mesh.token import Token

MAX_FILE_BYTES = 64 * 1024
"""Far above a token; a wrong file is not read to its end."""

PASTE_SECONDS = 0.1
"""The next line of a paste is there by then, over ssh too; nobody types one so soon."""


def read(source: str | None, *, stdin: TextIO | None = None, stderr: TextIO | None = None) -> Token:
    """The token; Refused by the reason, UsageError when there is nothing to read it from."""
    from keel.mesh.token import parse_token

    stdin = stdin or sys.stdin
    if source is None:
        return _prompted(stdin, stderr or sys.stderr)
    if source == "-":
        return parse_token(stdin.read(MAX_FILE_BYTES))
    if parser.token_in(source):
        raise parser.token_as_argument()
    if not source:
        raise UsageError("--token-file wants a file, or - for stdin", command="keel mesh join")
    try:
        with Path(source).open(encoding="utf-8", errors="replace") as file:
            return parse_token(file.read(MAX_FILE_BYTES))
    except OSError as error:
        raise UsageError(f"{source}: {error.strerror}", command="keel mesh join") from error


def _prompted(stdin: TextIO, stderr: TextIO) -> Token:
    """Asks until the lines so far are a token, or an empty one is the last: mail programs break
    lines, and a copy may begin with a line's end or have two for one."""
    from keel.mesh.token import parse_token

    if not stdin.isatty():
        raise UsageError(
            "no terminal to ask for the token; use --token-file FILE or -", command="keel mesh join"
        )
    text = ""
    prompt = "token (not shown): "
    with _unseen(stdin):
        while not _is_last(line := _line(prompt, stdin, stderr), stdin, begun=bool(text)):
            text += line.strip()
            try:
                return parse_token(text)
            except Refused as error:
                if error.rule not in ("token-damaged", "token-empty"):
                    raise  # more lines would not make it a token
                prompt = "goes on (empty line: that was all): " if text else prompt
        return parse_token(text)


@contextmanager
def _unseen(stdin: TextIO) -> Iterator[None]:
    """A terminal that shows nothing of what is typed. Lines that were pasted at once are all kept
    (getpass throws away what is there when it begins and ends), and what nobody asked for is thrown
    away at the end: the rest of a token has no business in a shell and its history."""
    before = termios.tcgetattr(stdin)
    silent = [*before]
    silent[3] &= ~termios.ECHO
    termios.tcsetattr(stdin, termios.TCSADRAIN, silent)
    try:
        yield
    finally:
        termios.tcsetattr(stdin, termios.TCSAFLUSH, before)


def _is_last(line: str, stdin: TextIO, *, begun: bool) -> bool:
    """Ctrl-D, or an empty line behind a token's beginning that is not amid a paste."""
    return not line or (begun and not line.strip() and not _more(stdin))


def _more(stdin: TextIO) -> bool:
    """Whether there are pasted lines that nobody read yet. A terminal gives one at a time."""
    return bool(select.select([stdin], [], [], PASTE_SECONDS)[0])


def _line(prompt: str, stdin: TextIO, stderr: TextIO) -> str:
    """A line with its end; nothing after Ctrl-D."""
    stderr.write(prompt)
    stderr.flush()
    try:
        return stdin.readline()
    finally:
        stderr.write("\n")
        stderr.flush()
