"""The server's rules S1 to S5 over a real socket."""

from __future__ import annotations

import dataclasses
import errno
import http.client
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import IPv6Address
from pathlib import Path

import pytest

from keel import secretcache
from keel.errors import DiskTrouble, LockHeld, Refused, UsageError
from keel.mesh import keys
from keel.mesh.limits import Limits, Rate
from keel.mesh.refusal import parse_plain
from keel.mesh.server import ChannelServer, Handler, HttpReply, inherited_sockets
from keel.types import Secret
from tests.desk import (
    NO_RATE,
    TEMPORARY,
    Asker,
    HandClock,
    TestClock,
    connect,
    echo,
    listening,
    post,
    refusing,
    serving,
)

LOOKS = dataclasses.replace(NO_RATE, look_seconds=0.005)
"""The server's own bounds; on a clock that is set by hand it looks often."""
HEAD = b"POST /v1/hello HTTP/1.1\r\nHost: keel\r\nContent-Length: 5\r\n\r\n"


def _code(answer: tuple[int, bytes]) -> tuple[int, str]:
    said = parse_plain(answer[1])
    assert said is not None
    return answer[0], said.code


def _ends_within(sock: socket.socket, seconds: float) -> float:
    """Seconds until the other side closes."""
    started = time.monotonic()
    sock.settimeout(seconds)
    try:
        while sock.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return time.monotonic() - started


def _hung_up_after(
    sock: socket.socket, clock: HandClock, meanwhile: Callable[[], object] = lambda: None
) -> float:
    """A second after the other passes by hand until the other side closes: after how many."""
    clock.settle()
    sock.setblocking(False)
    for seconds in range(1, 100):
        clock.pass_on(1.0)
        try:
            meanwhile()
            while sock.recv(65536):
                pass
        except BlockingIOError:
            continue
        except OSError:
            pass
        return seconds
    raise AssertionError("nobody hung up")


@contextmanager
def _ticking(clock: HandClock) -> Iterator[None]:
    """Time passes by itself, as fast as the server looks."""
    stop = threading.Event()

    def tick() -> None:
        while not stop.is_set():
            clock.pass_on(1.0)

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=60)


def _until_served(port: int, *, source: str = "127.0.0.2") -> None:
    """Try until there is room for one more connection."""
    deadline = time.monotonic() + 20
    while True:
        try:
            assert post(port, "/v1/hello", b"", source=source)[0] == 200
        except (OSError, http.client.HTTPException):
            assert time.monotonic() < deadline
            threading.Event().wait(0.05)
        else:
            return


@pytest.mark.parametrize("then", [echo, refusing(LockHeld(7, "the lock")), refusing(KeyError())])
def test_no_secret_is_remembered_once_it_is_answered(then: Handler) -> None:
    seen: list[int] = []

    def handle(path: str, source: IPv6Address, body: bytes) -> HttpReply:
        keys.wg_pair(Secret(bytes(32)))
        seen.append(secretcache.count())
        return then(path, source, body)

    secretcache.forget()
    with serving(handle) as port:
        post(port, "/v1/hello", b"")
    assert (seen, secretcache.count()) == ([1], 0)


def test_a_request_reaches_the_handler_with_its_source_and_the_answer_comes_back() -> None:
    with serving(echo) as port:
        for path in ("/v1/hello", "/v1/roster", "/v1/join", "/v1/etcd"):
            status, body = post(port, path, b"text")
            assert status == 200
            found, source, said = body.split()
            assert (found.decode(), said) == (path, b"text")
            assert IPv6Address(source.decode()) == IPv6Address("::ffff:127.0.0.2")


def test_nothing_else_is_served() -> None:
    with serving(echo) as port:
        assert _code(post(port, "/", b"")) == (404, "not-found")
        assert _code(post(port, "/v1/hello/", b"")) == (404, "not-found")
        assert _code(post(port, "/v1/hello", b"", method="GET")) == (405, "not-allowed")
        assert _code(post(port, "/v1/hello", b"", method="DELETE")) == (405, "not-allowed")


def test_from_a_temporary_address_there_is_join_and_nothing_else() -> None:
    with serving(echo) as port:
        assert post(port, "/v1/join", b"", source="127.0.9.7")[0] == 200
        for path in ("/v1/hello", "/v1/roster", "/v1/etcd", "/"):
            assert _code(post(port, path, b"", source="127.0.9.7")) == (404, "not-found")


