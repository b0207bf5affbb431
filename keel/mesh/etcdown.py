"""What this node's own etcd answers now: read from it alone, nothing is kept or changed."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv6Address

from keel.errors import EtcdError
from keel.etcdport import EtcdStatus
from keel.mesh import etcdstore
from keel.mesh.etcdwords import Cause, cause_of, corrupt_members
from keel.mesh.growth import Word
from keel.ports import Host
from keel.types import LOCALHOST, EtcdMemberId

STATUS_SECONDS = 5.0
LOOK_SECONDS = 6.0
"""With the list, which takes two round trips; whoever is cut off never gets it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """What it answered. No status while it answers nothing, or refuses keel: `barred`."""

    status: EtcdStatus | None = None
    barred: bool = False


def ask(host: Host, *, listing: bool = False) -> Own:
    """With its list of members if wanted."""
    if not etcdstore.whole_leaves(host):
        return Own()
    etcd = host.etcd_at(LOCALHOST)
    try:
        if listing:
            return Own(status=etcd.look(timeout_seconds=LOOK_SECONDS))
        return Own(status=etcd.status(timeout_seconds=STATUS_SECONDS))
    except EtcdError as error:
        return Own(barred=cause_of(error) is Cause.BARRED)


def status(host: Host) -> EtcdStatus | None:
    """None while it answers nothing that keel can read."""
    return ask(host).status


def word(host: Host) -> Word | None:
    """The same, as it is told to the holder. One that etcd itself calls corrupt hears no leader:
    it answers, and serves nothing."""
    found = status(host)
    if found is None:
        return None
    corrupt = found.member_id in corrupt_members(found.errors)
    return Word(
        member_id=EtcdMemberId(found.member_id),
        leader=EtcdMemberId(0 if corrupt else found.leader),
        commit=found.raft_index,
        applied=found.applied_index,
        learner=found.learner,
    )


def serves(host: Host) -> bool:
    """Whether it does what a member is for."""
    said = word(host)
    return said is not None and bool(said.leader)


def sees_leader(host: Host) -> bool:
    found = status(host)
    return found is not None and found.leader != 0


def had_leader(host: Host, address: IPv6Address) -> bool:
    """Whether it ever heard one, as far as it answers, at this node's address: also while it hears
    none."""
    if sees_leader(host):
        return True
    try:
        return host.etcd_at(address).had_leader(timeout_seconds=STATUS_SECONDS)
    except EtcdError:
        return False
