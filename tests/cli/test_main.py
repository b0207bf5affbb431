from __future__ import annotations

import ast
import errno
import io
import json
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from keel.cli.branch import branch
from keel.cli.completion import words_after
from keel.cli.invite import INVITE
from keel.cli.main import main
from keel.cli.meant import OTHER_TOOLS
from keel.cli.parser import parse
from keel.cli.tree import TREE
from keel.cli.verb import Answer, Group, Report, Verb
from keel.errors import Exit, KeelError, LockHeld, PeerError, Refused, SpecError, UsageError
from keel.ports import Host
from tests.fakes import FakeNet


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """Answers what it was made with, or raises it."""

    answer: object

    def run(self, host: Host) -> Answer:
        if isinstance(self.answer, BaseException):
            raise self.answer
        assert isinstance(self.answer, Report | Iterator)
        return self.answer


def tree(answer: object, *, needs_root: bool = True) -> Group:
    def options(found: Namespace) -> Act:
        if found.word == "contradiction":
            raise UsageError("that contradicts itself", command="keel group act")
        return Act(answer=answer)

    def arguments(parser: ArgumentParser) -> None:
        parser.add_argument("word", nargs="?")

    act = Verb(
        name="act",
        summary="acts",
        description="Acts.",
        example="keel group act",
        add_arguments=arguments,
        options=options,
        changes=True,
        needs_root=needs_root,
    )
    group = Group(name="group", summary="words", description="Words.", children=(act,))
    return Group(name="keel", summary="a tree", description="A tree.", children=(group,))


@dataclass
class Ran:
    status: int
    stdout: str
    stderr: str


@pytest.fixture
def run(tmp_path: Path):
    node = FakeNet(tmp_path).node("a")

    def run(answer: object, *argv: str, root: bool = True, needs_root: bool = True) -> Ran:
        node.machine.root = root
        out, err = io.StringIO(), io.StringIO()
        status = main(
            argv or ("group", "act"),
            stdout=out,
            stderr=err,
            tree=tree(answer, needs_root=needs_root),
            make_host=lambda chosen, stderr: node.host,
        )
        return Ran(status, out.getvalue(), err.getvalue())

    return run


def test_data_goes_to_stdout_and_notes_to_stderr(run) -> None:
    ran = run(Report(text="data", notes=("keel: a note",)))
    assert (ran.status, ran.stdout, ran.stderr) == (0, "data\n", "keel: a note\n")


def test_with_json_the_document_takes_the_place_of_the_text(run) -> None:
    ran = run(Report(text="data", document={"a": 1}), "group", "act", "--json")
    assert json.loads(ran.stdout) == {"a": 1}


def test_several_reports_print_as_they_come_and_the_last_ones_status_counts(run) -> None:
    ran = run(iter((Report(text="first"), Report(text="last", exit=Exit.INCOMPLETE))))
    assert (ran.status, ran.stdout) == (4, "first\nlast\n")


ERRORS: dict[str, tuple[KeelError, int]] = {
    "usage": (UsageError("no"), 2),
    "spec": (SpecError("node.name", "odd"), 2),
    "refused": (Refused("some-rule", "not that", "do this"), 3),
    "incomplete": (PeerError("b", "timeout", "did not answer"), 4),
    "locked": (LockHeld(7, "the mesh"), 5),
}


@pytest.mark.parametrize(("error", "status"), ERRORS.values(), ids=ERRORS)
def test_an_error_is_two_lines_and_its_own_status(run, error: KeelError, status: int) -> None:
    ran = run(error)
    assert ran.status == status
    assert ran.stdout == ""
    assert ran.stderr == f"keel: error: {error.summary()}\nkeel: hint: {error.remedy()}\n"


def test_with_json_an_error_is_a_document_on_stdout(run) -> None:
    ran = run(Refused("some-rule", "not that", "do this"), "group", "act", "--json")
    assert (ran.status, ran.stderr) == (3, "")
    assert json.loads(ran.stdout) == {
        "code": "refused",
        "rule": "some-rule",
        "summary": "not that",
        "remedy": "do this",
    }


