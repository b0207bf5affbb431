"""The tend's first duty: this member's own grant, asked of the holder; the holder grants itself.

Owns the asking. Whether the grant is believed is keel.mesh.etcdmember's and keel.mesh.etcdcheck's.
"""

from __future__ import annotations

from keel.errors import PeerError
from keel.mesh import etcdissue, etcdmember, etcdstore, members, store, talk
from keel.mesh.duty import Duty, done, nothing, waits
from keel.mesh.etcdbirth import ETCD_PATH
from keel.mesh.etcdholder import holder_of
from keel.mesh.etcdmsg import Enroll, EnrollAnswer
from keel.mesh.store import Node
from keel.mesh.trust import may_ask
from keel.outcome import Waiting
from keel.ports import Host

ENROLL = "enroll"
NAME = "credentials"


def duty(host: Host, node: Node) -> Duty:
    """A capable member without a grant asks the holder for one; the holder grants itself."""
    if etcdstore.load_intermediate(host) is not None:
        return nothing(NAME, "this node has its intermediate")
    if etcdstore.load_authority(host) is not None:
        grant_oneself(host, node)
        return done(NAME, "granted this node its own intermediate")
    holder = holder_of(host, node)
    member = node.view.by_key(holder) if holder else None
    if member is None:
        return _wait("a grant", "the holder", "no holder of the etcd root is known here yet")
    request = Enroll(
        enrolment=_enrolment(host, node),
        admissions=members.chain(node.roster, node.key),
    )
    try:
        answer = talk.ask(host, node, member, ENROLL, request, EnrollAnswer, path=ETCD_PATH)
    except PeerError as error:
        return _wait("a grant", member.display, error.text)
    with store.locked(host, "the mesh"):
        etcdmember.take_grant(
            host,
            node,
            answer.body.grant,
            trusted=may_ask(node.trust, member.key),
        )
    return done(NAME, f"{member.display} granted the intermediate")


def _enrolment(host: Host, node: Node) -> bytes:
    _, key = etcdstore.request_key(host)
    return etcdmember.enrolment(host, node.mesh, node.identity.signing, key)


def grant_oneself(host: Host, node: Node) -> None:
    """The holder's own grant, by the same way as everybody's."""
    with store.locked(host, "the mesh"):
        admitted = {member.key: member.address for member in node.view.members}
        request = _enrolment(host, node)
        granted = etcdissue.grant(host, node, request, admitted=admitted)
        etcdmember.take_grant(host, node, granted, trusted=True)


def _wait(what: str, whom: str, why: str) -> Duty:
    return waits(NAME, Waiting(what=what, waiting_for=whom, why=why))
