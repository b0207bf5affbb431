"""The ports of etcd: its gateway, and its unit and files on this machine. Parts of keel.ports in a
room of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv6Address
from pathlib import Path
from typing import Protocol

from keel.types import Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdMember:
    """A member as etcd lists it; one that never started has no name and no client URLs."""

    id: int
    name: str
    peer_urls: tuple[str, ...]
    client_urls: tuple[str, ...]
    learner: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdStatus:
    """What one etcd says of itself, without a quorum. `members`: of a look (both on one connection)
    its linearizable list; None when it sees no leader, has no vote, or did not get it in time."""

    member_id: int
    cluster_id: int
    leader: int
    raft_term: int
    raft_index: int
    applied_index: int
    learner: bool
    db_size_bytes: int
    version: str
    errors: tuple[str, ...]
    members: tuple[EtcdMember, ...] | None = None


class EtcdApi(Protocol):
    """etcd's v3 JSON gateway at one member, with keel's client certificate. EtcdError otherwise."""

    def status(self, *, timeout_seconds: float = 20.0) -> EtcdStatus: ...

    def look(self, *, timeout_seconds: float = 20.0) -> EtcdStatus: ...

    def members(self, *, timeout_seconds: float = 20.0) -> tuple[EtcdMember, ...]:
        """Linearizable."""

    def listed(self, *, timeout_seconds: float = 20.0) -> tuple[EtcdMember, ...]:
        """This member's own copy of the list: without a quorum too, and maybe old by then."""

    def add_learner(self, peer_url: str, *, timeout_seconds: float = 20.0) -> EtcdMember: ...

    def promote(self, member_id: int, *, timeout_seconds: float = 20.0) -> None: ...

    def remove(self, member_id: int, *, timeout_seconds: float = 20.0) -> None: ...

    def disarm(self, member_id: int, *, timeout_seconds: float = 20.0) -> None:
        """Take back the alarm that this member's data is corrupt; none is fine."""

    def put(self, key: bytes, value: bytes, *, timeout_seconds: float = 20.0) -> None: ...

    def get(self, key: bytes, *, timeout_seconds: float = 20.0) -> bytes | None:
        """Linearizable."""

    def had_leader(self, *, timeout_seconds: float = 20.0) -> bool:
        """Whether this etcd ever saw a leader, asked on the peer port: the client port is silent
        until the first one."""

    def served(self, *, timeout_seconds: float = 20.0) -> tuple[bytes, bytes]:
        """The leaf (DER) that a handshake shows on the client port and on the peer port; nothing
        about it is checked."""


EtcdAt = Callable[[IPv6Address], EtcdApi]
"""The gateway of the member with that overlay address; ::1 is this node's own."""


class StrayMember(StrEnum):
    """What stands in the data directory of Debian's own unit (E16)."""

    NONE = "none"
    MARKED = "marked"
    """keel-overlay-etcd found it empty, stopped it and marked it as etcd-server's own."""
    FOREIGN = "foreign"
    """Somebody's: never touched."""


class EtcdOverlay(Protocol):
    """etcd as a unit and files of this machine (keel.system.etcd); nothing of its gateway."""

    def installed(self) -> bool:
        """Whether the package keel-overlay-etcd is there now."""

    def lay(self, files: Mapping[str, Secret]) -> tuple[str, ...]:
        """Exactly these names under /etc/etcd/keel (directory 0700, files 0600, owner etcd), each
        whole or not at all; the names that changed."""

    def laid(self, name: str) -> Secret | None:
        """What is laid under that name."""

    def write_drop_in(self, text: bytes) -> bool:
        """50-keel.conf and a daemon-reload; False when it was so already."""

    def start(self) -> None:
        """Unmask, enable, start without waiting: ready comes with quorum only."""

    def stop(self) -> None:
        """Stop and mask, so that neither a boot nor an upgrade starts it again."""

    def data_state(self) -> DataState: ...

    def set_data_aside(self, label: str) -> Path | None:
        """Move data and marker beside themselves, never deleting; where to, None when absent."""

    def address_usable(self, address: IPv6Address) -> bool:
        """Whether a socket can be bound to it now (present, and no longer tentative)."""

    def stray(self) -> StrayMember: ...

    def remove_stray(self) -> None:
        """Only a marked one; Refused otherwise."""


class DataState(StrEnum):
    """What stands where keel's etcd keeps its data."""

    ABSENT = "absent"
    EMPTY = "empty"
    NO_LOG = "no-log"
    """Without a WAL: over it etcd would begin anew."""
    PRESENT = "present"