def test_a_peers_error_names_the_member(run) -> None:
    ran = run(PeerError("b", "timeout", "did not answer"), "group", "act", "--json")
    found = json.loads(ran.stdout)
    assert (found["member"], found["rule"]) == ("b", "timeout")


def test_who_is_not_root_is_told_so_before_anything_runs(run) -> None:
    ran = run(AssertionError("ran"), root=False)
    assert ran.status == 77
    assert "sudo" in ran.stderr


def test_a_verb_that_only_reads_what_all_may_read_needs_no_root(run) -> None:
    assert run(Report(), root=False, needs_root=False).status == 0


def test_an_interrupt_says_how_to_go_on(run) -> None:
    ran = run(KeyboardInterrupt())
    assert ran.status == 130
    assert "run it again" in ran.stderr


def test_a_bug_passes_through_to_the_outermost_guard(run) -> None:
    with pytest.raises(ZeroDivisionError):
        run(ZeroDivisionError())


USAGE = {
    "no-command": (("group",), "`keel group` needs a command after it"),
    "nothing": ((), ""),
    "unknown-word": (("group", "sing"), "no command `keel group sing`; there are act"),
    "cut-short": (("group", "act", "--dry"), "unrecognized arguments: --dry"),
    "unknown-option": (("group", "act", "--loud"), "unrecognized arguments: --loud"),
    "contradiction": (("group", "act", "contradiction"), "that contradicts itself"),
    "color": (("--color", "pink", "group", "act"), "--color"),
}


@pytest.mark.parametrize(
    ("argv", "said"),
    [USAGE[name] for name in USAGE if name != "nothing"],
    ids=[name for name in USAGE if name != "nothing"],
)
def test_a_senseless_command_line_is_2_and_names_the_help(
    run, argv: tuple[str, ...], said: str
) -> None:
    ran = run(AssertionError("ran"), *argv)
    assert ran.status == 2
    assert said in ran.stderr
    assert "--help`" in ran.stderr


MEANT = {
    "slip": (("group", "atc"), "keel group act"),
    "word-left-out": (("act",), "keel group act"),
    "nothing-like-it": (("group", "xyzzy"), ""),
    "a-slip-of-another-groups-word": (("atc",), ""),
}


@pytest.mark.parametrize(("argv", "meant"), MEANT.values(), ids=MEANT)
def test_a_wrong_word_is_answered_with_the_one_that_was_meant(
    run, argv: tuple[str, ...], meant: str
) -> None:
    said = run(AssertionError("ran"), *argv).stderr
    assert (f"did you mean `{meant}`?" in said) if meant else ("did you mean" not in said)


ELSEWHERE = {
    "sibling-looks-like-it": (("mesh", "etcd", "remove"), "keel mesh remove"),
    "group": (("etcd", "status"), "keel mesh etcd status"),
    "slip-of-a-group": (("mesh", "ectd", "status"), "keel mesh etcd status"),
    "another-tools-word": (("init",), "keel mesh create"),
    "another-tools-word-in-its-group": (("mesh", "etcd", "members"), "keel mesh etcd status"),
    "another-tools-word-and-one-of-keels": (("mesh", "list"), "keel mesh status"),
    "help": (("help", "mesh"), ""),
    "misspelt-option": (("mesh", "status", "--jsn"), "keel mesh status --json"),
    "option-too-early": (("--json", "mesh", "status"), "keel mesh status --json"),
    "option-without-dashes": (("mesh", "invite", "list"), "keel mesh invite --list"),
    "option-with-a-value": (("mesh", "invite", "--lif=3h"), "keel mesh invite --life"),
    "argument-too-many": (("mesh", "status", "web-3"), ""),
    "option-of-a-group": (("mesh", "--jsn"), ""),
    "nothing-like-it": (("mesh", "status", "--zzz"), ""),
    "slip-of-a-sibling": (("mesh", "statuz"), "keel mesh status"),
    "misspelt-option-that-is-required": (
        ("mesh", "etcd", "recover", "--raplace", "X"),
        "keel mesh etcd recover --replace",
    ),
    "misspelt-option-and-a-name-left-out": (("mesh", "remove", "--vot"), "keel mesh remove --vote"),
    "nothing-like-it-and-a-name-left-out": (("mesh", "remove", "--zzz"), ""),
    "option-of-keel-as-a-word": (("version",), "keel --version"),
    "option-of-keel-as-a-word-of-a-group": (("mesh", "version"), "keel --version"),
    "misspelt-option-of-keel": (("--verson",), "keel --version"),
    "file-of-a-token": (("mesh", "join", "token.txt"), "keel mesh join --token-file FILE"),
    "stdin-for-a-token": (("mesh", "join", "-"), "keel mesh join --token-file FILE"),
    "misspelt-option-of-join": (
        ("mesh", "join", "--tokn-file", "x"),
        "keel mesh join --token-file",
    ),
    "who-is-to-leave": (("mesh", "leave", "--yes", "web-3"), "keel mesh remove web-3"),
}


