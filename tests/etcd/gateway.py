"""A TLS server on ::1 that answers with the bytes that Debian's etcd 3.5.16-4 sent."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from keel.mesh.etcdclient import ClientFiles, GatewayClient, Ports
from keel.mesh.etcdpki import encode_credential
from keel.mesh.etcdtrust import encode_bundle
from keel.types import LOCALHOST
from tests.fakes import VirtualClock
from tests.pki import make as pki


@dataclass
class Gateway:
    """What it was asked, and what it says: whole HTTP answers in order, the last one for ever."""

    files: ClientFiles
    port: int
    answers: list[bytes] = field(default_factory=list)
    requests: list[bytes] = field(default_factory=list)
    each: int = 1
    """How many requests of a connection are answered before it is closed."""
    connections: int = 0
    clock: VirtualClock = field(default_factory=VirtualClock)

    def says(self, body: bytes, *, status: int = 200, headers: str = "") -> None:
        head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
        self.answers.append(head.encode() + body)

    @property
    def client(self) -> GatewayClient:
        ports = Ports(client=self.port, peer=self.port)
        return GatewayClient(LOCALHOST, self.files, self.clock, ports=ports)


def write_files(scratch: Path, *, generation: int = 1) -> ClientFiles:
    """Certificates of today: TLS looks at the real clock."""
    now = datetime.now(tz=UTC).replace(microsecond=0)
    root = pki.root(generation=generation, now=now)
    under = pki.intermediate(root, now=now)
    files = ClientFiles(
        client=scratch / "client.pem", member=scratch / "member.pem", trust=scratch / "trust.pem"
    )
    files.client.write_bytes(encode_credential(pki.client(under, now=now)).reveal())
    files.member.write_bytes(encode_credential(pki.member(under, now=now)).reveal())
    files.trust.write_bytes(encode_bundle([root.certificate]))
    return files


@contextmanager
def serve(scratch: Path, *, latest: ssl.TLSVersion | None = None) -> Iterator[Gateway]:
    """One connection at a time, until the block ends."""
    files = write_files(scratch)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.member)
    context.load_verify_locations(files.trust)
    context.verify_mode = ssl.CERT_REQUIRED
    if latest is not None:
        context.maximum_version = latest
    with socket.create_server((LOCALHOST.compressed, 0), family=socket.AF_INET6) as listener:
        gateway = Gateway(files=files, port=listener.getsockname()[1])
        thread = threading.Thread(target=_serve, args=(listener, context, gateway), daemon=True)
        thread.start()
        yield gateway
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def _serve(listener: socket.socket, context: ssl.SSLContext, gateway: Gateway) -> None:
    while True:
        try:
            plain, _ = listener.accept()
        except OSError:
            return
        try:
            with plain, context.wrap_socket(plain, server_side=True) as tls:
                tls.settimeout(5)
                gateway.connections += 1
                for _ in range(gateway.each):
                    gateway.requests.append(_read_request(tls))
                    answer = gateway.answers[0]
                    if len(gateway.answers) > 1:
                        gateway.answers.pop(0)
                    tls.sendall(answer)
        except (OSError, IndexError):
            continue


def _read_request(tls: ssl.SSLSocket) -> bytes:
    found = b""
    while b"\r\n\r\n" not in found:
        found += _some(tls)
    head, _, body = found.partition(b"\r\n\r\n")
    length = next(
        (
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        ),
        0,
    )
    while len(body) < length:
        body += _some(tls)
    return head + b"\r\n\r\n" + body


def _some(tls: ssl.SSLSocket) -> bytes:
    part = tls.recv(65536)
    if not part:
        raise ConnectionResetError
    return part
