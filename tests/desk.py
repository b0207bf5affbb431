"""A whole receiving side in memory behind the real server: for tests over a real loopback socket.

Sources are 127.0.0.x seen through an IPv6 socket (::ffff:127.0.0.x); the desk translates them to
the overlay addresses that WireGuard would have proven.
"""

from __future__ import annotations

import dataclasses
import http.client
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from ipaddress import IPv6Address, IPv6Network

from keel.mesh.envelope import Turned, answer, check_message, refuse
from keel.mesh.invite import Claim, InviteState, claim_invite
from keel.mesh.joinmsg import Admitted, JoinAnswer, JoinRequest, request_hash, seal_answer
from keel.mesh.limits import Limits
from keel.mesh.nonces import NonceLedger
from keel.mesh.redeem import Denied, NewClaim, SameClaim, judge
from keel.mesh.refusal import UNPROVEN_ANSWER
from keel.mesh.server import ChannelServer, Handler, HttpReply
from keel.mesh.token import InviteKeys
from tests.channelkit import (
    ME,
    MESH,
    NOW,
    SERVES,
    Greeting,
    by_address,
    channel_view,
    claim,
    join_view,
    pair,
)

REMOVED = pair("removed")

TEMPORARY = IPv6Network("::ffff:127.0.9.0/120")
"""What the server takes for prefix:ffff::/80."""


class TestClock:
    """The fixed wall clock of the factories, and real seconds."""

    __test__ = False

    def now(self) -> datetime:
        return NOW

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        raise AssertionError("a server does not sleep")


class HandClock(TestClock):
    """Seconds pass by hand alone, and no further than the server has taken note of.

    The server looks at the clock twice in each round of its loop, so four looks hold a round that
    was whole."""

    def __init__(self) -> None:
        self._elapsed = 0.0
        self._looks = 0
        self._looked = threading.Condition()

    def monotonic(self) -> float:
        with self._looked:
            self._looks += 1
            self._looked.notify_all()
            return self._elapsed

    def pass_on(self, seconds: float) -> None:
        with self._looked:
            self._elapsed += seconds
            seen = self._looks + 4
            assert self._looked.wait_for(lambda: self._looks >= seen, timeout=60)

    def settle(self) -> None:
        """What was sent has arrived: a connection, then its bytes."""
        for _ in range(3):
            self.pass_on(0.0)


class Desk:
    """Handles messages and join requests as the flows do: lock, judge, keep, answer."""

    def __init__(self, invites: Iterable[InviteState], overlay: Mapping[str, IPv6Address]) -> None:
        self.invites = dict(by_address(*invites))
        self.overlay = {IPv6Address(f"::ffff:{v4}"): address for v4, address in overlay.items()}
        self.view = channel_view()
        self.join_view = join_view(removed=frozenset({REMOVED.public}))
        self.ledger = NonceLedger()
        self.refusals: Counter[str] = Counter()
        self.served: list[object] = []
        self.claims = 0
        self._lock = threading.Lock()

    def __call__(self, path: str, source: IPv6Address, body: bytes) -> HttpReply:
        address = self.overlay.get(source, source)
        with self._lock:
            if path == "/v1/join":
                return HttpReply(status=200, body=self._join(address, body))
            return HttpReply(status=200, body=self._message(address, body))

    def _message(self, source: IPv6Address, raw: bytes) -> bytes:
        found = check_message(
            raw, source=source, view=self.view, serves=SERVES, ledger=self.ledger, now=NOW
        )
        if isinstance(found, Turned):
            self.refusals[found.rejection.rule] += 1
            return refuse(found, self.view, ME, NOW)
        self.ledger = found.ledger
        self.served.append(found.body)
        return answer(found, Greeting(word="hello"), pair=ME, now=NOW)

    def _join(self, source: IPv6Address, raw: bytes) -> bytes:
        verdict = judge(raw, source=source, invites=self.invites, view=self.join_view, now=NOW)
        if isinstance(verdict, Denied):
            self.refusals[verdict.rejection.rule] += 1
            if verdict.counted:
                self.invites[source] = verdict.counted
            if verdict.keys is None:
                return UNPROVEN_ANSWER
            return self._seal(raw, verdict.keys, refusal=verdict.rejection.refusal())
        if isinstance(verdict, NewClaim):
            admission = f"admission of {verdict.request.ed25519}".encode()
            made = _claim_of(verdict.request, admission)
            self.invites[source] = claim_invite(verdict.invite, made, NOW)
            self.claims += 1
            return self._admit(raw, verdict.keys, admission)
        assert isinstance(verdict, SameClaim)
        return self._admit(raw, verdict.keys, verdict.claim.admission)

    def _admit(self, raw: bytes, keys: InviteKeys, admission: bytes) -> bytes:
        return self._seal(
            raw, keys, admitted=Admitted(admission=admission, genesis=b"genesis", roster=())
        )

    def _seal(self, raw: bytes, keys: InviteKeys, **outcome: object) -> bytes:
        made = JoinAnswer(
            mesh=MESH,
            invite=keys.invite,
            request=request_hash(raw),
            time=NOW,
            **outcome,  # type: ignore[arg-type]
        )
        return seal_answer(made, keys, ME, raw)


def _claim_of(request: JoinRequest, admission: bytes) -> Claim:
    return dataclasses.replace(
        claim(),
        ed25519=request.ed25519,
        wireguard=request.wireguard,
        name=request.name,
        admission=admission,
    )


def refusing(error: Exception) -> Callable[[str, IPv6Address, bytes], HttpReply]:
    """A handler that comes to an error."""

    def handle(path: str, source: IPv6Address, body: bytes) -> HttpReply:
        raise error

    return handle


def echo(path: str, source: IPv6Address, body: bytes) -> HttpReply:
    return HttpReply(status=200, body=f"{path} {source} ".encode() + body)


NO_RATE = Limits(source_rate=None, total_rate=None)


@contextmanager
def serving(
    handler: Handler, limits: Limits = NO_RATE, clock: TestClock | None = None
) -> Iterator[int]:
    """A running server on a loopback socket that also takes 127.0.0.0/8; yields its port."""
    sock = listening()
    port = sock.getsockname()[1]
    server = ChannelServer(
        [sock], handler, clock=clock or TestClock(), temporary=TEMPORARY, limits=limits
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield port
    finally:
        server.stop()
        thread.join(timeout=30)
        assert not thread.is_alive()


def listening() -> socket.socket:
    """A bound socket; the server makes it listen."""
    sock = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    sock.bind(("::ffff:127.0.0.1", 0))
    return sock


def connect(port: int, source: str = "127.0.0.2") -> socket.socket:
    sock = socket.create_connection(
        ("::ffff:127.0.0.1", port), timeout=20, source_address=(f"::ffff:{source}", 0)
    )
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


class Asker:
    """A kept-alive connection from one source."""

    def __init__(self, port: int, source: str = "127.0.0.2") -> None:
        self._connection = http.client.HTTPConnection("::ffff:127.0.0.1", port, timeout=20)
        self._connection.sock = connect(port, source)

    def post(self, path: str, body: bytes, *, method: str = "POST") -> tuple[int, bytes]:
        self._connection.request(method, path, body)
        response = self._connection.getresponse()
        return response.status, response.read()

    def close(self) -> None:
        self._connection.close()


def post(
    port: int, path: str, body: bytes, *, source: str = "127.0.0.2", method: str = "POST"
) -> tuple[int, bytes]:
    """One request on a connection of its own."""
    asker = Asker(port, source)
    try:
        return asker.post(path, body, method=method)
    finally:
        asker.close()
