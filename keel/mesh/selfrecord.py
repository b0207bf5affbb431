"""What this node says of itself, kept true: its self record follows spec, keys and trust."""

from __future__ import annotations

from keel.errors import BadSignature, BadValue
from keel.mesh import drafts, store, wire
from keel.mesh.records import MAX_ENDPOINTS, SELF, SelfRecord
from keel.mesh.store import Node
from keel.mesh.trust import operator_roots
from keel.ports import Host
from keel.spec.model import Spec, capability
from keel.types import Capability, Endpoint, SigningKey

MAX_OWN_BYTES = 64 * 1024
"""As much as a roster takes of this kind."""


def own_capability(host: Host, spec: Spec) -> Capability:
    """Whether this node can run etcd (E1)."""
    return capability(spec, overlay_installed=host.overlay_etcd_installed)


def own_endpoints(host: Host, spec: Spec) -> tuple[Endpoint, ...]:
    """Where others reach this node: the spec's word, else the machine's own global addresses, as
    many as a self record takes."""
    wanted = spec.network.wireguard
    return (wanted.endpoints or host.machine.underlay_endpoints(wanted.port))[:MAX_ENDPOINTS]


def due(host: Host, spec: Spec, node: Node, *, lived: int = 0) -> bool:
    """Whether `refresh` would sign: not when the self record says how this node is already, nor
    while this node was away and asks the others first: its disk may be an old one, and its next
    counter used already."""
    me = node.view.by_key(node.key)
    same = (
        me is not None
        and me.self_counter is not None
        and (me.claimed, me.endpoints, me.capability, me.roots)
        == (
            node.identity.wireguard.public,
            own_endpoints(host, spec),
            own_capability(host, spec),
            operator_roots(node.trust),
        )
        and lived <= me.lived
    )
    return not same and not host.files.exists(host.paths.behind)


def refresh(host: Host, spec: Spec, node: Node, *, lived: int = 0) -> Node:
    """The node with a self record that says how it is now, signed only when that is due. Hold the
    lock."""
    if not due(host, spec, node, lived=lived):
        return node
    me = node.view.by_key(node.key)
    record = drafts.make_self(
        node.roster,
        node.identity.signing,
        wireguard=node.identity.wireguard.public,
        endpoints=own_endpoints(host, spec),
        capability=own_capability(host, spec),
        roots=operator_roots(node.trust),
        lived=max(lived, me.lived if me else 0),
        now=host.clock.now(),
    )
    node, _ = store.merge_into(host, node, (wire.encode(record),))
    return node


def lived_by(node: Node, raw: bytes | None) -> int:
    """How long this disk lived by a self record that somebody else brings: only what this node
    signed itself says anything about it."""
    try:
        envelope = wire.decode(raw or b"", max_bytes=MAX_OWN_BYTES)
        said = wire.open_as(SelfRecord, envelope, SELF, node.key)
    except (BadValue, BadSignature):
        return 0
    return said.lived if (said.mesh, said.ed25519) == (node.mesh, node.key) else 0


def newest(node: Node) -> bytes | None:
    """This node's newest self record as bytes; None before it made one."""
    return newest_of(node, node.key)


def newest_of(node: Node, key: SigningKey) -> bytes | None:
    """A member's newest self record that this node holds."""
    own = [
        (entry.body.counter, entry.raw)
        for entry in node.roster.entries.values()
        if isinstance(entry.body, SelfRecord) and entry.signer == key
    ]
    return max(own)[1] if own else None
