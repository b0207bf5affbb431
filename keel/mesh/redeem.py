"""What the inviter makes of a request to `/v1/join`: the numbered checks, and nothing else.

Pure. The flow holds the lock, calls `judge`, writes what it says and answers. Checks, in order:
 1 size          no answer can be trusted yet, so checks 1 to 4 refuse in plain, with equal bytes
 2 source        the temporary address of an invite that this node knows
 3 invite id     the one whose address that is
 4 MAC           the sender holds the invite's secret; a bad one is counted, ten freeze the invite
 5 possession    the envelope is signed, and by the Ed25519 key that wants to be admitted
 6 state         cancelled, spent, expired, frozen, claimed by another; by the same key is fine
 7 mesh
 8 version       and, of the one version there is, the strict form of the request
 9 name          nobody else's, the keys nobody else's, and no endpoint inside the mesh
10 clock         at most 300 s apart; both are named, and nothing was claimed. Before 6 tells of an
                 expiry that the asker's clock denies: perhaps it is this node's that ran ahead
From 5 on the asker is proven to hold the secret and hears the reason in an authenticated answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import IPv6Address, IPv6Network

from keel import codec
from keel.errors import BadSignature, BadValue
from keel.mesh import wire
from keel.mesh.invite import OPEN, Claim, InviteState, Phase, count_bad_mac, open_claims
from keel.mesh.joinmsg import (
    MAX_REQUEST_BYTES,
    PROTOCOL,
    REQUEST_KIND,
    JoinHead,
    JoinRequest,
    RequestFrame,
    request_mac_holds,
    split_request,
)
from keel.mesh.refusal import Rejection, both_clocks
from keel.mesh.token import InviteKeys
from keel.types import NAME_PATTERN, InviteId, MeshId, NodeName, SigningKey, WgKey, parse_hex

MAX_CLOCK_SKEW = timedelta(seconds=300)

CHECKS = (
    "join-size",
    "join-source",
    "join-invite",
    "join-mac",
    "join-possession",
    "join-cancelled",
    "join-spent",
    "join-expired",
    "join-frozen",
    "join-claimed",
    "join-mesh",
    "join-version",
    "join-form",
    "join-name",
    "join-key-removed",
    "join-wireguard-key",
    "join-endpoint",
    "join-clock",
)
"""Every reason, in the order in which the checks run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinView:
    """What the checks need to know of the mesh. `names` and `wireguard` hold those of the live
    members; claims are added from the invites; `removed` are the keys that never come back."""

    mesh: MeshId
    prefix: IPv6Network
    names: Mapping[NodeName, SigningKey]
    wireguard: Mapping[WgKey, SigningKey]
    removed: frozenset[SigningKey] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewClaim:
    """Grant it: make the admission, `claim_invite`, write, raise the peer, answer."""

    request: JoinRequest
    invite: InviteState
    keys: InviteKeys


@dataclass(frozen=True, slots=True, kw_only=True)
class SameClaim:
    """The claimant again: the same admission and etcd part, in a new answer."""

    request: JoinRequest
    invite: InviteState
    keys: InviteKeys
    claim: Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class Denied:
    """No. `keys` are there when the rejection is proven and has to be sealed; `counted` is the
    invite's record with one more bad MAC, to be written."""

    rejection: Rejection
    keys: InviteKeys | None = None
    counted: InviteState | None = None


Verdict = NewClaim | SameClaim | Denied


def judge(
    raw: bytes,
    *,
    source: IPv6Address,
    invites: Mapping[IPv6Address, InviteState],
    view: JoinView,
    now: datetime,
) -> Verdict:
    """The verdict over one request; `invites` by their temporary address."""
    known = invites.get(source)
    if len(raw) > MAX_REQUEST_BYTES:
        return _plain("join-size", "the request is too large", status=413)
    if known is None:
        return _plain("join-source", "the source is no invite's temporary address")
    keys = known.keys(view.mesh, view.prefix)
    try:
        frame = split_request(raw)
    except BadValue:
        return _plain("join-invite", "the request is not a frame")
    if frame.invite != known.invite:
        return _plain("join-invite", "the request names another invite than its source address")
    if not request_mac_holds(frame, keys):
        counted = count_bad_mac(known)
        return Denied(
            rejection=_plain("join-mac", "the MAC does not verify").rejection,
            counted=None if counted == known else counted,
        )
    verdict = _judge_proven(frame, known, keys, invites=invites, view=view, now=now)
    return Denied(rejection=verdict, keys=keys) if isinstance(verdict, Rejection) else verdict


