"""What a WireGuard interface should look like against what it does: pure, no effects.

(W1) A peer has one allowed address, a /128, and no two keys have the same: what moves it takes it
     from the old key first; what would steal it is refused.
(W2) An endpoint inside the mesh's own prefix is refused: a tunnel inside itself. A plan leaves it
     out instead, so that what one member says of itself never keeps the others' peers from being
     set.
(W3) An endpoint is set when none is known, or when the wanted one is not the one that was wanted
     before; one that roamed stays where it is.
(W4) Peers change one by one, removals first; a peer that is as wanted is left alone, so that its
     session goes on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from ipaddress import IPv6Address, IPv6Interface, IPv6Network

from keel.errors import BadValue, Refused
from keel.ports import WgDevice, WgPeer, WgPeerState
from keel.spec.model import MIN_MTU
from keel.types import Endpoint, WgKey, parse_wg_key

PREFIX_LENGTH = 64
FULL_PACKET = MIN_MTU + 80
"""Bytes on the network below of a full packet of that MTU, with WireGuard's, UDP's and IPv6's
headers."""

_DEVICE_FIELDS = 4
_PEER_FIELDS = 8
_NO_KEY = "(none)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dump:
    """`wg show NAME dump` without the private key, which is dropped while parsing."""

    key: WgKey | None
    port: int
    peers: tuple[WgPeerState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFacts:
    """What `ip -j address show dev NAME` says of an interface."""

    mtu: int
    up: bool
    kind: str
    """`wireguard` for the kernel's; wireguard-go makes a `tun`."""
    addresses: tuple[IPv6Interface, ...]
    """The global ones, with whatever prefix length they have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPeer:
    """Add a peer, or change it. An endpoint of None leaves the one it has."""

    peer: WgPeer


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovePeer:
    key: WgKey


Change = SetPeer | RemovePeer


def parse_dump(text: str) -> Dump:
    """BadValue names the line that is not as wg writes it."""
    lines = [line.split("\t") for line in text.splitlines()]
    if not lines or len(lines[0]) != _DEVICE_FIELDS:
        raise BadValue("line 1", "not what `wg show NAME dump` prints")
    _, public, port, _ = lines[0]
    return Dump(
        key=None if public == _NO_KEY else _key(public, "line 1"),
        port=_number(port, "line 1"),
        peers=tuple(_peer(fields, f"line {at}") for at, fields in enumerate(lines[1:], start=2)),
    )


def parse_link(text: str) -> LinkFacts:
    """The one link of `ip -j -d address show dev NAME`; BadValue for anything else."""
    try:
        (link,) = json.loads(text)
        return LinkFacts(
            mtu=int(link["mtu"]),
            up="UP" in link["flags"],
            kind=str(link.get("linkinfo", {}).get("info_kind", "")),
            addresses=tuple(
                IPv6Interface((each["local"], each["prefixlen"]))
                for each in link.get("addr_info", ())
                if each.get("family") == "inet6" and each.get("scope") == "global"
            ),
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadValue("ip", "not what `ip -j address show` prints") from error


def prefix_around(address: IPv6Address) -> IPv6Network:
    """The mesh's /64, from an address in it."""
    return IPv6Network((address, PREFIX_LENGTH), strict=False)


def find_peer(device: WgDevice, key: WgKey) -> WgPeerState | None:
    """The peer with that key, if it is there."""
    return next((peer for peer in device.peers if peer.key == key), None)


def check_peer(device: WgDevice, peer: WgPeer) -> None:
    """Refused when `peer` breaks (W1) or (W2) on this device as it is now."""
    for other in device.peers:
        if other.key != peer.key and _allowed(peer) in other.allowed:
            raise _taken(peer, device, other.key)
    if _outside(peer, map(prefix_around, device.addresses)) != peer:
        raise Refused(
            "endpoint-inside-mesh",
            f"the endpoint {peer.endpoint} is inside the mesh itself",
            "give that node an endpoint of the network below in network.wireguard.endpoints",
        )


def plan_peers(
    wanted: Iterable[WgPeer],
    device: WgDevice,
    *,
    wanted_before: Mapping[WgKey, Endpoint] | None = None,
    keep: Iterable[WgKey] = (),
) -> tuple[Change, ...]:
    """The changes that turn the device's peers into the wanted ones, in the order that is safe at
    every step (W1, W4). `wanted_before` is the endpoint that was wanted of each peer when it was
    last set (W3); keys in `keep` are left alone whether wanted or not. Refused when two wanted
    peers have one key or one address."""
    prefixes = [prefix_around(address) for address in device.addresses]
    peers = tuple(_outside(peer, prefixes) for peer in wanted)
    _check_wanted(peers, device)
    left_alone = set(keep)
    keys = {peer.key for peer in peers}
    changes: list[Change] = [
        RemovePeer(key=there.key)
        for there in device.peers
        if there.key not in keys and there.key not in left_alone
    ]
    before = wanted_before or {}
    ordered = _free_addresses_first(
        [
            changed
            for peer in peers
            if peer.key not in left_alone
            and (changed := _change(peer, find_peer(device, peer.key), before)) is not None
        ],
        device,
        {change.key for change in changes if isinstance(change, RemovePeer)},
    )
    return (*changes, *ordered)


