"""Renewal: this member's leaves and intermediate, and what etcd then really shows (E4, E14).

Owns the effects; when something is due is keel.mesh.renewal's. New leaves are laid by the step that
lays everything (keel.mesh.etcdmember); etcd reads them at its next handshake and is not restarted.

Rules:
(N1) A new key is on disk before its certificate is asked for, and a certificate before it is used:
     a renewal that was cut off goes on with the same key.
(N2) Nothing is issued or asked for while this node's clock differs from most members', nor by the
     clock of a boot for which nobody has vouched yet.
(N3) What is renewed on disk counts only once a handshake on both of etcd's ports showed it.
(N4) Old keys go only once the new ones were seen in use.
"""

from __future__ import annotations

from datetime import datetime

from keel import codec
from keel.errors import EtcdError, PeerError, Refused
from keel.mesh import (
    etcdcert,
    etcdcredentials,
    etcdenrol,
    etcdmember,
    etcdstore,
    etcdtaken,
    renewal,
    store,
    talk,
)
from keel.mesh.duty import Duty, done, nothing, waits
from keel.mesh.etcdholder import holder_member
from keel.mesh.etcdplan import until_clock, until_heard
from keel.mesh.etcdstate import Stage
from keel.mesh.renewal import Action, ChainView
from keel.mesh.store import Node
from keel.mesh.trust import may_ask
from keel.outcome import Plan, Waiting
from keel.ports import Host

RENEWAL = "renewal"
SERVED = "served"
KEPT = 2
"""Of leaves and intermediates the one in use and the one before, for who reads a path just now."""
HANDSHAKE_SECONDS = 8.0


def duty(host: Host, node: Node) -> Duty:
    """Renew what is due of this member's own chain; Refused `renewal-late` once what is due could
    not be renewed for a day."""
    view = observe(host, node)
    if view is None:
        return nothing(RENEWAL, "there is nothing to renew yet")
    now = host.clock.now()
    plan = renewal.decide(view, now)
    if not plan:
        due = renewal.next_due(view)
        when = (
            "never before its issuer ends"
            if due is None
            else codec.format_time(due.replace(microsecond=0))
        )
        return nothing(RENEWAL, f"the next certificate is due {when}")
    if talk.clock_is_off(host):
        waiting = until_clock(WHAT)
        return _not_yet(view, waiting, now)
    if talk.clock_is_unheard(host, node):
        return _not_yet(view, until_heard(WHAT), now)
    left = _execute(host, node, plan)
    if left is not None:
        return _not_yet(observe(host, node) or view, left, now)
    return done(RENEWAL, "; ".join(DONE[Action(step.action)] for step in plan.steps))


WHAT = "the renewal of this member's certificates"
DONE = {
    Action.RENEW_INTERMEDIATE: "the holder renewed the intermediate, under a new key",
    Action.ISSUE_LEAF: "issued new leaves",
}


def observe(host: Host, node: Node) -> ChainView | None:
    """This member's chain as it is on disk; None before its first grant."""
    granted = etcdstore.load_intermediate(host)
    if granted is None:
        return None
    number, authority = granted
    leaves = etcdstore.load_leaves(host)
    roots = etcdstore.load_roots(host)
    issuer = authority.certificate.issuer
    return ChainView(
        address=node.address,
        root=next((one for one in roots if one.subject == issuer), None),
        intermediate=authority.certificate,
        asked=etcdstore.newest(host, host.paths.etcd / "intermediate") > number,
        leaves=() if leaves is None else (leaves.member.leaf, leaves.client.leaf),
        leaf_issuer=None if leaves is None else leaves.member.chain[0],
        superseded=etcdmember.is_superseded(host, authority.certificate),
    )


def _execute(host: Host, node: Node, plan: Plan) -> Waiting | None:
    """Each step; a holder that is away keeps no leaf from its renewal."""
    wanted = {Action(step.action) for step in plan.steps}
    waiting = None
    if Action.RENEW_INTERMEDIATE in wanted:
        waiting = _renew_intermediate(host, node)
    if Action.ISSUE_LEAF in wanted or waiting is None:  # also those of the intermediate before
        with store.locked(host, "the mesh"):
            etcdmember.issue_leaves(host, node)
    return waiting


def _renew_intermediate(host: Host, node: Node) -> Waiting | None:
    """Ask for a grant under the next number's key, made first (N1)."""
    with store.locked(host, "the mesh"):
        etcdstore.begin_intermediate(host)
    if etcdstore.load_authority(host) is not None:
        etcdcredentials.grant_oneself(host, node)
        return None
    member = holder_member(host, node)
    if member is None:
        return Waiting(what=WHAT, waiting_for="a holder of the root", why="none is a member now")
    try:
        request = etcdcredentials.enrolment(host, node)
        grant = etcdenrol.ask(host, node, member, request, node.key)
    except PeerError as error:
        return Waiting(what=WHAT, waiting_for=member.display, why=error.text)
    with store.locked(host, "the mesh"):
        etcdtaken.take_grant(host, node, grant, trusted=may_ask(node.trust, member.key))
    return None


def _not_yet(view: ChainView, waiting: Waiting, now: datetime) -> Duty:
    """Wait in silence for a day, then tell."""
    pairs = [(view.intermediate, view.root), *((leaf, view.intermediate) for leaf in view.leaves)]
    late = [
        certificate
        for certificate, issuer in pairs
        if renewal.is_late(certificate, issuer, address=view.address, now=now)
    ]
    if not late:
        return waits(RENEWAL, waiting)
    ends = codec.format_time(min(one.not_valid_after_utc for one in late))
    raise Refused(
        "renewal-late",
        f"a certificate that ends {ends} could not be renewed: {waiting.waiting_for}:"
        f" {waiting.why}",
        "bring the holder back, or set the clock right; `keel mesh etcd tend` tries again at once",
    )


def served(host: Host, node: Node) -> Duty:
    """Whether etcd shows the newest leaf on both its ports (N3); Refused `renewal-not-served`."""
    leaves = etcdstore.load_leaves(host)
    if leaves is None or etcdstore.load_cluster(host).stage is Stage.IDLE:
        return nothing(SERVED, "no etcd of keel's runs here")
    try:
        shown = host.etcd_at(node.address).served(timeout_seconds=HANDSHAKE_SECONDS)
    except EtcdError:
        return nothing(SERVED, "etcd answers no handshake now")
    if set(shown) != {etcdcert.der(leaves.member.leaf)}:
        raise Refused(
            "renewal-not-served",
            "etcd still shows another certificate than the newest one on disk",
            "run `keel spec apply`; if it stays, `systemctl restart etcd` while all voters are"
            " healthy",
        )
    with store.locked(host, "the mesh"):
        pruned = etcdstore.prune(host, KEPT)
    if pruned:
        return done(SERVED, "etcd shows the newest certificate; older keys are gone")
    return nothing(SERVED, "etcd shows the newest certificate")
