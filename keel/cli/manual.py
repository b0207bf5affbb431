"""Man pages and completions, made from the tree of commands when the package is built.

`python3 -m keel.cli.manual DIRECTORY` writes them. A page is a group that PAGES names, with all
verbs below it but those that have a page of their own.
"""

from __future__ import annotations

import sys
from argparse import Action
from collections.abc import Iterator
from pathlib import Path

import keel
from keel.cli import completion, parser
from keel.cli.tree import TREE
from keel.cli.verb import Group, Verb
from keel.spec.model import SETTINGS

PAGES = ("keel", "keel mesh", "keel mesh etcd")

EXIT_STATUS = (
    ("0", "Done, already so, or healthily waiting."),
    ("1", "keel diff: it differs. keel mesh status --check: degraded. Nothing else."),
    ("2", "The command line or the spec is not valid."),
    ("3", "Refused by a rule; nothing was changed."),
    ("4", "Incomplete: some members were not reached. Running it again is safe."),
    ("5", "Another keel is changing this node."),
    ("70", "A bug in keel."),
    ("77", "Not root."),
    ("128+N", "Ended by signal N."),
)
FILES = (
    ("/etc/keel/spec.yaml", "What the operator wants of this node; see keel.spec(5)."),
    ("/var/lib/keel/mesh", "Keys, roster, invites and trust of this node in the mesh."),
    ("/var/lib/keel/etcd", "Certificates and state of the registry; on the holder also its root."),
    ("/etc/etcd/keel", "What is laid for etcd."),
    ("/var/lib/keel-etcd", "etcd's data."),
    ("/var/lib/keel/left", "Keys and state of meshes that this node has left."),
    (
        "/usr/share/doc/keel/mesh.md.gz",
        "The operator's manual, with a chapter for every warning and refusal; see zless(1).",
    ),
)
ENVIRONMENT = (
    ("NO_COLOR", "Not empty: no colour, unless --color says otherwise."),
    ("TERM", "dumb: no colour, unless --color says otherwise."),
)
SPEC_EXAMPLE = """\
installation: {mode: cloud_advanced}
node: {name: web-1}
network:
  wireguard:
    port: 51820
    endpoints: ["203.0.113.7:51820"]
overlays: {etcd: disabled}"""


def verbs(group: Group, path: str) -> Iterator[tuple[str, Verb]]:
    """Every verb below a group with its full words, but those of groups with their own page."""
    for child in group.children:
        words = f"{path} {child.name}"
        if isinstance(child, Verb):
            yield words, child
        elif words not in PAGES:
            yield from verbs(child, words)


def groups(group: Group, path: str) -> Iterator[tuple[str, Group]]:
    """A group and all below it."""
    yield path, group
    for child in group.children:
        if isinstance(child, Group):
            yield from groups(child, f"{path} {child.name}")


def page(path: str, group: Group) -> str:
    """The roff of one group's page."""
    name = path.replace(" ", "-")
    here = list(verbs(group, path))
    others = [other.replace(" ", "-") + "(8)" for other, _ in _pages() if other != path]
    return "\n".join(
        (
            _title(name, 8),
            *_section("NAME", f"{name} \\- {_text(group.summary)}"),
            *_section("SYNOPSIS", *_synopsis(here)),
            *_section("DESCRIPTION", _text(group.description)),
            *_section(
                "COMMANDS", *(line for words, verb in here for line in _command(words, verb))
            ),
            *_section("OPTIONS", *_options(parser.build(TREE)._actions)),
            *_section("EXIT STATUS", *_terms(EXIT_STATUS)),
            *_section("FILES", *_terms(FILES)),
            *_section("ENVIRONMENT", *_terms(ENVIRONMENT)),
            *_section("EXAMPLES", *_examples([verb.example for _, verb in here])),
            *_section("SEE ALSO", ", ".join([*others, "keel.spec(5)", "wg(8)", "etcdctl(1)"])),
            "",
        )
    )


def spec_page() -> str:
    """keel.spec(5), from the model's own table."""
    terms = ((item.path, f"{item.text} Default: {item.default}.") for item in SETTINGS)
    return "\n".join(
        (
            _title("keel.spec", 5),
            *_section("NAME", "keel.spec \\- what the operator wants of a node of keel's mesh"),
            *_section("SYNOPSIS", "/etc/keel/spec.yaml"),
            *_section(
                "DESCRIPTION",
                "A YAML file of at most 64 KiB. Unknown keys are refused, and every key may be "
                "left out.",
                ".PP",
                "keel changes overlays.etcd by itself and leaves everything else as it is.",
            ),
            *_section("SETTINGS", *_terms(terms)),
            *_section("EXAMPLES", *_literal(SPEC_EXAMPLE)),
            *_section("SEE ALSO", "keel(8)"),
            "",
        )
    )


def everything() -> dict[str, str]:
    """File name to content."""
    made = {f"{path.replace(' ', '-')}.8": page(path, group) for path, group in _pages()}
    return {
        **made,
        "keel.spec.5": spec_page(),
        "keel.bash": completion.bash(TREE),
        "_keel": completion.zsh(TREE),
        "keel.fish": completion.fish(TREE),
    }


def _pages() -> list[tuple[str, Group]]:
    return [(path, group) for path, group in groups(TREE, TREE.name) if path in PAGES]


def _title(name: str, section: int) -> str:
    return f'.TH {name.upper()} {section} "" "keel {keel.VERSION}" "keel"'


def _section(title: str, *lines: str) -> list[str]:
    return [f'.SH "{title}"', *lines]


def _synopsis(here: list[tuple[str, Verb]]) -> Iterator[str]:
    for words, verb in here:
        usage = parser.verb_parser(verb, prog=words).format_usage().removeprefix("usage: ")
        yield f".B {_text(' '.join(usage.split()))}"
        yield ".br"


def _command(words: str, verb: Verb) -> Iterator[str]:
    yield f'.SS "{_text(words)}"'
    yield _text(verb.description)
    yield from _options(parser.verb_parser(verb, prog=words)._actions)


def _options(actions: list[Action]) -> Iterator[str]:
    for action in actions:
        if action.help is None or action.metavar == "COMMAND":
            continue
        yield ".TP"
        yield f".B {_text(_spelling(action))}"
        yield _text(action.help % {"default": action.default, "prog": "keel"})


def _spelling(action: Action) -> str:
    value = action.metavar or (
        "|".join(map(str, action.choices)) if action.choices else action.dest.upper()
    )
    if not action.option_strings:
        return str(value)
    names = ", ".join(action.option_strings)
    return names if action.nargs == 0 else f"{names} {value}"


def _terms(terms: Iterator[tuple[str, str]] | tuple[tuple[str, str], ...]) -> Iterator[str]:
    for term, text in terms:
        yield ".TP"
        yield f".B {_text(term)}"
        yield _text(text)


def _examples(examples: list[str]) -> list[str]:
    return _literal("\n".join(examples))


def _literal(text: str) -> list[str]:
    return [".nf", *(_text(line) for line in text.splitlines()), ".fi"]


def _text(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return f"\\&{escaped}" if escaped.startswith(".") else escaped


def run() -> int:
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    for name, text in everything().items():
        (target / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(run())
