"""Revocation: the holder's ledger line and CRL, and how other members ask for it (E5).

Owns the order of effects and the channel's kind `revoke`. Which requests are obeyed is
keel.mesh.etcdrequests's; the CRL's form is keel.mesh.etcdcrl's; how it spreads is not decided here.

Rules:
(V1) The ledger's line is durable before the CRL that follows from it; run again after a kill in
     between it comes to the same CRL.
(V2) The CRL holds what the newest one known here holds and what the ledger revoked: it never loses
     a serial before its certificate has ended by a time that other clocks vouched for. Each has
     a number of its own, one above the highest known.
(V3) A revocation covers every intermediate ever granted to (address, key), in every generation.
(V4) A removal that counts mesh-wide is the request itself: the holder's tend obeys it, whoever
     signed it. Everything else has to be asked for by the node, its admitter, or a trust root of
     the holder.
(V5) What the holder can't be asked for now waits in the queue and is asked for again.
"""

from __future__ import annotations

from datetime import timedelta
from ipaddress import IPv6Address

from cryptography import x509

from keel.errors import DiskTrouble, PeerError, PkiRejected
from keel.mesh import etcdconf, etcdcrl, etcdissue, etcdstore, standing, store, talk, up, wire
from keel.mesh.asked import Asked
from keel.mesh.duty import Duty, done, nothing, waits
from keel.mesh.etcdcert import Serial
from keel.mesh.etcdcrl import Crl, Reason, unite
from keel.mesh.etcdgrants import Event, GrantLine, ended, live_grant, revoked_serials
from keel.mesh.etcdholder import holder_member
from keel.mesh.etcdmsg import KIND_REVOCATION, Revocation, Revoke, RevokeAnswer
from keel.mesh.etcdplan import until_clock
from keel.mesh.etcdrequests import RevocationContext, check_revocation
from keel.mesh.etcdstate import Queued, Wanted, dequeue, enqueue, tried
from keel.mesh.exchange import ETCD_PATH
from keel.mesh.members import Member
from keel.mesh.records import CrlRecord
from keel.mesh.store import Node
from keel.outcome import Waiting
from keel.ports import Host
from keel.types import Nonce, SigningKey
from keel.unitnames import SYNC_UNIT

REVOKE = "revoke"
NAME = "revocation"
ENDED_FOR = timedelta(days=30)
"""Members' clocks may be wrong, too."""


def revoke(host: Host, node: Node, *, address: IPv6Address, key: SigningKey, reason: Reason) -> int:
    """Revoke all that was ever granted to the pair (V3); the number of the CRL that says so, which
    is on disk. Already so, or nothing granted, is fine. On the holder only; hold the lock."""
    etcdissue.require_signer(host)
    if live_grant(etcdstore.load_ledger(host), address, key) is not None:
        line = GrantLine(
            event=Event.REVOKED,
            address=address,
            ed25519=key,
            time=host.clock.now(),
            reason=reason,
        )
        etcdstore.append_grant(host, line)
    return publish(host, node)


def supersede(
    host: Host, node: Node, *, address: IPv6Address, key: SigningKey, serial: Serial
) -> int:
    """Revoke one certificate of the pair that a newer one replaced: the caller has seen the newer
    one in use. The number of the CRL that says so. On the holder only; hold the lock."""
    etcdissue.require_signer(host)
    ledger = etcdstore.load_ledger(host)
    if serial not in {one.serial for one in revoked_serials(ledger)}:
        line = GrantLine(
            event=Event.REVOKED,
            address=address,
            ed25519=key,
            time=host.clock.now(),
            serial=serial,
            reason=Reason.SUPERSEDED,
        )
        etcdstore.append_grant(host, line)
    return publish(host, node)


def publish(host: Host, node: Node) -> int:
    """Bring the CRL on disk to what the ledger says (V1, V2); its number, which stays when nothing
    was missing. Hold the lock."""
    held = newest_known(host, node)
    over = _over(host)
    wanted = [one for one in revoked_serials(etcdstore.load_ledger(host)) if one.serial not in over]
    if held is not None and {one.serial for one in wanted} <= {one.serial for one in held.revoked}:
        if _on_disk(host) != held.der:
            etcdstore.save_crl(host, held.der)
        return held.number
    return issue(host, node)


