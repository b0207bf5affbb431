"""`keel mesh join`: the new node's side, from a token to a confirmed member (M2).

Owns the order of effects; every step can be cut off, and the same command goes on.

Rules:
(N1) All keys are on disk before the first packet, and are used again by every later try on the
     same mesh.
(N2) First contact is inside WireGuard: a temporary key and address that follow from the token.
(N3) What the answer promises is on disk, genesis last, before the confirmation is sent;
     `pending-join` goes when the confirmation was answered. In between the sync goes on with it.
(N4) One join at a time on a host, by a lock of its own: of two, each would take the interface from
     under the other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from keel.errors import BadSignature, BadValue, KeelError, PeerError, Refused
from keel.mesh import (
    create,
    exchange,
    joinmsg,
    joinplan,
    pendingjoin,
    roster,
    selfrecord,
    silence,
    store,
    talk,
    tended,
    up,
)
from keel.mesh.exchange import JOIN_PATH, Hello, HelloAnswer
from keel.mesh.identity import prefix_of
from keel.mesh.joinmsg import Admitted, EtcdPart, JoinRequest
from keel.mesh.members import Member
from keel.mesh.pendingjoin import Pending
from keel.mesh.store import Identity, Node
from keel.mesh.token import InviteKeys, Token, derive
from keel.mesh.trust import Origin, TrustStore, with_root
from keel.outcome import Done
from keel.ports import Deadline, Host, WgPeer
from keel.spec.model import Spec
from keel.types import MeshId, NodeName, Nonce, SigningKey

FIRST_CONTACT_SECONDS = 60.0
"""Twelve handshakes of WireGuard's, five seconds each: enough on any link that works at all."""
TRY_SECONDS = 15.0
CONFIRM_SECONDS = 60.0
RETRY_SECONDS = 1.0


AskEtcd = Callable[[Identity], bytes | None]
"""The enrolment that a request carries; None for a node that cannot run etcd (E1)."""

Prepare = Callable[[Node, EtcdPart], None]
"""What can be done with the registry's part of an answer before the confirmation: from then on
others wait for this node. Never fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """This node as a member, its inviter, and what the answer said of etcd."""

    node: Node
    inviter: Member
    etcd: EtcdPart


def join(
    host: Host, spec: Spec, token: Token, *, ask_etcd: AskEtcd, prepare: Prepare, discard: bool
) -> Done[Joined]:
    """This node as a confirmed member of the token's mesh; run again it goes on. Refused by the
    inviter's own reason; PeerError `no-answer` when there is only silence; LockHeld beside another
    join."""
    with locked(host):
        return _join(host, spec, token, ask_etcd, prepare, discard=discard)


def locked(host: Host) -> AbstractContextManager[None]:
    """Held by a join throughout (N4), and by what would pull the ground from under it."""
    return host.locks.hold(host.paths.join_lock, what="a join of this node")


def _join(
    host: Host, spec: Spec, token: Token, ask_etcd: AskEtcd, prepare: Prepare, *, discard: bool
) -> Done[Joined]:
    with store.locked(host, "the mesh"):
        before = store.load(host)
        for name in joinplan.allow(host, before, token, discard=discard):
            host.files.remove(host.paths.pending_joins / name)
    admitted = None
    if before is not None:
        _raise(host, spec, before)
        finishes = pendingjoin.load(host, before.mesh) is not None
        known = _already_member(host, before, token)
        if known is not None:
            return Done(value=known, changed=_joined(known) if finishes else ())
    else:
        admitted = pendingjoin.granted(host, token.mesh, token.invite)
    if admitted is None:
        admitted = _first_contact(host, spec, token, before, ask_etcd)
    node = _become_member(host, spec, token.mesh, token.inviter, admitted)
    prepare(node, admitted.etcd)
    deadline = Deadline.after(host.clock, CONFIRM_SECONDS)
    joined = confirm(host, token.inviter, admitted, deadline=deadline)
    return Done(value=joined, changed=_joined(joined))


def _joined(joined: Joined) -> tuple[str, ...]:
    return (f"member/{joined.node.address} joined",)


def confirm(host: Host, inviter: SigningKey, admitted: Admitted, *, deadline: Deadline) -> Joined:
    """Tell the inviter that its answer arrived, until it says that it knows; then the pending
    join is over, which the timer's sync may have found out before. PeerError when the deadline
    passes: the timer goes on."""
    node = store.require(host)
    member = node.view.by_key(inviter)
    if member is None:
        raise Refused(
            "inviter-removed",
            "the inviter is no live member of this mesh any more",
            "`keel mesh leave` on this node, then join with another member's invite",
        )
    _say_hello(host, node, member, deadline)
    with store.locked(host, "the mesh"):
        host.files.remove(host.paths.pending_join(node.mesh))
    return Joined(node=node, inviter=member, etcd=admitted.etcd)


def discard_pending(host: Host, spec: Spec) -> Done[tuple[str, ...]]:
    """Give up every join that was begun and not finished; its keys go with it, and so does the
    temporary interface of one that was cut off. LockHeld while one runs."""
    with locked(host), store.locked(host, "the mesh"):
        names = host.files.names(host.paths.pending_joins)
        if names and store.load(host) is None:
            with contextlib.suppress(Refused):  # not WireGuard's: then it was refused to the join
                host.wireguard.drop_interface(spec.network.wireguard.interface)
        for name in names:
            host.files.remove(host.paths.pending_joins / name)
    return Done(value=names, changed=tuple(f"pending-join/{name} discarded" for name in names))


def _already_member(host: Host, node: Node, token: Token) -> Joined | None:
    """The finished join of a node whose inviter knows it; None when the token has to be redeemed
    (again): refused as unknown, or only silence, or another invite than the one that is pending."""
    pending = pendingjoin.load(host, node.mesh)
    if pending is not None and pending.invite != token.invite:
        return None
    if pending is not None and pending.admitted is not None:
        deadline = Deadline.after(host.clock, TRY_SECONDS)
        try:
            return confirm(host, pending.inviter, pending.admitted, deadline=deadline)
        except PeerError:
            return None
    inviter = node.view.by_key(token.inviter)
    if inviter is None:
        return None
    try:
        _say_hello(host, node, inviter, Deadline.after(host.clock, TRY_SECONDS))
    except PeerError:
        return None
    return Joined(node=node, inviter=inviter, etcd=EtcdPart())


def _first_contact(
    host: Host, spec: Spec, token: Token, before: Node | None, ask_etcd: AskEtcd
) -> Admitted:
    """Redeem the token over its temporary tunnel; the machine is as before after a refusal."""
    with store.locked(host, "the mesh"):
        identity = _identity(host, token.mesh, before)
        if before is None:  # a member has nothing to give up, nor may it lose an open confirmation
            pending = Pending(invite=token.invite, inviter=token.inviter)
            pendingjoin.save(host, token.mesh, pending)
        keys = derive(
            token.secret, mesh=token.mesh, invite=token.invite, prefix=prefix_of(token.mesh)
        )
        enrolment = ask_etcd(identity)
        _raise_temporary(host, spec, token, keys)
    try:
        admitted = _redeem(host, spec, token, keys, identity, enrolment)
    except KeelError:
        _lower_temporary(host, spec)
        raise
    with store.locked(host, "the mesh"):
        granted = Pending(invite=token.invite, inviter=token.inviter, admitted=admitted)
        host.files.make_dir(host.paths.pending_join(token.mesh))
        pendingjoin.save(host, token.mesh, granted)
    return admitted


def _identity(host: Host, mesh: MeshId, before: Node | None) -> Identity:
    """The keys of this mesh: a member's own, else those of an earlier try, else new ones (N1)."""
    if before is not None:
        return before.identity
    place = host.paths.pending_join(mesh)
    host.files.make_dir(place)
    return store.make_identity(host, place / "signing.key", place / "wireguard.key")


