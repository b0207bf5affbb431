"""From the tree of commands to argparse, and from a command line to a verb with its options."""

from __future__ import annotations

import re
from argparse import SUPPRESS, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import NoReturn

import keel
from keel.cli.verb import Group, Options, Verb
from keel.errors import UsageError

TEXT_WIDTH = 78
_TOKEN = re.compile(r"keel[0-9]+\.[A-Za-z0-9_-]")
COLOR_CHOICES = ("auto", "always", "never")


class Parser(ArgumentParser):
    """Raises UsageError instead of printing and leaving."""

    def error(self, message: str) -> NoReturn:
        raise _usage(message, command=self.prog)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A command line that makes sense."""

    verb: Verb
    options: Options
    json: bool
    verbose: bool
    color: str


def parse(tree: Group, argv: Sequence[str]) -> Chosen:
    """UsageError with the command whose help explains; SystemExit(0) after --help or --version."""
    found, unknown = build(tree).parse_known_args(argv)
    command = found.command
    if unknown:  # argparse would name the help of `keel` alone, which explains none of them
        raise _usage(f"unrecognized arguments: {' '.join(unknown)}", command=command)
    verb = getattr(found, "verb", None)
    if verb is None:
        raise UsageError(f"`{command}` needs a command after it", command=command)
    return Chosen(
        verb=verb,
        options=verb.options(found),
        json=bool(getattr(found, "json", False)),
        verbose=bool(getattr(found, "verbose", False)),
        color=getattr(found, "color", "auto"),
    )


def build(tree: Group) -> Parser:
    """The argparse tree; man pages and completion are made from the same one."""
    parser = Parser(
        prog=tree.name,
        description=_filled(tree.description),
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"keel {keel.VERSION}")
    parser.set_defaults(command=parser.prog)
    _add_common(parser)
    _add_children(parser, tree)
    return parser


def verb_parser(verb: Verb, *, prog: str) -> Parser:
    """One verb alone, without the common options; for its chapter of the manual."""
    parser = Parser(prog=prog, add_help=False)
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
        return UsageError(
            "a token is never an argument: everyone on this host could read it; leave it out"
            " and it is asked for",
            command="keel mesh join",
        )
    return UsageError(message, command=command)


def _filled(text: str) -> str:
    """A unit's name stays in one piece: it is there to be copied."""
    return fill(text, width=TEXT_WIDTH, break_on_hyphens=False)


def flag(found: Namespace, name: str) -> bool:
    """A store_true option that this verb may not have."""
    return bool(getattr(found, name, False))
