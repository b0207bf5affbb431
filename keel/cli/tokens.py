"""Where an invite's token is read from: a file, stdin or a prompt, never an argument."""

from __future__ import annotations

import sys
from collections.abc import Callable
from getpass import getpass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from keel.cli import parser
from keel.errors import Refused, UsageError

if TYPE_CHECKING:
    from keel.mesh.token import Token

MAX_FILE_BYTES = 64 * 1024
"""Far above a token; a wrong file is not read to its end."""


def read(
    source: str | None, *, stdin: TextIO | None = None, ask: Callable[[str], str] = getpass
) -> Token:
    """The token; Refused by the reason, UsageError when there is nothing to read it from."""
    from keel.mesh.token import parse_token

    stdin = stdin or sys.stdin
    if source is None:
        return _prompted(stdin, ask)
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


def _prompted(stdin: TextIO, ask: Callable[[str], str]) -> Token:
    """Asks until the lines so far are a token, or one is empty: mail programs break lines."""
    from keel.mesh.token import parse_token

    if not stdin.isatty():
        raise UsageError(
            "no terminal to ask for the token; use --token-file FILE or -", command="keel mesh join"
        )
    text = ""
    prompt = "token (not shown): "
    while line := _line(ask, prompt):
        text += line
        try:
            return parse_token(text)
        except Refused as error:
            if error.rule != "token-damaged":  # more lines would not make it a token
                raise
            prompt = "goes on (empty line: that was all): "
    return parse_token(text)


def _line(ask: Callable[[str], str], prompt: str) -> str:
    try:
        return ask(prompt).strip()
    except EOFError:  # Ctrl-D
        return ""
