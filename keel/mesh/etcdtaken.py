"""What the holder gave this member: asks for its grant, takes grants and cluster records.

Owns what of it is on disk, and this member's word that it gives a formation up. What is believed is
keel.mesh.etcdcheck's.

Rules:
(M1) What is taken is on disk in the order trust, CRL, holder, certificate: an interrupted taking is
     done again from the start.
(M2) A record is on disk before the cluster's stage names it.
"""

from __future__ import annotations

from keel import codec
from keel.mesh import (
    etcdbeside,
    etcdcrl,
    etcdpki,
    etcdplan,
    etcdstate,
    etcdstore,
    etcdtrust,
    store,
    wire,
)
from keel.mesh.etcdcheck import (
    CheckedGrant,
    CheckedRecord,
    GrantContext,
    RecordContext,
    check_grant,
    check_record,
)
from keel.mesh.etcdholder import held_epoch, obeyed
from keel.mesh.etcdmsg import (
    KIND_ENROLMENT,
    KIND_GIVEN_UP,
    ClusterRecord,
    Enrolment,
    GivenUp,
    Grant,
)
from keel.mesh.etcdstate import Cluster, Stage, Wanted
from keel.mesh.identity import address_of
from keel.mesh.keys import SigningPair
from keel.mesh.passmsg import Ask
from keel.mesh.store import Node
from keel.ports import Host
from keel.types import FormationId, MeshId, Nonce, Secret, SigningKey


def enrolment(host: Host, mesh: MeshId, pair: SigningPair, key: Secret) -> bytes:
    """This node's request for an intermediate for `key`, signed by its own; the same key every
    time until it was granted."""
    address = address_of(mesh, pair.public)
    body = Enrolment(
        mesh=mesh,
        address=address,
        ed25519=pair.public,
        csr=etcdpki.new_request(key, address),
        nonce=Nonce(host.chance.bytes(16).hex()),
    )
    return wire.encode(wire.seal(KIND_ENROLMENT, body, pair))


def take_grant(host: Host, node: Node, grant: Grant, *, trusted: bool) -> CheckedGrant:
    """The grant on disk, once it is believed; Refused by etcdcheck's rules. Hold the lock."""
    pinned = etcdstore.load_pinned(host)
    number, key = etcdstore.request_key(host)
    request = etcdpki.check_request(etcdpki.new_request(key, node.address))
    held = frozenset(etcdtrust.fingerprints(etcdstore.load_roots(host)))
    checked = check_grant(
        grant,
        GrantContext(
            mesh=node.mesh,
            address=node.address,
            key=node.key,
            request_key=request.key,
            pinned=held or pinned,
            trusted=trusted,
            holder_epoch=held_epoch(host),
            holder=obeyed(host),
        ),
        host.clock.now(),
    )
    etcdstore.save_roots(host, checked.roots)
    held_crl = etcdstore.load_crl(host)
    if held_crl is None or etcdcrl.read_crl(held_crl, checked.roots).number < checked.crl_number:
        etcdstore.save_crl(host, grant.crl)
    etcdstore.save_holder(host, grant.holder)
    etcdstore.save_intermediate(host, number, checked.intermediate)
    return checked


def take_record(host: Host, node: Node, raw: bytes) -> CheckedRecord:
    """The record on disk and the stage `starting`, once it is believed; Refused by E10's rules.
    Hold the lock."""
    cluster = etcdstore.load_cluster(host)
    checked = check_record(
        raw,
        RecordContext(
            mesh=node.mesh,
            address=node.address,
            roots=etcdstore.load_roots(host),
            cluster=cluster,
            holder_epoch=held_epoch(host),
            holder=obeyed(host),
            window_open=store.window_is_open(host),
        ),
        host.clock.now(),
    )
    if checked.again:
        if etcdstore.load_record(host) != raw:  # an older copy was put back since
            etcdstore.save_record(host, raw)
        return checked
    marker, wished = etcdbeside.load_marker(host), wants_replacement(host, node.key)
    if cluster.stage is not Stage.FORMED and not wished and etcdplan.is_behind(cluster, marker):
        raise etcdplan.state_older()  # begun anew it would forget what its data has acknowledged
    if checked.holder.epoch > held_epoch(host):
        etcdstore.save_holder(host, checked.record.holder)
    etcdstore.save_record(host, raw)
    record = checked.record
    # a place that never served is given up by itself; one that did, by its operator's word only
    gives_up = cluster.stage is not Stage.FORMED or wished
    etcdstore.save_cluster(
        host,
        etcdstate.start(
            cluster,
            formation=record.formation,
            nonce=record.nonce,
            record=checked.record_hash,
            epoch=record.epoch,
            cluster_id=record.cluster_id,
            replaced=record.replaces if gives_up else None,
            marker=marker,
        ),
    )
    return checked


def wants_replacement(host: Host, key: SigningKey) -> bool:
    """Whether this node's operator asked for a new place in the cluster."""
    return etcdstate.entry_of(etcdstore.load_queue(host), Wanted.REPLACE, key) is not None


def give_up(host: Host, node: Node, formation: FormationId) -> bytes:
    """This node's signed word that it shall never start a formation whose leader it never saw, on
    disk before it is signed; Refused `formation-alive` when it saw one."""
    with store.locked(host, "the mesh"):
        cluster = etcdstore.load_cluster(host)
        if cluster.formation == formation:
            host.passes(Ask.HALT)
        etcdstore.save_cluster(host, etcdstate.give_up(cluster, formation))
    statement = GivenUp(
        mesh=node.mesh,
        formation=formation,
        ed25519=node.key,
        time=host.clock.now(),
        nonce=Nonce(host.chance.bytes(16).hex()),
    )
    return wire.encode(wire.seal(KIND_GIVEN_UP, statement, node.identity.signing))


def current_record(host: Host) -> ClusterRecord | None:
    """The newest record that was taken; it was believed then and may have expired since."""
    raw = etcdstore.load_record(host)
    if raw is None:
        return None
    return parse_record(raw)


def record_is_newest(host: Host, cluster: Cluster) -> bool:
    """Whether the record on disk is the one that cluster.json names, if it names one."""
    raw = etcdstore.load_record(host)
    if raw is None or cluster.record is None:
        return cluster.record is None
    return wire.record_hash(wire.decode(raw, max_bytes=len(raw))) == cluster.record


def parse_record(raw: bytes) -> ClusterRecord:
    """A record that was believed before, or that this node signed."""
    envelope = wire.decode(raw, max_bytes=etcdstore.MAX_CRL_BYTES)
    payload = envelope.payload
    return codec.again(ClusterRecord, payload, max_bytes=len(payload), strict=True)
