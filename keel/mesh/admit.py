"""The inviter's side: makes invites, redeems them, confirms, lets them lapse (M2).

Owns the order of effects. Verdicts are keel.mesh.redeem's, transitions keel.mesh.invite's.

Rules:
(A1) A claim is on disk before its peer is raised, and the peer before the answer leaves.
(A2) An admission enters the roster only with the joiner's confirmation; until then it is kept in
     the claim, and the same joiner is given it again.
(A3) The etcd part is added to a claim that stands already: no join fails because of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import IPv6Address

from keel import codec
from keel.errors import KeelError, PeerError, Refused
from keel.mesh import (
    drafts,
    exchange,
    invite,
    joinmsg,
    members,
    netwindow,
    redeem,
    refusal,
    roster,
    selfrecord,
    store,
    talk,
    up,
    wire,
)
from keel.mesh.invite import Claim, InviteState, Phase
from keel.mesh.joinmsg import Admitted, EtcdPart, JoinAnswer
from keel.mesh.redeem import Denied, JoinView, NewClaim, SameClaim
from keel.mesh.refusal import Rejection
from keel.mesh.store import Node
from keel.mesh.token import MAX_ENDPOINTS, EtcdHint, Token, encode_token
from keel.outcome import Done, Plan
from keel.ports import Deadline, Host
from keel.spec.model import Spec
from keel.types import Endpoint, Fingerprint, InviteId, NodeName, Nonce, Secret, SigningKey
from keel.unitnames import SYNC_UNIT

WAIT_POLL_SECONDS = 1.0
NTP_SECONDS = 3600.0
"""So long after a boot a clock that nobody vouches for may still be set right; where no NTP is,
invites have to end all the same."""
ANSWER_RECORDS_BYTES = 320 << 10
"""Records in the answer to a join: base64 twice, the genesis and certificates stay below 1 MiB."""

GiveEtcdPart = Callable[[Host, Node, Claim], EtcdPart]
"""What the registry's flows add to an admission; KeelError when they cannot."""
Confirming = Callable[[Host, Claim], None]
"""What the registry's flows keep of a claim before it is spent; the lock is held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdWords:
    """What a token says of the registry; hints but for the root's fingerprint."""

    hint: EtcdHint = EtcdHint.NONE
    root: Fingerprint | None = None
    holder: NodeName | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeInvite:
    """A new invite; `token` is secret and is shown once."""

    state: InviteState
    token: Secret


def make_invite(host: Host, spec: Spec, words: EtcdWords, *, life: timedelta) -> Done[MadeInvite]:
    """An open invite with its temporary peer raised, and the token for it."""
    endpoints = _endpoints(host, spec)
    with store.locked(host, "the mesh"):
        netwindow.refuse_open(host)
        node = store.require(host)
        invites = store.load_invites(host)
        state = invite.new_invite(
            invites,
            invite=InviteId(host.chance.bytes(16).hex()),
            secret=Secret(host.chance.bytes(32)),
            mesh=node.mesh,
            prefix=node.prefix,
            now=host.clock.now(),
            life=life,
        )
        store.save_invite(host, state)
        up.bring_up(host, spec, node, (*invites, state))
    token = Token(
        mesh=node.mesh,
        invite=state.invite,
        secret=Secret(state.secret),
        inviter=node.key,
        wireguard=node.identity.wireguard.public,
        address=node.address,
        expires=state.expires,
        endpoints=endpoints[:MAX_ENDPOINTS],
        etcd=words.hint,
        root=words.root,
        holder=words.holder,
    )
    made = MadeInvite(state=state, token=Secret(encode_token(token).encode()))
    return Done(value=made, changed=(f"invite/{state.invite} created",))


def plan_invite(host: Host, spec: Spec, *, life: timedelta) -> Plan:
    """What `make_invite` would do now; Refused as it would be."""
    _endpoints(host, spec)
    netwindow.refuse_open(host)
    store.require(host)
    ends = invite.end_of_new(store.load_invites(host), now=host.clock.now(), life=life)
    return Plan.of(
        (True, "make-invite", "one node", f"good until {codec.format_time(ends)}"),
        (True, "add-peer", "who has the token", "it reaches this node's channel and nothing else"),
    )


