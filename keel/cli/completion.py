"""Completion for bash, zsh and fish from the tree of commands: words and options, static.

Files are offered where one is due, and nowhere else: a member's name is none.
"""

from __future__ import annotations

from argparse import Action
from collections.abc import Iterator

from keel.cli import parser
from keel.cli.verb import Group, Verb

COMMON = ("--help", "--verbose", "--color")
FILE = "FILE"
"""What an argument that is a file's name is called in every usage line."""


def words_after(tree: Group) -> dict[str, list[str]]:
    """For every line of words so far, what may follow: commands, or a verb's options."""
    found = dict(_words(tree, tree.name))
    return {**found, tree.name: [*found[tree.name], "--version"]}


def bash(tree: Group) -> str:
    cases = "\n".join(
        f"        {_patterns(path, following)}) words='{' '.join(following)}' ;;"
        for path, following in words_after(tree).items()
    )
    files, others = _with_values(tree)
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
    if [[ $current != -* ]]; then
        case $path in
            {_file_verbs(tree)}) words=FILE ;;
        esac
    fi
    case ${{COMP_WORDS[COMP_CWORD-1]}} in
        --color) words='{" ".join(parser.COLOR_CHOICES)}' ;;
        {"|".join(files)}) words=FILE ;;
        {"|".join(others)}) words='' ;;
    esac
    if [[ $words == FILE ]]; then
        compopt -o default
    elif [[ -n $words ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
    fi
}}
complete -F _keel keel
"""


def zsh(tree: Group) -> str:
    cases = "\n".join(
        f"    {_patterns(path, following)}) following=({' '.join(following)}) ;;"
        for path, following in words_after(tree).items()
    )
    files, others = _with_values(tree)
    return f"""\
#compdef keel
_keel() {{
  local -a following typed
  typed=(${{${{words[1,CURRENT-1]}}:#-*}})
  case "${{words[CURRENT-1]}}" in
    --color) compadd -- {" ".join(parser.COLOR_CHOICES)}; return ;;
    {"|".join(files)}) _files; return ;;
    {"|".join(others)}) return 1 ;;
  esac
  if [[ ${{words[CURRENT]}} != -* ]]; then
    case "${{typed[*]}}" in
      {_file_verbs(tree)}) _files; return ;;
    esac
  fi
  case "${{typed[*]}}" in
{cases}
  esac
  (( $#following )) && compadd -- $following
}}
_keel "$@"
"""


def _patterns(path: str, following: list[str]) -> str:
    """A verb's options may follow its arguments, and what its options were given, as well."""
    return f"'{path}'|'{path} '*" if following[0].startswith("-") else f"'{path}'"


def fish(tree: Group) -> str:
    lines, due = ["# keel: words and options"], _takes_file(tree)
    for path, following in words_after(tree).items():
        typed = "(string match -v -- '-*' (commandline -opc) | string join ' ')"
        verb = following[0].startswith("-")
        condition = (
            f"string match -qr -- '^{path}( |$)' {typed}" if verb else f"test {typed} = '{path}'"
        )
        files = "" if path in due else " -f"
        lines.append(f'complete -c keel{files} -n "{condition}" -a "{" ".join(following)}"')
    files_too, others = _with_values(tree)
    lines += [f"complete -c keel -l {name.removeprefix('--')} -r -F" for name in files_too]
    lines += [f"complete -c keel -l {name.removeprefix('--')} -x" for name in others]
    return "\n".join(lines) + "\n"


def _with_values(tree: Group) -> tuple[list[str], list[str]]:
    """The options that a file's name follows, and those that another value does; --color apart."""
    files: set[str] = set()
    others: set[str] = set()
    for _, verb in _verbs(tree, tree.name):
        for action in parser.verb_parser(verb, prog=tree.name)._actions:
            if action.option_strings and action.nargs != 0:
                named = files if action.metavar == FILE else others
                named.update(one for one in action.option_strings if one.startswith("--"))
    return sorted(files), sorted(others - set(COMMON))


def _takes_file(tree: Group) -> list[str]:
    """The commands whose argument is a file's name."""
    return [
        path
        for path, verb in _verbs(tree, tree.name)
        for action in parser.verb_parser(verb, prog=path)._actions
        if not action.option_strings and action.metavar == FILE
    ]


def _file_verbs(tree: Group) -> str:
    return "|".join(f"'{path}'|'{path} '*" for path in _takes_file(tree))


def _verbs(group: Group, path: str) -> Iterator[tuple[str, Verb]]:
    for child in group.children:
        if isinstance(child, Verb):
            yield f"{path} {child.name}", child
        else:
            yield from _verbs(child, f"{path} {child.name}")


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
