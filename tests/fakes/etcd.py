"""etcd 3.5.16 as far as keel can see it: births, learners, quorum, and what it does wrong.

A `FakeEtcd` is one world: the etcd of every node that was installed in it, joined by the FakeNet's
overlay. A node's etcd is its unit: started with what is laid for it (member.pem, etcd.env), with
its data in a real file below the node's root, so that moving, wiping and restoring that directory
mean what they mean. Modelled after etcd-facts: IDs from token and URLs; the state flag is ignored
over old data; wiped members that start `new` give birth to a second, empty cluster with the same
ID; one learner at a time; no add while a voter is unconnected; a dead learner that had caught up
is promoted all the same; a removed member ends with status 0; a change whose answer is lost.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from ipaddress import IPv6Address

from keel.errors import EtcdError
from keel.etcdport import EtcdMember, EtcdStatus
from keel.mesh.etcdcert import der
from keel.mesh.etcdpki import parse_credential
from keel.types import LOCALHOST, Secret
from tests.fakes.host import FakeNode
from tests.fakes.net import FakeNet

UNIT = "etcd.service"
RESTART_SECONDS = 5.0
HEALTHY_SECONDS = 5.0
CATCH_UP_SECONDS = 6.0

UNKNOWN = 2
DEADLINE_EXCEEDED = 4
NOT_FOUND = 5
FAILED_PRECONDITION = 9
UNAVAILABLE = 14
DATA_LOSS = 15

USERS_ENABLED = (
    "HTTP status 400: CommonName of client sending a request against gateway will be ignored and"
    " not used as expected"
)


@dataclass
class Member:
    """An entry of a cluster's member list."""

    id: int
    peer_url: str
    learner: bool = False
    name: str = ""
    client_urls: tuple[str, ...] = ()
    caught_up: bool = False

    def listed(self) -> EtcdMember:
        return EtcdMember(
            id=self.id,
            name=self.name,
            peer_urls=(self.peer_url,),
            client_urls=self.client_urls,
            learner=self.learner,
        )


@dataclass(eq=False)
class Cluster:
    """One birth. Two with the same `id` are what must never happen."""

    id: int
    serial: int
    members: dict[int, Member]
    formed: bool = False
    leader: int = 0
    term: int = 1
    data: dict[bytes, bytes] = field(default_factory=dict)
    index: int = 4
    alarms: set[int] = field(default_factory=set)
    """The IDs whose data was found corrupt; while there is one nobody writes."""

    def voters(self) -> list[Member]:
        return [member for member in self.members.values() if not member.learner]

    def quorum(self) -> int:
        return len(self.voters()) // 2 + 1


@dataclass(eq=False)
class Process:
    """A running etcd."""

    node: FakeNode
    address: IPv6Address
    cluster: Cluster
    member: int
    name: str
    started_at: float
    published: bool = False
    had_leader: bool = False
    """Kept in its data: the first leader writes the cluster's version into the log."""

    def keep(self) -> None:
        kept = {
            "serial": self.cluster.serial,
            "member": self.member,
            "had_leader": self.had_leader,
        }
        file = self.node.paths.etcd_data / "member/wal/0.wal"
        file.parent.mkdir(parents=True, exist_ok=True)
        for own in (self.node.paths.etcd_data.parent, self.node.paths.etcd_data):
            own.chmod(0o700)  # StateDirectoryMode=, and what etcd itself makes
            self.node.disk.owners[str(own.relative_to(self.node.root))] = "etcd"
        file.write_text(json.dumps(kept))


