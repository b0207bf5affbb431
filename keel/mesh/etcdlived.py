"""`lived`: how many hours and starts this disk has seen, by its own count and by the peers'
memory (design section 3). A disk that was put back or copied knows fewer than they were told.

Owns the count and the asking. What a restored disk is refused by is keel.mesh.etcdguard's.
"""

from __future__ import annotations

from dataclasses import replace

from keel.errors import KeelError
from keel.mesh import etcdown, etcdstart, etcdstore, selfrecord, store, talk
from keel.mesh.duty import Duty, done, nothing
from keel.mesh.etcdmsg import PROBE, PROBE_SECONDS, Probe, ProbeAnswer
from keel.mesh.exchange import ETCD_PATH
from keel.mesh.store import Node
from keel.ports import Deadline, Host
from keel.spec.model import Spec

NAME = "lived"
COUNT_SECONDS = 3600.0
ASK_SECONDS = 60.0
PAUSE_SECONDS = 2.0


def duty(host: Host, spec: Spec) -> Duty:
    """Count the hours that this disk lives through, and its starts: a restored one knows fewer
    than its peers were told. Only while etcd runs: its guard asks the peers first."""
    start = etcdstart.allowed_start(host)
    if not etcdown.sees_leader(host):
        return nothing(NAME, "etcd has no leader here")
    counted = _counted_lately(host, start)
    if counted and _is_told(host):
        return nothing(NAME, "counted within the hour")
    with store.locked(host, "the mesh"):
        lived = etcdstore.load_lived(host)
        if not counted:
            lived = replace(lived, counter=lived.counter + 1)
            etcdstore.save_lived(host, lived)
            # the start that was looked at: one that came meanwhile has yet to be counted
            stamp = f"{host.clock.monotonic():.0f} {start}".encode()
            store.keep_hint(host, host.paths.lived_counted, stamp)
        selfrecord.refresh(host, spec, store.require(host), lived=lived.counter)
    if not _is_told(host):
        text = f"counted {lived.counter}; told once the others were asked what is new"
        return done(NAME, text, is_open=True)
    return nothing(NAME, f"counted {lived.counter}")


def is_restored(host: Host, node: Node) -> bool:
    """Whether this disk knows less of its own life than it told its peers once: the roster brings
    its own newer word back to it."""
    me = node.view.by_key(node.key)
    return me is not None and me.lived > etcdstore.load_lived(host).counter


def removed(host: Host) -> bool:
    """Questions.removed by this node's own roster."""
    node = store.require(host)
    return node.key in node.view.removed


def highest_lived(host: Host) -> int | None:
    """Questions.highest_lived by the channel: asks until one peer answers or a minute is over."""
    node = store.require(host)
    peers = talk.others(node)
    deadline = Deadline.after(host.clock, ASK_SECONDS)
    while peers and not deadline.passed(host.clock):
        answers = talk.ask_all(
            host,
            node,
            dict.fromkeys(peers, Probe(of_me=True)),
            PROBE,
            ProbeAnswer,
            path=ETCD_PATH,
            timeout_seconds=min(PROBE_SECONDS, deadline.remaining(host.clock)),
        )
        heard = [one.body for one in answers.values() if not isinstance(one, KeelError)]
        if heard:
            return max(selfrecord.lived_by(node, one.newest_of_you) for one in heard)
        host.clock.sleep(PAUSE_SECONDS)
    return None


def _is_told(host: Host) -> bool:
    """Whether its self record has the count: a node that is behind signs nothing."""
    node = store.require(host)
    me = node.view.by_key(node.key)
    return me is None or me.lived >= etcdstore.load_lived(host).counter


def _counted_lately(host: Host, start: str) -> bool:
    """Whether this start of etcd was counted, within the hour; /run forgets with the boot."""
    raw = host.files.read(host.paths.lived_counted) or b""
    stamp, _, counted = raw.decode(errors="replace").partition(" ")
    age = host.clock.monotonic() - float(stamp) if stamp.isdecimal() else -1.0
    return counted == start and 0 <= age < COUNT_SECONDS