def issue(host: Host, node: Node, *, above: int = 0, restored: bool = False) -> int:
    """A new CRL on disk whatever was there, its number above all that is known here and `above`:
    for its next update, and for a holder whose disk was put back (`restored`: it has asked its
    members). Hold the lock."""
    authority = etcdissue.require_signer(host, restored=restored)
    held = newest_known(host, node)
    over = _over(host)
    known = unite(held.revoked if held else (), revoked_serials(etcdstore.load_ledger(host)))
    revoked = [one for one in known if one.serial not in over]
    number = 1 + max(held.number if held else 0, above)
    der = etcdcrl.new_crl(authority, revoked, number=number, now=host.clock.now())
    etcdstore.save_crl(host, der)
    return number


def _over(host: Host) -> frozenset[Serial]:
    """Whose certificate ended so long ago that the CRL need not name it; only by the highest time
    that was vouched for, which no wrong clock moves."""
    highest, _ = talk.load_highest_time(host)
    if highest is None:
        return frozenset()
    return ended(etcdstore.load_ledger(host), highest.time - ENDED_FOR)


def newest_known(host: Host, node: Node) -> Crl | None:
    """The CRL of the highest number that this node has anywhere: in its state, laid for etcd, in
    the roster; only what a root that it trusts has signed. None when there is none."""
    roots = etcdstore.load_roots(host) or _own_root(host)
    raws = [
        _on_disk(host),
        _laid(host),
        *(one.body.der for one in node.roster.entries.values() if isinstance(one.body, CrlRecord)),
    ]
    found = []
    for raw in raws:
        try:
            found.append(etcdcrl.read_crl(raw or b"", roots))
        except PkiRejected:
            continue  # missing, damaged or a stranger's: another copy counts
    return max(found, key=lambda one: one.number, default=None)


def _own_root(host: Host) -> tuple[x509.Certificate, ...]:
    """A holder whose root was just made has granted nothing to itself yet, and trusts no root."""
    own = etcdstore.load_authority(host)
    return (own[1].certificate,) if own else ()


def _laid(host: Host) -> bytes | None:
    """None as well where it can't be read: in the channel's process, or on a damaged disk."""
    try:
        laid = host.overlay.laid(etcdconf.CRL_FILE)
    except DiskTrouble:
        return None
    return laid.reveal() if laid else None


def _on_disk(host: Host) -> bytes | None:
    """The file as it is, damaged or not: here another copy may stand in for it."""
    return host.files.read(host.paths.etcd_crl, max_bytes=etcdstore.MAX_CRL_BYTES)


def obey(asked: Asked) -> RevokeAnswer:
    """The channel's kind `revoke`; Refused by check_revocation's rules, `not-the-holder`, or while
    the holder may not sign."""
    host = asked.host
    wanted: Revoke = asked.body
    with store.locked(host, "the mesh"):
        etcdissue.require_signer(host)
        node, merged = store.merge_held(host, store.require(host), wanted.records)
        asks = _believed(host, node, wanted.revocation)
        number = revoke(host, node, address=asks.address, key=asks.ed25519, reason=asks.reason)
    if merged.added:
        host.units.start(SYNC_UNIT, block=False)
    up.kick_tend(host)
    return RevokeAnswer(crl_number=number)


def request(
    host: Host, node: Node, *, address: IPv6Address, key: SigningKey, reason: Reason
) -> Queued:
    """Queue this node's own signed request (V5); the duty asks the holder for it. Hold the lock."""
    body = Revocation(
        mesh=node.mesh,
        address=address,
        ed25519=key,
        by=node.key,
        reason=reason,
        time=host.clock.now(),
        nonce=Nonce(host.chance.bytes(16).hex()),
    )
    entry = Queued(
        what=Wanted.REVOKE,
        subject=key,
        since=host.clock.now(),
        why="the holder has not answered yet",
        envelope=wire.encode(wire.seal(KIND_REVOCATION, body, node.identity.signing)),
    )
    etcdstore.save_queue(host, enqueue(etcdstore.load_queue(host), entry))
    return entry


