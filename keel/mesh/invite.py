"""An invite's record at the inviter, `invites/<id>.json`, and how it may change.

Owns the record, its phases and the pure transitions between them. Knows nothing of messages: a
request is judged in keel.mesh.redeem.

Rules:
(I1) unused -> claimed -> spent; unused or claimed -> expired; unused or claimed -> cancelled.
     Nothing goes back, and a claim never changes hands.
(I2) The inviter's clock alone decides expiry, at `expires` exactly.
(I3) Ten bad MACs freeze an invite: nothing more is granted, what was claimed may be confirmed.
(I4) The secret is kept until the record is forgotten, 24 h after it closed, because until then a
     late joiner is told, under the invite's own keys, what became of it.
(I5) At most 16 are open at a time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from ipaddress import IPv6Address, IPv6Network

from keel import codec, secretcache
from keel.errors import Internal, Refused
from keel.mesh.joinmsg import EtcdPart
from keel.mesh.token import InviteKeys, derive
from keel.types import (
    Capability,
    Endpoint,
    InviteId,
    MeshId,
    NodeName,
    Secret,
    SigningKey,
    WgKey,
)

LIFE = timedelta(hours=24)
REMEMBERED = timedelta(hours=24)
"""How long a closed invite can still say what became of it (I4)."""
MAX_OPEN = 16
MAX_BAD_MACS = 10
MAX_RECORD_BYTES = 256 << 10


class Phase(StrEnum):
    UNUSED = "unused"
    CLAIMED = "claimed"
    SPENT = "spent"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


OPEN = frozenset({Phase.UNUSED, Phase.CLAIMED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Who claimed an invite and what it was given; a repeated request gets exactly this again."""

    ed25519: SigningKey
    wireguard: WgKey
    name: NodeName
    address: IPv6Address
    capability: Capability
    time: datetime
    admission: bytes
    endpoints: tuple[Endpoint, ...] = ()
    enrolment: bytes | None = None
    etcd: EtcdPart = field(default_factory=EtcdPart)
    extra: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class InviteState:
    """The record. `address` is the temporary one; `closed` is when it was spent, expired or
    cancelled."""

    invite: InviteId
    secret: bytes = field(repr=False)
    address: IPv6Address
    made: datetime
    expires: datetime
    phase: Phase = Phase.UNUSED
    bad_macs: int = 0
    claim: Claim | None = None
    closed: datetime | None = None
    extra: Mapping[str, object] = field(default_factory=dict)

    @property
    def frozen(self) -> bool:
        return self.bad_macs >= MAX_BAD_MACS

    def keys(self, mesh: MeshId, prefix: IPv6Network) -> InviteKeys:
        return derive(Secret(self.secret), mesh=mesh, invite=self.invite, prefix=prefix)


def parse_invite(raw: bytes) -> InviteState:
    """From its file; BadValue when it is not one. Unknown fields are kept."""
    return _parsed(raw)


@secretcache.remembered
def _parsed(raw: bytes) -> InviteState:
    return codec.loads(InviteState, raw, max_bytes=MAX_RECORD_BYTES, strict=False)


def open_at(invite: InviteState, now: datetime) -> bool:
    """Whether it may still be claimed or confirmed."""
    return invite.phase in OPEN and now < invite.expires


def new_invite(
    others: Iterable[InviteState],
    *,
    invite: InviteId,
    secret: Secret,
    mesh: MeshId,
    prefix: IPv6Network,
    now: datetime,
    life: timedelta = LIFE,
) -> InviteState:
    """An unused one with whole seconds of life; Refused as `end_of_new`."""
    expires = end_of_new(others, now=now, life=life)
    keys = derive(secret, mesh=mesh, invite=invite, prefix=prefix)
    return InviteState(
        invite=invite,
        secret=secret.reveal(),
        address=keys.address,
        made=now.replace(microsecond=0),
        expires=expires,
    )


def end_of_new(others: Iterable[InviteState], *, now: datetime, life: timedelta) -> datetime:
    """When one that is made now would expire. Refused `invite-too-many` when 16 are open (I5),
    `invite-life` when it would live no time or more than 24 h."""
    if sum(open_at(other, now) for other in others) >= MAX_OPEN:
        raise Refused(
            "invite-too-many",
            f"{MAX_OPEN} invites are open already",
            "look at `keel mesh invite --list` and cancel one with `keel mesh invite --cancel ID`",
        )
    if not timedelta(seconds=1) <= life <= LIFE:
        raise Refused(
            "invite-life",
            "an invite lives between a second and 24 hours",
            "leave the life of the invite out, or give one of at most 24 hours",
        )
    return (now.replace(microsecond=0) + life).replace(microsecond=0)


