"""A joiner whose clock is wrong is told so, with both clocks, and joins once it is right; a
member's shows.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from netns import clock, mesh
from netns.lab import Lab
from netns.process import PATIENCE_SECONDS
from netns.scenario import Report
from netns.topology import Family, Mode, names

NAME = "mesh_clock"
ROWS = ("M2", "M11")
LINK = "125ms,12.5ms,1%"
MEMBERS = 2
MODE = Mode.CLOUD
FAMILY = Family.IPV4

A, B = EVERYONE = names(2)
DONE, REFUSED = 0, 3
FOR_THE_LINK = timedelta(seconds=60)
TIMES = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def run(lab: Lab, report: Report) -> None:
    mesh.create(lab, A)
    token = mesh.invite(lab, A)
    invite = f"invites/{mesh.invite_of(token)}.json"
    before = mesh.record(lab, A, invite)
    for offset, apart in (
        ("+10m", timedelta(minutes=10)),
        ("-10m", timedelta(minutes=-10)),
        ("@1970-01-01 00:00:00", datetime(1970, 1, 1, tzinfo=UTC) - datetime.now(UTC)),
    ):
        tried = mesh.try_join(lab, B, token, clock=offset)
        refused = (tried.exit, tried.rule) == (REFUSED, "join-clock")
        report.expect(refused, f"b's clock at {offset}: {tried}")
        report.expect(names_both(tried, apart), "it names both clocks")
        report.expect(mesh.record(lab, A, invite) == before, "nothing was claimed")
    tried = mesh.try_join(lab, B, token)
    report.expect(tried.exit == DONE, f"the same command with the right clock: {tried}")
    mesh.wait_until_whole(lab, EVERYONE)
    shown(lab, report)


def names_both(tried: mesh.Tried, apart: timedelta) -> bool:
    """Whether the first clock is the inviter's and the second one differs by as much."""
    clocks = [datetime.fromisoformat(text) for text in TIMES.findall(str(tried))]
    if len(clocks) != 2:
        return False
    inviters, joiners = clocks
    slack = FOR_THE_LINK + timedelta(seconds=tried.seconds)
    right = abs(datetime.now(UTC) - inviters) < slack
    return right and abs(joiners - inviters - apart) < slack


def shown(lab: Lab, report: Report) -> None:
    """The clock of a member that is two minutes ahead is on the other's status."""
    clock.shift(lab, B, "+2m")
    lab.exec(B, ["systemctl", "restart", "keel-channel.service"])
    lab.wait(lambda: 100 < offset(lab) < 130, PATIENCE_SECONDS, "the clocks' difference to show")
    found = mesh.status(lab, A)
    codes = [warning["code"] for warning in found["warnings"]]
    report.expect("clock-off" in codes, f"a sees b's clock {offset(lab):.0f} s ahead, and warns")
    clock.restore(lab, B)
    lab.exec(B, ["systemctl", "restart", "keel-channel.service"])
    lab.wait(lambda: abs(offset(lab)) < 5, PATIENCE_SECONDS, "the clocks to agree again")
    report.note("and right again")


def offset(lab: Lab) -> float:
    (member,) = mesh.status(lab, A)["members"]
    return float(member["clock_offset_seconds"] or 0)
