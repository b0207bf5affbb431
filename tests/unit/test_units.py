"""The units: how exposed they leave the machine, and the promises that other parts rely on."""

from __future__ import annotations

import configparser
import subprocess
from ipaddress import IPv6Network
from pathlib import Path

import pytest

import keel
from keel.cli import parser
from keel.cli.tree import TREE
from keel.mesh.client import MAX_WORKERS
from keel.mesh.etcdconf import render_drop_in
from keel.mesh.limits import LASTS, Limits
from keel.paths import Paths
from keel.spec.model import DEFAULT_INTERFACE
from keel.unitnames import PASSES
from tests.fakes import fence

REPOSITORY = Path(keel.__file__).parent.parent
SYSTEMD = REPOSITORY / "systemd"
SERVICES = sorted(SYSTEMD.glob("*.service"))
UNITS = sorted([*SERVICES, *SYSTEMD.glob("*.socket"), *SYSTEMD.glob("*.timer")])
LIBEXEC = {path.name for path in (REPOSITORY / "debian" / "libexec").iterdir()}

KEEL_LIMIT = 30
ETCD_LIMIT = 20
"""Of systemd-analyze's exposure, 0 to 100."""

# Debian 13's own unit, without its comments.
DEBIANS_ETCD = """\
[Unit]
Description=etcd - highly-available key value store
Documentation=man:etcd
After=network.target
Wants=network-online.target
[Service]
Environment=DAEMON_ARGS=
Environment=ETCD_NAME=%H
Environment=ETCD_DATA_DIR=/var/lib/etcd/default
EnvironmentFile=-/etc/default/%p
Type=notify
User=etcd
PermissionsStartOnly=true
ExecStart=/usr/bin/etcd $DAEMON_ARGS
Restart=on-abnormal
LimitNOFILE=65536
[Install]
WantedBy=multi-user.target
Alias=etcd2.service
"""


def exposure(limit: int, root: Path, unit: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            "systemd-analyze",
            "security",
            "--no-pager",
            "--offline=true",
            f"--threshold={limit}",
            f"--root={root}",
            unit,
        ],
        capture_output=True,
        text=True,
    )


def installed(root: Path, texts: dict[str, str]) -> Path:
    for name, text in texts.items():
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return root


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.name)
def test_a_service_is_hardened(path: Path, tmp_path: Path) -> None:
    name = path.name.replace("@", "@keel0")
    root = installed(tmp_path, {f"usr/lib/systemd/system/{path.name}": path.read_text()})
    done = exposure(KEEL_LIMIT, root, name)
    assert done.returncode == 0, done.stdout + done.stderr


def test_etcd_is_hardened(tmp_path: Path) -> None:
    drop_in = render_drop_in(IPv6Network("fd00:1:2:3::/64")).decode()
    root = installed(
        tmp_path,
        {
            "usr/lib/systemd/system/etcd.service": DEBIANS_ETCD,
            "etc/systemd/system/etcd.service.d/50-keel.conf": drop_in,
        },
    )
    done = exposure(ETCD_LIMIT, root, "etcd.service")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_gate_can_turn_red(tmp_path: Path) -> None:
    root = installed(tmp_path, {"usr/lib/systemd/system/etcd.service": DEBIANS_ETCD})
    assert exposure(ETCD_LIMIT, root, "etcd.service").returncode != 0


def section(path: Path, name: str) -> dict[str, list[str]]:
    """Every value of every key of one section, in order."""
    found: dict[str, list[str]] = {}
    current = ""
    for line in path.read_text().splitlines():
        if line.startswith("["):
            current = line.strip("[]")
        elif current == name and "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_has_its_man_page(path: Path) -> None:
    (page,) = section(path, "Unit")["Documentation"]
    assert page.removeprefix("man:") in ("keel-mesh(8)", "keel-mesh-etcd(8)")


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.name)
def test_a_service_starts_something_that_there_is(path: Path) -> None:
    program, *argv = section(path, "Service")["ExecStart"][0].split()
    if program == "/usr/bin/keel":
        assert parser.parse(TREE, argv).verb
    elif program.startswith("/usr/libexec/keel/"):
        assert program.rpartition("/")[2] in LIBEXEC
    else:
        assert program == "/usr/bin/wireguard-go"


