"""The members' channel, out: ports.ChannelOut by requests.

Owns connections and bounds: no proxies, no redirects, no cookies, no decompression; a total
deadline, which also holds against a peer that dribbles; a largest answer. What is sent and whether
an answer proves anything is the flows'.
"""

from __future__ import annotations

import contextlib
import functools
import socket
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.cookiejar import DefaultCookiePolicy
from ipaddress import IPv6Address
from typing import Self

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection
from urllib3.connectionpool import HTTPConnectionPool

from keel.errors import PeerError
from keel.mesh.firewallrules import CHANNEL_PORT
from keel.ports import Clock, Deadline, Meanwhile

MAX_ANSWER_BYTES = 1 << 20
CONNECT_SECONDS = 10.0
KEEP_SECONDS = 15.0
"""An idle connection is not used after this: the server closes it at 30 s, and a link that was cut
meanwhile may have left it dead without a word."""
SILENCE_MILLISECONDS = 10_000
"""TCP_USER_TIMEOUT: unacknowledged data kills the connection, not the kernel's 15 minutes."""
MAX_WORKERS = 256
"""Asked at once: a whole mesh of 200, so that asking it takes as long as asking three."""
_CHUNK = 64 << 10


class HttpChannel:
    """One kept-alive connection per peer, one request at a time on it. Safe between threads."""

    def __init__(
        self, clock: Clock, *, port: int = CHANNEL_PORT, max_answer_bytes: int = MAX_ANSWER_BYTES
    ) -> None:
        self._clock = clock
        self._port = port
        self._max_answer_bytes = max_answer_bytes
        self._peers: dict[IPv6Address, _Peer] = {}
        self._lock = threading.Lock()

    def post(
        self, address: IPv6Address, path: str, body: bytes, *, timeout_seconds: float
    ) -> bytes:
        """As ports.ChannelOut; also PeerError `too-large` for an answer beyond the bound."""
        deadline = Deadline.after(self._clock, timeout_seconds)
        with _Watchdog(timeout_seconds) as watchdog:
            return self._post(address, path, body, deadline, watchdog)

    def post_all(
        self,
        requests: Mapping[IPv6Address, bytes],
        path: str,
        *,
        timeout_seconds: float,
        meanwhile: Meanwhile | None = None,
    ) -> Mapping[IPv6Address, bytes | Exception]:
        """As ports.ChannelOut; one deadline for all."""
        meanwhile = meanwhile or _nothing
        if not requests:
            meanwhile()
            return {}
        deadline = Deadline.after(self._clock, timeout_seconds)

        def ask(address: IPv6Address) -> bytes | Exception:
            try:
                return self._post(address, path, requests[address], deadline, watchdog)
            except PeerError as error:
                return error

        workers = min(MAX_WORKERS, len(requests))
        with _Watchdog(timeout_seconds) as watchdog, ThreadPoolExecutor(workers) as pool:
            answers = pool.map(ask, requests)  # all are being sent from here on
            meanwhile()
            return dict(zip(requests, answers, strict=True))

    def close(self) -> None:
        """Close every kept connection; a later post opens new ones."""
        with self._lock:
            for peer in self._peers.values():
                peer.session.close()
            self._peers.clear()

    def _post(
        self,
        address: IPv6Address,
        path: str,
        body: bytes,
        deadline: Deadline,
        watchdog: _Watchdog,
    ) -> bytes:
        with self._lock:
            peer = self._peers.setdefault(address, _Peer(address))
        if not peer.lock.acquire(timeout=deadline.remaining(self._clock)):
            raise _timeout(address)
        try:
            with watchdog.over(peer):
                return self._exchange(peer, path, body, deadline)
        finally:
            peer.lock.release()

    def _exchange(self, peer: _Peer, path: str, body: bytes, deadline: Deadline) -> bytes:
        remaining = deadline.remaining(self._clock)
        if remaining <= 0.0:
            raise _timeout(peer.address)
        if self._clock.monotonic() - peer.used > KEEP_SECONDS:
            peer.session.close()
        try:
            with peer.session.post(
                f"http://[{peer.address.compressed}]:{self._port}{path}",
                data=body,
                headers=_HEADERS,
                timeout=(min(CONNECT_SECONDS, remaining), remaining + 1.0),  # the watchdog is first
                allow_redirects=False,
                stream=True,
            ) as response:
                return self._bounded(peer, response)
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            if deadline.passed(self._clock):
                raise _timeout(peer.address) from error
            raise _unreachable(peer.address) from error
        finally:
            peer.used = self._clock.monotonic()

    def _bounded(self, peer: _Peer, response: requests.Response) -> bytes:
        parts = bytearray()
        for chunk in response.raw.stream(_CHUNK, decode_content=False):
            parts += chunk
            if len(parts) > self._max_answer_bytes:
                text = f"its answer is larger than {self._max_answer_bytes} bytes"
                raise PeerError(str(peer.address), "too-large", text)
        return bytes(parts)


