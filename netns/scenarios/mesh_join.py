"""A mesh is made over a bad link that carries nothing but WireGuard, and survives a power cut."""

from __future__ import annotations

import ipaddress
import json
import re
from functools import partial
from pathlib import Path

from netns import mesh, registry, underlay
from netns.lab import Lab
from netns.process import PATIENCE_SECONDS
from netns.scenario import Report
from netns.topology import WIREGUARD_PORT, Name, names, node

NAME = "mesh_join"
ROWS = ("M1", "M2", "M3", "M5", "M6", "M8", "E6", "P2")
LINK = "125ms,12.5ms,1%"

A, B, C = EVERYONE = names(3)
ENOUGH_PACKETS = 100


def run(lab: Lab, report: Report) -> None:
    for name in EVERYONE:
        underlay.fence(lab, name)
    mesh.create(lab, A)
    report.note("a: created")
    mesh.join(lab, B, mesh.invite(lab, A))
    report.note("b: joined")
    watched_join(lab, report)
    for name in EVERYONE:
        listeners(lab, report, name)
        state_on_disk(lab, report, name)
    obeyed(lab, report)
    one_roster(lab, report)
    planted(lab, report)
    power_cut(lab, report)


def watched_join(lab: Lab, report: Report) -> None:
    """c joins, both ends watched."""
    captures = [lab.capture(name) for name in (A, C)]
    mesh.join(lab, C, mesh.invite(lab, A))
    report.note("c: joined")
    mesh.wait_until_whole(lab, EVERYONE)
    report.note("each sees the other two up")
    for name, capture in zip((A, C), captures, strict=True):
        found = underlay.inspect(capture.stop())
        enough = found.packets > ENOUGH_PACKETS and {"initiation", "response"} <= set(found.kinds)
        report.expect(enough and not found.foreign, f"{name}'s underlay: {found}")


def listeners(lab: Lab, report: Report, name: Name) -> None:
    """All that listens but sshd: WireGuard's port, and what is on the overlay or this host."""
    prefix = ipaddress.ip_network(mesh.status(lab, name)["mesh"]["prefix"])
    wireguard, inside, wrong = 0, 0, []
    for line in lab.exec(name, ["ss", "-H", "-l", "-n", "-t", "-u", "-p"]).stdout.splitlines():
        protocol, _, _, _, local, *_ = line.split()
        host, _, port = local.rpartition(":")
        address = host.partition("%")[0].strip("[]").replace("*", "::")
        if '"sshd"' in line and port == "22":
            continue
        if protocol == "udp" and int(port) == WIREGUARD_PORT:
            wireguard += 1
        elif address in ("::1", "127.0.0.1") or ipaddress.ip_address(address) in prefix:
            inside += 1
        else:
            wrong.append(line)
    fine = wireguard and inside and not wrong
    report.expect(
        bool(fine), f"{name}: WireGuard's port and {inside} inside, outside {wrong or 'none'}"
    )


def state_on_disk(lab: Lab, report: Report, name: Name) -> None:
    """Modes and owners: keel's state is root's alone, what is laid for etcd is its user's alone."""
    argv = ["find", "/var/lib/keel", "/run/keel", "/etc/etcd/keel", "/var/lib/keel-etcd"]
    find = registry.without_passes(*argv, "-printf", "%y %m %u %g %p\n")
    text = lab.exec(name, find, check=False).stdout
    wrong, seen = [], set()
    for line in text.splitlines():
        kind, mode, user, group, path = line.split(" ", 4)
        etcds = re.match(r"/etc/etcd/keel|/var/lib/keel-etcd(?!/marker)", path)
        owner = "etcd" if etcds else "root"
        seen.add(path)
        if mode != {"d": "700", "f": "600", "s": "600"}.get(kind) or {user, group} != {owner}:
            wrong.append(line)
    places = {f"/var/lib/keel/mesh/{place}" for place in ("signing.key", "genesis", "roster")}
    report.expect(
        not wrong and places <= seen,
        f"{name}: modes and owners of {len(seen)} files, wrong {wrong or 'none'}",
    )


def obeyed(lab: Lab, report: Report) -> None:
    """A joiner's only trust root is its inviter; the inviter obeys nobody but its own operator."""
    for name, origins in ((A, {"none"}), (B, {"joined", "none"}), (C, {"joined", "none"})):
        argv = ["keel", "mesh", "trust", "list", "--json"]
        found = json.loads(lab.exec(name, argv).stdout)["members"]
        roots = {member["name"] for member in found if member["root"] == "joined"}
        met = {member["root"] for member in found} == origins and roots <= {A}
        report.expect(met, f"{name} obeys {', '.join(roots) or 'nobody else'}")