def _judge_proven(
    frame: RequestFrame,
    invite: InviteState,
    keys: InviteKeys,
    *,
    invites: Mapping[IPv6Address, InviteState],
    view: JoinView,
    now: datetime,
) -> NewClaim | SameClaim | Rejection:
    """Checks 5 to 10."""
    signed = _possession(frame)
    if isinstance(signed, Rejection):
        return signed
    key, payload = signed
    refused = _state(invite, key, now)
    request = _request(payload, frame, key, view)
    if refused:
        return _denied_expiry(request, invite, now) or refused
    if isinstance(request, Rejection):
        return request
    if invite.claim is not None:
        return _clock(request, now) or SameClaim(
            request=request, invite=invite, keys=keys, claim=invite.claim
        )
    return (
        _identity(request, keys, open_claims(invites.values(), now), view)
        or _clock(request, now)
        or NewClaim(request=request, invite=invite, keys=keys)
    )


def _possession(frame: RequestFrame) -> tuple[SigningKey, bytes] | Rejection:
    """Check 5: one signature, and whose it is; the body must name the same key (in check 8)."""
    try:
        envelope = wire.decode(frame.envelope, max_bytes=MAX_REQUEST_BYTES)
        (signature,) = envelope.signatures
        key = SigningKey(parse_hex(signature.key, size=32))
        return key, wire.verified(envelope, REQUEST_KIND, key)
    except (BadValue, BadSignature, ValueError):
        return _proven(
            "join-possession",
            "the request is not signed by the key that asks to be admitted",
            "run the same `keel mesh join` again",
        )


def _state(invite: InviteState, key: SigningKey, now: datetime) -> Rejection | None:
    """Check 6. What became of the invite is told before whether its time is over."""
    claim = invite.claim
    who = {"claimant": claim.ed25519, "name": claim.name} if claim else {}
    by = "this node" if claim and claim.ed25519 == key else f"node {claim.name}" if claim else ""
    if invite.phase is Phase.CANCELLED:
        return _proven("join-cancelled", "the invite was cancelled", _ANEW)
    if invite.phase is Phase.SPENT:
        return _proven("join-spent", f"the invite was used already, by {by}", _ANEW, who)
    if invite.phase is Phase.EXPIRED or now >= invite.expires:
        ended = codec.format_time(invite.expires)
        details = {"expired": ended, "our_clock": codec.format_time(now.replace(microsecond=0))}
        return _proven("join-expired", f"the invite expired at {ended}", _ANEW, details)
    if invite.frozen:
        return _proven("join-frozen", "the invite is frozen after ten bad MACs", _ANEW)
    if claim and claim.ed25519 != key:
        return _proven("join-claimed", f"the invite was claimed by {by} before", _ANEW, who)
    return None


def _denied_expiry(
    request: JoinRequest | Rejection, invite: InviteState, now: datetime
) -> Rejection | None:
    """What is said of an open invite whose time is over by this node's clock alone."""
    over = invite.phase in OPEN and now >= invite.expires
    if not over or isinstance(request, Rejection) or request.time >= invite.expires:
        return None
    return _clock(request, now)