@pytest.mark.parametrize(("argv", "meant"), ELSEWHERE.values(), ids=ELSEWHERE)
def test_a_word_that_follows_other_words_is_meant_rather_than_one_that_looks_like_it(
    argv: tuple[str, ...], meant: str
) -> None:
    with pytest.raises(UsageError) as wrong:
        parse(TREE, argv)
    assert wrong.value.meant == meant


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        pytest.param(("mesh", "join", "eel1.Ab3d"), "a token is asked for", id="join"),
        pytest.param(("mesh", "leave", "Ab3d"), "it takes out the node that it runs", id="leave"),
    ],
)
def test_a_word_after_a_command_that_takes_none_is_answered_with_how_it_is_said(
    argv: tuple[str, ...], said: str
) -> None:
    with pytest.raises(UsageError) as wrong:
        parse(TREE, argv)
    assert said in wrong.value.summary()
    assert "Ab3d" not in wrong.value.summary()


@pytest.mark.parametrize(
    ("argv", "helps"),
    [(("help",), "keel"), (("help", "mesh"), "keel mesh"), (("mesh", "help", "no"), "keel mesh")],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_who_asks_for_help_by_a_word_is_told_of_the_option(
    argv: tuple[str, ...], helps: str
) -> None:
    with pytest.raises(UsageError) as wrong:
        parse(TREE, argv)
    assert wrong.value.remedy() == f"see `{helps} --help`"


def test_every_command_that_another_tools_word_leads_to_exists() -> None:
    paths = {path for meant in OTHER_TOOLS.values() for path in meant}
    assert paths <= set(words_after(TREE))


def test_a_token_in_the_place_of_a_command_is_not_echoed(run) -> None:
    said = run(AssertionError("ran"), "group", "keel1.Ab3d")
    assert "never an argument" in said.stderr
    assert "Ab3d" not in said.stderr


def test_what_is_typed_is_echoed_in_part_when_it_is_long(run) -> None:
    assert len(run(AssertionError("ran"), "group", "x" * 100_000).stderr) < 3000


class Unwritable(io.StringIO):
    """A stream on a full disk."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    def fileno(self) -> int:
        return self.file.fileno()


@pytest.fixture
def unwritable(tmp_path: Path) -> Iterator[Unwritable]:
    made = Unwritable()
    with (tmp_path / "full").open("w") as made.file:
        yield made


UNTAKEN = {
    "text": (("group", "act"), 4, "standard output takes nothing: no space left"),
    "a document": (("group", "act", "--json"), 4, "standard output takes nothing: no space left"),
    "an error's document": (("group", "--json"), 2, "unrecognized arguments: --json"),
}


@pytest.mark.parametrize(("argv", "status", "said"), UNTAKEN.values(), ids=UNTAKEN)
def test_an_answer_that_nothing_takes_is_told_and_no_bug(
    unwritable: Unwritable, argv: tuple[str, ...], status: int, said: str
) -> None:
    err = io.StringIO()
    answer = Report(text="data", document={})
    found = main(
        argv,
        stdout=unwritable,
        stderr=err,
        tree=tree(answer, needs_root=False),
        make_host=lambda chosen, stderr: None,  # type: ignore[arg-type,return-value]
    )
    assert found == status
    assert said in err.getvalue()


def test_remarks_that_nobody_takes_change_no_status(unwritable: Unwritable) -> None:
    out = io.StringIO()
    answer = Report(text="data", notes=("keel: a note",))
    status = main(
        ("group", "act"),
        stdout=out,
        stderr=unwritable,
        tree=tree(answer, needs_root=False),
        make_host=lambda chosen, stderr: None,  # type: ignore[arg-type,return-value]
    )
    assert (status, out.getvalue()) == (0, "data\n")


COLORS = {
    "always": (("--color=always", "group"), True),
    "two words": (("group", "--color", "always"), True),
    "the last counts": (("--color", "always", "group", "--color=never"), False),
    "none": (("group",), False),
    "no such colour": (("group", "--color=pink"), False),
}


@pytest.mark.parametrize(("argv", "coloured"), COLORS.values(), ids=COLORS)
def test_color_holds_for_errors_of_the_command_line_as_well(
    run, argv: tuple[str, ...], coloured: bool
) -> None:
    assert ("\x1b[" in run(AssertionError("ran"), *argv).stderr) == coloured


def test_an_interrupted_invite_is_not_called_one_that_goes_on() -> None:
    assert "--list" in INVITE.resume
    assert "goes on where it stopped" not in INVITE.resume


def test_an_unknown_option_names_the_help_of_its_own_command(run) -> None:
    assert "see `keel group act --help`" in run(AssertionError("ran"), "group", "act", "--x").stderr


@pytest.mark.parametrize("argv", [("--color=always", "group", "act"), ("group", "act", "-v")])
def test_common_options_stand_before_and_after_the_words(run, argv: tuple[str, ...]) -> None:
    assert run(Report(), *argv).status == 0


def test_help_shows_the_example(run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(AssertionError("ran"), "group", "act", "--help").status == 0
    assert "example:\n  keel group act" in capsys.readouterr().out


def verbs(tree: Group, *words: str) -> Iterator[tuple[str, ...]]:
    for child in tree.children:
        path = (*words, child.name)
        if isinstance(child, Group):
            yield from verbs(child, *path)
        else:
            yield path


@pytest.mark.parametrize("path", [*verbs(TREE), ("mesh",), ("mesh", "etcd"), ("mesh", "none")])
def test_a_command_is_the_same_in_its_branch_as_in_the_whole_tree(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    def said(tree: Group, argv: Sequence[str]) -> str:
        try:
            return repr(parse(tree, argv))
        except UsageError as error:
            return f"{error.summary()} {error.remedy()}"
        except SystemExit:
            return capsys.readouterr().out

    for argv in (path, (*path, "--help"), (*path, "--no-such-option"), (*path, "-v", "--json")):
        assert said(branch(argv), argv) == said(TREE, argv)


@pytest.mark.parametrize(
    ("argv", "loaded"),
    [
        pytest.param(("mesh", "etcd", "tend"), ["cli.etcd", "cli.form", "cli.status"], id="tend"),
        pytest.param(("mesh", "status"), ["cli.status"], id="status"),
        pytest.param(("mesh", "sync"), ["cli.mesh", "cli.remove", "cli.tokens"], id="sync"),
    ],
)
def test_what_runs_often_loads_no_other_commands(argv: tuple[str, ...], loaded: list[str]) -> None:
    code = (
        f"import sys; from keel.cli.branch import branch; branch({argv!r});"
        "print([m[5:] for m in sorted(sys.modules) if m.startswith('keel.cli.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    common = {"cli.branch", "cli.parser", "cli.render", "cli.verb"}
    assert sorted(set(ast.literal_eval(done.stdout)) - common) == loaded