@pytest.mark.parametrize(
    "path", [*SERVICES, SYSTEMD / "keel-mesh-etcd-fast.timer"], ids=lambda path: path.name
)
def test_what_is_started_again_and_again_is_never_started_too_often(path: Path) -> None:
    """systemd refuses the sixth start in ten seconds; members' messages and commands ask for more
    passes than that on a quick machine, and none of them may be lost."""
    assert section(path, "Unit")["StartLimitIntervalSec"] == ["0"]


@pytest.mark.parametrize("unit", PASSES)
def test_a_pass_that_a_leave_stops_is_no_unit_that_failed(unit: str) -> None:
    """Of a oneshot a signal is a failure, unless the unit says otherwise."""
    (clean,) = section(SYSTEMD / unit, "Service")["SuccessExitStatus"]
    assert clean.split() == ["4", "5", "SIGTERM"]


@pytest.mark.parametrize("path", SYSTEMD.glob("*.timer"), ids=lambda path: path.name)
def test_a_timer_counts_from_its_own_start_and_never_by_the_calendar(path: Path) -> None:
    """Not from the boot, which is long ago when a node joins."""
    assert path.with_suffix(".service") in SERVICES
    keys = section(path, "Timer")
    assert "OnCalendar" not in keys
    assert "OnBootSec" not in keys
    assert "OnActiveSec" in keys
    assert {"OnUnitActiveSec", "OnUnitInactiveSec"} & keys.keys()


def test_a_pass_of_the_tend_ends_before_the_next() -> None:
    (limit,) = section(SYSTEMD / "keel-mesh-etcd.service", "Service")["TimeoutStartSec"]
    (period,) = section(SYSTEMD / "keel-mesh-etcd.timer", "Timer")["OnUnitActiveSec"]
    assert (limit, period) == ("4min", "5min")


@pytest.mark.parametrize(
    ("timer", "key", "period", "accuracy"),
    [
        pytest.param("keel-mesh-sync", "OnUnitActiveSec", "60s", "5s", id="sync"),
        pytest.param("keel-mesh-etcd", "OnUnitActiveSec", "5min", "10s", id="tend"),
        pytest.param("keel-mesh-etcd-fast", "OnUnitInactiveSec", "5s", "500ms", id="fast"),
    ],
)
def test_a_timer_has_the_period_that_is_promised(
    timer: str, key: str, period: str, accuracy: str
) -> None:
    keys = section(SYSTEMD / f"{timer}.timer", "Timer")
    assert (keys[key], keys["AccuracySec"]) == ([period], [accuracy])


def test_the_fast_timer_is_never_enabled_and_the_others_are() -> None:
    enabled = {p.stem: section(p, "Install").get("WantedBy") for p in SYSTEMD.glob("*.timer")}
    assert enabled.pop("keel-mesh-etcd-fast") is None
    assert set(map(tuple, filter(None, enabled.values()))) == {("timers.target",)}
    assert None not in enabled.values()


def test_services_that_touch_the_machine_wait_for_a_mesh() -> None:
    genesis = str(Paths().genesis)
    for path in SERVICES:
        if path.name != "keel-wireguard@.service":
            assert genesis in section(path, "Unit")["ConditionPathExists"], path.name


def test_the_registrys_services_wait_for_the_overlay_or_for_a_request_to_relay() -> None:
    either = {f"|{path}" for path in (Paths().capability_marker, Paths().etcd_queue)}
    for path in SYSTEMD.glob("keel-mesh-etcd*.service"):
        assert either <= set(section(path, "Unit")["ConditionPathExists"])


def test_the_fast_timer_runs_nowhere_where_no_pass_would_stop_it() -> None:
    timer, service = (SYSTEMD / f"keel-mesh-etcd-fast.{kind}" for kind in ("timer", "service"))
    wanted = section(service, "Unit")["ConditionPathExists"]
    assert section(timer, "Unit")["ConditionPathExists"] == wanted


def test_no_stray_etcd_is_started_at_boot() -> None:
    (condition,) = section(SYSTEMD / "10-keel.conf", "Unit")["ConditionPathExists"]
    assert condition == str(Paths().laid / "member.pem")


