"""`keel mesh leave`: a node's own removal, and everything of the mesh moved aside (M9, M2).

Owns the order: the removal is signed and on disk, then told, then the machine goes quiet, then the
state is moved. Nothing is deleted; run again after a crash it goes on.
"""

from __future__ import annotations

from dataclasses import dataclass

from keel.errors import Refused
from keel.mesh import drafts, etcdremove, netwindow, spread, store, talk, up, wire
from keel.mesh.expulsion import Consent
from keel.mesh.members import Member
from keel.mesh.store import Node
from keel.outcome import Done
from keel.ports import Host
from keel.spec.model import Spec
from keel.types import Nonce

TELL_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """Which members know of it, and which learn it only from them."""

    told: tuple[str, ...]
    not_told: tuple[str, ...]


def leave(
    host: Host, spec: Spec, *, typed: str | None = None, consent: Consent | None = None
) -> Done[Left]:
    """This node in no mesh any more, its keys and state below /var/lib/keel/left. A voter passes
    etcd's gates first; the others' tends take it out of etcd's list, because they hold its word.
    `typed`: its own name, which a consent needs."""
    with store.locked(host, "the mesh"):
        node = store.require(host)
        netwindow.refuse_open(host)
        _refuse_holder(host, talk.others(node))
    _pass_gates(host, node, typed, consent)
    with store.locked(host, "the mesh"):
        netwindow.refuse_open(host)
        node = store.require(host)
        others = talk.others(node)
        node, removal = _sign_removal(host, node)
    told, not_told = spread.tell(host, node, others, (removal,), timeout_seconds=TELL_SECONDS)
    with store.locked(host, "the mesh"):
        _end_etcd(host)
        up.stop_units(host)
        host.wireguard.drop_interface(spec.network.wireguard.interface)
        host.firewall.drop()
        host.machine.unbound_tcp()
        _move_aside(host, node)
    return Done(value=Left(told=told, not_told=not_told), changed=(f"member/{node.address} left",))


def _pass_gates(host: Host, node: Node, typed: str | None, consent: Consent | None) -> None:
    """Refused (removal-no-quorum, removal-one-voter, name-not-typed). A node that is removed
    already, or alone, has nothing to ask."""
    me = node.view.by_key(node.key)
    if me is None or not talk.others(node) or not host.files.exists(host.paths.etcd_cluster):
        return
    if consent is not None and typed != me.display:
        raise Refused(
            "name-not-typed",
            f"this needs this node's name, and {typed or 'nothing'} is not {me.display}",
            f"the same command with --confirm {me.display}",
        )
    for said in etcdremove.before_removal(host, node, me, consent):
        host.console.say(said)


def _end_etcd(host: Host) -> None:
    """Its etcd stands still before its overlay goes; its data is moved aside, never deleted."""
    if not host.files.exists(host.paths.etcd_cluster):
        return
    host.overlay.stop()
    host.overlay.set_data_aside(host.clock.now().strftime("left-%Y%m%dT%H%M%SZ"))
    host.overlay.lay({})


def _refuse_holder(host: Host, others: tuple[Member, ...]) -> None:
    """The root's key would go with it, and nobody could be granted or revoked any more."""
    if others and host.files.names(host.paths.roots):
        raise Refused(
            "leave-holder",
            "this node holds the etcd root, which the other members need",
            "let the other members leave first; the last one takes the root with it",
        )


def _sign_removal(host: Host, node: Node) -> tuple[Node, bytes]:
    """The node with its own removal in the roster; an interrupted leave signs no second one."""
    if node.key in node.view.removed:
        mine = node.view.removed[node.key]
        return node, next(node.roster.raws[record] for record in mine)
    removal = drafts.make_removal(
        node.roster,
        node.identity.signing,
        node.key,
        now=host.clock.now(),
        nonce=Nonce(host.chance.bytes(16).hex()),
    )
    raw = wire.encode(removal)
    node, _ = store.merge_into(host, node, (raw,))
    return node, raw


def _move_aside(host: Host, node: Node) -> None:
    """Etcd's state first: with the mesh's gone, a second run would not find this node in a mesh."""
    stamp = host.clock.now().strftime("%Y%m%dT%H%M%SZ")
    place = host.paths.left / f"{node.mesh}-{stamp}"
    host.files.make_dir(place)
    for source in (host.paths.etcd, host.paths.mesh):
        if host.files.exists(source):
            host.files.rename(source, place / source.name)