def _request(
    payload: bytes, frame: RequestFrame, key: SigningKey, view: JoinView
) -> JoinRequest | Rejection:
    """Checks 7 and 8; the strict form comes last, since another version's may differ."""
    again = "run the same `keel mesh join` again; both nodes should run the same version of keel"
    try:
        head = codec.loads(JoinHead, payload, max_bytes=MAX_REQUEST_BYTES, strict=False)
        if head.mesh != view.mesh:
            return _proven("join-mesh", "the request is for another mesh", _ANEW)
        if head.version != PROTOCOL:
            return _proven(
                "join-version",
                f"the request is of protocol {head.version}, this node speaks {PROTOCOL}",
                "install the same version of keel on both nodes",
            )
        request = codec.loads(JoinRequest, payload, max_bytes=MAX_REQUEST_BYTES)
    except BadValue as error:
        return _proven(
            "join-form", f"the request makes no sense at {error.path or 'its top'}", again
        )
    if (request.ed25519, request.invite, request.nonce) != (key, frame.invite, frame.nonce):
        return _proven("join-form", "the request's frame and its inside differ", again)
    return request


def _identity(
    request: JoinRequest, keys: InviteKeys, claimed: Mapping[InviteId, Claim], view: JoinView
) -> Rejection | None:
    """Check 9: what a claim would take must be nobody else's."""
    key = request.ed25519
    names = {claim.name: claim.ed25519 for claim in claimed.values()} | dict(view.names)
    wireguard = {claim.wireguard: claim.ed25519 for claim in claimed.values()} | dict(
        view.wireguard
    )
    if not NAME_PATTERN.fullmatch(request.name):
        return _proven("join-name", "the name is not a name", _RENAME)
    if names.get(request.name, key) != key:
        return _name_taken(
            request.name, [one for one in claimed if claimed[one].name == request.name]
        )
    if key in view.removed:
        return _proven(
            "join-key-removed",
            "a node with this key was removed from the mesh for good",
            "run `keel mesh leave` on the joining node, which gives it new keys, then join again",
        )
    if wireguard.get(request.wireguard, key) != key or request.wireguard == keys.pair.public:
        return _proven(
            "join-wireguard-key",
            "another node has this WireGuard key",
            "is this a copy of another node's disk? run `keel mesh leave` here, then join again",
        )
    if any(endpoint.host in view.prefix for endpoint in request.endpoints):
        return _proven(
            "join-endpoint",
            "an endpoint lies inside the mesh's own prefix",
            "set network.wireguard.endpoints to the node's underlay addresses",
        )
    return None


def _name_taken(name: NodeName, claims: Sequence[InviteId]) -> Rejection:
    """Who gave up a join and begins anew meets itself: the keys of its claim are gone."""
    text = f"another node is called {name}"
    if not claims:
        return _proven(
            "join-name",
            text,
            f"if that was this machine before it was installed anew: `keel mesh remove {name}` on a"
            " member, then the same command again; else choose another name: set node.name in the"
            " spec",
        )
    return _proven(
        "join-name",
        f"{text}: it claimed invite {claims[0]} and has not confirmed yet",
        "if that was this node, before its join was discarded: `keel mesh invite --cancel"
        f" {claims[0]}` on the inviter, then the same command again; else choose another name: set"
        " node.name in the spec",
    )


def _clock(request: JoinRequest, now: datetime) -> Rejection | None:
    """Check 10."""
    if abs(request.time - now) <= MAX_CLOCK_SKEW:
        return None
    details = both_clocks(ours=now, theirs=request.time)
    return _proven(
        "join-clock",
        f"the clocks differ: the inviter's says {details['our_clock']}, this node's"
        f" {details['your_clock']}",
        "set the wrong clock right (`timedatectl set-ntp true`), then run the same command again;"
        " the invite is still open",
        details,
    )


def _plain(rule: str, text: str, *, status: int = 403) -> Denied:
    remedy = "run `keel mesh join` with the whole token that `keel mesh invite` printed"
    return Denied(
        rejection=Rejection(rule=rule, text=text, remedy=remedy, proven=False, status=status)
    )


def _proven(
    rule: str, text: str, remedy: str, details: Mapping[str, str] | None = None
) -> Rejection:
    return Rejection(rule=rule, text=text, remedy=remedy, proven=True, details=details or {})


_ANEW = "make a new invite with `keel mesh invite` on a member and join with its token"
_RENAME = "choose another name: set node.name in the spec, then run the same command again"
