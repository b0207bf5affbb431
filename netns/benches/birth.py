"""The birth, a join and a learner's way, and the short commands, beside bare etcd.

The birth: from the third joiner's confirmation at the inviter to the first committed write, against
a static bootstrap of three bare etcds, from the first of the three starts. Both run by turns (A B A
B ...) over the same overlay, with the same binary, certificates, timers and settings; the write is
tried by the same loop on the same member.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from netns import inside, mesh, registry
from netns.benches import bare as bare_etcd
from netns.benches import rows
from netns.benches.rows import Row
from netns.lab import Lab
from netns.scenario import ping
from netns.topology import Name, names

EVERYONE = names(3)
A, B, C = EVERYONE
D = names(4)[-1]
MARKER = "var/lib/keel-etcd/marker.json"
BOOK = "var/lib/keel/etcd/formation.json"
FIRST_WRITE = """\
until etcdctl --dial-timeout=1s --command-timeout=2s put first write >/dev/null 2>&1
do sleep 0.05; done
date +%s.%N
"""
MARKS = {
    "unit": "Starting etcd.service",
    "etcd": "starting an etcd server",
    "peers": "fast-forwarding election ticks",
    "asks": "became pre-candidate",
    "leader": "elected leader",
    "serves": "ready to serve client requests",
}
WRITE_SECONDS = 120
FIRST_PASSES = ("keel-mesh-etcd.service", "keel-mesh-sync.service")
REST_SECONDS = 120
COMMANDS = 7
BIRTH_RATIO, JOIN_TRIPS, LEARNER_SECONDS = 1.3, 10.0, 15.0
VERSION_RATIO, STATUS_CPU, TEND_CPU = 4.0, 0.4, 0.4
STOPWATCH = Path(inside.__file__).parent / "stopwatch.py"


Say = Callable[[str], None]


def two_members(lab: Lab, snapshot: str) -> str:
    """A mesh of two with an open invite, saved; the third's token."""
    mesh.create(lab, A)
    mesh.join(lab, B, mesh.invite(lab, A))
    lab.wait(partial(_phase_is, lab, B, "ready"), 60, "b to be ready")
    token = mesh.invite(lab, A)
    lab.save(snapshot)
    return token


def births(lab: Lab, snapshot: str, token: str, rounds: int, out: Say) -> list[Row]:
    """Rounds of a birth and a bare one."""
    keel: list[float] = []
    bare: list[float] = []
    for number in range(rounds):
        lab.load(snapshot, seed=number + 1)
        lab.wait(partial(rested, lab), REST_SECONDS, "the timers' first passes to be over")
        begun, took = birth(lab, token)
        keel.append(took)
        for name in EVERYONE:
            journal = lab.journal(name, "--output", "short-unix", "--unit", "etcd.service")
            out(f"    {name}: {timeline(journal, begun)}")
        shown = bare_etcd.lay(lab, EVERYONE, f"bare-{number}")
        if number == 0:
            out(f"bare: {' '.join(bare_etcd.START)}\nwith {bare_etcd.ENV}:")
            out("".join(f"    {line}\n" for line in shown.splitlines()).rstrip())
        bare.append(bare_start(lab))
        out(f"round {number + 1}: keel {keel[-1]:.2f} s, bare {bare[-1]:.2f} s")
    return [
        Row(
            what="confirmation to first committed write, s",
            keel=rows.listed(keel),
            beside=f"bare etcd {rows.listed(bare)}",
            goal=rows.ratios(keel, bare, BIRTH_RATIO),
        )
    ]


def rested(lab: Lab) -> bool:
    """Whether the members' timers have had their first passes: what a boot begins is no birth's."""
    argv = ["systemctl", "show", "-P", "ExecMainExitTimestampMonotonic", *FIRST_PASSES]
    return all("0" not in lab.exec(name, argv).stdout.split() for name in (A, B))


