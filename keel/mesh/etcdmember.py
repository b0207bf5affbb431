"""A member's own etcd: asks for its grant, takes grants and records, and executes its Plan.

Owns the effects of each step. What is next is keel.mesh.etcdplan's, what is believed
keel.mesh.etcdcheck's.

Rules:
(M1) What is taken is on disk in the order trust, CRL, holder, certificate: an interrupted taking is
     done again from the start.
(M2) A record is on disk before the cluster's stage names it; files are laid from what is on disk.
(M3) One step, then look again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cryptography import x509

from keel import codec
from keel.errors import EtcdError, PkiRejected, Refused
from keel.mesh import (
    etcdbeside,
    etcdcert,
    etcdconf,
    etcdcrl,
    etcdpki,
    etcdplan,
    etcdprofile,
    etcdstate,
    etcdstore,
    etcdtrust,
    selfrecord,
    store,
    talk,
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
from keel.mesh.etcdconf import EtcdSettings
from keel.mesh.etcdholder import held_epoch, obeyed
from keel.mesh.etcdmsg import (
    KIND_ENROLMENT,
    KIND_GIVEN_UP,
    ClusterRecord,
    Enrolment,
    GivenUp,
    Grant,
    RecordState,
)
from keel.mesh.etcdplan import Action, MemberView, Running
from keel.mesh.etcdstate import Cluster, Stage, Wanted
from keel.mesh.etcdstore import Leaves
from keel.mesh.etcdwords import corrupt_members
from keel.mesh.growth import Word
from keel.mesh.identity import address_of
from keel.mesh.keys import SigningPair
from keel.mesh.passmsg import Ask
from keel.mesh.store import Node
from keel.outcome import Plan, Step
from keel.ports import EtcdStatus, Host
from keel.spec.model import Spec
from keel.types import (
    LOCALHOST,
    Capability,
    EtcdClusterId,
    EtcdMemberId,
    FormationId,
    MeshId,
    Nonce,
    Secret,
    SigningKey,
)

OWN_STATUS_SECONDS = 5.0
OWN_LOOK_SECONDS = 6.0
"""With the list, which takes two round trips; whoever is cut off never gets it."""
MAX_STEPS = 16
"""More than a whole birth takes; a Plan that does not end is a bug, not a loop."""

DONE: Mapping[Action, str] = {
    Action.REMOVE_STRAY: "removed the empty member that etcd-server had started by itself",
    Action.ISSUE_LEAF: "issued this node's certificates",
    Action.ENABLE_SPEC: "set overlays.etcd: enabled in the spec",
    Action.SET_DATA_ASIDE: "moved the data of an earlier birth aside",
    Action.WRITE_DROP_IN: "wrote keel's drop-in for etcd.service",
    Action.LAY_FILES: "laid certificates, CRL and settings under /etc/etcd/keel",
    Action.START_ETCD: "started etcd; it serves once most of the cluster's members run",
    Action.MARK_FORMED: "the cluster has a leader",
}
"""What a step has done, for whoever watches."""

EnableSpec = Callable[[Host], None]
"""Sets overlays.etcd to enabled in the operator's spec, comments kept."""


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
    disk before it is signed; Refused when it saw one."""
    leader = sees_leader(host)
    with store.locked(host, "the mesh"):
        cluster = etcdstore.load_cluster(host)
        if cluster.formation == formation and (leader or cluster.stage is Stage.FORMED):
            raise Refused(
                "formation-alive",
                "this node saw a leader of that formation",
                "look at `keel mesh etcd status`",
            )
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
    return codec.loads(ClusterRecord, envelope.payload, max_bytes=len(envelope.payload))


def observe(host: Host, spec: Spec, node: Node, running: Running | None) -> MemberView:
    """This node's own etcd as it is now, which just answered `running`; asks nobody else."""
    cluster = etcdstore.load_cluster(host)
    record = current_record(host)
    leaves, granted = etcdstore.load_leaves(host), etcdstore.load_intermediate(host)
    wanted = _files(host, node, cluster, record, leaves)
    state = host.units.state(etcdconf.UNIT)
    return MemberView(
        address=node.address,
        capable=selfrecord.own_capability(host, spec) is Capability.ETCD,
        confirmed=not host.files.exists(host.paths.pending_join(node.mesh)),
        window_open=store.window_is_open(host),
        clock_off=talk.clock_is_off(host),
        cluster=cluster,
        record=record,
        has_grant=granted is not None,
        has_leaf=leaves is not None
        and granted is not None
        and (
            leaves.member.chain[0] == granted[1].certificate
            or is_superseded(host, granted[1].certificate)  # the renewal sees to it
        ),
        spec_enabled=spec.etcd_enabled,
        stray=host.overlay.stray(),
        data=host.overlay.data_state(),
        marker=etcdbeside.read_marker(host),
        files_current=all(host.overlay.laid(name) == raw for name, raw in wanted.items()),
        drop_in_current=host.files.read(host.paths.etcd_drop_in)
        == etcdconf.render_drop_in(node.prefix),
        unit=etcdplan.Unit(
            active=state.active in ("active", "activating", "reloading"),
            enabled=state.enabled == "enabled",
            ours=is_laid(host),
        ),
        running=running,
        names={member.address: member.display for member in node.view.members},
    )


