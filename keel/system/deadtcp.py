"""Connections of etcd's that are dead without knowing it, found in the kernel's table and ended.

etcd's readers have no time-out that works (rafthttp sets it where net/http does not look). After a
cut of half a minute the writing end has given up, and the reading end learns of it from the answer
to its next keepalive probe, up to 15 s after the path is back; only then does etcd dial again.
Ended while the path is still cut, etcd dials all the time and is through with the first packet.

(T1) Dead is who did not answer a probe for 5 s: etcd's streams carry heartbeats, so that a living
     one is never probed at all.
(T2) Only connections within the mesh's prefix, from or to etcd's peer port.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network
from pathlib import Path

from keel.errors import DiskTrouble
from keel.ports import Proc

TABLE = "proc/net/tcp6"
ESTABLISHED = "01"
KEEPALIVE = "02"
PROBE_TICKS = 1000
"""Hundredths of a second that are left of the 15 between two probes, 5 s after the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Both ends, as `ss` takes them."""

    local: str
    remote: str


def end_dead(
    proc: Proc, prefix: IPv6Network, port: int, *, root: Path = Path("/")
) -> tuple[Connection, ...]:
    """End those that are dead now; those that the kernel did end. DiskTrouble without its table."""
    table = root / TABLE
    try:
        text = table.read_text()
    except OSError as error:
        raise DiskTrouble(table, error.errno or 0) from error
    return tuple(one for one in dead(text, prefix, port) if _end_one(proc, one))


def _end_one(proc: Proc, one: Connection) -> bool:
    """False as well when it ended by itself, or the kernel can't: `ss` shows what it ended."""
    argv = ["ss", "-K", "-H", "-n", "-t", "src", one.local, "dst", one.remote]
    return bool(proc.run(argv, check=False).stdout.strip())


def dead(table: str, prefix: IPv6Network, port: int) -> tuple[Connection, ...]:
    """Those in the text of /proc/net/tcp6 (T1, T2)."""
    return tuple(_dead(table, prefix, port))


def _dead(table: str, prefix: IPv6Network, port: int) -> Iterator[Connection]:
    for line in table.splitlines()[1:]:
        _, local, remote, state, _, timer, _, _, unanswered, *_ = line.split()
        kind, left = timer.split(":")
        if (state, kind) != (ESTABLISHED, KEEPALIVE) or unanswered == "0":
            continue
        near, far = _end(local), _end(remote)
        if int(left, 16) <= PROBE_TICKS and port in (near[1], far[1]) and far[0] in prefix:
            yield Connection(local=_text(near), remote=_text(far))


def _end(text: str) -> tuple[IPv6Address, int]:
    """An address of four words, each in this machine's order of bytes, and a port."""
    words, port = text.split(":")
    raw = b"".join(
        int(words[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(words), 8)
    )
    return IPv6Address(raw), int(port, 16)


def _text(end: tuple[IPv6Address, int]) -> str:
    return f"[{end[0].compressed}]:{end[1]}"
