"""Whole nodes in one process: the flows of keel on fake machines, joined by a fake net."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from ipaddress import IPv6Address
from pathlib import Path

from keel.errors import EtcdError, KeelError, SpecError
from keel.mesh import (
    admit,
    alerting,
    create,
    etcd,
    etcdform,
    etcdlived,
    etcdstart,
    etcdstore,
    etcdtend,
    join,
    leave,
    netsettings,
    netwindow,
    network,
    receive,
    remove,
    roster,
    store,
    sync,
    trustflow,
    window,
)
from keel.mesh.admit import MadeInvite
from keel.mesh.duty import Duty
from keel.mesh.etcdmsg import ClusterRecord
from keel.mesh.etcdstate import Stage
from keel.mesh.expulsion import Consent
from keel.mesh.join import Joined
from keel.mesh.leave import Left
from keel.mesh.removal import Mode
from keel.mesh.remove import Removed
from keel.mesh.store import Node
from keel.mesh.token import Token, parse_token
from keel.mesh.window import Means, Removing, Window
from keel.outcome import Done, Incomplete, Plan
from keel.paths import Paths
from keel.ports import Host
from keel.spec import specfile
from keel.spec.model import Overlay, Spec
from keel.spec.parse import parse_spec, set_etcd_overlay
from keel.types import Nonce
from keel.unitnames import (
    ALERT_UNIT,
    CHANNEL_SOCKET,
    MESH_UNIT,
    SYNC_TIMER,
    SYNC_UNIT,
    TEND_TIMER,
    TEND_UNIT,
)
from tests.fakes import fence
from tests.fakes.effects import Crash
from tests.fakes.etcd import UNIT as ETCD_UNIT
from tests.fakes.etcd import FakeEtcd
from tests.fakes.host import FakeNode
from tests.fakes.net import FakeNet
from tests.flow.arranged import begun

SPEC = """\
installation: {{mode: {mode}}}
node: {{name: {name}}}
network:
  wireguard: {{interface: keel0, port: 51820}}