def test_networkd_leaves_keels_interfaces_alone() -> None:
    network = configparser.ConfigParser()
    network.read(SYSTEMD / "10-keel.network")
    assert network["Match"]["Name"] == "keel*"
    assert DEFAULT_INTERFACE.startswith("keel")
    assert network["Link"]["Unmanaged"] == "yes"


@pytest.mark.parametrize(
    ("unit", "asking"),
    [
        pytest.param("keel-channel.service", 2 * (LASTS.at_once or 0), id="places and joins"),
        pytest.param("keel-passes.service", 2, id="passes"),
    ],
)
def test_there_is_room_for_all_that_ask_everybody_at_once(unit: str, asking: int) -> None:
    """Each member that is asked costs a worker, each who asks a watchdog; a program that is started
    is a task as well."""
    service = section(SYSTEMD / unit, "Service")
    wanted = asking * (MAX_WORKERS + 1) + Limits().threads + 32
    assert int(service["TasksMax"][-1]) >= wanted


@pytest.mark.parametrize("unit", ["keel-mesh-etcd.service", "keel-mesh-sync.service"])
def test_what_runs_the_passes_may_do_what_their_own_units_may(unit: str) -> None:
    """keel.cli.errands; of its own it has only how it is started and bounded."""
    own = {"Type", "ExecStart", "Restart", "RestartSec", "TimeoutStopSec", "MemoryMax", "TasksMax"}
    warm = section(SYSTEMD / "keel-passes.service", "Service")
    of_a_pass = section(SYSTEMD / unit, "Service")
    started = {"Type", "ExecStart", "SuccessExitStatus", "TimeoutStartSec"}
    assert {k: v for k, v in warm.items() if k not in own} == {
        k: v for k, v in of_a_pass.items() if k not in started
    }


def test_the_channel_may_do_little() -> None:
    """What each of these keeps it from is tried in the lab (netns/scenarios/etcd_birth.py)."""
    channel = section(SYSTEMD / "keel-channel.service", "Service")
    assert channel["CapabilityBoundingSet"] == ["CAP_NET_ADMIN"]
    assert channel["ReadWritePaths"] == ["/run/keel"]
    assert channel["StateDirectory"] == ["keel"]
    assert channel["TemporaryFileSystem"] == ["/run:mode=0755"]
    assert channel["BindPaths"] == ["/run/keel -/run/wireguard"]
    hidden = channel["InaccessiblePaths"][0].replace("-", "", 1).split(" -")
    for path in (Paths().laid, Paths().etcd_data, Paths().stray_data):
        assert any(path.is_relative_to(each) for each in hidden)
    assert "ProtectKernelTunables" in channel


def test_the_flows_of_the_tests_run_within_the_channels_own_bounds() -> None:
    """tests/fakes/fence.py; a handler that comes to need more is red there."""
    channel = section(SYSTEMD / "keel-channel.service", "Service")
    hidden = channel["InaccessiblePaths"][0].split()
    assert [f"-/{path}" for path in fence.HIDDEN] == hidden
    (state,), (writable,) = channel["StateDirectory"], channel["ReadWritePaths"]
    assert {f"/{path}" for path in fence.WRITABLE} == {f"/var/lib/{state}", writable}


def test_the_channel_brings_the_socket_by_which_it_has_passes_run() -> None:
    unit = section(SYSTEMD / "keel-channel.service", "Unit")
    assert "keel-passes.socket" in unit["Wants"][0]
    assert "keel-passes.socket" in unit["After"][0]
    socket = section(SYSTEMD / "keel-passes.socket", "Socket")
    assert socket["ListenSequentialPacket"] == [str(Paths().passes_socket)]
    assert socket["SocketMode"] == ["0600"]


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.name)
def test_no_other_service_is_a_way_around_the_channels_sandbox(path: Path) -> None:
    """A process of root's sees the files of another that has no capability more than itself, by
    /proc/PID/root, and with them the sockets that its own sandbox hides."""
    channel = section(SYSTEMD / "keel-channel.service", "Service")
    its = set(section(path, "Service")["CapabilityBoundingSet"][0].split())
    mine = set(channel["CapabilityBoundingSet"][0].split())
    assert path.name == "keel-channel.service" or its - mine
