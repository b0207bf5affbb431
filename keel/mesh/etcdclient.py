"""etcd's v3 JSON gateway over TLS, with keel's client certificate (an adapter; E2, E7).

Speaks HTTP/1.1 by http.client to one member and returns the records of keel.etcdport. Debian's
gateway is not upstream's (etcd-facts, 2): 64-bit numbers are strings, zero fields are left out, an
unknown request field is ignored without a word, errors come in two shapes.
(J1) One connection per call, within one deadline: connect, TLS, answer and the last byte of it. A
     look asks twice on it.
(J2) Every call carries Grpc-Timeout, below keel's own deadline: without it `member/remove` hangs
     for ever when there is no leader.
(J3) Answers are bounded and parsed into records here; nothing else of the JSON travels on.
(J4) Whatever goes wrong is one EtcdError with a gRPC code; no answer is UNAVAILABLE or DEADLINE.
(J5) The peer port is asked with the member's certificate: it shuts out those without a SAN.
"""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any

from keel.errors import EtcdError, Internal
from keel.etcdport import EtcdAt, EtcdMember, EtcdStatus
from keel.mesh.etcdids import CLIENT_PORT, PEER_PORT
from keel.mesh.etcdwords import GrpcCode
from keel.ports import Clock, Deadline

MAX_ANSWER_BYTES = 4 << 20
CONNECT_SECONDS = 10.0
GRPC_SHARE = 0.75
"""Of keel's deadline: 15 s of 20, as long as etcd itself gives a request at these timers."""
MAX_ERROR_WORDS = 300
NOT_DECIDED = "not_decided"

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFiles:
    """PEM files: keel's client credential, the member's own, and the trusted roots."""

    client: Path
    member: Path
    trust: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Where etcd listens; other ones in tests only."""

    client: int = CLIENT_PORT
    peer: int = PEER_PORT


class GatewayClient:
    """keel.etcdport.EtcdApi of the member at `address` (::1 is this node's own)."""

    def __init__(
        self,
        address: IPv6Address,
        files: ClientFiles,
        clock: Clock,
        *,
        ports: Ports | None = None,
    ) -> None:
        self._address = address
        self._files = files
        self._clock = clock
        self._ports = ports or Ports()

    def status(self, *, timeout_seconds: float = 20.0) -> EtcdStatus:
        return _status(self._post("maintenance/status", {}, timeout_seconds))

    def look(self, *, timeout_seconds: float = 20.0) -> EtcdStatus:
        deadline = Deadline.after(self._clock, timeout_seconds)
        status, members = None, None
        try:
            with self._connected(self._ports.client, self._files.client, deadline) as connection:
                asked = self._posted("maintenance/status", {}, timeout_seconds)
                status = _status(_mapping(self._answer(connection, asked, deadline)))
                if status.leader and not status.learner:
                    left = deadline.remaining(self._clock)
                    asked = self._posted("cluster/member/list", {"linearizable": True}, left)
                    answer = _mapping(self._answer(connection, asked, deadline))
                    members = tuple(_member(each) for each in _list(answer, "members"))
        except EtcdError:
            if status is None:
                raise
        return replace(status, members=members)

    def members(self, *, timeout_seconds: float = 20.0) -> tuple[EtcdMember, ...]:
        # not linearizable by default: a learner that was just added could be missing
        answer = self._post("cluster/member/list", {"linearizable": True}, timeout_seconds)
        return tuple(_member(each) for each in _list(answer, "members"))

    def listed(self, *, timeout_seconds: float = 20.0) -> tuple[EtcdMember, ...]:
        answer = self._post("cluster/member/list", {"linearizable": False}, timeout_seconds)
        return tuple(_member(each) for each in _list(answer, "members"))

    def add_learner(self, peer_url: str, *, timeout_seconds: float = 20.0) -> EtcdMember:
        wish = {"peerURLs": [peer_url], "isLearner": True}
        added = _member(_object(self._post("cluster/member/add", wish, timeout_seconds), "member"))
        if not added.learner:
            raise Internal(f"etcd added {peer_url} as a voter instead of a learner")
        return added

    def promote(self, member_id: int, *, timeout_seconds: float = 20.0) -> None:
        self._post("cluster/member/promote", {"ID": str(member_id)}, timeout_seconds)

    def remove(self, member_id: int, *, timeout_seconds: float = 20.0) -> None:
        self._post("cluster/member/remove", {"ID": str(member_id)}, timeout_seconds)

    def disarm(self, member_id: int, *, timeout_seconds: float = 20.0) -> None:
        wish = {"action": "DEACTIVATE", "memberID": str(member_id), "alarm": "CORRUPT"}
        self._post("maintenance/alarm", wish, timeout_seconds)

    def put(self, key: bytes, value: bytes, *, timeout_seconds: float = 20.0) -> None:
        wish = {"key": _encoded(key), "value": _encoded(value)}
        self._post("kv/put", wish, timeout_seconds)

    def get(self, key: bytes, *, timeout_seconds: float = 20.0) -> bytes | None:
        answer = self._post("kv/range", {"key": _encoded(key)}, timeout_seconds)
        found = _list(answer, "kvs")
        return _decoded(found[0], "value") if found else None

    def had_leader(self, *, timeout_seconds: float = 20.0) -> bool:
        body = self._get_from_peer_port("/version", timeout_seconds)
        # the first leader writes the cluster's version into the log; it stays there
        return _text(_mapping(body), "etcdcluster") not in ("", NOT_DECIDED)

    def served(self, *, timeout_seconds: float = 20.0) -> tuple[bytes, bytes]:
        deadline = Deadline.after(self._clock, timeout_seconds)
        return (
            self._leaf_at(self._ports.client, self._files.client, deadline),
            self._leaf_at(self._ports.peer, self._files.member, deadline),
        )

    def _leaf_at(self, port: int, credential: Path, deadline: Deadline) -> bytes:
        """Not verified: what is shown may be what nobody should trust any more."""
        context = self._context(credential)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        address = (self._address.compressed, port)
        try:
            timeout = self._left(deadline)
            with (
                socket.create_connection(address, timeout=timeout) as plain,
                context.wrap_socket(plain) as secured,
            ):
                return secured.getpeercert(binary_form=True) or b""
        except TimeoutError as error:
            raise EtcdError(GrpcCode.DEADLINE, f"no handshake with {self._address}") from error
        except OSError as error:
            text = f"no handshake with {self._address}: {type(error).__name__}: {error}"
            raise EtcdError(GrpcCode.UNAVAILABLE, text[:MAX_ERROR_WORDS]) from error

    def _post(self, path: str, wish: Json, timeout_seconds: float) -> Json:
        call = self._posted(path, wish, timeout_seconds)
        return _mapping(self._exchange(call, timeout_seconds))

    def _posted(self, path: str, wish: Json, timeout_seconds: float) -> _Call:
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Grpc-Timeout": f"{int(timeout_seconds * GRPC_SHARE * 1000)}m",
        }
        return _Call(
            method="POST",
            path=f"/v3/{path}",
            body=json.dumps(wish).encode(),
            headers=headers,
            port=self._ports.client,
            credential=self._files.client,
        )

    def _get_from_peer_port(self, path: str, timeout_seconds: float) -> object:
        call = _Call(
            method="GET",
            path=path,
            body=None,
            headers={},
            port=self._ports.peer,
            credential=self._files.member,
        )
        return self._exchange(call, timeout_seconds)

    def _exchange(self, call: _Call, timeout_seconds: float) -> object:
        deadline = Deadline.after(self._clock, timeout_seconds)
        with self._connected(call.port, call.credential, deadline) as connection:
            return self._answer(connection, call, deadline)

    @contextmanager
    def _connected(
        self, port: int, credential: Path, deadline: Deadline
    ) -> Iterator[http.client.HTTPSConnection]:
        """A connection, and what goes wrong on it in etcd's words (J4)."""
        connection = http.client.HTTPSConnection(
            self._address.compressed, port, context=self._context(credential)
        )
        try:
            connection.timeout = min(CONNECT_SECONDS, self._left(deadline))
            connection.connect()
            yield connection
        except TimeoutError as error:
            raise EtcdError(GrpcCode.DEADLINE, f"no answer from {self._address}") from error
        except (OSError, http.client.HTTPException) as error:
            # with TLS 1.3 a refused certificate shows here, at the first read
            text = f"no answer from {self._address}: {type(error).__name__}: {error}"
            raise EtcdError(GrpcCode.UNAVAILABLE, text[:MAX_ERROR_WORDS]) from error
        finally:
            connection.close()

    def _answer(
        self, connection: http.client.HTTPSConnection, call: _Call, deadline: Deadline
    ) -> object:
        if connection.sock is None:  # closed after the answer before
            connection.connect()
        connection.sock.settimeout(self._left(deadline))
        connection.request(call.method, call.path, body=call.body, headers=call.headers)
        answer = connection.getresponse()
        raw = self._read(connection, answer, deadline)
        answer.close()  # read1 leaves it open at its end, and then no other can be asked for
        if answer.status != http.client.OK:
            raise _refusal(answer.status, raw)
        return _parsed(raw)

    def _read(
        self,
        connection: http.client.HTTPSConnection,
        answer: http.client.HTTPResponse,
        deadline: Deadline,
    ) -> bytes:
        found = bytearray()
        while part := answer.read1(64 * 1024):
            found += part
            if len(found) > MAX_ANSWER_BYTES:
                raise EtcdError(GrpcCode.EXHAUSTED, f"more than {MAX_ANSWER_BYTES} bytes")
            if connection.sock is not None:
                connection.sock.settimeout(self._left(deadline))
        return bytes(found)

    def _left(self, deadline: Deadline) -> float:
        left = deadline.remaining(self._clock)
        if left <= 0.0:
            raise TimeoutError
        return left

    def _context(self, credential: Path) -> ssl.SSLContext:
        """A new one for each call: certificates are renewed while keel runs."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.set_alpn_protocols(["http/1.1"])  # 2380 breaks streams of HTTP/2
        try:
            context.load_verify_locations(self._files.trust)
            context.load_cert_chain(credential)
        except OSError as error:  # ssl.SSLError is one
            text = f"keel's own certificate can't be used: {type(error).__name__}: {error}"
            raise EtcdError(GrpcCode.UNAUTHENTICATED, text) from error
        return context


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    method: str
    path: str
    body: bytes | None
    headers: Mapping[str, str]
    port: int
    credential: Path


def those_with_leader(
    at: EtcdAt, members: Sequence[IPv6Address], *, timeout_seconds: float
) -> tuple[IPv6Address, ...]:
    """Those of the members, asked at once, whose etcd ever saw a leader; silence is no."""

    def ask(member: IPv6Address) -> bool:
        try:
            return at(member).had_leader(timeout_seconds=timeout_seconds)
        except EtcdError:
            return False

    if not members:
        return ()
    with ThreadPoolExecutor(max_workers=len(members)) as pool:
        answers = list(pool.map(ask, members))
    return tuple(member for member, led in zip(members, answers, strict=True) if led)


def _refusal(status: int, raw: bytes) -> EtcdError:
    """One error of either gateway's body: `code` and `message` at the top or under `error`; the
    rest (RBAC's and /health's) is plain text."""
    try:
        body = json.loads(raw)
    except ValueError:
        body = None
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        body = body["error"]
    if isinstance(body, dict):
        code = body.get("code", body.get("grpc_code"))
        message = body.get("message")
        if isinstance(code, int) and isinstance(message, str):
            return EtcdError(code, message[:MAX_ERROR_WORDS])
    text = raw.decode("utf-8", "replace").strip()[:MAX_ERROR_WORDS]
    return EtcdError(GrpcCode.UNKNOWN, f"HTTP status {status}: {text}")


def _odd(what: str) -> EtcdError:
    return EtcdError(GrpcCode.INTERNAL, f"an answer that is not etcd's: {what}")


def _parsed(raw: bytes) -> object:
    try:
        found: object = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise _odd("not JSON") from error
    return found


def _mapping(value: object) -> Json:
    if not isinstance(value, dict):
        raise _odd("no object")
    return value


def _object(value: Json, name: str) -> Json:
    return _mapping(value.get(name))


def _list(value: Json, name: str) -> list[Json]:
    found = value.get(name, [])
    if not isinstance(found, list):
        raise _odd(f"{name} is no list")
    return [_mapping(each) for each in found]


def _number(value: Json, name: str) -> int:
    """A 64-bit number, which is a string of digits, and left out when it is zero."""
    found = value.get(name, "0")
    if not isinstance(found, str) or not found.isascii() or not found.isdecimal():
        raise _odd(f"{name} is no number")
    if len(found) > 20:
        raise _odd(f"{name} is too long")
    return int(found)


def _flag(value: Json, name: str) -> bool:
    found = value.get(name, False)
    if not isinstance(found, bool):
        raise _odd(f"{name} is neither true nor false")
    return found


def _text(value: Json, name: str) -> str:
    found = value.get(name, "")
    if not isinstance(found, str):
        raise _odd(f"{name} is no text")
    return found


def _texts(value: Json, name: str) -> tuple[str, ...]:
    found = value.get(name, [])
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise _odd(f"{name} is no list of texts")
    return tuple(found)


def _status(answer: Json) -> EtcdStatus:
    header = _object(answer, "header")
    return EtcdStatus(
        member_id=_number(header, "member_id"),
        cluster_id=_number(header, "cluster_id"),
        leader=_number(answer, "leader"),
        raft_term=_number(answer, "raftTerm"),
        raft_index=_number(answer, "raftIndex"),
        applied_index=_number(answer, "raftAppliedIndex"),
        learner=_flag(answer, "isLearner"),
        db_size_bytes=_number(answer, "dbSize"),
        version=_text(answer, "version"),
        errors=_texts(answer, "errors"),
    )


def _member(value: Json) -> EtcdMember:
    return EtcdMember(
        id=_number(value, "ID"),
        name=_text(value, "name"),
        peer_urls=_texts(value, "peerURLs"),
        client_urls=_texts(value, "clientURLs"),
        learner=_flag(value, "isLearner"),
    )


def _encoded(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _decoded(value: Json, name: str) -> bytes:
    try:
        return base64.b64decode(_text(value, name), validate=True)
    except ValueError as error:
        raise _odd(f"{name} is not base64") from error
