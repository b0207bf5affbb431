"""`keel mesh remove`: a member out of WireGuard and channel, and out of the roster where it may be
(M9, M10).

Owns the order: the peer goes under a network window; only once that is confirmed is anything
signed; then it is told; then etcd's part. Decides nothing: keel.mesh.removal does.

(V1) What the window guards is this node's own peer. Everywhere else the peer goes when the record
     comes, so nothing is signed that might still be undone.
(V2) Signed and blocked before the window's record ends: a kill in between is gone on from there by
     `keel network confirm`, this command again, or the next sync, and nothing is signed twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from ipaddress import IPv6Address

from keel.errors import Refused
from keel.mesh import (
    drafts,
    etcdholder,
    etcdremove,
    etcdtaken,
    members,
    netwindow,
    removal,
    spread,
    store,
    talk,
    wire,
)
from keel.mesh.drafts import Right
from keel.mesh.etcdremove import Enforced
from keel.mesh.expulsion import Consent
from keel.mesh.members import Member
from keel.mesh.records import Admission, Genesis, Vote
from keel.mesh.removal import Mode, RemovalView
from keel.mesh.store import Node
from keel.mesh.trust import with_block
from keel.mesh.window import Confirmer, Means, Removing, Stage, Window
from keel.mesh.wire import Envelope
from keel.outcome import Done, Incomplete, Plan
from keel.ports import Host
from keel.spec.model import Spec
from keel.types import Nonce, SigningKey

BLOCKED = "removed by `keel mesh remove`"
VOTED = "voted out by `keel mesh remove`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """What became of it. `counts`: it is no member any more for anybody who has the records;
    `votes` is the count, where votes are what it goes by; `etcd`: what its etcd member does;
    `enforced`: what holds in etcd now, and what does not yet; `admitter`: who may remove for all
    what is only blocked here."""

    name: str
    address: IPv6Address
    means: Means
    counts: bool
    votes: str = ""
    told: tuple[str, ...] = ()
    not_told: tuple[str, ...] = ()
    etcd: str = ""
    enforced: Enforced = field(default_factory=Enforced)
    admitter: str = ""


def plan(host: Host, text: str, mode: Mode, *, consent: Consent | None = None) -> Plan:
    """What `remove` would do now; Refused as it would be."""
    node = store.require(host)
    if _gone(node, text) is not None:
        return Plan()
    member = members.find(node.view, text)
    cut_off = _cut_off(host, member)
    if cut_off is not None:
        return plan_confirmed(host, cut_off)
    view = _observe(host, node, member, mode)
    means = removal.decide(view, mode)
    found = removal.plan(view, means)
    if found:
        _pass_gates(
            host, node, member, means, consent, command=_command(member, mode), dry_run=True
        )
    return found


def remove(
    host: Host,
    spec: Spec,
    text: str,
    mode: Mode,
    *,
    typed: str | None = None,
    consent: Consent | None = None,
) -> Done[Removed] | Incomplete[Window]:
    """The member gone, or an open window that only the operator may confirm. `typed`: its name,
    given once more, which a lost one needs, and a consent. Refused by rule, with nothing
    changed."""
    node = store.require(host)
    gone = _gone(node, text)
    if gone is not None:
        return Done(value=gone)
    member = members.find(node.view, text)
    cut_off = _cut_off(host, member)
    if cut_off is not None:
        return carry_out(host, spec, cut_off)
    view = _observe(host, node, member, mode)
    means = removal.decide(view, mode)
    if mode is Mode.LOST or (consent is not None and consent != Consent()):
        _refuse_slip(member, typed)
    if removal.is_done(view, means):
        return Done(value=_removed(node, member.key, member.display, member.address, means))
    command = _command(member, mode)
    for told in _pass_gates(host, node, member, means, consent, command=command):
        host.console.say(told)
    if view.blocked:
        with store.locked(host, "the mesh"):
            netwindow.refuse_open(host)
            node, records = _settle(host, store.require(host), member.key, means)
        return _spread(host, node, _removing(member, means), records)
    return _under_window(host, spec, member, means)


def _under_window(
    host: Host, spec: Spec, member: Member, means: Means
) -> Done[Removed] | Incomplete[Window]:
    try:
        found = netwindow.open_window(host, spec, lambda at: _still(at, member, means))
    except Refused:
        gone = _gone(store.require(host), member.key)
        if gone is None:
            raise
        return Done(value=gone)  # another's removal came while the members were asked
    if found.confirmer is Confirmer.OPERATOR:
        return netwindow.waits_for_operator(found)
    netwindow.await_members(host, spec, found)
    return carry_out(host, spec, _removing(member, means))


def carry_out(host: Host, spec: Spec, removing: Removing) -> Done[Removed]:
    """What follows from a confirmed removal (V2); run again it does what is left."""
    with store.locked(host, "the mesh"):
        netwindow.put_right(host, spec)
        node, records = _settle(host, store.require(host), removing.subject, removing.means)
        store.end_window(host)
    return _spread(host, node, removing, records)


def plan_confirmed(host: Host, removing: Removing) -> Plan:
    """What `carry_out` would do now."""
    node = store.require(host)
    member = node.view.by_key(removing.subject)
    if member is None:  # signed already, and told once more
        why = "it is removed, and they hear it again"
        return Plan.of((True, removal.Action.TELL.value, removing.name, why))
    view = _observe(host, node, member, Mode.PLAIN)
    lost = removing.means is Means.REMOVAL and view.right is Right.NONE
    means = Means.BLOCK if lost else removing.means
    return Plan(steps=removal.following(view, means))


def _refuse_slip(member: Member, typed: str | None) -> None:
    """Nobody goes for good by a name that was mistyped once."""
    if typed != member.display:
        raise Refused(
            "name-not-typed",
            "a lost member, or one whose removal needs your consent, has to be named twice"
            + (f", and {typed} is not {member.display}" if typed else ""),
            f"type the same command with `--confirm {member.display}`",
        )


def _command(member: Member, mode: Mode) -> str:
    option = "" if mode is Mode.PLAIN else f"--{mode.value} "
    return f"keel mesh remove {option}{member.display}"


def _pass_gates(
    host: Host,
    node: Node,
    member: Member,
    means: Means,
    consent: Consent | None,
    *,
    command: str,
    dry_run: bool = False,
) -> tuple[str, ...]:
    """Etcd's gates before the window opens (keel.mesh.etcdremove), and what they tell."""
    netwindow.refuse_open(host)
    return etcdremove.before_removal(
        host, node, member, consent, command=command, means=means, dry_run=dry_run
    )


