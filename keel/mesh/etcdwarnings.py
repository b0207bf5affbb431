"""Which warnings of the registry hold now, and how far it is from failing (E15, E19, E21).

Pure. A cause is told once, by the warning that is nearest to it: what follows from it is said in
its own words, and is no warning beside it. The mesh's own warnings, and the document, are
keel.mesh.report's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from keel import codec
from keel.mesh import clocks, etcdlook, etcdplan, expulsion
from keel.mesh.etcdids import PEER_PORT, id_text
from keel.mesh.etcdlist import Listed
from keel.mesh.etcdlook import Certificate, EtcdSeen, Phase, Role
from keel.mesh.etcdwords import Alarm, alarm_in
from keel.mesh.liveness import Liveness
from keel.mesh.status import MeshSeen
from keel.mesh.warnings import Warning, warn
from keel.outcome import Waiting
from keel.spec.diff import CERTIFICATE_SOON
from keel.spec.model import Spec
from keel.types import EtcdMemberId, Mode

SAFE_VOTERS = 3
"""Fewer tolerate no failure, however healthy they are (E19)."""
MORE_VOTERS = (
    "invite another capable node, or make a member capable; `keel mesh etcd form` on the holder"
    " brings the ready ones in"
)
OWN = frozenset({"etcd-down", "etcd-starting", "etcd-unguarded", "etcd-unit-changed"})
"""Why this node's own etcd is silent; one of them is told."""
NO_SPARE = "; without it the cluster has no fault tolerance"
LISTED = "; while it is listed the cluster has no fault tolerance"
UNSEEN = "; whether its etcd serves cannot be seen from here"
BLIND = frozenset({"member-blocked", "clock-off"})
"""Causes that hide a voter from this node alone: it may serve very well."""
CUT_OFF = (
    "the others may serve without this node: `keel mesh status` on another member says whether they"
    " do"
)
ALL_UP = (
    "their nodes answer on the mesh: `keel mesh etcd status` on each of them; or a firewall shuts"
    f" TCP port {PEER_PORT} on the overlay"
)
UNLED = "it hears no leader, and the cluster has one"
UNREACHED = (
    "`journalctl -u etcd` names whom it does not reach; a firewall here may shut TCP port"
    f" {PEER_PORT} on the overlay"
)
MASKED = "its unit is masked, and keel takes no operator's mask off"
UNMASK = "`systemctl unmask etcd`, then `keel mesh etcd tend`"
DAMAGED = (
    "`journalctl -u etcd` says why; if its data is damaged, `keel mesh etcd recover --replace`:"
    " docs/mesh.md has etcd's words for it"
)
LAY_FIRST = "`keel mesh etcd tend`, then `systemctl restart etcd`"
"""A restart would come to the same while keel's drop-in is gone."""
ROOT_SOON = timedelta(days=180)
"""A new mesh wants to be planned."""
ROOT_AHEAD = (
    "first `keel mesh doctor`: if this node's clock is behind, set it right; if it is right, the"
    " root was made by one that ran ahead, and docs/mesh.md says how to begin anew without losing"
    " keys"
)

ALARMS = {Alarm.FULL: "etcd-full", Alarm.CORRUPT: "etcd-corrupt"}


def warnings(
    spec: Spec, seen: MeshSeen, etcd: EtcdSeen, now: datetime, mesh: Iterable[Warning]
) -> tuple[Warning, ...]:
    """The mesh's, each with what follows from it for the registry, and then the registry's own."""
    found = (*mesh, *_mode_kept(spec, etcd), *_etcd_warnings(seen, etcd, now))
    return _with_what_follows(seen, etcd, found)


def fault_tolerance(seen: MeshSeen, etcd: EtcdSeen) -> tuple[int, int, int]:
    """Voters, quorum, and how many more voters may fail before writes stop; below 0: they did."""
    voters = sum(not member.learner for member in etcd.known.members)
    quorum = voters // 2 + 1
    return voters, quorum, voters - len(_silent(seen, etcd)) - quorum


def name_of(seen: MeshSeen, member: Listed) -> str:
    found = seen.node.view.by_address(member.address) if member.address else None
    if found is not None:
        return found.display
    if member.address is None and member.id is not None and not member.name:
        return id_text(EtcdMemberId(member.id))
    return member.name or str(member.address)


def _by_name(seen: MeshSeen, etcd: EtcdSeen) -> list[Listed]:
    """etcd's members in the order in which a person looks for them."""
    return sorted(etcd.known.members, key=lambda one: name_of(seen, one))