def _raise_temporary(host: Host, spec: Spec, token: Token, keys: InviteKeys) -> None:
    wanted = spec.network.wireguard
    host.wireguard.raise_interface(
        wanted.interface, port=wanted.port, mtu=wanted.mtu, private=keys.pair.private
    )
    host.wireguard.set_address(wanted.interface, keys.address, prefix_of(token.mesh))


def _lower_temporary(host: Host, spec: Spec) -> None:
    """Nothing of a refused first contact stays: a member is raised again as it was."""
    with store.locked(host, "the mesh"):
        node = store.load(host)
        if node is None:
            host.wireguard.drop_interface(spec.network.wireguard.interface)
        else:
            up.bring_up(host, spec, node, store.load_invites(host))


def _redeem(
    host: Host,
    spec: Spec,
    token: Token,
    keys: InviteKeys,
    identity: Identity,
    enrolment: bytes | None,
) -> Admitted:
    deadline, since = Deadline.after(host.clock, FIRST_CONTACT_SECONDS), host.clock.now()
    tries = 0
    while not deadline.passed(host.clock):
        endpoint = token.endpoints[tries % len(token.endpoints)] if token.endpoints else None
        left = f"{deadline.remaining(host.clock):.0f} s left"
        host.console.waiting(f"asking the inviter at {endpoint}, {left}")
        host.wireguard.set_peer(
            spec.network.wireguard.interface,
            WgPeer(
                key=token.wireguard,
                allowed=token.address,
                endpoint=endpoint,
                keepalive_seconds=spec.network.wireguard.keepalive,
                preshared=keys.preshared,
            ),
        )
        tries += 1
        request = _request(host, spec, token, keys, identity, enrolment)
        try:
            raw = host.channel.post(
                token.address,
                JOIN_PATH,
                request,
                timeout_seconds=min(TRY_SECONDS, max(1.0, deadline.remaining(host.clock))),
            )
        except PeerError:
            host.clock.sleep(RETRY_SECONDS)
            continue
        return _opened(raw, token, keys, request, own_name=create.own_name(host, spec))
    device = host.wireguard.show(spec.network.wireguard.interface)
    raise silence.of_inviter(token, device, since=since, seconds=FIRST_CONTACT_SECONDS)