def _endpoints(host: Host, spec: Spec) -> tuple[Endpoint, ...]:
    """Where the invited node finds this one; Refused `no-endpoint`."""
    found = selfrecord.own_endpoints(host, spec)
    if not found:
        raise Refused(
            "no-endpoint",
            "no address is known at which others could reach this node",
            f"set network.wireguard.endpoints in {host.paths.spec}",
        )
    return found


def wait_until_spent(host: Host, wanted: InviteId, deadline: Deadline) -> InviteState:
    """The invite once it is spent; PeerError when it lapses or the deadline passes first."""
    while True:
        found = next((i for i in store.load_invites(host) if i.invite == wanted), None)
        if found is not None and found.phase is Phase.SPENT:
            return found
        if found is None or not invite.open_at(found, host.clock.now()):
            raise PeerError(
                "the invited node",
                "invite-lapsed",
                "it did not join before the invite ended",
                remedy="run this again for a new invite; what kept that node is said by its own"
                " `keel mesh join`",
            )
        if deadline.passed(host.clock):
            raise PeerError(
                "the invited node",
                "not-joined-yet",
                "it has not joined yet",
                remedy="the invite stays open; look at it with `keel mesh invite --list`",
            )
        who = f", claimed by {found.claim.name}" if found.claim else ""
        host.console.waiting(f"waiting for the invited node to join{who}")
        host.clock.sleep(WAIT_POLL_SECONDS)


def cancel(host: Host, spec: Spec, wanted: str) -> Done[InviteState]:
    """The invite whose ID begins with `wanted`, cancelled; a claimant is removed besides, unless it
    is a member already, who claimed it only to be admitted once more."""
    with store.locked(host, "the mesh"):
        netwindow.refuse_open(host)
        node = store.require(host)
        cancelled, claimant = _decide_cancel(host, node, wanted)
        if claimant is not None:
            node = _remove_claimant(host, node, claimant)
        store.save_invite(host, cancelled)
        up.bring_up(host, spec, node, store.load_invites(host))
    host.units.start(SYNC_UNIT, block=False)
    up.kick_tend(host)
    return Done(value=cancelled, changed=(f"invite/{cancelled.invite} cancelled",))


def plan_cancel(host: Host, wanted: str) -> Plan:
    """What `cancel` would do now; Refused as it would be."""
    netwindow.refuse_open(host)
    node = store.require(host)
    cancelled, claimant = _decide_cancel(host, node, wanted)
    name, others = claimant.name if claimant else "", talk.others(node)
    return Plan.of(
        (True, "cancel-invite", cancelled.invite, "nobody joins with it any more"),
        (claimant is not None, "sign-removal", name, "it claimed the invite and is no member yet"),
        (
            claimant is not None and bool(others),
            "tell-members",
            ", ".join(sorted(one.display for one in others)),
            "by the sync that follows",
        ),
    )


def _decide_cancel(host: Host, node: Node, wanted: str) -> tuple[InviteState, Claim | None]:
    """The invite as cancelled, and the claimant that goes with it. Refused (invite-unknown,
    invite-ambiguous, invite-closed)."""
    state = invite.named(store.load_invites(host), wanted)
    claim = state.claim
    goes = claim is not None and node.view.by_key(claim.ed25519) is None
    return invite.cancel_invite(state, host.clock.now()), claim if goes else None


def redeem_request(
    host: Host, spec: Spec, source: IPv6Address, raw: bytes, give_etcd_part: GiveEtcdPart
) -> tuple[int, bytes]:
    """The status and the body that answer one request to /v1/join."""
    with store.locked(host, "the mesh"):
        node = store.require(host)
        invites = store.load_invites(host)
        verdict = redeem.judge(
            raw,
            source=source,
            invites={state.address: state for state in invites},
            view=_join_view(node),
            now=host.clock.now(),
        )
        if isinstance(verdict, NewClaim):
            verdict = _unless_window(host, verdict)
        if isinstance(verdict, Denied):
            return _deny(host, node, verdict, raw)
        state = verdict.invite
        if isinstance(verdict, NewClaim):
            state = _claim(host, node, verdict)
            up.warm_passes(host)  # for what the confirmation kicks
        changed = tuple(state if i.invite == state.invite else i for i in invites)
        up.set_peers(host, spec, up.wanted_peers(spec, node, changed, host.clock.now()))
    state = _with_etcd_part(host, node, state, give_etcd_part)
    return 200, _admit(host, node, state, raw, verdict)


