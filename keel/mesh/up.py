"""Raises what a node's state says: interface, firewall, peers, the channel's socket.

Owns the way from state to the machine; idempotent, at boot, after every change and in every sync.
Reads nothing from disk: the caller loads, under the lock.

Rules:
(U1) The firewall stands before any peer that it is there for.
(U2) An endpoint that WireGuard learned is never overwritten while the peer is heard there; a wanted
     one is set when none is known, or when the member's own record changed it.
(U3) A peer goes only when a record says so: a removal, a lapsed claim, a forgotten invite.
(U4) A claimant's peer has no endpoint until it confirmed: before it has its own key on its
     interface it could not answer, and two ends that both knock at once delay each other.
(U5) What a stranger claims is left out where it does not fit, so that it keeps nobody else's peer
     from being set: an endpoint that no packet should go to, and a claimant's key or address that
     a member has, or a temporary peer's that a member or claimant took.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from ipaddress import IPv6Address

from keel.errors import KeelError, ProcFailed
from keel.mesh import firewallrules, netsettings, store, tended, wgconf
from keel.mesh.firewallrules import CHANNEL_PORT
from keel.mesh.invite import InviteState, claimed_members
from keel.mesh.members import Member
from keel.mesh.records import CRL, REMOVAL, VOTE
from keel.mesh.roster import Merged
from keel.mesh.store import Node
from keel.outcome import Plan
from keel.ports import Host, WgBackend, WgDevice, WgPeer
from keel.spec.model import Spec, TcpBound, capability
from keel.types import Capability, Endpoint, WgKey
from keel.unitnames import (
    CHANNEL_SOCKET,
    FAST_TIMER,
    MESH_UNIT,
    PASSES,
    PASSES_UNIT,
    PULLED_IN,
    TEND_UNIT,
    TIMERS,
)


def bring_up(host: Host, spec: Spec, node: Node, invites: Iterable[InviteState]) -> None:
    """Interface, address, firewall, peers and the channel's address, as the state says. What is
    raised first is in force until other settings are applied."""
    spec = netsettings.in_force(host, spec)
    netsettings.keep_first(host, spec)
    wanted = spec.network.wireguard
    host.wireguard.raise_interface(
        wanted.interface, port=wanted.port, mtu=wanted.mtu, private=node.identity.wireguard.private
    )
    host.wireguard.set_address(wanted.interface, node.address, node.prefix)
    host.firewall.load(
        firewallrules.ruleset(interface=wanted.interface, prefix=node.prefix, address=node.address)
    )
    set_peers(host, spec, wanted_peers(spec, node, tuple(invites), host.clock.now()))
    bound_tcp(host, spec)
    lay_channel(host, node.address)


def plan(host: Host, spec: Spec, node: Node, invites: Iterable[InviteState]) -> Plan:
    """What `bring_up` would do now; the firewall's table it loads every time."""
    spec, invites = netsettings.in_force(host, spec), tuple(invites)
    wanted, now = spec.network.wireguard, host.clock.now()
    device = host.wireguard.show(wanted.interface)
    differ = _differences(spec, node, device)
    changes = wgconf.plan_peers(
        wanted_peers(spec, node, invites, now), device or _blank(spec, node)
    )
    names = peer_names(node, invites, now)
    loose = may_bound_tcp(host, spec) and host.machine.tcp_bound_now() == "off"
    lacks = host.files.read(host.paths.channel_drop_in) != _drop_in(node.address)
    return Plan.of(
        (bool(differ), "raise", wanted.interface, differ),
        (True, "load-firewall", "inet keel", "in one piece, as every time"),
        *((True, *_said(change, names)) for change in changes),
        (loose, "bound-tcp", "this host", "after a cut TCP would stay silent for long"),
        (
            lacks,
            "write-channel-address",
            node.address.compressed,
            "where the members ask this node",
        ),
    )


def _differences(spec: Spec, node: Node, device: WgDevice | None) -> str:
    """What of the interface is not as wanted, in words."""
    wanted = spec.network.wireguard
    if device is None:
        return "it is not there"
    pairs = (
        ("key", device.key, node.identity.wireguard.public),
        ("port", device.port, wanted.port),
        ("MTU", device.mtu, wanted.mtu),
        ("address", device.addresses, (node.address,)),
    )
    found = ", ".join(name for name, is_now, wants in pairs if is_now != wants)
    return found and f"not as the state says: {found}"


