"""A member's own etcd: looks at it, and executes its Plan.

Owns the effects of each step: one, then look again. Files are laid from what is on disk. What is
next is keel.mesh.etcdplan's, what came from the holder keel.mesh.etcdtaken's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cryptography import x509

from keel.errors import PkiRejected, Refused
from keel.etcdport import EtcdStatus
from keel.mesh import (
    etcdbeside,
    etcdcert,
    etcdconf,
    etcdcrl,
    etcdown,
    etcdpki,
    etcdplan,
    etcdprofile,
    etcdsettings,
    etcdstart,
    etcdstate,
    etcdstore,
    etcdtaken,
    selfrecord,
    store,
    talk,
)
from keel.mesh.etcdconf import EtcdSettings
from keel.mesh.etcdmsg import ClusterRecord, RecordState
from keel.mesh.etcdown import Own
from keel.mesh.etcdplan import Action, MemberView, Running
from keel.mesh.etcdstate import Cluster, Stage
from keel.mesh.etcdstore import Leaves
from keel.mesh.store import Node
from keel.outcome import Plan, Step
from keel.ports import Host
from keel.spec.model import Spec
from keel.types import Capability, EtcdClusterId, Secret
from keel.unitnames import ETCD_UNIT

MAX_STEPS = 16
"""More than a whole birth takes; a Plan that does not end is a bug, not a loop."""

DONE: Mapping[Action, str] = {
    Action.REMOVE_STRAY: "removed the empty member that etcd-server had started by itself",
    Action.ISSUE_LEAF: "issued this node's certificates",
    Action.ENABLE_SPEC: "set overlays.etcd: enabled in the spec",
    Action.SET_DATA_ASIDE: "moved the data of an earlier birth aside",
    Action.WRITE_DROP_IN: "wrote keel's drop-in for etcd.service",
    Action.LAY_FILES: "laid certificates, CRL and settings under /etc/etcd/keel",
    Action.START_ETCD: "started etcd",
    Action.MARK_FORMED: "the cluster has a leader",
}
"""What a step has done, for whoever watches."""

EnableSpec = Callable[[Host], None]
"""Sets overlays.etcd to enabled in the operator's spec, comments kept."""


def observe(host: Host, spec: Spec, node: Node, own: Own) -> MemberView:
    """This node's own etcd as it is now, which just answered `own`; asks nobody else."""
    cluster = etcdstore.load_cluster(host)
    record = etcdtaken.current_record(host)
    leaves, granted = etcdstore.load_leaves(host), etcdstore.load_intermediate(host)
    wanted = _files(host, node, cluster, record, leaves)
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
        unit=_unit(host),
        running=_running(own.status),
        barred=own.barred,
        names={member.address: member.display for member in node.view.members},
    )


def plan(host: Host, spec: Spec, node: Node) -> Plan:
    """What this member's etcd needs next."""
    return plan_for(host, spec, node, etcdown.ask(host))


def plan_for(host: Host, spec: Spec, node: Node, own: Own) -> Plan:
    """The same for what it just answered."""
    return etcdplan.decide(observe(host, spec, node, own), host.clock.now())


def settle(host: Host, load_spec: Callable[[], Spec], enable_spec: EnableSpec, node: Node) -> Plan:
    """Execute the Plan step by step, looking again after each; the Plan that is left, with
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
            host.units.stop(ETCD_UNIT)  # it may run, or try to
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
        made[kind] = etcdpki.Credential(leaf=leaf, chain=(intermediate.certificate,), key=key)
    leaves = Leaves(
        number=number,
        member=made[etcdprofile.Kind.MEMBER],
        client=made[etcdprofile.Kind.CLIENT],
    )
    etcdstore.save_leaves(host, leaves)
    return leaves


def files_to_lay(host: Host, node: Node) -> dict[str, Secret]:
    """Exactly what belongs under /etc/etcd/keel; nothing before a record was taken."""
    record, leaves = etcdtaken.current_record(host), etcdstore.load_leaves(host)
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


def _start_state(cluster: Cluster, record: ClusterRecord) -> RecordState:
    return RecordState.EXISTING if cluster.stage is Stage.FORMED else record.state


def is_laid(host: Host) -> bool:
    """Whether etcd runs, or would run, with keel's files."""
    return host.overlay.laid(etcdconf.MEMBER_FILE) is not None


def _unit(host: Host) -> etcdplan.Unit:
    state = host.units.state(ETCD_UNIT)
    return etcdplan.Unit(
        active=state.active in ("active", "activating", "reloading"),
        enabled=state.enabled == "enabled",
        ours=is_laid(host),
        ends=state.active == "failed" or state.sub == "auto-restart",
        masked=state.enabled in ("masked", "masked-runtime"),
        guarded=etcdstart.let_start(host, state),
        foreign=None if state.stale else etcdsettings.foreign_runs(state.runs),
    )


def _running(status: EtcdStatus | None) -> Running | None:
    """What it answered, as the Plan wants it."""
    if status is None:
        return None
    return Running(cluster_id=EtcdClusterId(status.cluster_id), has_leader=status.leader != 0)