def plan(host: Host, spec: Spec, node: Node) -> Plan:
    """What this member's etcd needs next."""
    return plan_for(host, spec, node, own_status(host))


def plan_for(host: Host, spec: Spec, node: Node, status: EtcdStatus | None) -> Plan:
    """The same for what it just answered."""
    return etcdplan.decide(observe(host, spec, node, _running(status)), host.clock.now())


def settle(host: Host, load_spec: Callable[[], Spec], enable_spec: EnableSpec, node: Node) -> Plan:
    """Execute the Plan step by step, looking again after each (M3); the Plan that is left, with
    what it waits for."""
    for _ in range(MAX_STEPS):
        spec = load_spec()
        left = plan(host, spec, node)
        if not left.steps:
            return left
        execute(host, node, left.steps[0], enable_spec)
        host.console.say(f"etcd: {DONE[Action(left.steps[0].action)]}")
    return left


def execute(host: Host, node: Node, step: Step, enable_spec: EnableSpec) -> None:
    """One step; each is idempotent."""
    match Action(step.action):
        case Action.REMOVE_STRAY:
            host.overlay.remove_stray()
        case Action.ISSUE_LEAF:
            issue_leaves(host, node)
        case Action.ENABLE_SPEC:
            enable_spec(host)
        case Action.SET_DATA_ASIDE:
            host.units.stop(etcdconf.UNIT)  # it may run, or try to
            host.overlay.set_data_aside(host.clock.now().strftime("%Y%m%dT%H%M%SZ"))
        case Action.WRITE_DROP_IN:
            host.overlay.write_drop_in(etcdconf.render_drop_in(node.prefix))
        case Action.LAY_FILES:
            host.overlay.lay(files_to_lay(host, node))
        case Action.START_ETCD:
            host.overlay.start()
        case Action.MARK_FORMED:
            etcdstore.save_cluster(host, etcdstate.mark_formed(etcdstore.load_cluster(host)))


def issue_leaves(host: Host, node: Node) -> Leaves:
    """A new pair of leaves under the newest intermediate, checked before it is kept; Refused
    `clock-off` while this node's clock cannot be right."""
    talk.refuse_wrong_clock(host)
    granted = etcdstore.load_intermediate(host)
    if granted is None:
        raise Refused(
            "no-intermediate",
            "this node has no intermediate certificate yet",
            "wait for the holder; `keel mesh etcd status` names it",
        )
    _, intermediate = granted
    number = etcdstore.next_leaf_number(host)
    now = host.clock.now()
    made = {}
    for kind, sign in (
        (etcdprofile.Kind.MEMBER, etcdpki.member_leaf),
        (etcdprofile.Kind.CLIENT, etcdpki.client_leaf),
    ):
        key = etcdcert.new_key(Secret(host.chance.bytes(etcdcert.KEY_ENTROPY_BYTES)))
        leaf = sign(
            intermediate,
            key=key,
            address=node.address,
            serial=host.chance.bytes(etcdpki.SERIAL_BYTES),
            now=now,
        )
        etcdprofile.profile_check(kind, leaf, issuer=intermediate.certificate, address=node.address)
        made[kind] = etcdpki.Credential(leaf=leaf, chain=(intermediate.certificate,), key=key)
    leaves = Leaves(
        number=number,
        member=made[etcdprofile.Kind.MEMBER],
        client=made[etcdprofile.Kind.CLIENT],
    )
    etcdstore.save_leaves(host, leaves)
    return leaves


