"""The client's bounds against the real server and against servers that misbehave."""

from __future__ import annotations

import dataclasses
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import IPv6Address

import pytest

from keel.errors import PeerError
from keel.mesh.client import KEEP_SECONDS, HttpChannel
from keel.mesh.limits import Limits
from keel.mesh.server import HttpReply
from tests.desk import NO_RATE, TestClock, echo, serving

HERE = IPv6Address("::ffff:127.0.0.1")
NOBODY = IPv6Address("::ffff:127.0.0.77")


@contextmanager
def _raw_server(
    behave: Callable[[socket.socket], None], *, at: str = HERE.compressed
) -> Iterator[int]:
    """Accepts connections and lets `behave` have each in a thread of its own."""
    listener = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    listener.bind((at, 0))
    listener.listen()

    def one(sock: socket.socket) -> None:
        with sock:
            try:
                sock.recv(65536)
                behave(sock)
            except OSError:
                return

    def accept() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=one, args=(sock,), daemon=True).start()

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(timeout=10)


def _failure(port: int, *, address: IPv6Address = HERE, timeout: float = 1.0) -> tuple[str, float]:
    channel = HttpChannel(TestClock(), port=port, max_answer_bytes=1000)
    started = time.monotonic()
    with pytest.raises(PeerError) as caught:
        channel.post(address, "/v1/hello", b"x", timeout_seconds=timeout)
    channel.close()
    assert caught.value.member == str(address)
    return caught.value.reason, time.monotonic() - started


def test_an_answer_comes_back_whatever_its_status() -> None:
    def teapot(path: str, source: IPv6Address, body: bytes) -> HttpReply:
        return HttpReply(status=409, body=path.encode() + b" " + body)

    with serving(teapot) as port:
        channel = HttpChannel(TestClock(), port=port)
        said = channel.post(HERE, "/v1/hello", b"text", timeout_seconds=5)
        assert said == b"/v1/hello text"
        channel.close()


def test_one_connection_is_kept_per_peer_and_a_closed_channel_opens_another() -> None:
    accepted = 0

    def count(sock: socket.socket) -> None:
        nonlocal accepted
        accepted += 1
        while True:
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            if not sock.recv(65536):
                return

    with _raw_server(count) as port:
        channel = HttpChannel(TestClock(), port=port)
        for _ in range(5):
            assert channel.post(HERE, "/v1/hello", b"", timeout_seconds=5) == b"ok"
        assert accepted == 1
        channel.close()
        assert channel.post(HERE, "/v1/hello", b"", timeout_seconds=5) == b"ok"
        assert accepted == 2
        channel.close()


def test_a_connection_that_idled_too_long_is_not_used_again() -> None:
    class Leaping(TestClock):
        ahead = 0.0

        def monotonic(self) -> float:
            return time.monotonic() + self.ahead

    clock, ports = Leaping(), set()

    def remember(path: str, source: IPv6Address, body: bytes) -> HttpReply:
        return HttpReply(status=200, body=b"")

    def peer(sock: socket.socket) -> None:
        ports.add(sock.getpeername()[1])
        while True:
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            if not sock.recv(65536):
                return

    with _raw_server(peer) as port:
        channel = HttpChannel(clock, port=port)
        channel.post(HERE, "/v1/hello", b"", timeout_seconds=5)
        clock.ahead = KEEP_SECONDS + 1
        channel.post(HERE, "/v1/hello", b"", timeout_seconds=5)
        assert len(ports) == 2
        channel.close()


def _dribble(sock: socket.socket) -> None:
    for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n" + b"x" * 500:
        sock.sendall(bytes((byte,)))
        threading.Event().wait(0.1)


def _dribble_body(sock: socket.socket) -> None:
    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n")
    for _ in range(500):
        sock.sendall(b"x")
        threading.Event().wait(0.1)


def _silent(sock: socket.socket) -> None:
    threading.Event().wait(5)


@pytest.mark.parametrize(
    "behave",
    [
        pytest.param(_silent, id="silence"),
        pytest.param(_dribble, id="a head that dribbles"),
        pytest.param(_dribble_body, id="a body that dribbles"),
    ],
)
def test_the_deadline_is_total(behave: Callable[[socket.socket], None]) -> None:
    with _raw_server(behave) as port:
        reason, seconds = _failure(port, timeout=0.3)
        assert reason == "timeout"
        assert 0.3 <= seconds < 3


def test_a_deadline_that_passed_before_the_first_byte_is_a_timeout() -> None:
    with serving(echo) as port:
        assert _failure(port, timeout=0.0)[0] == "timeout"


def _many(sock: socket.socket) -> None:
    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n" + b"x" * 1001)


def _endless(sock: socket.socket) -> None:
    sock.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        sock.sendall(b"400\r\n" + b"x" * 1024 + b"\r\n")


def _zipped(sock: socket.socket) -> None:
    import gzip

    body = gzip.compress(bytes(10 << 20))
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n"
    sock.sendall(head.encode() + body)


@pytest.mark.parametrize(
    "behave",
    [
        pytest.param(_many, id="one byte too many"),
        pytest.param(_endless, id="endless"),
        pytest.param(_zipped, id="compressed, and not opened"),
    ],
)
def test_an_answer_beyond_the_bound_is_not_read(behave: Callable[[socket.socket], None]) -> None:
    with _raw_server(behave) as port:
        assert _failure(port, timeout=5.0)[0] == "too-large"


def _hang_up(sock: socket.socket) -> None:
    sock.shutdown(socket.SHUT_RDWR)


def _garbage(sock: socket.socket) -> None:
    sock.sendall(b"\x00\x01\x02 what is this\r\n\r\n")


def _half(sock: socket.socket) -> None:
    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")