overlays: {{etcd: disabled}}
"""


@functools.cache
def _parse(raw: bytes) -> Spec:
    """Reading YAML is slow, and the same every time; so is writing it."""
    return parse_spec(raw, file=Paths().spec)


@functools.cache
def _with_etcd(raw: bytes) -> bytes:
    return set_etcd_overlay(raw, Overlay.ENABLED)


@dataclass(frozen=True)
class Asks:
    """keel.mesh.etcdstart.Questions on the fake overlay."""

    host: Host

    def leaders(self, members: Sequence[IPv6Address]) -> tuple[IPv6Address, ...]:
        return tuple(one for one in members if self._saw_leader(one))

    def awaits(
        self, leaders: Sequence[IPv6Address], record: ClusterRecord, me: IPv6Address
    ) -> bool:
        return etcdstart.awaits(self.host.etcd_at, leaders, record, me)

    def served(self, record: ClusterRecord, me: IPv6Address) -> bool:
        return etcdstart.served(self.host.etcd_at, record, me)

    def removed(self) -> bool:
        return etcdlived.removed(self.host)

    def highest_lived(self) -> int | None:
        return etcdlived.highest_lived(self.host)

    def _saw_leader(self, address: IPv6Address) -> bool:
        try:
            return self.host.etcd_at(address).had_leader(timeout_seconds=6.0)
        except EtcdError:
            return False


class World:
    """A net, its etcds, and the operator's commands on each node by the node's name."""

    def __init__(self, scratch: Path) -> None:
        self.net = FakeNet(scratch)
        self.etcd = FakeEtcd(self.net)
        self.kicks: list[Callable[[], object]] = []
        """What non-blocking starts of sync and tend will do, once `settle` lets them."""
        self._doors: dict[str, receive.Doors] = {}
        """Each node's channel, as one process."""
        self.tokens: dict[str, Token] = {}
        """What operators carry to the nodes named here."""
        self.refused: list[tuple[str, KeelError]] = []
        """What guards and boots said no to, by node."""

    def node(
        self, name: str, *, mode: str = "cloud_advanced", behind_nat: bool = False
    ) -> FakeNode:
        """A machine with the packages installed and its spec written."""
        if name in self.net.nodes:
            return self.net.nodes[name]
        node = self.net.node(name, behind_nat=behind_nat)
        node.paths.spec.parent.mkdir(parents=True, exist_ok=True)
        node.paths.spec.write_text(SPEC.format(mode=mode, name=name))
        node.handler = partial(self._receive, node)
        node.units.on_start[SYNC_UNIT] = partial(self._kick, node, self._quiet_sync)
        node.units.on_start[netwindow.UNDO_UNIT] = partial(self._run, node, self._quiet_undo)
        node.units.on_start[TEND_UNIT] = partial(self._kick, node, self._quiet_tend)
        node.units.on_start[ALERT_UNIT] = partial(self._kick, node, self._alert)
        if mode == "cloud_advanced":
            self.etcd.install(node)
            self.etcd.guards[name] = partial(self._guard, node)
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
        return self.joined(name, token, discard=discard).value

    def joined(self, name: str, token: Token, *, discard: bool = False) -> Done[Joined]:
        """The same, with what it changed."""
        host = self.host(name)
        done = join.join(
            host,
            self.spec(name),
            token,
            ask_etcd=lambda identity: etcd.enrolment(host, self.spec(name), token, identity),
            prepare=lambda node, part: etcd.before_confirmation(
                host, lambda: self.spec(name), self.enable_spec, node, part
            ),
            discard=discard,
        )
        etcd.after_join(host, lambda: self.spec(name), self.enable_spec, done.value)
        return done

    @begun
    def mesh(self, names: str, *, spare: str = "", mode: str = "cloud_advanced") -> None:
        """These nodes as one mesh; the first founds it and invites the others. The spare ones have
        no token yet."""
        for name in names + spare:
            self.node(name, mode=mode)
        self.create(names[0])
        for name in names[1:]:
            self.join(name, self.invite(names[0]))
            self.settle()

    @begun
    def cluster(self, names: str, *, spare: str = "") -> None:
        """These nodes as one mesh with the first as its holder, until they serve one cluster."""
        self.mesh(names, spare=spare)
        self.rest(*names)

    def tends(self, names: str, *, rounds: int = 6) -> None:
        """So many passes of the tend on each, as the fast timer makes them."""
        for _ in range(rounds):
            for name in names:
                self.tend(name)
            self.settle()
            self.net.clock.sleep(5)

    def sync(self, name: str) -> object:
        return sync.sync(self.host(name), self.held(name))

    def trust(self, name: str, whom: str) -> None:
        trustflow.add_root(self.host(name), self.spec(name), whom)

    def leave(self, name: str) -> Left:
        return leave.leave(self.host(name), self.spec(name)).value

    def remove(
        self,
        name: str,
        whom: str,
        mode: Mode = Mode.PLAIN,
        *,
        typed: str | None = None,
        consent: Consent | None = None,
    ) -> Done[Removed] | Incomplete[Window]:
        return remove.remove(
            self.host(name), self.spec(name), whom, mode, typed=typed, consent=consent
        )

    def open_window(self, name: str, whom: str) -> None:
        """A change to the network waits for its word on the node: it removes `whom`."""
        host, subject = self.host(name), self.loaded(whom)
        armed = window.arm(
            Removing(subject=subject.key, name=whom, address=subject.address, means=Means.REMOVAL),
            id=Nonce("0" * 32),
            now=host.clock.now(),
            witnesses=(),
            sessions=(),
            prefix=subject.prefix,
        )
        store.save_window(host, armed)

    def confirm(self, name: str) -> Done[Removed | None]:
        return network.confirm(self.host(name), self.held(name))

    def undo(self, name: str) -> Done[None]:
        return network.undo(self.host(name), self.held(name))

    def tend(self, name: str) -> tuple[Duty, ...]:
        duties = etcdtend.tend(self.host(name), lambda: self.spec(name), self.enable_spec)
        bugs = [duty.text for duty in duties if duty.text.startswith("a bug in keel")]
        assert not bugs, bugs
        return duties

    def form(self, name: str, *without: str) -> Done[Plan] | Incomplete[Plan]:
        return etcdform.form(
            self.host(name), lambda: self.spec(name), self.enable_spec, without=without
        )

    def plan_form(self, name: str, *without: str) -> Plan:
        found = etcdform.preview(self.host(name), self.spec(name), without=without)
        if found.refusal is not None:
            raise found.refusal
        assert found.plan is not None
        return found.plan

    def make_capable(self, name: str) -> None:
        """The operator installs keel-overlay-etcd and sets the mode."""
        node = self.net.nodes[name]
        node.paths.spec.write_text(SPEC.format(mode="cloud_advanced", name=name))
        self.etcd.install(node)
        self.etcd.guards[name] = partial(self._guard, node)

    # the world

    def scratch(self) -> Path:
        return self.net.scratch

    def begins(self) -> tuple[object, ...]:
        """As tests.flow.arranged.begun wants it."""
        return () if self.net.nodes else (self, self.net, self.net.clock, self.etcd)

    def boot(self, name: str) -> None:
        """The machine starts again: what is enabled runs, and the timers' first pass is due."""
        node = self.net.nodes[name]
        node.power_on()
        self._doors.pop(name, None)  # what the channel's process of the last boot remembered
        enabled = node.units.enabled()
        if MESH_UNIT in enabled:
            try:
                self.up(name)
            except KeelError as error:
                self.refused.append((name, error))
        for unit in (CHANNEL_SOCKET, ETCD_UNIT):
            if unit in enabled:
                node.units.start_without_effect(unit)
        for timer, run in ((SYNC_TIMER, self._quiet_sync), (TEND_TIMER, self._quiet_tend)):
            if timer in enabled:
                self._kick(node, run)

    def up(self, name: str) -> None:
        """`keel mesh up`."""
        network.raise_all(self.host(name), self.held(name))

    def timers(self, *names: str, seconds: float = 60.0) -> None:
        """One pass of both timers on these nodes (all when none is named), then time passes."""
        for name in names or self.net.nodes:
            node = self.net.nodes[name]
            self._run(node, self._quiet_sync)
            self._run(node, self._quiet_tend)
        self.settle()
        self.net.clock.sleep(seconds)

    def rest(self, *names: str, rounds: int = 10) -> None:
        """Timers run until these capable nodes serve one cluster and hold one roster."""
        for _ in range(rounds):
            if self.formed(names) and self.agree(names):
                return
            self.timers(*names, seconds=7.0)

    def formed(self, names: Iterable[str]) -> bool:
        return all(
            etcdstore.load_cluster(self.host(name)).stage is Stage.FORMED for name in names
        ) and all(
            name in self.etcd.processes and self.etcd.led(self.etcd.processes[name])
            for name in names
        )

    def agree(self, names: Iterable[str]) -> bool:
        """Whether these nodes are in a mesh and hold the same records."""
        found = [store.load(self.host(name)) for name in names]
        return None not in found and len({roster.digest(n.roster) for n in found if n}) == 1

    def peers(self, name: str) -> set[IPv6Address]:
        """Whom the node's interface lets in."""
        return {
            peer.wanted.allowed
            for device in self.net.nodes[name].wireguard.devices.values()
            for peer in device.peers.values()
        }

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
        """What holds on the node; `wanted` is what its operator wrote."""
        return netsettings.in_force(self.host(name), self.held(name))

    def held(self, name: str) -> Spec:
        """As `keel.spec.specfile.held`, with a spec that was parsed before."""
        try:
            return self.wanted(name)
        except SpecError as error:
            return specfile.remembered(self.host(name), error)

    def wanted(self, name: str) -> Spec:
        path = self.net.nodes[name].paths.spec
        if path.is_symlink() or not path.is_file():
            return specfile.wanted(self.host(name))
        spec = _parse(path.read_bytes())
        return spec if spec.installation.stated else specfile.wanted(self.host(name))

    def loaded(self, name: str) -> Node:
        return store.require(self.host(name))

    @staticmethod
    def enable_spec(host: Host) -> None:
        raw = host.files.read(host.paths.spec) or b""
        host.files.write(host.paths.spec, _with_etcd(raw), mode=0o640)

    def _receive(
        self, node: FakeNode, path: str, source: IPv6Address, body: bytes
    ) -> tuple[int, bytes]:
        doors = self._doors.setdefault(node.name, etcd.doors())
        host = fence.narrowed(node)
        return receive.receive(host, self.spec(node.name), doors, path, source, body)

    def __getstate__(self) -> dict[str, object]:
        """What a channel's process only remembers is not kept."""
        return {**self.__dict__, "_doors": {}}

    def _kick(self, node: FakeNode, run: Callable[[FakeNode], object]) -> None:
        self.kicks.append(partial(self._run, node, run))

    def _run(self, node: FakeNode, run: Callable[[FakeNode], object]) -> None:
        """A unit's process; it may die where a test wants it."""
        if not node.alive or node.effects.dead:
            return
        try:
            run(node)
        except Crash:
            return

    def _quiet_sync(self, node: FakeNode) -> None:
        try:
            if store.load(node.host) is not None:
                sync.sync(node.host, self.held(node.name))
        except KeelError as error:
            self.refused.append((node.name, error))

    def _quiet_undo(self, node: FakeNode) -> None:
        try:
            self.undo(node.name)
        except KeelError as error:
            self.refused.append((node.name, error))

    def _quiet_tend(self, node: FakeNode) -> None:
        try:
            if store.load(node.host) is not None:
                self.tend(node.name)
        except KeelError as error:
            self.refused.append((node.name, error))

    def _alert(self, node: FakeNode) -> None:
        alerting.deliver(node.host, self.spec(node.name))

    def _guard(self, node: FakeNode) -> bool:
        """ExecStartPre. systemd may run it while keel's own process is dead; it dies with it."""
        if node.effects.dead:
            return False
        try:
            invocation = node.units.state(ETCD_UNIT).invocation_id
            etcdstart.guard(node.host, Asks(node.host), invocation=invocation, boot="1")
        except KeelError as error:
            self.refused.append((node.name, error))
            return False
        except Crash:
            node.units.unit(ETCD_UNIT).active = False
            node.units.unit(ETCD_UNIT).failed = True
            self.etcd.start_again(node)
            raise
        return True
