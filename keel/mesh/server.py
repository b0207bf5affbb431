"""The members' channel, in: a small HTTP service on sockets that it is given (waitress).

Owns bounds and how paths and errors show in HTTP. What a request means is the handler's.

Rules:
(S1) A connection has 10 s to complete a request, its first one counted from the connect, and 30 s
     to take the answer; it may idle 30 s between two. Waitress bounds idleness only.
(S2) A source has two connections and all together 64. An idle one makes room for a new one;
     without an idle one the new one waits a second for room and is closed then.
(S3) A request costs a token of its source's bucket and one of everybody's, before it is looked at.
(S4) From a temporary address there is `/v1/join` and nothing else.
(S5) What an answer reckoned from this node's secrets is forgotten before it is sent.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import IPv6Address, IPv6Network
from typing import Any, NamedTuple

from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.server import TcpWSGIServer
from waitress.task import ThreadedTaskDispatcher

from keel import secretcache
from keel.errors import KeelError, UsageError
from keel.mesh.exchange import ETCD_PATH, HELLO_PATH, JOIN_PATH, ROSTER_PATH
from keel.mesh.limits import Buckets, Limits
from keel.mesh.refusal import plain
from keel.ports import Clock

log = logging.getLogger(__name__)

PATHS = frozenset({HELLO_PATH, ROSTER_PATH, JOIN_PATH, ETCD_PATH})
MAX_HEADER_BYTES = 8192
CANNOT = "this node cannot answer now"
"""All that an error says outside beside its code: nobody was proven, and its words name paths,
programs and processes of this node."""
_FIRST_INHERITED = 3  # sd_listen_fds(3)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpReply:
    """An HTTP status and the exact bytes of the body."""

    status: int
    body: bytes


Handler = Callable[[str, IPv6Address, bytes], HttpReply]
"""From path, source and body to the reply, in one of several threads of the server. A KeelError
becomes its `http` and its code; anything else a 500 without details."""


class ChannelServer:
    """A server on listening sockets; `run` blocks until `stop` is called by another thread."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        handler: Handler,
        *,
        clock: Clock,
        temporary: IPv6Network,
        limits: Limits | None = None,
    ) -> None:
        if not sockets:
            raise UsageError("no socket was passed; the channel is started by keel-channel.socket")
        bounds = limits or Limits()
        self._look_seconds = bounds.look_seconds
        self._map: dict[int, Any] = {}
        self._stopped = threading.Event()
        self._tasks = ThreadedTaskDispatcher()
        self._tasks.set_thread_count(bounds.threads)
        app = _App(handler, clock=clock, temporary=temporary, limits=bounds)
        self._listeners = [
            _Listener(app, sock, self._map, self._tasks, clock=clock, limits=bounds)
            for sock in sockets
        ]

    def run(self) -> None:
        """Serve; when stopped, close every connection and the sockets."""
        while not self._stopped.is_set():
            wasyncore.loop(timeout=self._look_seconds, use_poll=True, map=self._map, count=1)
        self._tasks.shutdown()
        wasyncore.close_all(self._map)

    def stop(self) -> None:
        """Once, from any thread; the loop notes it itself, so nothing that it polls is closed."""
        with contextlib.suppress(OSError):  # woken by something else, it has noted it and closed
            self._listeners[0].trigger.pull_trigger(self._stopped.set)


def inherited_sockets(environ: Mapping[str, str]) -> tuple[socket.socket, ...]:
    """The sockets that systemd passed to this very process (LISTEN_PID, LISTEN_FDS), or none."""
    if environ.get("LISTEN_PID") != str(os.getpid()):
        return ()
    count = int(environ.get("LISTEN_FDS", "0"))
    return tuple(socket.socket(fileno=_FIRST_INHERITED + number) for number in range(count))


class _App:
    """The WSGI application: (S3), (S4), and errors as HTTP."""

    def __init__(
        self, handler: Handler, *, clock: Clock, temporary: IPv6Network, limits: Limits
    ) -> None:
        self._handler = handler
        self._clock = clock
        self._temporary = temporary
        self._lock = threading.Lock()
        self._by_source = Buckets(limits.source_rate)
        self._in_total = Buckets(limits.total_rate)

    def __call__(
        self, environ: Mapping[str, Any], start_response: Callable[..., object]
    ) -> Iterable[bytes]:
        reply = self._answer(environ)
        start_response(
            f"{reply.status} {HTTPStatus(reply.status).phrase}",
            [
                ("Content-Type", "application/octet-stream"),
                ("Content-Length", str(len(reply.body))),
            ],
        )
        return [reply.body]

    def _answer(self, environ: Mapping[str, Any]) -> HttpReply:
        source = IPv6Address(str(environ["REMOTE_ADDR"]).partition("%")[0])
        path = str(environ["PATH_INFO"])
        if not self._within_rate(source):
            return _plain(429, "too-many", "too many requests")
        if path not in PATHS or (source in self._temporary and path != JOIN_PATH):
            return _plain(404, "not-found", "no such path")
        if environ["REQUEST_METHOD"] != "POST":
            return _plain(405, "not-allowed", "only POST is allowed")
        try:
            return self._handler(path, source, environ["wsgi.input"].read())
        except KeelError as error:
            log.info("%s from %s: %s", path, source, error)
            return _plain(error.http, error.code, CANNOT)
        except Exception:  # one of the three broad ones: a bug in a handler must not show outside
            log.exception("%s from %s: a bug in keel", path, source)
            return _plain(500, "internal", "internal error")
        finally:
            secretcache.forget()

    def _within_rate(self, source: IPv6Address) -> bool:
        now = self._clock.monotonic()
        with self._lock:
            return self._by_source.take(source, now) and self._in_total.take("all", now)


