"""What a member does next about its own etcd: `decide(view, now) -> Plan`.

Pure, in the manner of patroni's quorum.py: the whole observed world comes in as plain values, the
Plan is rebuilt from any interrupted state, and the caller executes one step, looks again and asks
again. The same Plan is shown by a dry run and executed by apply and by the tend.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from ipaddress import IPv6Address

from keel.errors import Refused
from keel.etcdport import DataState, StrayMember
from keel.mesh.etcdmsg import ClusterRecord, RecordState
from keel.mesh.etcdstate import Cluster, Marker, Stage, matches
from keel.outcome import Plan, Step, Waiting
from keel.types import EtcdClusterId
from keel.unitnames import ETCD_UNIT

DATA_LOST = (
    "if /var/lib/keel-etcd was moved, move it back, then `keel mesh etcd tend`; if it is lost,"
    " `keel mesh etcd recover --replace`"
)
"""What is left to do about a member whose data is gone: an empty one must never take its place."""


STATE_OLDER = (
    "put the newest /var/lib/keel/etcd/cluster.json back, then `keel mesh etcd tend`; if there is"
    " none, `keel mesh etcd recover --replace`"
)
"""What is left to do where the data is of a later moment than what keel knows of it."""

A_LEADER = "the election of a leader"
A_VOTE = "a vote in the cluster"
CLOCK = "the clock"
CLOCK_DIFFERS = "most members' clocks, or a time it has seen, contradict it: `keel mesh doctor`"
UNHEARD = "no member was heard since the boot, nor does NTP keep it: `keel mesh doctor`"
WINDOW = "the change to the network"
WINDOW_OPEN = "it is not confirmed yet"


BARRED = Waiting(
    what="the registry",
    waiting_for="the operator",
    why="etcd's users are enabled, and it refuses keel: `etcdctl --user root auth disable`",
)


MASKED = Waiting(
    what="the start of etcd",
    waiting_for="the operator",
    why="etcd.service is masked: `systemctl unmask etcd`, then `keel mesh etcd tend`",
)
"""Whoever masks the etcd of a member wants it to stay down: keel takes no such mask off."""

ENDS = Waiting(
    what="etcd here",
    waiting_for="the operator",
    why="it ends whenever it is started: `journalctl -u etcd` says why",
)
"""No election is waited for by what does not run."""

UNGUARDED = Waiting(
    what="etcd here",
    waiting_for="the operator",
    why="it was started without keel's guard and settings: `systemctl restart etcd`",
)
"""keel restarts no running etcd: other voters may be down just now, and this one may serve."""

UNGUARDED_UNLAID = replace(
    UNGUARDED,
    why="it was started without keel's guard, and keel's settings are gone: `keel mesh etcd tend`",
)

UNIT_CHANGED = "the next start of etcd"
"""What waits while somebody's drop-in changes what etcd.service runs."""


def unit_changed(how: str) -> Waiting:
    why = f"its unit would start it with {how}; `systemctl cat etcd` shows where that stands"
    return Waiting(what=UNIT_CHANGED, waiting_for="the operator", why=why)


class Action(StrEnum):
    """The steps of a member's Plan; each is idempotent. A step that has to come before another
    stands before it, and a Plan is made anew after every step."""

    REMOVE_STRAY = "remove-stray"
    ISSUE_LEAF = "issue-leaf"
    ENABLE_SPEC = "enable-spec"
    SET_DATA_ASIDE = "set-data-aside"
    WRITE_DROP_IN = "write-drop-in"
    LAY_FILES = "lay-files"
    START_ETCD = "start-etcd"
    MARK_FORMED = "mark-formed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """etcd.service as systemd sees it. `ours`: it runs with keel's drop-in and files."""

    active: bool
    enabled: bool
    ours: bool
    masked: bool = False
    ends: bool = False
    """It ended by itself just now, and not well."""
    guarded: bool = True
    """What runs was let start by keel's guard."""
    foreign: str | None = None
    """What a start would run otherwise than keel has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """What this node's own etcd answered."""

    cluster_id: EtcdClusterId
    has_leader: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberView:
    """A member's own etcd, observed. `confirmed`: its join was confirmed (true for a founder);
    `*_current`: what is laid equals what would be rendered now."""

    address: IPv6Address
    capable: bool
    confirmed: bool
    window_open: bool
    clock_off: bool
    cluster: Cluster
    record: ClusterRecord | None
    has_grant: bool
    has_leaf: bool
    spec_enabled: bool
    stray: StrayMember
    data: DataState
    marker: Marker | None
    files_current: bool
    drop_in_current: bool
    unit: Unit
    running: Running | None
    barred: bool = False
    """It answers, and refuses keel."""
    names: Mapping[IPv6Address, str] = field(default_factory=dict)
    """What the members are called, where that is known."""


