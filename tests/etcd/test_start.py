"""The guard on a whole fake node: what it observes, asks and writes, and what a kill leaves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv6Address, IPv6Network
from pathlib import Path
from typing import cast

import pytest

from keel import codec
from keel.errors import EtcdError, Refused, StateCorrupt
from keel.etcdport import EtcdApi, EtcdMember, EtcdStatus
from keel.mesh.etcdcert import fingerprint
from keel.mesh.etcdconf import EtcdSettings, render_env, state_of_env, with_state
from keel.mesh.etcdguard import Allowed
from keel.mesh.etcdids import client_url, peer_url
from keel.mesh.etcdmsg import ClusterRecord, RecordState
from keel.mesh.etcdstart import awaits, guard, let_start, restart_due, served
from keel.mesh.etcdstate import Cluster, Lived, Marker, Stage
from keel.ports import UnitRuns
from keel.types import Secret
from keel.unitnames import ETCD_UNIT
from tests.etcd import make
from tests.etcd.make import F1, F2
from tests.fakes import FakeNet, FakeNode, crash_points
from tests.pki import make as pki

ROOT = fingerprint(make.root().certificate)
MINE = Marker(formation=F1, attempt=1)


@dataclass
class Answers:
    """keel.mesh.etcdstart.Questions with the answers written down, and what was asked."""

    led: tuple[IPv6Address, ...] = ()
    lived: int | None = None
    waits: bool = False
    gone: bool = False
    began: bool = False
    asked: list[object] = field(default_factory=list)

    def leaders(self, members: Sequence[IPv6Address]) -> tuple[IPv6Address, ...]:
        self.asked.append(tuple(members))
        return self.led

    def awaits(
        self, leaders: Sequence[IPv6Address], record: ClusterRecord, me: IPv6Address
    ) -> bool:
        self.asked.append((tuple(leaders), record.epoch, me))
        return self.waits

    def served(self, record: ClusterRecord, me: IPv6Address) -> bool:
        self.asked.append((record.epoch, me))
        return self.began

    def removed(self) -> bool:
        return self.gone

    def highest_lived(self) -> int | None:
        self.asked.append("lived")
        return self.lived


def install(
    node: FakeNode, *, cluster: Cluster | None = None, record: ClusterRecord | None = None
) -> FakeNode:
    """What a member has on disk after it took a record and laid its files."""
    node.clock.wrong_by = pki.NOW - node.clock.world.now()
    paths, record = node.paths, record or make.record()
    for directory in (paths.etcd, paths.laid, paths.etcd_marker.parent):
        directory.mkdir(parents=True)
    paths.etcd_cluster.write_bytes(codec.dumps(cluster or make.cluster()))
    paths.etcd_record.write_bytes(make.sealed(record))
    paths.etcd_trust.write_bytes(make.bundle())
    settings = EtcdSettings(
        address=make.address("c"), members=record.members, state=record.state, token=record.token
    )
    for name, data in (
        ("etcd.env", render_env(settings)),
        ("trust.pem", make.bundle()),
        ("crl.der", make.crl()),
        ("member.pem", make.credential("c").reveal()),
    ):
        (paths.laid / name).write_bytes(data)
    return node


def begun(node: FakeNode, marker: Marker = MINE) -> FakeNode:
    """And etcd ran here."""
    node.paths.etcd_log.mkdir(parents=True)
    (node.paths.etcd_log / "0.wal").touch()
    node.paths.etcd_marker.write_bytes(codec.dumps(marker))
    return node


def at_its_address(node: FakeNode) -> FakeNode:
    """keel0 is up with the member's /128."""
    node.host.wireguard.raise_interface("keel0", port=1, mtu=1280, private=Secret(bytes(32)))
    prefix = IPv6Network("fd0a:1b2c:3d4e::/64")
    node.host.wireguard.set_address("keel0", make.address("c"), prefix)
    node.new_life()
    return node


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    return at_its_address(FakeNet(tmp_path).node("c"))


