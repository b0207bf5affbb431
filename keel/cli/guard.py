"""/usr/libexec/keel/etcd-guard: ExecStartPre of etcd.service, as root and outside its sandbox.

Exit status 0 lets etcd start; any other does not, and systemd tries again after RestartSec.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address

from keel.cli import render
from keel.cli.compose import compose
from keel.errors import Exit, KeelError
from keel.mesh.etcdclient import those_with_leader
from keel.mesh.etcdmsg import ClusterRecord
from keel.mesh.etcdstart import awaits, guard
from keel.paths import Paths
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

    def highest_lived(self) -> int | None:
        from keel.mesh.etcdlived import highest_lived

        return highest_lived(self.host)


def run(paths: Paths | None = None) -> int:
    """The exit status; refusals go to the journal with their remedy."""
    host = compose(verbose=False, stderr=sys.stderr, paths=paths)
    try:
        raw = host.files.read(host.paths.boot_id) or b""
        allowed = guard(
            host,
            Peers(host),
            invocation=os.environ.get("INVOCATION_ID", ""),
            boot=raw.decode("ascii", "replace").strip(),
        )
    except KeelError as error:
        sys.stderr.write(render.error_text(error, color=False) + "\n")
        return int(error.exit)
    sys.stderr.write(f"etcd may start: {allowed.why}\n")
    return int(Exit.DONE)
