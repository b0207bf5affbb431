"""Packages of a living member: an upgrade restarts neither etcd nor the tunnel and apply says that
etcd's restart is due; removed and installed again, the member is what it was."""

import tempfile
from functools import partial
from pathlib import Path

from netns import mesh, registry
from netns.lab import Lab
from netns.process import PATIENCE_SECONDS
from netns.scenario import STANDARD, Report
from netns.scenarios.packages import MASK, active, apt, pid, raised, there
from netns.topology import Name, names

NAME = "upgrade"
ROWS = ("P1", "P2", "O4", "O6")
LINK = "125ms,12.5ms,1%"
JOINED = True

A, B, C = names(3)
TUNNEL = "keel-wireguard@keel0.service"
GOING = (
    "keel-mesh-sync.timer",
    "keel-mesh-etcd.timer",
    "keel-channel.socket",
    "keel-passes.socket",
)
DEBS = ("/srv/keel.deb", "/srv/keel-overlay-etcd.deb")


def run(lab: Lab, report: Report) -> None:
    lab.set_link(A, STANDARD)
    put(lab, A, "before", "kept")
    with tempfile.TemporaryDirectory() as scratch:
        for deb in raised(Path(scratch)):
            for name in (A, B):
                lab.put(name, f"/srv/{deb.name}", deb.read_bytes())
    upgrade(lab, report)
    remove_the_overlay(lab, report)
    remove_all(lab, report)


def upgrade(lab: Lab, report: Report) -> None:
    same = partial(differs_in_nothing, lab, A)
    lab.wait(same, PATIENCE_SECONDS, "a member as joined to differ from its spec in nothing")
    report.expect(True, "a member as joined differs from its spec in nothing")
    units = [unit for unit in ("etcd", TUNNEL) if active(lab, A, unit)]
    before = {unit: pid(lab, A, unit) for unit in units}
    apt(lab, A, "install", *DEBS)
    after = {unit: pid(lab, A, unit) for unit in units}
    report.expect("etcd" in units and after == before, f"nothing was restarted: {after}")
    said = lab.journal(A, "-u", "keel-*", "-o", "cat")
    held = "Stopped keel-mesh-etcd.timer" in said and "a bug in keel" not in said
    going = [unit for unit in GOING if active(lab, A, unit)]
    report.expect(held and going == list(GOING), "no pass meanwhile; afterwards they go on")
    status, said = keel(lab, A, "spec", "apply")
    report.expect(
        (status, "still runs with the settings" in said) == (0, True), "apply: a restart is due"
    )
    report.expect(pid(lab, A, "etcd") == before["etcd"], "and it did not restart etcd itself")
    report.expect(registry.get(lab, A, "before") == "kept", "the upgraded member serves")
    lab.exec(A, ["systemctl", "restart", "etcd"])
    waits(lab, report, A, "restarted by hand: a voter again")
    status, said = keel(lab, A, "spec", "apply")
    report.expect("settings" not in said and status == 0, "apply: nothing is due any more")


def remove_the_overlay(lab: Lab, report: Report) -> None:
    apt(lab, B, "remove", "keel-overlay-etcd")
    report.expect(not active(lab, B, "etcd") and there(lab, B, MASK), "b's etcd: stopped, masked")
    put(lab, A, "without", "b")
    report.expect(registry.get(lab, C, "without") == "b", "the other two serve")
    apt(lab, B, "install", *DEBS)
    waits(lab, report, B, "installed again: b is a voter again")
    report.expect(registry.get(lab, B, "without") == "b", "and has what it missed")


def remove_all(lab: Lab, report: Report) -> None:
    said = apt(lab, B, "remove", "keel", "keel-overlay-etcd")
    report.expect("`keel mesh leave`" in said, "removing keel names `keel mesh leave`")
    links = lab.exec(B, ["ls", "/sys/class/net"]).stdout.split()
    report.expect("keel0" not in links, "no interface of keel's is left")
    apt(lab, B, "install", *DEBS)
    waits(lab, report, B, "installed again: a member and a voter, by itself")
    mesh.wait_until_whole(lab, (A, B, C))
    report.expect(registry.get(lab, B, "before") == "kept", "with all that was written")


def waits(lab: Lab, report: Report, name: Name, what: str) -> None:
    took = lab.wait(partial(is_voter, lab, name), PATIENCE_SECONDS, f"{name} to be a voter")
    report.note(f"{what} after {took:.0f} s")


def is_voter(lab: Lab, name: Name) -> bool:
    found = lab.exec(name, ["sh", "-c", ETCDCTL, "sh", "endpoint", "health"], check=False)
    return found.returncode == 0


ETCDCTL = f'set -- --command-timeout=30s "$@"\n{registry.ETCDCTL}'


def differs_in_nothing(lab: Lab, name: Name) -> bool:
    return keel(lab, name, "diff") == (0, "")


def put(lab: Lab, name: Name, key: str, value: str) -> None:
    registry.wait_for_write(lab, name, key, value, PATIENCE_SECONDS)


def keel(lab: Lab, name: Name, *argv: str) -> tuple[int, str]:
    """Exit status, and all that it said."""
    done = lab.exec(name, ["keel", *argv], check=False)
    return done.returncode, done.stdout + done.stderr
