"""WireGuard devices in memory, with the kernel's rules; tests.fakes.net joins them."""

from __future__ import annotations

import base64
import functools
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import IPv6Address, IPv6Network

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from keel.errors import ProcFailed, Refused
from keel.mesh.wgconf import check_peer
from keel.ports import WgBackend, WgDevice, WgPeer, WgPeerState
from keel.spec.model import MIN_MTU
from keel.types import Endpoint, Secret, WgKey
from tests.fakes.effects import Effects


def public_of(private: Secret) -> WgKey:
    """The public key of a WireGuard private key, as `wg pubkey` gives it."""
    return _public_of(private.reveal())


@functools.cache
def _public_of(private: bytes) -> WgKey:
    key = X25519PrivateKey.from_private_bytes(private).public_key()
    return WgKey(base64.b64encode(key.public_bytes(Encoding.Raw, PublicFormat.Raw)).decode())


@dataclass
class Peer:
    """A peer inside a fake device; `endpoint` may have been learned."""

    wanted: WgPeer
    endpoint: Endpoint | None
    latest_handshake: datetime | None = None
    received: int = 0
    sent: int = 0
    latest_time: datetime | None = None
    """What the peer's clock said in the last handshake that it began: an earlier one is ignored."""


@dataclass
class Device:
    name: str
    port: int
    mtu: int
    private: Secret
    backend: WgBackend
    address: IPv6Address | None = None
    prefix: IPv6Network | None = None
    peers: dict[WgKey, Peer] = field(default_factory=dict)

    @property
    def key(self) -> WgKey:
        return public_of(self.private)

    def shown(self) -> WgDevice:
        return WgDevice(
            name=self.name,
            key=self.key,
            port=self.port,
            backend=self.backend,
            mtu=self.mtu,
            addresses=() if self.address is None else (self.address,),
            peers=tuple(_shown_peer(key, peer) for key, peer in self.peers.items()),
        )


class FakeWireGuard:
    """keel.ports.WireGuard."""

    def __init__(self, effects: Effects) -> None:
        self.effects = effects
        self.devices: dict[str, Device] = {}
        self.backend = WgBackend.KERNEL
        self.refuses: set[WgKey] = set()
        """Keys that `wg set` ends with a failure for."""
        self.taken: set[str] = set()
        """Names of interfaces that are there and are not WireGuard's."""
        self.ports_taken: set[int] = set()

    def show(self, interface: str) -> WgDevice | None:
        self._refuse_taken(interface)
        device = self.devices.get(interface)
        return device.shown() if device is not None else None

    def raise_interface(self, interface: str, *, port: int, mtu: int, private: Secret) -> WgBackend:
        self._refuse_taken(interface)
        self.effects.happen(f"wg raise {interface}")
        mtu = max(mtu, MIN_MTU)
        device = self.devices.get(interface)
        if port in self.ports_taken:
            raise ProcFailed(("wg", "set", interface), 1, "Address already in use")
        if device is None:
            device = Device(interface, port, mtu, private, self.backend)
            self.devices[interface] = device
        device.port, device.mtu, device.private = port, mtu, private
        return device.backend

    def set_address(self, interface: str, address: IPv6Address, prefix: IPv6Network) -> None:
        self.effects.happen(f"wg address {interface} {address}")
        device = self._device(interface)
        device.address, device.prefix = address, prefix

    def set_peer(self, interface: str, peer: WgPeer) -> None:
        device = self._device(interface)
        check_peer(device.shown(), peer)
        self._refuse(peer.key)
        self.effects.happen(f"wg peer {interface} {peer.key} {peer.allowed}")
        found = device.peers.get(peer.key)
        if found is None:
            device.peers[peer.key] = Peer(peer, peer.endpoint)
            return
        found.endpoint = peer.endpoint or found.endpoint
        found.wanted = peer

    def remove_peer(self, interface: str, key: WgKey) -> None:
        self._refuse(key)
        self.effects.happen(f"wg remove {interface} {key}")
        self._device(interface).peers.pop(key, None)

    def drop_interface(self, interface: str) -> None:
        self._refuse_taken(interface)
        self.effects.happen(f"wg drop {interface}")
        self.devices.pop(interface, None)

    def _refuse_taken(self, interface: str) -> None:
        if interface in self.taken:
            raise Refused(
                "interface-taken", f"the interface {interface} is taken", "choose another"
            )

    def _refuse(self, key: WgKey) -> None:
        if key in self.refuses:
            raise ProcFailed(["wg", "set"], 1, "Unable to modify interface: Invalid argument")

    def _device(self, interface: str) -> Device:
        found = self.devices.get(interface)
        if found is None:
            raise ProcFailed(["wg", "set", interface], 1, "No such device")
        return found


def _shown_peer(key: WgKey, peer: Peer) -> WgPeerState:
    return WgPeerState(
        key=key,
        endpoint=peer.endpoint,
        allowed=(f"{peer.wanted.allowed.compressed}/128",),
        latest_handshake=peer.latest_handshake,
        received_bytes=peer.received,
        sent_bytes=peer.sent,
        keepalive_seconds=peer.wanted.keepalive_seconds,
        has_preshared=peer.wanted.preshared is not None,
    )
