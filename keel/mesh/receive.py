"""The members' channel, in: what a request to each path does on this node.

Owns the way from bytes and a source address to an answer. The checks are keel.mesh.envelope's and
keel.mesh.redeem's; the acts are other flows'. Called by the channel's service, once a request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv6Address

from keel.errors import KeelError
from keel.mesh import admit, behind, envelope, exchange, roster, store, tended, up
from keel.mesh.admit import Confirming, GiveEtcdPart
from keel.mesh.asked import Asked, Kind
from keel.mesh.envelope import Accepted, ChannelView, Serves, Turned
from keel.mesh.exchange import (
    ETCD_PATH,
    JOIN_PATH,
    Hello,
    HelloAnswer,
    RosterAnswer,
    RosterAsk,
)
from keel.mesh.invite import Claim, claimed_members
from keel.mesh.joinmsg import EtcdPart
from keel.mesh.limits import ADMITS
from keel.mesh.refusal import is_private, plain, refusal_of
from keel.mesh.store import Node
from keel.mesh.turns import Turns
from keel.ports import Host
from keel.spec.model import Spec, capability
from keel.types import Capability, SigningKey
from keel.unitnames import SYNC_UNIT

JOIN = "join"
"""The kind of a join's part of the registry, which has turns as a message of a member has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doors:
    """What the registry's flows hang into the channel."""

    etcd: Mapping[str, Kind]
    give_etcd_part: GiveEtcdPart
    confirming: Confirming
    joined: Callable[[Host, SigningKey], None]
    own_role: Callable[[Host], str]
    turns: Turns = field(default_factory=Turns)


def receive(
    host: Host, spec: Spec, doors: Doors, path: str, source: IPv6Address, body: bytes
) -> tuple[int, bytes]:
    """The HTTP status and the body that answer one request. An error of a flow is a signed
    refusal; only what nobody could prove is answered in plain."""
    if path == JOIN_PATH:
        return admit.redeem_request(host, spec, source, body, _in_turn(doors))
    kinds = _kinds(doors).get(path)
    if kinds is None:
        return 404, plain("no-such-path", "no such path")
    with store.locked(host, "the mesh"):
        node = store.require(host)
        view = _channel_view(host, node)
        checked = envelope.check_message(
            body,
            source=source,
            view=view,
            serves={name: Serves(body=kind.body, fresh=kind.fresh) for name, kind in kinds.items()},
            ledger=store.load_nonces(host),
            now=host.clock.now(),
        )
        if isinstance(checked, Accepted):
            store.save_nonce(host, checked.ledger, checked.line)
    pair = node.identity.signing
    if isinstance(checked, Turned):
        return checked.rejection.status, envelope.refuse(checked, view, pair, host.clock.now())
    answer = _act(host, spec, doors, node, kinds[checked.message.kind], checked)
    return 200, envelope.answer(checked, answer, pair=pair, now=host.clock.now())


def _act(
    host: Host, spec: Spec, doors: Doors, node: Node, kind: Kind, accepted: Accepted
) -> object:
    sender = accepted.message.sender
    now = host.clock.monotonic()
    try:
        with doors.turns.taken(accepted.message.kind, sender, kind.bound, now):
            if kind.act is None:
                return _hello(host, spec, doors, sender, accepted.body)
            member = next(one for one in node.view.members if one.key == sender)  # the view's check
            if kind.obeys:
                behind.refuse(host, member.display)
            asked = Asked(host=host, spec=spec, node=node, member=member, body=accepted.body)
            return kind.act(asked)
    except KeelError as error:
        if is_private(error):
            host.console.say(f"refused what a member asked: {error.summary()}; {error.remedy()}")
        return refusal_of(error)


def _in_turn(doors: Doors) -> GiveEtcdPart:
    """What the registry adds to a join; while too many are asked for, the reason (keel.mesh.admit,
    A3): the joiner is a member all the same, and its own tend asks for the rest."""

    def give(host: Host, node: Node, claim: Claim) -> EtcdPart:
        with doors.turns.taken(JOIN, claim.ed25519, ADMITS, host.clock.monotonic()):
            return doors.give_etcd_part(host, node, claim)

    return give


def _hello(host: Host, spec: Spec, doors: Doors, sender: SigningKey, body: Hello) -> HelloAnswer:
    """A claimant's first hello confirms its join; a member's brings its newest self record."""
    if admit.confirm(host, spec, sender, body.record, doors.confirming):
        doors.joined(host, sender)
        host.units.start(SYNC_UNIT, block=False)
    elif body.record is not None:
        take_records(host, spec, (body.record,), sender)
    held = store.require(host).roster
    able = capability(spec, overlay_installed=host.overlay_etcd_installed) is Capability.ETCD
    return HelloAnswer(
        digest=roster.digest(held),
        etcd=doors.own_role(host),
        tend_silent_seconds=tended.silent_seconds(host) if able else None,
    )


def _roster(asked: Asked) -> RosterAnswer:
    ask: RosterAsk = asked.body
    held = asked.node.roster
    if ask.records:
        held = take_records(asked.host, asked.spec, ask.records, asked.member.key).roster
    return exchange.reply_to(held, ask)


def take_records(host: Host, spec: Spec, records: tuple[bytes, ...], sender: SigningKey) -> Node:
    """Merge what somebody sent; the peers follow when it changed anything."""
    with store.locked(host, "the mesh"):
        before = store.require(host)
        node, merged = store.merge_held(host, before, records)
        if merged.added and not _left(sender, before, node):
            up.follow(host, spec, before, node)
        elif merged.added:
            # It tells its own removal and waits for this answer: its peer goes a moment later, in
            # the sync.
            host.units.start(SYNC_UNIT, block=False)
    up.wake_tend(host, node, merged)
    return node


def _left(sender: SigningKey, before: Node, after: Node) -> bool:
    return before.view.by_key(sender) is not None and after.view.by_key(sender) is None


def _kinds(doors: Doors) -> Mapping[str, Mapping[str, Kind]]:
    return {
        exchange.HELLO_PATH: {exchange.HELLO: Kind(body=Hello)},
        exchange.ROSTER_PATH: {
            exchange.ROSTER: Kind(body=RosterAsk, act=_roster, fresh=False, obeys=False)
        },
        ETCD_PATH: doors.etcd,
    }


def _channel_view(host: Host, node: Node) -> ChannelView:
    return ChannelView(
        mesh=node.mesh,
        me=node.key,
        members={m.address: m.key for m in node.view.members if m.key not in node.blocked},
        claims={
            address: claim.ed25519
            for address, claim in claimed_members(
                store.load_invites(host), host.clock.now()
            ).items()
        },
    )
