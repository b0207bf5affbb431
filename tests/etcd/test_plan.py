"""A member's own Plan, rebuilt from every interrupted state."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest

from keel.errors import Refused
from keel.etcdport import DataState, StrayMember
from keel.mesh.etcdmsg import RecordState
from keel.mesh.etcdplan import (
    UNGUARDED,
    UNGUARDED_UNLAID,
    UNIT_CHANGED,
    Action,
    MemberView,
    Running,
    Unit,
    decide,
)
from keel.mesh.etcdstate import Cluster, Marker, Stage, mark_formed
from keel.outcome import Plan
from keel.types import EtcdClusterId
from tests.etcd import make
from tests.etcd.make import F1, F2
from tests.pki.make import NOW

OFF = Unit(active=False, enabled=False, ours=False)
ON = Unit(active=True, enabled=True, ours=True)
CLUSTER_ID = make.formation().cluster_id
MINE = Marker(formation=F1, attempt=1)

FRESH = MemberView(
    address=make.address("c"),
    capable=True,
    confirmed=True,
    window_open=False,
    clock_off=False,
    cluster=make.cluster(),
    record=make.record(),
    has_grant=True,
    has_leaf=False,
    spec_enabled=False,
    stray=StrayMember.MARKED,
    data=DataState.ABSENT,
    marker=None,
    files_current=False,
    drop_in_current=False,
    unit=OFF,
    running=None,
)
STARTED = replace(
    FRESH,
    has_leaf=True,
    spec_enabled=True,
    stray=StrayMember.NONE,
    data=DataState.PRESENT,
    marker=MINE,
    files_current=True,
    drop_in_current=True,
    unit=ON,
)
ELECTED = replace(STARTED, running=Running(cluster_id=CLUSTER_ID, has_leader=True))
FORMED = replace(ELECTED, cluster=make.cluster(Stage.FORMED))
IDLE = replace(FRESH, cluster=make.cluster(Stage.IDLE))


def actions(view: MemberView) -> list[str]:
    return [step.action for step in decide(view, NOW).steps]


def waits_for(view: MemberView) -> list[str]:
    return [one.waiting_for for one in decide(view, NOW).waiting]


def test_from_a_taken_record_to_a_started_etcd() -> None:
    plan = decide(FRESH, NOW)
    assert [step.action for step in plan.steps] == [
        "remove-stray",
        "issue-leaf",
        "enable-spec",
        "write-drop-in",
        "lay-files",
        "start-etcd",
    ]
    assert all(step.subject and step.why for step in plan.steps)
    assert plan.waiting[0].waiting_for == f"{make.address('a')}, {make.address('b')}"


def test_who_comes_into_a_cluster_that_serves_waits_for_no_election() -> None:
    coming = replace(STARTED, record=make.record(state=RecordState.EXISTING))
    (waiting,) = decide(coming, NOW).waiting
    assert waiting.text == (
        f"a vote in the cluster waits for {make.address('a')}, {make.address('b')}: etcd copies the"
        " cluster's data first, as a learner"
    )
    for view in (STARTED, replace(coming, cluster=make.cluster(Stage.FORMED))):
        (waiting,) = decide(view, NOW).waiting
        assert waiting.what == "the election of a leader"


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (replace(IDLE, has_grant=False), []),
        (IDLE, ["issue-leaf", "write-drop-in"]),
        (replace(IDLE, stray=StrayMember.FOREIGN), ["issue-leaf"]),
        (replace(IDLE, unit=replace(ON, ours=False)), ["issue-leaf"]),
        (replace(IDLE, has_leaf=True, drop_in_current=True), []),
        (STARTED, []),
        (replace(STARTED, running=Running(cluster_id=CLUSTER_ID, has_leader=False)), []),
        (ELECTED, ["mark-formed"]),
        (FORMED, []),
        (replace(FORMED, files_current=False), ["lay-files"]),
        (replace(FORMED, unit=OFF, running=None), ["start-etcd"]),
        (replace(FORMED, unit=replace(ON, ours=False)), ["start-etcd"]),
        (replace(FORMED, unit=replace(ON, enabled=False)), ["start-etcd"]),
        (replace(FORMED, stray=StrayMember.FOREIGN), []),
        (replace(STARTED, unit=OFF, data=DataState.EMPTY), ["start-etcd"]),
        (replace(STARTED, unit=OFF, data=DataState.NO_LOG), ["start-etcd"]),
    ],
    ids=[
        "idle", "granted", "granted beside a stranger", "granted while another runs",
        "granted and issued", "started", "no leader yet", "a leader", "formed",
        "renewed", "stopped", "running without our drop-in", "not enabled",
        "a stray after the birth",
        "killed between marker and start", "killed before the log was begun",
    ],
)  # fmt: skip
def test_the_steps_that_are_left(view: MemberView, expected: list[str]) -> None:
    assert actions(view) == expected


@pytest.mark.parametrize(
    ("change", "whom"),
    [
        ({"has_grant": False}, "the holder"),
        ({"capable": False}, "the package keel-overlay-etcd"),
        ({"confirmed": False}, "the inviter"),
        ({"window_open": True}, "the change to the network"),
        ({"clock_off": True}, "the clock"),
        ({"record": None}, "the holder"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_start_waits_and_says_for_whom(change: dict[str, object], whom: str) -> None:
    view = replace(FRESH, **change)  # type: ignore[arg-type]
    assert Action.START_ETCD not in actions(view)
    assert waits_for(view) == [whom]


@pytest.mark.parametrize("view", [IDLE, FRESH], ids=["idle", "starting"])
def test_a_wrong_clock_issues_no_leaf(view: MemberView) -> None:
    view = replace(view, clock_off=True)
    assert Action.ISSUE_LEAF not in actions(view)
    assert Action.LAY_FILES not in actions(view)
    assert waits_for(view) == ["the clock"]


@pytest.mark.parametrize(
    "change", [{}, {"clock_off": True, "has_leaf": True}, {"clock_off": True, "has_grant": False}]
)
def test_only_a_leaf_that_is_to_be_issued_waits_for_the_clock(change: dict[str, bool]) -> None:
    assert waits_for(replace(IDLE, **change)) == []  # type: ignore[arg-type]


def test_an_etcd_that_refuses_keel_waits_for_the_operator_alone() -> None:
    view = replace(FORMED, barred=True, running=None)
    assert (actions(view), waits_for(view)) == ([], ["the operator"])


def test_without_a_grant_there_is_no_leaf_to_issue() -> None:
    view = replace(FRESH, has_grant=False)
    assert Action.ISSUE_LEAF not in actions(view)
    assert Action.LAY_FILES not in actions(view)


def test_a_member_that_was_masked_is_left_down_and_one_that_runs_is_told_of() -> None:
    down, up = replace(OFF, masked=True), replace(ON, masked=True, enabled=False)
    for view in (replace(FORMED, unit=down, running=None), replace(FORMED, unit=up)):
        assert (actions(view), waits_for(view)) == ([], ["the operator"])
    assert actions(replace(FRESH, unit=down))[-1] == Action.START_ETCD


def test_a_member_that_ends_by_itself_waits_for_no_election() -> None:
    ended = replace(OFF, ends=True)
    assert waits_for(replace(FORMED, unit=ended, running=None)) == ["the operator"]
    assert waits_for(replace(STARTED, unit=ended, running=None)) != ["the operator"]


def test_what_runs_is_not_stopped_by_a_wait() -> None:
    assert actions(replace(FORMED, window_open=True)) == []
    assert waits_for(replace(FORMED, window_open=True)) == []
    assert waits_for(replace(STARTED, window_open=True)) == waits_for(STARTED)


def test_a_quorum_is_waited_for_by_the_names_that_are_known() -> None:
    assert waits_for(STARTED) == [f"{make.address('a')}, {make.address('b')}"]
    assert waits_for(replace(STARTED, record=None)) == ["the other members"]


@pytest.mark.parametrize(
    "marker",
    [Marker(formation=F2, attempt=1), Marker(formation=F1, attempt=1)],
    ids=["of a formation that was given up", "of this one's earlier attempt"],
)
def test_data_of_an_earlier_attempt_is_set_aside(marker: Marker) -> None:
    cluster = replace(make.cluster(attempt=2), given_up=(F2,))
    assert actions(replace(STARTED, cluster=cluster, marker=marker, unit=OFF))[:1] == [
        "set-data-aside"
    ]


@pytest.mark.parametrize(
    ("view", "rule"),
    [
        (replace(STARTED, marker=None), "etcd-data-foreign"),
        (replace(STARTED, marker=Marker(formation=F2, attempt=1)), "etcd-data-foreign"),
        (replace(STARTED, marker=Marker(formation=F2, attempt=2)), "etcd-data-foreign"),
        (replace(STARTED, marker=Marker(formation=F1, attempt=2)), "etcd-state-older"),
        (
            replace(FRESH, cluster=Cluster(), marker=Marker(formation=F1, attempt=1)),
            "etcd-state-older",
        ),
        (replace(FORMED, marker=Marker(formation=F1, attempt=0)), "etcd-data-foreign"),
        (replace(FORMED, data=DataState.ABSENT), "etcd-data-missing"),
        (replace(FORMED, data=DataState.EMPTY), "etcd-data-missing"),
        (replace(FORMED, data=DataState.NO_LOG), "etcd-data-missing"),
        (replace(STARTED, data=DataState.NO_LOG, marker=None), "etcd-data-foreign"),
        (replace(FRESH, stray=StrayMember.FOREIGN), "etcd-stray-foreign"),
        (
            replace(ELECTED, running=Running(cluster_id=EtcdClusterId(1), has_leader=True)),
            "etcd-other-cluster",
        ),
    ],
    ids=[
        "unmarked", "another formation's", "a later one of another formation",
        "a later attempt's", "idle, and started before",
        "formed, an earlier attempt's", "formed, no data", "formed, empty",
        "formed, no log", "unmarked, no log", "somebody's stray",
        "another cluster answers",
    ],
)  # fmt: skip
def test_a_plan_is_refused_by_its_own_rule(view: MemberView, rule: str) -> None:
    with pytest.raises(Refused) as caught:
        decide(view, NOW)
    assert caught.value.rule == rule
    assert caught.value.remedy()


def test_data_of_a_formation_that_was_given_up_makes_no_state_an_older_one() -> None:
    cluster = replace(IDLE.cluster, given_up=(F1,))
    assert decide(replace(IDLE, cluster=cluster, marker=MINE), NOW).steps == decide(IDLE, NOW).steps


# every step, executed on the view as the orchestrator would on the machine


def _started(view: MemberView) -> MemberView:
    return replace(view, unit=ON, data=DataState.PRESENT, marker=MINE)


def _formed(view: MemberView) -> MemberView:
    return replace(view, cluster=mark_formed(view.cluster), files_current=False)


EFFECTS: dict[str, Callable[[MemberView], MemberView]] = {
    Action.REMOVE_STRAY: lambda view: replace(view, stray=StrayMember.NONE),
    Action.ISSUE_LEAF: lambda view: replace(view, has_leaf=True, files_current=False),
    Action.ENABLE_SPEC: lambda view: replace(view, spec_enabled=True),
    Action.SET_DATA_ASIDE: lambda view: replace(view, data=DataState.ABSENT, marker=None),
    Action.WRITE_DROP_IN: lambda view: replace(view, drop_in_current=True),
    Action.LAY_FILES: lambda view: replace(view, files_current=True),
    Action.START_ETCD: _started,
    Action.MARK_FORMED: _formed,
}


def settled(view: MemberView) -> MemberView:
    """One step, look again; the others elect a leader as soon as this one runs."""
    for _ in range(20):
        steps = decide(view, NOW).steps
        if not steps and view.running is not None:
            return view
        if steps:
            view = EFFECTS[steps[0].action](view)
        if view.unit.active:
            view = replace(view, running=Running(cluster_id=CLUSTER_ID, has_leader=True))
    raise AssertionError("it never settles")


INTERRUPTED = [
    dict(zip(("has_leaf", "spec_enabled", "drop_in_current", "files_current"), bits, strict=True))
    for bits in itertools.product((False, True), repeat=4)
]


@pytest.mark.parametrize("stray", [StrayMember.NONE, StrayMember.MARKED])
@pytest.mark.parametrize(
    "bits", INTERRUPTED, ids=lambda bits: "".join("01"[v] for v in bits.values())
)
def test_every_interrupted_start_ends_formed(bits: dict[str, bool], stray: StrayMember) -> None:
    end = settled(replace(FRESH, stray=stray, **bits))  # type: ignore[arg-type]
    assert end == replace(FORMED, cluster=mark_formed(FRESH.cluster))


def test_an_attempt_that_was_given_up_ends_formed_as_well() -> None:
    cluster = replace(make.cluster(), given_up=(F2,))
    view = replace(STARTED, unit=OFF, cluster=cluster, marker=Marker(formation=F2, attempt=1))
    assert settled(view).cluster.stage is Stage.FORMED


def test_an_idle_member_never_starts_anything() -> None:
    for unit, data in itertools.product((ON, OFF), DataState):
        view = replace(IDLE, has_leaf=True, unit=unit, data=data)
        assert set(actions(view)) <= {Action.WRITE_DROP_IN}


UNGUARDED_UNIT = replace(ON, guarded=False)
NO_GUARD = replace(ON, foreign="no guard of keel's before it")


@pytest.mark.parametrize(
    "view",
    [FORMED, STARTED, replace(FORMED, running=None), replace(FORMED, barred=True)],
    ids=["serving", "at a birth", "silent", "refusing keel"],
)
def test_an_etcd_that_the_guard_did_not_let_start_is_the_operator_s_to_start_again(
    view: MemberView,
) -> None:
    assert decide(replace(view, unit=UNGUARDED_UNIT), NOW) == Plan(waiting=(UNGUARDED,))


def test_an_etcd_of_another_cluster_that_no_guard_let_start_is_no_refusal() -> None:
    other = Running(cluster_id=EtcdClusterId(1), has_leader=True)
    found = decide(replace(FORMED, unit=UNGUARDED_UNIT, running=other), NOW)
    assert found.waiting == (UNGUARDED,)


def test_keel_s_settings_come_before_the_start_that_loads_them() -> None:
    found = decide(replace(FORMED, unit=UNGUARDED_UNIT, drop_in_current=False), NOW)
    assert [step.action for step in found.steps] == [Action.WRITE_DROP_IN]
    assert found.waiting == (UNGUARDED_UNLAID,)


def test_keel_starts_nothing_by_a_unit_that_somebody_changed() -> None:
    off = replace(FORMED, running=None, unit=replace(NO_GUARD, active=False))
    found = decide(off, NOW)
    assert not found.steps
    (waiting,) = found.waiting
    assert waiting.what == UNIT_CHANGED
    assert "no guard of keel's before it" in waiting.why


def test_a_changed_unit_is_told_while_etcd_still_runs_as_it_was() -> None:
    found = decide(replace(FORMED, unit=NO_GUARD), NOW)
    assert [one.what for one in found.waiting] == [UNIT_CHANGED]


def test_what_a_unit_without_keel_s_drop_in_would_run_is_not_judged() -> None:
    off = replace(FORMED, running=None, drop_in_current=False, unit=replace(NO_GUARD, active=False))
    steps = [step.action for step in decide(off, NOW).steps]
    assert steps == [Action.WRITE_DROP_IN, Action.START_ETCD]
