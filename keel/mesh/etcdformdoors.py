"""What a member does for another that forms the cluster by hand: reserves itself, enrols, obeys.

Owns the acts of `reserve`, `enrolment` and `enrolled`. Whether a grant is believed is
keel.mesh.etcdcheck's.
(V2) A first root comes only from the node that this member is reserved for, or from the holder that
     its roster names, and only while that is a trust root here.
"""

from __future__ import annotations

from collections.abc import Mapping

from keel.errors import Refused
from keel.mesh import etcdcert, etcdreserve, etcdstore, etcdtaken, selfrecord, store, up
from keel.mesh.asked import Asked, Kind
from keel.mesh.etcdholder import holder_of
from keel.mesh.formmsg import (
    AskEnrolment,
    Enrolled,
    EnrolledAnswer,
    EnrolmentAnswer,
    Reserve,
    ReserveAnswer,
)
from keel.mesh.limits import KICKS
from keel.mesh.store import Node
from keel.mesh.trust import may_ask
from keel.ports import Host
from keel.types import SigningKey

RESERVE = "reserve"
ENROLMENT = "enrolment"
ENROLLED = "enrolled"


def kinds() -> Mapping[str, Kind]:
    """The kinds of /v1/etcd that a form asks with."""
    return {
        RESERVE: Kind(body=Reserve, act=_reserve),
        ENROLMENT: Kind(body=AskEnrolment, act=_enrolment),
        ENROLLED: Kind(body=Enrolled, act=_take_grant, bound=KICKS),
    }


def _reserve(asked: Asked) -> ReserveAnswer:
    host, body, key = asked.host, asked.body, asked.member.key
    with store.locked(host, "the mesh"):
        if body.release:
            etcdreserve.release(host, key)
            return ReserveAnswer()
        found = etcdreserve.reserve(host, asked.spec, store.require(host), key)
    return ReserveAnswer(until=found.until)


def _enrolment(asked: Asked) -> EnrolmentAnswer:
    """This member's request, and its self record as it is now: who forms may know an older one."""
    host = asked.host
    with store.locked(host, "the mesh"):
        node = selfrecord.refresh(host, asked.spec, store.require(host))
        _obey(host, node, asked.member.key)
        _, key = etcdstore.request_key(host)
        raw = etcdtaken.enrolment(host, node.mesh, node.identity.signing, key)
    return EnrolmentAnswer(enrolment=raw, record=selfrecord.newest(node) or b"")


def _take_grant(asked: Asked) -> EnrolledAnswer:
    """The grant that was asked for; etcd starts by it only once a record comes."""
    host = asked.host
    with store.locked(host, "the mesh"):
        node = store.require(host)
        _obey(host, node, asked.member.key)
        checked = etcdtaken.take_grant(host, node, asked.body.grant, trusted=True)
    up.kick_tend(host)
    return EnrolledAnswer(root=etcdcert.fingerprint(checked.roots[0]))


def _obey(host: Host, node: Node, asker: SigningKey) -> None:
    """Only a trust root, and only the one whom nobody else has forestalled (V2)."""
    if not may_ask(node.trust, asker):
        raise Refused(
            "form-not-obeyed",
            "the node that forms is no trust root of this member",
            "`keel mesh trust add --root` on this member, naming the node that forms",
        )
    found = etcdreserve.held(host)
    if holder_of(host, node) != asker and (found is None or found.by != asker):
        raise Refused(
            "form-not-reserved",
            "this member is not reserved for the node that forms",
            "run `keel mesh etcd form` there again",
        )
