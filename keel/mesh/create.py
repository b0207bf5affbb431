"""`keel mesh create`: the first node makes the mesh (M1)."""

from __future__ import annotations

from keel.errors import Refused
from keel.mesh import drafts, roster, selfrecord, store, tended, up, wire
from keel.mesh.store import Node
from keel.mesh.trust import TrustStore
from keel.outcome import Done, Plan, Step
from keel.ports import Host
from keel.spec.model import Spec
from keel.types import Capability, NodeName, Nonce, parse_name


def plan(host: Host, spec: Spec) -> Plan:
    """What create would do; nothing on a node that is in its own mesh already. Refused as it."""
    refuse_pending(host)
    if store.load(host) is not None:
        return Plan()
    own_name(host, spec)
    host.wireguard.show(spec.network.wireguard.interface)  # Refused when it is another's
    steps = [
        Step(action="make-keys", subject="this node", why="a signing and a WireGuard key"),
        Step(action="found-mesh", subject="genesis", why="the founder admits itself"),
        Step(action="raise", subject="interface", why="the overlay address and the channel"),
    ]
    if selfrecord.own_capability(host, spec) is Capability.ETCD:
        steps.append(
            Step(action="make-root", subject="etcd", why="a capable founder holds etcd's root")
        )
    return Plan(steps=tuple(steps))


def create(host: Host, spec: Spec) -> Done[Node]:
    """This node as the founder of a mesh; run again it goes on where it stopped."""
    with store.locked(host, "the mesh"):
        refuse_pending(host)
        before = store.load(host)
        node = before or _found(host, spec)
        node = selfrecord.refresh(host, spec, node)
        up.bring_up(host, spec, node, store.load_invites(host))
    up.start_units(host)
    changed = () if before else (f"mesh/{node.mesh} created",)
    return Done(value=node, changed=changed)


def refuse_pending(host: Host) -> None:
    """A claim in another mesh may still be open there: not without its operator's word."""
    pending = host.files.names(host.paths.pending_joins)
    if pending:
        raise Refused(
            "pending-join",
            f"a join of mesh {pending[0]} was begun here and not finished",
            "finish it with `keel mesh join` and the same token, or a new one of that mesh; or give"
            " it up with"
            " `keel mesh join --discard-pending`",
        )


def own_name(host: Host, spec: Spec) -> NodeName:
    """The spec's name, else the host name's first label; Refused when that is none."""
    if spec.node.name is not None:
        return spec.node.name
    try:
        return parse_name(host.machine.hostname().partition(".")[0].lower())
    except ValueError as error:
        raise Refused(
            "no-name",
            f"this host's name cannot be a node's name: {error}",
            f"set node.name in {host.paths.spec}",
        ) from error


def _found(host: Host, spec: Spec) -> Node:
    identity = store.make_identity(host, host.paths.signing_key, host.paths.wireguard_key)
    genesis = drafts.make_genesis(
        identity.signing,
        name=own_name(host, spec),
        wireguard=identity.wireguard.public,
        capability=selfrecord.own_capability(host, spec),
        now=host.clock.now(),
        nonce=Nonce(host.chance.bytes(16).hex()),
    )
    trust = TrustStore()
    store.save_trust(host, trust)
    tended.note(host)
    store.save_genesis(host, wire.encode(genesis))
    held = roster.founded(wire.encode(genesis))
    return store.assemble(identity, held=held, trust=trust)
