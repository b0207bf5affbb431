"""Alerts, gauges and silence on whole nodes (E14, E15)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from keel.errors import ProcFailed
from keel.mesh import alerting, etcdstore, report, status, tended
from keel.mesh.duty import Duty, Result
from keel.outcome import Done, Incomplete
from keel.unitnames import ALERT_UNIT
from tests.flow.arranged import arranged
from tests.flow.world import World

HOOK = "https://hooks.example/s3cret"
CHANNELS = (
    f"monitor: {{channels: [{{type: webhook, url: '{HOOK}'}}, {{type: mail, to: root@localhost}},"
    " {type: command, argv: [/usr/bin/tell, x]}]}\n"
)
DAY = 86400.0


@arranged
def two_with_alert_channels(scratch: Path) -> World:
    made = World(scratch)
    made.mesh("ab")
    for name in "ab":
        made.timers(name)
    spec = made.net.nodes["a"].paths.spec
    spec.write_text(spec.read_text() + CHANNELS)
    return made


@pytest.fixture
def world(tmp_path: Path) -> World:
    return two_with_alert_channels(tmp_path)


def tend(world: World, name: str = "a") -> Duty:
    """One pass, a minute and more after the last."""
    world.net.clock.sleep(alerting.LOOK_SECONDS + 1)
    world.sync(name)
    found = next(one for one in world.tend(name) if one.name == alerting.NAME)
    world.settle()
    return found


def events(world: World) -> list[str]:
    """What the webhook was told of the duty `etcd`."""
    taken = [json.loads(what) for who, what in world.net.nodes["a"].alerts.taken if who == HOOK]
    found = [one for each in taken for one in each["alerts"]]
    return [one["event"] for one in found if one["subject"] == "etcd"]


def break_record(world: World) -> Path:
    place = world.host("a").paths.etcd_record
    place.write_bytes(b"{")
    return place


def test_a_failure_is_told_to_every_channel_once_reminded_daily_and_closed(world: World) -> None:
    place = break_record(world)
    assert tend(world).result is Result.DONE
    tend(world)
    assert events(world) == ["raised"]
    world.net.clock.leap(DAY)
    tend(world)
    assert events(world)[1:] == ["reminder"]
    place.unlink()
    tend(world)
    assert events(world)[2:] == ["closed"]
    whom = {who for who, _ in world.net.nodes["a"].alerts.taken}
    assert whom == {HOOK, "root@localhost", "/usr/bin/tell"}
    said = [line for line in world.net.nodes["a"].console.said if line.startswith("alert: ")]
    of_etcd = [line.split(": ")[1] for line in said if "etcd: etcd failed" in line]
    assert of_etcd == ["critical", "still critical", "over"]


def test_a_document_names_mesh_node_and_remedy(world: World) -> None:
    break_record(world)
    tend(world)
    (told,) = [what for who, what in world.net.nodes["a"].alerts.taken if who == HOOK]
    found = json.loads(told)
    assert (found["schema"], found["mesh"], found["node"]) == (
        "keel.alert/1",
        world.loaded("a").mesh,
        "a",
    )
    assert {"event", "code", "subject", "severity", "text", "remedy", "since"} == set(
        found["alerts"][0]
    )


def test_several_at_once_are_one_message(world: World) -> None:
    break_record(world)
    tend(world)
    (mail,) = [what for who, what in world.net.nodes["a"].alerts.taken if who == "root@localhost"]
    assert mail.startswith("keel on a: critical: ")
    assert " and " in mail.splitlines()[0]


def test_what_a_channel_did_not_take_is_told_when_it_answers_again(world: World) -> None:
    node = world.net.nodes["a"]
    node.alerts.deaf.add(HOOK)
    break_record(world)
    tend(world)
    assert events(world) == []
    assert tend(world).result is Result.FAILED
    codes = [one.code for one in etcdstore.load_failures(world.host("a")).entries]
    assert "alert-not-told" in codes
    assert "s3cret" not in str(etcdstore.load_failures(world.host("a")))
    tend(world)
    assert any('"subject": "alerts"' in what for who, what in node.alerts.taken if who != HOOK)
    node.alerts.deaf.clear()
    tend(world)
    assert events(world) == ["raised"]
    tend(world)
    codes = [one.code for one in etcdstore.load_failures(world.host("a")).entries]
    assert "alert-not-told" not in codes


def test_a_unit_that_ends_before_it_tells_anybody_is_a_failure(world: World) -> None:
    node = world.net.nodes["a"]
    tells = node.units.on_start[ALERT_UNIT]
    node.units.on_start[ALERT_UNIT] = lambda: False
    break_record(world)
    assert tend(world).result is Result.DONE
    assert tend(world).result is Result.FAILED
    codes = [one.code for one in etcdstore.load_failures(world.host("a")).entries]
    assert "alert-not-told" in codes
    node.units.on_start[ALERT_UNIT] = tells
    tend(world)
    assert events(world) == ["raised"]
    tend(world)
    codes = [one.code for one in etcdstore.load_failures(world.host("a")).entries]
    assert "alert-not-told" not in codes


def test_what_is_damaged_so_that_status_fails_is_told_all_the_same(world: World) -> None:
    break_record(world)
    tend(world)
    (told,) = [what for who, what in world.net.nodes["a"].alerts.taken if who == HOOK]
    subjects = [one["subject"] for one in json.loads(told)["alerts"]]
    assert {"etcd", "status"} <= set(subjects)


def test_it_is_kept_across_a_restart(world: World) -> None:
    break_record(world)
    tend(world)
    world.net.nodes["a"].new_life()
    tend(world)
    assert events(world) == ["raised"]


def last(world: World) -> str:
    return next(one.text for one in world.tend("a") if one.name == alerting.NAME)


def test_while_all_is_well_it_looks_every_ten_minutes(world: World) -> None:
    world.net.clock.sleep(alerting.QUIET_SECONDS)
    tend(world)
    for seconds, looks in ((5.0, False), (alerting.LOOK_SECONDS, False), (500.0, True)):
        world.net.clock.sleep(seconds)
        assert (last(world) != "looked a moment ago") is looks


def test_while_something_is_wrong_it_looks_every_minute_and_no_faster(world: World) -> None:
    world.net.clock.sleep(alerting.QUIET_SECONDS)
    tend(world)
    break_record(world)
    for seconds, looks in ((5.0, False), (alerting.LOOK_SECONDS, True), (5.0, False)):
        world.net.clock.sleep(seconds)
        assert (last(world) != "looked a moment ago") is looks


def test_a_look_that_fails_is_told_itself_with_what_failed_before(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deaf(interface: str) -> object:
        raise ProcFailed(["wg", "show", interface], 1, "no such module")

    tend(world)
    break_record(world)
    monkeypatch.setattr(world.net.nodes["a"].wireguard, "show", deaf)
    world.net.clock.sleep(alerting.QUIET_SECONDS)
    world.tend("a")
    world.settle()
    (told,) = [what for who, what in world.net.nodes["a"].alerts.taken if who == HOOK]
    assert {one["subject"] for one in json.loads(told)["alerts"]} >= {"etcd", "status"}


def test_a_trial_goes_to_each_channel_and_names_those_that_fail(world: World) -> None:
    host, node = world.host("a"), world.net.nodes["a"]
    came_of = alerting.trial(host, world.spec("a"))
    assert isinstance(came_of, Done)
    assert len(came_of.value) == 3
    node.alerts.deaf.add("root@localhost")
    came_of = alerting.trial(host, world.spec("a"))
    assert isinstance(came_of, Incomplete)
    assert came_of.missing == ("mail root@localhost: no answer",)


def test_the_textfile_has_the_phase_the_ends_and_the_warnings(world: World) -> None:
    place = break_record(world)
    tend(world)
    found = world.net.nodes["a"].metrics
    assert found.value("keel_warning", code="etcd-failed", severity="critical") == 1.0
    assert found.value("keel_warning", code="member-down", severity="critical") == 0.0
    place.unlink()
    tend(world)
    now = world.host("a").clock.now().timestamp()
    assert found.value("keel_etcd_phase", phase="ready") == 1.0
    assert found.value(tended.TENDED) == pytest.approx(now, abs=2)
    ends = found.value("keel_etcd_certificate_not_after_timestamp_seconds", kind="member")
    assert ends is not None
    assert ends > now


def test_a_cluster_is_counted_in_the_textfile(tmp_path: Path) -> None:
    made = World(tmp_path)
    made.cluster("abc")
    made.net.clock.sleep(alerting.QUIET_SECONDS)
    tend(made)
    found = made.net.nodes["a"].metrics
    assert found.value("keel_etcd_members", role="voter") == 3.0
    assert found.value("keel_etcd_quorum") == 2.0
    assert found.value("keel_etcd_fault_tolerance") == 1.0
    assert found.value("keel_crl_number") == 1.0


def test_a_node_that_never_had_a_part_in_the_registry_keeps_what_is_to_be_told(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.mesh("ab", mode="cloud")
    world.net.nodes["a"].power_off()
    host, spec = world.host("b"), world.spec("b")
    assert not host.files.exists(host.paths.etcd)
    world.net.clock.sleep(90)
    alerting.duty(host, spec)
    assert [one.subject for one in alerting.load(host).open] == ["a"]


def silent(world: World, name: str) -> list[str]:
    host, spec = world.host(name), world.spec(name)
    seen = status.look(host, spec)
    found = report.mesh_warnings(spec, seen, host.clock.now())
    return [w.subject for w in found if w.code == "tend-silent"]


def test_what_nothing_tends_is_said_by_it_by_the_others_and_by_the_textfile(world: World) -> None:
    tend(world, "a")
    tend(world, "b")
    world.net.clock.sleep(3 * 300 - 10)
    world.tend("a")
    assert silent(world, "a") == []
    world.net.clock.sleep(20)
    assert silent(world, "a") == ["b"]
    assert silent(world, "b") == ["b"]
    world.sync("b")
    found = world.net.nodes["b"].metrics
    assert found.value("keel_warning", code="tend-silent", severity="critical") == 1.0
    world.tend("b")
    assert silent(world, "a") == []


@pytest.mark.parametrize("stamp", [None, b"{", b'{"monotonic":1e18,"time":"2026-01-01T00:00:00Z"}'])
def test_without_a_stamp_of_this_boot_it_is_the_boot_that_counts(
    world: World, stamp: bytes | None
) -> None:
    host = world.host("a")
    host.paths.tended.unlink()
    if stamp is not None:
        host.paths.tended.write_bytes(stamp)
    world.net.clock.sleep(tended.SILENT_SECONDS)
    assert tended.silent_seconds(host) == int(host.clock.monotonic())


def test_a_boot_is_not_taken_for_a_tend_that_is_silent_since_the_machine_s(world: World) -> None:
    """In a container the clock of the machine goes on, and /run is empty."""
    world.net.clock.sleep(tended.SILENT_SECONDS)
    world.net.nodes["a"].power_off()
    world.boot("a")
    assert tended.silent_seconds(world.host("a")) is None
    world.net.clock.sleep(tended.SILENT_SECONDS)
    assert sorted(silent(world, "a")) == ["a", "b"]


@pytest.mark.parametrize(("stamp", "silent_for"), [(b"{", None), (None, None), (b"old", 900)])
def test_a_boot_replaces_no_stamp_that_can_be_read(
    world: World, stamp: bytes | None, silent_for: int | None
) -> None:
    host = world.host("a")
    tended.note(host)
    world.net.clock.sleep(tended.SILENT_SECONDS)
    if stamp is None:
        host.paths.tended.unlink()
    elif stamp != b"old":
        host.paths.tended.write_bytes(stamp)
    tended.note_boot(host)
    assert tended.silent_seconds(host) == silent_for


def test_a_textfile_that_cannot_be_written_keeps_nobody_untold(world: World) -> None:
    node = world.net.nodes["a"]
    node.metrics.broken = True
    break_record(world)
    assert tend(world).result is Result.FAILED
    assert events(world) == ["raised"]
    codes = [one.code for one in etcdstore.load_failures(world.host("a")).entries]
    assert "disk-trouble" in codes


@pytest.mark.parametrize("damage", [b"network: [", b""], ids=["garbled", "emptied"])
def test_that_the_spec_cannot_be_read_is_told_to_the_channels_that_stood_there(
    world: World, damage: bytes
) -> None:
    tend(world)
    world.net.nodes["a"].paths.spec.write_bytes(damage)
    for _ in range(2):  # seen, and still there later
        world.net.clock.sleep(alerting.QUIET_SECONDS)
        tend(world)
    told = [(who, "spec" in what) for who, what in world.net.nodes["a"].alerts.taken]
    assert {who for who, about_it in told if about_it} == {HOOK, "root@localhost", "/usr/bin/tell"}


def test_channels_that_were_taken_out_or_damaged_are_told_nothing(world: World) -> None:
    kept = world.host("a").paths.channels
    tend(world)
    path = world.net.nodes["a"].paths.spec
    before = path.read_text()
    path.write_text(before.replace(CHANNELS, ""))
    tend(world)
    path.write_text("network: [")
    assert world.held("a").monitor.channels == ()
    path.write_text(before)
    tend(world)
    kept.write_bytes(b"{")
    path.write_text("network: [")
    tend(world)
    assert world.held("a").monitor.channels == ()


def test_a_node_that_never_had_channels_keeps_no_file_of_them(world: World) -> None:
    tend(world, "b")
    assert not world.host("b").paths.channels.exists()
