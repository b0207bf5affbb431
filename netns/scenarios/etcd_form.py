"""A mesh that was made without an etcd root is given its cluster by hand, over the bad link, by two
operators at once, with and without the link between them, and without a fourth that is cut off;
then a member and the leader are cut off, and etcdctl is the judge. At last the fourth is back.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from netns import mesh, registry
from netns.lab import Lab
from netns.process import PATIENCE_SECONDS
from netns.scenario import SHORT, STANDARD, Failed, Report
from netns.topology import Name, Quality, names

NAME = "etcd_form"
ROWS = ("M6", "E13", "E19", "E20", "E21")
LINK = "125ms,12.5ms,1%"

MEMBERS = 4

ELECTIONS = range(3)
"""Each try of what an election in between spoils."""

ALL = names(4)
*EVERYONE, D = ALL
"""Who forms, and who is cut off meanwhile."""
A, B, C = EVERYONE
FORM = ["keel", "mesh", "etcd", "form"]
TIMERS = ("keel-mesh-sync.timer", "keel-mesh-etcd.timer")
PASSES = ("keel-mesh-sync.service", "keel-mesh-etcd.service")
VOLATILE = ["/proc", "/sys", "/run", "/dev", "/tmp", "/var/log", "/var/tmp", "/var/cache"]


def run(lab: Lab, report: Report) -> None:
    without_a_root(lab, report)
    dry_run(lab, report)
    lab.cut(D)
    two_apart(lab, report)
    two_at_once(lab, report)
    member_cut(lab, report)
    leader_cut(lab, report)
    comes_later(lab, report)


def without_a_root(lab: Lab, report: Report) -> None:
    """The nodes could not run etcd when the mesh was made; then their operators see to it."""
    set_mode(lab, "cloud_advanced", "cloud")
    for name in ALL:
        lab.set_link(name, SHORT)
    mesh.create(lab, A)
    tokens = {name: mesh.invite(lab, A) for name in (B, C, D)}
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda name: mesh.join(lab, name, tokens[name]), tokens))
    mesh.wait_until_whole(lab, ALL)
    set_mode(lab, "cloud", "cloud_advanced")
    for name, whom in ((A, B), (C, B), (D, B)):
        lab.exec(name, ["keel", "mesh", "trust", "add", "--root", whom])
    together(lab, ["keel", "mesh", "sync"])
    together(lab, ["keel", "mesh", "sync"])
    for name in ALL:
        lab.set_link(name, STANDARD)
    held = [name for name in ALL if has(lab, name, "/var/lib/keel/etcd/roots")]
    report.expect(held == [], "four capable members, and no etcd root anywhere")


def dry_run(lab: Lab, report: Report) -> None:
    """It shows the plan, and no file of any node is another after it. No timer's pass runs beside
    it, which may write what it has to.
    """
    together(lab, ["systemctl", "stop", *TIMERS])
    together(lab, ["systemctl", "start", *PASSES])  # one that runs has ended when this returns
    before = at_rest(lab)
    done = lab.exec(A, [*FORM, "--dry-run", "--json"], timeout=PATIENCE_SECONDS)
    planned = json.loads(done.stdout)
    actions = [step["action"] for step in planned["steps"]]
    wanted = [*["reserve"] * 4, "make-root", "grant-self", *["enrol"] * 3, "give-birth"]
    report.expect(actions == wanted, f"the dry run's plan: {', '.join(actions)}")
    measured(report, planned["checks"])
    changed = [line for name in ALL for line in sorted(before[name] ^ disk(lab, name))]
    compared = f"the dry run wrote nothing ({len(before[A])} files compared)"
    report.expect(changed == [], "; ".join([compared, *changed]))
    together(lab, ["systemctl", "start", *TIMERS])


def measured(report: Report, checks: list[dict[str, Any]]) -> None:
    """Every path in both directions, as the link is, and every member's machine."""
    paths = {one["where"]: one["value"] for one in checks if one["what"] == "round-trip"}
    wanted = {f"{one} -> {other}" for one in ALL for other in ALL if one != other}
    near = [int(value.split()[0]) for value in paths.values() if value.endswith(" ms")]
    report.expect(
        set(paths) == wanted and len(near) == len(wanted) and all(200 < ms < 1000 for ms in near),
        f"round trips measured by the members: {sorted(near)} ms",
    )
    bad = [f"{one['what']} {one['where']} {one['value']}" for one in checks if one["remedy"]]
    values = {(one["what"], one["where"]): one["value"] for one in checks}
    report.note(f"disk {values['disk-sync', C]}, etcd {values['etcd-version', C]}; no-go: {bad}")
    busy = ("loss", "disk-sync", "round-trip")  # what a machine that others load may spoil
    machines = [text for text in bad if not text.startswith(busy)]
    report.expect(machines == [], "machines, versions, clocks, MTU: go")


