"""The link for kernels without netem: one process that carries packets between one TUN interface
per appliance.

The process runs in the lab's namespaces and is told what to do over a socket: one JSON object per
connection, one back.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import fcntl
import ipaddress
import json
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from netns.link import Counters, Pair, Shaper
from netns.process import SHORT_PATIENCE_SECONDS
from netns.topology import INTERFACE, Name, Node, Quality

CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
IFF_TUN_NO_PI = 0x1001
BATCH = 64  # packets read from one interface before the others have their turn
REQUEST_BYTES = 1 << 20


class UserspaceLink:
    """The other end of the process's socket: a Link."""

    name = "userspace"

    def __init__(self, control: Path) -> None:
        self._control = control

    def attach(self, member: Node) -> None:
        self._ask(do="attach", name=member.name, addresses=member.addresses)

    def detach(self, member: Node) -> None:
        self._ask(do="detach", name=member.name)

    def shape(self, qualities: Mapping[Pair, Quality]) -> None:
        self._ask(
            do="shape", qualities=[[*pair, dataclasses.asdict(q)] for pair, q in qualities.items()]
        )

    def counters(self) -> dict[Pair, Counters]:
        return {(Name(a), Name(b)): Counters(**counts) for a, b, counts in self._ask(do="counters")}

    def _ask(self, **request: object) -> Any:
        with socket.socket(socket.AF_UNIX) as channel:
            channel.settimeout(SHORT_PATIENCE_SECONDS)
            channel.connect(str(self._control))
            channel.sendall(json.dumps(request).encode() + b"\n")
            answer = json.loads(channel.makefile("rb").readline())
        if "error" in answer:
            raise OSError(f"link: {answer['error']}")
        return answer["result"]


def destination(packet: bytes) -> bytes:
    """The destination address of an IP packet; empty for anything else."""
    version = packet[0] >> 4 if packet else 0
    if version == 4 and len(packet) >= 20:
        return packet[16:20]
    if version == 6 and len(packet) >= 40:
        return packet[24:40]
    return b""


def open_tun(namespace: Path) -> int:
    """A non-blocking descriptor of a TUN interface in that network namespace; it goes when this is
    closed.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/proc/self/ns/net").open("rb") as home, namespace.open("rb") as there:
        _setns(libc, there.fileno())
        try:
            tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", INTERFACE.encode(), IFF_TUN_NO_PI))
        finally:
            _setns(libc, home.fileno())
    return tun


class Carrier:
    """The process's state and loop."""

    def __init__(self, control: Path, namespaces: Path, seed: int) -> None:
        self._namespaces = namespaces
        self._shaper = Shaper(seed)
        self._tuns: dict[Name, int] = {}
        self._owners: dict[int, Name] = {}
        self._routes: dict[bytes, Name] = {}
        self._poll = select.poll()
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(control))
        self._server.listen()
        self._poll.register(self._server, select.POLLIN)

    def run(self) -> None:
        """Carry packets for ever."""
        while True:
            wait = self._shaper.wait_seconds(time.monotonic())
            for descriptor, _ in self._poll.poll(None if wait is None else wait * 1000):
                if descriptor == self._server.fileno():
                    self._serve()
                elif descriptor in self._owners:
                    self._read(descriptor)
            for target, packet in self._shaper.due(time.monotonic()):
                if target in self._tuns:
                    # An interface that is down, or full, loses packets; that is its own affair.
                    with contextlib.suppress(OSError):
                        os.write(self._tuns[target], packet)

    def _read(self, descriptor: int) -> None:
        source = self._owners[descriptor]
        now = time.monotonic()
        for _ in range(BATCH):
            try:
                packet = os.read(descriptor, 65536)
            except OSError:  # nothing more for now, or the interface is down
                return
            target = self._routes.get(destination(packet))
            if target is not None:  # the rest is multicast, which nobody here listens to
                self._shaper.offer((source, target), packet, now)

    def _serve(self) -> None:
        channel, _ = self._server.accept()
        with channel:
            channel.settimeout(SHORT_PATIENCE_SECONDS)
            try:
                request = json.loads(channel.makefile("rb").readline(REQUEST_BYTES))
                answer: dict[str, object] = {"result": self._do(request)}
            except (OSError, ValueError, KeyError, subprocess.CalledProcessError) as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            with contextlib.suppress(OSError):
                channel.sendall(json.dumps(answer).encode() + b"\n")

    def _do(self, request: dict[str, Any]) -> object:
        match request["do"]:
            case "attach":
                self._attach(Name(request["name"]), request["addresses"])
            case "detach":
                self._detach(Name(request["name"]))
            case "shape":
                for source, target, quality in request["qualities"]:
                    self._shaper.shape((source, target), Quality(**quality))
            case "counters":
                return [[*pair, dataclasses.asdict(c)] for pair, c in self._shaper.counters.items()]
            case other:
                raise ValueError(f"unknown request {other}")
        return None

    def _attach(self, name: Name, addresses: list[str]) -> None:
        self._detach(name)
        tun = open_tun(self._namespaces / name)
        commands = [
            f"address add {address} dev {INTERFACE} nodad"
            for address in addresses
            if ":" in address
        ]
        commands += [
            f"address add {address} dev {INTERFACE}" for address in addresses if ":" not in address
        ]
        commands += [f"link set {INTERFACE} up", "link set lo up"]
        batch = "\n".join(commands) + "\n"
        subprocess.run(["ip", "-n", name, "-batch", "-"], input=batch, text=True, check=True)
        self._tuns[name] = tun
        self._owners[tun] = name
        self._routes |= {ipaddress.ip_interface(address).ip.packed: name for address in addresses}
        self._poll.register(tun, select.POLLIN)

    def _detach(self, name: Name) -> None:
        self._routes = {address: owner for address, owner in self._routes.items() if owner != name}
        tun = self._tuns.pop(name, None)
        if tun is not None:
            self._poll.unregister(tun)
            del self._owners[tun]
            os.close(tun)


def _setns(libc: ctypes.CDLL, descriptor: int) -> None:
    if libc.setns(descriptor, CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {os.strerror(number)}")


def hurry() -> None:
    """Before everybody else: a link that waits for a processor is not the link that was asked for.
    Where that is forbidden the measurement before a scenario says what comes of it."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


if __name__ == "__main__":
    hurry()
    Carrier(Path(sys.argv[1]), Path("/run/netns"), int(sys.argv[2])).run()
