"""Cuts, keel beside bare etcd: two labs from one snapshot, with the same link and seed, cut and
healed at the same moments.

The clocks: a follower's return runs from the heal of its link until a linearizable read, asked of
its own etcd on [::1], shows what the others wrote while it was away. A leader's loss runs from the
cut until the first write is committed that loops on both other members try.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from subprocess import Popen

from netns import registry
from netns.benches import rows
from netns.benches.rows import Row
from netns.lab import Lab
from netns.topology import Name

CUT_SECONDS = 120.0
PATIENCE = 30.0
"""For bare etcd's return, which may take as long as the cut; then it is restarted."""
SETTLE_SECONDS = 10.0
LOOPING_SECONDS = 3.0
"""A loop has asked keel for its environment by then."""
LOOP_SECONDS = 180
REJOIN_GOAL, LEADER_GOAL = 6.0, 12.0
READ = """\
eval "$(keel mesh etcd env)"
until [ "$(etcdctl --dial-timeout=1s --command-timeout=2s get --print-value-only $1 2>&-)" = "$2" ]
do sleep 0.05; done
date +%s.%N
"""
Say = Callable[[str], None]
WRITE = """\
eval "$(keel mesh etcd env)"
read go
until etcdctl --dial-timeout=1s --command-timeout=2s put $1 $2 >&- 2>&-
do sleep 0.05; done
date +%s.%N
"""


@dataclass(slots=True, kw_only=True)
class Side:
    """One of the two clusters, how its etcd is restarted, and what was measured on it."""

    label: str
    lab: Lab
    unit: str
    rejoin: list[float] = field(default_factory=list)
    leader: list[float] = field(default_factory=list)
    leader_again: list[float] = field(default_factory=list)


def measure(keel: Side, bare: Side, names: Sequence[Name], rounds: int, out: Say) -> list[Row]:
    """Round after round: a follower cut and healed, the leader cut at once, the leader cut again
    when all is calm."""
    with ThreadPoolExecutor(2) as pool:
        for number in range(rounds):
            follower = common_follower([leader_of(side.lab, names) for side in (keel, bare)], names)
            for side in (keel, bare):
                side.lab.cut(follower)
            time.sleep(CUT_SECONDS)
            running = [
                pool.submit(one_round, side, names, follower, f"r{number}", out)
                for side in (keel, bare)
            ]
            for each in running:
                each.result()
    return table(keel, bare)


def one_round(side: Side, names: Sequence[Name], follower: Name, mark: str, out: Say) -> None:
    """What follows a cut of 120 s, on one side."""
    rest = [name for name in names if name != follower]
    registry.wait_for_write(side.lab, rest[0], "away", mark, LOOP_SECONDS)
    side.rejoin.append(returned(side, follower, mark))
    out(f"{side.label}: {follower} read again {side.rejoin[-1]:.2f} s after its heal")
    side.leader_again.append(leader_lost(side, names, f"{mark}-again"))
    out(f"{side.label}: leader cut just after that: a write in {side.leader_again[-1]:.2f} s")
    side.leader.append(leader_lost(side, names, f"{mark}-calm"))
    out(f"{side.label}: leader cut in calm: a write in {side.leader[-1]:.2f} s")


def returned(side: Side, follower: Name, mark: str) -> float:
    """Seconds from the heal to its linearizable read of what was written meanwhile."""
    reading = side.lab.popen(follower, ["sh", "-c", READ, "read", "away", mark])
    time.sleep(LOOPING_SECONDS)
    begun = time.time()
    side.lab.heal(follower)
    try:
        return _moment(reading, PATIENCE) - begun
    except TimeoutError:
        side.lab.exec(follower, ["systemctl", "restart", side.unit])
        _moment(reading, LOOP_SECONDS)
        return PATIENCE


def leader_lost(side: Side, names: Sequence[Name], mark: str) -> float:
    """Seconds from the leader's cut to the next committed write; healed and settled after it."""
    leader = leader_of(side.lab, names)
    rest = [name for name in names if name != leader]
    writing = [side.lab.popen(one, ["sh", "-c", WRITE, "write", "led", mark]) for one in rest]
    time.sleep(LOOPING_SECONDS)
    begun = time.time()
    side.lab.cut(leader)
    for each in writing:
        assert each.stdin  # a pipe was asked for
        each.stdin.write("go\n")
        each.stdin.flush()
    written = min(_moment(each, LOOP_SECONDS) for each in writing)
    side.lab.heal(leader)
    _settle(side, names, leader, mark)
    return written - begun


def _settle(side: Side, names: Sequence[Name], healed: Name, mark: str) -> None:
    """Wait until all is as before; who takes too long is restarted, and not measured."""
    try:
        registry.wait_for_write(side.lab, healed, "back", mark, PATIENCE)
    except TimeoutError:
        side.lab.exec(healed, ["systemctl", "restart", side.unit])
    registry.wait_for_voters(side.lab, names, LOOP_SECONDS)
    registry.wait_for_write(side.lab, healed, "back", mark, LOOP_SECONDS)
    time.sleep(SETTLE_SECONDS)


def leader_of(lab: Lab, names: Sequence[Name]) -> Name:
    """By the members' own words. Raises TimeoutError without one."""
    found: list[Name] = []

    def led() -> bool:
        found[:] = [name for name in names if _leads(lab, name)]
        return len(found) == 1

    lab.wait(led, LOOP_SECONDS, "one leader")
    return found[0]


def common_follower(leaders: Sequence[Name], names: Sequence[Name]) -> Name:
    """The last one that leads nowhere: two clusters of three have one."""
    return next(name for name in reversed(names) if name not in leaders)


def table(keel: Side, bare: Side) -> list[Row]:
    """The rows of both goals."""
    return [
        Row(
            what="follower cut 120 s: heal to its next linearizable read, s",
            keel=rows.listed(keel.rejoin),
            beside=f"bare etcd {bounded(bare.rejoin)}",
            goal=rows.at_most(keel.rejoin, REJOIN_GOAL, " s"),
        ),
        Row(
            what="leader cut to the next committed write, s",
            keel=rows.listed(keel.leader),
            beside=f"bare etcd {rows.listed(bare.leader)}",
            goal=rows.at_most(keel.leader, LEADER_GOAL, " s"),
        ),
        Row(
            what="the same, just after a follower's return",
            keel=rows.listed(keel.leader_again),
            beside=f"bare etcd {rows.listed(bare.leader_again)}",
            goal=rows.at_most(keel.leader_again, LEADER_GOAL, " s"),
        ),
    ]


def says_it_leads(said: str) -> bool:
    """In what `etcdctl endpoint status -w json` printed."""
    status = json.loads(said)[0]["Status"]
    return bool(status["header"]["member_id"] == status.get("leader", 0))


def bounded(values: Sequence[float]) -> str:
    """Those that nobody waited for to the end are said to be more."""
    shown = (f"> {PATIENCE:.0f}" if one >= PATIENCE else f"{one:.2f}" for one in values)
    return ", ".join(shown)


def _leads(lab: Lab, name: Name) -> bool:
    done = registry.etcdctl(lab, name, "endpoint", "status", "-w", "json", check=False)
    return done.returncode == 0 and says_it_leads(done.stdout)


def _moment(loop: Popen[str], seconds: float) -> float:
    """When it ended, by its own word."""
    deadline = time.monotonic() + seconds
    while loop.poll() is None:
        if time.monotonic() > deadline:
            raise TimeoutError("a loop did not end")
        time.sleep(0.02)
    return float(loop.communicate()[0])