def _observe(host: Host, node: Node, member: Member, mode: Mode) -> RemovalView:
    answers = mode is Mode.LOST and bool(spread.answered(spread.ping(host, node, (member,))))
    record = etcdtaken.current_record(host)
    return RemovalView(
        me=node.key,
        subject=member.key,
        name=member.display,
        address=member.address,
        right=drafts.right_to_remove(node.roster, node.key, member.key),
        is_holder=etcdholder.holder_of(host, node) == member.key,
        answers=answers,
        blocked=member.key in node.blocked,
        voted=_own_vote(node, member.key) is not None,
        listed=record is not None and member.address in record.members,
        admitter=_admitter(node, member.key),
    )


def _still(node: Node, member: Member, means: Means) -> Removing:
    """The change as it is under the lock; Refused when the member went meanwhile."""
    members.find(node.view, member.key)
    return _removing(member, means)


def _removing(member: Member, means: Means) -> Removing:
    return Removing(subject=member.key, name=member.display, address=member.address, means=means)


def _cut_off(host: Host, member: Member) -> Removing | None:
    """This very removal, confirmed and then cut off."""
    waiting = store.load_window(host)
    if waiting is None or waiting.stage is not Stage.CONFIRMED or waiting.removing is None:
        return None
    return waiting.removing if waiting.removing.subject == member.key else None