def _check_wanted(peers: tuple[WgPeer, ...], device: WgDevice) -> None:
    for field in ("key", "allowed"):
        values = [getattr(peer, field) for peer in peers]
        twice = next((value for value in values if values.count(value) > 1), None)
        if twice is not None:
            raise Refused(
                "peer-twice",
                f"two peers of {device.name} would have the {field} {twice}",
                "look at `keel mesh status`: two members claim one key",
            )


def _outside(peer: WgPeer, prefixes: Iterable[IPv6Network]) -> WgPeer:
    """The peer without an endpoint that lies inside the mesh."""
    if peer.endpoint is not None and any(peer.endpoint.host in prefix for prefix in prefixes):
        return replace(peer, endpoint=None)
    return peer


def _change(
    peer: WgPeer, there: WgPeerState | None, before: Mapping[WgKey, Endpoint]
) -> WgPeer | None:
    """What to set, or None when it is so already."""
    if there is None:
        return peer
    set_endpoint = peer.endpoint is not None and (
        there.endpoint is None
        or (
            peer.endpoint != there.endpoint and before.get(peer.key, peer.endpoint) != peer.endpoint
        )
    )
    same = (
        there.allowed == (_allowed(peer),)
        and there.keepalive_seconds == peer.keepalive_seconds
        and there.has_preshared == (peer.preshared is not None)
    )
    if same and not set_endpoint:
        return None
    return peer if set_endpoint else replace(peer, endpoint=None)


def _free_addresses_first(
    peers: list[WgPeer], device: WgDevice, removed: set[WgKey]
) -> tuple[Change, ...]:
    """Order sets so that no address is taken from a key that still has it; a ring of peers that
    exchange addresses is broken by removing one of them first."""
    holders = {
        allowed: there.key
        for there in device.peers
        if there.key not in removed
        for allowed in there.allowed
    }
    changes: list[Change] = []
    left = {peer.key: peer for peer in peers}
    while left:
        ready = [
            each for each in left.values() if holders.get(_allowed(each), each.key) == each.key
        ]
        if ready:
            peer = left.pop(ready[0].key)
            holders = _without(holders, peer.key) | {_allowed(peer): peer.key}
            changes.append(SetPeer(peer=peer))
            continue
        blocked = next(iter(left.values()))
        holder = holders[_allowed(blocked)]
        if holder not in left:
            raise _taken(blocked, device, holder)
        holders = _without(holders, holder)
        there = find_peer(device, holder)
        learned = there.endpoint if there is not None else None
        left[holder] = replace(left[holder], endpoint=learned or left[holder].endpoint)
        changes.append(RemovePeer(key=holder))
    return tuple(changes)


def _without(holders: Mapping[str, WgKey], key: WgKey) -> dict[str, WgKey]:
    return {allowed: holder for allowed, holder in holders.items() if holder != key}


def _taken(peer: WgPeer, device: WgDevice, holder: WgKey) -> Refused:
    return Refused(
        "allowed-address-taken",
        f"{peer.allowed} on {device.name} belongs to the peer {holder}",
        f"look at `wg show {device.name}`; `keel mesh up` puts the peers right",
    )


def _allowed(peer: WgPeer) -> str:
    return f"{peer.allowed.compressed}/128"


def _peer(fields: list[str], where: str) -> WgPeerState:
    if len(fields) != _PEER_FIELDS:
        raise BadValue(where, "not what `wg show NAME dump` prints")
    public, preshared, endpoint, allowed, handshake, received, sent, keepalive = fields
    seconds = _number(handshake, where)
    return WgPeerState(
        key=_key(public, where),
        endpoint=None if endpoint == _NO_KEY else _endpoint(endpoint, where),
        allowed=() if allowed == _NO_KEY else tuple(allowed.split(",")),
        latest_handshake=datetime.fromtimestamp(seconds, UTC) if seconds else None,
        received_bytes=_number(received, where),
        sent_bytes=_number(sent, where),
        keepalive_seconds=0 if keepalive == "off" else _number(keepalive, where),
        has_preshared=preshared != _NO_KEY,
    )


def _key(text: str, where: str) -> WgKey:
    try:
        return parse_wg_key(text)
    except ValueError as error:
        raise BadValue(where, str(error)) from error


def _endpoint(text: str, where: str) -> Endpoint | None:
    """None for an address with a zone: link-local means nothing to anybody else."""
    if "%" in text:
        return None
    try:
        return Endpoint.parse(text)
    except ValueError as error:
        raise BadValue(where, str(error)) from error


def _number(text: str, where: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise BadValue(where, f"expected a number, got {text[:20]!r}")
    return int(text)
