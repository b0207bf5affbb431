"""Power cuts in the middle of a birth, samples of them: one cluster comes of it, by the timers
alone or the same command, and what was written before is still there; also when the third is back
only three hours later. Wiped members stay out.
"""

import base64
import contextlib
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from netns import clock, mesh, registry
from netns.appliance import NotRunning
from netns.lab import Lab, forget_snapshot
from netns.process import PATIENCE_SECONDS
from netns.scenario import Report
from netns.topology import Name, names

NAME = "etcd_kills"
ROWS = ("E8", "E10", "E16", "Q3")
LINK = "60ms,5ms,0.5%"

EVERYONE = names(3)
A, B, C = EVERYONE
INVITES = "var/lib/keel/mesh/invites"
BOOK = "var/lib/keel/etcd/formation.json"
CLUSTER = "var/lib/keel/etcd/cluster.json"
RECORD = "var/lib/keel/etcd/record"
MARKER = "var/lib/keel-etcd/marker.json"
DATA, SAVED = "/var/lib/keel-etcd/data", "/var/lib/keel-etcd.saved"
WAY_OUT = "move it back"
LATER = "+3h"
TWO_HOURS = timedelta(hours=2)
"""Of the machine's clock: a record that was signed three hours later lives for longer than that."""

Judge = Callable[[], bool]


def run(lab: Lab, report: Report) -> None:
    """Every sample begins with two members and an open invite, at the same moment."""
    snapshot = f"{lab.instance}-two"
    mesh.create(lab, A)
    mesh.join(lab, B, mesh.invite(lab, A))
    token = mesh.invite(lab, A)
    lab.save(snapshot)
    try:
        for sample in (
            holder_before_the_record,
            holder_after_the_record,
            two_between_record_and_start,
            third_confirmed_and_dead,
        ):
            if sample is not holder_before_the_record:
                lab.load(snapshot)
            report.note(f"-- {sample.__name__.replace('_', ' ')}")
            sample(lab, report, token)
        wiped(lab, report)
    finally:
        forget_snapshot(snapshot)


def holder_before_the_record(lab: Lab, report: Report, token: str) -> None:
    """The claim is on disk, no formation is: the holder goes down before it signed anything."""
    joining = in_background(lab, C, token)
    cut_when(lab, {A: lambda: claimed(lab) and not reserved(lab)})
    report.expect(claimed(lab) and not reserved(lab), "the holder is cut: a claim and no formation")
    lab.start(A)
    finish(lab, report, token, joining)


def holder_after_the_record(lab: Lab, report: Report, token: str) -> None:
    """The formation is reserved and on disk, and nothing of it has been confirmed."""
    joining = in_background(lab, C, token)
    cut_when(lab, {A: partial(reserved, lab)})
    report.expect(reserved(lab), "the holder is cut: the formation is reserved")
    report.expect(not on_disk(lab, A, MARKER), "and no etcd of it has started")
    lab.start(A)
    finish(lab, report, token, joining)


def two_between_record_and_start(lab: Lab, report: Report, token: str) -> None:
    """Holder, then second member, each between `starting` and the first start of its etcd: the
    holder begins at home, and b hears of it only once a is back."""
    joining = in_background(lab, C, token)
    cut_when(lab, {A: partial(between, lab, A)})
    report.expect(between(lab, A), "a is cut: it has the record and never started")
    with ThreadPoolExecutor(1) as pool:
        cutting = pool.submit(cut_when, lab, {B: partial(between, lab, B)})
        lab.start(A)
        cutting.result()
    report.expect(between(lab, B), "b is cut: it has the record and never started")
    lab.start(B)
    finish(lab, report, token, joining)


def third_confirmed_and_dead(lab: Lab, report: Report, token: str) -> None:
    """The third is confirmed and goes down before its etcd starts: the others form and serve at
    once. It is back three hours later, by keel's clock on all three: the record has expired, and by
    the timers alone it joins the same cluster.
    """
    in_background(lab, C, token)
    cut_when(lab, {C: lambda: confirmed(lab) and not on_disk(lab, C, MARKER)})
    report.expect(not on_disk(lab, C, MARKER), "c is cut: confirmed, its etcd never started")
    registry.wait_for_voters(lab, (A, B))
    for name in (A, B):
        registry.wait_for_write(lab, name, f"by-{name}", "without c", PATIENCE_SECONDS)
    report.expect(True, "the other two serve, written through each")
    before = registry.cluster(lab, A).identity
    three_hours_pass(lab)
    lab.start(C)
    begun = time.monotonic()
    registry.wait_for_voters(lab, EVERYONE)
    report.note(f"three hours later: c votes {time.monotonic() - begun:.0f} s after its boot")
    same = registry.judge_one_cluster(lab, report, EVERYONE, "later").identity == before
    read = [registry.get(lab, C, f"by-{name}") for name in (A, B)]
    report.expect(same and read == ["without c"] * 2, f"c is in the same cluster, it reads {read}")
    lives = expires(lab, C) - datetime.now(UTC)
    report.expect(lives > TWO_HOURS, f"by a record of then, which lives for another {lives}")
    for name in EVERYONE:
        clock.restore(lab, name)
    for name in EVERYONE:
        lab.exec(name, ["systemctl", "restart", "keel-channel.service"])


def three_hours_pass(lab: Lab) -> None:
    """For all that keel runs there; etcd's certificates are by the machine's clock, as before."""
    for name in EVERYONE:
        clock.shift(lab, name, LATER)
        clock.shift_guard(lab, name, LATER)
    for name in (A, B):
        lab.exec(name, ["systemctl", "restart", "keel-channel.service"])


def expires(lab: Lab, name: Name) -> datetime:
    """When the record that the member has taken ends."""
    payload = json.loads(base64.b64decode(str(document(lab, name, RECORD)["payload"])))
    return datetime.fromisoformat(payload["expires"])


