"""From the tree of commands to argparse, and from a command line to a verb with its options."""

from __future__ import annotations

import re
from argparse import SUPPRESS, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Literal, NoReturn

import keel
from keel.cli.verb import Group, Options, Verb
from keel.errors import UsageError

TEXT_WIDTH = 78
_TOKEN = re.compile(r"keel[0-9]+\.[A-Za-z0-9_-]")
_UNKNOWN = re.compile(r"argument COMMAND: invalid choice: '(.*)' \(choose from ", re.DOTALL)
Colour = Literal["auto", "always", "never"]
COLOR_CHOICES: tuple[Colour, ...] = ("auto", "always", "never")


class Parser(ArgumentParser):
    """Raises UsageError instead of printing and leaving."""

    def error(self, message: str) -> NoReturn:
        unknown = _UNKNOWN.match(message)
        if unknown and not _TOKEN.search(message):
            raise _NoSuchCommand(self.prog, unknown[1])
        raise _usage(message, command=self.prog)


class _NoSuchCommand(Exception):  # never leaves `parse`, which knows the tree
    """After these words there is no such one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A command line that makes sense."""

    verb: Verb
    options: Options
    json: bool
    verbose: bool
    color: Colour


def parse(tree: Group, argv: Sequence[str]) -> Chosen:
    """UsageError with the command whose help explains; SystemExit(0) after --help or --version."""
    try:
        found, unknown = build(tree).parse_known_args(argv)
    except _NoSuchCommand as error:
        raise _no_such_command(tree, argv, *error.args) from None
    except UsageError as error:
        raise _with_meant(tree, error, argv) from None
    command = found.command
    if unknown:  # argparse would name the help of `keel` alone, which explains none of them
        raise _unknown_argument(tree, unknown, command)
    verb = getattr(found, "verb", None)
    if verb is None:
        words = ", ".join(_children(tree, command))
        raise UsageError(f"`{command}` needs a command after it: {words}", command=command)
    return Chosen(
        verb=verb,
        options=verb.options(found),
        json=bool(getattr(found, "json", False)),
        verbose=bool(getattr(found, "verbose", False)),
        color=color_of(argv),
    )


def color_of(argv: Sequence[str]) -> Colour:
    """What --color says, also in a command line that makes no sense otherwise; the last counts."""
    pairs = zip(("", *argv), argv, strict=False)
    said = [
        now if last == "--color" else now.removeprefix("--color=")
        for last, now in pairs
        if last == "--color" or now.startswith("--color=")
    ]
    return next((one for one in COLOR_CHOICES if said and one == said[-1]), "auto")


def build(tree: Group) -> Parser:
    """The argparse tree; man pages and completion are made from the same one."""
    parser = Parser(
        prog=tree.name,
        description=_filled(tree.description),
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"keel {keel.VERSION}")
    parser.set_defaults(command=parser.prog)
    _add_common(parser)
    _add_children(parser, tree)
    return parser


def verb_parser(verb: Verb, *, prog: str) -> Parser:
    """One verb alone, without the common options; for its chapter of the manual."""
    parser = Parser(prog=prog, add_help=False, allow_abbrev=False)
    _add_verb(parser, verb)
    return parser


def _add_children(parser: Parser, group: Group) -> None:
    words = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser)
    for child in group.children:
        made = words.add_parser(
            child.name,
            help=child.summary,
            description=_filled(child.description),
            epilog=f"example:\n  {child.example}" if isinstance(child, Verb) else None,
            formatter_class=RawDescriptionHelpFormatter,
            allow_abbrev=False,  # what is cut short today may be two things tomorrow
        )
        made.set_defaults(command=made.prog)
        _add_common(made)
        if isinstance(child, Group):
            _add_children(made, child)
        else:
            _add_verb(made, child)


def _add_verb(parser: Parser, verb: Verb) -> None:
    parser.set_defaults(verb=verb)
    verb.add_arguments(parser)
    if verb.changes:
        parser.add_argument(
            "--dry-run", action="store_true", help="show what would be done and change nothing"
        )
    if verb.reads or verb.changes:
        parser.add_argument("--json", action="store_true", help="print one JSON document")


def _add_common(parser: Parser) -> None:
    """Accepted before and after the command's words; SUPPRESS keeps the later from undoing."""
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        default=SUPPRESS,
        help="show on stderr what is run and, after an error, where it came from",
    )
    parser.add_argument(
        "--color",
        choices=COLOR_CHOICES,
        default=SUPPRESS,
        help="colour on terminals only (auto), always or never",
    )


def _usage(message: str, *, command: str) -> UsageError:
    if _TOKEN.search(message):  # not echoed: where this goes may be a log
        return token_as_argument()
    return UsageError(message, command=command)


def token_in(text: str) -> bool:
    """Whether an invite's token, or a part of one that its start gives away, stands in it."""
    return _TOKEN.search(text) is not None


def token_as_argument() -> UsageError:
    return UsageError(
        "a token is never an argument: everyone on this host could read it; leave it out"
        " and it is asked for",
        command="keel mesh join",
    )


def _no_such_command(tree: Group, argv: Sequence[str], after: str, word: str) -> UsageError:
    """With the commands that there are, and the one that was probably meant."""
    from keel.cli import meant  # costs more than parsing does

    rest = argv[argv.index(word) :] if word in argv else (word,)
    words = ", ".join(_children(tree, after))
    return UsageError(
        f"there is no command `{after} {word}`; there are {words}",
        command=meant.explained(tree, after, rest),
        meant=meant.command(tree, after, rest),
    )


def _unknown_argument(tree: Group, unknown: Sequence[str], command: str) -> UsageError:
    from keel.cli import meant

    text = " ".join(unknown)
    word = meant.no_word(command, unknown)
    if word is not None and not token_in(text):
        said, instead = word
        return UsageError(f"`{command}`: {said}", command=command, meant=instead)
    error = _usage(f"unrecognized arguments: {text}", command=command)
    error.meant = meant.option(tree, command, unknown)
    return error


def _with_meant(tree: Group, error: UsageError, argv: Sequence[str]) -> UsageError:
    """What is lacking may be there, misspelt."""
    from keel.cli import meant

    error.meant = meant.misspelt(tree, error.command, argv)
    return error


def _children(tree: Group, path: str) -> tuple[str, ...]:
    """The words that may follow these."""
    group = tree
    for word in path.split()[1:]:
        group = next(c for c in group.children if isinstance(c, Group) and c.name == word)
    return tuple(child.name for child in group.children)


def _filled(text: str) -> str:
    """A unit's name stays in one piece: it is there to be copied."""
    return fill(text, width=TEXT_WIDTH, break_on_hyphens=False)


def flag(found: Namespace, name: str) -> bool:
    """A store_true option that this verb may not have."""
    return bool(getattr(found, name, False))
