"""Whole nodes in one process: the flows of keel on fake machines, joined by a fake net."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from ipaddress import IPv6Address
from pathlib import Path

from keel.errors import KeelError
from keel.mesh import admit, create, etcd, etcdtend, join, receive, store, sync, up
from keel.mesh.admit import MadeInvite
from keel.mesh.join import Joined
from keel.mesh.store import Node
from keel.mesh.token import Token, parse_token
from keel.ports import Host
from keel.spec.model import Overlay, Spec
from keel.spec.parse import parse_spec, set_etcd_overlay
from tests.fakes.etcd import FakeEtcd
from tests.fakes.host import FakeNode
from tests.fakes.net import FakeNet

SPEC = """\
installation: {{mode: {mode}}}
node: {{name: {name}}}
network:
  wireguard: {{interface: keel0, port: 51820}}
overlays: {{etcd: disabled}}
"""


class World:
    """A net, its etcds, and the operator's commands on each node by the node's name."""

    def __init__(self, scratch: Path) -> None:
        self.net = FakeNet(scratch)
        self.etcd = FakeEtcd(self.net)
        self.kicks: list[Callable[[], object]] = []
        """What non-blocking starts of sync and tend will do, once `settle` lets them."""

    def node(
        self, name: str, *, mode: str = "cloud_advanced", behind_nat: bool = False
    ) -> FakeNode:
        """A machine with the packages installed and its spec written."""
        node = self.net.node(name, behind_nat=behind_nat)
        node.paths.spec.parent.mkdir(parents=True, exist_ok=True)
        node.paths.spec.write_text(SPEC.format(mode=mode, name=name))
        node.handler = lambda path, source, body: self._receive(node, path, source, body)
        node.units.on_start[up.SYNC_UNIT] = lambda: self._kick(node, self._quiet_sync)
        node.units.on_start[up.TEND_UNIT] = lambda: self._kick(node, self._quiet_tend)
        if mode == "cloud_advanced":
            self.etcd.install(node)
        return node

    # the operator's commands

    def create(self, name: str) -> Node:
        host = self.host(name)
        node = create.create(host, self.spec(name)).value
        etcd.after_create(host, self.spec(name), node)
        return store.require(host)

    def invite(self, name: str, *, life: timedelta = timedelta(hours=24)) -> Token:
        return parse_token(self.make_invite(name, life=life).token.reveal().decode())

    def make_invite(self, name: str, *, life: timedelta = timedelta(hours=24)) -> MadeInvite:
        host = self.host(name)
        words = etcd.words(host, store.require(host))
        return admit.make_invite(host, self.spec(name), words, life=life).value

    def join(self, name: str, token: Token, *, discard: bool = False) -> Joined:
        host = self.host(name)
        joined = join.join(
            host,
            self.spec(name),
            token,
            ask_etcd=lambda identity: etcd.enrolment(host, self.spec(name), token.mesh, identity),
            discard=discard,
        ).value
        etcd.after_join(host, lambda: self.spec(name), self.enable_spec, joined, token)
        return joined

    def sync(self, name: str) -> object:
        return sync.sync(self.host(name), self.spec(name))

    def tend(self, name: str) -> tuple[etcdtend.Duty, ...]:
        return etcdtend.tend(self.host(name), lambda: self.spec(name), self.enable_spec)

    # the world

    def settle(self) -> None:
        """Let every kicked sync and tend run, and what they kick in turn."""
        for _ in range(50):
            kicks, self.kicks = self.kicks, []
            if not kicks:
                return
            for kick in kicks:
                kick()
        raise AssertionError("the nodes do not come to rest")

    def host(self, name: str) -> Host:
        return self.net.nodes[name].host

    def spec(self, name: str) -> Spec:
        path = self.net.nodes[name].paths.spec
        return parse_spec(path.read_bytes(), file=path)

    def loaded(self, name: str) -> Node:
        return store.require(self.host(name))

    @staticmethod
    def enable_spec(host: Host) -> None:
        raw = host.files.read(host.paths.spec) or b""
        host.files.write(host.paths.spec, set_etcd_overlay(raw, Overlay.ENABLED), mode=0o640)

    def _receive(
        self, node: FakeNode, path: str, source: IPv6Address, body: bytes
    ) -> tuple[int, bytes]:
        return receive.receive(node.host, self.spec(node.name), etcd.doors(), path, source, body)

    def _kick(self, node: FakeNode, run: Callable[[FakeNode], object]) -> None:
        self.kicks.append(lambda: run(node))

    def _quiet_sync(self, node: FakeNode) -> None:
        if node.alive and store.load(node.host) is not None:
            sync.sync(node.host, self.spec(node.name))

    def _quiet_tend(self, node: FakeNode) -> None:
        if not node.alive:
            return
        try:
            self.tend(node.name)
        except KeelError:
            return
