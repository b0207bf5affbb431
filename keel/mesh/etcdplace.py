"""A member's duty `place`: where it stands in the line for the cluster, by the holder's word (E12).

Owns this node's own entry in queue.json; status shows it, also while the holder is away.
"""

from __future__ import annotations

from keel.errors import PeerError
from keel.mesh import etcdstate, etcdstore, store, talk
from keel.mesh.duty import Duty, nothing, waits
from keel.mesh.etcdholder import holder_member
from keel.mesh.etcdmsg import AskPlace, PlaceAnswer
from keel.mesh.etcdstate import Queued, Stage, Wanted
from keel.mesh.exchange import ETCD_PATH
from keel.mesh.store import Node
from keel.outcome import Waiting
from keel.ports import Host
from keel.types import SigningKey

PLACE = "place"
NAME = "place"
WHAT = "a place in the cluster"


def duty(host: Host, node: Node) -> Duty:
    """Ask the holder while this node has its grant and is in no cluster."""
    member = holder_member(host, node)
    idle = etcdstore.load_cluster(host).stage is Stage.IDLE
    if not idle or etcdstore.load_intermediate(host) is None or member is None:
        _forget(host, node.key)
        return nothing(NAME, "this node waits for no place")
    if member.key == node.key:
        return nothing(NAME, "the holder keeps the line")
    try:
        answer = talk.ask(host, node, member, PLACE, AskPlace(), PlaceAnswer, path=ETCD_PATH)
    except PeerError as error:
        return _waits(host, node.key, member.display, error.text)
    said = answer.body
    if not said.cluster:
        _forget(host, node.key)
        return nothing(NAME, "there is no cluster yet")
    line = f"place {said.place} of {said.of} in the line: " if said.place else ""
    return _waits(host, node.key, member.display, f"{line}{said.why}")


def own_wait(host: Host, key: SigningKey, holder: str) -> Waiting | None:
    """What this node was told last, for status."""
    entry = etcdstate.entry_of(etcdstore.load_queue(host), Wanted.LEARNER, key)
    if entry is None:
        return None
    return Waiting(what=WHAT, waiting_for=holder, why=entry.why, since=entry.since)


def _waits(host: Host, key: SigningKey, holder: str, why: str) -> Duty:
    with store.locked(host, "the mesh"):
        before = etcdstore.load_queue(host)
        entry = Queued(what=Wanted.LEARNER, subject=key, since=host.clock.now(), why=why)
        queue = etcdstate.enqueue(before, entry)
        if queue != before:
            etcdstore.save_queue(host, queue)
    return waits(NAME, Waiting(what=WHAT, waiting_for=holder, why=why))


def _forget(host: Host, key: SigningKey) -> None:
    with store.locked(host, "the mesh"):
        before = etcdstore.load_queue(host)
        queue = etcdstate.dequeue(before, Wanted.LEARNER, key)
        if queue != before:
            etcdstore.save_queue(host, queue)
