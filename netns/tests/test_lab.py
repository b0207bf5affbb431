"""The lab on this machine's kernel: needs root and the image; `make lab-test` runs it."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from netns.lab import ExecFailed, Lab, LabError, forget_snapshot
from netns.link import Counters
from netns.process import PATIENCE_SECONDS, output
from netns.repository import install, offer
from netns.state import BASE
from netns.topology import names, node

A, B = names(2)
LAB = Path(__file__).parent.parent / "lab"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(f"test-{os.getpid()}") as found:
        found.up(members=2)
        yield found


def verb(lab: Lab, *argv: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "KEEL_LAB": lab.instance}
    return subprocess.run(
        [LAB, *argv],
        env=environment,
        input=stdin,
        capture_output=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )


def test_exec_passes_input_output_and_exit_code_through(lab: Lab) -> None:
    script = "cat; echo problem >&2; exit 7"
    done = verb(lab, "exec", "a", "--", "sh", "-c", script, stdin=b"\x00\xffbytes")
    assert (done.stdout, done.stderr, done.returncode) == (b"\x00\xffbytes", b"problem\n", 7)


def test_exec_runs_as_root_in_a_clean_environment(lab: Lab) -> None:
    environment = lab.exec(A, ["env"]).stdout.splitlines()
    assert sorted(line.split("=")[0] for line in environment) == ["HOME", "LANG", "PATH", "TERM"]
    assert lab.exec(A, ["sh", "-c", "hostname; id -u; pwd"]).stdout == "a\n0\n/\n"


def test_a_failing_command_says_where_and_what(lab: Lab) -> None:
    with pytest.raises(ExecFailed, match=r"a: sh -c echo no >&2; exit 3: exit code 3\nno"):
        lab.exec(A, ["sh", "-c", "echo no >&2; exit 3"])


def test_a_command_that_takes_too_long_is_ended_inside_too(lab: Lab) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        lab.exec(A, ["sleep", "4711"], timeout=0.5)
    assert lab.exec(A, ["pgrep", "-f", "sleep 4711"], check=False).returncode == 1


def test_an_appliance_reaches_neither_this_machine_nor_its_network(lab: Lab) -> None:
    assert lab.exec(A, ["ip", "route", "get", "192.0.2.1"], check=False).returncode != 0
    links = lab.exec(A, ["sh", "-c", "ls /sys/class/net"]).stdout.split()
    assert sorted(links) == ["lo", "wan0"]


def test_a_verb_with_a_wrong_name_says_which_there_are(lab: Lab) -> None:
    done = verb(lab, "kill", "z")
    assert done.returncode == 3
    assert done.stderr == b"lab: error: no appliance 'z'\nhint: there are a, b\n"


def test_up_does_not_disturb_a_lab_that_is_up(lab: Lab) -> None:
    done = verb(lab, "up", "--no-join")
    assert done.returncode == 3
    assert b"is up already\nhint: netns/lab down\n" in done.stderr
    assert lab.running(A)


def test_an_appliance_that_is_off_is_said_to_be_off(lab: Lab) -> None:
    lab.kill(B)
    done = verb(lab, "exec", "b", "--", "true")
    assert done.stderr == b"lab: error: appliance b is not running\nhint: netns/lab start b\n"
    assert verb(lab, "start", "b").returncode == 0
    assert lab.running(B)


def test_an_appliance_reboots_in_order(lab: Lab) -> None:
    before = lab.exec(B, ["cat", "/proc/sys/kernel/random/boot_id"]).stdout
    lab.reboot(B)
    assert lab.running(B)
    assert before != lab.exec(B, ["cat", "/proc/sys/kernel/random/boot_id"]).stdout
    assert "Reached target poweroff.target" in lab.journal(B)


def test_a_capture_holds_what_the_underlay_carried_and_the_counters_agree(lab: Lab) -> None:
    before = lab.counters().get((A, B), Counters()).carried
    capture = lab.capture(B, filter="icmp")
    lab.exec(A, ["ping", "-c", "20", "-i", "0.01", node(B).hosts[0]])
    text = output(["tcpdump", "-n", "-r", str(capture.stop())])
    assert text.count("ICMP echo request") == 20
    assert lab.counters()[A, B].carried - before >= 20


def test_a_link_carries_thousands_of_packets_a_second(lab: Lab) -> None:
    flood = ["ping", "-q", "-f", "-c", "5000", "-l", "50", node(B).hosts[0]]
    begun = time.monotonic()
    assert " 0% packet loss" in lab.exec(A, flood).stdout
    assert 10_000 / (time.monotonic() - begun) > 2000


def test_files_can_be_put_into_an_appliance(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("tree")
    lab.put(A, "/root/deep/file", "text", mode=0o600)
    lab.put_tree(A, tmp_path, "/root/tree")
    argv = ["sh", "-c", "cat /root/deep/file /root/tree/file; stat -c %a /root/deep/file"]
    assert lab.exec(A, argv).stdout == "texttree600\n"


def test_a_failures_collection_holds_journals_and_keels_state(lab: Lab, tmp_path: Path) -> None:
    lab.put(A, "/var/lib/keel/mesh/genesis", "x")
    lab.exec(A, ["logger", "something happened"])
    directory = lab.collect_failure(tmp_path)
    assert "something happened" in (directory / "a/journal").read_text()
    assert (directory / "a/var-lib-keel/mesh/genesis").read_text() == "x"
    assert "node:\n  name: b\n" in (directory / "b/etc-keel/spec.yaml").read_text()
    assert lab.describe() in (directory / "link").read_text()


def test_waiting_in_vain_names_what_for(lab: Lab) -> None:
    assert lab.wait(lambda: True, 1, "nothing") < 1
    with pytest.raises(TimeoutError, match=r"waited 0.3 s in vain for a miracle"):
        lab.wait(lambda: False, 0.3, "a miracle")


def test_a_saved_lab_comes_back_as_it_was_and_leaves_nothing_when_down() -> None:
    with Lab(f"save-{os.getpid()}") as lab:
        lab.up(members=2)
        lab.exec(B, ["sh", "-c", "echo 1 > /root/file; mkdir -p /opt/x; rm /etc/motd"])
        lab.cut(B)
        lab.save(lab.instance)
        lab.exec(B, ["sh", "-c", "echo 2 > /root/file; echo > /etc/motd"])
        try:
            lab.load(lab.instance)
            check = "cat /root/file; ls -d /opt/x; ls /etc/motd"
            done = lab.exec(B, ["sh", "-c", check], check=False)
            assert done.stdout == "1\n/opt/x\n"
            assert lab.state().qualities[A, B].cut
        finally:
            forget_snapshot(lab.instance)
        pid = lab.state().anchor_pid
        lab.down()
    assert not Path(f"/proc/{pid}").exists()
    assert not list(BASE.glob(f"*{lab.instance}*"))
    find = "mount -t cgroup2 cgroup2 /mnt && ls /mnt"
    groups = output(["unshare", "--mount", "sh", "-c", find])
    assert lab.instance not in groups
    assert lab.instance not in Path("/proc/self/mounts").read_text()


def test_down_without_a_lab_is_no_mistake_and_load_without_a_snapshot_is() -> None:
    lab = Lab(f"none-{os.getpid()}")
    lab.down()
    with pytest.raises(LabError, match="hint: netns/lab save nothing"):
        lab.load("nothing")
    with pytest.raises(LabError, match="is not up"):
        lab.state()


def test_a_lab_that_can_not_come_up_leaves_nothing() -> None:
    lab = Lab(f"bad-{os.getpid()}")
    with pytest.raises(KeyError):
        lab.up(members=1, base="nonsense")
    assert not list(BASE.glob(f"*{lab.instance}*"))


def test_packages_install_offline_in_a_booted_appliance_that_lacks_them() -> None:
    with Lab(f"bare-{os.getpid()}") as lab:
        lab.up(members=1, base="bare")
        assert lab.exec(A, ["which", "etcd", "python3"], check=False).stdout == ""
        offer(lab, A)
        install(lab, A, "etcd-server", "python3-cryptography")
        assert lab.exec(A, ["systemctl", "is-active", "etcd"]).stdout == "active\n"
