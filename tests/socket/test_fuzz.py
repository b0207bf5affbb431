"""Thousands of generated messages to the channel and to `/v1/join`, most of them well signed."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator
from datetime import timedelta
from ipaddress import IPv6Address
from typing import Any

import pytest

from keel import codec
from keel.mesh import envelope, redeem, wire
from keel.mesh.invite import MAX_BAD_MACS, InviteState, cancel_invite, confirm_invite, expire_invite
from keel.mesh.joinmsg import REQUEST_KIND, authentication
from keel.mesh.token import InviteKeys
from keel.types import Endpoint, MeshId, NodeName, Nonce
from tests.channelkit import (
    JOINER,
    NOW,
    OTHER,
    PEER,
    PEER_ADDRESS,
    claimed,
    invite,
    join_view,
    keys_of,
    nonce,
    request,
    sealed,
    sealed_message,
    wg,
)
from tests.desk import NO_RATE, REMOVED, Asker, Desk, serving

SEED = 20260504
MEMBER, STRANGER = "127.0.0.2", "127.0.0.3"
LIMITS = dataclasses.replace(NO_RATE, max_body_bytes=300 << 10)

STATES: dict[str, InviteState] = {
    "127.0.9.1": invite(1),
    "127.0.9.2": cancel_invite(invite(2), NOW),
    "127.0.9.3": confirm_invite(claimed(3), JOINER.public, NOW),
    "127.0.9.4": expire_invite(invite(4, now=NOW - timedelta(hours=25)), NOW),
    "127.0.9.5": dataclasses.replace(invite(5), bad_macs=MAX_BAD_MACS),
    "127.0.9.6": claimed(6, OTHER, name="echo"),
    "127.0.9.7": invite(7),
}
UNUSED, GUESSED = "127.0.9.1", "127.0.9.7"

Shot = tuple[str, str, bytes]
"""Source, path, body."""


def _keys(source: str) -> InviteKeys:
    return keys_of(STATES[source])


def _join(source: str = UNUSED, **changes: Any) -> Shot:
    keys = _keys(source)
    key = changes.pop("key", JOINER)
    return source, "/v1/join", sealed(request(key, invite=keys.invite, **changes), key, keys)


def _framed(body: object, source: str = UNUSED) -> Shot:
    keys = _keys(source)
    sealed_body = wire.encode(wire.seal(REQUEST_KIND, body, JOINER))
    ids = bytes.fromhex(keys.invite), bytes.fromhex(request().nonce)
    mac = authentication(keys.request, b"request", *ids, sealed_body)
    return source, "/v1/join", b"keel/1 join-request\n" + ids[0] + ids[1] + mac + sealed_body


def _unsigned() -> Shot:
    keys = _keys(UNUSED)
    body = b"{}"
    ids = bytes.fromhex(keys.invite), bytes.fromhex(request().nonce)
    mac = authentication(keys.request, b"request", *ids, body)
    return UNUSED, "/v1/join", b"keel/1 join-request\n" + ids[0] + ids[1] + mac + body


def _guess(rng: random.Random) -> Shot:
    source, path, raw = _join(GUESSED)
    return source, path, raw[:52] + rng.randbytes(32) + raw[84:]


def _hello(source: str = MEMBER, **changes: Any) -> Shot:
    key = changes.pop("key", PEER)
    return source, "/v1/hello", sealed_message(key, **changes)


def _mesh(rng: random.Random) -> MeshId:
    return MeshId(rng.randbytes(16).hex())


def _nonce(rng: random.Random) -> Nonce:
    return Nonce(rng.randbytes(16).hex())


def _odd_time(rng: random.Random) -> Any:
    year = rng.choice([1, 1970, 2025, 2027, 2100, 9999])
    return NOW.replace(year=year, month=rng.randint(1, 12), day=rng.randint(1, 28))


INSIDE = Endpoint.parse("[fd12:3456:789a::9]:1")

AIMED: dict[str, Callable[[random.Random], Shot]] = {
    "channel-size": lambda r: (MEMBER, "/v1/hello", r.randbytes(1) * ((256 << 10) + 1)),
    "channel-source": lambda r: _hello(STRANGER, nonce=_nonce(r)),
    "channel-form": lambda r: (MEMBER, "/v1/hello", r.randbytes(r.randint(0, 300))),
    "channel-mesh": lambda r: _hello(mesh=_mesh(r)),
    "channel-sender": lambda r: _hello(key=OTHER, nonce=_nonce(r)),
    "channel-receiver": lambda r: _hello(receiver=OTHER.public, nonce=_nonce(r)),
    "channel-signature": lambda r: _hello(key=OTHER, sender=PEER.public, nonce=_nonce(r)),
    "channel-stale": lambda r: _hello(time=_odd_time(r), nonce=_nonce(r)),
    "channel-replay": lambda r: _hello(body={"word": str(r.random())}),
    "channel-kind": lambda r: _hello(kind=r.choice(["x", "probe", "join"]), nonce=_nonce(r)),
    "channel-body": lambda r: _hello(body={"word": r.randint(0, 9)}, nonce=_nonce(r)),
    "join-size": lambda r: (UNUSED, "/v1/join", r.randbytes(1) * ((64 << 10) + 1)),
    "join-source": lambda r: (STRANGER, *_join()[1:]),
    "join-invite": lambda r: (GUESSED, *_join(nonce=_nonce(r))[1:]),
    "join-mac": _guess,
    "join-possession": lambda r: _unsigned(),
    "join-cancelled": lambda r: _join("127.0.9.2", nonce=_nonce(r)),
    "join-spent": lambda r: _join("127.0.9.3", nonce=_nonce(r)),
    "join-expired": lambda r: _join("127.0.9.4", nonce=_nonce(r)),
    "join-frozen": lambda r: _join("127.0.9.5", nonce=_nonce(r)),
    "join-claimed": lambda r: _join("127.0.9.6", nonce=_nonce(r)),
    "join-mesh": lambda r: _join(mesh=_mesh(r)),
    "join-version": lambda r: _join(version=r.choice([-1, 0, 2, 2**63])),
    "join-form": lambda r: _join(ed25519=OTHER.public, nonce=_nonce(r)),
    "join-name": lambda r: _join(name=NodeName(r.choice(["alpha", "", "A", "a.b", "\u00fc"]))),
    "join-key-removed": lambda r: _join(key=REMOVED, name=NodeName("gone"), nonce=_nonce(r)),
    "join-wireguard-key": lambda r: _join(wireguard=wg("inviter").public, nonce=_nonce(r)),
    "join-endpoint": lambda r: _join(endpoints=(INSIDE,), nonce=_nonce(r)),
    "join-clock": lambda r: _join(time=_odd_time(r)),
}
"""One generator per check that fails this check first."""


def _oddity(rng: random.Random, depth: int = 0) -> Any:
    """A JSON value that is no text and no integer."""
    flat: list[Any] = [None, True, False, 1.5, -0.0, 1e300, [], {}]
    if depth > 3 or rng.random() < 0.6:
        return rng.choice(flat)
    inner = [_oddity(rng, depth + 1) for _ in range(rng.randint(0, 3))]
    return inner if rng.random() < 0.5 else {_text(rng): one for one in inner}


def _text(rng: random.Random) -> str:
    alphabet = 'a\x00\x1b\n"\\\u00e9\u2028\ud800\U0001f600{}'
    return "".join(rng.choice(alphabet) for _ in range(rng.choice([0, 1, 3, 40, 900])))


def _mutated(rng: random.Random, good: dict[str, Any]) -> dict[str, Any]:
    """The good object with one thing wrong that no check can let pass."""
    body = dict(good)
    field = rng.choice(sorted(body))
    match rng.randrange(3):
        case 0:
            del body[field]
        case 1:
            body[field] = _oddity(rng)
        case _:
            body["new " + _text(rng)] = rng.choice([_oddity(rng), _text(rng), 7])
    return body


def _mutated_message(rng: random.Random) -> Shot:
    good = {"word": _text(rng)}
    return _hello(body=_mutated(rng, good), nonce=_nonce(rng))


def _mutated_request(rng: random.Random) -> Shot:
    good = codec.to_json(request(invite=_keys(UNUSED).invite))
    del good["endpoints"]  # may be left out
    return _framed(_mutated(rng, good))


def _flipped(rng: random.Random) -> Shot:
    source, path, raw = _hello(nonce=_nonce(rng)) if rng.random() < 0.5 else _join(GUESSED)
    at = rng.randrange(len(raw))
    return source, path, raw[:at] + bytes((raw[at] ^ 1 << rng.randrange(8),)) + raw[at + 1 :]


def _shots(count: int, rng: random.Random) -> Iterator[tuple[Shot, str | None]]:
    """Half and more are well signed with mutated bodies; the rest is aimed at one check, or
    flipped."""
    aimed = sorted(AIMED)
    for number in range(count):
        if number % 20 < 11:
            yield rng.choice([_mutated_message, _mutated_request])(rng), None
        elif number % 20 < 19:
            rule = aimed[number // 20 * 8 % len(aimed) - (number % 20 - 11)]
            yield AIMED[rule](rng), rule
        else:
            yield _flipped(rng), None


def test_every_check_has_its_generator() -> None:
    assert sorted(AIMED) == sorted((*envelope.CHECKS, *redeem.CHECKS))


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(1_000, id="a thousand"),
        pytest.param(10_000, id="ten thousand", marks=pytest.mark.fuzz),
    ],
)
def test_generated_messages_reach_every_check_and_change_nothing(count: int) -> None:
    overlay: dict[str, IPv6Address] = {source: one.address for source, one in STATES.items()}
    desk = Desk(STATES.values(), overlay | {MEMBER: PEER_ADDRESS})
    desk.join_view = join_view(removed=frozenset({REMOVED.public}))
    desk.ledger, _ = desk.ledger.add(PEER.public, nonce("message"), NOW, NOW)
    before, ledger = desk.invites.copy(), desk.ledger
    rng = random.Random(SEED)
    with serving(desk, LIMITS) as port:
        askers = {source: Asker(port, source) for source in (MEMBER, STRANGER, *STATES)}
        for (source, path, raw), rule in _shots(count, rng):
            reached = desk.refusals[rule] if rule else 0
            status, said = askers[source].post(path, raw)
            assert status == 200
            assert said
            assert rule is None or desk.refusals[rule] == reached + 1
        for asker in askers.values():
            asker.close()
    assert desk.refusals.total() == count
    assert min(desk.refusals[rule] for rule in AIMED) >= count // 100
    after = {
        address: dataclasses.replace(one, bad_macs=before[address].bad_macs)
        for address, one in desk.invites.items()
    }
    assert (after, desk.ledger, desk.served, desk.claims) == (before, ledger, [], 0)
