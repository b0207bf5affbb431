"""The composition root: the one place, with the services' entry points, that knows the adapters.

The channel's and the gateway's libraries cost more than most commands take, so they are loaded
when something is sent.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from typing import TextIO

from keel.etcdport import EtcdApi
from keel.paths import Paths
from keel.ports import ChannelOut, Clock, Files, Host, Meanwhile
from keel.system.alerts import Messengers
from keel.system.chance import SystemChance
from keel.system.clock import SystemClock
from keel.system.console import Colour, StderrConsole
from keel.system.etcd import EtcdUnit
from keel.system.firewall import Nftables
from keel.system.fs import DurableFiles
from keel.system.gauge import LinuxGauge
from keel.system.locks import Flocks
from keel.system.machine import LinuxMachine
from keel.system.metrics import Textfile
from keel.system.run import Programs
from keel.system.units import Systemd
from keel.system.wireguard import WireGuardTools


def compose(
    *, verbose: bool, stderr: TextIO, colour: Colour = "auto", paths: Paths | None = None
) -> Host:
    """The host that this process runs on."""
    if verbose:
        logging.basicConfig(level=logging.DEBUG, format="%(message)s", stream=stderr)
        logging.getLogger("urllib3").setLevel(logging.INFO)
    paths = paths or Paths()
    clock = SystemClock()
    files = DurableFiles()
    proc = Programs()
    units = Systemd(proc)
    console = StderrConsole(clock, stream=stderr, colour=colour)

    def permit() -> None:
        from keel.cli import judgement

        judgement.permit(host, judgement.Peers(host))

    def here(word: str) -> bytes:
        from keel.mesh import passes

        return passes.answer(host, word)

    host = Host(
        paths=paths,
        clock=clock,
        chance=SystemChance(),
        files=files,
        locks=Flocks(clock, console),
        proc=proc,
        wireguard=WireGuardTools(proc, units, clock),
        firewall=Nftables(proc),
        units=units,
        machine=LinuxMachine(proc),
        gauge=LinuxGauge(proc, clock),
        console=console,
        channel=LazyChannel(clock),
        etcd_at=Gateways(paths, files, clock),
        alerts=Messengers(proc),
        metrics=Textfile(paths, files),
        overlay=EtcdUnit(paths, files=files, units=units, proc=proc, before_birth=permit),
        passes=here,
    )
    return host


def load_the_rest() -> None:
    """What is loaded when it is needed: by a service that stays, while nobody waits for it."""
    importlib.import_module("keel.mesh.client")
    importlib.import_module("keel.mesh.etcdclient")
    importlib.import_module("ruamel.yaml")


@dataclass(slots=True)
class LazyChannel:
    """keel.ports.ChannelOut, which loads the real one at the first message."""

    clock: Clock
    _channel: ChannelOut | None = field(default=None, init=False)

    def post(
        self, address: IPv6Address, path: str, body: bytes, *, timeout_seconds: float
    ) -> bytes:
        return self._loaded().post(address, path, body, timeout_seconds=timeout_seconds)

    def post_all(
        self,
        requests: Mapping[IPv6Address, bytes],
        path: str,
        *,
        timeout_seconds: float,
        meanwhile: Meanwhile | None = None,
    ) -> Mapping[IPv6Address, bytes | Exception]:
        return self._loaded().post_all(
            requests, path, timeout_seconds=timeout_seconds, meanwhile=meanwhile
        )

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()

    def _loaded(self) -> ChannelOut:
        if self._channel is None:
            from keel.mesh.client import HttpChannel

            self._channel = HttpChannel(self.clock)
        return self._channel


@dataclass(frozen=True, slots=True)
class Gateways:
    """keel.etcdport.EtcdAt with the newest pair of leaves that is whole."""

    paths: Paths
    files: Files
    clock: Clock

    def __call__(self, address: IPv6Address) -> EtcdApi:
        from keel.mesh.etcdclient import ClientFiles, GatewayClient

        number = max((n for n in self._numbers() if self._whole(n)), default=0)
        credentials = ClientFiles(
            client=self.paths.client_credential(number),
            member=self.paths.member_credential(number),
            trust=self.paths.etcd_trust,
        )
        return GatewayClient(address, credentials, self.clock)

    def _numbers(self) -> list[int]:
        return [int(n) for n in self.files.names(self.paths.etcd / "leaf") if n.isdigit()]

    def _whole(self, number: int) -> bool:
        pair = (self.paths.client_credential(number), self.paths.member_credential(number))
        return all(self.files.exists(path) for path in pair)