def _blank(spec: Spec, node: Node) -> WgDevice:
    """The interface as it is when it was just made."""
    wanted = spec.network.wireguard
    return WgDevice(
        name=wanted.interface,
        key=node.identity.wireguard.public,
        port=wanted.port,
        backend=WgBackend.KERNEL,
        mtu=wanted.mtu,
        addresses=(node.address,),
        peers=(),
    )


def peer_names(node: Node, invites: tuple[InviteState, ...], now: datetime) -> Mapping[WgKey, str]:
    """What the peers are called, by their keys."""
    return {
        **{temporary_peer(node, one).key: f"invite {one.invite}" for one in invites},
        **{claim.wireguard: claim.name for claim in claimed_members(invites, now).values()},
        **{one.wireguard: one.display for one in node.view.members if one.wireguard is not None},
    }


def _said(change: wgconf.Change, names: Mapping[WgKey, str]) -> tuple[str, str, str]:
    if isinstance(change, wgconf.RemovePeer):
        return "remove-peer", names.get(change.key, change.key), "no record has it as it is"
    return "set-peer", names[change.peer.key], "not there as the records say"


def follow(host: Host, spec: Spec, before: Node, node: Node) -> None:
    """The interface's peers after new records: as `set_peers`, and a member whose own record names
    another endpoint than before is looked for there (U2)."""
    peers = wanted_peers(spec, node, store.load_invites(host), host.clock.now())
    wanted = {
        member.wireguard: endpoints[0]
        for member in before.view.members
        if member.wireguard is not None and (endpoints := endpoints_of(before, member))
    }
    set_peers(host, spec, peers, wanted_before=wanted)


def set_peers(
    host: Host,
    spec: Spec,
    peers: Iterable[WgPeer],
    *,
    wanted_before: Mapping[WgKey, Endpoint] | None = None,
) -> tuple[WgKey, ...]:
    """Turn the interface's peers into these, one by one; the keys that changed (U2, U3). One that
    WireGuard does not take is told and keeps nobody else's from being set (U5)."""
    interface = spec.network.wireguard.interface
    device = host.wireguard.show(interface)
    if device is None:
        return ()
    changed = []
    for change in wgconf.plan_peers(peers, device, wanted_before=wanted_before):
        try:
            changed.append(_change(host, interface, change))
        except KeelError as error:
            host.console.say(f"a peer of {interface} could not be changed: {error.summary()}")
    return tuple(changed)


def _change(host: Host, interface: str, change: wgconf.Change) -> WgKey:
    if isinstance(change, wgconf.RemovePeer):
        host.wireguard.remove_peer(interface, change.key)
        return change.key
    host.wireguard.set_peer(interface, change.peer)
    return change.peer.key


def wanted_peers(
    spec: Spec, node: Node, invites: tuple[InviteState, ...], now: datetime
) -> tuple[WgPeer, ...]:
    """Live members, unexpired claims, and the temporary peers of remembered invites (U5)."""
    keepalive = spec.network.wireguard.keepalive
    members = tuple(
        WgPeer(
            key=member.wireguard,
            allowed=member.address,
            endpoint=next(iter(endpoints_of(node, member)), None),
            keepalive_seconds=keepalive,
        )
        for member in node.view.members
        if member.key != node.key
        and member.wireguard is not None
        and member.key not in node.blocked
    )
    claims = tuple(
        WgPeer(
            key=claim.wireguard,
            allowed=address,
            endpoint=None,  # U4
            keepalive_seconds=keepalive,
        )
        for address, claim in claimed_members(invites, now).items()
    )
    temporary = tuple(temporary_peer(node, invite) for invite in invites)
    return _first_of_each((*members, *claims, *temporary), node.identity.wireguard.public)


def _first_of_each(peers: Iterable[WgPeer], own: WgKey) -> tuple[WgPeer, ...]:
    """The peers without those whose key or address an earlier one, or this node, has (U5)."""
    keys, addresses = {own}, set()
    kept = []
    for peer in peers:
        if peer.key not in keys and peer.allowed not in addresses:
            kept.append(peer)
            keys.add(peer.key)
            addresses.add(peer.allowed)
    return tuple(kept)