def _request(
    host: Host,
    spec: Spec,
    token: Token,
    keys: InviteKeys,
    identity: Identity,
    enrolment: bytes | None,
) -> bytes:
    request = JoinRequest(
        mesh=token.mesh,
        invite=token.invite,
        nonce=Nonce(host.chance.bytes(16).hex()),
        ed25519=identity.signing.public,
        wireguard=identity.wireguard.public,
        name=create.own_name(host, spec),
        capability=selfrecord.own_capability(host, spec),
        time=host.clock.now(),
        endpoints=selfrecord.own_endpoints(host, spec)[: joinmsg.MAX_ENDPOINTS],
        enrolment=enrolment,
    )
    return joinmsg.seal_request(request, keys, identity.signing)


def _opened(
    raw: bytes, token: Token, keys: InviteKeys, request: bytes, *, own_name: NodeName
) -> Admitted:
    answer = joinmsg.open_answer(raw, keys, inviter=token.inviter, mesh=token.mesh, request=request)
    if answer.refusal is not None:
        if (answer.refusal.rule, answer.refusal.details.get("name")) == ("join-claimed", own_name):
            raise _claimed_by_itself(token, own_name)
        raise answer.refusal.as_error()
    assert answer.admitted is not None  # noqa: S101  # JoinAnswer's own rule
    return answer.admitted


def _claimed_by_itself(token: Token, name: NodeName) -> Refused:
    """The claimant has this node's name and other keys: those that were discarded with a join that
    was begun, or another machine's."""
    return Refused(
        "join-claimed",
        f"the invite was claimed by {name}, with other keys than this node has: a join that was"
        " begun here and discarded, or another node of that name",
        f"`keel mesh invite --cancel {token.invite}` on the inviter, then `keel mesh invite` there"
        " and join with the new token",
    )


def _become_member(
    host: Host, spec: Spec, mesh: MeshId, inviter: SigningKey, admitted: Admitted
) -> Node:
    """Everything of the membership on disk, genesis last (N3); then the machine follows."""
    with store.locked(host, "the mesh"):
        node = store.load(host)
        place = host.paths.pending_join(mesh)
        if node is None:
            identity = store.make_identity(host, place / "signing.key", place / "wireguard.key")
            trust = with_root(TrustStore(), inviter, Origin.JOINED, host.clock.now())
        else:
            identity, trust = node.identity, node.trust
        held = _checked_roster(mesh, admitted)
        if node is not None:
            held = roster.merge(held, node.roster.raws.values()).roster
        node = store.assemble(identity, held=held, trust=trust)
        if node.view.by_key(identity.signing.public) is None:
            raise PeerError("the inviter", "not-admitted", "its answer does not admit this node")
        store.save_identity(host, identity)
        store.keep_for_etcd(host, mesh)
        store.save_trust(host, trust)
        store.save_roster(host, held)
        node = selfrecord.refresh(host, spec, node)
        tended.note(host)
        store.save_genesis(host, held.founding.raw)
        _drop_first_contact(host, spec)
    _raise(host, spec, node)
    return node


def _raise(host: Host, spec: Spec, node: Node) -> None:
    """The machine as the state says, which an interrupted join may not have come to."""
    with store.locked(host, "the mesh"):
        up.bring_up(host, spec, node, store.load_invites(host))
    up.start_units(host)


def _drop_first_contact(host: Host, spec: Spec) -> None:
    """The inviter's peer goes before this node's own key comes: a handshake with that key and the
    old preshared key would fail, and WireGuard would not knock again for five seconds. So does the
    connection: its address goes, too."""
    host.channel.close()
    interface = spec.network.wireguard.interface
    device = host.wireguard.show(interface)
    for peer in device.peers if device else ():
        if peer.has_preshared:
            host.wireguard.remove_peer(interface, peer.key)


def _checked_roster(mesh: MeshId, admitted: Admitted) -> roster.Roster:
    try:
        held = roster.founded(admitted.genesis, mesh)
    except (BadValue, BadSignature, Refused) as error:
        raise PeerError("the inviter", "wrong-genesis", error.summary()) from error
    return roster.merge(held, (*admitted.roster, admitted.admission)).roster


def _say_hello(host: Host, node: Node, member: Member, deadline: Deadline) -> None:
    """One answered hello; PeerError when the deadline passes or the member refuses."""
    body = Hello(digest=roster.digest(node.roster), record=selfrecord.newest(node))
    while True:
        asked = host.clock.now()
        try:
            said = talk.ask(
                host,
                node,
                member,
                exchange.HELLO,
                body,
                HelloAnswer,
                path=exchange.HELLO_PATH,
                timeout_seconds=min(TRY_SECONDS, max(1.0, deadline.remaining(host.clock))),
            )
        except PeerError as error:
            if error.reason not in ("unreachable", "timeout") or deadline.passed(host.clock):
                raise
            host.console.waiting(f"waiting for {member.display} to confirm")
            host.clock.sleep(RETRY_SECONDS)
            continue
        talk.keep_first_clock(host, said.time, asked=asked)
        return