def run(node: FakeNode, questions: Answers | None = None) -> Allowed:
    return guard(node.host, questions or Answers(), invocation="abc", boot="def")


def rule_of(node: FakeNode, questions: Answers | None = None) -> str:
    with pytest.raises(Refused) as caught:
        run(node, questions)
    return caught.value.rule


def test_a_setting_that_somebody_added_to_the_unit_is_refused(node: FakeNode) -> None:
    install(node, cluster=make.cluster(Stage.FORMED))
    begun(node)
    with pytest.raises(Refused) as caught:
        guard(
            node.host,
            Answers(),
            invocation="abc",
            boot="def",
            environment={"ETCD_FORCE_NEW_CLUSTER": "true"},
        )
    assert caught.value.rule == "start-settings-foreign"
    assert not node.paths.etcd_loaded.exists()


@pytest.mark.parametrize(
    ("stage", "environment", "rule"),
    [
        (Stage.FORMED, {"ETCD_FORCE_NEW_CLUSTER": "true"}, "start-settings-foreign"),
        (Stage.IDLE, {}, "start-no-cluster"),
    ],
    ids=["a foreign setting", "no cluster"],
)
def test_what_no_address_would_change_waits_for_none(
    tmp_path: Path, stage: Stage, environment: dict[str, str], rule: str
) -> None:
    node = install(FakeNet(tmp_path).node("c"), cluster=make.cluster(stage))
    before = node.clock.monotonic()
    with pytest.raises(Refused) as caught:
        guard(node.host, Answers(), invocation="abc", boot="def", environment=environment)
    assert caught.value.rule == rule
    assert node.clock.monotonic() == before


def marker_of(node: FakeNode) -> dict[str, object] | None:
    path = node.paths.etcd_marker
    return json.loads(path.read_bytes()) if path.exists() else None


def test_another_program_of_the_unit_is_refused(node: FakeNode) -> None:
    install(node, cluster=make.cluster(Stage.FORMED))
    begun(node)
    node.units.unit(ETCD_UNIT).runs = UnitRuns(start="{ path=/opt/etcd ; argv[]=/opt/etcd ; }")
    with pytest.raises(Refused) as caught:
        run(node)
    assert caught.value.rule == "start-settings-foreign"
    assert "would start etcd with another program, /opt/etcd" in str(caught.value)
    assert not node.paths.etcd_loaded.exists()


def test_a_guard_that_is_run_by_hand_leaves_what_is_told_of_a_running_etcd(node: FakeNode) -> None:
    install(node, cluster=make.cluster(Stage.FORMED))
    begun(node)
    run(node)
    told = node.paths.etcd_loaded.read_bytes()
    node.units.start(ETCD_UNIT)
    guard(node.host, Answers(), invocation="", boot="def")
    assert node.paths.etcd_loaded.read_bytes() == told


def test_an_etcd_is_let_start_by_the_guard_of_its_own_life(node: FakeNode) -> None:
    install(node)
    assert let_start(node.host, node.units.state(ETCD_UNIT))  # it does not run
    node.units.on_start[ETCD_UNIT] = lambda: bool(run_for(node))
    node.units.start(ETCD_UNIT)
    assert let_start(node.host, node.units.state(ETCD_UNIT))
    del node.units.on_start[ETCD_UNIT]
    node.units.restart(ETCD_UNIT)
    assert not let_start(node.host, node.units.state(ETCD_UNIT))
    node.paths.etcd_loaded.unlink()
    assert not let_start(node.host, node.units.state(ETCD_UNIT))


def test_an_etcd_that_started_again_meanwhile_is_judged_by_the_next_look(node: FakeNode) -> None:
    install(node)
    node.units.on_start[ETCD_UNIT] = lambda: bool(run_for(node))
    node.units.start(ETCD_UNIT)
    before = node.units.state(ETCD_UNIT)
    node.units.restart(ETCD_UNIT)
    assert let_start(node.host, before)