def duty(host: Host, node: Node) -> Duty:
    """On the holder: revoke whoever was removed mesh-wide (V4), and finish what a kill left. On
    others: ask the holder for what is queued here (V5)."""
    if etcdstore.load_authority(host) is not None:
        if talk.clock_is_off(host):
            what = "the revocation of who was removed"
            return waits(NAME, until_clock(what))
        return _revoke_the_removed(host)
    entries = [e for e in etcdstore.load_queue(host).entries if e.what is Wanted.REVOKE]
    if not entries:
        return nothing(NAME, "nothing is to be revoked")
    found = [ask_holder(host, node, entry) for entry in entries]
    left = tuple(one for one in found if isinstance(one, Waiting))
    if left:
        return waits(NAME, *left)
    return done(NAME, f"the holder's CRL {max(n for n in found if isinstance(n, int))} says so")


def ask_holder(host: Host, node: Node, entry: Queued) -> int | Waiting:
    """One queued request asked of the holder: its CRL's number, or what it waits for. A refusal
    that no second try could change is raised, and the entry goes."""
    member = holder_member(host, node)
    if member is None:
        return _waiting(entry, "the holder", "no holder of the etcd root is known here")
    removals = node.view.removed.get(entry.subject, ())
    body = Revoke(
        revocation=entry.envelope or b"",
        records=tuple(node.roster.entries[one].raw for one in removals),
    )
    try:
        answer = talk.ask(host, node, member, REVOKE, body, RevokeAnswer, path=ETCD_PATH)
    except PeerError as error:
        return _not_now(host, member, entry, error)
    with store.locked(host, "the mesh"):
        queue = dequeue(etcdstore.load_queue(host), Wanted.REVOKE, entry.subject)
        etcdstore.save_queue(host, queue)
    return answer.body.crl_number


def _not_now(host: Host, member: Member, entry: Queued, error: PeerError) -> Waiting:
    final = error.reason.startswith("revocation-")
    with store.locked(host, "the mesh"):
        queue = etcdstore.load_queue(host)
        if final:
            queue = dequeue(queue, Wanted.REVOKE, entry.subject)
        else:
            queue = tried(queue, entry, host.clock.now(), error.text)
        etcdstore.save_queue(host, queue)
    if final:
        raise error
    return _waiting(entry, member.display, error.text)


def _waiting(entry: Queued, whom: str, why: str) -> Waiting:
    return Waiting(
        what="the revocation of a removed member's certificates",
        waiting_for=whom,
        why=why,
        since=entry.since,
    )


def _revoke_the_removed(host: Host) -> Duty:
    with store.locked(host, "the mesh"):
        node = store.require(host)
        before = newest_known(host, node)
        ledger = etcdstore.load_ledger(host)
        number = before.number if before else 0
        for key in node.view.removed:
            address = node.roster.founding.address_of(key)
            if live_grant(ledger, address, key) is not None:
                number = revoke(host, node, address=address, key=key, reason=Reason.CESSATION)
        number = max(number, publish(host, node))
    if before is not None and number == before.number:
        return nothing(NAME, f"CRL {number} has all that was revoked")
    return done(NAME, f"CRL {number} revokes who was removed", is_open=True)


def _believed(host: Host, node: Node, raw: bytes) -> Revocation:
    """The request, if it has to be obeyed: a removal that counts goes before the signer's right."""
    ledger = etcdstore.load_ledger(host)
    live = {member.key for member in node.view.members}
    context = RevocationContext(
        mesh=node.mesh,
        admitters=_admitters(node),
        trust_roots=frozenset({node.key, *_asking_roots(node)} & live),
        ledger=ledger,
        removed=frozenset(node.view.removed),
    )
    return check_revocation(raw, context)


def _admitters(node: Node) -> dict[SigningKey, frozenset[SigningKey]]:
    """Of each live member the one admitter that could remove it as well: whoever admits a member
    once more gains nothing over it."""
    judged = standing.judge(node.roster.founding, node.roster.entries.values())
    return {key: frozenset(() if one is None else (one,)) for key, one in judged.remover.items()}


def _asking_roots(node: Node) -> set[SigningKey]:
    return {one.key for one in node.trust.roots if one.key not in node.blocked}
