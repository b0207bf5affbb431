"""Whether etcd may start here, asked of the real members: for the guard, and for whoever starts
etcd for a birth.

Loads all that a judgement needs; keel.cli.guard does without it when there is a permit.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address

from keel.cli import render
from keel.errors import Exit, KeelError
from keel.mesh import etcdpermit
from keel.mesh.etcdclient import those_with_leader
from keel.mesh.etcdmsg import ClusterRecord
from keel.mesh.etcdstart import Questions, awaits, guard, loading, served
from keel.ports import Host

LEADER_SECONDS = 6.0
"""A first connection at 250 ms takes four round trips; a lost packet adds a second or three."""


@dataclass(frozen=True, slots=True)
class Peers:
    """keel.mesh.etcdstart.Questions, asked of the real members."""

    host: Host

    def leaders(self, members: Sequence[IPv6Address]) -> tuple[IPv6Address, ...]:
        return those_with_leader(self.host.etcd_at, members, timeout_seconds=LEADER_SECONDS)

    def awaits(
        self, leaders: Sequence[IPv6Address], record: ClusterRecord, me: IPv6Address
    ) -> bool:
        return awaits(self.host.etcd_at, leaders, record, me)

    def served(self, record: ClusterRecord, me: IPv6Address) -> bool:
        return served(self.host.etcd_at, record, me)

    def removed(self) -> bool:
        from keel.mesh.etcdlived import removed

        return removed(self.host)

    def highest_lived(self) -> int | None:
        from keel.mesh.etcdlived import highest_lived

        return highest_lived(self.host)


def judge(host: Host) -> int:
    """The guard's exit status; refusals go to the journal with their remedy."""
    try:
        invocation = os.environ.get("INVOCATION_ID", "")
        allowed = guard(
            host,
            Peers(host),
            invocation=invocation,
            boot=_boot(host),
            environment=os.environ,
        )
    except KeelError as error:
        sys.stderr.write(render.error_text(error, color=False) + "\n")
        return int(error.exit)
    sys.stderr.write(f"etcd may start: {allowed.why}\n")
    return int(Exit.DONE)


def permit(host: Host, questions: Questions) -> None:
    """Judge the start of a birth now, and leave the guard a permit for it. A refusal leaves none:
    the guard comes to the same one and tells it."""
    boot = _boot(host)
    with contextlib.suppress(KeelError):
        allowed = guard(host, questions, invocation="", boot=boot, address_seconds=0.0)
        loads = loading(host, allowed, "", boot)
        etcdpermit.seal(host.files, host.paths, boot=boot, now=host.clock.monotonic(), loads=loads)


def _boot(host: Host) -> str:
    return etcdpermit.this_boot(host.files, host.paths)
