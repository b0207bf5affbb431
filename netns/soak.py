"""`make soak`: a cluster's whole life at 250 ms and 2 %, a client writing all the while.

Born by three; two join at one moment and come in one after the other; a member loses its data and
gets a new place; two are removed again. Every write that was acknowledged is read back through
every member that is left.
"""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from netns import build, mesh, registry
from netns.cli import EXPECTED
from netns.lab import Lab
from netns.process import PATIENCE_SECONDS
from netns.scenario import STANDARD, Failed, Report, is_void, measure_link
from netns.topology import Name, names
from netns.writer import Writer

EVERYONE = names(5)
A, B, C, D, E = EVERYONE
THREE = (A, B, C)


def main() -> int:
    """Run it all; 0 when everything held."""
    if os.geteuid() != 0:
        sys.stderr.write("netns/soak: error: needs root\n")
        return 77
    build.package_layer()
    lab, report = Lab(f"soak-{os.getpid()}"), Report()
    try:
        with lab:
            lab.up(members=len(EVERYONE), link=STANDARD)
            report.note(f"{lab.describe()}, {os.cpu_count()} processors")
            pings = measure_link(lab, EVERYONE)
            report.note(f"link {STANDARD}: {pings}{' VOID' if is_void(pings) else ''}")
            try:
                live(lab, report)
            except BaseException:
                lab.collect_failure()
                raise
    except (Failed, *EXPECTED) as error:
        sys.stderr.write(f"netns/soak: error: {error}\n")
        return 1
    return 0


def live(lab: Lab, report: Report) -> None:
    mesh.create(lab, A)
    for name in (B, C):
        mesh.join(lab, name, mesh.invite(lab, A))
    registry.wait_for_voters(lab, THREE)
    report.note("three voters")
    writer = Writer(lab, B)
    both_at_once(lab, report)
    new_place(lab, report, C)
    for name, left in ((E, (A, B, C, D)), (D, THREE)):
        remove(lab, report, name, left)
    writer.judge(report, THREE)


def both_at_once(lab: Lab, report: Report) -> None:
    """One after the other, and no error is shown to either."""
    tokens = {name: mesh.invite(lab, A) for name in (D, E)}
    with ThreadPoolExecutor(2) as pool:
        tried = list(pool.map(lambda name: mesh.try_join(lab, name, tokens[name]), tokens))
    report.expect([one.exit for one in tried] == [0, 0], "two have joined at one moment")
    begun = time.monotonic()
    for name in tokens:
        registry.wait_for_voters(lab, (name,))
        report.note(f"{name} votes {time.monotonic() - begun:.1f} s after both joins")
    registry.judge_one_cluster(lab, report, EVERYONE, "five")
    for name in tokens:
        lab.wait(partial(is_quiet, lab, name), PATIENCE_SECONDS, f"{name} to wait for nothing")
        report.expect(True, f"{name}: no failure, nothing waits")


def is_quiet(lab: Lab, name: Name) -> bool:
    found = mesh.status(lab, name)["etcd"]
    return not found["failures"] and not found["waiting"]


def new_place(lab: Lab, report: Report, name: Name) -> None:
    """Its data is deleted under a running cluster: `recover --replace`."""
    before = registry.cluster(lab, A)
    lose = "systemctl stop etcd.service; rm -rf /var/lib/keel-etcd/data"
    lab.exec(name, registry.without_passes("sh", "-euc", lose))
    begun = time.monotonic()
    argv = ["keel", "mesh", "etcd", "recover", "--replace"]
    lab.exec(name, [*argv, "--dry-run"])
    report.expect(registry.cluster(lab, A) == before, "the dry run changes nothing")
    lab.exec(name, argv)
    registry.wait_for_voters(lab, (name,))
    report.note(f"{name} lost its data and votes again {time.monotonic() - begun:.1f} s later")
    registry.judge_one_cluster(lab, report, EVERYONE, "replaced")


def remove(lab: Lab, report: Report, name: Name, left: tuple[Name, ...]) -> None:
    """By the node that admitted it; etcd's list follows."""
    begun = time.monotonic()
    lab.exec(A, ["keel", "mesh", "remove", name], check=False)
    gone = partial(listed_are, lab, len(left))
    lab.wait(gone, PATIENCE_SECONDS, f"{name} to be out of etcd's list")
    report.note(f"{name} is out of etcd's list {time.monotonic() - begun:.1f} s later")
    registry.judge_one_cluster(lab, report, left, f"without-{name}")


def listed_are(lab: Lab, count: int) -> bool:
    return len(registry.cluster(lab, A).members) == count