def _mode_kept(spec: Spec, etcd: EtcdSeen) -> list[Warning]:
    mode = spec.installation.mode
    if mode is Mode.CLOUD_ADVANCED or etcd.phase not in (Phase.VOTER, Phase.LEARNER):
        return []
    return [warn("mode-kept", subject=etcd.phase.value, detail=mode.value)]


def _cluster_warnings(seen: MeshSeen, etcd: EtcdSeen) -> list[Warning]:
    """What keeps the cluster, or this member of it, from serving; and what next failure would."""
    if etcd.phase is Phase.REMOVED:
        return [warn("etcd-removed")]
    found = _of_unit(etcd)
    if etcd.phase not in (Phase.VOTER, Phase.LEARNER):
        return found
    if etcd.barred:
        return [*found, warn("etcd-auth")]
    if not found and _is_down(seen, etcd):
        found.append(_down(etcd))
    found += _alarms(seen, etcd)
    voters, quorum, spare = fault_tolerance(seen, etcd)
    silent = _silent(seen, etcd)
    if not etcd.known.leader and (etcd.status is not None or spare < 0):
        return [*found, _no_quorum(seen, etcd, f"{quorum} of {voters} voters are needed")]
    causes = sorted(_cause(seen, etcd, one) for one in silent)
    found += [warn(code, subject=name) for code, name in causes if code == "etcd-voter-silent"]
    if spare <= 0 and voters < SAFE_VOTERS:
        detail = f"{quorum} of {voters} voters are needed and no more are healthy"
        found.append(warn("etcd-no-fault-tolerance", detail=detail, remedy=MORE_VOTERS))
    return found


def _no_quorum(seen: MeshSeen, etcd: EtcdSeen, needed: str) -> Warning:
    """This node's own etcd is silent because the others are, and those perhaps only here."""
    silent = [one for one in _silent(seen, etcd) if one.address != seen.node.address]
    names = ", ".join(sorted(name_of(seen, one) for one in silent)) or "<none>"
    remedy = ""
    if seen.alone:
        remedy = CUT_OFF
    elif all(_cause(seen, etcd, one)[0] == "etcd-voter-silent" for one in silent):
        remedy = ALL_UP
    return warn("etcd-no-quorum", detail=f"{needed}; silent: {names}", remedy=remedy)


def _is_in(etcd: EtcdSeen) -> bool:
    """Whether this node is in the cluster, and may see how that is."""
    return etcd.phase in (Phase.VOTER, Phase.LEARNER) and not etcd.barred


def _silent(seen: MeshSeen, etcd: EtcdSeen) -> list[Listed]:
    """The voters that do not serve, as far as this node hears."""
    return [
        one
        for one in etcd.known.members
        if not one.learner and etcdlook.role_at(etcd, seen.node, one) is not Role.VOTER
    ]


def _cause(seen: MeshSeen, etcd: EtcdSeen, one: Listed) -> tuple[str, str]:
    """Code and subject of the warning that says why this voter is silent."""
    node, name = seen.node, name_of(seen, one)
    gone = expulsion.removed_at(node.roster, node.view)
    if one.address == node.address:
        return "etcd-down", ""
    if one.address in gone:
        return "etcd-still-listed", expulsion.name_of(node.roster, gone[one.address])
    member = node.view.by_address(one.address) if one.address else None
    if member is None:
        return "etcd-stranger", name
    if member.key in node.blocked:
        return "member-blocked", name
    met = next(each for each in seen.members if each.member == member)
    if met.narrow:
        return "path-mtu", name
    if met.state is not Liveness.UP:
        return f"member-{met.state.value}", name
    far = met.clock_offset is not None and abs(met.clock_offset) >= clocks.LIMIT
    if far and member.key not in etcd.roles:
        return "clock-off", name
    return "etcd-voter-silent", name


def _with_what_follows(
    seen: MeshSeen, etcd: EtcdSeen, found: tuple[Warning, ...]
) -> tuple[Warning, ...]:
    """Whoever keeps the cluster from tolerating one more failure is told with that."""
    if not _is_in(etcd) or not etcd.known.leader:
        return found
    causes = {_cause(seen, etcd, one) for one in _silent(seen, etcd)}
    voters, quorum, spare = fault_tolerance(seen, etcd)
    blind = sum(code in BLIND for code, _ in causes)
    short = voters >= SAFE_VOTERS and spare + blind <= 0

    def follows(one: Warning) -> str:
        if ("etcd-down" if one.code in OWN else one.code, one.subject) not in causes:
            return ""
        if one.code in BLIND:
            return UNSEEN
        if not short:
            return ""
        return LISTED if one.code in ("etcd-still-listed", "etcd-stranger") else NO_SPARE

    return tuple(replace(one, text=one.text + follows(one)) for one in found)


