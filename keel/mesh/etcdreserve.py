"""For whom this node is reserved while the cluster is formed by hand (forming.json).

Owns the file. Whether this node may reserve itself is keel.mesh.reservation's.
(V1) The reservation is on disk before it is answered, and holds across restarts.
"""

from __future__ import annotations

from keel import codec
from keel.mesh import etcdstore, reservation, selfrecord, store, talk
from keel.mesh.etcdholder import holder_of
from keel.mesh.reservation import Reservation, ReserveView
from keel.mesh.store import Node
from keel.mesh.trust import may_ask
from keel.ports import Host
from keel.spec.model import Spec
from keel.types import Capability, SigningKey


def load(host: Host) -> Reservation | None:
    """forming.json, lapsed or not; None when there is none."""
    return codec.read_state(Reservation, host.paths.forming, host.files.read(host.paths.forming))


def held(host: Host) -> Reservation | None:
    """The reservation that holds now."""
    return reservation.live(load(host), host.clock.now())


def forms_here(host: Host, node: Node) -> bool:
    """Whether this node forms by hand just now: no birth by itself meanwhile."""
    found = held(host)
    return found is not None and found.by == node.key


def reserve(host: Host, spec: Spec, node: Node, by: SigningKey) -> Reservation:
    """This node reserved for `by`, on disk; Refused by its rules. Hold the lock."""
    talk.refuse_wrong_clock(host)
    before = load(host)
    name = node.view.by_key(before.by) if before else None
    found = reservation.reserve(
        ReserveView(
            me=node.key,
            capable=selfrecord.own_capability(host, spec) is Capability.ETCD,
            trusts_asker=may_ask(node.trust, by),
            authority=etcdstore.load_authority(host) is not None,
            holder=holder_of(host, node),
            stage=etcdstore.load_cluster(host).stage,
            window_open=store.window_is_open(host),
            held=before,
            held_name=name.display if name else "a node that is gone",
        ),
        by,
        host.clock.now(),
    )
    etcdstore.prepare(host)
    host.files.write(host.paths.forming, codec.dumps(found))
    return found


def release(host: Host, by: SigningKey) -> None:
    """Forget the reservation for `by`; none, or another's, is left as it is. Hold the lock."""
    found = load(host)
    if found is not None and found.by == by:
        host.files.remove(host.paths.forming)