def one_roster(lab: Lab, report: Report) -> None:
    """`keel mesh sync` reaches every member now, and then all of them hold the same records."""
    for name in EVERYONE:
        lab.wait(partial(reaches_all, lab, name), PATIENCE_SECONDS, f"{name} to reach the others")
    report.expect(True, "each exchanges with the other two")
    seconds = lab.wait(partial(is_one, lab), PATIENCE_SECONDS, "one digest of the roster")
    report.note(f"one roster on all of them {seconds:.1f} s later")


def reaches_all(lab: Lab, name: Name) -> bool:
    """Whether one pass does; the link loses packets, and a timer's pass may be at work."""
    done = lab.exec(name, ["keel", "mesh", "sync", "--json"], check=False)
    reached = json.loads(done.stdout).get("reached", [])
    return {*reached} == {*EVERYONE} - {name}


def is_one(lab: Lab) -> bool:
    return len({mesh.status(lab, name)["mesh"]["digest"] for name in EVERYONE}) == 1


def planted(lab: Lab, report: Report) -> None:
    """The same check complains of one plain request and of one datagram."""
    target = node(A).hosts[0]
    underlay.unfence(lab, C)
    for name, words in (
        ("request", ["curl", "-s", "-m", "2", f"http://{target}:4780/v1/join"]),
        ("datagram", ["bash", "-c", f"echo x > /dev/udp/{target}/{WIREGUARD_PORT}"]),
    ):
        capture = lab.capture(A)
        lab.exec(C, words, check=False)
        lab.wait(partial(has_foreign, capture.path), PATIENCE_SECONDS, f"the planted {name}")
        found = underlay.inspect(capture.stop())
        report.expect(len(found.foreign) > 0, f"a planted plain {name} is seen: {found}")
    underlay.fence_again(lab, C)


def has_foreign(capture: Path) -> bool:
    return bool(underlay.inspect(capture).foreign)


def alone(lab: Lab, report: Report) -> None:
    """a is up without the others, and is booted once more while its etcd waits for a quorum."""
    lab.start(A)
    for boot in ("booted alone", "rebooted while its etcd waits"):
        lab.wait(
            partial(waits_for_quorum, lab),
            PATIENCE_SECONDS,
            "a's status to say that there is no quorum",
        )
        jobs = lab.exec(A, ["systemctl", "list-jobs", "--no-legend", "--plain"]).stdout.splitlines()
        failed = lab.exec(A, ["systemctl", "--failed", "--no-legend", "--plain"]).stdout
        report.expect(not failed, f"a {boot}: no quorum, no unit failed, {len(jobs)} jobs wait")
        if boot == "booted alone":
            lab.reboot(A)


def waits_for_quorum(lab: Lab) -> bool:
    found = mesh.status(lab, A)
    return any(one["code"] in ("etcd-no-quorum", "etcd-down") for one in found["warnings"])


def power_cut(lab: Lab, report: Report) -> None:
    """All of them off at once, and on again: mesh and registry are back without a hand."""
    registry.wait_for_voters(lab, EVERYONE)
    before = registry.judge_one_cluster(lab, report, EVERYONE, "before")
    addresses = {name: mesh.status(lab, name)["self"]["address"] for name in EVERYONE}
    lab.kill(*EVERYONE)
    report.note("all without power")
    alone(lab, report)
    lab.start(B, C)
    report.note("all booted")
    mesh.wait_until_whole(lab, EVERYONE)
    again = {name: mesh.status(lab, name)["self"]["address"] for name in EVERYONE}
    report.expect(again == addresses, "each sees the other two up, at the same addresses")
    for name in EVERYONE:
        tables = lab.exec(name, ["nft", "list", "tables"]).stdout.split("\n")
        both = {"table inet keel", "table inet underlay"} <= set(tables)
        report.expect(both, f"{name}: fence and keel's own rules stand")
    registry.wait_for_voters(lab, EVERYONE)
    after = registry.judge_one_cluster(lab, report, EVERYONE, "after")
    kept = after == before and registry.get(lab, C, "before") == f"by {A}"
    report.expect(kept, "the same cluster, with what was written before")
