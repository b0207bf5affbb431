"""The small adapters: locks, clock, chance, firewall, units, machine, console."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Sequence
from functools import partial
from ipaddress import ip_address
from pathlib import Path

import pytest

from keel.errors import BadValue, DeadlinePassed, DiskTrouble, LockHeld, ProcFailed
from keel.ports import Completed, UnitRuns, UnitState
from keel.system.chance import SystemChance
from keel.system.clock import SystemClock
from keel.system.console import Colour, StderrConsole, use_colour
from keel.system.firewall import Nftables
from keel.system.locks import Flocks
from keel.system.machine import LinuxMachine, underlay_addresses
from keel.system.units import Systemd
from keel.types import Endpoint
from tests.fakes import Call, FakeProc, RecordingConsole, VirtualClock

# locks


def test_a_lock_holds_its_pid_and_is_free_again_after(tmp_path: Path) -> None:
    locks = Flocks(SystemClock(), RecordingConsole())
    with locks.hold(tmp_path / "run/lock", what="this node"):
        assert (tmp_path / "run/lock").read_text() == f"{os.getpid()}\n"
    assert (tmp_path / "run/lock").read_text() == ""
    with locks.hold(tmp_path / "run/lock", what="this node"):
        pass


def test_a_held_lock_names_its_holder_after_the_wait(tmp_path: Path) -> None:
    clock = VirtualClock()
    locks = Flocks(clock, RecordingConsole())
    with (
        locks.hold(tmp_path / "lock", what="this node"),
        pytest.raises(LockHeld) as caught,
        locks.hold(tmp_path / "lock", what="this node", wait_seconds=2),
    ):
        raise AssertionError
    assert caught.value.pid == os.getpid()
    assert clock.monotonic() == pytest.approx(2)


def test_who_waits_for_a_lock_for_long_is_told_for_what(tmp_path: Path) -> None:
    clock, console = VirtualClock(), RecordingConsole()
    locks = Flocks(clock, console)
    for seconds, told in ((0.5, False), (2.0, True)):
        first = locks.hold(tmp_path / "lock", what="this node")
        first.__enter__()
        clock.after(seconds, partial(first.__exit__, None, None, None))
        with locks.hold(tmp_path / "lock", what="this node", wait_seconds=5):
            said = f"waiting: this node is held by process {os.getpid()}"
            assert set(console.waited) == ({said} if told else set())


def test_without_a_wait_a_held_lock_is_said_at_once(tmp_path: Path) -> None:
    clock = VirtualClock()
    locks = Flocks(clock, RecordingConsole())
    with (
        locks.hold(tmp_path / "lock", what="this node"),
        pytest.raises(LockHeld),
        locks.hold(tmp_path / "lock", what="this node"),
    ):
        raise AssertionError
    assert clock.monotonic() == 0


def test_a_lock_that_is_released_meanwhile_is_taken(tmp_path: Path) -> None:
    clock = VirtualClock()
    locks = Flocks(clock, RecordingConsole())
    first = locks.hold(tmp_path / "lock", what="this node")
    first.__enter__()
    clock.after(0.5, lambda: first.__exit__(None, None, None))
    with locks.hold(tmp_path / "lock", what="this node", wait_seconds=5):
        assert clock.monotonic() < 1


def test_the_lock_of_a_process_that_was_killed_is_free(tmp_path: Path) -> None:
    locks = Flocks(SystemClock(), RecordingConsole())
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        with locks.hold(tmp_path / "lock", what="this node"):
            os.write(tell, b"x")
            time.sleep(60)
    try:
        os.read(ready, 1)
        with pytest.raises(LockHeld) as caught, locks.hold(tmp_path / "lock", what="this node"):
            raise AssertionError
        assert caught.value.pid == child
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
    with locks.hold(tmp_path / "lock", what="this node"):
        pass


def test_a_lock_that_cannot_be_made_is_disk_trouble(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with (
        pytest.raises(DiskTrouble),
        Flocks(SystemClock(), RecordingConsole()).hold(tmp_path / "file/lock", what="x"),
    ):
        raise AssertionError


def test_a_lock_holds_where_its_holders_pid_cannot_be_written() -> None:
    locks, full = Flocks(SystemClock(), RecordingConsole()), Path("/dev/full")
    with (
        locks.hold(full, what="x"),
        pytest.raises(LockHeld) as caught,
        locks.hold(full, what="x"),
    ):
        raise AssertionError
    assert caught.value.pid is None


# clock and chance


def test_the_clock_is_aware_and_goes_on() -> None:
    clock = SystemClock()
    before = clock.monotonic()
    clock.sleep(0.001)
    clock.sleep(-1)
    assert clock.monotonic() > before
    offset = clock.now().utcoffset()
    assert offset is not None
    assert offset.total_seconds() == 0


def test_chance_gives_what_is_asked_for() -> None:
    chance = SystemChance()
    assert len(chance.bytes(32)) == 32
    assert chance.bytes(32) != chance.bytes(32)


# firewall


def test_rules_are_loaded_by_stdin_and_dropped_by_name() -> None:
    proc = FakeProc()
    Nftables(proc).load("table inet keel")
    Nftables(proc).drop()
    assert proc.calls == [
        Call(("nft", "-f", "-"), b"table inet keel"),
        Call(("nft", "delete", "table", "inet", "keel")),
    ]


def test_a_table_that_is_not_there_is_dropped_already_and_other_trouble_is_not() -> None:
    proc = FakeProc()
    proc.answers["nft",] = Completed(
        returncode=1, stdout=b"", stderr=b"Error: No such file or directory\ndelete table"
    )
    Nftables(proc).drop()
    proc.answers["nft",] = Completed(returncode=1, stdout=b"", stderr=b"Operation not permitted")
    with pytest.raises(ProcFailed):
        Nftables(proc).drop()


# units


def test_the_state_of_a_unit_is_parsed() -> None:
    proc = FakeProc()
    proc.answers["systemctl", "show"] = (
        b"ActiveState=active\nSubState=running\nMainPID=7\nInvocationID=ab\nUnitFileState=enabled\n"
        b"NeedDaemonReload=yes\nUser=etcd\n"
        b"ExecStart={ path=/usr/bin/etcd ; argv[]=/usr/bin/etcd $DAEMON_ARGS ; pid=7 }\n"
        b"ExecStartPre={ path=/bin/true ; argv[]=/bin/true ; pid=5 }\n"
        b"ExecStartPre={ path=/guard ; argv[]=/guard ; pid=6 }\n"
    )
    assert Systemd(proc).state("etcd.service") == UnitState(
        active="active",
        sub="running",
        main_pid=7,
        invocation_id="ab",
        enabled="enabled",
        stale=True,
        runs=UnitRuns(
            start="{ path=/usr/bin/etcd ; argv[]=/usr/bin/etcd $DAEMON_ARGS ; pid=7 }",
            before="{ path=/bin/true ; argv[]=/bin/true ; pid=5 }\n"
            "{ path=/guard ; argv[]=/guard ; pid=6 }",
            user="etcd",
        ),
    )
    assert proc.calls[0].argv[-2:] == ("--", "etcd.service")


@pytest.mark.parametrize(
    ("said", "comes_up"),
    [
        pytest.param("ActiveState=activating\nSubState=start", True, id="not ready yet"),
        pytest.param("ActiveState=activating\nSubState=start-pre", True, id="its guard runs"),
        pytest.param("ActiveState=activating\nSubState=auto-restart", False, id="it ended"),
        pytest.param(
            "ActiveState=activating\nSubState=start\nNRestarts=1", False, id="tried again"
        ),
        pytest.param("ActiveState=inactive\nSubState=dead\nJob=812", True, id="after another"),
        pytest.param("ActiveState=inactive\nSubState=dead\nJob=", False, id="stopped"),
        pytest.param("ActiveState=failed\nSubState=failed\nJob=812", False, id="failed"),
        pytest.param("ActiveState=active\nSubState=running", False, id="it runs"),
    ],
)
def test_a_unit_comes_up_by_its_first_try_alone(said: str, comes_up: bool) -> None:
    proc = FakeProc()
    proc.answers["systemctl", "show"] = said.encode()
    assert Systemd(proc).state("etcd.service").comes_up is comes_up


def test_a_unit_that_is_not_there_is_inactive() -> None:
    assert Systemd(FakeProc()).state("none.service") == UnitState(
        active="inactive", sub="dead", main_pid=0, invocation_id="", enabled=""
    )


def test_units_are_changed_by_these_commands() -> None:
    proc = FakeProc()
    units = Systemd(proc)
    units.start("a")
    units.start("a", "b", block=False)
    units.stop("a")
    units.restart("a")
    units.restart("a", block=False)
    units.enable("a", "b")
    units.disable("a")
    units.reload_configuration()
    assert [" ".join(call.argv[1:]) for call in proc.calls] == [
        "start -- a",
        "start --no-block -- a b",
        "stop -- a",
        "restart -- a",
        "restart --no-block -- a",
        "enable --quiet --no-reload -- a b",
        "disable --quiet -- a",
        "daemon-reload",
    ]


def test_a_systemd_that_does_not_say_when_it_started_counts_from_now() -> None:
    proc = FakeProc()
    Systemd(proc).schedule("a.service", seconds=120)
    assert proc.calls[1].argv[3] == "--on-active=120s"


def test_a_unit_is_scheduled_to_the_second_and_unscheduled_again() -> None:
    proc = FakeProc()
    units = Systemd(proc, monotonic=lambda: 1000.25)
    proc.answers["systemctl", "show", "--value"] = b"400000000\n"
    units.schedule("a.service", seconds=120)
    proc.answers["systemctl", "stop"] = Completed(returncode=5, stdout=b"", stderr=b"not loaded")
    units.unschedule("a.service")
    proc.answers["systemctl", "show"] = b"ActiveState=active\n"
    assert units.scheduled("a.service")
    assert [call.argv for call in proc.calls[1:3]] == [
        (
            "systemd-run",
            "--quiet",
            "--unit=a.service",
            "--on-startup=720.250s",
            "--timer-property=AccuracySec=1s",
        ),
        ("systemctl", "stop", "--", "a.timer"),
    ]
    assert proc.calls[2].argv[-1] == "a.timer"


# machine

SESSIONS = """\
0 0 192.0.2.1:22 198.51.100.7:51334 users:(("sshd-session",pid=9,fd=4),("sshd-session",pid=7,fd=4))
0 36 [fd00::1]:22 [fd00::2]:40000 users:(("sshd",pid=5,fd=4))
0 0 [::ffff:192.0.2.1]:22 [::ffff:198.51.100.9]:4 users:(("sshd",pid=6,fd=4))
0 0 [fe80::1%eth0]:22 [fe80::2%eth0]:4 users:(("sshd",pid=8,fd=4))
0 0 192.0.2.1:22 198.51.100.7:51335 users:(("sshd-session",pid=9,fd=4))
0 0 192.0.2.1:4000 203.0.113.1:22 users:(("ssh",pid=10,fd=3))
0 0 [fd00::1]:4780 [fd00::3]:999 users:(("channel",pid=11,fd=3))
0 0 192.0.2.1:5 203.0.113.1:6
"""


def test_the_far_ends_of_ssh_sessions_are_found_once_each() -> None:
    proc = FakeProc()
    proc.answers["ss",] = SESSIONS.encode()
    assert LinuxMachine(proc).ssh_sessions() == tuple(
        map(ip_address, ["198.51.100.7", "fd00::2", "198.51.100.9", "fe80::2"])
    )


@pytest.mark.parametrize("line", ['0 users:(("sshd",pid=5,fd=4))', '0 0 a b:1 users:(("sshd",'])
def test_what_ss_never_prints_is_refused(line: str) -> None:
    proc = FakeProc()
    proc.answers["ss",] = line.encode()
    with pytest.raises(BadValue):
        LinuxMachine(proc).ssh_sessions()


def _link(name: str, kind: str, *addresses: str, **flags: bool) -> dict[str, object]:
    info = [
        {"family": "inet6", "local": each, "scope": "global", **flags} for each in addresses
    ] + [{"family": "inet6", "local": "fe80::1", "scope": "link"}]
    return {"ifname": name, "linkinfo": {"info_kind": kind} if kind else {}, "addr_info": info}


@pytest.mark.parametrize(
    ("links", "expected"),
    [
        pytest.param([_link("eth0", "", "192.168.0.7")], ["192.168.0.7"], id="a private one"),
        pytest.param(
            [_link("eth0", "", "192.168.0.7", "9.9.9.9"), _link("eth1", "", "2600::1")],
            ["9.9.9.9", "2600::1", "192.168.0.7"],
            id="public ones first",
        ),
        pytest.param(
            [_link("eth0", "", "192.168.0.7"), _link("wg5", "wireguard", "fd00::1")],
            ["192.168.0.7"],
            id="without WireGuard of the kernel",
        ),
        pytest.param(
            [_link("eth0", "", "192.168.0.7"), _link("keel0", "tun", "fd00::1")],
            ["192.168.0.7"],
            id="without overlays",
        ),
        pytest.param(
            [_link("eth0", "", "192.168.0.7"), _link("tun0", "tun", "10.8.0.2")],
            ["192.168.0.7"],
            id="without a VPN's TUN",
        ),
        pytest.param(
            [_link("tun0", "tun", "10.8.0.2"), _link("keel0", "tun", "fd00::1")],
            ["10.8.0.2"],
            id="a TUN where there is nothing else",
        ),
        pytest.param([_link("eth0", "", "9.9.9.9", temporary=True)], [], id="without temporary"),
        pytest.param([_link("eth0", "", "9.9.9.9", deprecated=True)], [], id="without deprecated"),
        pytest.param(
            [_link("eth0", "", "9.9.9.9"), _link("br0", "bridge", "9.9.9.9")],
            ["9.9.9.9"],
            id="each once",
        ),
        pytest.param([{}], [], id="a link that was filtered away"),
    ],
)
def test_underlay_addresses(links: list[dict[str, object]], expected: list[str]) -> None:
    found = underlay_addresses(json.dumps(links), overlays=["keel0"])
    assert found == tuple(ip_address(each) for each in expected)


@pytest.mark.parametrize("text", ["", "{}1", '["a"]', '[{"addr_info":[1]}]'])
def test_what_ip_does_not_print_is_refused(text: str) -> None:
    with pytest.raises(BadValue):
        underlay_addresses(text, overlays=[])


def test_endpoints_leave_out_what_wg_shows() -> None:
    proc = FakeProc()
    proc.answers["wg", "show", "interfaces"] = b"keel0 wg1\n"
    proc.answers["ip",] = json.dumps(
        [_link("keel0", "tun", "fd00::1"), _link("eth0", "", "9.9.9.9")]
    ).encode()
    assert LinuxMachine(proc).underlay_endpoints(51820) == (Endpoint.parse("9.9.9.9:51820"),)


def test_facts_of_this_process() -> None:
    machine = LinuxMachine(FakeProc())
    assert machine.hostname() == machine.hostname().lower().split(".")[0]
    assert machine.is_root() == (os.geteuid() == 0)


def _sysctls(root: Path, **values: int) -> Path:
    directory = root / "proc/sys/net/ipv4"
    directory.mkdir(parents=True)
    for name, value in values.items():
        (directory / name).write_text(f"{value}\n")
    return directory


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        pytest.param(
            {"tcp_rto_max_ms": 120000, "tcp_retries2": 15},
            {"tcp_rto_max_ms": 2000, "tcp_retries2": 15},
            "tcp_rto_max_ms=2000",
            id="the newer setting alone",
        ),
        pytest.param({"tcp_retries2": 15}, {"tcp_retries2": 5}, "tcp_retries2=5", id="the older"),
        pytest.param(
            {"tcp_retries2": 3}, {"tcp_retries2": 3}, "tcp_retries2=3", id="lower already"
        ),
        pytest.param({}, {}, "off", id="neither"),
    ],
)
def test_tcp_is_bounded_by_what_the_kernel_has(
    tmp_path: Path, before: dict[str, int], after: dict[str, int], said: str
) -> None:
    directory = _sysctls(tmp_path, **before)
    assert LinuxMachine(FakeProc(), root=tmp_path).bound_tcp() == said
    assert {name: int((directory / name).read_text()) for name in before} == after


def test_tcp_that_nobody_bounded_is_off_and_looking_changes_nothing(tmp_path: Path) -> None:
    directory = _sysctls(tmp_path, tcp_retries2=15)
    assert LinuxMachine(FakeProc(), root=tmp_path).tcp_bound_now() == "off"
    assert (directory / "tcp_retries2").read_text() == "15\n"


@pytest.mark.parametrize(
    ("shown", "synchronized"), [(b"yes\n", True), (b"no\n", False), (None, False)]
)
def test_ntp_is_asked_of_systemd(shown: bytes | None, synchronized: bool) -> None:
    class Systemd(FakeProc):
        def run(self, argv: Sequence[str], **_: object) -> Completed:
            assert argv[0] == "timedatectl"
            if shown is None:
                raise DeadlinePassed("timedatectl", "D-Bus")
            return Completed(returncode=0, stdout=shown, stderr=b"")

    assert LinuxMachine(Systemd()).clock_synchronized() is synchronized


@pytest.mark.parametrize(("before", "after"), [(5, 15), (15, 15), (3, 3)])
def test_only_keels_own_bound_is_undone(tmp_path: Path, before: int, after: int) -> None:
    directory = _sysctls(tmp_path, tcp_retries2=before)
    LinuxMachine(FakeProc(), root=tmp_path).unbound_tcp()
    assert int((directory / "tcp_retries2").read_text()) == after


def test_a_kernel_that_has_no_bound_has_none_to_undo(tmp_path: Path) -> None:
    LinuxMachine(FakeProc(), root=tmp_path).unbound_tcp()


def test_a_setting_that_cannot_be_written_is_reported_as_it_is(tmp_path: Path) -> None:
    directory = _sysctls(tmp_path, tcp_retries2=15)
    (directory / "tcp_retries2").unlink()
    (directory / "tcp_retries2").symlink_to("/proc/sys/kernel/ngroups_max")  # no root may write it
    assert LinuxMachine(FakeProc(), root=tmp_path).bound_tcp() == "off"


# console


class Stream(io.StringIO):
    def __init__(self, *, tty: bool) -> None:
        super().__init__()
        self._tty = tty

    def isatty(self) -> bool:
        return self._tty


@pytest.mark.parametrize(
    ("tty", "environ", "colour", "expected"),
    [
        pytest.param(True, {}, "auto", True, id="terminal"),
        pytest.param(False, {}, "auto", False, id="pipe"),
        pytest.param(True, {"NO_COLOR": "1"}, "auto", False, id="NO_COLOR"),
        pytest.param(True, {"NO_COLOR": ""}, "auto", True, id="an empty NO_COLOR is unset"),
        pytest.param(True, {"TERM": "dumb"}, "auto", False, id="dumb"),
        pytest.param(True, {"NO_COLOR": "1"}, "always", True, id="always wins"),
        pytest.param(True, {}, "never", False, id="never"),
    ],
)
def test_when_there_is_colour(
    tty: bool, environ: dict[str, str], colour: Colour, expected: bool
) -> None:
    assert use_colour(Stream(tty=tty), environ, colour) is expected


def test_on_a_pipe_a_line_per_change_and_a_heartbeat() -> None:
    clock, stream = VirtualClock(), Stream(tty=False)
    console = StderrConsole(clock, stream=stream, environ={})
    for _ in range(20):
        console.waiting("waiting for b")
        clock.sleep(1)
    console.waiting("waiting for c")
    console.say("b is here")
    assert stream.getvalue().splitlines() == [
        "waiting for b",
        "waiting for b",
        "waiting for c",
        "b is here",
    ]


def test_on_a_terminal_one_live_line_that_goes_before_anything_else_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    stream = Stream(tty=True)
    console = StderrConsole(VirtualClock(), stream=stream, environ={"NO_COLOR": "1"})
    console.waiting("waiting")
    console.waiting("waiting for one whose name is long")
    console.say("done")
    assert stream.getvalue() == ("\r\x1b[Kwaiting\r\x1b[Kwaiting for one ...\r\x1b[Kdone\n")


def test_the_live_line_is_dim_where_there_is_colour() -> None:
    stream = Stream(tty=True)
    console = StderrConsole(VirtualClock(), stream=stream, environ={})
    console.waiting("x")
    console.end()
    assert stream.getvalue() == "\r\x1b[K\x1b[2mx\x1b[0m\r\x1b[K"


def test_quiet_says_nothing() -> None:
    stream = Stream(tty=False)
    console = StderrConsole(VirtualClock(), stream=stream, environ={}, quiet=True)
    console.say("x")
    console.waiting("y")
    assert stream.getvalue() == ""


def test_a_reader_that_is_gone_stops_nothing() -> None:
    stream = Stream(tty=False)
    console = StderrConsole(VirtualClock(), stream=stream, environ={})
    stream.close()
    console.say("x")
    console.say("y")
