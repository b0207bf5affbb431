"""One whole fake node: a keel.ports.Host on a scratch directory, with a life that can end."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

from keel.errors import EtcdError, KeelError
from keel.etcdport import EtcdApi, EtcdAt, EtcdOverlay
from keel.mesh import passes
from keel.mesh.refusal import plain
from keel.mesh.server import HttpReply
from keel.paths import Paths
from keel.ports import ChannelOut, Host
from keel.system.etcd import EtcdUnit
from keel.system.fs import DurableFiles
from keel.types import Endpoint
from tests.fakes.clock import NodeClock, SeededChance, VirtualClock
from tests.fakes.disk import RecordingDisk
from tests.fakes.effects import Crash, Effects
from tests.fakes.machine import (
    CountedLocks,
    FakeAlerts,
    FakeFirewall,
    FakeGauge,
    FakeMachine,
    FakeMetrics,
    FakeProc,
    FakeUnits,
    RecordingConsole,
)
from tests.fakes.wireguard import FakeWireGuard

Handler = Callable[[str, IPv6Address, bytes], HttpReply | tuple[int, bytes]]

NAT_PORT = 40000
VOLATILE = "run"
PACKAGED = ("etc/keel", "run/keel", "var/lib/keel")
"""Directories that the packages bring, or tmpfiles.d makes at every boot."""


class FakeNode:
    """What a test holds of one node; `host` is what the flows get."""

    def __init__(
        self,
        name: str,
        root: Path,
        *,
        clock: VirtualClock,
        seed: str,
        outside: IPv4Address,
        inside: IPv4Address,
    ) -> None:
        root.mkdir(parents=True)
        for shipped in PACKAGED:
            (root / shipped).mkdir(parents=True)
        self.name = name
        self.root = root
        self.paths = Paths(root)
        self.outside = outside
        """The address others see; its own (inside) one differs behind NAT."""
        self.inside = inside
        self.alive = True
        self.handler: Handler = _deaf
        """What the channel's service does with (path, source, body)."""
        self.effects = Effects()
        self.clock = NodeClock(clock)
        self.chance = SeededChance(seed)
        self.disk = RecordingDisk(root, self.effects)
        self.files = DurableFiles(self.disk)
        self.proc = FakeProc(self.effects)
        self.wireguard = FakeWireGuard(self.effects)
        self.firewall = FakeFirewall(self.effects)
        self.units = FakeUnits(self.effects)
        self.units.after = clock.after
        self.machine = FakeMachine(self.effects, name, (Endpoint(host=inside, port=1),))
        self.gauge = FakeGauge()
        self.console = RecordingConsole()
        self.locks = CountedLocks(self.effects, self.clock, self.console)
        self.etcd_at: EtcdAt = _no_etcd
        for verb in ("mask", "unmask"):
            self.proc.answers["systemctl", verb] = self.units.mask
        self.overlay: EtcdOverlay = NodeOverlay(self)
        self.alerts = FakeAlerts(self.effects)
        self.metrics = FakeMetrics(self.effects)
        self.overlay_etcd_installed = False
        self._channel: ChannelOut | None = None
        self.overheard: list[str] = []
        """The words that its channel's process said to the one that runs the passes."""

    @property
    def host(self) -> Host:
        assert self._channel is not None
        return Host(
            paths=self.paths,
            clock=self.clock,
            chance=self.chance,
            files=self.files,
            locks=self.locks,
            proc=self.proc,
            wireguard=self.wireguard,
            firewall=self.firewall,
            units=self.units,
            machine=self.machine,
            gauge=self.gauge,
            console=self.console,
            channel=self._channel,
            etcd_at=self.etcd_at,
            overlay=self.overlay,
            alerts=self.alerts,
            metrics=self.metrics,
            passes=lambda word: passes.answer(self.host, word),
        )

    def connect(self, channel: ChannelOut) -> None:
        self._channel = channel

    def serve(self, path: str, source: IPv6Address, body: bytes) -> bytes:
        """The body that the channel's server sends: the handler's, or an error in plain."""
        try:
            reply = self.handler(path, source, body)
        except KeelError as error:
            return plain(error.code, error.summary())
        return reply.body if isinstance(reply, HttpReply) else reply[1]

    # its place on the underlay

    def endpoint(self, port: int) -> Endpoint:
        """Where others see its packets come from."""
        nat = self.inside != self.outside
        return Endpoint(host=self.outside, port=NAT_PORT if nat else port)

    def listens_at(self, endpoint: Endpoint, port: int) -> bool:
        """Whether a packet to `endpoint` reaches its socket on `port`."""
        return endpoint == self.endpoint(port)

    def move(self, outside: IPv4Address) -> None:
        """Its underlay address changes."""
        nat = self.inside != self.outside
        self.outside = outside
        self.inside = self.inside if nat else outside
        self.machine.hosts = (Endpoint(host=self.inside, port=1),)

    # its lives

    def power_off(self) -> None:
        """It is gone: interfaces, firewall, units and /run with it; the disk stays as it is."""
        self.alive = False
        self.units.power_off()
        self.wireguard.devices.clear()
        self.firewall.ruleset = None
        shutil.rmtree(self.root / VOLATILE, ignore_errors=True)

    def power_on(self) -> None:
        """A new life of the same disk: effects are counted from 0 and no crash is planned."""
        if self.alive:
            self.power_off()
        self.alive = True
        self.clock.booted = self.clock.world.monotonic()
        (self.root / VOLATILE / "keel").mkdir(parents=True)
        self.new_life()

    def new_life(self) -> None:
        """A new process on a machine that stayed up (kill -9 of keel alone)."""
        self.effects.done.clear()
        self.effects.crash_at = self.effects.crash_on = self.effects.crashed_before = None

    def dies(self, run: Callable[[], object]) -> bool:
        """Run until the planned crash; whether it came. The process is dead then, not the machine:
        follow with `new_life`, or with `power_off` and `power_on`."""
        try:
            run()
        except Crash:
            return True
        return False


class NodeOverlay(EtcdUnit):
    """The real one on a node's fakes; only the address is looked for on its fake interfaces."""

    def __init__(self, node: FakeNode) -> None:
        super().__init__(
            node.paths,
            files=node.files,
            units=node.units,
            proc=node.proc,
            before_birth=_nothing,
        )
        self._node = node

    def installed(self) -> bool:
        return self._node.overlay_etcd_installed

    def address_usable(self, address: IPv6Address) -> bool:
        devices = self._node.wireguard.devices.values()
        return any(device.address == address for device in devices)


def _deaf(path: str, source: IPv6Address, body: bytes) -> tuple[int, bytes]:
    raise AssertionError(f"no handler for {path} from {source} ({len(body)} bytes)")


def _no_etcd(address: IPv6Address) -> EtcdApi:
    raise EtcdError(14, f"no etcd at {address}")


def _nothing() -> None:
    """What comes before a birth here."""
