"""The passes that messages kick, as systemd runs them: /usr/libexec/keel/passes, on a socket that
only root can reach and that keel-channel.service alone speaks to (keel.mesh.passmsg).

With keel.cli.compose one of the places that join adapters and flows. Started by the first word,
loads all, and ends once nobody asked for a while; what comes then starts it again.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from keel.cli.compose import compose, load_the_rest
from keel.cli.errands import WarmUnits, warmed
from keel.errors import KeelError
from keel.mesh import etcdstore, passes, selfrecord, store
from keel.mesh.etcdstate import Stage
from keel.mesh.server import inherited_sockets
from keel.ports import Host
from keel.spec import specfile
from keel.system.counter import Counter
from keel.types import Capability


def run() -> int:
    """Serve until nothing is to be done, or SIGTERM; the exit status."""
    host = compose(verbose=False, stderr=sys.stderr)
    try:
        store.require(host)
    except KeelError as error:
        sys.stderr.write(f"keel: error: {error.summary()}\nkeel: hint: {error.remedy()}\n")
        return int(error.exit)
    host, units = warmed(host)
    threading.Thread(target=load_the_rest, daemon=True).start()
    counter = Counter(
        inherited_sockets(os.environ),
        lambda ask: passes.answer(host, ask),
        clock=host.clock,
        needed=lambda: is_needed(host, units),
    )
    signal.signal(signal.SIGTERM, lambda *_: counter.stop())
    counter.run()
    return 0


def is_needed(host: Host, units: WarmUnits) -> bool:
    """Whether a pass runs, or a birth may come, which would have to wait for the imports."""
    if units.busy():
        return True
    try:
        able = selfrecord.own_capability(host, specfile.load(host)) is Capability.ETCD
        return able and etcdstore.load_cluster(host).stage is not Stage.FORMED
    except KeelError:
        return False  # told by the pass that meets it
