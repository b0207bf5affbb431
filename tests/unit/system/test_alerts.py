"""The monitor's channels as they are: a real web server, a real program, mail's own program."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from keel.errors import AlertFailed, ProcFailed
from keel.ports import Completed
from keel.system.alerts import MAIL_SERVER, SENDMAIL, Messengers
from keel.system.run import Programs

SINK = """#!/bin/sh
printf '%s\\n' "$@" > {out}.argv
cat > {out}
exit {status}
"""


@contextmanager
def server(status: int) -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    taken: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            taken.append((self.headers["Content-Type"], self.rfile.read(size)))
            self.send_response(status)
            self.send_header("Location", "http://127.0.0.1:1/")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{found.server_address[1]}/hook?key=s3cret", taken
        found.shutdown()
        thread.join(10)


def here(*_: object) -> list[str]:
    """No unit of their own: the tests' machine need not run systemd."""
    return []


def program(scratch: Path, status: int = 0) -> Path:
    path = scratch / "sink"
    path.write_text(SINK.format(out=scratch / "out", status=status))
    path.chmod(0o755)
    return path


def test_a_webhook_gets_the_document_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1/")
    with server(204) as (url, taken):
        Messengers(Programs()).webhook(url, b'{"a":1}', timeout_seconds=10.0)
    assert taken == [("application/json", b'{"a":1}')]


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (300, "it sends elsewhere, which is not followed: give the URL that it names"),
        (302, "it sends elsewhere, which is not followed: give the URL that it names"),
        (404, "see whether its URL is right"),
        (500, "the fault is on its side"),
    ],
)
def test_a_webhook_that_says_no_did_not_take_it(status: int, says: str) -> None:
    with server(status) as (url, _), pytest.raises(AlertFailed) as caught:
        Messengers(Programs()).webhook(url, b"{}", timeout_seconds=10.0)
    assert caught.value.summary() == f"an alert was not taken: it answered {status}: {says}"
    assert "--test" in caught.value.remedy()


def test_a_webhook_that_is_not_there_is_named_without_its_secret() -> None:
    with pytest.raises(AlertFailed) as caught:
        Messengers(Programs()).webhook("http://127.0.0.1:1/s3cret", b"{}", timeout_seconds=4.0)
    assert caught.value.problem.startswith("it cannot be reached: see its name and port")


def test_a_webhook_that_speaks_no_tls_is_not_trusted() -> None:
    with server(204) as (url, _):
        url = url.replace("http:", "https:")
        with pytest.raises(AlertFailed) as caught:
            Messengers(Programs()).webhook(url, b"{}", timeout_seconds=10.0)
    assert caught.value.problem == (
        "no TLS with it: this host does not trust its certificate, or it speaks none"
    )


def test_a_webhook_that_says_nothing_is_given_its_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/s3cret"
        with pytest.raises(AlertFailed) as caught:
            Messengers(Programs()).webhook(url, b"{}", timeout_seconds=1.0)
    assert caught.value.problem == "no answer within 0.5 s: see whether it runs"


@pytest.mark.parametrize("host", ["a..b", "*x", "[::1"])
def test_a_webhook_whose_url_is_none_is_told_so(host: str) -> None:
    with pytest.raises(AlertFailed) as caught:
        Messengers(Programs()).webhook(f"http://{host}/s3cret", b"{}", timeout_seconds=1.0)
    assert caught.value.problem.startswith("its URL cannot be asked (")
    assert "s3cret" not in caught.value.problem


def test_mail_goes_through_the_machines_own_program(tmp_path: Path) -> None:
    sink = program(tmp_path)
    found = Messengers(Programs(), sendmail=str(sink), launcher=here)
    found.mail("root@localhost", "keel on a: etwas läuft nicht", "two\nlines", timeout_seconds=10.0)
    assert (tmp_path / "out.argv").read_text() == "-i\n--\nroot@localhost\n"
    text = (tmp_path / "out").read_text()
    assert "To: root@localhost\n" in text
    assert text.endswith("two\nlines\n")


def test_a_command_gets_the_document_on_its_input(tmp_path: Path) -> None:
    sink = program(tmp_path)
    Messengers(Programs(), launcher=here).command(
        [str(sink), "x"], b'{"a":1}', timeout_seconds=10.0
    )
    assert (tmp_path / "out").read_bytes() == b'{"a":1}'
    assert (tmp_path / "out.argv").read_text() == "x\n"


class Recorded:
    def __init__(self) -> None:
        self.argvs: list[list[str]] = []

    def run(self, argv: Sequence[str], **_: object) -> Completed:
        self.argvs.append(list(argv))
        return Completed(returncode=0, stdout=b"", stderr=b"")


def test_programs_run_outside_keels_sandbox_and_what_mail_leaves_behind_goes_on() -> None:
    proc = Recorded()
    found = Messengers(proc)
    found.mail("root@localhost", "subject", "text", timeout_seconds=30.0)
    found.command(["/usr/bin/page", "oncall"], b"{}", timeout_seconds=30.0)
    unit = [
        *("systemd-run", "--quiet", "--collect", "--pipe", "--wait", "--service-type=exec"),
        *("--description=keel: tell a channel of the monitor", "--property=RuntimeMaxSec=35"),
    ]
    assert proc.argvs == [
        [*unit, "--property=KillMode=process", "--", SENDMAIL, "-i", "--", "root@localhost"],
        [*unit, "--", "/usr/bin/page", "oncall"],
    ]


def test_a_command_that_fails_did_not_take_it(tmp_path: Path) -> None:
    with pytest.raises(AlertFailed, match="ended with status 7"):
        Messengers(Programs(), launcher=here).command(
            [str(program(tmp_path, 7))], b"", timeout_seconds=10.0
        )


class Missing:
    """systemd-run, of a program that is not there."""

    def __init__(self, returncode: int, said: str = "") -> None:
        self._failed = ProcFailed(["systemd-run"], returncode, said)

    def run(self, argv: Sequence[str], **_: object) -> Completed:
        raise self._failed


@pytest.mark.parametrize(
    "proc", [Missing(203), Missing(1, "Failed to find executable /x"), Missing(127)]
)
def test_a_program_that_is_not_there_is_told_with_what_to_do(proc: Missing) -> None:
    found = Messengers(proc)
    with pytest.raises(AlertFailed) as caught:
        found.mail("root@localhost", "subject", "text", timeout_seconds=1.0)
    assert caught.value.problem == f"{SENDMAIL} is missing or cannot be run: {MAIL_SERVER}"
    with pytest.raises(AlertFailed, match="/x is missing or cannot be run: see the path"):
        found.command(["/x"], b"", timeout_seconds=1.0)


def test_a_command_that_does_not_end_did_not_take_it() -> None:
    argv = [sys.executable, "-c", "import time; time.sleep(60)"]
    with pytest.raises(AlertFailed, match="did not end in 0 s"):
        Messengers(Programs(), launcher=here).command(argv, b"", timeout_seconds=0.3)