def temporary_peer(node: Node, invite: InviteState) -> WgPeer:
    """The peer through which an invite's holder makes first contact."""
    derived = invite.keys(node.mesh, node.prefix)
    return WgPeer(
        key=derived.pair.public,
        allowed=derived.address,
        keepalive_seconds=0,
        preshared=derived.preshared,
    )


def endpoints_of(node: Node, member: Member) -> tuple[Endpoint, ...]:
    """Where a member says it can be reached, without what no packet should go to (U5). The first
    is wanted; sync tries the others while the member is silent."""
    return tuple(
        one for one in member.endpoints if not one.is_special() and one.host not in node.prefix
    )


def bound_tcp(host: Host, spec: Spec) -> None:
    """Bound TCP's silence after a cut, on capable nodes whose spec does not forbid it."""
    if may_bound_tcp(host, spec):
        host.machine.bound_tcp()


def may_bound_tcp(host: Host, spec: Spec) -> bool:
    able = capability(spec, overlay_installed=host.overlay_etcd_installed) is Capability.ETCD
    return able and spec.network.tcp_bound is TcpBound.AUTO


def lay_channel(host: Host, address: IPv6Address) -> None:
    """The channel's socket listens on this node's overlay address and nowhere else."""
    text = _drop_in(address)
    if host.files.read(host.paths.channel_drop_in) == text:
        return
    host.files.make_dir(host.paths.channel_drop_in.parent, mode=0o755)
    host.files.write(host.paths.channel_drop_in, text, mode=0o644)
    _load_channel(host)


def _drop_in(address: IPv6Address) -> bytes:
    return (
        "# Written by keel; follows the overlay address.\n"
        f"[Socket]\nListenStream=\nListenStream=[{address.compressed}]:{CHANNEL_PORT}\n"
    ).encode()


def _load_channel(host: Host) -> None:
    """systemd as the drop-in says. It reads a unit that it has not loaded yet by itself, and to
    load all of them anew takes half a second."""
    if host.units.state(CHANNEL_SOCKET).stale:
        host.units.reload_configuration()


def listens(host: Host) -> bool:
    """Whether members can ask this node anything: systemd holds the channel's socket."""
    return host.units.state(CHANNEL_SOCKET).active == "active"


def listen(host: Host) -> None:
    """Start the channel's socket unless it is there. One that failed, because its port was taken or
    too many knocked at once, systemd does not try again by itself."""
    if not listens(host):
        _start_channel(host)


def _start_channel(host: Host) -> None:
    """Where it cannot be, that is told and keeps the node from nothing else: a pass tries again."""
    try:
        host.units.start(CHANNEL_SOCKET)
    except ProcFailed as error:
        host.console.say(
            f"the channel does not listen: {error.summary()}: see who has TCP port {CHANNEL_PORT},"
            " `ss -ltnp`; the timer tries again"
        )


def start_units(host: Host) -> None:
    """Enable and start what a member runs; at boot systemd does it."""
    # A kill between the drop-in's write and its loading is made good here; and before the enabling,
    # after which systemd calls every unit stale.
    _load_channel(host)
    host.units.enable(MESH_UNIT, CHANNEL_SOCKET, *TIMERS)
    tended.note(host)
    _start_channel(host)
    host.units.start(*TIMERS, MESH_UNIT, block=False)


def warm_passes(host: Host) -> None:
    """Let what runs the passes be loaded: one is likely to be kicked soon."""
    host.units.start(PASSES_UNIT, block=False)


def kick_tend(host: Host) -> None:
    """Let the tend run now. A pass that is running already may have looked before: systemd starts
    no second one, so the fast timer sees to it that one follows."""
    host.units.start(TEND_UNIT, FAST_TIMER, block=False)


def wake_tend(host: Host, node: Node, merged: Merged) -> None:
    """What just came and closes doors is not to wait for the timer: a CRL, or the evidence on
    which a member goes from etcd's list."""
    if any(node.roster.entries[one].kind in (CRL, REMOVAL, VOTE) for one in merged.added):
        kick_tend(host)


def stop_units(host: Host) -> None:
    """The reverse of start_units."""
    host.units.stop(FAST_TIMER)  # no pass comes any more that would
    for unit in (*TIMERS, CHANNEL_SOCKET, *PULLED_IN, MESH_UNIT):
        if unit not in PULLED_IN:
            host.units.disable(unit)
        host.units.stop(unit)
    for unit in PASSES:  # one that has begun would find no mesh, and be a unit that failed
        host.units.stop(unit)