def test_what_cannot_be_read_speaks_against_no_running_etcd(node: FakeNode) -> None:
    install(node)
    node.units.start(ETCD_UNIT)
    node.paths.etcd_loaded.parent.mkdir(parents=True, exist_ok=True)
    node.paths.etcd_loaded.write_text("{}")
    assert let_start(node.host, node.units.state(ETCD_UNIT))


def run_for(node: FakeNode) -> Allowed:
    life = node.units.state(ETCD_UNIT).invocation_id
    return guard(node.host, Answers(), invocation=life, boot="def")


def test_a_birth_is_marked_before_it_starts_and_tells_what_it_loads(node: FakeNode) -> None:
    questions = Answers()
    allowed = run(install(node), questions)
    assert allowed.state is RecordState.NEW
    assert marker_of(node) == {"attempt": 1, "formation": F1}
    assert questions.asked == [(make.address("a"), make.address("b"))]
    loaded = json.loads(node.paths.etcd_loaded.read_bytes())
    assert len(loaded.pop("settings")) == 64
    assert loaded == {
        "boot": "def",
        "invocation": "abc",
        "roots": [ROOT],
        "time": "2026-12-01T12:00:00Z",
    }


def test_a_restart_is_due_when_the_settings_are_others_than_those_loaded(node: FakeNode) -> None:
    run(install(node))
    assert not restart_due(node.host)  # it does not run
    node.units.start(ETCD_UNIT)
    assert not restart_due(node.host)
    env = node.paths.laid / "etcd.env"
    born = env.read_bytes()
    env.write_bytes(born.replace(b'"new"', b'"existing"').replace(b"=new", b"=existing"))
    assert not restart_due(node.host)  # only a first start reads that
    env.write_bytes(born + b"ETCD_QUOTA_BACKEND_BYTES=1\n")
    assert restart_due(node.host)
    env.write_bytes(born)
    node.paths.etcd_condition.parent.mkdir(parents=True)
    node.paths.etcd_condition.write_text("# an upgrade changed it\n")
    assert restart_due(node.host)


def test_what_an_older_keel_loaded_calls_for_a_restart(node: FakeNode) -> None:
    run(install(node))
    node.units.start(ETCD_UNIT)
    node.paths.etcd_loaded.write_text("{}")
    assert restart_due(node.host)


def test_a_birth_beside_a_leader_is_refused_and_marks_nothing(node: FakeNode) -> None:
    assert rule_of(install(node), Answers(led=(make.address("a"),))) == "start-cluster-exists"
    assert marker_of(node) is None
    assert not node.paths.etcd_loaded.exists()


def test_a_birth_beside_a_leader_that_waits_for_it_joins_instead(node: FakeNode) -> None:
    a, b, c = (make.address(name) for name in "abc")
    questions = Answers(led=(a,), waits=True)
    assert run(install(node), questions).state is RecordState.EXISTING
    assert questions.asked == [(a, b), ((a,), 1, c)]
    assert marker_of(node) == {"attempt": 1, "formation": F1}
    env = (node.paths.laid / "etcd.env").read_bytes()
    assert state_of_env(env) is RecordState.EXISTING
    assert env == with_state(env, RecordState.NEW).replace(b"STATE=new", b"STATE=existing")


def test_a_learner_asks_nobody_at_first_and_then_whether_it_served_before(node: FakeNode) -> None:
    record = make.record(epoch=2, state=RecordState.EXISTING, names="abcd")
    questions = Answers()
    assert run(install(node, record=record), questions).state is RecordState.EXISTING
    assert questions.asked == []
    assert run(node, questions).state is RecordState.EXISTING
    assert questions.asked == [(2, make.address("c"))]


