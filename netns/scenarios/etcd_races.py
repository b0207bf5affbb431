"""Births that do not go by the book: two joiners at one moment, an inviter that is not the holder,
a party that is off, a node without the overlay. One formation, and no join fails because of etcd.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

from netns import mesh, registry
from netns.lab import Lab, forget_snapshot
from netns.scenario import Report
from netns.topology import Name, names

NAME = "etcd_races"
ROWS = ("E1", "E8", "E9", "E10", "E11")
LINK = "20ms,2ms,0%"
MEMBERS = 4

EVERYONE = names(4)
A, B, C, D = EVERYONE


def run(lab: Lab, report: Report) -> None:
    """Each part begins with two members; a holds the root."""
    snapshot = f"{lab.instance}-pair"
    mesh.create(lab, A)
    mesh.join(lab, B, mesh.invite(lab, A))
    lab.save(snapshot)
    try:
        at_once(lab, report)
        lab.load(snapshot)
        party_off(lab, report)
        lab.load(snapshot)
        holder_gone(lab, report)
    finally:
        forget_snapshot(snapshot)


def at_once(lab: Lab, report: Report) -> None:
    """Two invites redeemed at one moment: three of the four form, the fourth comes in after."""
    tokens = {name: mesh.invite(lab, A) for name in (C, D)}
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda name: mesh.join(lab, name, tokens[name]), tokens))
    report.note("c and d have joined at once")
    lab.wait(lambda: len(voters(lab)) >= 3, registry.BIRTH_SECONDS, "three of four to be voters")
    first = voters(lab)
    report.note(f"{', '.join(first)} gave birth")
    registry.wait_for_voters(lab, EVERYONE)
    registry.judge_one_cluster(lab, report, EVERYONE, "race")
    mesh.wait_until_whole(lab, EVERYONE)


def party_off(lab: Lab, report: Report) -> None:
    """No overlay on d: it joins all the same. With b off nothing forms when c joins, and the
    holder says for whom it waits; b comes back, and the timers give birth."""
    lab.exec(D, ["sed", "-i", "s/cloud_advanced/cloud/", "/etc/keel/spec.yaml"])
    mesh.join(lab, D, mesh.invite(lab, A))
    found = mesh.status(lab, D)
    report.expect(not found["self"]["capable"], f"d joined without etcd: {found['etcd']['phase']}")
    lab.kill(B)
    mesh.join(lab, C, mesh.invite(lab, A))
    report.expect(True, "c joined while b was off")
    lab.wait(
        partial(_waits_for, lab, A, B),
        registry.BIRTH_SECONDS,
        "the holder to say that it waits for b",
    )
    report.note("the holder waits for b and says so")
    lab.start(B)
    parties = (A, B, C)
    registry.wait_for_voters(lab, parties)
    registry.judge_one_cluster(lab, report, parties, "back")


def holder_gone(lab: Lab, report: Report) -> None:
    """The third is invited by another than the holder, who is off: joined, and told what is
    missing. The holder returns and gives birth."""
    lab.kill(A)
    argv = ["keel", "mesh", "join", "--token-file", "-"]
    token = mesh.invite(lab, B)
    done = lab.exec(C, argv, input=f"{token}\n")
    told = [line for line in done.stderr.splitlines() if line.startswith("keel: etcd:")]
    report.expect(any("holds the etcd root" in line for line in told), f"c is told: {told}")
    lab.start(A)
    lab.wait(partial(granted, lab), registry.BIRTH_SECONDS, "c to be granted its certificate")
    report.note("c has its certificate from the holder")
    registry.wait_for_voters(lab, (A, B, C))
    registry.judge_one_cluster(lab, report, (A, B, C), "elsewhere")


def voters(lab: Lab) -> list[Name]:
    return [name for name in EVERYONE if registry.is_voter(lab, name)]


def granted(lab: Lab) -> bool:
    """The same that c's timer does every five minutes."""
    lab.exec(C, ["keel", "mesh", "etcd", "tend"], check=False)
    return bool(mesh.status(lab, C)["etcd"]["phase"] != "waiting")


def _waits_for(lab: Lab, name: Name, whom: Name) -> bool:
    """Whether a pass of its tend says so; another pass may be at work meanwhile."""
    said = lab.exec(name, ["keel", "mesh", "etcd", "tend"], check=False).stdout
    return f"waits for {whom}: " in said
