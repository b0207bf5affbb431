"""What was probably meant by a command line that makes no sense. Loaded only then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches

from keel.cli import completion
from keel.cli.verb import Group

SLIP, SAME = 0.6, 0.8
"""How alike a slip of the fingers is; of a word from elsewhere in the tree there has to be more:
`adopt` is no slip of another group's `drop`."""

_LOOK = ("keel mesh status", "keel mesh etcd status", "keel spec show", "keel mesh trust list")
_MAKE = ("keel mesh create", "keel mesh etcd form")
_LET_IN = ("keel mesh invite", "keel mesh trust add")
_TAKE_OUT = ("keel mesh remove", "keel mesh trust drop")
_UNDO = ("keel network undo",)
_NEW_PLACE = ("keel mesh etcd recover",)
OTHER_TOOLS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("list", "ls", "show", "get", "info", "health", "members", "nodes", "peers", "ping"), _LOOK
    ),
    **dict.fromkeys(("init", "new", "setup", "bootstrap"), _MAKE),
    **dict.fromkeys(("add", "token"), _LET_IN),
    **dict.fromkeys(("delete", "del", "rm", "drop", "kick", "evict", "expel"), _TAKE_OUT),
    **dict.fromkeys(("quit", "exit"), ("keel mesh leave",)),
    **dict.fromkeys(("revert", "rollback", "abort"), _UNDO),
    **dict.fromkeys(("commit", "accept"), ("keel network confirm",)),
    **dict.fromkeys(("config", "settings"), ("keel spec show",)),
    **dict.fromkeys(("validate", "lint"), ("keel spec check",)),
    **dict.fromkeys(("replace", "repair"), _NEW_PLACE),
    "renew": ("keel mesh etcd tend",),
}
"""What other programs call it: the first of these commands is meant, or the one below the words
that were typed before."""
NO_WORD: Mapping[str, tuple[str, str]] = {
    "keel mesh join": (
        "it takes no argument: a token is asked for, or read from a file, - for stdin",
        "keel mesh join --token-file FILE",
    ),
    "keel mesh leave": (
        "it takes out the node that it runs on, and no name",
        "keel mesh remove {word}",
    ),
}
"""What is said to a word after a command that takes none, and what was meant by it. What follows
join may be a token that lost its head, and is not echoed."""


def command(tree: Group, after: str, rest: Sequence[str]) -> str:
    """The command that was meant by the words `rest` after `after`, or nothing. In this order:
    another program's word, the same word after other words, a slip of the fingers, and a slip of a
    word after other words. What follows the wrong word and makes sense is kept."""
    word, *following = rest
    every = dict(_paths(tree, tree.name))
    here = {path: name for path, name in every.items() if path == f"{after} {name}"}
    meant = (
        _as_an_option(tree, word)
        or _of_another_tool(word, after, every)
        or next((path for path, name in every.items() if name == word), "")
        or _alike(word, here, SLIP)
        or _alike(word, every, SAME)
    )
    while following and f"{meant} {following[0]}" in every:
        meant = f"{meant} {following.pop(0)}"
    return meant


def explained(tree: Group, after: str, rest: Sequence[str]) -> str:
    """The command whose --help explains; after the word help it is that of the words behind it."""
    asked = " ".join((after, *rest[1:]))
    return asked if rest[0] == "help" and asked in dict(_paths(tree, tree.name)) else after


def no_word(after: str, unknown: Sequence[str]) -> tuple[str, str] | None:
    """What to say to a word after a command that has something to say to it, and what was meant."""
    word = unknown[0]
    if after not in NO_WORD or (word.startswith("-") and word != "-"):
        return None
    said, meant = NO_WORD[after]
    return said, meant.format(word=word)


def misspelt(tree: Group, after: str, argv: Sequence[str]) -> str:
    """As `option`, of a command line that lacks something besides."""
    known = completion.words_after(tree).get(after, [])
    unknown = [one for one in argv if one.startswith("--") and one.partition("=")[0] not in known]
    return option(tree, after, unknown) if unknown else ""


def option(tree: Group, after: str, unknown: Sequence[str]) -> str:
    """The command with the option that was meant by the first that it does not know: misspelt, at
    the wrong place, or without its dashes."""
    known = completion.words_after(tree).get(after, [])
    options = [name for name in known if name.startswith("--")]
    first = unknown[0].partition("=")[0]
    if not first.startswith("-"):
        return f"{after} --{first}" if f"--{first}" in options else ""
    close = get_close_matches(first, options, n=1, cutoff=SAME)
    return f"{after} {close[0]}" if close else ""


def _as_an_option(tree: Group, word: str) -> str:
    """What is an option of keel itself, typed as a command; whoever types help is told of it
    elsewhere."""
    known = completion.words_after(tree)[tree.name]
    return f"{tree.name} --{word}" if f"--{word}" in known and word != "help" else ""


def _alike(word: str, paths: Mapping[str, str], alike: float) -> str:
    close = get_close_matches(word, paths.values(), n=1, cutoff=alike)
    return next((path for path, name in paths.items() if close and name == close[0]), "")


def _of_another_tool(word: str, after: str, every: Mapping[str, str]) -> str:
    known = [path for path in OTHER_TOOLS.get(word, ()) if path in every]
    below = [path for path in known if path.rpartition(" ")[0] == after]
    return next(iter((*below, *known)), "")


def _paths(group: Group, path: str) -> Iterator[tuple[str, str]]:
    """Every line of words that is a command or a group, and its last word."""
    for child in group.children:
        words = f"{path} {child.name}"
        yield words, child.name
        if isinstance(child, Group):
            yield from _paths(child, words)