def _of_unit(etcd: EtcdSeen) -> list[Warning]:
    """That somebody changed how etcd is started, or started it so."""
    found = []
    if etcdplan.UNGUARDED in etcd.waiting:
        found.append(warn("etcd-unguarded"))
    if etcdplan.UNGUARDED_UNLAID in etcd.waiting:
        found.append(warn("etcd-unguarded", remedy=LAY_FIRST))
    return found + [
        warn("etcd-unit-changed", detail=one.why)
        for one in etcd.waiting
        if one.what == etcdplan.UNIT_CHANGED
    ]


def _is_down(seen: MeshSeen, etcd: EtcdSeen) -> bool:
    """Whether this node's own etcd serves nothing, and the others' silence is not why."""
    if etcd.status is None:
        return etcd.roles.get(seen.node.key) is not Role.STARTING
    return etcd.status.leader == 0 and etcd.known.leader != 0


def _down(etcd: EtcdSeen) -> Warning:
    """Why this node's own etcd does not serve, as far as keel knows."""
    if etcd.status is not None:
        return warn("etcd-down", detail=UNLED, remedy=UNREACHED)
    if etcdplan.MASKED in etcd.waiting:
        return warn("etcd-down", detail=MASKED, remedy=UNMASK)
    if etcdplan.ENDS in etcd.waiting:
        return warn("etcd-down", detail="it ends whenever it is started", remedy=DAMAGED)
    for one in etcd.waiting:
        if one.remedy:
            return warn("etcd-down", detail=one.why, remedy=one.remedy)
    if etcd.starting:
        return warn("etcd-starting")
    return warn("etcd-down", detail="no answer on [::1]:2379")


def _strangers(seen: MeshSeen, etcd: EtcdSeen) -> list[Warning]:
    """Members that somebody added to etcd by hand. A learner on the overlay may be one who joins
    just now, which only its inviter knows."""
    node = seen.node
    gone = expulsion.removed_at(node.roster, node.view)
    return [
        warn("etcd-stranger", subject=name_of(seen, one), detail=id_text(EtcdMemberId(one.id)))
        for one in _by_name(seen, etcd)
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


def _waits(one: Waiting) -> Warning:
    """What the operator is waited for says what to do."""
    if one.waiting_for != etcdlook.OPERATOR:
        return warn("etcd-waits", subject=one.what, detail=one.waiting_for)
    detail = f"{one.waiting_for}: {one.why}" if one.remedy else one.waiting_for
    return warn("etcd-waits", subject=one.what, detail=detail, remedy=one.remedy or one.why)


def _root(one: Certificate, now: datetime) -> list[Warning]:
    """Nothing renews a root: one that a wrong clock made is wrong once the clock is right."""
    if one.not_before > now:
        begins = codec.format_time(one.not_before)
        return [warn("root-not-valid", detail=f"begins {begins} only", remedy=ROOT_AHEAD)]
    if one.not_after <= now:
        return [warn("root-not-valid", detail=f"ended {codec.format_time(one.not_after)}")]
    if one.not_after - now < ROOT_SOON:
        return [warn("root-ends", detail=codec.format_time(one.not_after))]
    return []


def _etcd_warnings(seen: MeshSeen, etcd: EtcdSeen, now: datetime) -> list[Warning]:
    found = [*_cluster_warnings(seen, etcd), *_strangers(seen, etcd)]
    gone = expulsion.removed_at(seen.node.roster, seen.node.view)
    found += [
        warn("etcd-still-listed", subject=expulsion.name_of(seen.node.roster, gone[one.address]))
        for one in _by_name(seen, etcd)
        if one.address in gone
    ]
    if etcd.restored:
        found.append(warn("restored"))
    if not found and not (_is_in(etcd) and _silent(seen, etcd)):  # who is down says why already
        failed = {one.text for one in etcd.failures}
        found += [_waits(one) for one in etcd.waiting if one.why not in failed]
    found += [
        warn("etcd-failed", subject=f.subject, detail=f.text, remedy=f.remedy)
        for f in etcd.failures
        if not any(one.code in OWN and f.text in one.text for one in found)
    ]
    for one in etcd.certificates:
        if one.kind == etcdlook.ROOT:
            found += _root(one, now)
        elif one.not_after - now < CERTIFICATE_SOON:
            ends = codec.format_time(one.not_after)
            found.append(warn("certificate-ends", subject=one.kind, detail=ends))
    if etcd.crl_next_update is not None and etcd.crl_next_update < now:
        found.append(warn("crl-old", detail=codec.format_time(etcd.crl_next_update)))
    return found
