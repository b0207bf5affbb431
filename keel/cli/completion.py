"""Completion for bash, zsh and fish from the tree of commands: words and options, static."""

from __future__ import annotations

from argparse import Action
from collections.abc import Iterator

from keel.cli import parser
from keel.cli.verb import Group, Verb

COMMON = ("--help", "--verbose", "--color")


def words_after(tree: Group) -> dict[str, list[str]]:
    """For every line of words so far, what may follow: commands, or a verb's options."""
    return dict(_words(tree, tree.name))


def bash(tree: Group) -> str:
    cases = "\n".join(
        f"        {_patterns(path, following)}) words='{' '.join(following)}' ;;"
        for path, following in words_after(tree).items()
    )
    return f"""\
# shellcheck shell=bash
_keel() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} path=keel words='' word last=''
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        if [[ $word != -* && $last != --color ]]; then
            path+=" $word"
        fi
        last=$word
    done
    case $path in
{cases}
    esac
    if [[ ${{COMP_WORDS[COMP_CWORD-1]}} == --color ]]; then
        words='{" ".join(parser.COLOR_CHOICES)}'
    fi
    if [[ -n $words ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
    fi
}}
complete -o default -F _keel keel
"""


def zsh(tree: Group) -> str:
    cases = "\n".join(
        f"    {_patterns(path, following)}) following=({' '.join(following)}) ;;"
        for path, following in words_after(tree).items()
    )
    return f"""\
#compdef keel
_keel() {{
  local -a following typed
  typed=(${{${{words[1,CURRENT-1]}}:#-*}})
  case "${{typed[*]}}" in
{cases}
  esac
  (( $#following )) && compadd -- $following || _files
}}
_keel "$@"
"""


def _patterns(path: str, following: list[str]) -> str:
    """A verb's options may follow its arguments, and what its options were given, as well."""
    return f"'{path}'|'{path} '*" if following[0].startswith("-") else f"'{path}'"


def fish(tree: Group) -> str:
    lines = ["# keel: words and options"]
    for path, following in words_after(tree).items():
        typed = "(string match -v -- '-*' (commandline -opc) | string join ' ')"
        verb = following[0].startswith("-")
        condition = (
            f"string match -qr -- '^{path}( |$)' {typed}" if verb else f"test {typed} = '{path}'"
        )
        files = "" if verb else " -f"  # where a command is due, no files
        lines.append(f'complete -c keel{files} -n "{condition}" -a "{" ".join(following)}"')
    return "\n".join(lines) + "\n"


def _words(group: Group, path: str) -> Iterator[tuple[str, list[str]]]:
    yield path, [child.name for child in group.children] + list(COMMON)
    for child in group.children:
        words = f"{path} {child.name}"
        if isinstance(child, Verb):
            yield words, _long_options(parser.verb_parser(child, prog=words)._actions)
        else:
            yield from _words(child, words)


def _long_options(actions: list[Action]) -> list[str]:
    found = [name for action in actions for name in action.option_strings if name.startswith("--")]
    return [*found, *COMMON]
