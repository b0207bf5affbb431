"""One token is good for one node, whoever comes first; sixteen invites are as good as one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from netns import mesh
from netns.lab import Lab
from netns.scenario import Report
from netns.topology import Family, Mode, Name, names

NAME = "mesh_race"
ROWS = ("M2", "M3")
LINK = "125ms,12.5ms,1%"
MODE = Mode.CLOUD
FAMILY = Family.IPV6

A, B, C = EVERYONE = names(3)
OPEN = 16
TOLD_SECONDS = 60.0  # within which M2 has the loser told; no guard against waiting
DONE, REFUSED = 0, 3


def run(lab: Lab, report: Report) -> None:
    mesh.create(lab, A)
    tokens = many_invites(lab, report)
    loser = race(lab, report, tokens[0])
    cancel(lab, report, loser, tokens[1])
    joined = mesh.try_join(lab, loser, tokens[-1])
    report.expect(joined.exit == DONE, f"{loser} with another token: {joined}")
    mesh.wait_until_whole(lab, EVERYONE)
    report.note("each sees the other two up")


def many_invites(lab: Lab, report: Report) -> list[str]:
    """Sixteen are open; there is no seventeenth."""
    script = f"for i in $(seq {OPEN}); do keel mesh invite || exit; done"
    tokens = lab.exec(A, ["sh", "-c", script]).stdout.split()
    report.expect(len(set(tokens)) == OPEN, f"{OPEN} invites are open")
    more = lab.exec(A, ["keel", "mesh", "invite"], check=False)
    said = "16 invites are open already" in more.stderr and not more.stdout
    report.expect(more.returncode == REFUSED and said, f"no more: {more.stderr.splitlines()}")
    return tokens


def race(lab: Lab, report: Report, token: str) -> Name:
    """b and c redeem the first of the sixteen at once; returns who lost."""
    with ThreadPoolExecutor(2) as pool:
        b, c = pool.map(lambda name: mesh.try_join(lab, name, token), (B, C))
    report.note(f"b: {b}")
    report.note(f"c: {c}")
    report.expect({b.exit, c.exit} == {DONE, REFUSED}, "one joined, the other was refused")
    winner, loser, told = (B, C, c) if b.exit == DONE else (C, B, b)
    who = told.rule in ("join-claimed", "join-spent") and f"node {winner}" in str(told)
    fast = told.seconds < TOLD_SECONDS
    report.expect(who and fast, f"{loser} was told that it was {winner}")
    claim = mesh.record(lab, A, f"invites/{mesh.invite_of(token)}.json")["claim"]
    report.expect(claim["name"] == winner, f"the invite is {winner}'s")
    return loser


def cancel(lab: Lab, report: Report, joiner: Name, token: str) -> None:
    """A cancelled invite is refused as that, and only that one is cancelled."""
    mine = mesh.invite_of(token)
    lab.exec(A, ["keel", "mesh", "invite", "--cancel", mine])
    states = {row["invite"]: row["state"] for row in mesh.invites(lab, A)}
    rest = sorted(state for invite, state in states.items() if invite != mine)
    fine = states[mine] == "cancelled" and rest == ["spent"] + ["unused"] * (OPEN - 2)
    report.expect(fine, f"one cancelled, the others are {', '.join(sorted(set(rest)))}")
    tried = mesh.try_join(lab, joiner, token)
    report.expect((tried.exit, tried.rule) == (REFUSED, "join-cancelled"), f"{joiner}: {tried}")
