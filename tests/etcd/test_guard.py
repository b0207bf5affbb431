"""May etcd start? Every refusal by its own rule (G1 to G5)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from keel.errors import Refused
from keel.etcdport import DataState
from keel.mesh.etcdcert import fingerprint
from keel.mesh.etcdguard import (
    Laid,
    StartView,
    asks_for_leaders,
    asks_for_lived,
    judge_start,
)
from keel.mesh.etcdmsg import RecordState
from keel.mesh.etcdpki import encode_credential
from keel.mesh.etcdstate import Marker, Stage
from keel.types import Fingerprint, Secret
from tests.etcd import make
from tests.etcd.make import F1, F2
from tests.pki import make as pki
from tests.pki.make import NOW

ROOT = fingerprint(make.root().certificate)
ENV = {state: f"ETCD_INITIAL_CLUSTER_STATE={state}\n".encode() for state in RecordState}
LAID = Laid(
    trust=make.bundle(),
    crl=make.crl(),
    member=make.credential("c"),
    env=ENV[RecordState.NEW],
)
BIRTH = StartView(
    address=make.address("c"),
    address_present=True,
    cluster=make.cluster(),
    record=make.record(),
    pinned=frozenset({ROOT}),
    laid=LAID,
    data=DataState.ABSENT,
    marker=None,
)
MINE = Marker(formation=F1, attempt=1)
RUNNING = replace(BIRTH, data=DataState.PRESENT, marker=MINE)
FORMED = replace(RUNNING, cluster=make.cluster(Stage.FORMED))
LEARNER = replace(
    BIRTH,
    record=make.record(epoch=2, state=RecordState.EXISTING, names="abcd"),
    laid=replace(LAID, env=ENV[RecordState.EXISTING]),
)


@pytest.mark.parametrize(
    ("view", "state", "marker"),
    [
        (BIRTH, RecordState.NEW, MINE),
        (replace(BIRTH, data=DataState.EMPTY), RecordState.NEW, MINE),
        (replace(RUNNING, data=DataState.NO_LOG), RecordState.NEW, None),
        (replace(BIRTH, marker=MINE), RecordState.NEW, None),
        (replace(BIRTH, marker=Marker(formation=F2, attempt=1)), RecordState.NEW, MINE),
        (LEARNER, RecordState.EXISTING, MINE),
        (replace(LEARNER, leaders=(make.address("a"),)), RecordState.EXISTING, MINE),
        (
            replace(BIRTH, leaders=(make.address("a"),), awaited=True),
            RecordState.EXISTING,
            MINE,
        ),
        (RUNNING, RecordState.EXISTING, None),
        (replace(RUNNING, leaders=(make.address("a"),)), RecordState.EXISTING, None),
        (FORMED, RecordState.EXISTING, None),
        (replace(FORMED, record=None), RecordState.EXISTING, None),
        (replace(FORMED, lived=5, lived_elsewhere=5), RecordState.EXISTING, None),
    ],
    ids=[
        "a birth", "a birth over an empty directory", "killed before the log was begun",
        "killed after the marker",
        "the marker of data that was moved aside", "a learner", "a learner sees the leader",
        "the cluster was born and waits for it",
        "a start again before it was formed", "a start again beside a leader", "formed",
        "formed without its record", "lived as long as peers remember",
    ],
)  # fmt: skip
def test_a_start_is_allowed(view: StartView, state: RecordState, marker: Marker | None) -> None:
    allowed = judge_start(view, NOW)
    assert (allowed.state, allowed.marker, allowed.loaded) == (state, marker, frozenset({ROOT}))


def laid(**changes: object) -> StartView:
    return replace(BIRTH, laid=replace(LAID, **changes))  # type: ignore[arg-type]


OTHER_ROOT = make.root(generation=2)


@pytest.mark.parametrize(
    ("view", "rule"),
    [
        (replace(BIRTH, cluster=make.cluster(Stage.IDLE)), "start-no-cluster"),
        (replace(BIRTH, address_present=False), "start-no-address"),
        (replace(FORMED, foreign="ETCD_WAL_DIR"), "start-settings-foreign"),
        (laid(trust=None), "start-not-laid"),
        (laid(crl=None), "start-not-laid"),
        (laid(member=None), "start-not-laid"),
        (laid(trust=make.bundle() + b"\n"), "start-trust"),
        (laid(trust=b""), "start-trust"),
        (laid(trust=make.bundle(OTHER_ROOT)), "start-trust-differs"),
        (replace(BIRTH, pinned=frozenset({ROOT, Fingerprint("0" * 64)})), "start-trust-differs"),
        (
            replace(BIRTH, record=replace(make.record(), root=Fingerprint("0" * 64))),
            "start-trust-differs",
        ),
        (laid(crl=b""), "start-crl"),
        (laid(crl=make.crl(by=OTHER_ROOT)), "start-crl"),
        (laid(member=make.credential("b")), "start-chain"),
        (laid(member=Secret(b"x")), "start-chain"),
        (replace(FORMED, removed=True), "start-removed"),
        (replace(FORMED, lived=4, lived_elsewhere=5), "start-restored"),
        (replace(RUNNING, marker=None), "start-data-unmarked"),
        (replace(FORMED, marker=None), "start-data-unmarked"),
        (replace(RUNNING, marker=Marker(formation=F2, attempt=1)), "start-data-foreign"),
        (replace(FORMED, marker=Marker(formation=F1, attempt=2)), "start-data-foreign"),
        (replace(FORMED, data=DataState.ABSENT), "start-data-missing"),
        (replace(FORMED, data=DataState.EMPTY, marker=None), "start-data-missing"),
        (replace(FORMED, data=DataState.NO_LOG), "start-data-missing"),
        (replace(FORMED, data=DataState.NO_LOG, marker=None), "start-data-unmarked"),
        (replace(RUNNING, data=DataState.NO_LOG, marker=None), "start-data-unmarked"),
        (replace(BIRTH, served=True), "start-data-missing"),
        (replace(BIRTH, record=None), "start-no-record"),
        (laid(env=ENV[RecordState.EXISTING]), "start-env-stale"),
        (laid(env=b""), "start-env-stale"),
        (replace(BIRTH, leaders=(make.address("a"),)), "start-cluster-exists"),
    ],
    ids=[
        "idle", "no address", "another's setting",
        "no trust", "no CRL", "no certificate", "damaged trust",
        "empty trust", "another root laid", "two roots pinned", "the record's root is another",
        "no CRL in crl.der", "another root's CRL", "another's certificate", "no certificate in it",
        "removed", "restored", "unmarked", "unmarked, formed", "another formation's data",
        "another attempt's data", "formed, no data", "formed, empty", "formed, no log",
        "unmarked, formed, no log", "unmarked, no log", "served before", "no record",
        "stale environment", "no state in the environment", "somebody has a leader",
    ],
)  # fmt: skip
def test_a_start_is_refused_by_its_own_rule(view: StartView, rule: str) -> None:
    with pytest.raises(Refused) as caught:
        judge_start(view, NOW)
    assert caught.value.rule == rule
    assert caught.value.remedy()


def test_an_expired_certificate_stops_the_start_and_a_late_crl_does_not() -> None:
    with pytest.raises(Refused, match="start-chain|member.pem"):
        judge_start(BIRTH, NOW + timedelta(days=40))
    old = replace(BIRTH, laid=replace(LAID, member=renewed()))
    assert judge_start(old, NOW + timedelta(days=40)).marker == MINE


def renewed() -> Secret:
    later = NOW + timedelta(days=39)
    under = make.intermediate(address=make.address("c"))
    return encode_credential(pki.member(under, address=make.address("c"), now=later))


def test_members_are_asked_for_a_leader_only_before_a_birth_over_nothing() -> None:
    asked = [view for view in (BIRTH, RUNNING, FORMED, LEARNER) if asks_for_leaders(view)]
    assert asked == [BIRTH]
    assert not asks_for_leaders(replace(BIRTH, record=None))


def test_peers_are_asked_how_long_the_disk_lived_only_when_it_has_data() -> None:
    assert [asks_for_lived(view) for view in (BIRTH, LEARNER, RUNNING, FORMED)] == [
        False,
        False,
        True,
        True,
    ]
