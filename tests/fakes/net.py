"""N nodes in one process, joined as WireGuard would join them.

A request reaches the node that owns the address only if cryptokey routing lets it: the sender's
device has a peer whose allowed address it is, the receiver's device has the sender's key with the
sender's source address allowed, preshared keys agree, one of the two knows where the other is, and
no cut lies between. Temporary peers of invites need no special case. The handler is given the
source address that WireGuard proved.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Literal

from keel.errors import PeerError
from keel.ports import Meanwhile
from keel.types import Endpoint
from tests.fakes.clock import VirtualClock
from tests.fakes.effects import Crash
from tests.fakes.host import FakeNode
from tests.fakes.wireguard import Device, Peer

CONNECT_SECONDS = 10.0
KEEPALIVE_SECONDS = 10.0
KEEPALIVE_BYTES = 32
HANDSHAKE_BYTES = 148
SMALL_BYTES = 1100
"""What a message may have on a path that carries small packets only."""

CARRIED: Counter[str] = Counter()
"""How many requests all nets of this process carried, by what became of them: what a test costs, in
a measure that no load of the machine changes."""


@dataclass
class Loss:
    """Requests (or answers) that match go missing, `count` times after the first `skip`; None
    matches everything."""

    what: Literal["request", "reply"]
    source: str | None = None
    target: str | None = None
    path: str | None = None
    count: int = 1
    skip: int = 0

    def takes(self, what: str, source: str, target: str, path: str) -> bool:
        if self.count <= 0 or what != self.what:
            return False
        if not all(
            mine in (None, its)
            for mine, its in ((self.source, source), (self.target, target), (self.path, path))
        ):
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        self.count -= 1
        return True


@dataclass(frozen=True, kw_only=True)  # no slots: copies of worlds hold many, see arranged
class Exchange:
    """What became of one request: `answered`, or why not."""

    source: str
    target: str
    path: str
    outcome: str


@dataclass
class _Session:
    """Both ends of a working WireGuard session."""

    near: FakeNode
    near_device: Device
    near_peer: Peer
    far: FakeNode
    far_device: Device
    far_peer: Peer


class FakeNet:
    """Makes the nodes and carries what they send."""

    def __init__(self, scratch: Path, *, seed: int = 0) -> None:
        self.scratch = scratch
        self.clock = VirtualClock()
        self.nodes: dict[str, FakeNode] = {}
        self.losses: list[Loss] = []
        self.duplicates: set[str] = set()
        """Paths whose next request is delivered twice; the first answer counts."""
        self.one_way_seconds: dict[tuple[str, str], float] = {}
        self.default_one_way_seconds = 0.0
        self.loss_rate = 0.0
        """Chance that a request, and again that its answer, goes missing."""
        self.exchanges: list[Exchange] = []
        self.healed_at = 0.0
        self._cuts: set[frozenset[str]] = set()
        self._one_ways: set[tuple[str, str]] = set()
        self._narrow: set[frozenset[str]] = set()
        self.clock.every(KEEPALIVE_SECONDS, self._keepalives)
        self._random = random.Random(seed)
        self._seed = seed

    def node(self, name: str, *, behind_nat: bool = False) -> FakeNode:
        """A new node on the underlay; behind NAT it can be reached only where it called first."""
        number = len(self.nodes) + 1
        outside = IPv4Address(f"203.0.113.{number}")
        node = FakeNode(
            name,
            self.scratch / name,
            clock=self.clock,
            seed=f"{self._seed}/{name}",
            outside=outside,
            inside=IPv4Address(f"192.168.0.{number}") if behind_nat else outside,
        )
        node.connect(FakeChannel(self, node))
        self.nodes[name] = node
        return node

    # what happens to the network

    def cut(self, one: str, other: str) -> None:
        """No packet between two nodes until healed."""
        self._cuts.add(frozenset((one, other)))

    def one_way(self, source: str, target: str) -> None:
        """Until healed, packets pass from the one to the other and not back: handshakes arrive, and
        none is ever answered."""
        self.cut(source, target)
        self._one_ways.add((source, target))

    def narrow(self, one: str, other: str) -> None:
        """Only small packets between two nodes until healed, and no word of it to the sender."""
        self._narrow.add(frozenset((one, other)))

    def partition(self, *groups: Collection[str]) -> None:
        """Cut every pair of nodes that are not in one group; unnamed nodes are left alone."""
        for at, group in enumerate(groups):
            for others in groups[at + 1 :]:
                for one in group:
                    for other in others:
                        self.cut(one, other)

    def heal(self) -> None:
        self._cuts.clear()
        self._one_ways.clear()
        self._narrow.clear()
        self.healed_at = self.clock.monotonic()

    def lose(
        self,
        what: Literal["request", "reply"],
        *,
        source: str | None = None,
        target: str | None = None,
        path: str | None = None,
        count: int = 1,
        skip: int = 0,
    ) -> None:
        self.losses.append(Loss(what, source, target, path, count, skip))

    def delay(self, one: str, other: str, one_way_seconds: float) -> None:
        self.one_way_seconds[one, other] = self.one_way_seconds[other, one] = one_way_seconds

    def is_cut(self, one: str, other: str) -> bool:
        return frozenset((one, other)) in self._cuts

    # how packets go

    def owner_of(self, address: IPv6Address) -> FakeNode | None:
        """The living node that has an overlay address."""
        for node in self.nodes.values():
            if node.alive and any(
                each.address == address for each in node.wireguard.devices.values()
            ):
                return node
        return None

    def connected(self, source: FakeNode, address: IPv6Address) -> bool:
        """Whether a packet from `source` would reach `address` and an answer come back."""
        if any(each.address == address for each in source.wireguard.devices.values()):
            return True
        return self._session(source, address) is not None

    def send(
        self, source: FakeNode, address: IPv6Address, path: str, body: bytes
    ) -> tuple[bytes | PeerError, float]:
        """One exchange; what it gave and the seconds it took, not yet passed on the clock."""
        own = [each for each in source.wireguard.devices.values() if each.address == address]
        if own:
            return source.serve(path, address, body), 0.0
        session = self._session(source, address)
        if session is None:
            target = self.owner_of(address)
            self._record(source.name, target.name if target else str(address), path, "unreachable")
            return _failed(address, "unreachable", "no answer"), CONNECT_SECONDS
        return self._exchange(session, address, path, body)

    def _exchange(
        self, session: _Session, address: IPv6Address, path: str, body: bytes
    ) -> tuple[bytes | PeerError, float]:
        near, far = session.near, session.far
        back = 2 * self.one_way_seconds.get((near.name, far.name), self.default_one_way_seconds)
        if far.effects.dead:
            self._record(near.name, far.name, path, "unreachable")
            return _failed(address, "unreachable", "no answer"), CONNECT_SECONDS
        if self._lost("request", near.name, far.name, path) or self._too_large(near, far, body):
            self._record(near.name, far.name, path, "request lost")
            return _failed(address, "timeout", "no answer in time"), CONNECT_SECONDS
        self._learn(session)
        source = session.near_device.address
        assert source is not None
        try:
            answer = far.serve(path, source, body)
            if path in self.duplicates:
                self.duplicates.discard(path)
                far.serve(path, source, body)
        except Crash:
            self._record(near.name, far.name, path, "receiver died")
            return _failed(address, "timeout", "no answer in time"), CONNECT_SECONDS
        if self._lost("reply", near.name, far.name, path) or self._too_large(near, far, answer):
            self._record(near.name, far.name, path, "answer lost")
            return _failed(address, "timeout", "no answer in time"), CONNECT_SECONDS
        if self._session(near, address) is None:
            self._record(near.name, far.name, path, "answer cannot return")
            return _failed(address, "timeout", "no answer in time"), CONNECT_SECONDS
        self._record(near.name, far.name, path, "answered")
        return answer, back

    def _too_large(self, near: FakeNode, far: FakeNode, message: bytes) -> bool:
        narrow = frozenset((near.name, far.name)) in self._narrow
        return narrow and len(message) > SMALL_BYTES

    def _lost(self, what: str, source: str, target: str, path: str) -> bool:
        if any(loss.takes(what, source, target, path) for loss in self.losses):
            return True
        return self.loss_rate > 0 and self._random.random() < self.loss_rate

    def _record(self, source: str, target: str, path: str, outcome: str) -> None:
        CARRIED[outcome] += 1
        self.exchanges.append(Exchange(source=source, target=target, path=path, outcome=outcome))

    def _session(self, near: FakeNode, address: IPv6Address) -> _Session | None:
        for device in near.wireguard.devices.values():
            for peer in device.peers.values():
                if peer.wanted.allowed == address:
                    return self._far_end(near, device, peer)
        return None

    def _far_end(self, near: FakeNode, device: Device, peer: Peer) -> _Session | None:
        for far in self.nodes.values():
            if not far.alive or not near.alive or far is near or self.is_cut(near.name, far.name):
                continue
            for far_device in far.wireguard.devices.values():
                far_peer = far_device.peers.get(device.key)
                if far_device.key != peer.wanted.key or far_peer is None:
                    continue
                session = _Session(near, device, peer, far, far_device, far_peer)
                if _agrees(session):
                    return session
        return None

    def _learn(self, session: _Session) -> None:
        """A packet went both ways: endpoints are learned, counters move, the handshake is now."""
        session.near_peer.endpoint = session.far.endpoint(session.far_device.port)
        session.far_peer.endpoint = session.near.endpoint(session.near_device.port)
        ends = (
            (session.near, session.near_peer, session.far),
            (session.far, session.far_peer, session.near),
        )
        for node, peer, other in ends:  # each end writes down what its own clock says
            said = other.clock.now()
            peer.latest_time = max(peer.latest_time or said, said)
            peer.latest_handshake = node.clock.now()
            peer.received += 200
            peer.sent += 200

    def _keepalives(self) -> None:
        for node in self.nodes.values():
            for device in node.wireguard.devices.values():
                for peer in device.peers.values():
                    if peer.wanted.keepalive_seconds:
                        self._arrives(node, device, peer)
                    session = self._far_end(node, device, peer)
                    if session is not None and peer.wanted.keepalive_seconds:
                        session.far_peer.received += KEEPALIVE_BYTES
                        peer.sent += KEEPALIVE_BYTES
                        peer.latest_handshake = node.clock.now()
                        peer.endpoint = session.far.endpoint(session.far_device.port)

    def _arrives(self, node: FakeNode, device: Device, peer: Peer) -> None:
        """The handshakes of one whose packets pass and who hears no answer."""
        for source, target in self._one_ways:
            far = self.nodes[target]
            for far_device in far.wireguard.devices.values() if source == node.name else ():
                found = far_device.peers.get(device.key)
                if found is not None and far_device.key == peer.wanted.key:
                    found.received += HANDSHAKE_BYTES


class FakeChannel:
    """keel.ports.ChannelOut of one node. Both the sending and the return of the answer are effects:
    a crash before the second is a node that died after the other side had acted."""

    def __init__(self, net: FakeNet, node: FakeNode) -> None:
        self._net = net
        self._node = node

    def post(
        self, address: IPv6Address, path: str, body: bytes, *, timeout_seconds: float
    ) -> bytes:
        self._node.effects.happen(f"post {address} {path}")
        result, seconds = self._net.send(self._node, address, path, body)
        self._node.effects.happen(f"answer {address} {path}")
        self._net.clock.sleep(min(seconds, timeout_seconds))
        if isinstance(result, PeerError):
            raise result
        if seconds > timeout_seconds:
            raise _failed(address, "timeout", "no answer in time")
        return result

    def close(self) -> None:
        """Nothing is kept open here."""

    def post_all(
        self,
        requests: Mapping[IPv6Address, bytes],
        path: str,
        *,
        timeout_seconds: float,
        meanwhile: Meanwhile | None = None,
    ) -> Mapping[IPv6Address, bytes | Exception]:
        results: dict[IPv6Address, bytes | Exception] = {}
        sent: dict[IPv6Address, tuple[bytes | PeerError, float]] = {}
        longest = 0.0
        for address, body in requests.items():
            self._node.effects.happen(f"post {address} {path}")
            sent[address] = self._net.send(self._node, address, path, body)
        if meanwhile is not None:
            meanwhile()
        for address, (result, seconds) in sent.items():
            self._node.effects.happen(f"answer {address} {path}")
            longest = max(longest, min(seconds, timeout_seconds))
            late = seconds > timeout_seconds and not isinstance(result, PeerError)
            results[address] = _failed(address, "timeout", "too late") if late else result
        self._net.clock.sleep(longest)
        return results


def _failed(address: IPv6Address, reason: str, text: str) -> PeerError:
    return PeerError(str(address), reason, text)


def _agrees(session: _Session) -> bool:
    """Cryptokey routing both ways, equal preshared keys, and one end that can find the other, whose
    clock is not behind what it said before."""
    near, far = session.near_device, session.far_device
    if near.address is None or session.far_peer.wanted.allowed != near.address:
        return False
    if session.near_peer.wanted.allowed != far.address:
        return False
    if session.near_peer.wanted.preshared != session.far_peer.wanted.preshared:
        return False
    return _begins(session.near, session.near_peer, session.far, far, session.far_peer) or _begins(
        session.far, session.far_peer, session.near, near, session.near_peer
    )


def _begins(node: FakeNode, peer: Peer, other: FakeNode, device: Device, mine: Peer) -> bool:
    """Whether a handshake that the node begins with the other is answered there; `mine` is what the
    other one knows of the node."""
    forward = mine.latest_time is None or node.clock.now() >= mine.latest_time
    return forward and _finds(peer.endpoint, other, device)


def _finds(endpoint: Endpoint | None, node: FakeNode, device: Device) -> bool:
    return endpoint is not None and node.listens_at(endpoint, device.port)
