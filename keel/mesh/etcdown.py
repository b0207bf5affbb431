"""What this node's own etcd answers now: read from it alone, nothing is kept or changed."""

from __future__ import annotations

from keel.errors import EtcdError
from keel.etcdport import EtcdStatus
from keel.mesh import etcdstore
from keel.mesh.etcdwords import corrupt_members
from keel.mesh.growth import Word
from keel.ports import Host
from keel.types import LOCALHOST, EtcdMemberId

STATUS_SECONDS = 5.0
LOOK_SECONDS = 6.0
"""With the list, which takes two round trips; whoever is cut off never gets it."""


def status(host: Host, *, listing: bool = False) -> EtcdStatus | None:
    """With its list of members if wanted; None while it answers nothing."""
    if not etcdstore.whole_leaves(host):
        return None
    etcd = host.etcd_at(LOCALHOST)
    try:
        if listing:
            return etcd.look(timeout_seconds=LOOK_SECONDS)
        return etcd.status(timeout_seconds=STATUS_SECONDS)
    except EtcdError:
        return None


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
