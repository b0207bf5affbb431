"""Debian 13's real etcd with keel's own certificates and settings, a network namespace a member.

The binary is $KEEL_ETCD, else the appliance image's. The test process goes into a namespace of its
own first, so that nothing of it is seen on this machine; needs root.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from ipaddress import IPv6Address
from pathlib import Path
from typing import TypeVar

from keel.errors import EtcdError
from keel.etcdport import EtcdMember
from keel.mesh.etcdcert import Authority
from keel.mesh.etcdclient import ClientFiles, GatewayClient
from keel.mesh.etcdconf import DATA_DIR, LAID_DIR, EtcdSettings, render_env
from keel.mesh.etcdcrl import Revoked, new_crl
from keel.mesh.etcdids import cluster_token
from keel.mesh.etcdmsg import RecordState
from keel.mesh.etcdpki import Credential, client_leaf, encode_credential, member_leaf
from keel.mesh.etcdtrust import encode_bundle
from keel.mesh.etcdwords import Cause, cause_of
from keel.types import LOCALHOST, FormationId
from netns import image
from netns.process import PATIENCE_SECONDS, SHORT_PATIENCE_SECONDS
from tests.pki import make as pki

T = TypeVar("T")

ELECTIONS = range(5)
"""Each try of what an election in between spoils."""

CLONE_NEWNET = 0x40000000
FORMATION = FormationId("0123456789abcdef")
TOKEN = cluster_token(pki.MESH, FORMATION)
PREFIX = "fd0a:1b2c:3d4e::"
HUB = IPv6Address(f"{PREFIX}ffff")
NOW = datetime.now(tz=UTC).replace(microsecond=0) - timedelta(minutes=1)
"""The one real clock here: the binary's own can't be set."""


def address(name: str) -> IPv6Address:
    return IPv6Address(f"{PREFIX}{ord(name):x}:1")


class RealClock:
    def now(self) -> datetime:
        return datetime.now(tz=UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def binary() -> Path:
    """etcd 3.5.16 of Debian 13."""
    given = os.environ.get("KEEL_ETCD")
    if given:
        return Path(given)
    return next(
        found for root in image.roots("appliance") if (found := root / "usr/bin/etcd").exists()
    )


def enter_own_network() -> None:
    """Leave this machine's network for good; a bridge stands ready for the members."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare: a network namespace needs root")
    for words in ("link set lo up", "link add hub type bridge", "link set hub up"):
        run("ip", *words.split())
    run("ip", "addr", "add", f"{HUB}/64", "dev", "hub", "nodad")


def run(*argv: str) -> str:
    done = subprocess.run(
        argv, check=True, capture_output=True, text=True, timeout=SHORT_PATIENCE_SECONDS
    )
    return done.stdout


@dataclass
class Member:
    """One etcd in a namespace of its own."""

    name: str
    scratch: Path
    root: Authority
    holder: subprocess.Popen[bytes]
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> IPv6Address:
        return address(self.name)

    @property
    def log(self) -> Path:
        return self.scratch / "log"

    @property
    def files(self) -> ClientFiles:
        return ClientFiles(
            client=self.scratch / "client.pem",
            member=self.scratch / "member.pem",
            trust=self.scratch / "trust.pem",
        )

    def inside(self, *argv: str) -> list[str]:
        return ["nsenter", "-t", str(self.holder.pid), "-n", "--", *argv]

    def start(self, members: str, state: RecordState = RecordState.NEW) -> None:
        """Start its etcd with keel's environment, paths aside."""
        env = render_env(
            EtcdSettings(
                address=self.address,
                members=tuple(address(each) for each in members),
                state=state,
                token=TOKEN,
            )
        ).decode()
        env = env.replace(LAID_DIR, str(self.scratch)).replace(DATA_DIR, str(self.scratch / "data"))
        pairs = dict(line.split("=", 1) for line in env.splitlines() if line and line[0] != "#")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.inside(str(binary())), env=pairs, stdout=log, stderr=log
            )

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(SHORT_PATIENCE_SECONDS)
            self.process = None

    def wipe(self) -> None:
        shutil.rmtree(self.scratch / "data")


