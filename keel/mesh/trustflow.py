"""`keel mesh trust`: which members' operators this node obeys (M6)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from keel.errors import Refused
from keel.mesh import members, netwindow, selfrecord, store, trust
from keel.mesh.members import Member
from keel.mesh.store import Node
from keel.mesh.trust import Origin
from keel.outcome import Done, Plan
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
    return _change(host, spec, name, add=True)


def drop_root(host: Host, spec: Spec, name: str) -> Done[Member]:
    """The member is no trust root of this node any more; its membership is untouched."""
    return _change(host, spec, name, add=False)


def plan(host: Host, spec: Spec, name: str, *, add: bool) -> Plan:
    """What `add_root` or `drop_root` would do now; Refused as they."""
    netwindow.refuse_open(host)
    return _decide(host, spec, store.require(host), name, add=add).plan


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decided:
    """The trust store that is wanted, and the steps to it; none when it is so already."""

    member: Member
    trust: trust.TrustStore
    plan: Plan
    lifts: bool


def _change(host: Host, spec: Spec, name: str, *, add: bool) -> Done[Member]:
    with store.locked(host, "the mesh"):
        netwindow.refuse_open(host)
        found = _decide(host, spec, store.require(host), name, add=add)
        if not found.plan:
            return Done(value=found.member)
        store.save_trust(host, found.trust)
        selfrecord.refresh(host, spec, store.require(host))
    if found.lifts:
        host.units.start(SYNC_UNIT, block=False)  # which lets it in again
    what = "trusted" if add else "no longer trusted"
    return Done(value=found.member, changed=(f"member/{found.member.display} {what}",))


def _decide(host: Host, spec: Spec, node: Node, name: str, *, add: bool) -> _Decided:
    member = _other(node, name)
    if add:
        free = trust.without_block(node.trust, member.key)
        wanted = trust.with_root(free, member.key, Origin.OPERATOR, host.clock.now())
    else:
        free, wanted = node.trust, trust.without_root(node.trust, member.key)
    steps = (
        (free != node.trust, "lift-block", member.display, "this node hears and reaches it again"),
        (add and wanted != free, "add-root", member.display, "it may ask this node for acts"),
        (not add and wanted != free, "drop-root", member.display, "it stays a member"),
        (
            wanted != node.trust and selfrecord.due(host, spec, replace(node, trust=wanted)),
            "sign-self",
            "this node",
            "the others learn whom it trusts",
        ),
    )
    return _Decided(member=member, trust=wanted, plan=Plan.of(*steps), lifts=free != node.trust)


def _other(node: Node, name: str) -> Member:
    member = members.find(node.view, name)
    if member.key == node.key:
        raise Refused("trust-self", "this node needs no trust in itself", "name another member")
    return member
