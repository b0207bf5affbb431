"""`keel mesh trust`: which members' operators this node obeys (M6)."""

from __future__ import annotations

from keel.errors import Refused
from keel.mesh import members, netwindow, selfrecord, store, trust
from keel.mesh.members import Member
from keel.mesh.store import Node
from keel.mesh.trust import Origin
from keel.outcome import Done
from keel.ports import Host
from keel.spec.model import Spec
from keel.unitnames import SYNC_UNIT


def listing(host: Host) -> tuple[tuple[str, str, str], ...]:
    """Every other member, by name: display name, address, and `operator`, `joined`, `none` or
    `blocked`."""
    node = store.require(host)
    origins = {root.key: root.origin.value for root in node.trust.roots}
    origins |= {block.key: "blocked" for block in node.trust.blocks}
    return tuple(
        (member.display, member.address.compressed, origins.get(member.key, "none"))
        for member in sorted(node.view.members, key=lambda one: (one.display, one.address))
        if member.key != node.key
    )


def add_root(host: Host, spec: Spec, name: str) -> Done[Member]:
    """The member is a trust root of this node by its operator's word, and the others are told; a
    block of it is lifted."""
    with store.locked(host, "the mesh"):
        netwindow.refuse_open(host)
        node = store.require(host)
        member = _other(node, name)
        free = trust.without_block(node.trust, member.key)
        changed = trust.with_root(free, member.key, Origin.OPERATOR, host.clock.now())
        done = _keep(host, spec, node, member, changed, "trusted")
    if free != node.trust:
        host.units.start(SYNC_UNIT, block=False)  # which lets it in again
    return done


def drop_root(host: Host, spec: Spec, name: str) -> Done[Member]:
    """The member is no trust root of this node any more; its membership is untouched."""
    with store.locked(host, "the mesh"):
        netwindow.refuse_open(host)
        node = store.require(host)
        member = _other(node, name)
        changed = trust.without_root(node.trust, member.key)
        return _keep(host, spec, node, member, changed, "no longer trusted")


def _other(node: Node, name: str) -> Member:
    member = members.find(node.view, name)
    if member.key == node.key:
        raise Refused("trust-self", "this node needs no trust in itself", "name another member")
    return member


def _keep(
    host: Host,
    spec: Spec,
    node: Node,
    member: Member,
    changed: trust.TrustStore,
    what: str,
) -> Done[Member]:
    if changed == node.trust:
        return Done(value=member)
    store.save_trust(host, changed)
    selfrecord.refresh(host, spec, store.require(host))
    return Done(value=member, changed=(f"member/{member.display} {what}",))
