"""Which warnings of the registry hold now, and how far it is from failing (E15, E19, E21).

Pure. The mesh's own warnings, and the document, are keel.mesh.report's.
"""

from __future__ import annotations

from datetime import datetime
from ipaddress import IPv6Address

from keel import codec
from keel.mesh import etcdlook, etcdplan, expulsion
from keel.mesh.etcdids import id_text
from keel.mesh.etcdlist import Listed
from keel.mesh.etcdlook import EtcdSeen, Phase, Role
from keel.mesh.etcdwords import Alarm, alarm_in
from keel.mesh.liveness import Liveness
from keel.mesh.status import MeshSeen
from keel.mesh.warnings import Warning, warn
from keel.spec.diff import CERTIFICATE_SOON
from keel.spec.model import Spec
from keel.types import EtcdMemberId, Mode

SAFE_VOTERS = 3
"""Fewer tolerate no failure, however healthy they are (E19)."""
MORE_VOTERS = (
    "invite another capable node, or make a member capable; `keel mesh etcd form` on the holder"
    " brings the ready ones in"
)
SILENT_NODE = "{name} itself does not answer on the mesh: see that first, `keel mesh status`"
BLOCKED_VOTER = (
    "this node blocked {name} and cannot know: `keel mesh etcd status` on another member; `keel"
    " mesh trust add --root {name}` lets it in again"
)
MASKED = "its unit is masked, and keel takes no operator's mask off"
UNMASK = "`systemctl unmask etcd`, then `keel mesh etcd tend`"
DAMAGED = (
    "`journalctl -u etcd` says why; if its data is damaged, `keel mesh etcd recover --replace`:"
    " docs/mesh.md has etcd's words for it"
)

ALARMS = {Alarm.FULL: "etcd-full", Alarm.CORRUPT: "etcd-corrupt"}


def warnings(spec: Spec, seen: MeshSeen, etcd: EtcdSeen, now: datetime) -> list[Warning]:
    """Every warning of the registry that holds now."""
    return [*_mode_kept(spec, etcd), *_etcd_warnings(seen, etcd, now)]


def fault_tolerance(seen: MeshSeen, etcd: EtcdSeen) -> tuple[int, int, int]:
    """Voters, quorum, and how many more voters may fail before writes stop; below 0: they did."""
    voters = [member for member in etcd.known.members if not member.learner]
    healthy = [m for m in voters if etcdlook.role_at(etcd, seen.node, m) is Role.VOTER]
    quorum = len(voters) // 2 + 1
    return len(voters), quorum, len(healthy) - quorum


def name_of(seen: MeshSeen, member: Listed) -> str:
    found = seen.node.view.by_address(member.address) if member.address else None
    if found is not None:
        return found.display
    if member.address is None and member.id is not None and not member.name:
        return id_text(EtcdMemberId(member.id))
    return member.name or str(member.address)


def _mode_kept(spec: Spec, etcd: EtcdSeen) -> list[Warning]:
    mode = spec.installation.mode
    if mode is Mode.CLOUD_ADVANCED or etcd.phase not in (Phase.VOTER, Phase.LEARNER):
        return []
    return [warn("mode-kept", subject=etcd.phase.value, detail=mode.value)]


def _cluster_warnings(seen: MeshSeen, etcd: EtcdSeen) -> list[Warning]:
    """What keeps the cluster, or this member of it, from serving; and what next failure would."""
    if etcd.phase is Phase.REMOVED:
        return [warn("etcd-removed")]
    if etcd.phase not in (Phase.VOTER, Phase.LEARNER):
        return []
    if etcd.barred:
        return [warn("etcd-auth")]
    found = _alarms(seen, etcd)
    if etcd.status is None and etcd.roles.get(seen.node.key) is not Role.STARTING:
        found.append(_down(etcd))
    voters, quorum, spare = fault_tolerance(seen, etcd)
    quiet = {
        name_of(seen, one): one.address
        for one in etcd.known.members
        if not one.learner and etcdlook.role_at(etcd, seen.node, one) is not Role.VOTER
    }
    silent = sorted(quiet)
    if not etcd.known.leader and (etcd.status is not None or spare < 0):
        detail = f"{quorum} of {voters} voters are needed; silent: {', '.join(silent) or '<none>'}"
        return [*found, warn("etcd-no-quorum", detail=detail)]
    if etcd.status:
        found += [_voter_silent(seen, name, quiet[name]) for name in silent]
    if spare <= 0:
        detail = f"{quorum} of {voters} voters are needed and no more are healthy"
        remedy = "" if voters >= SAFE_VOTERS else MORE_VOTERS
        found.append(warn("etcd-no-fault-tolerance", detail=detail, remedy=remedy))
    return found


