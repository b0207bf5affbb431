"""What the package build makes from the tree of commands."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from keel.cli import completion, manual, parser
from keel.cli.tree import TREE
from keel.cli.verb import Group, Verb


def all_verbs(group: Group, path: str) -> list[tuple[str, Verb]]:
    return [
        found
        for child in group.children
        for found in (
            [(f"{path} {child.name}", child)]
            if isinstance(child, Verb)
            else all_verbs(child, f"{path} {child.name}")
        )
    ]


VERBS = all_verbs(TREE, "keel")
MADE = manual.everything()
PAGES = {name: text for name, text in MADE.items() if name.endswith(".8")}


def plain(roff: str) -> str:
    return roff.replace("\\-", "-").replace("\\(aq", "'").replace("\\e", "\\")


def chapters() -> dict[str, str]:
    """Command -> its chapter, over all pages."""
    found: dict[str, str] = {}
    for text in PAGES.values():
        commands = plain(text).split('.SH "COMMANDS"')[1].split("\n.SH ")[0]
        for chapter in commands.split("\n.SS ")[1:]:
            title, _, body = chapter.partition("\n")
            assert title.strip('"') not in found, f"{title} stands on two pages"
            found[title.strip('"')] = body
    return found


def test_every_command_has_one_chapter_and_no_other_is_there() -> None:
    assert set(chapters()) == {words for words, _ in VERBS}


@pytest.mark.parametrize(("words", "verb"), VERBS, ids=[words for words, _ in VERBS])
def test_a_chapter_names_the_commands_options_and_no_others(words: str, verb: Verb) -> None:
    made = parser.verb_parser(verb, prog=words)
    options = {name for action in made._actions for name in action.option_strings}
    named = set(re.findall(r"^\.B .*", chapters()[words], re.MULTILINE))
    assert {option for line in named for option in re.findall(r"--?[a-z][a-z-]*", line)} == options


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_its_sections_in_order(name: str) -> None:
    assert re.findall(r'^\.SH "(.*)"', MADE[name], re.MULTILINE) == [
        "NAME",
        "SYNOPSIS",
        "DESCRIPTION",
        "COMMANDS",
        "OPTIONS",
        "EXIT STATUS",
        "FILES",
        "ENVIRONMENT",
        "EXAMPLES",
        "SEE ALSO",
    ]


@pytest.mark.parametrize("name", [*PAGES, "keel.spec.5"])
def test_no_line_of_text_is_a_request_by_accident(name: str) -> None:
    allowed = (".TH", ".SH", ".SS", ".TP", ".B ", ".PP", ".br", ".nf", ".fi")
    for line in MADE[name].splitlines():
        assert not line.startswith("'")
        assert not line.startswith(".") or line.startswith(allowed), line


@pytest.mark.parametrize(("words", "verb"), VERBS, ids=[words for words, _ in VERBS])
def test_an_example_is_a_command_line_that_parses(words: str, verb: Verb) -> None:
    line = verb.example.partition("&&")[0].partition("|")[0].partition(">")[0].split()
    assert line[: len(words.split())] == words.split()
    chosen = parser.parse(TREE, line[1:])
    assert chosen.verb is verb


def test_completion_offers_every_word_and_option() -> None:
    offered = completion.words_after(TREE)
    assert {"spec"} <= set(offered["keel"])
    for words, verb in VERBS:
        parent, _, name = words.rpartition(" ")
        assert name in offered[parent]
        made = parser.verb_parser(verb, prog=words)
        long = {n for action in made._actions for n in action.option_strings if n.startswith("--")}
        assert long | set(completion.COMMON) == set(offered[words])


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["keel", "spec", "ch"], ["check"]),
        (["keel", "spec", "show", "--j"], ["--json"]),
        (["keel", "-v", "spec", "sh"], ["show"]),
        (["keel", "--color", "al"], ["always"]),
        (["keel", "--color", "never", "spec", "ch"], ["check"]),
        (["keel", "mesh", "remove", "web-3", "--dr"], ["--dry-run"]),
        (["keel", "mesh", "join", "--token-file", "t.txt", "--j"], ["--json"]),
        (["keel", "mesh", "invite", "--life", "30m", "--w"], ["--wait"]),
        (["keel", "mesh", "remove", "t"], []),
        (["keel", "mesh", "remove", "--confirm", ""], []),
        (["keel", "mesh", "trust", "add", "--root", "t"], []),
        (["keel", "mesh", "invite", "--life", ""], []),
        (["keel", "mesh", "join", "--token-file", "t"], ["files"]),
        (["keel", "spec", "check", ""], ["files"]),
        (["keel", "spec", "check", "t"], ["files"]),
        (["keel", "spec", "check", "--j"], ["--json"]),
    ],
    ids=lambda typed: " ".join(typed),
)
def test_bash_completes(tmp_path: Path, typed: list[str], expected: list[str]) -> None:
    script = tmp_path / "keel.bash"
    script.write_text(MADE["keel.bash"])
    words = " ".join(f"'{word}'" for word in typed)
    done = subprocess.run(
        [
            "bash",
            "-c",
            f"compopt() {{ COMPREPLY=(files); }}; source {script}; COMP_WORDS=({words});"
            f" COMP_CWORD={len(typed) - 1}; _keel;"
            ' printf "%s\\n" "${COMPREPLY[@]}"',
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == expected
    assert "-o default" not in script.read_text().splitlines()[-1]


def test_zsh_and_fish_offer_files_only_where_one_is_due() -> None:
    zsh, fish = MADE["_keel"], MADE["keel.fish"]
    assert [line.strip() for line in zsh.splitlines() if "_files" in line] == [
        "--token-file) _files; return ;;",
        "'keel spec check'|'keel spec check '*) _files; return ;;",
    ]
    open_to_files = [line for line in fish.splitlines()[1:] if " -f " not in line]
    assert [line for line in open_to_files if "-x" not in line][1:] == [
        "complete -c keel -l token-file -r -F"
    ]
    assert "keel spec check" in open_to_files[0]
    assert "complete -c keel -l root -x" in open_to_files