@pytest.mark.parametrize("lost", ["the data", "the marker as well", "what this boot knows as well"])
def test_a_learner_that_served_and_has_no_data_never_starts(node: FakeNode, lost: str) -> None:
    record = make.record(epoch=2, state=RecordState.EXISTING, names="abcd")
    run(install(node, record=record))
    if lost != "the data":
        node.paths.etcd_marker.unlink()
    if lost == "what this boot knows as well":
        node.paths.etcd_loaded.unlink()
        run(node, Answers(began=True))  # etcd panics once
    assert rule_of(node, Answers(began=True)) == "start-data-missing"


def test_a_start_over_its_own_data_asks_how_long_it_lived(node: FakeNode) -> None:
    begun(install(node))
    node.paths.lived.write_bytes(codec.dumps(Lived(counter=3)))
    questions = Answers(lived=3)
    assert run(node, questions).marker is None
    assert questions.asked == ["lived"]
    assert rule_of(node, Answers(lived=4)) == "start-restored"
    removed = Answers(lived=4, gone=True)
    assert rule_of(node, removed) == "start-removed"
    assert removed.asked == []


@pytest.mark.parametrize("wiped", ["data", "data and marker"])
def test_a_formed_member_that_was_wiped_never_starts(node: FakeNode, wiped: str) -> None:
    install(node, cluster=make.cluster(Stage.FORMED))
    if wiped == "data":
        node.paths.etcd_marker.write_bytes(codec.dumps(MINE))
    assert rule_of(node) == "start-data-missing"


def test_foreign_data_never_starts(node: FakeNode) -> None:
    assert rule_of(begun(install(node), Marker(formation=F2, attempt=1))) == "start-data-foreign"


def test_a_record_of_another_formation_is_none(node: FakeNode) -> None:
    other = make.record(make.formation(name=F2), epoch=2)
    assert rule_of(install(node, record=other)) == "start-no-record"


def test_without_a_record_nothing_is_born(node: FakeNode) -> None:
    install(node).paths.etcd_record.unlink()
    assert rule_of(node) == "start-no-record"


def test_without_files_or_roots_nothing_starts(node: FakeNode) -> None:
    assert rule_of(node) == "start-not-laid"
    install(node)
    node.paths.etcd_trust.unlink()
    assert rule_of(node) == "start-no-trust"
    (node.paths.laid / "etcd.env").write_bytes(b"ETCD_NAME=x\n")
    assert rule_of(node) == "start-not-laid"


@pytest.mark.parametrize("name", ["trust.pem", "crl.der", "member.pem"])
def test_a_missing_laid_file_is_named_by_its_rule(node: FakeNode, name: str) -> None:
    (install(node).paths.laid / name).unlink()
    assert rule_of(node) == "start-not-laid"


@pytest.mark.parametrize("name", ["cluster.json", "record", "trust.pem", "lived"])
def test_a_state_file_that_was_emptied_stops_with_its_path(node: FakeNode, name: str) -> None:
    (install(node).paths.etcd / name).write_bytes(b"")
    with pytest.raises(StateCorrupt) as caught:
        run(node)
    assert caught.value.path == node.paths.etcd / name
    assert marker_of(node) is None


def test_an_emptied_marker_stops_with_its_path(node: FakeNode) -> None:
    begun(install(node)).paths.etcd_marker.write_bytes(b"")
    with pytest.raises(StateCorrupt, match=r"marker\.json"):
        run(node)


def test_no_cluster_no_start(node: FakeNode) -> None:
    install(node).paths.etcd_cluster.unlink()
    assert rule_of(node) == "start-no-cluster"


def test_the_address_is_waited_for_and_given_up_after_a_minute(tmp_path: Path) -> None:
    node = install(FakeNet(tmp_path).node("c"))
    before = node.clock.monotonic()
    assert rule_of(node) == "start-no-address"
    assert 60 <= node.clock.monotonic() - before < 61


def test_a_late_address_is_enough(tmp_path: Path) -> None:
    node = install(FakeNet(tmp_path).node("c"))
    node.clock.world.after(30, lambda: at_its_address(node))
    assert run(node).state is RecordState.NEW


