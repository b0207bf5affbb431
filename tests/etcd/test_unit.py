"""etcd as a unit and files of a machine: rules U1 to U3, and what a kill leaves."""

from __future__ import annotations

from functools import partial
from ipaddress import IPv6Address
from pathlib import Path

import pytest

from keel.errors import Refused
from keel.etcdport import DataState, StrayMember
from keel.ports import UnitRuns
from keel.system.etcd import EtcdUnit
from keel.types import LOCALHOST, Secret
from keel.unitnames import ETCD_UNIT
from tests.fakes import FakeNet, FakeNode, crash_points

FILES = {"member.pem": Secret(b"chain and key"), "etcd.env": Secret(b"ETCD_NAME=a\n")}


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    return FakeNet(tmp_path).node("a")


def unit_of(node: FakeNode) -> EtcdUnit:
    return EtcdUnit(node.paths, files=node.files, units=node.units, proc=node.proc)


def laid(node: FakeNode) -> dict[str, bytes]:
    names = node.files.names(node.paths.laid)
    return {name: (node.paths.laid / name).read_bytes() for name in names}


def test_exactly_the_files_are_laid_and_only_changes_are_told(node: FakeNode) -> None:
    unit = unit_of(node)
    assert unit.lay(FILES) == ("etcd.env", "member.pem")
    assert unit.lay(FILES) == ()
    assert unit.lay({"member.pem": Secret(b"renewed")}) == ("etcd.env", "member.pem")
    assert laid(node) == {"member.pem": b"renewed"}
    assert unit.laid("member.pem") == Secret(b"renewed")
    assert unit.laid("etcd.env") is None


def test_what_is_laid_belongs_to_etcd_alone(node: FakeNode) -> None:
    unit_of(node).lay(FILES)
    assert node.paths.laid.stat().st_mode & 0o777 == 0o700
    assert {p.stat().st_mode & 0o777 for p in node.paths.laid.iterdir()} == {0o600}
    assert set(node.disk.owners.values()) == {"etcd"}


def test_a_kill_while_laying_leaves_whole_files_and_the_next_run_the_rest(
    tmp_path: Path,
) -> None:
    clean = FakeNet(tmp_path / "clean").node("a")
    unit_of(clean).lay(FILES)
    hit = 0
    for point in crash_points(clean.effects):
        node = FakeNet(tmp_path / str(point.number)).node("a")
        node.effects.crash_at = point.number
        assert node.dies(partial(unit_of(node).lay, FILES))
        assert node.effects.crashed_before == point.text
        node.new_life()
        for name in ("member.pem", "etcd.env"):
            found = unit_of(node).laid(name)
            assert found in (None, FILES[name])
        unit_of(node).lay(FILES)
        assert laid(node) == {name: data.reveal() for name, data in FILES.items()}
        hit += 1
    assert hit > 5


def test_the_drop_in_is_written_once_and_the_units_are_loaded_again(node: FakeNode) -> None:
    unit = unit_of(node)
    assert unit.write_drop_in(b"[Service]\n")
    assert not unit.write_drop_in(b"[Service]\n")
    assert node.units.reloads == 1
    assert node.paths.etcd_drop_in.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(("data", "judged"), [(False, 1), (True, 0)], ids=["birth", "data"])
def test_only_a_start_without_data_is_judged_before(
    node: FakeNode, data: bool, judged: int
) -> None:
    calls: list[int] = []

    def judge() -> None:
        calls.append(node.units.unit("etcd.service").starts)

    if data:
        node.paths.etcd_log.mkdir(parents=True)
        (node.paths.etcd_log / "0.wal").touch()
    unit = EtcdUnit(
        node.paths, files=node.files, units=node.units, proc=node.proc, before_birth=judge
    )
    unit.start()
    assert calls == [0] * judged
    assert node.units.unit("etcd.service").starts == 1


@pytest.mark.parametrize("runtime", ["", "--runtime "], ids=["for good", "until the next boot"])
def test_a_start_unmasks_and_enables_what_is_not_enabled(node: FakeNode, runtime: str) -> None:
    unit = node.units.unit("etcd.service")
    unit.masked, unit.until_boot = True, bool(runtime)
    unit_of(node).start()
    assert not unit.masked
    assert node.effects.done == [
        f"run systemctl unmask --quiet --no-reload {runtime}-- etcd.service",
        "enable etcd.service",
        "daemon-reload",
        "start etcd.service",
    ]


@pytest.mark.parametrize("stale", [False, True], ids=["loaded", "stale"])
def test_a_start_loads_the_units_anew_only_when_their_files_changed(
    node: FakeNode, stale: bool
) -> None:
    unit = node.units.unit("etcd.service")
    unit.enabled, unit.stale = True, stale
    unit_of(node).start()
    reloads = ["daemon-reload"] if stale else []
    assert node.effects.done == [*reloads, "start etcd.service"]