class _Watchdog:
    """Cuts whoever is still being asked when the time is over: one thread for all of them."""

    def __init__(self, seconds: float) -> None:
        self._lock = threading.Lock()
        self._asked: set[_Peer] = set()
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    @contextlib.contextmanager
    def over(self, peer: _Peer) -> Iterator[None]:
        """While it is being asked."""
        with self._lock:
            self._asked.add(peer)
        try:
            yield
        finally:
            with self._lock:
                self._asked.discard(peer)

    def _cut(self) -> None:
        with self._lock:
            for peer in self._asked:
                peer.cut()


class _Peer:
    """A peer's session, and the socket that the watchdog may have to cut."""

    def __init__(self, address: IPv6Address) -> None:
        self.address = address
        self.lock = threading.Lock()
        self.used = 0.0
        self.session = _Session()
        self.session.trust_env = False
        self.session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        self.session.mount("http://", _Adapter(self))
        self._sockets: tuple[socket.socket, ...] = ()

    def connected(self, sock: socket.socket) -> None:
        self._sockets = (sock,)

    def cut(self) -> None:
        """End whatever is being read or written; its thread then sees a closed connection."""
        for sock in self._sockets:
            with contextlib.suppress(OSError):  # closed in the same moment, which is as good
                sock.shutdown(socket.SHUT_RDWR)


class _Session(requests.Session):
    """Sees no redirects. With allow_redirects=False requests (2.32) still reads a redirect's whole
    body, without a bound, to prepare the request that it then does not send."""

    def get_redirect_target(self, resp: requests.Response) -> str | None:  # noqa: ARG002
        return None


class _Connection(HTTPConnection):
    """Tells its peer about its socket."""

    def __init__(self, *args: object, peer: _Peer, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # urllib3's own arguments
        self._peer = peer

    def connect(self) -> None:
        super().connect()
        self._peer.connected(self.sock)


class _Adapter(HTTPAdapter):
    """Makes connections that are bound to one peer, and dies early on a dead link."""

    def __init__(self, peer: _Peer) -> None:
        self._peer = peer
        super().__init__(pool_connections=1, pool_maxsize=1, max_retries=0)

    def init_poolmanager(self, *args: object, **kwargs: object) -> None:
        super().init_poolmanager(  # type: ignore[no-untyped-call]
            *args,
            **kwargs,
            socket_options=[
                *HTTPConnection.default_socket_options,
                (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENCE_MILLISECONDS),
            ],
        )
        peer = self._peer

        class Pool(HTTPConnectionPool):
            # staticmethod: a bare partial warns from Python 3.13 on, as it will become a method.
            ConnectionCls = staticmethod(functools.partial(_Connection, peer=peer))  # type: ignore[assignment]

        self.poolmanager.pool_classes_by_scheme = {"http": Pool}


def _nothing() -> None:
    """While the answers are on their way."""


def _timeout(address: IPv6Address) -> PeerError:
    return PeerError(str(address), "timeout", "it did not answer in time")


def _unreachable(address: IPv6Address) -> PeerError:
    return PeerError(str(address), "unreachable", "it cannot be reached")


_HEADERS = {
    "Accept-Encoding": "identity",
    "Content-Type": "application/octet-stream",
    "User-Agent": "keel",
}