def test_killed_anywhere_it_comes_to_the_same_end(tmp_path: Path) -> None:
    clean = install(at_its_address(FakeNet(tmp_path / "clean").node("c")))
    run(clean)
    points = list(crash_points(clean.effects))
    assert len(points) > 5
    for point in points:
        node = install(at_its_address(FakeNet(tmp_path / str(point.number)).node("c")))
        node.effects.crash_at = point.number
        assert node.dies(partial(run, node))
        assert node.effects.crashed_before == point.text
        node.new_life()
        assert run(node).state is RecordState.NEW
        assert marker_of(node) == {"attempt": 1, "formation": F1}
        assert node.paths.etcd_loaded.read_bytes() == clean.paths.etcd_loaded.read_bytes()


@dataclass
class Listed:
    """As much of an etcd as awaits() asks of one."""

    cluster_id: int = 0
    lists: tuple[EtcdMember, ...] = ()
    broken: bool = False

    def status(self, *, timeout_seconds: float = 20.0) -> EtcdStatus:
        if self.broken:
            raise EtcdError(14, "no answer")
        return EtcdStatus(
            member_id=1,
            cluster_id=self.cluster_id,
            leader=1,
            raft_term=1,
            raft_index=1,
            applied_index=1,
            learner=False,
            db_size_bytes=1,
            version="3.5.16",
            errors=(),
        )

    def members(self, *, timeout_seconds: float = 20.0) -> tuple[EtcdMember, ...]:
        return self.lists


def listed(names: str, *, started: str = "") -> tuple[EtcdMember, ...]:
    return tuple(
        EtcdMember(
            id=ord(name),
            name=f"keel-{name}" if name in started else "",
            peer_urls=(peer_url(make.address(name)),),
            client_urls=(client_url(make.address(name)),) if name in started else (),
            learner=False,
        )
        for name in names
    )


OURS = make.formation().cluster_id


@pytest.mark.parametrize(
    ("etcds", "expected"),
    [
        ([Listed(OURS, listed("abc", started="ab"))], True),
        ([Listed(OURS, listed("abc", started="abc"))], False),
        ([Listed(OURS, listed("ab", started="ab"))], False),
        ([Listed(OURS, listed("abcd", started="ab"))], False),
        ([Listed(7, listed("abc", started="ab"))], False),
        ([Listed(broken=True), Listed(OURS, listed("abc", started="ab"))], True),
        ([Listed(broken=True)], False),
        ([], False),
    ],
    ids=[
        "never started", "started once", "removed", "another member more", "another cluster",
        "the second answers", "nobody answers", "nobody",
    ],
)  # fmt: skip
def test_only_the_record_s_cluster_can_wait_for_a_member(
    etcds: list[Listed], expected: bool
) -> None:
    by_address = {make.address(name): etcd for name, etcd in zip("ab", etcds, strict=False)}

    def at(address: IPv6Address) -> EtcdApi:
        return cast(EtcdApi, by_address[address])

    assert awaits(at, tuple(by_address), make.record(), make.address("c")) is expected


@pytest.mark.parametrize(
    ("etcds", "expected"),
    [
        ([Listed(OURS, listed("abc", started="abc"))], True),
        ([Listed(OURS, listed("abc", started="ab"))], False),
        ([Listed(OURS, listed("ab", started="ab"))], False),
        ([Listed(7, listed("abc", started="abc"))], False),
        ([Listed(broken=True), Listed(OURS, listed("abc", started="abc"))], True),
        ([Listed(broken=True), Listed(broken=True)], False),
    ],
    ids=[
        "started", "never started", "removed", "another cluster", "the second answers",
        "nobody answers",
    ],
)  # fmt: skip
def test_who_is_listed_as_started_served_before(etcds: list[Listed], expected: bool) -> None:
    by_address = {make.address(name): etcd for name, etcd in zip("ab", etcds, strict=False)}

    def at(address: IPv6Address) -> EtcdApi:
        return cast(EtcdApi, by_address.get(address, Listed(broken=True)))

    assert served(at, make.record(), make.address("c")) is expected
