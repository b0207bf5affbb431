"""A cluster that grows and shrinks over the bad link while a client writes: the fourth joins, is a
learner before its join is answered, is promoted by keel's own gate, and is removed again: out of
the mesh, of etcd's list, and with its certificates revoked. Nothing acknowledged is lost. Then the
holder's disk, and after it a voter's, is put back to what it was before all that.
"""

import json
import time
from functools import partial

from netns import mesh, registry
from netns.lab import Lab, forget_snapshot
from netns.process import PATIENCE_SECONDS
from netns.scenario import SHORT, STANDARD, Report
from netns.topology import Name, names
from netns.writer import Writer

NAME = "etcd_life"
ROWS = ("E11", "E18", "E5", "E12", "Q2")
LINK = "125ms,12.5ms,1%"
MEMBERS = 4

EVERYONE = names(4)
A, B, C, D = EVERYONE
STOLEN = "/root/stolen.pem"


def run(lab: Lab, report: Report) -> None:
    snapshot = f"{lab.instance}-old"
    three_voters(lab, report)
    lab.save(snapshot)
    lived_on(lab, (A, C))
    try:
        stolen = live(lab, report)
        for name in EVERYONE:
            lab.set_link(name, SHORT)
        for name in (A, C):
            put_back(lab, report, name, snapshot, stolen)
    finally:
        forget_snapshot(snapshot)


def live(lab: Lab, report: Report) -> str:
    writer = Writer(lab, B)
    grow(lab, report, D)
    registry.judge_one_cluster(lab, report, EVERYONE, "grown")
    for name in EVERYONE:
        lab.wait(
            partial(voter_by_keel, lab, name), PATIENCE_SECONDS, f"{name} to call itself a voter"
        )
    report.expect(True, "keel says so as well, on each")
    stolen = shrink(lab, report, D)
    registry.judge_one_cluster(lab, report, (A, B, C), "shrunk")
    writer.judge(report, (A, B, C))
    return stolen


def three_voters(lab: Lab, report: Report) -> None:
    """Born over a short link; from then on it is the bad one again."""
    for name in EVERYONE:
        lab.set_link(name, SHORT)
    mesh.create(lab, A)
    for name in (B, C):
        mesh.join(lab, name, mesh.invite(lab, A))
    registry.wait_for_voters(lab, (A, B, C))
    for name in EVERYONE:
        lab.set_link(name, STANDARD)
    report.note("three voters")


def grow(lab: Lab, report: Report, name: Name) -> None:
    """Invited by the holder: listed as a learner when the join ends, a voter soon after."""
    token = mesh.invite(lab, A)
    said = lab.exec(name, mesh.JOIN, input=f"{token}\n").stderr
    begun = time.monotonic()
    listed = len(registry.cluster(lab, A).members) == 4
    told = [line for line in said.splitlines() if "waits for" in line]  # a voter, held up just then
    report.expect(listed or bool(told), f"{name} is listed when its join has ended {told or ''}")
    registry.wait_for_voters(lab, (name,), PATIENCE_SECONDS)
    took = time.monotonic() - begun
    report.note(f"{name} votes {took:.1f} s after its join command ended")
    lab.wait(
        partial(gate_is_told, lab, name),
        PATIENCE_SECONDS,
        "the holder's journal to have the numbers",
    )
    report.expect(True, f"the gate in the holder's journal: {gate(lab, name)}")


def shrink(lab: Lab, report: Report, name: Name) -> str:
    """Removed where it was admitted; then probes from its side, and with what it has on disk."""
    stolen = steal(lab, name)
    report.expect(
        stolen_is_good(lab, A, stolen), f"{name}'s certificate is good at a's etcd before"
    )
    target = mesh.status(lab, A)["self"]["address"]
    said = lab.exec(A, ["keel", "mesh", "remove", name, "--json"], check=False)
    done = json.loads(said.stdout)
    report.expect(done["mesh_wide"], f"removed: {done['enforced']}, not yet: {done['not_yet']}")
    listed = len(registry.cluster(lab, A).members)
    true = listed == 3 or bool(done["not_yet"])  # an election just then: the tend goes on
    report.expect(true, f"etcd lists {listed} members when the command ends")
    lab.wait(lambda: len(registry.cluster(lab, A).members) == 3, PATIENCE_SECONDS, "it to be out")
    took = lab.wait(
        lambda: not stolen_is_good(lab, A, stolen),
        PATIENCE_SECONDS,
        "a's etcd to refuse what was revoked",
    )
    report.expect(True, f"its certificate is refused at a's etcd {took:.0f} s after the command")
    probe = lab.exec(name, ["ping", "-6", "-c", "2", "-W", "3", target], check=False)
    report.expect(probe.returncode != 0, f"{name} reaches a over the overlay no more")
    report.expect(not registry.put(lab, name, "from-outside", "1"), f"{name} writes no more")
    return stolen