def test_a_unit_that_was_changed_and_not_read_yet_starts_nothing(node: FakeNode) -> None:
    changed = node.units.unit(ETCD_UNIT)
    changed.enabled = changed.stale = True
    changed.runs = UnitRuns(start="{ path=/opt/etcd ; argv[]=/opt/etcd ; }")
    with pytest.raises(Refused) as caught:
        unit_of(node).start()
    assert caught.value.rule == "etcd-unit-changed"
    assert changed.starts == 0


def test_a_stop_masks_so_that_no_boot_and_no_upgrade_starts_it(node: FakeNode) -> None:
    unit_of(node).stop()
    assert node.effects.done == [
        "stop etcd.service",
        "disable etcd.service",
        "run systemctl mask --quiet -- etcd.service",
    ]


def test_data_is_what_has_a_write_ahead_log(node: FakeNode) -> None:
    unit = unit_of(node)
    assert unit.data_state() is DataState.ABSENT
    node.paths.etcd_data.mkdir(parents=True)
    assert unit.data_state() is DataState.EMPTY
    (node.paths.etcd_data / "member/snap").mkdir(parents=True)
    (node.paths.etcd_data / "member/snap/db").touch()
    assert unit.data_state() is DataState.NO_LOG
    node.paths.etcd_log.mkdir()
    (node.paths.etcd_log / "0.tmp").touch()  # made ahead, and in no use
    assert unit.data_state() is DataState.NO_LOG
    (node.paths.etcd_log / f"{0:016x}-{0:016x}.wal").touch()
    assert unit.data_state() is DataState.PRESENT


def with_data(node: FakeNode) -> EtcdUnit:
    (node.paths.etcd_data / "member").mkdir(parents=True)
    node.paths.etcd_marker.write_bytes(b"{}")
    return unit_of(node)


def test_data_is_moved_aside_with_its_marker_and_kept(node: FakeNode) -> None:
    unit = with_data(node)
    aside = unit.set_data_aside("1")
    assert aside == node.paths.etcd_data.with_name("data.1")
    assert aside is not None
    assert (aside / "member").is_dir()
    assert node.paths.etcd_marker.with_name("marker.json.1").exists()
    assert not node.paths.etcd_marker.exists()
    assert unit.set_data_aside("2") is None


def test_a_kill_while_moving_never_leaves_data_without_its_marker(tmp_path: Path) -> None:
    clean = FakeNet(tmp_path / "clean").node("a")
    with_data(clean).set_data_aside("1")
    points = list(crash_points(clean.effects))
    assert points
    for point in points:
        node = FakeNet(tmp_path / str(point.number)).node("a")
        unit = with_data(node)
        node.effects.crash_at = point.number
        assert node.dies(partial(unit.set_data_aside, "1"))
        node.new_life()
        assert node.paths.etcd_marker.exists() or not node.paths.etcd_data.exists()


def stray(node: FakeNode, *, marked: bool) -> EtcdUnit:
    (node.paths.stray_data / "member").mkdir(parents=True)
    node.paths.stray_marker.parent.mkdir(parents=True)
    if marked:
        node.paths.stray_marker.write_bytes(b"{}")
    return unit_of(node)


def test_only_a_marked_stray_is_removed(node: FakeNode) -> None:
    unit = stray(node, marked=True)
    assert unit.stray() is StrayMember.MARKED
    unit.remove_stray()
    assert unit.stray() is StrayMember.NONE
    assert "stop etcd.service" in node.effects.done
    assert not node.paths.stray_marker.exists()


def test_anybody_else_s_member_is_refused_by_name(node: FakeNode) -> None:
    unit = stray(node, marked=False)
    assert unit.stray() is StrayMember.FOREIGN
    with pytest.raises(Refused, match="etcd-stray-foreign|default") as caught:
        unit.remove_stray()
    assert caught.value.rule == "etcd-stray-foreign"
    assert "var/lib/etcd/default" in caught.value.summary()
    assert (node.paths.stray_data / "member").is_dir()
    assert node.effects.done == []


def test_a_marker_without_data_is_no_stray(node: FakeNode) -> None:
    node.paths.stray_marker.parent.mkdir(parents=True)
    node.paths.stray_marker.write_bytes(b"{}")
    assert unit_of(node).stray() is StrayMember.NONE


def test_an_address_is_usable_when_a_socket_can_have_it(node: FakeNode) -> None:
    unit = unit_of(node)
    assert unit.address_usable(LOCALHOST)
    assert not unit.address_usable(IPv6Address("fd0a:1b2c:3d4e::dead:1"))
