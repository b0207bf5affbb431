"""What a WireGuard interface should look like against what it does: pure, no effects.

(W1) A peer has one allowed address, a /128; it is never on two keys: a change that moves it
     removes it from the old key first, and one that would steal it is refused.
(W2) An endpoint inside the mesh's own prefix is refused: a tunnel inside itself.
(W3) An endpoint is set only where none is known or the wanted one changed; a roamed one stays.
"""

from __future__ import annotations

from ipaddress import IPv6Address, IPv6Network

from keel.errors import Refused
from keel.ports import WgDevice, WgPeer, WgPeerState

PREFIX_LENGTH = 64
MIN_MTU = 1280
"""Below it Linux takes the IPv6 addresses off the interface."""


def prefix_around(address: IPv6Address) -> IPv6Network:
    """The mesh's /64, from an address in it."""
    return IPv6Network((address, PREFIX_LENGTH), strict=False)


def check_peer(device: WgDevice, peer: WgPeer) -> None:
    """Refused when `peer` breaks (W1) or (W2) on this device as it is now."""
    for other in device.peers:
        if other.key != peer.key and f"{peer.allowed.compressed}/128" in other.allowed:
            raise Refused(
                "allowed-address-taken",
                f"{peer.allowed} on {device.name} belongs to the peer {other.key}",
                f"look at `wg show {device.name}`; `keel mesh up` puts the peers right",
            )
    if peer.endpoint is not None and any(
        peer.endpoint.host in prefix_around(address) for address in device.addresses
    ):
        raise Refused(
            "endpoint-inside-mesh",
            f"the endpoint {peer.endpoint} is inside the mesh itself",
            "give that node an endpoint of the network below: network.wireguard.endpoints",
        )


def find_peer(device: WgDevice, key: str) -> WgPeerState | None:
    """The peer with that key, if it is there."""
    return next((peer for peer in device.peers if peer.key == key), None)