class Patient(GatewayClient):
    """Who asks again what an election in between spoils, as it may on a busy machine at any time.
    Asked with a limit of its own it asks once: there the answer is what the test is about."""

    def put(self, key: bytes, value: bytes, *, timeout_seconds: float = 0.0) -> None:
        self._again(partial(super().put, key, value), timeout_seconds)

    def get(self, key: bytes, *, timeout_seconds: float = 0.0) -> bytes | None:
        return self._again(partial(super().get, key), timeout_seconds)

    def members(self, *, timeout_seconds: float = 0.0) -> tuple[EtcdMember, ...]:
        return self._again(super().members, timeout_seconds)

    @staticmethod
    def _again(ask: Callable[..., T], timeout_seconds: float) -> T:
        if timeout_seconds:
            return ask(timeout_seconds=timeout_seconds)
        for _ in ELECTIONS:
            try:
                return ask()
            except EtcdError as error:
                if cause_of(error) not in (Cause.NO_ANSWER, Cause.NO_LEADER):
                    raise
                time.sleep(1)
        return ask()


@dataclass
class Network:
    """The members of one test."""

    scratch: Path
    root: Authority
    members: dict[str, Member] = field(default_factory=dict)

    def member(self, name: str) -> Member:
        """A namespace with the member's /128, joined to the hub, and its laid files."""
        scratch = self.scratch / name
        scratch.mkdir()
        holder = subprocess.Popen(["unshare", "-n", "sleep", "infinity"])
        made = Member(name=name, scratch=scratch, root=self.root, holder=holder)
        self.members[name] = made
        until(lambda: os.readlink(f"/proc/{holder.pid}/ns/net") != os.readlink("/proc/self/ns/net"))
        link = f"to-{name}"
        run("ip", "link", "add", link, "type", "veth", "peer", "eth0", "netns", str(holder.pid))
        run("ip", "link", "set", link, "master", "hub", "up")
        for words in (
            "link set lo up",
            "link set eth0 up",
            f"addr add {made.address}/64 dev eth0 nodad",
        ):
            run(*made.inside("ip", *words.split()))
        lay(made, self.root)
        return made

    def client(self, at: str, *, of: str | None = None, local: bool = False) -> GatewayClient:
        """The gateway of a member, asked from the hub with a member's certificates."""
        where = LOCALHOST if local else address(at)
        return Patient(where, self.members[of or at].files, RealClock())

    def close(self) -> None:
        for member in self.members.values():
            member.kill()
            run("ip", "link", "del", f"to-{member.name}")  # the kernel would take its time
            member.holder.kill()
            member.holder.wait(SHORT_PATIENCE_SECONDS)


def credential(
    name: str, root: Authority, *, kind: str, of: IPv6Address | None = None
) -> Credential:
    under = pki.intermediate(root, address=of or address(name), now=NOW)
    key = pki.key(f"{kind} {name}")
    make = member_leaf if kind == "member" else client_leaf
    leaf = make(
        under, key=key, address=of or address(name), serial=pki.serial(f"{kind} {name}"), now=NOW
    )
    return Credential(leaf=leaf, chain=(under.certificate,), key=key)


def lay(member: Member, root: Authority, *revoked: Revoked, number: int = 1) -> None:
    for kind in ("member", "client"):
        data = encode_credential(credential(member.name, root, kind=kind))
        (member.scratch / f"{kind}.pem").write_bytes(data.reveal())
    (member.scratch / "trust.pem").write_bytes(encode_bundle([root.certificate]))
    (member.scratch / "crl.der").write_bytes(new_crl(root, revoked, number=number, now=NOW))


def until(holds: Callable[[], object], *, seconds: float = PATIENCE_SECONDS) -> None:
    """Poll until the callable answers true and raises no EtcdError."""
    end = time.monotonic() + seconds
    last: object = None
    while time.monotonic() < end:
        try:
            if holds():
                return
        except EtcdError as error:
            last = error
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds} s: {last}")


def panics(member: Member, by: GatewayClient, start: Callable[[], None]) -> bool:
    """Whether its etcd, started so, ends in a panic over a log that is shorter than it said.

    False when another one leads before that: only the leader that heard it remembers, and on a busy
    machine the others may elect anew at any time. Only then is it right to try again.
    """
    term = by.status().raft_term
    start()
    process = member.process
    assert process is not None
    until(lambda: process.poll() is not None or by.status().raft_term != term)
    return process.poll() == 2 and b"panic" in member.log.read_bytes()


def from_inside(member: Member, act: Callable[[], T]) -> T:
    """Run in the member's namespace (a thread has one of its own): peers look at the source."""
    libc = ctypes.CDLL(None, use_errno=True)

    def there() -> T:
        with open(f"/proc/{member.holder.pid}/ns/net") as namespace:
            if libc.setns(namespace.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
        return act()

    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(there).result()
