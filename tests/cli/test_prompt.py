"""The name that is typed before what cannot be taken back."""

from __future__ import annotations

import io

import pytest

from keel.cli.mesh import LEAVE
from keel.cli.parser import verb_parser
from keel.cli.prompt import ask_name
from keel.cli.remove import REMOVE
from keel.cli.verb import Verb
from keel.errors import Refused
from tests.cli.typed import Typed


def test_at_a_terminal_the_name_is_asked_for_beside_the_data() -> None:
    said = io.StringIO()
    assert ask_name("web-3", None, yes=False, stdin=Typed(" web-3 \n"), stderr=said) == "web-3"
    assert said.getvalue().startswith("keel: web-3 leaves its mesh, for good")
    assert said.getvalue().endswith("type its name to go on: ")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        pytest.param("web-2\n", "this node is web-3, not web-2", id="another"),
        pytest.param("y\n", "this node is web-3, not y", id="yes-is-no-name"),
        pytest.param("\n", "no name was typed; nothing changed", id="nothing"),
        pytest.param("", "no name was typed; nothing changed", id="ctrl-d"),
    ],
)
def test_whatever_else_is_typed_changes_nothing(line: str, said: str) -> None:
    with pytest.raises(Refused) as caught:
        ask_name("web-3", None, yes=False, stdin=Typed(line), stderr=io.StringIO())
    assert (caught.value.rule, caught.value.summary()) == ("name-not-typed", said)


def test_a_script_says_yes() -> None:
    assert ask_name("web-3", None, yes=True, stdin=io.StringIO()) is None


def test_yes_stands_for_no_other_name_that_was_given() -> None:
    with pytest.raises(Refused, match="this node is web-3, not web-2"):
        ask_name("web-3", "web-2", yes=True, stdin=io.StringIO())


def test_without_a_terminal_nobody_is_asked() -> None:
    with pytest.raises(Refused, match="no terminal"):
        ask_name("web-3", None, yes=False, stdin=io.StringIO("web-3\n"))


def test_the_help_says_whose_name_is_wanted_and_by_what() -> None:
    def said(verb: Verb) -> str:
        return " ".join(verb_parser(verb, prog=verb.name).format_help().split())

    assert "this node's name, instead of typing it when asked" in said(LEAVE)
    assert "do not ask for this node's name: for scripts" in said(LEAVE)
    assert "NODE once more; --lost, --without-quorum and --one-voter want it" in said(REMOVE)
    assert said(REMOVE).count("with --confirm") == 3
