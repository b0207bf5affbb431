"""What becomes of a grant whose join is never confirmed: it is revoked, its birth called off (E5).

Owns the holder's notes of claims that it granted to, in queue.json. Whether a claim is open is
keel.mesh.invite's; how a grant is revoked, keel.mesh.etcdrevoke's.

Rules:
(C1) A claim is noted before it is granted to, so that no kill leaves a grant that nobody watches.
(C2) The note goes when its node is a member; or, once its claim is over (expired, cancelled), after
     the reservation was freed and the grant revoked. Each step may be done twice.
"""

from __future__ import annotations

from keel.mesh import birth, etcdrevoke, etcdstore, store, talk
from keel.mesh.duty import Duty, done, nothing, waits
from keel.mesh.etcdcrl import Reason
from keel.mesh.etcdplan import until_clock
from keel.mesh.etcdstate import Queued, Wanted, dequeue, enqueue
from keel.mesh.invite import Claim, claimed_members
from keel.mesh.store import Node
from keel.ports import Host
from keel.types import SigningKey

NAME = "claims"
REVOKED = "revoked what was granted to joins that were not confirmed"


def watch(host: Host, node: Node, claim: Claim) -> None:
    """Note a claim that is about to be granted to (C1); none of a live member, which claimed only
    to be admitted once more. Hold the lock."""
    if node.view.by_key(claim.ed25519) is not None:
        return
    entry = Queued(
        what=Wanted.CONFIRMATION,
        subject=claim.ed25519,
        since=host.clock.now(),
        why="its join is not confirmed yet",
    )
    etcdstore.save_queue(host, enqueue(etcdstore.load_queue(host), entry))


def confirmed(host: Host, key: SigningKey) -> None:
    """Its join was confirmed; absent is fine. Hold the lock."""
    queue = etcdstore.load_queue(host)
    left = dequeue(queue, Wanted.CONFIRMATION, key)
    if left != queue:
        etcdstore.save_queue(host, left)


def duty(host: Host) -> Duty:
    """On the holder: what is to be done about the claims that it granted to."""
    watched = [e for e in etcdstore.load_queue(host).entries if e.what is Wanted.CONFIRMATION]
    if not watched:
        return nothing(NAME, "no join waits for its confirmation")
    if host.files.exists(host.paths.behind) or talk.clock_is_off(host):
        return waits(NAME, until_clock("the end of a claim"))
    with store.locked(host, "the mesh"):
        node = store.require(host)
        claims = claimed_members(store.load_invites(host), host.clock.now()).values()
        claimed = {claim.ed25519 for claim in claims}
        lapsed = []
        for entry in watched:
            if node.view.by_key(entry.subject) is not None:
                confirmed(host, entry.subject)
            elif entry.subject not in claimed:
                _end(host, node, entry.subject)
                lapsed.append(entry.subject)
    return done(NAME, REVOKED) if lapsed else nothing(NAME, "a join waits for its confirmation")


def _end(host: Host, node: Node, key: SigningKey) -> None:
    etcdstore.save_book(host, birth.cancel(etcdstore.load_book(host), key))
    address = node.roster.founding.address_of(key)
    etcdrevoke.revoke(host, node, address=address, key=key, reason=Reason.CESSATION)
    confirmed(host, key)
