"""A client that writes through one member without a pause, and what of it must be found again."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from netns import registry
from netns.lab import Lab
from netns.process import PATIENCE_SECONDS
from netns.scenario import Report
from netns.topology import Name

ACKED = "/run/writer-acked"
STOP = "/run/writer-stop"
PREFIX = "life-"
LOOP = f"""\
eval "$(keel mesh etcd env)"
number=0
until [ -e {STOP} ]; do
  number=$((number + 1))
  said=$(etcdctl --dial-timeout=2s --command-timeout=15s put {PREFIX}$number $number 2>/dev/null)
  if [ "$said" = OK ]; then echo $number >>{ACKED}; else sleep 0.2; fi
done
"""


class Writer:
    """Writes numbered keys through a member of the cluster until it is judged."""

    def __init__(self, lab: Lab, name: Name) -> None:
        self.lab = lab
        self.name = name
        lab.exec(name, ["rm", "-f", ACKED, STOP])
        self.process = lab.popen(name, ["sh", "-c", LOOP])

    def acked(self) -> set[int]:
        """The numbers whose write was acknowledged so far."""
        done = self.lab.exec(self.name, ["cat", ACKED], check=False)
        return {int(line) for line in done.stdout.split()}

    def judge(self, report: Report, members: Sequence[Name]) -> None:
        """Stop, and demand every acknowledged write of every member. Raises Failed."""
        self.lab.exec(self.name, ["touch", STOP])
        self.process.communicate(timeout=PATIENCE_SECONDS)
        wanted = self.acked()
        for name in members:
            found = registry.asked(self.lab, name, "get", PREFIX, "--prefix").get("kvs", [])
            read = {_text(one["key"]): _text(one["value"]) for one in found}
            lost = [number for number in wanted if read.get(f"{PREFIX}{number}") != str(number)]
            report.expect(
                bool(wanted) and not lost,
                f"{len(wanted)} acknowledged writes read back through {name}"
                f"{f', lost {lost}' if lost else ''}",
            )


def _text(raw: str) -> str:
    return base64.b64decode(raw).decode()