def two_apart(lab: Lab, report: Report) -> None:
    """a and b form at one moment with the link between them cut; c hears both. Neither may."""
    for pair in ((A, B), (B, A)):
        lab.set_direction(*pair, Quality(cut=True))
    with ThreadPoolExecutor(2) as pool:
        came_of = dict(zip((A, B), pool.map(partial(form, lab), (A, B)), strict=True))
    for name, (code, said) in came_of.items():
        refused = (code, said.get("rule")) == (3, "form-silent")
        report.expect(refused, f"{name}, cut off from the other: {said.get('summary')}")
        advised = f"--without {D}" in str(said.get("remedy"))
        report.expect(advised, f"{name} is told: {said.get('remedy')}")
    held = [name for name in EVERYONE if has(lab, name, "/var/lib/keel/etcd/roots")]
    report.expect(held == [], "no etcd root anywhere, as before")
    for pair in ((A, B), (B, A)):
        lab.set_direction(*pair, STANDARD)
    for name in EVERYONE:
        lab.wait(
            partial(hears_the_others, lab, name),
            PATIENCE_SECONDS,
            f"{name} to see the other two up again",
        )


def hears_the_others(lab: Lab, name: Name) -> bool:
    up = [one["name"] for one in mesh.status(lab, name)["members"] if one["state"] == "up"]
    return {*up, name} == {*EVERYONE}


def two_at_once(lab: Lab, report: Report) -> None:
    """a and b form without d at one moment: one wins, the other is refused and has no root."""
    without_d = partial(form, lab, without=(D,))
    with ThreadPoolExecutor(2) as pool:
        came_of = dict(zip((A, B), pool.map(without_d, (A, B)), strict=True))
    for name, (code, said) in came_of.items():
        report.note(f"{name}: exit {code}: {said.get('rule') or said.get('changed')}")
    report.expect(sorted(code for code, _ in came_of.values()) == [0, 3], "one of two wins")
    registry.wait_for_voters(lab, EVERYONE)
    registry.judge_one_cluster(lab, report, EVERYONE, "formed")
    held = [name for name in EVERYONE if has(lab, name, "/var/lib/keel/etcd/roots/g1/root.key")]
    winner = next(name for name, (code, _) in came_of.items() if code == 0)
    report.expect(held == [winner], f"only {winner} holds a root")
    again = partial(already_so, lab, report, winner)
    lab.wait(again, PATIENCE_SECONDS, f"{winner} to have nothing left to do")


def already_so(lab: Lab, report: Report, name: Name) -> bool:
    """Whether form has nothing left to do; never refused, though d is silent still. What a pass of
    the tend would note a moment later it may note itself.
    """
    code, said = form(lab, name)
    report.expect(code == 0, f"formed again: {said.get('changed', said)}")
    return bool(said["changed"] == [])


def member_cut(lab: Lab, report: Report) -> None:
    """A follower that is cut off raises no term, serves no linearizable read, and is back alone."""
    for _ in ELECTIONS:
        if member_cut_once(lab, report):
            return
    raise Failed("each time another leader or term once it was back")


def member_cut_once(lab: Lab, report: Report) -> bool:
    """Whether leader and term are the same at the end. Not so where the others elected anew
    meanwhile, as they may on a busy machine at any time: then it shows nothing.
    """
    leader = leader_of(lab)
    cut, other = [name for name in EVERYONE if name != leader]
    term = term_at(lab, leader)
    lab.cut(cut)
    lab.wait(lambda: not registry.is_voter(lab, cut), PATIENCE_SECONDS, f"{cut} to see no leader")
    with ThreadPoolExecutor(3) as pool:
        read = pool.submit(registry.etcdctl, lab, cut, "get", "formed", check=False)
        says = pool.submit(mesh.status, lab, cut)
        wrote = (lab, other, "cut", f"while {cut} was cut", PATIENCE_SECONDS)
        pool.submit(registry.wait_for_write, *wrote).result()
        report.expect(True, f"{cut} is cut: the others write")
        report.expect(read.result().returncode != 0, f"{cut} serves no linearizable read")
        told(report, cut, says.result())
    lab.heal(cut)
    took = lab.wait(
        partial(reads, lab, cut, "cut", f"while {cut} was cut"),
        PATIENCE_SECONDS,
        f"{cut} to catch up",
    )
    report.note(f"{cut} has caught up by itself {took:.1f} s after the cut")
    after = (leader_of(lab), term_at(lab, cut))
    report.note(f"leader and term: {leader}, {term}; afterwards {after}")
    return after == (leader, term)


def leader_cut(lab: Lab, report: Report) -> None:
    """The majority elects another; the old one steps down and comes back as a follower."""
    old = leader_of(lab)
    others = [name for name in EVERYONE if name != old]
    lab.cut(old)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(registry.etcdctl, lab, old, "get", "formed", check=False)
        took = registry.wait_for_write(lab, others[0], "elected", "by two", PATIENCE_SECONDS)
        report.note(f"{old}, the leader, is cut: the others write again after {took:.1f} s")
        report.expect(read.result().returncode != 0, f"{old} serves no linearizable read")
    elected = leader_of(lab, others)
    term = term_at(lab, elected)
    lab.heal(old)
    lab.wait(partial(reads, lab, old, "elected", "by two"), PATIENCE_SECONDS, f"{old} to catch up")
    back = state_at(lab, old)
    deposed = not leads(back) or int(back["raftTerm"]) > term  # elected anew, on a busy machine
    report.expect(deposed, f"{old} is back and leads no more; {elected} was elected")


