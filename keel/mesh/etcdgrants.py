"""The holder's ledger of grants (grants.jsonl): every intermediate that was ever signed.

Owns the lines and the questions asked of them; appends nothing itself.
(L1) A line is appended and durable before the grant leaves the holder.
(L2) Nothing is ever taken out; a revocation is a line of its own.
(L3) A CSR key belongs to the first address it was granted for, for good.
(L4) A revocation covers every grant of (address, ed25519) in every generation; one that names a
     serial covers that certificate alone (it was superseded by a newer grant).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from ipaddress import IPv6Address
from pathlib import Path

from keel import codec
from keel.errors import BadValue, StateCorrupt
from keel.mesh.etcdcert import PublicKeyHash, Serial
from keel.mesh.etcdcrl import Reason, Revoked
from keel.types import Nonce, SigningKey, WgKey

MAX_LINE_BYTES = 64 * 1024
REMEMBERED = 2
"""Ledgers that are remembered by their exact bytes: a pass reads the one ledger seven times."""
REMEMBERED_BYTES = 256 << 10
"""Of such a ledger, in which some two hundred grants have room."""


class Event(StrEnum):
    GRANTED = "granted"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantLine:
    """One grant or one revocation. `serial` and `csr_key` are the intermediate's; a revocation with
    a serial is of that certificate alone (L4)."""

    event: Event
    address: IPv6Address
    ed25519: SigningKey
    time: datetime
    serial: Serial | None = None
    generation: int | None = None
    csr_key: PublicKeyHash | None = None
    nonce: Nonce | None = None
    not_after: datetime | None = None
    wireguard: WgKey | None = None
    intermediate: bytes | None = None
    reason: Reason | None = None
    extra: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parts = (self.serial, self.generation, self.csr_key, self.not_after, self.intermediate)
        if self.event is Event.GRANTED and None in parts:
            raise ValueError("a grant has serial, generation, csr_key, not_after, intermediate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    lines: tuple[GrantLine, ...] = ()


def read_ledger(path: Path, raw: bytes | None) -> Ledger:
    """Every line; StateCorrupt names the first bad one. A torn last line is not an error: its
    grant never left (L1)."""
    if raw is None:
        return Ledger()
    return (_remembered if len(raw) <= REMEMBERED_BYTES else _read)(path, raw)


def _read(path: Path, raw: bytes) -> Ledger:
    whole, _, _torn = raw.rpartition(b"\n")
    lines = whole.split(b"\n") if whole else []
    return Ledger(lines=tuple(_line(path, number, line) for number, line in enumerate(lines, 1)))


_remembered = functools.lru_cache(maxsize=REMEMBERED)(_read)


def granted_to(ledger: Ledger, address: IPv6Address, key: SigningKey) -> tuple[GrantLine, ...]:
    """Every grant of the pair, oldest first, revoked ones included."""
    return tuple(
        line for line in ledger.lines if line.event is Event.GRANTED and _of(line, address, key)
    )


def live_grant(ledger: Ledger, address: IPv6Address, key: SigningKey) -> GrantLine | None:
    """The newest grant of the pair, unless the pair was revoked after it."""
    newest: GrantLine | None = None
    for line in ledger.lines:
        if not _of(line, address, key):
            continue
        if line.event is Event.GRANTED:
            newest = line
        elif line.serial is None or (newest is not None and line.serial == newest.serial):
            newest = None
    return newest


def first_granted(ledger: Ledger, address: IPv6Address, key: SigningKey) -> datetime | None:
    """When the unrevoked run of grants began: the order of birth and of the queue."""
    began: datetime | None = None
    for line in ledger.lines:
        if not _of(line, address, key):
            continue
        if line.event is Event.GRANTED:
            began = began or line.time
        elif line.serial is None:
            began = None
    return began


def owner_of(ledger: Ledger, csr_key: PublicKeyHash) -> IPv6Address | None:
    """The address that a CSR key was first granted for (L3)."""
    return next((line.address for line in ledger.lines if line.csr_key == csr_key), None)


def revoked_serials(ledger: Ledger) -> tuple[Revoked, ...]:
    """What the CRL has to hold: every grant made to a pair before its revocation, and what was
    superseded (L4)."""
    found: dict[Serial, Revoked] = {}
    for place, line in enumerate(ledger.lines):
        if line.event is not Event.REVOKED:
            continue
        reason = line.reason or Reason.UNSPECIFIED
        for serial in _covered(ledger.lines[:place], line):
            found.setdefault(serial, Revoked(serial=serial, reason=reason, at=line.time))
    return tuple(found.values())


def ended(ledger: Ledger, by: datetime) -> frozenset[Serial]:
    """What was granted and has ended by that time: nobody accepts it any more, revoked or not."""
    return frozenset(
        line.serial
        for line in ledger.lines
        if line.event is Event.GRANTED
        and line.serial is not None
        and line.not_after is not None
        and line.not_after < by
    )


def dump_line(line: GrantLine) -> bytes:
    """The line without its newline, as Files.append wants it."""
    return codec.dumps(line)


def _covered(before: Sequence[GrantLine], revocation: GrantLine) -> list[Serial]:
    if revocation.serial is not None:
        return [revocation.serial]
    pair = revocation.address, revocation.ed25519
    return [
        line.serial
        for line in before
        if line.event is Event.GRANTED and line.serial is not None and _of(line, *pair)
    ]


def _of(line: GrantLine, address: IPv6Address, key: SigningKey) -> bool:
    return (line.address, line.ed25519) == (address, key)


def _line(path: Path, number: int, raw: bytes) -> GrantLine:
    try:
        return codec.loads(GrantLine, raw, max_bytes=MAX_LINE_BYTES, strict=False)
    except BadValue as error:
        raise StateCorrupt(path, f"line {number}: {error.summary()}") from error
