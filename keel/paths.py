"""Every path that keel uses, as a property of one object made from one root (design section 3)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from keel.types import InviteId, MeshId


@dataclass(frozen=True)  # no slots: each path is made once, and joining is slow
class Paths:
    """All paths below `root`, which is / on an appliance and a scratch directory in tests."""

    root: Path = Path("/")

    @cached_property
    def spec(self) -> Path:
        return self.root / "etc/keel/spec.yaml"

    @cached_property
    def capability_marker(self) -> Path:
        """Shipped by keel-overlay-etcd: this appliance carries the etcd overlay (E1)."""
        return self.root / "usr/share/keel/overlays/etcd"

    # the mesh's state, 0700

    @cached_property
    def mesh(self) -> Path:
        return self.root / "var/lib/keel/mesh"

    @cached_property
    def signing_key(self) -> Path:
        return self.mesh / "signing.key"

    @cached_property
    def wireguard_key(self) -> Path:
        return self.mesh / "wireguard.key"

    @cached_property
    def genesis(self) -> Path:
        """The genesis envelope; its presence says that this node is in a mesh."""
        return self.mesh / "genesis"

    @cached_property
    def roster(self) -> Path:
        """A directory with one envelope a file, named by the record's hash."""
        return self.mesh / "roster"

    @cached_property
    def trust(self) -> Path:
        return self.mesh / "trust.json"

    @cached_property
    def invites(self) -> Path:
        return self.mesh / "invites"

    def invite(self, invite: InviteId) -> Path:
        return self.invites / f"{invite}.json"

    @cached_property
    def pending_joins(self) -> Path:
        return self.mesh / "pending-join"

    def pending_join(self, mesh: MeshId) -> Path:
        return self.pending_joins / mesh

    def pending_etcd_key(self, mesh: MeshId) -> Path:
        """The key of the certificate request that a join carries."""
        return self.pending_join(mesh) / "etcd.key"

    def pending_etcd_root(self, mesh: MeshId) -> Path:
        """The fingerprint of the etcd root that the token names."""
        return self.pending_join(mesh) / "etcd.root"

    @cached_property
    def nonces(self) -> Path:
        return self.mesh / "nonces"

    @cached_property
    def window(self) -> Path:
        return self.mesh / "window.json"

    @cached_property
    def settings(self) -> Path:
        """The network settings in force: the spec's, once they were applied."""
        return self.mesh / "network.json"

    @cached_property
    def channels(self) -> Path:
        """The monitor's channels by the last spec that could be read."""
        return self.mesh / "channels.json"

    @cached_property
    def clock(self) -> Path:
        """The highest time that this node has seen (keel.mesh.clocks)."""
        return self.mesh / "clock.json"

    @cached_property
    def left(self) -> Path:
        """Where `keel mesh leave` moves a former mesh's keys and state; never deleted by keel."""
        return self.root / "var/lib/keel/left"

    # etcd's state, 0700

    @cached_property
    def etcd(self) -> Path:
        return self.root / "var/lib/keel/etcd"

    def intermediate(self, number: int) -> Path:
        return self.etcd / "intermediate" / str(number)

    def leaf(self, number: int) -> Path:
        return self.etcd / "leaf" / str(number)

    def member_credential(self, number: int) -> Path:
        """What etcd itself presents: leaf, chain and key in one PEM."""
        return self.leaf(number) / "member.pem"

    def client_credential(self, number: int) -> Path:
        """What keel presents to etcd, in the same form."""
        return self.leaf(number) / "client.pem"

    @cached_property
    def etcd_pinned(self) -> Path:
        """The fingerprint of the root that this node's first grant has to bring."""
        return self.etcd / "pinned"

    @cached_property
    def etcd_trust(self) -> Path:
        return self.etcd / "trust.pem"

    @cached_property
    def etcd_crl(self) -> Path:
        return self.etcd / "crl.der"

    @cached_property
    def etcd_record(self) -> Path:
        """The newest cluster record's envelope."""
        return self.etcd / "record"

    @cached_property
    def etcd_cluster(self) -> Path:
        return self.etcd / "cluster.json"

    @cached_property
    def lived(self) -> Path:
        return self.etcd / "lived"

    @cached_property
    def etcd_queue(self) -> Path:
        return self.etcd / "queue.json"

    @cached_property
    def etcd_failures(self) -> Path:
        return self.etcd / "failures.json"

    @property
    def forming(self) -> Path:
        """For whom this node is reserved while the cluster is formed by hand."""
        return self.etcd / "forming.json"

    @cached_property
    def alerts(self) -> Path:
        """What is open, and which channel was told of it."""
        return self.etcd / "alerts.json"

    # the holder's

    @cached_property
    def roots(self) -> Path:
        return self.etcd / "roots"

    def generation(self, number: int) -> Path:
        return self.roots / f"g{number}"

    @cached_property
    def grants(self) -> Path:
        return self.etcd / "grants.jsonl"

    @cached_property
    def holder_statement(self) -> Path:
        return self.etcd / "holder"

    @cached_property
    def reservation(self) -> Path:
        """The holder's open formation, and the request that reserved it."""
        return self.etcd / "formation.json"

    @property
    def growth(self) -> Path:
        """The holder's open admission of a learner, and the IDs that are gone for good."""
        return self.etcd / "growth.json"

    # what is laid for etcd, and etcd's own

    @cached_property
    def laid(self) -> Path:
        """Owner etcd, 0700, files 0600; empty before cluster.json exists."""
        return self.root / "etc/etcd/keel"

    @cached_property
    def etcd_data(self) -> Path:
        return self.root / "var/lib/keel-etcd/data"

    @cached_property
    def etcd_log(self) -> Path:
        """etcd's write-ahead log."""
        return self.etcd_data / "member/wal"

    @cached_property
    def etcd_marker(self) -> Path:
        """{formation, attempt} of the only birth that may use the data beside it."""
        return self.root / "var/lib/keel-etcd/marker.json"

    @cached_property
    def stray_data(self) -> Path:
        """Where Debian's etcd-server starts a member by itself on installation (E16)."""
        return self.root / "var/lib/etcd/default"

    @cached_property
    def stray_marker(self) -> Path:
        """Written by keel-overlay-etcd over an empty stray member only."""
        return self.root / "var/lib/keel-etcd/stray.json"

    @cached_property
    def etcd_drop_in(self) -> Path:
        return self.root / "etc/systemd/system/etcd.service.d/50-keel.conf"

    @cached_property
    def etcd_condition(self) -> Path:
        """keel-overlay-etcd's own drop-in of etcd.service; an upgrade may change it."""
        return self.root / "usr/lib/systemd/system/etcd.service.d/10-keel.conf"

    @cached_property
    def channel_drop_in(self) -> Path:
        return self.root / "etc/systemd/system/keel-channel.socket.d/50-address.conf"

    # volatile

    @cached_property
    def run(self) -> Path:
        return self.root / "run/keel"

    @cached_property
    def lock(self) -> Path:
        return self.run / "lock"

    @cached_property
    def passes_socket(self) -> Path:
        """Where the channel's process has passes run (keel.mesh.passmsg)."""
        return self.run / "passes.sock"

    @cached_property
    def tend_lock(self) -> Path:
        return self.run / "tend.lock"

    @cached_property
    def join_lock(self) -> Path:
        return self.run / "join.lock"

    @cached_property
    def etcd_loaded(self) -> Path:
        return self.run / "etcd-loaded.json"

    @cached_property
    def etcd_permit(self) -> Path:
        """What whoever starts etcd for a birth leaves for its guard (keel.mesh.etcdpermit)."""
        return self.run / "etcd-permit.json"

    @cached_property
    def liveness(self) -> Path:
        """The last samples of what the peers sent (keel.mesh.liveness)."""
        return self.run / "liveness.json"

    @cached_property
    def clocks(self) -> Path:
        """What the members' clocks said at the last sync (keel.mesh.clocks)."""
        return self.run / "clocks.json"

    @cached_property
    def behind(self) -> Path:
        """There while this node was away and has not heard the others' records since."""
        return self.run / "behind"

    @cached_property
    def tended(self) -> Path:
        """When a pass of the tend last ended, in this boot (keel.mesh.tended)."""
        return self.run / "tended.json"

    @cached_property
    def looked(self) -> Path:
        """When the tend last looked for alerts, in monotonic seconds."""
        return self.run / "looked"

    @cached_property
    def textfile(self) -> Path:
        """What Prometheus' node exporter reads; only where it is installed."""
        return self.root / "var/lib/prometheus/node-exporter/keel.prom"

    @cached_property
    def boot_id(self) -> Path:
        """The kernel's name for this boot."""
        return self.root / "proc/sys/kernel/random/boot_id"

    @cached_property
    def holder_restored(self) -> Path:
        """This holder's disk was put back: nothing is signed while this is there."""
        return self.etcd / "restored.json"

    @cached_property
    def holder_compared(self) -> Path:
        """In this boot most members were asked whether they know more than the holder."""
        return self.run / "holder-compared"

    @cached_property
    def doubted(self) -> Path:
        """Who claimed to hold more of the holder's than it could show, in this boot."""
        return self.run / "doubted.json"

    @cached_property
    def expelled(self) -> Path:
        """The removed keys of which etcd's list was seen to be free in this boot."""
        return self.run / "expelled.json"

    @cached_property
    def lived_counted(self) -> Path:
        """When this boot last counted `lived`, in monotonic seconds, and which start of etcd."""
        return self.run / "lived-counted"
