"""`keel mesh etcd recover --replace`: a member whose data is lost, corrupt or of an old disk gets a
new place in the cluster (design section 5, Replacement).

Owns the member's side: its operator's wish, kept on disk until it is served, and what is done with
the answer. The holder's side is keel.mesh.etcdgrow's.

Rules:
(R1) The wish is on disk before the holder is asked; without it no record makes a member give up
     data that served.
(R2) The holder is asked again until its record was taken: by the same command, or by the tend.
(R3) Data is moved aside, never deleted, after etcd was stopped and before it starts anew.
(R4) The new place begins at least where the peers saw this disk live last, so that it is not taken
     for a restored one again.
(R5) The command and passes of the tend may bring the place at once: the first that does is right
     and ends the wish, and nobody is refused for having come second.
"""

from __future__ import annotations

from dataclasses import replace

from keel.errors import PeerError, Refused
from keel.mesh import etcdgrow, etcdown, etcdstate, etcdstore, etcdtaken, selfrecord, store, talk
from keel.mesh.duty import Duty, done, nothing, waits
from keel.mesh.etcdholder import holder_member
from keel.mesh.etcdmsg import AskReplace, ReplaceAnswer
from keel.mesh.etcdstate import Queued, Wanted
from keel.mesh.exchange import ETCD_PATH
from keel.mesh.members import Member
from keel.mesh.store import Node
from keel.outcome import Done, Plan, Step, Waiting
from keel.ports import Host
from keel.spec.model import Spec
from keel.types import Capability
from keel.unitnames import ETCD_UNIT

REPLACE = "replace"
NAME = "replacement"
REPLACE_SECONDS = 90.0
"""The holder asks everybody, removes, adds and reads the list after each."""
WHAT = "a new place in the cluster"
NEW_PLACE = Done(value="this member has a new place; its etcd starts there as a learner")

OWN_STEPS = (
    Step(action="set-data-aside", subject="/var/lib/keel-etcd/data", why="it is of the old place"),
    Step(action="start-etcd", subject=ETCD_UNIT, why="as a learner, promoted once in sync"),
)


def preview(host: Host, spec: Spec, node: Node) -> Plan:
    """What a replacement would do, by the holder's word; Refused by rule, nothing is written."""
    _check(host, spec)
    answer = _ask(host, node, dry_run=True)
    return Plan(steps=(*answer.steps, *OWN_STEPS))


def recover(host: Host, spec: Spec, node: Node) -> Done[str] | Waiting:
    """Ask for the new place and take it; the tend starts etcd there. Waiting when the holder has to
    wait for something: the wish is kept, and the tend goes on. Already asked for is fine."""
    _check(host, spec)
    if not etcdtaken.wants_replacement(host, node.key):
        _ask(host, node, dry_run=True)  # what is refused shall leave no wish behind
        with store.locked(host, "the mesh"):
            wish = Queued(
                what=Wanted.REPLACE, subject=node.key, since=host.clock.now(), why="asked for here"
            )
            etcdstore.save_queue(host, etcdstate.enqueue(etcdstore.load_queue(host), wish))
    return _go_on(host, node)


def duty(host: Host, node: Node) -> Duty:
    """Go on with a replacement that was asked for here, if there is one."""
    if not etcdtaken.wants_replacement(host, node.key):
        return nothing(NAME, "no new place was asked for")
    if etcdown.serves(host):
        _fulfil(host, node)
        return done(NAME, "this member's etcd serves again; no new place is needed")
    try:
        came_to = _go_on(host, node)
    except PeerError as error:
        return waits(NAME, Waiting(what=WHAT, waiting_for=_holder_name(host, node), why=error.text))
    if isinstance(came_to, Waiting):
        return waits(NAME, came_to, is_open=True)
    return done(NAME, came_to.value, is_open=True)


def _check(host: Host, spec: Spec) -> None:
    """What this node knows by itself."""
    if selfrecord.own_capability(host, spec) is not Capability.ETCD:
        raise Refused(
            "replace-not-capable",
            "this node can't run etcd",
            "install keel-overlay-etcd and set installation.mode: cloud_advanced in the spec",
        )
    if etcdown.serves(host):
        raise Refused(
            "replace-serves",
            "this member's etcd serves; there is nothing to replace",
            "look at `keel mesh etcd status`",
        )
    if store.window_is_open(host):
        raise Refused(
            "replace-window",
            "a change to the network waits for its confirmation",
            "confirm it or wait until it is undone, then run this again",
        )
    talk.refuse_wrong_clock(host)


def _go_on(host: Host, node: Node) -> Done[str] | Waiting:
    try:
        answer = _ask(host, node, dry_run=False)
    except Refused:
        if etcdtaken.wants_replacement(host, node.key):
            raise
        return NEW_PLACE  # R5
    if answer.record is None:
        return Waiting(
            what=WHAT,
            waiting_for=answer.waiting_for or "the holder",
            why=answer.why or "its next pass goes on with it",
        )
    with store.locked(host, "the mesh"):
        _outlive(host, node, selfrecord.lived_by(node, answer.newest_of_you))
        if etcdtaken.wants_replacement(host, node.key):  # R5
            etcdtaken.take_record(host, node, answer.record)
            _forget(host, node)
    return NEW_PLACE


def _ask(host: Host, node: Node, *, dry_run: bool) -> ReplaceAnswer:
    """The holder's answer; its refusals are this command's own."""
    member = holder_member(host, node)
    if member is None:
        raise Refused(
            "replace-no-holder",
            "no holder of the etcd root is known here",
            "run `keel mesh sync`, then this again",
        )
    if member.key == node.key:
        return etcdgrow.replace_member(host, node, member, dry_run=dry_run)
    return _ask_elsewhere(host, node, member, dry_run=dry_run)


def _ask_elsewhere(host: Host, node: Node, holder: Member, *, dry_run: bool) -> ReplaceAnswer:
    host.console.waiting(f"asking {holder.display} for {WHAT}")
    try:
        return talk.ask(
            host,
            node,
            holder,
            REPLACE,
            AskReplace(dry_run=dry_run),
            ReplaceAnswer,
            path=ETCD_PATH,
            timeout_seconds=REPLACE_SECONDS,
        ).body
    except PeerError as error:
        if error.reason.startswith("replace-"):
            raise Refused(error.reason, error.text, error.remedy()) from error
        raise


def _holder_name(host: Host, node: Node) -> str:
    member = holder_member(host, node)
    return member.display if member else "the holder"


def _outlive(host: Host, node: Node, known: int) -> None:
    """R4."""
    me = node.view.by_key(node.key)
    lived = etcdstore.load_lived(host)
    highest = max(lived.counter, known, me.lived if me else 0)
    if highest > lived.counter:
        etcdstore.save_lived(host, replace(lived, counter=highest))


def _fulfil(host: Host, node: Node) -> None:
    with store.locked(host, "the mesh"):
        _forget(host, node)


def _forget(host: Host, node: Node) -> None:
    queue = etcdstore.load_queue(host)
    etcdstore.save_queue(host, etcdstate.dequeue(queue, Wanted.REPLACE, node.key))