def _down(etcd: EtcdSeen) -> Warning:
    """Why this node's own etcd does not answer, as far as keel knows."""
    if etcdplan.MASKED in etcd.waiting:
        return warn("etcd-down", detail=MASKED, remedy=UNMASK)
    if etcdplan.ENDS in etcd.waiting:
        return warn("etcd-down", detail="it ends whenever it is started", remedy=DAMAGED)
    return warn("etcd-down", detail="no answer on [::1]:2379")


def _voter_silent(seen: MeshSeen, name: str, address: IPv6Address | None) -> Warning:
    """Whether its etcd serves is known only where the node is heard."""
    member = seen.node.view.by_address(address) if address else None
    quiet = {one.member for one in seen.members if one.state is not Liveness.UP}
    remedy = ""
    if member is not None and member.key in seen.node.blocked:
        remedy = BLOCKED_VOTER.format(name=name)
    elif member in quiet:
        remedy = SILENT_NODE.format(name=name)
    return warn("etcd-voter-silent", subject=name, remedy=remedy)


def _strangers(seen: MeshSeen, etcd: EtcdSeen) -> list[Warning]:
    """Members that somebody added to etcd by hand. A learner on the overlay may be one who joins
    just now, which only its inviter knows."""
    node = seen.node
    gone = expulsion.removed_at(node.roster, node.view)
    return [
        warn("etcd-stranger", subject=name_of(seen, one), detail=id_text(EtcdMemberId(one.id)))
        for one in etcd.known.members
        if one.id is not None
        and one.address not in gone
        and (one.address is None or node.view.by_address(one.address) is None)
        and not (one.learner and one.address is not None and one.address in node.prefix)
    ]


def _alarms(seen: MeshSeen, etcd: EtcdSeen) -> list[Warning]:
    """What members have raised, by the word of this node's own etcd."""
    names = {one.id: name_of(seen, one) for one in etcd.known.members}
    found = []
    for text in etcd.status.errors if etcd.status else ():
        raised = alarm_in(text)
        if raised is not None:
            member, alarm = raised
            subject = names.get(member, f"member {id_text(EtcdMemberId(member))}")
            remedy = (
                "" if member in names else "it is gone: the holder's `keel mesh etcd tend` ends it"
            )
            found.append(warn(ALARMS[alarm], subject=subject, remedy=remedy))
    return found


def _etcd_warnings(seen: MeshSeen, etcd: EtcdSeen, now: datetime) -> list[Warning]:
    found = [*_cluster_warnings(seen, etcd), *_strangers(seen, etcd)]
    gone = expulsion.removed_at(seen.node.roster, seen.node.view)
    found += [
        warn("etcd-still-listed", subject=expulsion.name_of(seen.node.roster, gone[one.address]))
        for one in etcd.known.members
        if one.address in gone
    ]
    if etcd.restored:
        found.append(warn("restored"))
    if not found:  # a voter that is down says why already
        found += [warn("etcd-waits", subject=w.what, detail=w.waiting_for) for w in etcd.waiting]
    found += [
        warn("etcd-failed", subject=f.subject, detail=f.text, remedy=f.remedy)
        for f in etcd.failures
    ]
    for one in etcd.certificates:
        if one.not_after - now < CERTIFICATE_SOON:
            ends = codec.format_time(one.not_after)
            found.append(warn("certificate-ends", subject=one.kind, detail=ends))
    if etcd.crl_next_update is not None and etcd.crl_next_update < now:
        found.append(warn("crl-old", detail=codec.format_time(etcd.crl_next_update)))
    return found
