"""What is true of the registry now: this node's own etcd and, by their words, the others' (E21).

Owns the look; the document's shape is keel.mesh.report's. Changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from cryptography import x509

from keel.errors import Refused, StateCorrupt
from keel.etcdport import EtcdStatus
from keel.mesh import (
    etcdcert,
    etcdcrl,
    etcdenrol,
    etcdlist,
    etcdlived,
    etcdmember,
    etcdown,
    etcdplace,
    etcdplan,
    etcdstore,
    selfrecord,
    talk,
)
from keel.mesh.birth import BIRTH_SIZE
from keel.mesh.etcdholder import holder_member, holder_of
from keel.mesh.etcdids import id_text
from keel.mesh.etcdlist import Known, Listed, Source
from keel.mesh.etcdown import Own
from keel.mesh.etcdstate import Failure, Stage
from keel.mesh.store import Node
from keel.outcome import Waiting
from keel.ports import Host
from keel.spec.model import Spec
from keel.types import Capability, EtcdClusterId, FormationId, SigningKey
from keel.unitnames import ETCD_UNIT

HERE, OPERATOR = "etcd here", "the operator"
ROOT = "root"
"""The kind of a certificate that nothing renews."""


class Phase(StrEnum):
    """How far this node is with etcd; the words of status --json."""

    NONE = "none"
    WAITING = "waiting"
    READY = "ready"
    FORMING = "forming"
    LEARNER = "learner"
    VOTER = "voter"
    REMOVED = "removed"


class Role(StrEnum):
    """What a member says of its own etcd when it is greeted."""

    NONE = "none"
    STARTING = "starting"
    LEARNER = "learner"
    VOTER = "voter"
    SILENT = "silent"
    """In the cluster, and its own etcd does not answer or has no leader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """One certificate in use on this node."""

    kind: str
    serial: str
    not_before: datetime
    not_after: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdSeen:
    """The registry as this node sees it; `known`: who is in the cluster, and whose word that is."""

    phase: Phase
    cluster_id: EtcdClusterId | None
    formation: FormationId | None
    holder: SigningKey | None
    status: EtcdStatus | None
    known: Known
    roles: Mapping[SigningKey, Role]
    certificates: tuple[Certificate, ...]
    crl_number: int
    crl_next_update: datetime | None
    waiting: tuple[Waiting, ...]
    failures: tuple[Failure, ...]
    barred: bool = False
    """Its etcd answers, and refuses keel."""
    restored: bool = False
    """Peers were told of a later state of this disk than it has."""
    starting: bool = False
    """Its etcd answers nothing yet, and was started just now."""


def own_role(host: Host) -> Role:
    """This node's own etcd in a word; with a state that cannot be read none is known to serve."""
    try:
        stage = etcdstore.load_cluster(host).stage
        return _role(stage, etcdown.status(host) if stage is not Stage.IDLE else None)
    except StateCorrupt:
        return Role.SILENT


def _role(stage: Stage, status: EtcdStatus | None) -> Role:
    if stage is Stage.IDLE:
        return Role.NONE
    if status is None or status.leader == 0:
        return Role.STARTING if stage is Stage.STARTING else Role.SILENT
    return Role.LEARNER if status.learner else Role.VOTER


def ask_own(host: Host) -> Own:
    """What this node's own etcd says of itself and its cluster: asked once, for all of a look."""
    try:
        idle = etcdstore.load_cluster(host).stage is Stage.IDLE
        return Own() if idle else etcdown.ask(host, listing=True)
    except StateCorrupt:
        return Own()


def look(
    host: Host,
    spec: Spec,
    node: Node,
    roles: Mapping[SigningKey, Role],
    own: Own,
) -> EtcdSeen:
    """One look; `roles` is what the other members said of themselves just now, `own` what this
    node's etcd did. A state file that cannot be read is among the failures: a look fails for
    nothing that it is there to show."""
    try:
        return _look(host, spec, node, roles, own)
    except StateCorrupt as error:
        return _unreadable(host, roles, error)


def _unreadable(host: Host, roles: Mapping[SigningKey, Role], error: StateCorrupt) -> EtcdSeen:
    now = host.clock.now()
    try:
        kept = etcdstore.load_failures(host).entries
    except StateCorrupt:
        kept = ()
    failure = Failure(
        code=error.code,
        subject="status",
        text=error.summary(),
        remedy=error.remedy(),
        since=now,
        last=now,
    )
    why = error.summary()
    return EtcdSeen(
        phase=Phase.WAITING,
        cluster_id=None,
        formation=None,
        holder=None,
        status=None,
        known=Known(),
        roles=roles,
        certificates=(),
        crl_number=0,
        crl_next_update=None,
        waiting=(Waiting(what=HERE, waiting_for=OPERATOR, why=why, remedy=failure.remedy),),
        failures=(*kept, failure),
    )


def _look(
    host: Host,
    spec: Spec,
    node: Node,
    roles: Mapping[SigningKey, Role],
    own: Own,
) -> EtcdSeen:
    cluster = etcdstore.load_cluster(host)
    crl = etcdstore.load_crl(host)
    read = etcdcrl.read_crl(crl, etcdstore.load_roots(host)) if crl else None
    voters = [m.address for m in talk.others(node) if roles.get(m.key) is Role.VOTER]
    known = Known() if cluster.stage is Stage.IDLE else etcdlist.known(host, own.status, voters)
    phase = _in_list(node, cluster.stage, known) or _phase(
        host, spec, node, cluster.stage, own.status
    )
    left = (*_plan_waits(host, spec, node, own), *etcdenrol.waiting(host, node))
    left = left or _idle_waits(host, node, phase, roles)
    return EtcdSeen(
        phase=phase,
        cluster_id=cluster.cluster_id,
        formation=cluster.formation,
        holder=holder_of(host, node),
        status=own.status,
        barred=own.barred,
        known=known,
        roles={**roles, node.key: _role(cluster.stage, own.status)},
        certificates=certificates(host),
        crl_number=read.number if read else 0,
        crl_next_update=read.next_update if read else None,
        waiting=tuple(one for one in left if _holds(one, phase, known)),
        failures=etcdstore.load_failures(host).entries,
        restored=cluster.stage is not Stage.IDLE and etcdlived.is_restored(host, node),
        starting=cluster.stage is Stage.FORMED and _starts(host, own),
    )