def claim_invite(invite: InviteState, claim: Claim, now: datetime) -> InviteState:
    """unused -> claimed; to be on disk before the answer leaves. Internal when it may not be."""
    if invite.phase is not Phase.UNUSED or invite.frozen or now >= invite.expires:
        raise Internal(f"claim of invite {invite.invite}, which is not there to be claimed")
    return dataclasses.replace(invite, phase=Phase.CLAIMED, claim=claim)


def note_etcd(invite: InviteState, etcd: EtcdPart) -> InviteState:
    """Keep the etcd part beside the claim, so that the same key gets the same grant again."""
    if invite.claim is None:
        raise Internal(f"an etcd part for invite {invite.invite}, which nobody claimed")
    return dataclasses.replace(invite, claim=dataclasses.replace(invite.claim, etcd=etcd))


def confirm_invite(invite: InviteState, key: SigningKey, now: datetime) -> InviteState:
    """claimed -> spent by the claimant's first signed hello; spent by the same key stays as it is.
    Refused `invite-not-claimed` otherwise, or after expiry."""
    if invite.claim is None or invite.claim.ed25519 != key:
        raise _not_claimed()
    if invite.phase is Phase.SPENT:
        return invite
    if not open_at(invite, now):
        raise _not_claimed()
    return dataclasses.replace(invite, phase=Phase.SPENT, closed=now)


def expire_invite(invite: InviteState, now: datetime) -> InviteState:
    """unused or claimed -> expired once its time is over (I2); anything else stays as it is."""
    if invite.phase not in OPEN or now < invite.expires:
        return invite
    return dataclasses.replace(invite, phase=Phase.EXPIRED, closed=invite.expires)


def named(invites: Iterable[InviteState], text: str) -> InviteState:
    """The invite that is meant by the start of its ID, which may be all of it. Refused
    (invite-unknown, or invite-ambiguous naming all that begin so)."""
    found = [one for one in invites if text and one.invite.startswith(text)]
    if not found:
        raise Refused(
            "invite-unknown",
            f"no invite {text or '<none>'} is known here",
            "look at `keel mesh invite --list`",
        )
    if len(found) == 1:
        return found[0]
    matches = ", ".join(one.invite for one in found)
    raise Refused(
        "invite-ambiguous",
        f"{text} is the start of several invites: {matches}",
        "give as much of the ID as only one has: `keel mesh invite --list` says what each is",
    )


def cancel_invite(invite: InviteState, now: datetime) -> InviteState:
    """unused or claimed -> cancelled. Of a claimed one the flow signs a removal besides. Refused
    `invite-closed` when there is nothing left to cancel."""
    if not open_at(invite, now):
        raise Refused(
            "invite-closed",
            f"invite {invite.invite} is not open any more",
            "look at `keel mesh invite --list`; a member goes by `keel mesh leave` on itself",
        )
    return dataclasses.replace(invite, phase=Phase.CANCELLED, closed=now)


def count_bad_mac(invite: InviteState) -> InviteState:
    """One more bad MAC; the tenth freezes it (I3)."""
    return dataclasses.replace(invite, bad_macs=min(MAX_BAD_MACS, invite.bad_macs + 1))


def to_forget(invite: InviteState, now: datetime) -> bool:
    """Whether the record and the temporary peer may go (I4)."""
    return invite.closed is not None and now >= invite.closed + REMEMBERED


def claimed_members(invites: Iterable[InviteState], now: datetime) -> Mapping[IPv6Address, Claim]:
    """The members to be: unexpired claims by their address. They may only say hello."""
    return {claim.address: claim for claim in open_claims(invites, now).values()}


def open_claims(invites: Iterable[InviteState], now: datetime) -> Mapping[InviteId, Claim]:
    """The unexpired claims by their invite."""
    return {
        invite.invite: invite.claim
        for invite in invites
        if invite.phase is Phase.CLAIMED and invite.claim is not None and now < invite.expires
    }


def _not_claimed() -> Refused:
    return Refused(
        "invite-not-claimed",
        "this node holds no open claim by that key",
        "make a new invite with `keel mesh invite` and join again",
    )