def test_errors_show_as_their_code_and_bugs_show_nothing() -> None:
    with serving(refusing(Refused("some-rule", "no", "do"))) as port:
        assert _code(post(port, "/v1/hello", b"")) == (409, "refused")
    with serving(refusing(LockHeld(7, "the lock"))) as port:
        assert _code(post(port, "/v1/hello", b"")) == (503, "locked")
    with serving(refusing(DiskTrouble(Path("/var/lib/secret"), errno.ENOSPC))) as port:
        status, body = post(port, "/v1/join", b"")
        assert _code((status, body)) == (500, "disk-trouble")
        assert b"secret" not in body
    with serving(refusing(ZeroDivisionError("the secret detail"))) as port:
        status, body = post(port, "/v1/hello", b"")
        assert _code((status, body)) == (500, "internal")
        assert b"detail" not in body
        assert b"Zero" not in body
        assert post(port, "/v1/hello", b"")[0] == 500


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_beyond_the_bound_is_refused(chunked: bool) -> None:
    limits = dataclasses.replace(NO_RATE, max_body_bytes=1000)
    with serving(echo, limits) as port:
        assert post(port, "/v1/hello", b"x" * 1000)[0] == 200
        with connect(port) as sock:
            if chunked:
                head = b"POST /v1/hello HTTP/1.1\r\nHost: k\r\nTransfer-Encoding: chunked\r\n\r\n"
                sock.sendall(head + b"3e9\r\n" + b"x" * 1001 + b"\r\n0\r\n\r\n")
            else:
                sock.sendall(HEAD.replace(b" 5", b" 1001") + b"x" * 1001)
            assert sock.recv(100).startswith(b"HTTP/1.1 413 ")
        assert post(port, "/v1/hello", b"x")[0] == 200


def test_a_head_beyond_the_bound_is_refused() -> None:
    with serving(echo) as port, connect(port) as sock:
        sock.sendall(HEAD.removesuffix(b"\r\n") + b"X: " + b"x" * 8192 + b"\r\n\r\n")
        assert b" 431 " in sock.recv(100)
        assert post(port, "/v1/hello", b"x")[0] == 200


@pytest.mark.parametrize(
    "rates",
    [
        pytest.param({"source_rate": Rate(per_second=0.001, burst=3)}, id="of a source"),
        pytest.param({"total_rate": Rate(per_second=0.001, burst=3)}, id="of all"),
    ],
)
def test_a_rate_is_kept(rates: dict[str, Rate]) -> None:
    with serving(echo, dataclasses.replace(NO_RATE, **rates)) as port:
        assert [post(port, "/v1/hello", b"")[0] for _ in range(4)] == [200, 200, 200, 429]
        other = post(port, "/v1/hello", b"", source="127.0.0.3")[0]
        assert other == (200 if "source_rate" in rates else 429)


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", id="nothing at all"),
        pytest.param(b"POST /v1/he", id="half a first line"),
        pytest.param(HEAD[:-4], id="half a head"),
        pytest.param(HEAD + b"x", id="half a body"),
    ],
)
def test_a_request_that_is_not_complete_in_time_is_hung_up_on(sent: bytes) -> None:
    clock = HandClock()
    with serving(echo, LOOKS, clock) as port, connect(port) as sock:
        sock.sendall(sent)
        assert _hung_up_after(sock, clock) == 11


def test_bytes_that_keep_coming_do_not_buy_time() -> None:
    clock = HandClock()
    with serving(echo, LOOKS, clock) as port, connect(port) as sock:
        assert _hung_up_after(sock, clock, lambda: sock.sendall(b"P")) == 11


def test_an_answer_that_is_not_taken_is_given_up() -> None:
    def huge(path: str, source: IPv6Address, body: bytes) -> HttpReply:
        return HttpReply(status=200, body=bytes(12 << 20))

    clock, limits = HandClock(), dataclasses.replace(LOOKS, per_source=1)
    with serving(huge, limits, clock) as port, connect(port) as sock:
        sock.sendall(HEAD + b"12345")
        assert sock.recv(9) == b"HTTP/1.1 "
        with _ticking(clock):
            _until_served(port)
        assert clock.monotonic() > limits.answer_seconds


def test_an_idle_connection_is_closed_and_a_working_one_is_kept() -> None:
    clock = HandClock()
    with serving(echo, LOOKS, clock) as port:
        asker = Asker(port)
        for _ in range(4):
            assert asker.post("/v1/hello", b"")[0] == 200
            clock.pass_on(29.0)
        asker.close()
        with connect(port) as sock:
            sock.sendall(HEAD + b"12345")
            assert sock.recv(65536).startswith(b"HTTP/1.1 200 ")
            assert _hung_up_after(sock, clock) == 31


def test_a_source_has_two_connections_and_an_idle_one_makes_room() -> None:
    clock = HandClock()
    with serving(echo, LOOKS, clock) as port:
        busy = [connect(port) for _ in range(2)]
        for sock in busy:
            sock.sendall(HEAD)
        clock.settle()
        with connect(port) as third:
            assert _hung_up_after(third, clock) == 1
        assert post(port, "/v1/hello", b"", source="127.0.0.3")[0] == 200
        busy[0].sendall(b"12345")
        assert busy[0].recv(100).startswith(b"HTTP/1.1 200")
        assert post(port, "/v1/hello", b"")[0] == 200
        assert _ends_within(busy[0], 20) < 10
        for sock in busy:
            sock.close()


