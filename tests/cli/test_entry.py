"""The process from outside: what it imports, and what its last guard makes of a bug."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import keel

HEAVY = ("cryptography", "nacl", "requests", "pyroute2", "jinja2", "rich", "ruamel", "waitress")
REPOSITORY = Path(keel.__file__).parent.parent
INTERRUPTIBLE = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
"""Whoever runs these tests in the background may have told all that it starts to ignore it."""


def python(code: str, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *argv],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("argv", [("--version",), ("--help",), ("spec", "check", "--help")])
def test_version_and_help_import_no_library(argv: tuple[str, ...]) -> None:
    done = python(
        "import sys\n"
        "from keel.cli.main import run\n"
        "status = run()\n"
        f"print(sorted(set({HEAVY!r}) & {{name.partition('.')[0] for name in sys.modules}}))\n"
        "sys.exit(status)",
        *argv,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_guard_of_a_permitted_birth_imports_no_library() -> None:
    code = (
        "import sys; import keel.cli.guard;"
        f"print(sorted(set({(*HEAVY, 'ssl', 'dataclasses', 'keel.ports')!r}) & set(sys.modules)))"
    )
    assert python(code).stdout == "['dataclasses']\n"


def test_a_spec_is_checked_without_what_only_apply_needs() -> None:
    code = (
        "import sys\n"
        "from keel.cli.main import run\n"
        "status = run()\n"
        "print(sorted(m for m in sys.modules if m in ('keel.spec.apply', 'keel.spec.specfile')))\n"
        "sys.exit(status)"
    )
    done = python(code, "spec", "check", "debian/spec.yaml")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "['keel.spec.specfile']"


def test_a_command_seeks_no_garbage() -> None:
    code = (
        "import atexit, gc, sys; sys.argv = ['keel', '--version'];"
        "atexit.register(lambda: print(gc.isenabled()));"
        "from keel.__main__ import entry; entry()"
    )
    assert python(code).stdout.splitlines() == [f"keel {keel.VERSION}", "False"]


def test_version() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "keel", "--version"], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, f"keel {keel.VERSION}\n")


BUGS = {
    "in-run": "def run():\n    raise ValueError('a secret')\n",
    "at-import": "import no_such_module_a_secret\n",
    "exit-1-by-hand": "def run():\n    raise RuntimeError\n",
}


@pytest.mark.parametrize("source", BUGS.values(), ids=BUGS)
def test_a_bug_is_70_and_shows_no_message(tmp_path: Path, source: str) -> None:
    (tmp_path / "buggy.py").write_text(source)
    done = python(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from keel.__main__ import guarded; guarded('buggy')"
    )
    assert done.returncode == 70
    assert "a bug in keel" in done.stderr
    assert "a secret" not in done.stderr
    assert "Traceback" not in done.stderr


def test_with_v_a_bug_shows_where_it_came_from(tmp_path: Path) -> None:
    (tmp_path / "buggy.py").write_text(BUGS["in-run"])
    done = python(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from keel.__main__ import guarded; guarded('buggy')",
        "-v",
    )
    assert done.returncode == 70
    assert "Traceback" in done.stderr


def test_who_reads_our_output_may_leave(tmp_path: Path) -> None:
    """`keel ... | head -1` is no bug: 128 + SIGPIPE, and silence."""
    reader = (
        "import subprocess, sys\n"
        "run = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdout=subprocess.PIPE,"
        " stderr=subprocess.PIPE)\n"
        "run.stdout.close()\n"
        "print(run.wait(), run.stderr.read())"
    )
    writer = (
        "import sys\n"
        "from keel.cli.main import main\n"
        "from keel.cli.verb import Group, Report, Verb, no_arguments\n"
        "class Talk:\n"
        "    def run(self, host):\n"
        "        return iter(Report(text='x' * 9999) for _ in range(99))\n"
        "verb = Verb(name='talk', summary='', description='', example='', needs_root=False,"
        " add_arguments=no_arguments, options=lambda _: Talk())\n"
        "tree = Group(name='keel', summary='', description='', children=(verb,))\n"
        "sys.exit(main(['talk'], stdout=sys.stdout, stderr=sys.stderr, tree=tree,"
        " make_host=lambda *_: None))"
    )
    done = python(reader, writer)
    assert done.stdout.strip() == "141 b''", done.stderr


STREAMS = {
    "stdout closed": ("spec show >&-", 4, "it is closed"),
    "the version, stdout closed": ("--version >&-", 4, "it is closed"),
    "stdout full": ("spec check debian/spec.yaml >/dev/full", 4, "no space left"),
    "the version, stdout full": ("--version >/dev/full", 4, "no space left"),
    "the help, stdout full": ("--help >/dev/full", 4, "no space left"),
    "stderr closed": ("spec check debian/spec.yaml 2>&-", 0, ""),
    "an error, stderr closed": ("bogus 2>&-", 2, ""),
    "stderr full": ("spec check debian/spec.yaml 2>/dev/full", 0, ""),
    "an error, stderr full": ("bogus 2>/dev/full", 2, ""),
    "stdin closed": ("spec check debian/spec.yaml <&-", 0, ""),
    "all closed": ("spec check debian/spec.yaml <&- >&- 2>&-", 4, ""),
}


@pytest.mark.parametrize(("line", "status", "said"), STREAMS.values(), ids=STREAMS)
def test_streams_that_take_nothing_are_no_bug(line: str, status: int, said: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m keel {line}"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == status
    assert said in done.stderr
    assert "bug" not in done.stderr
    assert "Traceback" not in done.stderr
    assert "ignored" not in done.stderr


def test_a_reader_that_left_is_no_bug_for_the_version_either() -> None:
    line = f"{{ sleep 0.1; {sys.executable} -m keel --version; echo $? >&2; }} | true"
    done = subprocess.run(["sh", "-c", line], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.stderr == "141\n"


def test_an_interrupt_at_the_import_is_one(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("raise KeyboardInterrupt\n")
    done = python(
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from keel.__main__ import guarded; guarded('slow')"
    )
    assert (done.returncode, done.stderr.splitlines()[0]) == (130, "keel: error: interrupted")


@pytest.mark.parametrize("where", ["before the first import", "in the import of the command line"])
def test_an_interrupt_while_keel_is_loaded_ends_it_without_a_word(
    tmp_path: Path, where: str
) -> None:
    """An exception in this callback would be printed, and then be lost."""
    (tmp_path / "interrupted.py").write_text(
        "import os, weakref\nclass Lock: pass\nheld = Lock()\n"
        "ref = weakref.ref(held, lambda _: os.kill(os.getpid(), 2))\ndel held\n"
    )
    code = (
        f"{INTERRUPTIBLE}"
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); sys.argv = ['keel', 'mesh']\n"
        "import keel.__main__ as main\n"
    )
    if where == "before the first import":
        code += "main._whole_streams = lambda: __import__('interrupted')\n"
    else:
        code += "real = main.guarded; main.guarded = lambda _: real('interrupted')\n"
    done = python(code + "main.entry()")
    assert (done.returncode, done.stdout, done.stderr) == (-2, "", "")


def test_once_it_is_loaded_an_interrupt_is_the_commands_own_again(tmp_path: Path) -> None:
    (tmp_path / "loaded.py").write_text("import os\ndef run(): os.kill(os.getpid(), 2)\n")
    done = python(
        f"{INTERRUPTIBLE}"
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); sys.argv = ['keel', 'mesh']\n"
        "import keel.__main__ as main; real = main.guarded\n"
        "main.guarded = lambda _: real('loaded'); main.entry()"
    )
    assert (done.returncode, done.stderr.splitlines()[0]) == (130, "keel: error: interrupted")


def test_who_is_not_to_be_interrupted_stays_so(tmp_path: Path) -> None:
    (tmp_path / "loaded.py").write_text(
        "import os\ndef run():\n os.kill(os.getpid(), 2)\n return 0\n"
    )
    done = python(
        f"import sys, signal; sys.path.insert(0, {str(tmp_path)!r}); sys.argv = ['keel', 'mesh']\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "import keel.__main__ as main; real = main.guarded\n"
        "main.guarded = lambda _: real('loaded'); main.entry()"
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_bytes_that_are_no_text_are_no_bug() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from keel.__main__ import _whole_streams;"
            " _whole_streams(); print(repr(sys.stdin.read()), '\u00e9')",
        ],
        cwd=REPOSITORY,
        input=b"\xff",
        capture_output=True,
        env={"PYTHONIOENCODING": "utf-8:strict"},
    )
    assert done.returncode == 0, done.stderr
