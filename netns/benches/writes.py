"""Writes to a cluster that nothing happens to, keel beside bare etcd at the same time.

One client on each leader's member, one write after another on one kept connection, so that neither
starts a process; the clock is a write's own, from request to answer.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from netns import inside
from netns.benches.cuts import Side, leader_of
from netns.benches.rows import Row
from netns.topology import Name

CLIENT = Path(inside.__file__).parent / "writes.py"
RATIO = 1.05
SPARE_SECONDS = 60.0
WORDS = """\
eval "$(keel mesh etcd env)"
exec python3 - "$ETCDCTL_CACERT" "$ETCDCTL_CERT" "$1" bench-
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What one client saw."""

    took: tuple[float, ...]
    failures: tuple[str, ...]

    def __str__(self) -> str:
        ms = sorted(one * 1000 for one in self.took)
        p99 = ms[len(ms) * 99 // 100]
        return (
            f"{statistics.median(ms):.1f} ms median, {statistics.mean(ms):.1f} mean, {p99:.0f} p99;"
            f" {len(self.failures)} of {len(ms) + len(self.failures)} failed"
        )


def measure(keel: Side, bare: Side, names: Sequence[Name], seconds: float) -> Row:
    """Both at once, for that long."""
    with ThreadPoolExecutor(2) as pool:
        ours, theirs = pool.map(lambda side: write(side, names, seconds), (keel, bare))
    return row(ours, theirs, seconds)


def write(side: Side, names: Sequence[Name], seconds: float) -> Written:
    argv = ["sh", "-c", WORDS, "writes", f"{seconds}"]
    leader = leader_of(side.lab, names)
    text = CLIENT.read_text()
    done = side.lab.exec(leader, argv, input=text, timeout=seconds + SPARE_SECONDS)
    found = json.loads(done.stdout)
    return Written(took=tuple(found["took"]), failures=tuple(found["failures"]))


def row(ours: Written, theirs: Written, seconds: float) -> Row:
    """The goal is for the median, and for no failure of keel's."""
    ratio = statistics.median(ours.took) / statistics.median(theirs.took)
    met = ratio <= RATIO and not ours.failures
    return Row(
        what=f"a write through the leader, {seconds:.0f} s stable",
        keel=str(ours),
        beside=f"bare etcd {theirs}",
        goal=f"{RATIO} x, none failed: {ratio:.3f}: {'met' if met else '**not met**'}",
    )