def lived_on(lab: Lab, names: tuple[Name, ...]) -> None:
    """So that the snapshot is an old one: keel counts the hours, and each start of etcd."""
    for name in names:
        before = lived(lab, name)
        lab.exec(name, ["systemctl", "restart", "etcd.service"])
        registry.wait_for_voters(lab, (name,))
        counted = partial(counts_more, lab, name, before)
        lab.wait(counted, PATIENCE_SECONDS, f"{name} to count and tell the start of its etcd")


def counts_more(lab: Lab, name: Name, before: int) -> bool:
    """After a pass of this scenario's or of the timer's, of which one may be at work already; and
    in its own record as well, which a node that is behind may not sign yet."""
    said = lab.exec(name, ["keel", "mesh", "etcd", "tend"], check=False).stdout
    return "counted within the hour" in said and lived(lab, name) > before


def lived(lab: Lab, name: Name) -> int:
    said = lab.exec(name, ["cat", "/var/lib/keel/etcd/lived"], check=False).stdout
    return int(json.loads(said)["counter"]) if said else 0


def put_back(lab: Lab, report: Report, name: Name, snapshot: str, stolen: str) -> None:
    """Its disk is from before d came and went: its etcd does not start, nothing that was revoked is
    good again, and the one command gives it a new place."""
    left = (A, B, C)
    before = registry.cluster(lab, B)
    crl = crl_number(lab, B)
    lab.put_back(name, snapshot)
    registry.wait_for_write(lab, B, f"without-{name}", "old disk", PATIENCE_SECONDS)
    lab.start(name)
    lab.wait(
        lambda: "restored" in codes(lab, name),
        PATIENCE_SECONDS,
        f"{name}'s status to say `restored`",
    )
    active = lab.exec(name, ["systemctl", "show", "-P", "SubState", "etcd.service"]).stdout.strip()
    report.expect(active != "running", f"{name}: put back, says `restored`; its etcd: {active}")
    report.expect(registry.cluster(lab, B) == before, "the others serve, their list is as it was")
    recovers = partial(recovered, lab, report, name)
    lab.wait(recovers, PATIENCE_SECONDS, f"{name} to be heard by a quorum of the others")
    registry.wait_for_voters(lab, left, PATIENCE_SECONDS)
    after = registry.judge_one_cluster(lab, report, left, f"put-back-{name}")
    same = len(set(before.members) & set(after.members))
    report.expect(
        (after.identity, same) == (before.identity, 2), f"the same cluster, {name} has a new ID"
    )
    report.expect(
        registry.get(lab, name, f"without-{name}") == "old disk", f"{name} has what it missed"
    )
    lab.wait(
        lambda: crl_number(lab, name) >= crl, PATIENCE_SECONDS, f"{name} to have the others' CRL"
    )
    for one in left:
        report.expect(not stolen_is_good(lab, one, stolen), f"d's certificate is refused at {one}")
    lab.wait(
        lambda: "restored" not in codes(lab, name), PATIENCE_SECONDS, f"{name} to be itself again"
    )


RECOVER = ["keel", "mesh", "etcd", "recover", "--replace", "--json"]


def recovered(lab: Lab, report: Report, name: Name) -> bool:
    """By the one command. On a busy machine the others may seem silent to it for a moment: it is
    refused for that alone, and typed again."""
    done = lab.exec(name, RECOVER, check=False)
    said = json.loads(done.stdout)
    if said.get("rule") == "replace-no-quorum":
        report.note(f"{name}: {said.get('summary')}")
        return False
    report.expect(done.returncode == 0, f"{name}: {' '.join(RECOVER)}: {said}")
    return True


def codes(lab: Lab, name: Name) -> list[str]:
    return [str(one["code"]) for one in mesh.status(lab, name)["warnings"]]


def crl_number(lab: Lab, name: Name) -> int:
    return int(mesh.status(lab, name)["etcd"]["crl"]["number"])


def steal(lab: Lab, name: Name) -> str:
    """What is on the disk of the one that goes."""
    return lab.exec(name, ["sh", "-c", "cat /var/lib/keel/etcd/leaf/*/client.pem"]).stdout


def stolen_is_good(lab: Lab, name: Name, stolen: str) -> bool:
    """Whether what somebody on this node has in hands opens its etcd."""
    lab.put(name, STOLEN, stolen, mode=0o600)
    words = (
        f"curl --silent --fail --max-time 20 --cacert /etc/etcd/keel/trust.pem --cert {STOLEN}"
        f" --key {STOLEN} --data '{{}}' 'https://[::1]:2379/v3/maintenance/status'"
    )
    return lab.exec(name, ["sh", "-c", words], check=False).returncode == 0


def gate(lab: Lab, name: Name) -> str:
    """What the holder's tend said when it promoted the learner."""
    said = lab.journal(A, "-u", "keel-*", "-o", "cat")
    found = [line for line in said.splitlines() if f"{name} is a voter now" in line]
    return found[-1] if found else ""


def gate_is_told(lab: Lab, name: Name) -> bool:
    return bool(gate(lab, name))


def voter_by_keel(lab: Lab, name: Name) -> bool:
    return bool(mesh.status(lab, name)["etcd"]["phase"] == "voter")