class FakeEtcd:
    """All etcds of one net."""

    def __init__(self, net: FakeNet) -> None:
        self.net = net
        self.clusters: list[Cluster] = []
        self.processes: dict[str, Process] = {}
        self.guards: dict[str, Callable[[], bool]] = {}
        """What ExecStartPre does on a node; False fails the start."""
        self.lost_answers: dict[str, int] = {}
        """How many of the next changes of a kind (`add_learner`, `promote`, `remove`, `put`) commit
        without their answer arriving."""
        self.lost_requests: dict[str, int] = {}
        """How many of the next changes of a kind never reach etcd; the caller hears the same."""
        self.catch_up_seconds = CATCH_UP_SECONDS
        """How long a new member takes until it has the data."""
        self.refusals: dict[str, int] = {}
        """How many of the next changes of a kind are refused as if a voter was not connected."""
        self.corrupt: set[str] = set()
        """Nodes whose etcd found its data corrupt; the status of each etcd says so."""
        self.full: set[str] = set()
        """Nodes whose etcd reached its quota, said alike."""
        self.shut: set[str] = set()
        """Nodes on which a firewall shuts 2380: raft gets neither in nor out."""
        self.undecided: set[str] = set()
        """Nodes to whose etcd the first leader's word has not come yet: the cluster's version."""
        self.users = False
        """Somebody enabled etcd's users."""
        self.log: list[str] = []
        self.stuck: dict[str, bytes] = {}
        """What the etcd of a node shows in a handshake (DER), whatever is laid for it."""

    def install(self, node: FakeNode) -> None:
        node.overlay_etcd_installed = True
        node.units.unit(UNIT).enabled = True  # as etcd-server's postinst leaves it
        node.units.on_start[UNIT] = partial(self._start, node)
        node.units.on_stop[UNIT] = partial(self._stop, node)
        node.etcd_at = partial(FakeGateway, self, node)

    def births(self) -> list[Cluster]:
        """The clusters that ever had a leader; more than one is a disaster."""
        return [cluster for cluster in self.clusters if cluster.formed]

    # starting and stopping

    def _start(self, node: FakeNode) -> bool | None:
        if not (node.paths.laid / "member.pem").exists():
            return None
        if not self.guards.get(node.name, lambda: True)():
            self.log.append(f"{node.name}: the guard refused")
            return self.start_again(node)
        env = _environment(node)
        process = self._resume(node, env) if self._saved(node) else self._begin(node, env)
        if process is None:
            return self.start_again(node)
        if process.member not in process.cluster.members:
            self.log.append(f"{node.name}: removed from the cluster, ends with status 0")
            return None
        self.processes[node.name] = process
        self.settle()
        return True

    def _stop(self, node: FakeNode) -> None:
        self.processes.pop(node.name, None)
        self.settle()

    def start_again(self, node: FakeNode) -> bool:
        """Restart=on-failure."""

        def retry() -> None:
            if node.alive and node.units.unit(UNIT).failed:
                node.units.unit(UNIT).failed = False
                node.units.start_without_effect(UNIT)

        self.net.clock.after(RESTART_SECONDS, retry)
        return False

    def _saved(self, node: FakeNode) -> bool:
        return (node.paths.etcd_data / "member/wal/0.wal").exists()

    def _resume(self, node: FakeNode, env: dict[str, str]) -> Process:
        saved = json.loads((node.paths.etcd_data / "member/wal/0.wal").read_text())
        cluster = next(each for each in self.clusters if each.serial == saved["serial"])
        process = self._process(node, env, cluster, saved["member"])
        process.had_leader = saved["had_leader"]
        return process

    def _begin(self, node: FakeNode, env: dict[str, str]) -> Process | None:
        urls = [entry.split("=", 1)[1] for entry in env["ETCD_INITIAL_CLUSTER"].split(",")]
        own = env["ETCD_INITIAL_ADVERTISE_PEER_URLS"]
        if env["ETCD_INITIAL_CLUSTER_STATE"] == "new":
            return self._birth(node, env, urls, own)
        return self._join(node, env, urls, own)

    def _birth(
        self, node: FakeNode, env: dict[str, str], urls: list[str], own: str
    ) -> Process | None:
        token = env["ETCD_INITIAL_CLUSTER_TOKEN"]
        ids = {url: _first_eight(url.encode() + token.encode()) for url in urls}
        number = _first_eight(b"".join(each.to_bytes(8, "big") for each in sorted(ids.values())))
        same = [each for each in self.clusters if each.id == number]
        cluster = next((each for each in same if not each.formed), None)
        for old in same:
            if old.formed and ids[own] in old.members and self._answers(node, old):
                cluster = old
        if cluster is None:
            names = dict(
                each.split("=", 1)[::-1] for each in env["ETCD_INITIAL_CLUSTER"].split(",")
            )
            members = {  # a birth's parties are listed with their names before they ever started
                ids[url]: Member(ids[url], url, name=names[url], caught_up=True) for url in urls
            }
            cluster = Cluster(number, len(self.clusters) + 1, members)
            self.clusters.append(cluster)
        return self._save(node, env, cluster, ids[own])

    def _join(
        self, node: FakeNode, env: dict[str, str], urls: list[str], own: str
    ) -> Process | None:
        for cluster in self.births():
            member = next((m for m in cluster.members.values() if m.peer_url == own), None)
            if member is None or not self._answers(node, cluster):
                continue
            if sorted(urls) != sorted(each.peer_url for each in cluster.members.values()):
                self.log.append(f"{node.name}: member count is unequal")
                return None
            if member.client_urls:
                self.log.append(f"{node.name}: panics, its data is gone")
                return None
            return self._save(node, env, cluster, member.id)
        self.log.append(f"{node.name}: could not get the cluster from its members")
        return None

    def _save(self, node: FakeNode, env: dict[str, str], cluster: Cluster, member: int) -> Process:
        process = self._process(node, env, cluster, member)
        process.keep()
        return process

    def _process(
        self, node: FakeNode, env: dict[str, str], cluster: Cluster, member: int
    ) -> Process:
        address = IPv6Address(env["ETCD_INITIAL_ADVERTISE_PEER_URLS"].split("[")[1].split("]")[0])
        now = self.net.clock.monotonic()
        return Process(node, address, cluster, member, env["ETCD_NAME"], now)

    # who sees whom

    def reaches(self, one: Process, other: Process) -> bool:
        """Whether raft gets from one to the other."""
        if {one.node.name, other.node.name} & self.shut:
            return one is other
        return one is other or self.net.connected(one.node, other.address)

    def _answers(self, node: FakeNode, cluster: Cluster) -> bool:
        return any(
            process.cluster is cluster and self.net.connected(node, process.address)
            for process in self.processes.values()
        )

    def settle(self) -> None:
        """Elect, publish, catch up and drop out, as far as the present connections go."""
        for cluster in self.clusters:
            running = [each for each in self.processes.values() if each.cluster is cluster]
            self._elect(cluster, running)
            for process in running:
                member = cluster.members.get(process.member)
                if member is None:
                    if any(self.reaches(process, each) for each in running if each is not process):
                        self._drop_out(process)
                elif self.led(process):
                    self._publish(process, member)

    def _elect(self, cluster: Cluster, running: list[Process]) -> None:
        voters = {member.id for member in cluster.voters()}
        candidates = [
            process.member
            for process in running
            if process.member in voters
            and len([e for e in running if e.member in voters and self.reaches(process, e)])
            >= cluster.quorum()
        ]
        if cluster.leader not in candidates:
            cluster.leader = min(candidates, default=0)
            if cluster.leader:
                cluster.term += 1
                cluster.formed = True

    def led(self, process: Process) -> bool:
        """Whether its cluster has a leader that it hears."""
        leader = next(
            (
                each
                for each in self.processes.values()
                if each.cluster is process.cluster and each.member == process.cluster.leader
            ),
            None,
        )
        return leader is not None and self.reaches(process, leader)

    def _publish(self, process: Process, member: Member) -> None:
        process.published = True
        if not process.had_leader and process.node.name not in self.undecided:
            process.had_leader = True
            process.keep()
        member.name = process.name
        member.client_urls = (f"https://[{process.address.compressed}]:2379",)
        if self.net.clock.monotonic() - process.started_at >= self.catch_up_seconds:
            member.caught_up = True

    def _drop_out(self, process: Process) -> None:
        self.processes.pop(process.node.name, None)
        process.node.units.unit(UNIT).active = False
        self.log.append(f"{process.node.name}: removed from the cluster, ends with status 0")

    def check(self) -> None:
        """etcd's own corruption check: whose data is found to be corrupt has an alarm, which every
        member tells and which stays until it is taken back."""
        for name in self.corrupt:
            process = self.processes.get(name)
            if process is not None:
                process.cluster.alarms.add(process.member)

    def healthy(self, seen_by: Process, member: Member) -> bool:
        """Connected to `seen_by` for five seconds."""
        for process in self.processes.values():
            if process.cluster is seen_by.cluster and process.member == member.id:
                since = max(process.started_at, self.net.healed_at)
                steady = self.net.clock.monotonic() - since >= HEALTHY_SECONDS
                return self.reaches(seen_by, process) and (steady or process is seen_by)
        return False


