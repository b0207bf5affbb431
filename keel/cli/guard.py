"""/usr/libexec/keel/etcd-guard: ExecStartPre of etcd.service, as root and outside its sandbox.

Exit status 0 lets etcd start; any other does not, and systemd tries again after RestartSec. Loads
what a judgement needs only when there is no permit: a birth waits for this process.
"""

from __future__ import annotations

import os
import sys

from keel.mesh import etcdpermit, etcdsettings
from keel.paths import Paths
from keel.system.clock import SystemClock
from keel.system.fs import DurableFiles


def run(paths: Paths | None = None) -> int:
    """The exit status; what it came to is told in the journal."""
    paths = paths or Paths()
    files = DurableFiles()
    if etcdsettings.harmful(os.environ) is None and etcdpermit.redeem(
        files,
        paths,
        boot=etcdpermit.this_boot(files, paths),
        now=SystemClock().monotonic(),
        invocation=os.environ.get("INVOCATION_ID", ""),
    ):
        sys.stderr.write("etcd may start: a birth, judged a moment ago\n")
        return 0
    from keel.cli import judgement
    from keel.cli.compose import compose

    return judgement.judge(compose(verbose=False, stderr=sys.stderr, paths=paths))
