"""Factories for tokens, invites, requests and messages with fixed keys and times."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv6Address, IPv6Network

from keel.mesh.envelope import ChannelView, Message, Serves, seal_message
from keel.mesh.invite import Claim, InviteState, claim_invite, new_invite
from keel.mesh.joinmsg import JoinRequest, seal_request
from keel.mesh.keys import SigningPair, WgPair, signing_pair, wg_pair
from keel.mesh.redeem import JoinView
from keel.mesh.token import EtcdHint, InviteKeys, Token, derive
from keel.types import (
    Capability,
    Endpoint,
    Fingerprint,
    InviteId,
    MeshId,
    NodeName,
    Nonce,
    Secret,
)

NOW = datetime(2026, 5, 4, 12, 0, 0, tzinfo=UTC)
MESH = MeshId("00112233445566778899aabbccddeeff")
PREFIX = IPv6Network("fd12:3456:789a::/64")
SECRET = Secret(bytes(range(32)))
INVITE = InviteId("a0a1a2a3a4a5a6a7a8a9aaabacadaeaf")
CLAIMED_ADDRESS = IPv6Address("fd12:3456:789a::77")


def seed(label: str) -> Secret:
    return Secret(hashlib.sha256(label.encode()).digest())


def pair(label: str) -> SigningPair:
    return signing_pair(seed(label))


def wg(label: str) -> WgPair:
    return wg_pair(seed("wg " + label))


def nonce(label: object) -> Nonce:
    return Nonce(hashlib.sha256(f"nonce {label}".encode()).hexdigest()[:32])


INVITER = pair("inviter")
JOINER = pair("joiner")
OTHER = pair("other")

TOKEN = Token(
    mesh=MESH,
    invite=INVITE,
    secret=SECRET,
    inviter=INVITER.public,
    wireguard=wg("inviter").public,
    address=IPv6Address("fd12:3456:789a::1"),
    expires=NOW + timedelta(hours=24),
    endpoints=(Endpoint.parse("203.0.113.7:51820"), Endpoint.parse("[2001:db8::7]:51821")),
    etcd=EtcdHint.FORMS,
    root=Fingerprint("5f" * 32),
    holder=NodeName("alpha"),
)


def keys_of(invite: InviteState) -> InviteKeys:
    return invite.keys(MESH, PREFIX)


KEYS = derive(SECRET, mesh=MESH, invite=INVITE, prefix=PREFIX)


def invite(number: int = 0, *, now: datetime = NOW) -> InviteState:
    """An unused invite; number 0 is the token's own."""
    ident = INVITE if number == 0 else InviteId(f"{number:032x}")
    secret = SECRET if number == 0 else seed(f"secret {number}")
    return new_invite((), invite=ident, secret=secret, mesh=MESH, prefix=PREFIX, now=now)


def claim(key: SigningPair = JOINER, *, name: str = "delta") -> Claim:
    return Claim(
        ed25519=key.public,
        wireguard=wg(name).public,
        name=NodeName(name),
        address=CLAIMED_ADDRESS,
        capability=Capability.NONE,
        time=NOW,
        admission=b"the admission",
    )


def claimed(number: int = 0, key: SigningPair = JOINER, *, name: str = "delta") -> InviteState:
    return claim_invite(invite(number), claim(key, name=name), NOW)


def by_address(*invites: InviteState) -> Mapping[IPv6Address, InviteState]:
    return {one.address: one for one in invites}


def join_view(**changes: object) -> JoinView:
    view = JoinView(
        mesh=MESH,
        prefix=PREFIX,
        names={NodeName("alpha"): INVITER.public},
        wireguard={wg("inviter").public: INVITER.public},
    )
    return dataclasses.replace(view, **changes)  # type: ignore[arg-type]


def request(key: SigningPair = JOINER, **changes: object) -> JoinRequest:
    made = JoinRequest(
        mesh=MESH,
        invite=INVITE,
        nonce=nonce("request"),
        ed25519=key.public,
        wireguard=wg("delta").public,
        name=NodeName("delta"),
        capability=Capability.NONE,
        time=NOW,
        endpoints=(Endpoint.parse("198.51.100.4:51820"),),
    )
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def sealed(
    made: JoinRequest | None = None, key: SigningPair = JOINER, keys: InviteKeys = KEYS
) -> bytes:
    return seal_request(made or request(key), keys, key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """A body for tests."""

    word: str
    number: int = 0


SERVES = {"hello": Serves(body=Greeting), "roster": Serves(body=Greeting, fresh=False)}
ME = INVITER
PEER = pair("peer")
CLAIMANT = JOINER
MY_ADDRESS = IPv6Address("fd12:3456:789a::1")
PEER_ADDRESS = IPv6Address("fd12:3456:789a::2")


def channel_view(members: Iterable[tuple[IPv6Address, SigningPair]] = ()) -> ChannelView:
    known = {MY_ADDRESS: ME.public, PEER_ADDRESS: PEER.public}
    return ChannelView(
        mesh=MESH,
        me=ME.public,
        members=known | {address: key.public for address, key in members},
        claims={CLAIMED_ADDRESS: CLAIMANT.public},
    )


def message(key: SigningPair = PEER, **changes: object) -> Message:
    made = Message(
        mesh=MESH,
        sender=key.public,
        receiver=ME.public,
        kind="hello",
        time=NOW,
        nonce=nonce("message"),
        body={"word": "hi"},
    )
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def sealed_message(key: SigningPair = PEER, **changes: object) -> bytes:
    return seal_message(message(key, **changes), key)