def test_one_that_asks_again_at_once_is_served_every_time() -> None:
    with serving(echo) as port:
        for _ in range(50):
            assert post(port, "/v1/hello", b"")[0] == 200


def test_those_who_wait_for_room_are_closed_with_the_server_and_are_not_many() -> None:
    limits = dataclasses.replace(NO_RATE, per_source=1, waiting=1, waiting_seconds=1000.0)
    with serving(echo, limits) as port:
        socks = [connect(port) for _ in range(3)]
        assert _ends_within(socks[2], 20) < 10
    for sock in socks[:2]:
        assert _ends_within(sock, 20) < 10


def test_all_together_have_so_many_connections() -> None:
    clock, limits = HandClock(), dataclasses.replace(LOOKS, connections=3)
    with serving(echo, limits, clock) as port:
        busy = [connect(port, f"127.0.0.{number}") for number in range(10, 13)]
        for sock in busy:
            sock.sendall(HEAD)
        clock.settle()
        with connect(port, "127.0.0.20") as fourth:
            assert _hung_up_after(fourth, clock) == 1
        busy[0].close()
        _until_served(port, source="127.0.0.20")
        for sock in busy:
            sock.close()


def test_an_honest_member_is_served_within_5_seconds_beside_eight_dribblers() -> None:
    stop = threading.Event()

    def dribble(port: int, source: str) -> None:
        """A byte at a time on as many connections as it gets, and again when hung up on."""
        socks: list[socket.socket] = []
        while not stop.is_set():
            while len(socks) < 4:
                socks.append(connect(port, source))
            for sock in list(socks):
                try:
                    sock.sendall(b"P")
                except OSError:
                    sock.close()
                    socks.remove(sock)
            stop.wait(0.2)
        for sock in socks:
            sock.close()

    with serving(echo, Limits()) as port:
        dribblers = [
            threading.Thread(target=dribble, args=(port, f"127.0.0.{number}"))
            for number in range(100, 108)
        ]
        for thread in dribblers:
            thread.start()
        try:
            for _ in range(3):
                stop.wait(0.2)
                started = time.monotonic()
                assert post(port, "/v1/hello", b"x" * 200_000)[0] == 200
                assert time.monotonic() - started < 5
        finally:
            stop.set()
            for thread in dribblers:
                thread.join(timeout=30)


def test_a_server_without_a_socket_is_not_made() -> None:
    with pytest.raises(UsageError, match="keel-channel.socket"):
        ChannelServer([], echo, clock=TestClock(), temporary=TEMPORARY)


def test_a_connection_that_another_process_took_from_the_shared_socket_is_not_missed() -> None:
    server = ChannelServer([listening()], echo, clock=TestClock(), temporary=TEMPORARY)
    for listener in server._listeners:
        listener.handle_accept()  # woken, and there is nothing to accept
    server.stop()
    server.run()


def test_several_requests_are_handled_at_a_time() -> None:
    together = threading.Barrier(3, timeout=20)

    def handle(path: str, source: IPv6Address, body: bytes) -> HttpReply:
        together.wait()
        return HttpReply(status=200, body=b"")

    with serving(handle) as port:
        found: list[int] = []
        threads = [
            threading.Thread(
                target=lambda n=number: found.append(
                    post(port, "/v1/hello", b"", source=f"127.0.0.{n}")[0]
                )
            )
            for number in range(30, 33)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=30)
        assert found == [200, 200, 200]


_ACTIVATED = """
import os, sys
from keel.mesh.server import inherited_sockets
os.dup2(int(sys.argv[1]), 3)
(sock,) = inherited_sockets({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"})
print(sock.getsockname()[1])
"""


def test_a_socket_is_taken_over_from_systemd() -> None:
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as sock:
        sock.bind(("::1", 0))
        done = subprocess.run(
            [sys.executable, "-c", _ACTIVATED, str(sock.fileno())],
            pass_fds=(sock.fileno(),),
            capture_output=True,
            check=True,
            timeout=60,
        )
        assert int(done.stdout) == sock.getsockname()[1]


@pytest.mark.parametrize(
    "environ",
    [
        pytest.param({}, id="not activated"),
        pytest.param({"LISTEN_PID": "1", "LISTEN_FDS": "1"}, id="meant for another process"),
        pytest.param({"LISTEN_PID": str(os.getpid())}, id="without sockets"),
    ],
)
def test_without_activation_there_is_no_socket(environ: dict[str, str]) -> None:
    assert inherited_sockets(environ) == ()
