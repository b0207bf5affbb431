"""keel.system.run, on real programs."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

import pytest

from keel.errors import DeadlinePassed, Internal, ProcFailed
from keel.system.run import MAX_OUTPUT_BYTES, NOT_EXECUTABLE, NOT_FOUND, Programs


@pytest.fixture
def programs() -> Programs:
    return Programs()


def _shell(text: str) -> list[str]:
    return ["sh", "-c", text]


def test_output_and_status_come_back(programs: Programs) -> None:
    done = programs.run(_shell("echo out; echo err >&2; exit 3"), check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"out\n", b"err\n")


def test_the_environment_is_clean(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.invalid")
    said = programs.run(["env"]).stdout.decode().splitlines()
    assert sorted(said) == [
        "LANG=C.UTF-8",
        "LC_ALL=C.UTF-8",
        "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
        "SYSTEMCTL_SKIP_SYSV=1",
    ]


def test_stdin_is_empty_unless_given(programs: Programs) -> None:
    assert programs.run(["cat"]).stdout == b""
    assert programs.run(["cat"], stdin=b"x" * 300_000).stdout == b"x" * 300_000


def test_a_program_that_does_not_read_its_stdin_is_no_failure(programs: Programs) -> None:
    assert programs.run(["true"], stdin=b"x" * 300_000).returncode == 0


@pytest.mark.parametrize(
    ("argv", "returncode", "summary"),
    [
        pytest.param(["false"], 1, "false ended with status 1", id="status"),
        pytest.param(
            _shell("echo first >&2; echo last words >&2; exit 2"), 2, "last words", id="stderr"
        ),
        pytest.param(_shell("kill -TERM $$"), -15, "signal 15", id="signal"),
        pytest.param(["no-such-program-here"], NOT_FOUND, "not found", id="not found"),
        pytest.param(["/etc"], NOT_EXECUTABLE, "ermission denied", id="not executable"),
    ],
)
def test_failures_say_how_it_ended(
    programs: Programs, argv: list[str], returncode: int, summary: str
) -> None:
    with pytest.raises(ProcFailed) as caught:
        programs.run(argv)
    assert caught.value.returncode == returncode
    assert summary in caught.value.summary()


def test_what_runs_too_long_is_killed_with_its_children(programs: Programs, tmp_path: Path) -> None:
    before = time.monotonic()
    with pytest.raises(DeadlinePassed):
        programs.run(
            _shell(f"sleep 60 & echo $! >{tmp_path}/pid; wait"), timeout_seconds=0.3, check=False
        )
    assert time.monotonic() - before < 10
    child = int((tmp_path / "pid").read_text())
    assert not _runs(child)


def test_what_is_left_in_the_background_neither_blocks_nor_survives(
    programs: Programs, tmp_path: Path
) -> None:
    done = programs.run(_shell(f"sleep 60 & echo $! >{tmp_path}/pid; echo said"))
    assert done.stdout == b"said\n"
    assert not _runs(int((tmp_path / "pid").read_text()))


def test_output_is_bounded(programs: Programs) -> None:
    done = programs.run(_shell(f"head -c {MAX_OUTPUT_BYTES + 100_000} /dev/zero"))
    assert len(done.stdout) == MAX_OUTPUT_BYTES


@pytest.mark.parametrize("argv", ["true", []], ids=["a string", "nothing"])
def test_only_lists_of_arguments_are_taken(programs: Programs, argv: str | list[str]) -> None:
    with pytest.raises(Internal):
        programs.run(argv)


def test_the_debug_log_can_be_pasted_and_hides_stdin(
    programs: Programs, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "keel.system.run"):
        programs.run(["cat", "-", "/dev/null", "--"], stdin=b"secret")
        programs.run(["echo", "two words"])
    assert [record.message for record in caplog.records] == [
        "+ cat - /dev/null -- < (hidden)",
        "+ echo 'two words'",
    ]


def _runs(pid: int) -> bool:
    """Alive and not a zombie; the kill has been sent, the kernel may take a moment."""
    for _ in range(100):
        try:
            os.kill(pid, 0)
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (ProcessLookupError, FileNotFoundError):
            return False
        if state == "Z":
            return False
        time.sleep(0.01)
    return True
