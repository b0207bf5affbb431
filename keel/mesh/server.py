"""The members' channel, in: a small HTTP service on a socket that it is given (waitress).

Owns bounds and the mapping of paths and errors to HTTP. What a request means is the handler's.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network
from typing import Protocol

from keel.mesh.limits import Limits
from keel.ports import Clock

PORT = 4780
PATHS = frozenset({"/v1/hello", "/v1/roster", "/v1/join", "/v1/etcd"})


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpReply:
    """An HTTP status and the exact bytes of the body."""

    status: int
    body: bytes


class Handler(Protocol):
    """Called in one of the server's threads, several at a time. A KeelError becomes its `http` and
    {code, summary}; anything else a 500 without details."""

    def __call__(self, path: str, source: IPv6Address, body: bytes) -> HttpReply: ...


class ChannelServer:
    """A running server; `run` blocks until `stop` is called from another thread."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        handler: Handler,
        *,
        clock: Clock,
        temporary: IPv6Network | None,
        limits: Limits | None = None,
    ) -> None: ...

    def run(self) -> None: ...

    def stop(self) -> None: ...