def role_at(seen: EtcdSeen, node: Node, member: Listed) -> Role:
    """What the member of etcd's list said of itself; silent when it said nothing."""
    found = node.view.by_address(member.address) if member.address else None
    return seen.roles.get(found.key, Role.SILENT) if found else Role.SILENT


def leader_text(seen: EtcdSeen) -> str | None:
    """The leader's ID as etcdctl prints it."""
    return id_text(seen.known.leader) if seen.known.leader else None


def _in_list(node: Node, stage: Stage, known: Known) -> Phase | None:
    """What the list says of this node: taken out (by the mesh or by etcd), or a learner that has
    not served yet; None when it says nothing else than its own state."""
    own = next((one for one in known.members if one.address == node.address), None)
    if stage is Stage.FORMED:
        gone = known.source is Source.ETCD and own is None
        return Phase.REMOVED if gone or node.view.by_key(node.key) is None else None
    return Phase.LEARNER if own is not None and own.learner else None


def _holds(waiting: Waiting, phase: Phase, known: Known) -> bool:
    """Nobody waits for a leader that is there, or for a cluster that it was taken out of; a
    learner's vote is told by its role."""
    return phase is not Phase.REMOVED and not (
        waiting.what in (etcdplan.A_LEADER, etcdplan.A_VOTE) and known.leader != 0
    )


def _phase(host: Host, spec: Spec, node: Node, stage: Stage, status: EtcdStatus | None) -> Phase:
    match stage:
        case Stage.IDLE:
            if selfrecord.own_capability(host, spec) is not Capability.ETCD:
                return Phase.NONE
            if etcdstore.load_intermediate(host) is not None:
                return Phase.READY
            could = sum(one.capability is Capability.ETCD for one in node.view.members)
            known = holder_of(host, node) is not None
            return Phase.WAITING if known or could >= BIRTH_SIZE else Phase.NONE
        case Stage.STARTING if status is None or status.leader == 0:
            return Phase.FORMING
        case _:  # a pass has yet to note the leader that its etcd follows
            return Phase.LEARNER if status is not None and status.learner else Phase.VOTER


def _starts(host: Host, own: Own) -> bool:
    """A start takes seconds, or until most members run; whoever looks meanwhile saw no failure."""
    answers = own.status is not None or own.barred
    return not answers and host.units.state(ETCD_UNIT).comes_up


def _plan_waits(host: Host, spec: Spec, node: Node, own: Own) -> tuple[Waiting, ...]:
    if selfrecord.own_capability(host, spec) is not Capability.ETCD:
        return ()
    try:
        return etcdmember.plan_for(host, spec, node, own).waiting
    except Refused as error:  # a look fails for nothing that it is there to show
        why, remedy = error.summary(), error.remedy()
        return (Waiting(what=HERE, waiting_for=OPERATOR, why=why, remedy=remedy),)


def holder_name(host: Host, node: Node) -> str:
    """The holder as this node shows it."""
    member = holder_member(host, node)
    return member.display if member else "a holder of the etcd root"


def _idle_waits(
    host: Host, node: Node, phase: Phase, roles: Mapping[SigningKey, Role]
) -> tuple[Waiting, ...]:
    """What a capable node that is in no cluster waits for; `roles` are the others'."""
    holder = holder_name(host, node)
    if phase is Phase.WAITING and holder_of(host, node) is None:
        why = "this mesh has no etcd root: `keel mesh etcd form` makes one"
        return (Waiting(what="the cluster", waiting_for=OPERATOR, why=why),)
    if phase is Phase.WAITING:
        why = "it has not granted this node's certificate yet"
        return (Waiting(what="a place in the cluster", waiting_for=holder, why=why),)
    if phase is not Phase.READY:
        return ()
    told = etcdplace.own_wait(host, node.key, holder)
    if told is not None:
        return (told,)
    if any(role not in (Role.NONE, Role.STARTING) for role in roles.values()):
        why = "others formed the cluster; this node is in the queue"
        return (Waiting(what="a place in the cluster", waiting_for=holder, why=why),)
    return ()  # too few for a cluster: nobody keeps it waiting


def certificates(host: Host) -> tuple[Certificate, ...]:
    """Those that are in use on this node."""
    found: list[tuple[str, x509.Certificate]] = []
    found += [(ROOT, root) for root in etcdstore.load_roots(host)]
    granted = etcdstore.load_intermediate(host)
    if granted is not None:
        found.append(("intermediate", granted[1].certificate))
    leaves = etcdstore.load_leaves(host)
    if leaves is not None:
        found += [("member", leaves.member.leaf), ("client", leaves.client.leaf)]
    return tuple(
        Certificate(
            kind=kind,
            serial=etcdcert.serial_of(certificate),
            not_before=certificate.not_valid_before_utc,
            not_after=certificate.not_valid_after_utc,
        )
        for kind, certificate in found
    )
