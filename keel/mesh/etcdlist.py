"""Who is in the cluster, by the best source that answers now: for a status that is true with this
node's own etcd down, without a quorum, and on a member that is cut off (E19, E20).

Owns the order of sources: etcd's own list through a leader, at this member or at one that serves;
this member's own copy of it; the newest cluster record. Changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv6Address

from keel.errors import EtcdError
from keel.etcdport import EtcdMember, EtcdStatus
from keel.mesh import etcdtaken
from keel.mesh.etcdids import address_of_url, member_id
from keel.mesh.etcdmsg import RecordState
from keel.ports import Host
from keel.types import LOCALHOST

LIST_SECONDS = 6.0
"""A linearizable read takes two round trips; whoever is cut off never answers."""
MOST_ASKED = 2
"""Voters that are asked in place of this node's own etcd."""


class Source(StrEnum):
    """Whose word the list is, the best first."""

    ETCD = "etcd"
    STALE = "stale"
    """This member's own copy: there is no leader to ask."""
    RECORD = "record"
    """The holder's newest record; it does not tell learners from voters."""
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A member of the cluster. `id`: unknown by a record of one that came later."""

    address: IPv6Address | None
    id: int | None
    name: str
    learner: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The list, the leader's ID (0: none is known), and whose word both are."""

    members: tuple[Listed, ...] = ()
    leader: int = 0
    source: Source = Source.NONE


def known(host: Host, own: EtcdStatus | None, voters: Iterable[IPv6Address]) -> Known:
    """`own`: what this node's etcd just said; `voters`: the other members whose keel just said
    that theirs serves, asked only when the own one has no list."""
    if own is not None and own.members is not None:
        return _by_etcd(own.members, own.leader)
    for address in list(voters)[:MOST_ASKED]:
        found = _ask(host, address)
        if found is not None and found.members is not None:
            return _by_etcd(found.members, found.leader)
    return _alone(host, answers=own is not None)


def _by_etcd(members: Iterable[EtcdMember], leader: int) -> Known:
    return Known(members=_listed(members), leader=leader, source=Source.ETCD)


def _alone(host: Host, *, answers: bool) -> Known:
    """What this node has without anybody else; `answers`: its own etcd does."""
    if answers:
        try:
            copy = host.etcd_at(LOCALHOST).listed(timeout_seconds=LIST_SECONDS)
            return Known(members=_listed(copy), source=Source.STALE)
        except EtcdError:
            pass  # a learner does not say; nor does one that is about to stop
    record = etcdtaken.current_record(host)
    if record is None:
        return Known()
    born = record.state is RecordState.NEW
    return Known(
        members=tuple(
            Listed(
                address=one,
                id=member_id(one, record.token) if born else None,
                name="",
                learner=False,
            )
            for one in record.members
        ),
        source=Source.RECORD,
    )


def _ask(host: Host, address: IPv6Address) -> EtcdStatus | None:
    try:
        return host.etcd_at(address).look(timeout_seconds=LIST_SECONDS)
    except EtcdError:
        return None


def _listed(members: Iterable[EtcdMember]) -> tuple[Listed, ...]:
    return tuple(
        Listed(
            address=address_of_url(one.peer_urls[0]) if one.peer_urls else None,
            id=one.id,
            name=one.name,
            learner=one.learner,
        )
        for one in members
    )
