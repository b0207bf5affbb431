"""Throws at a member's channel what no member says; run on another member. Argument: the address.

Prints one JSON object: attempt -> the HTTP status that came back, or "closed".
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import sys
import time

PORT = 4780
SECONDS = 60
PATHS = ("/v1/hello", "/v1/roster", "/v1/etcd", "/v1/join", "/elsewhere")
BOUND = 256 << 10


def post(address: str, path: str, body: bytes) -> str:
    connection = http.client.HTTPConnection(address, PORT, timeout=SECONDS)
    try:
        connection.request("POST", path, body)
        return str(connection.getresponse().status)
    except (OSError, http.client.HTTPException):
        return "closed"
    finally:
        connection.close()


def raw(address: str, data: bytes) -> str:
    """Bytes that may be no HTTP at all; the first line of what comes back."""
    with socket.create_connection((address, PORT), timeout=SECONDS) as plain:
        try:
            plain.sendall(data)
            answer = plain.recv(64)
        except OSError:
            return "closed"
    words = answer.split()
    return words[1].decode("ascii", "replace") if len(words) > 1 else "closed"


def attempts(address: str) -> dict[str, str]:
    noise = os.urandom(4096)
    said = {}
    for path in PATHS:
        said[f"noise to {path}"] = post(address, path, noise)
        said[f"nothing to {path}"] = post(address, path, b"")
        said[f"braces to {path}"] = post(address, path, b"[" * 100_000)
        said[f"too much to {path}"] = post(address, path, bytes(BOUND + 1))
        time.sleep(1)  # within the rate that a member has
    said["sixteen megabytes"] = post(address, PATHS[0], bytes(16 << 20))
    said["a length that lies"] = raw(
        address,
        b"POST /v1/hello HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n" + noise,
    )
    said["a header without an end"] = raw(
        address, b"POST /v1/hello HTTP/1.1\r\nX: " + b"a" * 100_000
    )
    said["no HTTP"] = raw(address, noise + b"\r\n\r\n")
    return said


if __name__ == "__main__":
    print(json.dumps(attempts(sys.argv[1])))  # its one output