def _settle(
    host: Host, node: Node, subject: SigningKey, means: Means
) -> tuple[Node, tuple[bytes, ...]]:
    """Sign and block what is not yet; the node then, and the records to tell. What a right would
    have signed is a block when the right is gone. Hold the lock."""
    if subject in node.view.removed:
        return node, tuple(node.roster.raws[record] for record in node.view.removed[subject])
    live = node.view.by_key(node.key) is not None
    right = drafts.right_to_remove(node.roster, node.key, subject)
    if means is Means.REMOVAL and live and right is not Right.NONE:
        return _keep(host, node, drafts.make_removal, subject)
    why = VOTED if means is Means.VOTE else BLOCKED
    store.save_trust(host, with_block(node.trust, subject, why=why, now=host.clock.now()))
    node = store.require(host)
    own = _own_vote(node, subject)
    if means is not Means.VOTE or not live:
        return node, ()
    return (node, (own,)) if own is not None else _keep(host, node, drafts.make_vote, subject)


def _keep(
    host: Host, node: Node, make: Callable[..., Envelope], subject: SigningKey
) -> tuple[Node, tuple[bytes, ...]]:
    signed = make(
        node.roster,
        node.identity.signing,
        subject,
        now=host.clock.now(),
        nonce=Nonce(host.chance.bytes(16).hex()),
    )
    raw = wire.encode(signed)
    node, _ = store.merge_into(host, node, (raw,))
    return node, (raw,)


def _spread(
    host: Host, node: Node, removing: Removing, records: tuple[bytes, ...]
) -> Done[Removed]:
    """Tell whoever answers; a block is nobody else's business."""
    told, not_told = spread.tell(host, node, talk.others(node), records) if records else ((), ())
    found = _removed(node, removing.subject, removing.name, removing.address, removing.means)
    enforced = etcdremove.after_removal(host, node, removing.subject, removing.name)
    record = etcdtaken.current_record(host)
    stays = not found.counts and record is not None and removing.address in record.members
    found = replace(
        found,
        told=told,
        not_told=not_told,
        etcd=ETCD_STAYS if stays else "",
        enforced=enforced,
    )
    return Done(value=found, changed=(f"member/{found.name} {_DONE[found.means]}",))


def _removed(
    node: Node, subject: SigningKey, name: str, address: IPv6Address, means: Means
) -> Removed:
    """What the records come to now; a right that was lost meanwhile left a block."""
    counts = subject in node.view.removed
    votes = removal.count_text(node.view.tallies.get(subject)) if means is Means.VOTE else ""
    return Removed(
        name=name,
        address=address,
        means=Means.BLOCK if means is Means.REMOVAL and not counts else means,
        counts=counts,
        votes=votes,
        admitter=_admitter(node, subject),
    )


def _admitter(node: Node, subject: SigningKey) -> str:
    """What the member is called that may remove it as its admitter; empty when none lives."""
    member = node.view.by_key(subject)
    admitter = node.view.by_key(member.remover) if member and member.remover else None
    return admitter.display if admitter else ""


def _gone(node: Node, text: str) -> Removed | None:
    """A former member by that name, address or key, when no live one is meant by it."""
    living = ((m.display, m.key, m.address.compressed, *m.called) for m in node.view.members)
    if any(text in words for words in living):
        return None
    bodies = (entry.body for entry in node.roster.entries.values())
    admitted: list[Admission | Genesis] = [one for one in bodies if isinstance(one, Admission)]
    for one in (node.roster.founding.genesis, *admitted):
        address = node.roster.founding.address_of(one.ed25519)
        if one.ed25519 in node.view.removed and text in (
            one.name,
            one.ed25519,
            address.compressed,
        ):
            return _removed(node, one.ed25519, one.name, address, Means.REMOVAL)
    return None


def _own_vote(node: Node, subject: SigningKey) -> bytes | None:
    return next(
        (
            entry.raw
            for entry in node.roster.entries.values()
            if isinstance(entry.body, Vote)
            and (entry.signer, entry.body.subject) == (node.key, subject)
        ),
        None,
    )


ETCD_STAYS = "it stays a member of etcd, which counts it: this removal is local"

_DONE = {
    Means.REMOVAL: "removed",
    Means.VOTE: "blocked here, and voted on",
    Means.BLOCK: "blocked here",
}
