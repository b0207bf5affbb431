"""keel.system.gauge on this machine's own loopback and disk."""

from __future__ import annotations

import os
import socket
from datetime import datetime
from ipaddress import IPv6Address
from pathlib import Path

import pytest

from keel.mesh.talk import TIMEOUT_SECONDS
from keel.ports import Completed
from keel.system.clock import SystemClock
from keel.system.gauge import TRY_SECONDS, LinuxGauge
from keel.types import LOCALHOST
from tests.fakes import FakeProc, VirtualClock


def gauge(proc: FakeProc | None = None) -> LinuxGauge:
    return LinuxGauge(proc or FakeProc(), SystemClock())


def test_every_connection_is_timed_and_none_is_left_open() -> None:
    with socket.socket(socket.AF_INET6) as listening:
        listening.bind(("::1", 0))
        listening.listen(16)
        port = listening.getsockname()[1]
        found = gauge().connect_times([LOCALHOST], port, tries=3, timeout_seconds=5)
    (times,) = found.values()
    assert len(times) == 3
    assert all(one is not None and one < 3 for one in times)


def test_a_refused_connection_has_no_time() -> None:
    with socket.socket(socket.AF_INET6) as closed:
        closed.bind(("::1", 0))
        port = closed.getsockname()[1]
        found = gauge().connect_times([LOCALHOST], port, tries=2, timeout_seconds=5)
    assert found == {LOCALHOST: (None, None)}


class Impatient(VirtualClock):
    """Every look at it is nearly a whole try later."""

    def monotonic(self) -> float:
        self.sleep(TRY_SECONDS - 0.1)
        return super().monotonic()


def test_nobody_is_waited_for_longer_than_a_try_takes() -> None:
    """A full backlog answers nothing."""
    with socket.socket(socket.AF_INET6) as full:
        full.bind(("::1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        kept = []
        for _ in range(4):
            one = socket.socket(socket.AF_INET6, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            one.connect_ex(("::1", port))
            kept.append(one)
        found = LinuxGauge(FakeProc(), Impatient()).connect_times(
            [LOCALHOST], port, tries=1, timeout_seconds=60
        )
        for one in kept:
            one.close()
    assert found == {LOCALHOST: (None,)}


def test_tries_end_with_the_time() -> None:
    found = LinuxGauge(FakeProc(), Impatient()).connect_times(
        [IPv6Address("::1")], 1, tries=5, timeout_seconds=0.5
    )
    assert found == {LOCALHOST: ()}


def test_the_disk_is_measured_without_a_trace(tmp_path: Path) -> None:
    before = os.stat(tmp_path)
    took = gauge().sync_seconds(tmp_path)
    after = os.stat(tmp_path)
    assert took is not None
    assert list(tmp_path.iterdir()) == []
    assert (before.st_mtime_ns, before.st_ctime_ns) == (after.st_mtime_ns, after.st_ctime_ns)


def test_where_no_file_without_a_name_can_be_nothing_is_said() -> None:
    assert gauge().sync_seconds(Path("/proc")) is None


def test_free_is_what_a_user_may_fill(tmp_path: Path) -> None:
    found = os.statvfs(tmp_path)
    assert 0 < gauge().free_bytes(tmp_path) <= found.f_blocks * found.f_frsize


@pytest.mark.parametrize(
    ("said", "version"),
    [
        pytest.param(b"etcd Version: 3.5.16\nGit SHA: x\n", "3.5.16", id="installed"),
        pytest.param(b"", None, id="says nothing"),
        pytest.param(Completed(returncode=127, stdout=b"", stderr=b""), None, id="missing"),
    ],
)
def test_the_installed_etcd_says_its_version(said: bytes | Completed, version: str | None) -> None:
    proc = FakeProc()
    proc.answers["etcd", "--version"] = said
    assert gauge(proc).etcd_version() == version


class SlowDisk:
    """Between two looks at this clock three seconds pass."""

    def __init__(self) -> None:
        self.passed = 0.0

    def now(self) -> datetime:
        raise AssertionError

    def monotonic(self) -> float:
        self.passed += 3.0
        return self.passed

    def sleep(self, seconds: float) -> None:
        raise AssertionError(seconds)


def test_a_disk_that_takes_seconds_is_measured_before_who_asked_gives_up(tmp_path: Path) -> None:
    """Or it would be taken for a member that does not answer."""
    clock = SlowDisk()
    assert LinuxGauge(FakeProc(), clock).sync_seconds(tmp_path) == 3.0
    assert clock.passed < TIMEOUT_SECONDS / 2
