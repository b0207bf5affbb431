"""No room under /var/lib/keel while a node joins, while the roster spreads and while a registry is
born: each says so and stops where it is, nothing is lost, and running again is the cure. No room
for one member's etcd, and a database at its quota: status says it, and the runbook leads out. And
what a real member throws at another's channel harms nobody.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from netns import inside, mesh, registry
from netns.lab import Lab
from netns.process import PATIENCE_SECONDS
from netns.scenario import Report
from netns.topology import Name, names

NAME = "disk_full"
ROWS = ("Q4", "M2", "M5", "M7", "E8", "E21")
LINK = "20ms,2ms,0%"

EVERYONE = names(3)
A, B, C = EVERYONE
STATE = "/var/lib/keel"
DISK_SIZE = "4m"
ETCD = "/var/lib/keel-etcd"
ETCD_SIZE = "160m"  # two segments of the log, 64 MiB each, are written in advance
FILL = """
cd "$1"
while
    dd if=/dev/zero bs=4k >>filler || true
    echo room >room
do rm room; done 2>/dev/null  # a pass may have given some back meanwhile
rm -f room
"""
DONE, REFUSED, INCOMPLETE = 0, 3, 4
THROW = Path(inside.__file__).parent / "throw.py"
MEMORY_MIB = 200
VALUE = "x" * 300_000
VALUES = 12
QUOTA = "[Service]\nEnvironmentFile=/etc/small.env\n"
SMALL = "/etc/systemd/system/etcd.service.d/99-small.conf"
RUNBOOK = Path(__file__).parents[2] / "docs/mesh.md"


def run(lab: Lab, report: Report) -> None:
    for name in EVERYONE:
        lab.exec(name, ["mkdir", "-p", "-m", "0700", STATE])
        options = f"size={DISK_SIZE},mode=0700"
        lab.exec(name, ["mount", "-t", "tmpfs", "-o", options, "tmpfs", STATE])
    own = f"size={ETCD_SIZE},mode=0700,uid=$(id -u etcd),gid=$(id -g etcd)"
    lab.exec(C, ["sh", "-euc", f"mkdir -p {ETCD}; mount -t tmpfs -o {own} tmpfs {ETCD}"])
    mesh.create(lab, A)
    mesh.join(lab, B, mesh.invite(lab, A))
    lab.wait(partial(ready, lab, B), PATIENCE_SECONDS, "b to be ready")
    token = mesh.invite(lab, A)
    joiner_without_room(lab, report, token)
    inviter_without_room(lab, report, token)
    birth_without_room(lab, report, token)
    etcd_without_room(lab, report)
    quota_reached(lab, report)
    thrown_at(lab, report)


def joiner_without_room(lab: Lab, report: Report, token: str) -> None:
    fill(lab, C)
    tried = mesh.try_join(lab, C, token)
    says_so(report, "c cannot join", tried.exit, tried.document)
    empty = ["find", STATE, "-type", "f", "-size", "0", "-o", "-name", "*.keel-tmp"]
    report.expect(not lab.exec(C, empty).stdout, "and leaves nothing half written")
    make_room(lab, C)


def inviter_without_room(lab: Lab, report: Report, token: str) -> None:
    """c has room, a has none: the claim cannot be kept, so that there is none."""
    fill(lab, A)
    tried = mesh.try_join(lab, C, token)
    report.expect(tried.exit == INCOMPLETE, f"a cannot keep the claim; c is told: {tried}")
    states = {one["invite"]: one["state"] for one in mesh.invites(lab, A)}
    report.expect(states[mesh.invite_of(token)] == "unused", "the invite is unused as before")
    found = mesh.status(lab, A)
    report.expect(bool(found["members"]), "a's status goes on without room")
    make_room(lab, A)


def birth_without_room(lab: Lab, report: Report, token: str) -> None:
    """b is full while c joins and the registry is born: the other two form and serve."""
    fill(lab, B)
    tried = mesh.try_join(lab, C, token)
    report.expect(tried.exit == DONE, f"c joins with the same token: {tried}")
    registry.wait_for_voters(lab, (A, C))
    registry.wait_for_write(lab, A, "without", "b", PATIENCE_SECONDS)
    report.expect(True, "a and c serve without b")
    done = lab.exec(B, ["keel", "mesh", "sync", "--json"], check=False)
    says_so(report, "b's sync", done.returncode, json.loads(done.stdout or "{}"))
    before = registry.cluster(lab, A).identity
    make_room(lab, B)
    lab.exec(A, ["keel", "mesh", "etcd", "tend"], check=False)  # as its timer does
    registry.wait_for_voters(lab, EVERYONE)
    mesh.wait_until_whole(lab, EVERYONE)
    same = registry.judge_one_cluster(lab, report, EVERYONE, "room").identity == before
    report.expect(same and registry.get(lab, B, "without") == "b", "with room b is in it as well")


def etcd_without_room(lab: Lab, report: Report) -> None:
    """c's file system has no room for etcd's data: its etcd stops, the others serve, and with room
    it is back by itself."""
    fill(lab, C, ETCD)
    big_values(lab, A)
    lab.wait(lambda: stopped(lab, C), PATIENCE_SECONDS, "c's etcd to stop without room")
    registry.wait_for_write(lab, A, "narrow", "c", PATIENCE_SECONDS)
    report.expect(True, "c's etcd has stopped; a and b serve")
    lab.wait(
        lambda: "etcd-down" in warnings(lab, C),
        PATIENCE_SECONDS,
        "c's status to say that its etcd is down",
    )
    lab.wait(
        lambda: "etcd-voter-silent" in warnings(lab, A),
        PATIENCE_SECONDS,
        "a's status to say that c's is silent",
    )
    make_room(lab, C, ETCD)
    registry.wait_for_voters(lab, (C,))
    report.expect(registry.get(lab, C, "narrow") == "c", "with room it is back, with all of it")


def quota_reached(lab: Lab, report: Report) -> None:
    """b's quota is one that a few values fill; then the lines of the runbook, as they stand."""
    lab.put(B, "/etc/small.env", f"ETCD_QUOTA_BACKEND_BYTES={4 << 20}\n")
    lab.put(B, SMALL, QUOTA)
    again(lab, B)
    said = big_values(lab, B)
    report.expect("database space exceeded" in said, "b's database is at its quota")
    lab.wait(lambda: "etcd-full" in warnings(lab, A), PATIENCE_SECONDS, "a's status to say so")
    report.expect(not registry.put(lab, A, "more", "1"), "a says so, and takes no more writes")
    for name, lines in ((A, runbook()), (A, DEFRAG), (B, DEFRAG), (C, DEFRAG), (A, DISARM)):
        lab.exec(name, ["sh", "-euc", lines])
    registry.wait_for_write(lab, A, "more", "1", PATIENCE_SECONDS)
    report.expect(True, "after the runbook's lines it is written again")
    lab.wait(lambda: not warnings(lab, A), PATIENCE_SECONDS, "a's status to warn of nothing")
    lab.exec(B, ["rm", SMALL])
    again(lab, B)