@pytest.mark.parametrize(
    "behave",
    [
        pytest.param(_hang_up, id="hangs up"),
        pytest.param(_garbage, id="no HTTP"),
        pytest.param(_half, id="half an answer"),
    ],
)
def test_a_broken_exchange_is_unreachable(behave: Callable[[socket.socket], None]) -> None:
    with _raw_server(behave) as port:
        assert _failure(port, timeout=5.0)[0] == "unreachable"


def test_nobody_there_is_unreachable() -> None:
    with serving(echo) as port:
        assert _failure(port, address=NOBODY)[0] == "unreachable"


def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    asked = []

    def elsewhere(sock: socket.socket) -> None:
        asked.append(1)
        sock.sendall(
            b"HTTP/1.1 307 Elsewhere\r\nLocation: /v1/join\r\nSet-Cookie: a=b\r\n"
            b"Content-Length: 4\r\nConnection: close\r\n\r\nmove"
        )

    with _raw_server(elsewhere) as port:
        channel = HttpChannel(TestClock(), port=port)
        assert channel.post(HERE, "/v1/hello", b"", timeout_seconds=5) == b"move"
        assert len(asked) == 1
        channel.close()


def test_cookies_are_not_sent_back_and_proxies_are_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://[::1]:9")
    heads = []

    def cookies(sock: socket.socket) -> None:
        sock.sendall(b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n")
        heads.append(sock.recv(65536))
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    with _raw_server(cookies) as port:
        channel = HttpChannel(TestClock(), port=port)
        for _ in range(2):
            channel.post(HERE, "/v1/hello", b"", timeout_seconds=5)
        channel.close()
    assert b"Cookie" not in heads[0]
    assert b"Accept-Encoding: identity" in heads[0]


def test_many_are_asked_at_once_and_each_failure_stands_beside_its_member() -> None:
    others = [IPv6Address(f"::ffff:127.0.0.{number}") for number in range(40, 60)]
    with serving(echo) as port:
        channel = HttpChannel(TestClock(), port=port)
        found = channel.post_all(
            {HERE: b"text", **{one: b"" for one in others}}, "/v1/hello", timeout_seconds=5
        )
        channel.close()
    assert isinstance(found[HERE], bytes)
    assert found[HERE].endswith(b"text")
    for one in others:
        error = found[one]
        assert isinstance(error, PeerError)
        assert (error.member, error.reason) == (str(one), "unreachable")


def test_a_large_mesh_is_asked_at_once() -> None:
    """Nobody answers before all have been asked."""
    members = [IPv6Address(f"::ffff:127.0.0.{number}") for number in range(1, 61)]
    together = threading.Barrier(len(members), timeout=20)

    def answer(sock: socket.socket) -> None:
        try:
            together.wait()
        except threading.BrokenBarrierError:
            return
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    with _raw_server(answer, at="::") as port:
        channel = HttpChannel(TestClock(), port=port)
        found = channel.post_all(dict.fromkeys(members, b""), "/v1/hello", timeout_seconds=30)
        channel.close()
    assert list(found.values()) == [b"ok"] * len(members)


def test_the_silent_cost_one_deadline_together() -> None:
    with _raw_server(_silent) as port:
        channel = HttpChannel(TestClock(), port=port)
        started = time.monotonic()
        found = channel.post_all(
            {IPv6Address(f"::ffff:127.0.0.{number}"): b"" for number in (1, 60)},
            "/v1/hello",
            timeout_seconds=0.3,
        )
        assert time.monotonic() - started < 3
        assert isinstance(found[HERE], PeerError)
        channel.close()


def test_nobody_to_ask_is_no_answer() -> None:
    did: list[str] = []
    channel = HttpChannel(TestClock())
    assert channel.post_all({}, "/v1/hello", timeout_seconds=1.0) == {}
    done = channel.post_all({}, "/v1/hello", timeout_seconds=1.0, meanwhile=lambda: did.append("x"))
    assert (done, did) == ({}, ["x"])


def test_what_is_done_meanwhile_waits_for_no_answer() -> None:
    """The far end answers only once it has been done."""
    did = threading.Event()

    def patient(path: str, source: IPv6Address, body: bytes) -> HttpReply:
        return HttpReply(status=200, body=b"after" if did.wait(5.0) else b"before")

    with serving(patient) as port:
        channel = HttpChannel(TestClock(), port=port)
        found = channel.post_all({HERE: b""}, "/v1/hello", timeout_seconds=9.0, meanwhile=did.set)
        channel.close()
    assert found == {HERE: b"after"}


def test_two_threads_take_turns_at_one_peer_within_their_deadlines() -> None:
    release = threading.Event()

    def slow(path: str, source: IPv6Address, body: bytes) -> HttpReply:
        release.wait(10)
        return HttpReply(status=200, body=b"")

    with serving(slow) as port:
        channel = HttpChannel(TestClock(), port=port)
        first: list[bytes] = []
        thread = threading.Thread(
            target=lambda: first.append(channel.post(HERE, "/v1/hello", b"", timeout_seconds=15))
        )
        thread.start()
        threading.Event().wait(0.2)
        with pytest.raises(PeerError) as caught:
            channel.post(HERE, "/v1/hello", b"", timeout_seconds=0.3)
        assert caught.value.reason == "timeout"
        release.set()
        thread.join(timeout=15)
        assert first == [b""]
        channel.close()


def test_client_and_server_agree_on_sizes() -> None:
    limits = dataclasses.replace(NO_RATE, max_body_bytes=Limits().max_body_bytes)
    with serving(echo, limits) as port:
        channel = HttpChannel(TestClock(), port=port)
        body = b"x" * (256 << 10)
        assert channel.post(HERE, "/v1/roster", body, timeout_seconds=10).endswith(body)
        channel.close()