def decide(view: MemberView, now: datetime) -> Plan:
    """The ordered steps to a running member, and what it waits for; Refused by rule."""
    if is_behind(view.cluster, view.marker):
        raise state_older()
    if view.cluster.stage is Stage.IDLE:
        held_up = view.has_grant and not view.has_leaf and view.clock_off
        return Plan(
            steps=tuple(_ahead(view)) if view.has_grant else (),
            waiting=(until_clock("a certificate of its own", since=now),) if held_up else (),
        )
    steps = [*_own_ground(view), *_installed(view)]
    waiting = _waits(view, now)
    if waiting is not None and not view.unit.active:
        return Plan(steps=tuple(steps), waiting=(waiting,))
    masked = view.unit.masked and view.cluster.stage is Stage.FORMED  # keel's own ends a place
    if masked and not view.unit.active:
        return Plan(steps=tuple(steps), waiting=(MASKED,))
    told = _of_the_unit(view)
    if told and not view.unit.active:
        return Plan(steps=tuple(steps), waiting=told)
    if not (masked or (view.unit.active and view.unit.enabled and view.unit.ours)):
        steps.append(_step(Action.START_ETCD, "it does not run as keel's yet"))
    if not view.unit.guarded:
        return Plan(steps=tuple(steps), waiting=told)
    return _by_its_word(view, steps, (MASKED,) if masked else told)


def _by_its_word(view: MemberView, steps: list[Step], left: tuple[Waiting, ...]) -> Plan:
    """What follows from what it answers; `left` waits also for one that serves."""
    if view.barred:
        return Plan(steps=tuple(steps), waiting=(BARRED,))
    if view.running is None:
        ends = view.unit.ends and view.cluster.stage is Stage.FORMED
        return Plan(steps=tuple(steps), waiting=(ENDS if ends else _quorum(view),))
    if view.running.cluster_id != view.cluster.cluster_id:
        raise Refused(
            "etcd-other-cluster",
            "the etcd that runs here is in another cluster than the record names",
            "stop it with `systemctl stop etcd`, then look at `keel mesh etcd status`",
        )
    if view.cluster.stage is Stage.FORMED:
        return Plan(steps=tuple(steps), waiting=left)
    if not view.running.has_leader:
        return Plan(steps=tuple(steps), waiting=(_quorum(view),))
    steps.append(_step(Action.MARK_FORMED, "etcd answered with the computed ID and a leader"))
    return Plan(steps=tuple(steps))


def _of_the_unit(view: MemberView) -> tuple[Waiting, ...]:
    """What somebody changed of how etcd is started, if anything."""
    if view.drop_in_current and view.unit.foreign is not None:
        return (unit_changed(view.unit.foreign),)
    if view.unit.active and not view.unit.guarded:
        return (UNGUARDED if view.drop_in_current else UNGUARDED_UNLAID,)
    return ()


def until_clock(what: str, *, since: datetime | None = None) -> Waiting:
    """What lives by the clock waits until nothing contradicts this node's."""
    return Waiting(what=what, waiting_for=CLOCK, why=CLOCK_DIFFERS, since=since)


def until_heard(what: str) -> Waiting:
    """What this node would do by itself waits until somebody vouched for the clock it booted with:
    alone it cannot tell a clock that is ahead from a long time without power."""
    return Waiting(what=what, waiting_for=CLOCK, why=UNHEARD)


def until_window(what: str) -> Waiting:
    """What changes who is in waits until an open window (keel.mesh.window) is over."""
    return Waiting(what=what, waiting_for=WINDOW, why=WINDOW_OPEN)


def is_behind(cluster: Cluster, marker: Marker | None) -> bool:
    """cluster.json goes before every marker, so a marker that it does not know is the newer of the
    two. Data that a formation left which was given up since is no such sign."""
    if marker is None or marker.formation in cluster.given_up:
        return False
    if cluster.stage is Stage.IDLE:
        return True
    return marker.formation == cluster.formation and marker.attempt > cluster.attempt


def state_older() -> Refused:
    """What is said of a cluster.json that is behind."""
    return Refused(
        "etcd-state-older",
        "/var/lib/keel/etcd/cluster.json is an older copy: the marker beside etcd's data knows of a"
        " later start",
        STATE_OLDER,
    )


def _ahead(view: MemberView) -> list[Step]:
    """What a birth would wait for, done before: etcd does not start by it. An etcd that keel did
    not make is left as it is."""
    found: list[Step] = []
    if not view.has_leaf and _may_issue(view):
        found.append(_step(Action.ISSUE_LEAF, "a grant came"))
    foreign = view.unit.active or view.stray is StrayMember.FOREIGN
    if not (view.drop_in_current or foreign):
        found.append(_step(Action.WRITE_DROP_IN, "a grant came"))
    return found