def wiped(lab: Lab, report: Report) -> None:
    """Two of three lose their data: they refuse to start and say what to do; with their data back
    everything is there."""
    registry.wait_for_write(lab, A, "precious", "kept", PATIENCE_SECONDS)
    before = registry.cluster(lab, A).identity
    for name in (A, B):
        registry.restart_around(lab, name, f"mv {DATA} {SAVED}")
    for name in (A, B):
        lab.wait(partial(tend_fails, lab, name), PATIENCE_SECONDS, f"{name}'s tend to fail")
    for name in (A, B):
        lab.wait(partial(refuses, lab, name), PATIENCE_SECONDS, f"{name}'s guard to refuse")
        tells = partial(tells_of_it, lab, name)
        lab.wait(tells, PATIENCE_SECONDS, f"{name}'s status to say why its guard refuses")
        report.expect(True, f"{name}: its guard refuses, and status says so")
        report.expect(not on_disk(lab, name, "var/lib/keel-etcd/data/member"), f"{name}: no data")
    write = registry.etcdctl(lab, C, "put", "lost", "quorum", check=False)
    report.expect(write.returncode != 0, "no quorum, and no second cluster: nothing is written")
    for name in (A, B):
        put_back = f"rm -rf {DATA}; mv {SAVED} {DATA}"
        lab.exec(name, registry.without_passes("sh", "-euc", put_back))
    registry.wait_for_voters(lab, EVERYONE)
    same = registry.judge_one_cluster(lab, report, EVERYONE, "back").identity == before
    kept = registry.get(lab, C, "precious") == "kept"
    report.expect(same and kept, "their data put back: the same cluster, the keys are there")


def tend_fails(lab: Lab, name: Name) -> bool:
    """Exit 4: a duty failed. 5 would be another pass at work."""
    return lab.exec(name, ["keel", "mesh", "etcd", "tend"], check=False).returncode == 4


def refuses(lab: Lab, name: Name) -> bool:
    """Whether the guard refused by its rule for lost data, with the way out."""
    argv = ["journalctl", "-u", "etcd.service", "-n", "40", "-o", "cat", "--no-pager"]
    said = lab.exec(name, argv).stdout
    return "its data is gone" in said and WAY_OUT in said


def tells_of_it(lab: Lab, name: Name) -> bool:
    failures = mesh.status(lab, name)["etcd"]["failures"]
    return "etcd-data-missing" in [one["code"] for one in failures]


def finish(lab: Lab, report: Report, token: str, joining: "threading.Thread") -> None:
    """The same command again, if it failed; then the timers alone."""
    joining.join(PATIENCE_SECONDS)
    if lab.running(C):
        lab.wait(partial(joined, lab, token), PATIENCE_SECONDS, "c to be a member")
    begun = time.monotonic()
    registry.wait_for_voters(lab, EVERYONE)
    report.note(f"three voters {time.monotonic() - begun:.0f} s later")
    registry.judge_one_cluster(lab, report, EVERYONE, "alive")


def joined(lab: Lab, token: str) -> bool:
    argv = ["keel", "mesh", "join", "--token-file", "-"]
    return lab.exec(C, argv, input=f"{token}\n", check=False).returncode == 0


def in_background(lab: Lab, name: Name, token: str) -> threading.Thread:
    """The join command, which may die with its machine; again, if it came to nothing before the
    claim: then none of the moments would come."""
    argv = ["keel", "mesh", "join", "--token-file", "-"]

    def ask() -> None:
        with contextlib.suppress(NotRunning):
            while lab.exec(name, argv, input=f"{token}\n", check=False).returncode != 0:
                if not unclaimed(lab):
                    return

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    return thread


def cut_when(lab: Lab, moments: dict[Name, Judge]) -> None:
    """Cut each one's power at its moment. Raises TimeoutError when a moment does not come."""
    machines = {name: lab.machine(name) for name in moments}
    left = dict(moments)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while left:
        for name, judge in list(left.items()):
            if judge():
                machines[name].cut_power()
                del left[name]
        if time.monotonic() > deadline:
            raise TimeoutError(f"the moment did not come on {', '.join(left)}")
        time.sleep(0.002)


def on_disk(lab: Lab, name: Name, path: str) -> bool:
    return disk(lab, name, path).exists()


def disk(lab: Lab, name: Name, path: str) -> Path:
    return lab.machine(name).disk / "upper" / path


def document(lab: Lab, name: Name, path: str) -> dict[str, object]:
    """A state file, {} while there is none; keel replaces them whole."""
    try:
        found: dict[str, object] = json.loads(disk(lab, name, path).read_bytes())
    except FileNotFoundError:
        return {}
    return found


def claimed(lab: Lab) -> bool:
    """Whether the last invite was claimed and not confirmed yet."""
    return "claimed" in phases(lab)


def unclaimed(lab: Lab) -> bool:
    """Whether nobody came with it yet."""
    return "unused" in phases(lab)


def phases(lab: Lab) -> list[str]:
    """Of b's invite, and of the last one."""
    found = disk(lab, A, INVITES).glob("*.json")
    return [json.loads(path.read_bytes())["phase"] for path in found]


def formations(lab: Lab) -> list[dict[str, object]]:
    found = document(lab, A, BOOK).get("formations", [])
    return found if isinstance(found, list) else []


def reserved(lab: Lab) -> bool:
    return bool(formations(lab))


def confirmed(lab: Lab) -> bool:
    return any(one["confirmed"] for one in formations(lab))


def between(lab: Lab, name: Name) -> bool:
    return document(lab, name, CLUSTER).get("stage") == "starting" and not on_disk(
        lab, name, MARKER
    )
