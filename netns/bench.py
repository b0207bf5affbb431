"""`make bench`: keel beside bare etcd in the same run, on the same appliances and links.

Prints the rows of docs/evidence/bench.md. Some labs serve several rows; `netns/bench birth rejoin`
runs those alone.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum

from netns import build, mesh, registry
from netns.benches import alone, bare, birth, cuts, writes
from netns.benches.cuts import Side
from netns.benches.rows import Row, table
from netns.cli import EXPECTED
from netns.lab import Lab, forget_snapshot
from netns.scenario import SHORT, STANDARD, is_void, measure_link
from netns.topology import names

ROUNDS = 3
STABLE_SECONDS = 300.0
THREE = names(3)


class Part(StrEnum):
    """What can be asked for by name."""

    CERTS = "certs"
    SCALE = "scale"
    BIRTH = "birth"
    SHORT = "short"
    JOIN = "join"
    LEARNER = "learner"
    WRITES = "writes"
    REJOIN = "rejoin"


BORN = (Part.BIRTH, Part.SHORT, Part.JOIN, Part.LEARNER)
PAIRED = (Part.WRITES, Part.REJOIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is run."""

    parts: tuple[Part, ...]
    rounds: int = ROUNDS
    stable: float = STABLE_SECONDS


def wanted(argv: Sequence[str]) -> Wanted:
    """The command line; nothing named is all."""
    top = argparse.ArgumentParser(prog="netns/bench", description=__doc__.splitlines()[0])
    top.add_argument("parts", metavar="PART", nargs="*", help=", ".join(Part))
    top.add_argument("--rounds", type=int, default=ROUNDS, help="of what is done by turns")
    top.add_argument("--stable", type=float, default=STABLE_SECONDS, help="seconds of writes")
    found = top.parse_args(argv)
    unknown = sorted(set(found.parts) - set(Part))
    if unknown:
        top.error(f"no such part: {', '.join(unknown)}; there are {', '.join(Part)}")
    parts = tuple(part for part in Part if part in found.parts or not found.parts)
    return Wanted(parts=parts, rounds=found.rounds, stable=found.stable)


def main(argv: Sequence[str] | None = None) -> int:
    """Run it all; 0 when it ran, whatever it measured."""
    asked = wanted(sys.argv[1:] if argv is None else argv)
    if os.geteuid() != 0:
        sys.stderr.write("netns/bench: error: needs root\n")
        return 77
    begun = time.monotonic()
    out(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}: {', '.join(asked.parts)}")
    found: list[Row] = []
    try:
        if Part.CERTS in asked.parts:
            found += alone.certificates()
        if Part.SCALE in asked.parts:
            found += alone.simulation()
        if set(asked.parts) & {*BORN, *PAIRED}:
            build.package_layer()
        if set(asked.parts) & set(BORN):
            found += born(asked)
        if set(asked.parts) & set(PAIRED):
            found += paired(asked)
    except EXPECTED as error:
        sys.stderr.write(f"netns/bench: error: {error}\n")
        return 1
    finally:
        out(f"\n{table(found)}\n")
        minutes = (time.monotonic() - begun) / 60
        out(f"load at the end {os.getloadavg()[0]:.1f}; {minutes:.1f} minutes")
    return 0


def born(asked: Wanted) -> list[Row]:
    """What begins with two members and an invite: one lab, loaded anew each time."""
    found: list[Row] = []
    lab = Lab(f"{_instance()}-born")
    snapshot = f"{lab.instance}-two"
    try:
        with lab:
            lab.up(members=4, link=STANDARD)
            describe(lab)
            token = birth.two_members(lab, snapshot)
            if Part.BIRTH in asked.parts:
                found += birth.births(lab, snapshot, token, asked.rounds, out)
            if Part.JOIN in asked.parts:
                lab.load(snapshot)
                found.append(birth.plain_join(lab, token))
            if set(asked.parts) & {Part.LEARNER, Part.SHORT}:
                lab.load(snapshot)
                found.append(birth.promotion(lab, token))
            if Part.SHORT in asked.parts:
                found += birth.commands(lab, birth.round_trip(lab, birth.B))
    finally:
        forget_snapshot(snapshot)
    return found


def paired(asked: Wanted) -> list[Row]:
    """What is done to two clusters at once: two labs from one snapshot, one of them bare."""
    instance = _instance()
    ours = Side(label="keel", lab=Lab(f"{instance}-keel"), unit="etcd.service")
    theirs = Side(label="bare", lab=Lab(f"{instance}-bare"), unit=bare.UNIT)
    snapshot = f"{instance}-three"
    found: list[Row] = []
    try:
        with ours.lab, theirs.lab:
            ours.lab.up(members=len(THREE), link=SHORT)
            mesh.join_all(ours.lab, THREE)
            ours.lab.save(snapshot)
            for side in (ours, theirs):
                side.lab.load(snapshot)
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(make_ready, (ours, theirs)))
            describe(ours.lab)
            if Part.WRITES in asked.parts:
                found.append(writes.measure(ours, theirs, THREE, asked.stable))
                out(str(found[-1]))
            if Part.REJOIN in asked.parts:
                found += cuts.measure(ours, theirs, THREE, asked.rounds, out)
    finally:
        forget_snapshot(snapshot)
    return found


def make_ready(side: Side) -> None:
    """The standard link, and etcd as this side has it."""
    for name in THREE:
        side.lab.set_link(name, STANDARD)
    if side.unit == bare.UNIT:
        bare.lay(side.lab, THREE, "bare")
        bare.without_keel(side.lab, THREE)
        for name in THREE:
            side.lab.exec(name, bare.START)
    registry.wait_for_voters(side.lab, THREE)
    time.sleep(cuts.SETTLE_SECONDS)


def describe(lab: Lab) -> None:
    out(f"{lab.describe()}, load {os.getloadavg()[0]:.1f}")
    pings = measure_link(lab, THREE)
    out(f"link {STANDARD}: {pings}{' VOID' if is_void(pings) else ''}")


def out(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _instance() -> str:
    return f"bench-{os.getpid()}"