class FakeGateway:
    """keel.etcdport.EtcdApi at one address, asked from one node."""

    def __init__(self, world: FakeEtcd, caller: FakeNode, address: IPv6Address) -> None:
        self._world = world
        self._caller = caller
        self._address = address

    def status(self, *, timeout_seconds: float = 20.0) -> EtcdStatus:
        process = self._serving(timeout_seconds)
        cluster = process.cluster
        led = self._world.led(process)
        # one that was taken out and has not heard of it goes on as what it was
        member = cluster.members.get(process.member) or Member(process.member, "", caught_up=True)
        return EtcdStatus(
            member_id=process.member,
            cluster_id=cluster.id,
            leader=cluster.leader if led else 0,
            raft_term=cluster.term,
            raft_index=cluster.index,
            applied_index=cluster.index if member.caught_up else cluster.index // 2,
            learner=member.learner,
            db_size_bytes=20480,
            version="3.5.16",
            errors=self._errors(process, led=led),
        )

    def look(self, *, timeout_seconds: float = 20.0) -> EtcdStatus:
        status = self.status(timeout_seconds=timeout_seconds)
        if status.leader and not status.learner:
            try:
                members = self.members(timeout_seconds=timeout_seconds)
                return replace(status, members=members)
            except EtcdError:
                pass
        return status

    def _errors(self, process: Process, *, led: bool) -> tuple[str, ...]:
        found: tuple[str, ...] = () if led else ("etcdserver: no leader",)
        self._world.check()
        for one in sorted(self._world.processes.values(), key=lambda each: each.node.name):
            if one.cluster is process.cluster and one.node.name in self._world.full:
                found += (f"memberID:{one.member} alarm:NOSPACE ",)
        alarms = sorted(process.cluster.alarms)
        return (*found, *(f"memberID:{one} alarm:CORRUPT " for one in alarms))

    def members(self, *, timeout_seconds: float = 20.0) -> tuple[EtcdMember, ...]:
        process = self._led(timeout_seconds)
        return tuple(member.listed() for member in process.cluster.members.values())

    def listed(self, *, timeout_seconds: float = 20.0) -> tuple[EtcdMember, ...]:
        process = self._serving(timeout_seconds)
        known = dict(process.cluster.members)
        # one that was taken out and has not heard of it still has itself in its list
        url = f"https://[{process.address.compressed}]:2380"
        own = known.setdefault(process.member, Member(process.member, url, name=process.name))
        if own.learner:
            raise EtcdError(UNAVAILABLE, "etcdserver: rpc not supported for learner")
        return tuple(member.listed() for member in known.values())

    def add_learner(self, peer_url: str, *, timeout_seconds: float = 20.0) -> EtcdMember:
        with self._change("add_learner", peer_url, timeout_seconds) as process:
            cluster = process.cluster
            if any(member.peer_url == peer_url for member in cluster.members.values()):
                raise EtcdError(FAILED_PRECONDITION, "etcdserver: Peer URLs already exists")
            if any(member.learner for member in cluster.members.values()):
                raise EtcdError(
                    FAILED_PRECONDITION, "etcdserver: too many learner members in cluster"
                )
            if not all(self._world.healthy(process, each) for each in cluster.voters()):
                raise EtcdError(UNAVAILABLE, "etcdserver: unhealthy cluster")
            member = Member(
                _first_eight(f"{peer_url}{cluster.index}".encode()), peer_url, learner=True
            )
            cluster.members[member.id] = member
            added = member.listed()
        return added

    def promote(self, member_id: int, *, timeout_seconds: float = 20.0) -> None:
        with self._change("promote", f"{member_id:x}", timeout_seconds) as process:
            member = _member(process, member_id)
            if not member.learner:
                raise EtcdError(
                    FAILED_PRECONDITION, "etcdserver: can only promote a learner member"
                )
            if not member.caught_up:
                raise EtcdError(
                    FAILED_PRECONDITION,
                    "etcdserver: can only promote a learner member which is in sync with leader",
                )
            member.learner = False

    def remove(self, member_id: int, *, timeout_seconds: float = 20.0) -> None:
        with self._change("remove", f"{member_id:x}", timeout_seconds) as process:
            member = _member(process, member_id)
            voters = process.cluster.voters()
            connected = [each for each in voters if self._world.healthy(process, each)]
            enough = len(connected) - 1 >= 1 + (len(voters) - 1) // 2
            if not member.learner and member in connected and not enough:
                raise EtcdError(UNAVAILABLE, "etcdserver: unhealthy cluster")
            del process.cluster.members[member_id]

    def disarm(self, member_id: int, *, timeout_seconds: float = 20.0) -> None:
        with self._change("disarm", f"{member_id:x}", timeout_seconds) as process:
            process.cluster.alarms.discard(member_id)

    def put(self, key: bytes, value: bytes, *, timeout_seconds: float = 20.0) -> None:
        with self._change("put", key.decode("utf-8", "replace"), timeout_seconds) as process:
            self._world.check()
            if process.cluster.alarms:
                raise EtcdError(DATA_LOSS, "etcdserver: corrupt cluster")
            process.cluster.data[key] = value

    def get(self, key: bytes, *, timeout_seconds: float = 20.0) -> bytes | None:
        return self._led(timeout_seconds).cluster.data.get(key)

    def had_leader(self, *, timeout_seconds: float = 20.0) -> bool:
        return self._reached(timeout_seconds).had_leader

    def served(self, *, timeout_seconds: float = 20.0) -> tuple[bytes, bytes]:
        node = self._serving(timeout_seconds).node
        laid = parse_credential(Secret((node.paths.laid / "member.pem").read_bytes()))
        shown = self._world.stuck.get(node.name, der(laid.leaf))
        return shown, shown

    @contextmanager
    def _change(self, kind: str, what: str, timeout_seconds: float) -> Iterator[Process]:
        """Two effects, as with the channel: asked, and answered."""
        self._caller.effects.happen(f"etcd {kind} {what}")
        process = self._led(timeout_seconds)
        self._lose(self._world.lost_requests, kind, timeout_seconds)
        if self._world.refusals.get(kind, 0) > 0:
            self._world.refusals[kind] -= 1
            raise EtcdError(UNAVAILABLE, "etcdserver: unhealthy cluster")
        yield process
        process.cluster.index += 1
        self._world.settle()
        self._caller.effects.happen(f"etcd answer {kind} {what}")
        self._lose(self._world.lost_answers, kind, timeout_seconds)

    def _lose(self, lost: dict[str, int], kind: str, timeout_seconds: float) -> None:
        if lost.get(kind, 0) > 0:
            lost[kind] -= 1
            self._fail(DEADLINE_EXCEEDED, "context deadline exceeded", timeout_seconds)

    def _reached(self, timeout_seconds: float) -> Process:
        self._world.settle()
        for process in self._world.processes.values():
            mine = process.node is self._caller
            if mine and self._address in (LOCALHOST, process.address):
                return process
            if not mine and process.address == self._address:
                if self._world.net.connected(self._caller, self._address):
                    return process
                break
        here = self._address == LOCALHOST or self._world.net.connected(self._caller, self._address)
        self._fail(
            UNAVAILABLE, f"no etcd answers at {self._address}", 0 if here else timeout_seconds
        )
        raise AssertionError

    def _serving(self, timeout_seconds: float) -> Process:
        """Until its first leader nothing listens at the client port: refused at once."""
        process = self._reached(timeout_seconds)
        if not process.published:
            self._fail(UNAVAILABLE, f"no etcd answers at {self._address}", 0)
        if self._world.users:
            raise EtcdError(UNKNOWN, USERS_ENABLED)
        return process

    def _led(self, timeout_seconds: float) -> Process:
        process = self._serving(timeout_seconds)
        mine = process.cluster.members.get(process.member)
        if mine is not None and mine.learner:
            raise EtcdError(UNAVAILABLE, "etcdserver: rpc not supported for learner")
        if not self._world.led(process):
            self._fail(UNAVAILABLE, "etcdserver: request timed out", timeout_seconds)
        return process

    def _fail(self, code: int, message: str, timeout_seconds: float) -> None:
        self._world.net.clock.sleep(timeout_seconds)
        raise EtcdError(code, message)


def _member(process: Process, member_id: int) -> Member:
    found = process.cluster.members.get(member_id)
    if found is None:
        raise EtcdError(NOT_FOUND, "etcdserver: member not found")
    return found


def _environment(node: FakeNode) -> dict[str, str]:
    lines = (node.paths.laid / "etcd.env").read_text().splitlines()
    pairs = itertools.filterfalse(lambda line: line.startswith("#") or "=" not in line, lines)
    return dict(line.split("=", 1) for line in pairs)


def _first_eight(data: bytes) -> int:
    return int.from_bytes(hashlib.sha1(data).digest()[:8], "big")