def files_to_lay(host: Host, node: Node) -> dict[str, Secret]:
    """Exactly what belongs under /etc/etcd/keel; nothing before a record was taken (M2)."""
    record, leaves = current_record(host), etcdstore.load_leaves(host)
    return _files(host, node, etcdstore.load_cluster(host), record, leaves)


def _files(
    host: Host, node: Node, cluster: Cluster, record: ClusterRecord | None, leaves: Leaves | None
) -> dict[str, Secret]:
    if record is None or leaves is None or cluster.stage is Stage.IDLE:
        return {}
    settings = EtcdSettings(
        address=node.address,
        members=record.members,
        state=_start_state(cluster, record),
        token=record.token,
    )
    return {
        etcdconf.MEMBER_FILE: etcdpki.encode_credential(leaves.member),
        etcdconf.TRUST_FILE: Secret(host.files.read(host.paths.etcd_trust) or b""),
        etcdconf.CRL_FILE: Secret(etcdstore.load_crl(host) or b""),
        etcdconf.ENV_FILE: Secret(etcdconf.render_env(settings)),
    }


def is_superseded(host: Host, intermediate: x509.Certificate) -> bool:
    """Whether the CRL here says that a newer grant replaced this node's intermediate: it was put
    back from an older copy."""
    raw = host.files.read(host.paths.etcd_crl, max_bytes=etcdstore.MAX_CRL_BYTES)
    try:
        found = etcdcrl.read_crl(raw or b"", etcdstore.load_roots(host))
    except PkiRejected:
        return False  # etcdcrlspread mends it
    serial = etcdcert.serial_of(intermediate)
    return any(
        one.serial == serial and one.reason is etcdcrl.Reason.SUPERSEDED for one in found.revoked
    )


def own_status(host: Host, *, listing: bool = False) -> EtcdStatus | None:
    """What this node's own etcd answers, with its list of members if wanted; None while it answers
    nothing."""
    if not etcdstore.whole_leaves(host):
        return None
    etcd = host.etcd_at(LOCALHOST)
    try:
        if listing:
            return etcd.look(timeout_seconds=OWN_LOOK_SECONDS)
        return etcd.status(timeout_seconds=OWN_STATUS_SECONDS)
    except EtcdError:
        return None


def own_word(host: Host) -> Word | None:
    """The same, as it is told to the holder. One that etcd itself calls corrupt hears no leader:
    it answers, and serves nothing."""
    status = own_status(host)
    if status is None:
        return None
    corrupt = status.member_id in corrupt_members(status.errors)
    return Word(
        member_id=EtcdMemberId(status.member_id),
        leader=EtcdMemberId(0 if corrupt else status.leader),
        commit=status.raft_index,
        applied=status.applied_index,
        learner=status.learner,
    )


def serves(host: Host) -> bool:
    """Whether this node's own etcd does what a member is for."""
    word = own_word(host)
    return word is not None and bool(word.leader)


def _running(status: EtcdStatus | None) -> Running | None:
    """The same, as the Plan wants it."""
    if status is None:
        return None
    return Running(cluster_id=EtcdClusterId(status.cluster_id), has_leader=status.leader != 0)


def sees_leader(host: Host) -> bool:
    running = _running(own_status(host))
    return running is not None and running.has_leader


def _start_state(cluster: Cluster, record: ClusterRecord) -> RecordState:
    return RecordState.EXISTING if cluster.stage is Stage.FORMED else record.state


def is_laid(host: Host) -> bool:
    """Whether etcd runs, or would run, with keel's files."""
    return host.overlay.laid(etcdconf.MEMBER_FILE) is not None
