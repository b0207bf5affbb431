"""`keel mesh leave`: a node's own removal, and everything of the mesh moved aside (M9, M2).

Owns the order: the removal is signed and on disk, then told, then the machine goes quiet, then the
state is moved. Nothing is deleted; run again after a crash it goes on.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

from keel.errors import Refused
from keel.mesh import drafts, etcdremove, expulsion, join, netwindow, spread, store, talk, up, wire
from keel.mesh.expulsion import Consent
from keel.mesh.members import Member
from keel.mesh.store import Node
from keel.outcome import Done, Plan
from keel.ports import Host
from keel.spec.model import Spec
from keel.types import Nonce

TELL_SECONDS = 30.0
PASS_SECONDS = 60.0
"""How long a pass of the tend's that is at work is waited for: none holds it up for that long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """Which members know of it, and which learn it only from them."""

    told: tuple[str, ...]
    not_told: tuple[str, ...]


def plan(host: Host, *, consent: Consent | None = None) -> Plan:
    """What `leave` would do now; Refused as it would be, but for a name that was not typed."""
    node = _allowed(host)
    for said in _ask_gates(host, node, consent, dry_run=True):
        host.console.say(said)
    others, in_cluster = talk.others(node), host.files.exists(host.paths.etcd_cluster)
    me = node.view.by_key(node.key)
    return Plan.of(
        (me is not None, "sign-removal", "this node", "its own word, which counts for all"),
        (bool(others), "tell-members", ", ".join(one.display for one in others), "sync the rest"),
        (in_cluster, "stop-etcd", "etcd", "the others take it out of their list"),
        (True, "lower", "interface, firewall, units", "nobody reaches or hears this node"),
        (True, "move-aside", str(host.paths.left), "keys and state are kept, never deleted"),
    )


def own_name(host: Host) -> str:
    """What this node is called, for the operator to type before it leaves. Refused (no-mesh,
    window-open, leave-holder): nobody is asked about what cannot be."""
    node = _allowed(host)
    me = node.view.by_key(node.key)
    return me.display if me else expulsion.name_of(node.roster, node.key)


def leave(
    host: Host, spec: Spec, *, typed: str | None = None, consent: Consent | None = None
) -> Done[Left]:
    """This node in no mesh any more, its keys and state below /var/lib/keel/left. A voter passes
    etcd's gates first; the others' tends take it out of etcd's list, because they hold its word.
    `typed`: its own name, which a consent needs. LockHeld while a join of this node runs, or a
    pass of the tend for long."""
    with join.locked(host):
        return _leave(host, spec, typed, consent)


def _leave(host: Host, spec: Spec, typed: str | None, consent: Consent | None) -> Done[Left]:
    node = _allowed(host)
    _pass_gates(host, node, typed, consent)
    with _between_passes(host):
        return _go(host, spec)


def _go(host: Host, spec: Spec) -> Done[Left]:
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


def _between_passes(host: Host) -> AbstractContextManager[None]:
    """No pass of the tend's, which might start etcd again or write its state anew where it was
    moved away. LockHeld, and nothing was changed, when one goes on for long."""
    return host.locks.hold(
        host.paths.tend_lock, what="the registry's state", wait_seconds=PASS_SECONDS
    )


def _allowed(host: Host) -> Node:
    """The node, when nothing of its own stands against its leaving."""
    with store.locked(host, "the mesh"):
        node = store.require(host)
        netwindow.refuse_open(host)
        _refuse_holder(host, talk.others(node))
    return node


def _pass_gates(host: Host, node: Node, typed: str | None, consent: Consent | None) -> None:
    """Refused (removal-no-quorum, removal-one-voter, name-not-typed). A node that is removed
    already, or alone, has nothing to ask."""
    me = node.view.by_key(node.key)
    if me is not None and consent is not None and typed != me.display and _is_asked(host, node):
        raise Refused(
            "name-not-typed",
            f"this node is {me.display}, not {typed}"
            if typed
            else "this wants this node's name, so that nobody leaves by a slip",
            f"type the same command with `--confirm {me.display}`",
        )
    for said in _ask_gates(host, node, consent, dry_run=False):
        host.console.say(said)


def _ask_gates(
    host: Host, node: Node, consent: Consent | None, *, dry_run: bool
) -> tuple[str, ...]:
    me = node.view.by_key(node.key)
    if me is None or not _is_asked(host, node):
        return ()
    return etcdremove.before_removal(
        host, node, me, consent, command=expulsion.LEAVE, dry_run=dry_run
    )


def _is_asked(host: Host, node: Node) -> bool:
    return bool(talk.others(node)) and host.files.exists(host.paths.etcd_cluster)


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