class _Channel(HTTPChannel):  # type: ignore[misc]  # waitress has no types
    """A connection that knows since when it waits for what (S1)."""

    server: _Listener

    def __init__(self, server: _Listener, *args: Any, **kwargs: Any) -> None:
        self.idle_since: float | None = None
        self.asking_since: float | None = server.clock.monotonic()
        self.taking_since: float | None = None
        super().__init__(server, *args, **kwargs)

    def received(self, data: bytes) -> Any:
        """Called with what arrived; nothing arrives while an answer is being taken."""
        now = self.server.clock.monotonic()
        self.taking_since = None
        waiting = len(self.requests)
        result = super().received(data)
        if self.request is None:
            self.asking_since = None
        elif self.asking_since is None or len(self.requests) > waiting:
            self.asking_since = now
        self.idle_since = now
        return result

    def busy(self) -> bool:
        """Whether a request or an answer is under way."""
        return bool(self.asking_since is not None or self.requests or self.total_outbufs_len)

    def overdue(self, now: float, limits: Limits) -> bool:
        if self.asking_since is not None:
            return now - self.asking_since > limits.request_seconds
        if self.requests:
            return False
        if self.total_outbufs_len:
            self.taking_since = now if self.taking_since is None else self.taking_since
            return now - self.taking_since > limits.answer_seconds
        self.taking_since = None
        return self.idle_since is not None and now - self.idle_since > limits.idle_seconds

    def hang_up(self) -> None:
        """Close soon, in the loop's own order: after a shutdown the socket polls as ready, also
        when the other side takes nothing."""
        self.will_close = True
        with contextlib.suppress(OSError):  # the other side may have been faster
            self.socket.shutdown(socket.SHUT_RDWR)


class _Waiting(NamedTuple):
    """A connection without a place yet."""

    connection: socket.socket
    address: tuple[Any, ...]
    since: float

    def overdue(self, now: float, limits: Limits) -> bool:
        return now - self.since >= limits.waiting_seconds


class _Listener(TcpWSGIServer):  # type: ignore[misc]  # waitress has no types
    """Accepts within (S2) and hangs up what is overdue (S1)."""

    channel_class = _Channel

    def __init__(
        self,
        app: _App,
        sock: socket.socket,
        shared: dict[int, Any],
        tasks: ThreadedTaskDispatcher,
        *,
        clock: Clock,
        limits: Limits,
    ) -> None:
        self.clock = clock
        self.limits = limits
        self._waiting: list[_Waiting] = []
        super().__init__(
            app,
            shared,
            _sock=sock,
            dispatcher=tasks,
            adj=_adjustments(limits),
            sockinfo=(sock.family, sock.type, sock.proto, sock.getsockname()),
            bind_socket=False,
        )

    def handle_accept(self) -> None:
        with contextlib.suppress(OSError):  # the other side may be gone already
            accepted = self.accept()
            if accepted is not None:
                connection, address = accepted
                self.set_socket_options(connection)
                self._waiting.append(_Waiting(connection, address, self.clock.monotonic()))
        self._let_in()

    def maintenance(self, now: float) -> None:  # noqa: ARG002  # waitress measures wall time
        """Called before every poll."""
        moment = self.clock.monotonic()
        for channel in self._open_channels():
            if channel.overdue(moment, self.limits):
                log.info("hanging up on %s: too slow", channel.addr[0])
                channel.hang_up()
        self._let_in()

    def close(self) -> None:
        for one in self._waiting:
            one.connection.close()
        self._waiting.clear()
        super().close()

    def _let_in(self) -> None:
        """Give those that wait their place, or close them: a client that asks again at once may be
        here before the end of its last connection was noticed."""
        moment = self.clock.monotonic()
        still: list[_Waiting] = []
        for one in self._waiting:
            if self._make_room(one.address[0]):
                self.channel_class(self, one.connection, one.address, self.adj, map=self._map)
            elif len(still) < self.limits.waiting and not one.overdue(moment, self.limits):
                still.append(one)
            else:
                log.info("too many connections, closing one from %s", one.address[0])
                one.connection.close()
        self._waiting = still

    def _make_room(self, source: str) -> bool:
        """Whether one more from this source fits, after an idle one gave way if need be."""
        channels = self._open_channels()
        mine = [channel for channel in channels if channel.addr[0] == source]
        for group, most in ((mine, self.limits.per_source), (channels, self.limits.connections)):
            if len(group) >= most:
                idle = [channel for channel in group if not channel.busy()]
                if not idle:
                    return False
                min(idle, key=lambda channel: channel.idle_since or 0.0).hang_up()
        return True

    def _open_channels(self) -> list[_Channel]:
        return [
            one for one in self._map.values() if isinstance(one, _Channel) and not one.will_close
        ]


def _adjustments(limits: Limits) -> Adjustments:
    return Adjustments(
        threads=limits.threads,
        ident="keel",
        cleanup_interval=0,
        connection_limit=limits.connections + 64,
        max_request_body_size=limits.max_body_bytes + 1,
        max_request_header_size=MAX_HEADER_BYTES,
        inbuf_overflow=limits.max_body_bytes + 1,
        expose_tracebacks=False,
        log_socket_errors=False,
    )


def _plain(status: int, code: str, summary: str) -> HttpReply:
    return HttpReply(status=status, body=plain(code, summary))