DEFRAG = 'eval "$(keel mesh etcd env)"\netcdctl defrag'
DISARM = 'eval "$(keel mesh etcd env)"\netcdctl alarm disarm'


def runbook() -> str:
    """The commands under etcd-full, for the keys of this scenario."""
    about = RUNBOOK.read_text().partition("### etcd-full\n")[2].partition("\n### ")[0]
    lines = about.split("```")[1]
    assert "/what/nobody/needs" in lines
    return lines.replace("/what/nobody/needs", "big-")


def big_values(lab: Lab, name: Name) -> str:
    """So many of them written, until one is refused; what was said of it."""
    for number in range(VALUES):
        argv = ["sh", "-c", registry.ETCDCTL, "etcdctl", "put", f"big-{number}"]
        done = lab.exec(name, argv, input=VALUE, check=False)
        if done.returncode != 0:
            return done.stderr
    return ""


def stopped(lab: Lab, name: Name) -> bool:
    argv = ["systemctl", "show", "-P", "ActiveState,NRestarts", "etcd.service"]
    return "active" not in lab.exec(name, argv).stdout.split()


def again(lab: Lab, name: Name) -> None:
    lab.exec(name, ["systemctl", "daemon-reload"])
    lab.exec(name, ["systemctl", "restart", "etcd.service"])
    registry.wait_for_voters(lab, (name,))


def warnings(lab: Lab, name: Name) -> list[str]:
    return [str(one["code"]) for one in mesh.status(lab, name)["warnings"]]


def thrown_at(lab: Lab, report: Report) -> None:
    """From b's own address: what is no message, and what is far too large for one."""
    target = mesh.status(lab, A)["self"]["address"]
    before = channel(lab, A)
    done = lab.exec(B, ["python3", "-", target], input=THROW.read_text())
    said: dict[str, str] = json.loads(done.stdout)
    fine = all(
        one.startswith("4") or one == "closed" or (what.endswith("/v1/join") and one == "200")
        for what, one in said.items()
    )  # a join is refused with 200, in the same words whatever was wrong
    report.expect(fine, f"refused or cut off: {said}")
    report.expect(channel(lab, A) == before, "a's channel is the same process")
    said_of_it = lab.exec(A, ["grep", "VmHWM", f"/proc/{before}/status"]).stdout
    most = int(said_of_it.split()[1]) >> 10
    report.expect(most < MEMORY_MIB, f"and never had more than {most} MiB")
    lab.wait(partial(syncs, lab, B), PATIENCE_SECONDS, "b's honest sync")
    report.note("b's next honest sync is answered")


def says_so(report: Report, what: str, status: int, document: dict[str, object]) -> None:
    told = f"{document.get('summary')}; {document.get('remedy')}"
    report.expect(
        status == INCOMPLETE and STATE in told and "no space left" in told and "df -h" in told,
        f"{what}: exit {status}: {told}",
    )


def fill(lab: Lab, name: Name, place: str = STATE) -> None:
    lab.exec(name, ["sh", "-euc", FILL, "fill", place])


def make_room(lab: Lab, name: Name, place: str = STATE) -> None:
    lab.exec(name, ["rm", f"{place}/filler"])


def ready(lab: Lab, name: Name) -> bool:
    return bool(mesh.status(lab, name)["etcd"]["phase"] == "ready")


def syncs(lab: Lab, name: Name) -> bool:
    return lab.exec(name, ["keel", "mesh", "sync"], check=False).returncode == DONE


def channel(lab: Lab, name: Name) -> str:
    argv = ["systemctl", "show", "-P", "MainPID", "keel-channel.service"]
    return lab.exec(name, argv).stdout.strip()