def comes_later(lab: Lab, report: Report) -> None:
    """d hears the others again: by the timers alone it is in the same cluster."""
    before = registry.cluster(lab, A).identity
    silent = has(lab, D, "/var/lib/keel/etcd/cluster.json")
    report.expect(not silent, "d was left out, and knows of no cluster")
    lab.heal(D)
    begun = time.monotonic()
    registry.wait_for_voters(lab, (D,), PATIENCE_SECONDS)
    report.note(f"d votes {time.monotonic() - begun:.0f} s after its link is back")
    after = registry.judge_one_cluster(lab, report, ALL, "later")
    report.expect(after.identity == before, "in the cluster that the three formed without it")


def told(report: Report, name: Name, found: mesh.Status) -> None:
    """What status says on a member that is cut off: no leader, and who was in the cluster."""
    etcd, codes = found["etcd"], {one["code"] for one in found["warnings"]}
    report.expect(
        (etcd["phase"], etcd["leader"], etcd["voters"], etcd["quorum"], etcd["fault_tolerance"])
        == ("voter", None, 3, 2, 0)
        and "etcd-no-quorum" in codes,
        f"status on {name}: three voters, no leader, {', '.join(sorted(codes))}",
    )


def form(lab: Lab, name: Name, *, without: Sequence[Name] = ()) -> tuple[int, dict[str, Any]]:
    """The command's exit status and document, whatever comes of it."""
    argv = [*FORM, "--json", *(word for one in without for word in ("--without", one))]
    done = lab.exec(name, argv, timeout=PATIENCE_SECONDS, check=False)
    return done.returncode, json.loads(done.stdout)


def at_rest(lab: Lab) -> dict[Name, set[str]]:
    """The disks, once nothing writes: what a message kicked just before may go on for a moment."""
    seen: list[dict[Name, set[str]]] = [{}]

    def same_again() -> bool:
        seen.append({name: disk(lab, name) for name in ALL})
        return seen[-1] == seen[-2]

    lab.wait(same_again, PATIENCE_SECONDS, "the disks to be at rest")
    return seen[-1]


def disk(lab: Lab, name: Name) -> set[str]:
    """Every file with mode, owner, size and, where keel or etcd may write, its hash; without what
    any message that arrives leaves behind.
    """
    skip = " -o ".join(f"-path {path}" for path in VOLATILE)
    script = (
        f"find / -xdev \\( {skip} \\) -prune -o ! -name nonces -type f -printf '%m %u %s %p\\n';"
        " find /etc /var/lib ! -name nonces -type f -exec sha256sum {} +"
    )
    lines = lab.exec(name, ["sh", "-c", script]).stdout.splitlines()
    # the size of the nonces' directory entry is no file's; systemd keeps timers' stamps
    return {line for line in lines if not re.search(r"/var/lib/(systemd|private)/", line)}


def set_mode(lab: Lab, old: str, new: str) -> None:
    for name in ALL:
        lab.exec(name, ["sed", "-i", f"s/mode: {old}\\b/mode: {new}/", "/etc/keel/spec.yaml"])


def together(lab: Lab, argv: list[str]) -> None:
    with ThreadPoolExecutor(len(ALL)) as pool:
        list(pool.map(lambda name: lab.exec(name, argv, check=False), ALL))


def has(lab: Lab, name: Name, path: str) -> bool:
    return lab.exec(name, ["test", "-e", path], check=False).returncode == 0


def reads(lab: Lab, name: Name, key: str, value: str) -> bool:
    """Whether a linearizable read through this member has the value."""
    done = registry.etcdctl(lab, name, "get", key, "--print-value-only", check=False)
    return done.stdout.strip() == value


def state_at(lab: Lab, name: Name) -> dict[str, Any]:
    found: dict[str, Any] = registry.asked(lab, name, "endpoint", "status")[0]["Status"]
    return found


def term_at(lab: Lab, name: Name) -> int:
    return int(state_at(lab, name)["raftTerm"])


def leader_of(lab: Lab, among: Sequence[Name] = EVERYONE) -> Name:
    """Who says of itself that it leads, once one does."""
    found: list[Name] = []

    def one_leads() -> bool:
        found[:] = [name for name in among if leads(state_at(lab, name))]
        return bool(found)

    lab.wait(one_leads, PATIENCE_SECONDS, f"one of {', '.join(among)} to lead")
    return found[0]


def leads(state: dict[str, Any]) -> bool:
    return bool(state.get("leader")) and state["leader"] == state["header"]["member_id"]
