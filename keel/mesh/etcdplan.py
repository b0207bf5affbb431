"""What a member does next about its own etcd: `decide(view, now) -> Plan`.

Pure, in the manner of patroni's quorum.py: the whole observed world comes in as plain values, the
Plan is rebuilt from any interrupted state, and the caller executes one step, looks again and asks
again. The same Plan is shown by a dry run and executed by apply and by the tend.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from ipaddress import IPv6Address

from keel.mesh.etcdmsg import ClusterRecord
from keel.mesh.etcdstate import Cluster, Marker
from keel.outcome import Plan
from keel.ports import DataState, StrayMember
from keel.types import EtcdClusterId


class Action(StrEnum):
    """The steps of a member's Plan; each is idempotent."""

    REMOVE_STRAY = "remove-stray"
    ISSUE_LEAF = "issue-leaf"
    ENABLE_SPEC = "enable-spec"
    SET_DATA_ASIDE = "set-data-aside"
    WRITE_DROP_IN = "write-drop-in"
    LAY_FILES = "lay-files"
    START_ETCD = "start-etcd"
    MARK_FORMED = "mark-formed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """etcd.service as systemd sees it. `ours`: it runs with keel's drop-in and files."""

    active: bool
    enabled: bool
    masked: bool
    ours: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """What this node's own etcd answered."""

    cluster_id: EtcdClusterId
    has_leader: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberView:
    """A member's own etcd, observed. `confirmed`: its join was confirmed (true for a founder);
    `*_current`: what is laid equals what would be rendered now."""

    address: IPv6Address
    capable: bool
    confirmed: bool
    window_open: bool
    clock_off: bool
    cluster: Cluster
    record: ClusterRecord | None
    has_grant: bool
    has_leaf: bool
    spec_enabled: bool
    stray: StrayMember
    data: DataState
    marker: Marker | None
    files_current: bool
    drop_in_current: bool
    unit: Unit
    running: Running | None


def decide(view: MemberView, now: datetime) -> Plan:
    """The ordered steps to a running member, and what it waits for; Refused by rule."""
    raise NotImplementedError