def confirm(
    host: Host, spec: Spec, key: SigningKey, record: bytes | None, confirming: Confirming
) -> bool:
    """The joiner's first hello: its admission enters the roster, the invite is spent. Whether
    this was the first one; a repeated one is fine."""
    with store.locked(host, "the mesh"):
        node = store.require(host)
        state = _claimed_by(store.load_invites(host), key)
        if state is None or state.claim is None:
            return False
        spent = invite.confirm_invite(state, key, host.clock.now())
        records = (state.claim.admission,) if record is None else (state.claim.admission, record)
        node, _ = store.merge_into(host, node, records)
        _keep_for_etcd(host, state.claim, confirming)
        store.save_invite(host, spent)
        # The joiner waits: its peer is all that changes.
        peers = up.wanted_peers(spec, node, store.load_invites(host), host.clock.now())
        up.set_peers(host, spec, peers)
    return True


def lapse(host: Host, node: Node) -> tuple[InviteState, ...]:
    """Expire and forget what is due; the invites that are left. Hold the lock."""
    kept = []
    for state, later in lapsing(host, node):
        if later is None:
            store.forget_invite(host, state.invite)
            continue
        if later != state:
            store.save_invite(host, later)
            up.kick_tend(host)  # what was granted to it ends as well
        kept.append(later)
    return tuple(kept)


def lapsing(host: Host, node: Node) -> tuple[tuple[InviteState, InviteState | None], ...]:
    """Each invite as it is and as it is to be by now, None when it is to be forgotten. By a clock
    that is off, or that nobody was asked about since this node was away, nothing ends for good."""
    found, now = store.load_invites(host), host.clock.now()
    unsure = (
        host.files.exists(host.paths.behind)
        or talk.clock_is_off(host)
        or (bool(found) and not talk.others(node) and _awaits_ntp(host))
    )
    return tuple((one, one if unsure else _by_now(one, now)) for one in found)


def _by_now(state: InviteState, now: datetime) -> InviteState | None:
    later = invite.expire_invite(state, now)
    return None if invite.to_forget(later, now) else later


def _awaits_ntp(host: Host) -> bool:
    """Who is alone has nobody to ask about the clock that it booted with."""
    return host.clock.monotonic() < NTP_SECONDS and not host.machine.clock_synchronized()


def _keep_for_etcd(host: Host, claim: Claim, confirming: Confirming) -> None:
    """No confirmation fails because of the registry's part (A3)."""
    try:
        confirming(host, claim)
    except KeelError as error:
        host.console.say(f"the request of {claim.name} is not relayed: {error.summary()}")


def _join_view(node: Node) -> JoinView:
    members = node.view.members
    return JoinView(
        mesh=node.mesh,
        prefix=node.prefix,
        names={name: member.key for member in members for name in member.called},
        wireguard={member.wireguard: member.key for member in members if member.wireguard},
        removed=frozenset(node.view.removed),
    )


def _unless_window(host: Host, verdict: NewClaim) -> NewClaim | Denied:
    """A change to the network waits alone (M10): nobody new meanwhile. Who has claimed already
    goes on."""
    if not store.window_is_open(host):
        return verdict
    rejection = Rejection(
        rule="join-window",
        text="the inviter's network is being changed just now",
        remedy="run the same command again in two minutes; the invite is still open",
        proven=True,
    )
    return Denied(rejection=rejection, keys=verdict.keys)


