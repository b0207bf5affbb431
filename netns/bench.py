"""`make bench`: keel beside bare etcd in the same run, on the same appliances and links.

The birth: from the third joiner's confirmation at the inviter to the first committed write, against
a static bootstrap of three bare etcds, from the first of the three starts. Both run by turns (A B A
B ...) over the same overlay, with the same binary, certificates, timers and settings; the write is
tried by the same loop on the same member.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from netns import build, inside, mesh, registry
from netns.cli import EXPECTED
from netns.lab import Lab, forget_snapshot
from netns.scenario import STANDARD, is_void, measure_link, ping
from netns.topology import Name, names

ROUNDS = 3
EVERYONE = names(3)
A, B, C = EVERYONE
D = names(4)[-1]
MARKER = "var/lib/keel-etcd/marker.json"
BOOK = "var/lib/keel/etcd/formation.json"
BARE_DIR = "/var/lib/bare-etcd"
BARE_ENV = "/etc/etcd/bare.env"
BARE = (
    *("systemd-run", "--no-block", "--collect", "--unit=bare-etcd", "--property=User=etcd"),
    *(f"--property=EnvironmentFile={BARE_ENV}", "/usr/bin/etcd"),
)
KEEL_TENDS = (
    "keel-mesh-etcd.timer",
    "keel-mesh-etcd-fast.timer",
    "keel-mesh-etcd.service",
    "keel-mesh-etcd-fast.service",
)
FIRST_WRITE = """\
until etcdctl --dial-timeout=1s --command-timeout=2s put first write >/dev/null 2>&1
do sleep 0.05; done
date +%s.%N
"""
WRITE_SECONDS = 120
FIRST_PASSES = ("keel-mesh-etcd.service", "keel-mesh-sync.service")
REST_SECONDS = 120
COMMANDS = 7
STOPWATCH = Path(inside.__file__).parent / "stopwatch.py"


@dataclass(slots=True, kw_only=True)
class Births:
    """Seconds to the first committed write, a pair a round."""

    keel: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)


def main() -> int:
    """Run it all; 0 when it ran, whatever it measured."""
    if os.geteuid() != 0:
        sys.stderr.write("netns/bench: error: needs root\n")
        return 77
    lab = Lab(f"bench-{os.getpid()}")
    snapshot = f"{lab.instance}-two"
    try:
        with lab:
            bench(lab, snapshot)
    except EXPECTED as error:
        sys.stderr.write(f"netns/bench: error: {error}\n")
        return 1
    finally:
        forget_snapshot(snapshot)
    return 0


def bench(lab: Lab, snapshot: str) -> None:
    build.package_layer()
    lab.up(members=4, link=STANDARD)
    out(f"{lab.describe()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    pings = measure_link(lab, EVERYONE)
    out(f"link {STANDARD}: {pings}{' VOID' if is_void(pings) else ''}")
    mesh.create(lab, A)
    mesh.join(lab, B, mesh.invite(lab, A))
    ready = partial(_phase_is, lab, B, "ready")
    lab.wait(ready, 60, "b to be ready")
    token = mesh.invite(lab, A)
    lab.save(snapshot)
    births = Births()
    out(f"bare: {' '.join(BARE)}")
    for number in range(ROUNDS):
        lab.load(snapshot, seed=number + 1)
        lab.wait(partial(rested, lab), REST_SECONDS, "the timers' first passes to be over")
        births.keel.append(birth(lab, token))
        if number == 0:
            out(f"with {BARE_ENV}:")
            registry.wait_for_voters(lab, EVERYONE)
            commands(lab)
        births.bare.append(bare(lab, number, show=number == 0))
        out(f"round {number + 1}: keel {births.keel[-1]:.2f} s, bare {births.bare[-1]:.2f} s")
    lab.load(snapshot)
    plain_join(lab, token)
    lab.load(snapshot)
    promotion(lab, token)
    table(births)


def rested(lab: Lab) -> bool:
    """Whether the members' timers have had their first passes: what a boot begins is no birth's."""
    argv = ["systemctl", "show", "-P", "ExecMainExitTimestampMonotonic", *FIRST_PASSES]
    return all("0" not in lab.exec(name, argv).stdout.split() for name in (A, B))


def birth(lab: Lab, token: str) -> float:
    """Seconds from the confirmation to the first write, through the holder."""
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
    return written - begun


def bare(lab: Lab, number: int, *, show: bool) -> float:
    """Seconds from the first of three starts to the first write, through the same member."""
    registry.wait_for_voters(lab, EVERYONE)
    for name in EVERYONE:  # all of them, before any etcd: a tend would start it again
        lab.exec(name, ["systemctl", "stop", *KEEL_TENDS])
    for name in EVERYONE:
        lab.exec(name, ["systemctl", "stop", "etcd.service"])
    for name in EVERYONE:
        text = lab.exec(name, ["cat", "/etc/etcd/keel/etcd.env"]).stdout
        env = dict(line.split("=", 1) for line in text.splitlines() if not line.startswith("#"))
        env |= {
            "ETCD_DATA_DIR": BARE_DIR,
            "ETCD_INITIAL_CLUSTER_STATE": "new",
            "ETCD_INITIAL_CLUSTER_TOKEN": f"bare-{number}",
        }
        lab.put(name, BARE_ENV, "".join(f"{key}={value}\n" for key, value in env.items()))
        if show and name == A:
            out("".join(f"    {key}={value}\n" for key, value in env.items()).rstrip())
        lab.exec(name, ["install", "-d", "-o", "etcd", "-m", "0700", BARE_DIR])
    writing = lab.popen(A, ["sh", "-c", f'eval "$(keel mesh etcd env)"\nread go\n{FIRST_WRITE}'])
    assert writing.stdin  # a pipe was asked for
    begun = time.time()
    started = [lab.popen(name, list(BARE)) for name in EVERYONE]
    written = float(writing.communicate("go\n", timeout=WRITE_SECONDS)[0])
    for process in started:
        process.communicate(timeout=30)
    return written - begun


def commands(lab: Lab) -> None:
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
    out("| command | median s | CPU s |\n|---|---|---|")
    for command, pairs in found.items():
        wall, cpu = (statistics.median(column) for column in zip(*pairs, strict=True))
        out(f"| `{command}` | {wall:.2f} | {cpu:.2f} |")


def plain_join(lab: Lab, token: str) -> None:
    """A join that brings no etcd along, in round trips of the link."""
    lab.exec(C, ["sed", "-i", "s/cloud_advanced/cloud/", "/etc/keel/spec.yaml"])
    pings = ping(lab, C, lab.exec(A, ["hostname", "-I"]).stdout.split()[0], 40)
    trip = statistics.median(pings.times_ms) / 1000
    begun = time.monotonic()
    mesh.join(lab, C, token)
    took = time.monotonic() - begun
    out(f"join without etcd: {took:.2f} s, {took / trip:.1f} round trips of {trip:.3f} s")


def promotion(lab: Lab, token: str) -> None:
    """A fourth's own etcd, from its first start to its first vote; the database is small."""
    mesh.join(lab, C, token)
    registry.wait_for_voters(lab, EVERYONE)
    marker = lab.machine(D).disk / "upper" / MARKER
    mesh.join(lab, D, mesh.invite(lab, A))
    begun = _moment(marker.exists, "the learner's first start")
    begun = min(begun, marker.stat().st_mtime)
    registry.wait_for_voters(lab, (D,))
    out(f"learner started -> voter: {time.time() - begun:.1f} s")


def table(births: Births) -> None:
    ratios = [keel / bare for keel, bare in zip(births.keel, births.bare, strict=True)]
    out("| confirmation to first committed write | median s | all |\n|---|---|---|")
    out(f"| keel | {statistics.median(births.keel):.2f} | {_list(births.keel)} |")
    out(
        f"| bare etcd, static bootstrap | {statistics.median(births.bare):.2f} |"
        f" {_list(births.bare)} |"
    )
    out(f"| ratio, a round | {statistics.median(ratios):.2f} | {_list(ratios)} |")
    out(f"load at the end {os.getloadavg()[0]:.1f}")


def out(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _list(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)


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
