"""Power cuts, kills and lost answers at the worst moments of a join: the same command goes on, with
the same address and the same invite.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from netns import mesh
from netns.lab import Lab
from netns.process import PATIENCE_SECONDS
from netns.scenario import STANDARD, Report
from netns.topology import Mode, Name, Quality, names

NAME = "mesh_kills"
ROWS = ("M2", "Q3")
LINK = "125ms,12.5ms,1%"
MEMBERS = 4
MODE = Mode.CLOUD

A, B, C, D = EVERYONE = names(4)
DONE = 0
POLL_SECONDS = 0.005
SLOW = Quality(delay_ms=600)  # each direction, so that no answer overtakes the power cut
PENDING = "pending-join/*/join.json"


def run(lab: Lab, report: Report) -> None:
    mesh.create(lab, A)
    report.note("a: created")
    with ThreadPoolExecutor(1) as pool:
        joiner(lab, report, pool)
        inviter(lab, report, pool)
        answer(lab, report, pool)
    mesh.wait_until_whole(lab, EVERYONE)
    report.note("each sees the other three up")


class Join:
    """One node's join with one invite: started again and again, always the same command."""

    def __init__(self, lab: Lab, pool: ThreadPoolExecutor, name: Name) -> None:
        self.lab, self.pool, self.name = lab, pool, name
        self.token = mesh.invite(lab, A)

    def start(self) -> Future[mesh.Tried]:
        return self.pool.submit(mesh.try_join, self.lab, self.name, self.token)

    def invite(self) -> dict[str, Any]:
        """The invite's record at the inviter."""
        return mesh.record(self.lab, A, f"invites/{mesh.invite_of(self.token)}.json")

    def pending(self) -> dict[str, Any]:
        """The pending join's record at the joiner; empty when there is none."""
        return mesh.record(self.lab, self.name, PENDING)

    def is_claimed(self) -> bool:
        return bool(self.invite().get("claim"))

    def reach(self, point: Callable[[], bool], what: str, *, cut: Name | None = None) -> None:
        """Wait for a point, close enough to act on it; `cut` loses its power at that moment."""
        machine = self.lab.machine(cut) if cut else None
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not point():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} did not come to {what}")
            time.sleep(POLL_SECONDS)
        if machine:
            machine.cut_power()

    def finish(self, report: Report) -> None:
        """Run it until it is done, three times at most; then the claim and the node agree."""
        for _ in range(3):
            tried = self.start().result()
            report.note(f"{self.name}: the same command: {tried}")
            if tried.exit == DONE:
                break
        claim = self.invite()["claim"]
        report.expect(tried.exit == DONE, f"{self.name} joined with the same command")
        same = tried.document["address"] == claim["address"] and claim["name"] == self.name
        report.expect(same, f"at the address that was claimed, {claim['address']}")
        report.expect(self.invite()["phase"] == "spent", "and its invite is spent")
        report.expect(not self.pending(), "nothing of it is pending any more")


def joiner(lab: Lab, report: Report, pool: ThreadPoolExecutor) -> None:
    """b loses its power before it has the answer, before its confirmation, and after it."""
    lab.set_link(B, SLOW)
    join = Join(lab, pool, B)
    points: dict[str, tuple[Callable[[], bool], Callable[[], bool]]] = {
        "claimed, before the answer came": (
            join.is_claimed,
            lambda: not join.pending().get("admitted"),
        ),
        "admitted, before the confirmation": (
            lambda: bool(join.pending().get("admitted")),
            lambda: join.invite().get("phase") == "claimed",
        ),
        "confirmed, before it heard so": (
            lambda: join.invite().get("phase") == "spent",
            lambda: bool(join.pending()),
        ),
    }
    for what, (point, held) in points.items():
        running = join.start()
        join.reach(point, what, cut=B)
        report.expect(held(), f"b's power is cut: {what}")
        running.result()
        lab.start(B)
    lab.set_link(B, STANDARD)
    join.finish(report)


def inviter(lab: Lab, report: Report, pool: ThreadPoolExecutor) -> None:
    """a loses its power right after the claim, before its answer is heard."""
    lab.set_link(C, SLOW)
    join = Join(lab, pool, C)
    running = join.start()
    join.reach(join.is_claimed, "the claim", cut=A)
    report.expect(not join.pending().get("admitted"), "a's power is cut right after the claim")
    lab.set_link(C, STANDARD)
    lab.start(A)
    report.note(f"c: the command that was running: {running.result()}")
    join.finish(report)


def answer(lab: Lab, report: Report, pool: ThreadPoolExecutor) -> None:
    """d's command is killed with SIGKILL; then the answer is lost on a cut link."""
    lab.set_link(D, SLOW)
    join = Join(lab, pool, D)
    running = join.start()
    join.reach(lambda: bool(join.pending()), "its keys on disk")
    lab.exec(D, ["pkill", "-KILL", "-f", "keel mesh join"])
    report.expect(running.result().exit != DONE, "d's command is killed once its keys are on disk")
    running = join.start()
    join.reach(join.is_claimed, "the claim")
    lab.cut(D)
    report.expect(not join.pending().get("admitted"), "d is cut off right after the claim")
    lab.set_link(D, STANDARD)
    time.sleep(5)
    lab.heal(D)
    report.note(f"d: the command that was running: {running.result()}")
    join.finish(report)
