"""The tend's first duty: this member's own grant, asked of the holder; the holder grants itself.

Owns the asking. Whether the grant is believed is keel.mesh.etcdtaken's and keel.mesh.etcdcheck's.
"""

from __future__ import annotations

from collections.abc import Mapping

from keel.errors import KeelError, PeerError, Refused
from keel.mesh import etcdenrol, etcdissue, etcdreserve, etcdstore, etcdtaken, store
from keel.mesh.duty import Duty, done, nothing, waits
from keel.mesh.etcdholder import candidates, is_told
from keel.mesh.etcdstate import Wanted
from keel.mesh.members import Member
from keel.mesh.store import Node
from keel.mesh.trust import may_ask
from keel.outcome import Waiting
from keel.ports import Host

NAME = "credentials"


def duty(host: Host, node: Node) -> Duty:
    """A capable member without a grant asks the holder for one; the holder grants itself."""
    if etcdstore.load_intermediate(host) is not None:
        etcdenrol.served(host, Wanted.ENROL, node.key)
        return nothing(NAME, "this node has its intermediate")
    if etcdstore.load_authority(host) is not None:
        if etcdreserve.load(host) is not None and not is_told(host, node):
            why = "`keel mesh etcd form` was cut off: type it again"
            return waits(NAME, Waiting(what="a grant", waiting_for="the operator", why=why))
        grant_oneself(host, node)
        return done(NAME, "granted this node its own intermediate")
    holders = candidates(host, node)
    if not holders:
        why = etcdenrol.UNKNOWN_HOLDER
        return waits(NAME, Waiting(what="a grant", waiting_for="the holder", why=why))
    said: dict[Member, KeelError] = {}
    for member in holders:
        try:
            _ask(host, node, member)
        except (PeerError, Refused) as error:
            said[member] = error
            continue
        etcdenrol.served(host, Wanted.ENROL, node.key)
        return done(NAME, f"{member.display} granted the intermediate")
    return _not_yet(host, node, said)


def _ask(host: Host, node: Node, member: Member) -> None:
    grant = etcdenrol.ask(host, node, member, enrolment(host, node), node.key)
    with store.locked(host, "the mesh"):
        etcdtaken.take_grant(host, node, grant, trusted=may_ask(node.trust, member.key))


def _not_yet(host: Host, node: Node, said: Mapping[Member, KeelError]) -> Duty:
    """Queued by what the first of them said; a grant that is not believed is its giver's fault."""
    member, error = next(iter(said.items()))
    if isinstance(error, Refused) and len(said) == 1:
        raise error
    why = error.text if isinstance(error, PeerError) else error.summary()
    entry = etcdenrol.not_yet(host, Wanted.ENROL, node.key, why)
    return waits(
        NAME,
        etcdenrol.waiting_for("a grant", member, entry),
        is_open=etcdenrol.is_open(host, node),
    )


def enrolment(host: Host, node: Node) -> bytes:
    """This member's own request."""
    _, key = etcdstore.request_key(host)
    return etcdtaken.enrolment(host, node.mesh, node.identity.signing, key)


def grant_oneself(host: Host, node: Node) -> None:
    """The holder's own grant, by the same way as everybody's."""
    with store.locked(host, "the mesh"):
        admitted = {member.key: member.address for member in node.view.members}
        request = enrolment(host, node)
        granted = etcdissue.grant(host, node, request, admitted=admitted)
        etcdtaken.take_grant(host, node, granted, trusted=True)
