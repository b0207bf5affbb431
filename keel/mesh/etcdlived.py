"""How long the peers saw this disk live: the guard's question over the channel.

Apart from keel.mesh.etcdstart, because a birth does not ask it and need not load all this.
"""

from __future__ import annotations

from keel.errors import KeelError
from keel.mesh import store, talk
from keel.mesh.etcdbirth import ETCD_PATH, PROBE, PROBE_SECONDS
from keel.mesh.etcdmsg import Probe, ProbeAnswer
from keel.ports import Deadline, Host

LIVED_SECONDS = 60.0
LIVED_PAUSE_SECONDS = 2.0


def removed(host: Host) -> bool:
    """Questions.removed by this node's own roster."""
    node = store.require(host)
    return node.key in node.view.removed


def highest_lived(host: Host) -> int | None:
    """Questions.highest_lived by the channel: asks until one peer answers or a minute is over."""
    node = store.require(host)
    peers = talk.others(node)
    deadline = Deadline.after(host.clock, LIVED_SECONDS)
    while peers and not deadline.passed(host.clock):
        answers = talk.ask_all(
            host,
            node,
            dict.fromkeys(peers, Probe()),
            PROBE,
            ProbeAnswer,
            path=ETCD_PATH,
            timeout_seconds=min(PROBE_SECONDS, deadline.remaining(host.clock)),
        )
        heard = [one.body for one in answers.values() if not isinstance(one, KeelError)]
        if heard:
            return max(one.highest_lived_of_you or 0 for one in heard)
        host.clock.sleep(LIVED_PAUSE_SECONDS)
    return None