def birth(lab: Lab, token: str) -> tuple[float, float]:
    """When the join was confirmed, and the seconds to the first write, through the holder."""
    writing = lab.popen(A, ["sh", "-c", f'eval "$(keel mesh etcd env)"\n{FIRST_WRITE}'])
    argv = ["keel", "mesh", "join", "--token-file", "-"]
    joining = subprocess.Popen(
        lab.machine(C).command(argv),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert joining.stdin  # a pipe was asked for
    joining.stdin.write(f"{token}\n")
    joining.stdin.close()
    book = lab.machine(A).disk / "upper" / BOOK
    begun = _moment(lambda: _confirmed(book), "the confirmation")
    written = float(writing.communicate(timeout=WRITE_SECONDS)[0])
    joining.wait(WRITE_SECONDS)
    return begun, written - begun


def timeline(journal: str, begun: float) -> str:
    """Where a birth's time goes on one member: seconds from the confirmation to each mark that its
    etcd.service first left since (`journalctl -o short-unix`)."""
    found: dict[str, float] = {}
    for line in journal.splitlines():
        moment, _, text = line.partition(" ")
        since = float(moment) - begun if moment.replace(".", "", 1).isdigit() else -1.0
        for mark, words in MARKS.items():
            if since >= 0 and words in text:
                found.setdefault(mark, since)
    return ", ".join(f"{mark} {since:.2f}" for mark, since in found.items())


def bare_start(lab: Lab) -> float:
    """Seconds from the first of three starts to the first write, through the same member."""
    writing = lab.popen(A, ["sh", "-c", f'eval "$(keel mesh etcd env)"\nread go\n{FIRST_WRITE}'])
    assert writing.stdin  # a pipe was asked for
    begun = time.time()
    started = [lab.popen(name, list(bare_etcd.START)) for name in EVERYONE]
    written = float(writing.communicate("go\n", timeout=WRITE_SECONDS)[0])
    for process in started:
        process.communicate(timeout=30)
    return written - begun


def commands(lab: Lab, trip: float) -> list[Row]:
    """Short commands beside etcd's own, by turns, on a follower or leader as it comes."""
    env = 'eval "$(keel mesh etcd env)"; exec python3 - "$@"'
    asked = (
        "keel --version",
        "etcdctl version",
        "keel mesh etcd tend",
        "etcdctl endpoint status --cluster",
        "keel mesh status",
    )
    argv = ["sh", "-c", env, "stopwatch", str(COMMANDS), *asked]
    found: dict[str, Any] = json.loads(
        lab.exec(B, argv, input=STOPWATCH.read_text(), timeout=300).stdout
    )
    return command_rows({command: middle(pairs) for command, pairs in found.items()}, trip)


def middle(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The medians of wall and CPU seconds."""
    wall, cpu = (statistics.median(column) for column in zip(*pairs, strict=True))
    return wall, cpu


def command_rows(found: Mapping[str, tuple[float, float]], trip: float) -> list[Row]:
    """From the medians of what each took."""
    version, bare_version = found["keel --version"][0], found["etcdctl version"][0]
    tend_wall, tend = found["keel mesh etcd tend"]
    status_wall, status = found["keel mesh status"]
    bare_wall = found["etcdctl endpoint status --cluster"][0]
    waits = (status_wall - status) / trip
    return [
        Row(
            what="`keel --version`, median s",
            keel=f"{version:.2f}",
            beside=f"`etcdctl version` {bare_version:.2f}",
            goal=rows.ratios([version], [bare_version], VERSION_RATIO),
        ),
        Row(
            what="`keel mesh etcd tend`, nothing to do",
            keel=f"{tend_wall:.2f} s, {tend:.2f} s CPU",
            goal=rows.at_most([tend], TEND_CPU, " s CPU"),
        ),
        Row(
            what="`keel mesh status`",
            keel=f"{status_wall:.2f} s, {status:.2f} s CPU, the rest {waits:.1f} round trips",
            beside=f"`etcdctl endpoint status --cluster` {bare_wall:.2f} s",
            goal=f"one round trip; {rows.at_most([status], STATUS_CPU, ' s CPU')}",
        ),
    ]


def round_trip(lab: Lab, source: Name) -> float:
    """Median seconds of the link."""
    pings = ping(lab, source, lab.exec(A, ["hostname", "-I"]).stdout.split()[0], 40)
    return statistics.median(pings.times_ms) / 1000


def plain_join(lab: Lab, token: str) -> Row:
    """A join that brings no etcd along, in round trips of the link."""
    lab.exec(C, ["sed", "-i", "s/cloud_advanced/cloud/", "/etc/keel/spec.yaml"])
    trip = round_trip(lab, C)
    begun = time.monotonic()
    mesh.join(lab, C, token)
    took = time.monotonic() - begun
    return Row(
        what="join without etcd",
        keel=f"{took:.2f} s, {took / trip:.1f} round trips of {trip:.3f} s",
        goal=rows.at_most([took / trip], JOIN_TRIPS, " round trips"),
    )


def promotion(lab: Lab, token: str) -> Row:
    """A fourth's own etcd, from its first start to its first vote; the database is small."""
    mesh.join(lab, C, token)
    registry.wait_for_voters(lab, EVERYONE)
    marker = lab.machine(D).disk / "upper" / MARKER
    mesh.join(lab, D, mesh.invite(lab, A))
    begun = _moment(marker.exists, "the learner's first start")
    begun = min(begun, marker.stat().st_mtime)
    registry.wait_for_voters(lab, (D,))
    took = time.time() - begun
    return Row(
        what="learner started to voter",
        keel=f"{took:.1f} s",
        goal=rows.at_most([took], LEARNER_SECONDS, " s"),
    )


def _phase_is(lab: Lab, name: Name, phase: str) -> bool:
    return bool(mesh.status(lab, name)["etcd"]["phase"] == phase)


def _confirmed(book: Path) -> bool:
    try:
        found = json.loads(book.read_bytes())
    except FileNotFoundError:
        return False
    return any(one["confirmed"] for one in found["formations"])


def _moment(judge: Callable[[], bool], what: str) -> float:
    deadline = time.monotonic() + WRITE_SECONDS
    while not judge():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited in vain for {what}")
        time.sleep(0.005)
    return time.time()
