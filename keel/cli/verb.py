"""What a command is: its words, its options as a frozen record, and what running it answers.

One module per group of commands builds `Verb`s; keel.cli.tree lists them. Nothing here, nor in a
group's module at import, may load a flow or a library: `keel --version` has to stay cheap, so each
`run` imports its flow when it is called. No argparse.Namespace travels past `Verb.options`,
which raises UsageError for options that contradict each other.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from keel.errors import Exit

if TYPE_CHECKING:
    from keel.ports import Host


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a command says: `text` to stdout, `notes` to stderr, or `document` with --json."""

    text: str = ""
    document: object = None
    notes: tuple[str, ...] = ()
    exit: Exit = Exit.DONE


RESUME = "run it again; it goes on where it stopped"

Answer = Report | Iterator[Report]
"""Several reports when there is something to say before the end; the last one's status counts."""


class Options(Protocol):
    """A verb's options, complete and valid: a frozen dataclass."""

    def run(self, host: Host) -> Answer:
        """Do it; KeelError when it cannot be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """One command. `reads` gives it --json, `changes` gives it --dry-run as well; `resume` is what
    to do after it was interrupted."""

    name: str
    summary: str
    description: str
    example: str
    add_arguments: Callable[[ArgumentParser], None]
    options: Callable[[Namespace], Options]
    reads: bool = False
    changes: bool = False
    needs_root: bool = True
    resume: str = RESUME


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A word that other words follow, such as `keel mesh`."""

    name: str
    summary: str
    description: str
    children: tuple[Group | Verb, ...]


def no_arguments(parser: ArgumentParser) -> None:
    """For verbs that take none of their own."""
    del parser