def _deny(host: Host, node: Node, denied: Denied, raw: bytes) -> tuple[int, bytes]:
    if denied.counted is not None:
        store.save_invite(host, denied.counted)
    if denied.keys is None:
        return 200, refusal.UNPROVEN_ANSWER  # to a stranger all answers look alike
    answer = JoinAnswer(
        mesh=node.mesh,
        invite=denied.keys.invite,
        request=joinmsg.request_hash(raw),
        time=host.clock.now(),
        refusal=denied.rejection.refusal(),
    )
    return 200, joinmsg.seal_answer(answer, denied.keys, node.identity.signing, raw)


def _claim(host: Host, node: Node, verdict: NewClaim) -> InviteState:
    request = verdict.request
    admission = drafts.make_admission(
        node.roster,
        node.identity.signing,
        name=request.name,
        ed25519=request.ed25519,
        wireguard=request.wireguard,
        capability=request.capability,
        now=host.clock.now(),
        nonce=Nonce(host.chance.bytes(16).hex()),
    )
    claim = Claim(
        ed25519=request.ed25519,
        wireguard=request.wireguard,
        name=request.name,
        address=node.roster.founding.address_of(request.ed25519),
        capability=request.capability,
        time=host.clock.now(),
        admission=wire.encode(admission),
        endpoints=request.endpoints,
        enrolment=request.enrolment,
    )
    claimed = invite.claim_invite(verdict.invite, claim, host.clock.now())
    store.save_invite(host, claimed)
    return claimed


def _with_etcd_part(
    host: Host, node: Node, state: InviteState, give_etcd_part: GiveEtcdPart
) -> InviteState:
    """The claim with its etcd part, made once and kept; on any failure the reason instead (A3)."""
    claim = state.claim
    if claim is None or claim.etcd != EtcdPart():
        return state
    try:
        part = give_etcd_part(host, node, claim)
    except KeelError as error:
        return invite.note_etcd(state, EtcdPart(note=refusal.for_others(error)))
    with store.locked(host, "the mesh"):
        held = {i.invite: i for i in store.load_invites(host)}.get(state.invite)
        if held is None or held.phase not in (Phase.CLAIMED, Phase.SPENT):
            raise Refused(
                "invite-closed",
                "the invite was closed while it was redeemed",
                "run the same command again: the inviter then says why",
            )
        noted = invite.note_etcd(held, part)
        store.save_invite(host, noted)
    return noted


def _admit(
    host: Host, node: Node, state: InviteState, raw: bytes, verdict: NewClaim | SameClaim
) -> bytes:
    claim = state.claim
    assert claim is not None  # noqa: S101  # either verdict's invite has one
    answer = JoinAnswer(
        mesh=node.mesh,
        invite=state.invite,
        request=joinmsg.request_hash(raw),
        time=host.clock.now(),
        admitted=Admitted(
            admission=claim.admission,
            genesis=node.roster.founding.raw,
            roster=_records(node),
            etcd=claim.etcd,
        ),
    )
    return joinmsg.seal_answer(answer, verdict.keys, node.identity.signing, raw)


def _records(node: Node) -> tuple[bytes, ...]:
    """What a joiner needs to believe its inviter and to find it, and as much more as fits; sync
    brings the rest, so that no roster is too large to be joined."""
    own = selfrecord.newest(node)
    needed = (*members.chain(node.roster, node.key)[1:], *(() if own is None else (own,)))
    others = (raw for raw in roster.missing(node.roster, ()) if raw not in needed)
    return (*needed, *exchange.batch(others, ANSWER_RECORDS_BYTES))


def _claimed_by(invites: tuple[InviteState, ...], key: SigningKey) -> InviteState | None:
    return next(
        (i for i in invites if i.phase is Phase.CLAIMED and i.claim and i.claim.ed25519 == key),
        None,
    )


def _remove_claimant(host: Host, node: Node, claim: Claim) -> Node:
    node, _ = store.merge_into(host, node, (claim.admission,))
    removal = drafts.make_removal(
        node.roster,
        node.identity.signing,
        claim.ed25519,
        now=host.clock.now(),
        nonce=Nonce(host.chance.bytes(16).hex()),
    )
    node, _ = store.merge_into(host, node, (wire.encode(removal),))
    return node