def _may_issue(view: MemberView) -> bool:
    """A leaf lives by the clock: none is issued by one that most members contradict."""
    return view.has_grant and not view.clock_off


def _own_ground(view: MemberView) -> list[Step]:
    """Data: nothing is started over what is not its own (E16)."""
    ours = matches(view.marker, view.cluster)
    if ours and view.data is DataState.PRESENT:
        return []
    if view.data is DataState.PRESENT or (view.data is DataState.NO_LOG and not ours):
        if not _was_ours(view.marker, view.cluster):
            raise Refused(
                "etcd-data-foreign",
                "there is etcd data in /var/lib/keel-etcd that is not of this formation",
                "move it away by hand if it is not needed, then run `keel spec apply`",
            )
        return [_step(Action.SET_DATA_ASIDE, "it belongs to an attempt that was given up")]
    if view.cluster.stage is Stage.FORMED:
        raise Refused(
            "etcd-data-missing",
            "the cluster was formed, and this member's data is gone",
            DATA_LOST,
        )
    if view.stray is StrayMember.FOREIGN:
        raise Refused(
            "etcd-stray-foreign",
            "/var/lib/etcd/default has a member that keel did not make",
            "move it away by hand if it is not needed, then run `keel spec apply`",
        )
    if view.stray is StrayMember.MARKED:
        return [_step(Action.REMOVE_STRAY, "etcd-server started it by itself; it is empty")]
    return []


def _was_ours(marker: Marker | None, cluster: Cluster) -> bool:
    """An earlier attempt of keel's: a formation that was given up, or this one before."""
    if marker is None or cluster.stage is Stage.FORMED:
        return False
    if marker.formation in cluster.given_up:
        return True
    return marker.formation == cluster.formation and marker.attempt < cluster.attempt


def _installed(view: MemberView) -> list[Step]:
    found: list[Step] = []
    leaf_comes = not view.has_leaf and _may_issue(view)
    if leaf_comes:
        found.append(_step(Action.ISSUE_LEAF, "etcd needs a certificate of its own"))
    if not view.spec_enabled:
        found.append(_step(Action.ENABLE_SPEC, "this node is in the cluster"))
    if not view.drop_in_current:
        found.append(_step(Action.WRITE_DROP_IN, "the unit does not run with keel's settings"))
    if leaf_comes or (view.has_leaf and not view.files_current):
        found.append(_step(Action.LAY_FILES, "what is laid differs from what keel knows"))
    return found


def _waits(view: MemberView, now: datetime) -> Waiting | None:
    """What has to happen before etcd may start for the first time, or again."""
    reasons = (
        (not view.has_grant, "the holder", "it has not granted this node's certificate yet"),
        (not view.capable, "the package keel-overlay-etcd", "etcd is not installed here"),
        (not view.confirmed, "the inviter", "it has not answered the confirmation yet"),
        (view.window_open, WINDOW, WINDOW_OPEN),
        (view.clock_off, CLOCK, CLOCK_DIFFERS),
        (view.record is None, "the holder", "there is no cluster record of this formation"),
    )
    return next(
        (
            Waiting(what="the start of etcd", waiting_for=whom, why=why, since=now)
            for holds, whom, why in reasons
            if holds
        ),
        None,
    )


def _quorum(view: MemberView) -> Waiting:
    others = view.record.members if view.record is not None else ()
    shown = (view.names.get(one, one.compressed) for one in others if one != view.address)
    names = ", ".join(sorted(shown)) or "the other members"
    if view.cluster.stage is not Stage.FORMED and _comes_in(view):
        return Waiting(
            what=A_VOTE,
            waiting_for=names,
            why="etcd copies the cluster's data first, as a learner",
        )
    return Waiting(
        what=A_LEADER,
        waiting_for=names,
        why="etcd serves once most of its members run",
    )


def _comes_in(view: MemberView) -> bool:
    """Into a cluster that others formed, as a learner: no election waits for that."""
    return view.record is not None and view.record.state is RecordState.EXISTING


def _step(action: Action, why: str) -> Step:
    return Step(action=action.value, subject=_SUBJECTS[action], why=why)


_SUBJECTS = {
    Action.REMOVE_STRAY: "/var/lib/etcd/default",
    Action.ISSUE_LEAF: "/var/lib/keel/etcd/leaf",
    Action.ENABLE_SPEC: "overlays.etcd",
    Action.SET_DATA_ASIDE: "/var/lib/keel-etcd/data",
    Action.WRITE_DROP_IN: "etcd.service.d/50-keel.conf",
    Action.LAY_FILES: "/etc/etcd/keel",
    Action.START_ETCD: ETCD_UNIT,
    Action.MARK_FORMED: "cluster.json",
}
