"""What `keel mesh etcd form` and its members say to each other: bodies of /v1/etcd.

Owns the forms; the bounds of what a member measures for another stand beside them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from ipaddress import IPv6Address

from keel.mesh.etcdmsg import Grant
from keel.types import Capability, Fingerprint, Mode

MAX_PEERS = 32
"""So many paths a member measures for another at once."""
PADDING_BYTES = 4096
"""More than one packet of any MTU that keel sets: an answer shows that full ones pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """Promise, for ten minutes, to take etcd's first root from nobody but me; or forget it."""

    release: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReserveAnswer:
    """Until when, by the answering member's clock; None after a release."""

    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AskEnrolment:
    """Give me your request for an intermediate, so that I can grant it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolmentAnswer:
    """The enrolment, and the member's newest self record (encoded envelopes)."""

    enrolment: bytes
    record: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrolled:
    """Take this grant of what you asked for."""

    grant: Grant


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolledAnswer:
    """The root that this member trusts now."""

    root: Fingerprint


class ForeignEtcd(StrEnum):
    """An etcd on a member that is not keel's."""

    NONE = "none"
    STRAY = "stray"
    """Data in Debian's own place that nobody marked."""
    DATA = "data"
    """Data in keel's own place, of no formation that this member knows."""
    RUNNING = "running"
    """etcd.service runs, and not with keel's files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """What can your machine do, and how do you reach these? `padding` fills whole packets."""

    peers: tuple[IPv6Address, ...]
    padding: bytes = b""

    def __post_init__(self) -> None:
        if len(self.peers) > MAX_PEERS or len(self.padding) > PADDING_BYTES:
            raise ValueError("too much to measure at once")


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """How one member reached another: connections tried and answered, those among them that a lost
    packet held up, and the median round trip of the others in seconds."""

    peer: IPv6Address
    tried: int
    answered: int
    held_up: int
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A member's numbers. `sync_seconds`: the median of a small write made durable where etcd's
    data would be; None where it cannot be measured. `links`: () for whoever may not ask."""

    mode: Mode
    capability: Capability
    keel: str
    etcd: str | None
    free_bytes: int
    mtu: int | None
    foreign: ForeignEtcd
    links: tuple[Link, ...] = ()
    sync_seconds: float | None = None
    padding: bytes = b""
