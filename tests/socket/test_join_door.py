"""`/v1/join` over a real socket: every numbered check, and single use under a crowd."""

from __future__ import annotations

import dataclasses
import threading
from collections import Counter
from datetime import timedelta

import pytest

from keel.errors import PeerError
from keel.mesh import wire
from keel.mesh.invite import (
    MAX_BAD_MACS,
    InviteState,
    Phase,
    cancel_invite,
    confirm_invite,
    expire_invite,
)
from keel.mesh.joinmsg import (
    MAX_REQUEST_BYTES,
    REQUEST_KIND,
    JoinAnswer,
    authentication,
    open_answer,
)
from keel.mesh.redeem import CHECKS
from keel.mesh.refusal import UNPROVEN_ANSWER
from keel.types import Endpoint, MeshId, NodeName
from tests.channelkit import (
    INVITER,
    JOINER,
    KEYS,
    MESH,
    NOW,
    OTHER,
    claimed,
    invite,
    nonce,
    pair,
    request,
    sealed,
    wg,
)
from tests.desk import NO_RATE, REMOVED, Desk, post, serving

JOINS = "127.0.9.5"
"""Where the token's own invite has its temporary address."""
STRANGER = "127.0.9.6"
EARLIER = NOW - timedelta(hours=25)


def _open(raw: bytes, sent: bytes) -> JoinAnswer:
    return open_answer(raw, KEYS, inviter=INVITER.public, mesh=MESH, request=sent)


def _desk(*states: InviteState) -> Desk:
    return Desk(states, {JOINS: KEYS.address})


def _unsigned() -> bytes:
    made = wire.seal(REQUEST_KIND, request(), JOINER)
    broken = dataclasses.replace(made.signatures[0], value=bytes(64))
    envelope = wire.encode(dataclasses.replace(made, signatures=(broken,)))
    ids = bytes.fromhex(KEYS.invite), bytes.fromhex(nonce("request"))
    mac = authentication(KEYS.request, b"request", *ids, envelope)
    return b"keel/1 join-request\n" + ids[0] + ids[1] + mac + envelope


def _other_form() -> bytes:
    """Signed by one key, naming another."""
    return sealed(request(ed25519=OTHER.public), JOINER)


UNUSED = invite()
OLD = invite(now=EARLIER)
BAD_MAC = sealed(keys=dataclasses.replace(KEYS, request=KEYS.answer))

PLAIN = [
    ("join-size", UNUSED, b"x" * (MAX_REQUEST_BYTES + 1), JOINS),
    ("join-source", UNUSED, sealed(), STRANGER),
    ("join-invite", UNUSED, b"{}", JOINS),
    ("join-mac", UNUSED, BAD_MAC, JOINS),
]
PROVEN = [
    ("join-possession", UNUSED, _unsigned()),
    ("join-cancelled", cancel_invite(UNUSED, NOW), sealed()),
    ("join-spent", confirm_invite(claimed(), JOINER.public, NOW), sealed()),
    ("join-expired", expire_invite(OLD, NOW), sealed()),
    ("join-frozen", dataclasses.replace(UNUSED, bad_macs=MAX_BAD_MACS), sealed()),
    ("join-claimed", claimed(key=OTHER, name="echo"), sealed()),
    ("join-mesh", UNUSED, sealed(request(mesh=MeshId("ff" * 16)))),
    ("join-version", UNUSED, sealed(request(version=2))),
    ("join-form", UNUSED, _other_form()),
    ("join-name", UNUSED, sealed(request(name=NodeName("alpha")))),
    ("join-key-removed", UNUSED, sealed(request(REMOVED), REMOVED)),
    ("join-wireguard-key", UNUSED, sealed(request(wireguard=wg("inviter").public))),
    (
        "join-endpoint",
        UNUSED,
        sealed(request(endpoints=(Endpoint.parse("[fd12:3456:789a::9]:1"),))),
    ),
    ("join-clock", UNUSED, sealed(request(time=NOW.replace(year=1970)))),
]


def test_every_check_has_its_case_here() -> None:
    assert tuple(case[0] for case in (*PLAIN, *PROVEN)) == CHECKS


@pytest.mark.parametrize(
    ("rule", "state", "raw", "source"), [pytest.param(*case, id=case[0]) for case in PLAIN]
)
def test_before_the_mac_every_refusal_is_the_same_plain_answer(
    rule: str, state: InviteState, raw: bytes, source: str
) -> None:
    desk = _desk(state)
    before = desk.invites.copy()
    with serving(desk) as port:
        status, said = post(port, "/v1/join", raw, source=source)
    assert (status, said) == (200, UNPROVEN_ANSWER)
    assert desk.refusals == {rule: 1}
    uncounted = {
        address: dataclasses.replace(one, bad_macs=0) for address, one in desk.invites.items()
    }
    assert uncounted == before


@pytest.mark.parametrize(
    ("rule", "state", "raw"), [pytest.param(*case, id=case[0]) for case in PROVEN]
)
def test_from_the_mac_on_the_joiner_hears_the_reason_and_nothing_changed(
    rule: str, state: InviteState, raw: bytes
) -> None:
    desk = _desk(state)
    before = desk.invites.copy()
    with serving(desk) as port:
        _, said = post(port, "/v1/join", raw, source=JOINS)
    answer = _open(said, raw)
    assert answer.refusal is not None
    assert answer.refusal.rule == rule
    assert answer.refusal.as_error().remedy()
    assert desk.refusals == {rule: 1}
    assert (desk.invites, desk.claims) == (before, 0)


def test_ten_bad_macs_freeze_the_invite_and_the_holder_of_the_secret_is_told() -> None:
    desk = _desk(UNUSED)
    with serving(desk) as port:
        for _ in range(MAX_BAD_MACS + 2):
            post(port, "/v1/join", BAD_MAC, source=JOINS)
        answer = _open(post(port, "/v1/join", sealed(), source=JOINS)[1], sealed())
    assert answer.refusal is not None
    assert answer.refusal.rule == "join-frozen"
    assert desk.invites[KEYS.address].bad_macs == MAX_BAD_MACS


def test_a_lost_answer_is_had_again_by_the_same_key_in_a_new_frame() -> None:
    desk = _desk(UNUSED)
    first, again = sealed(), sealed(request(nonce=nonce("again")))
    with serving(desk) as port:
        one = _open(post(port, "/v1/join", first, source=JOINS)[1], first)
        raw = post(port, "/v1/join", again, source=JOINS)[1]
    assert _open(raw, again).admitted == one.admitted
    assert desk.claims == 1
    with pytest.raises(PeerError) as caught:
        _open(raw, first)
    assert caught.value.reason == "answer-mac"


def test_of_twenty_at_once_one_wins_and_the_others_are_told_who() -> None:
    desk = _desk(UNUSED)
    keys = [pair(f"redeemer {number}") for number in range(20)]
    asked = [
        sealed(
            request(key, name=NodeName(f"node-{n}"), wireguard=wg(f"n{n}").public, nonce=nonce(n)),
            key,
        )
        for n, key in enumerate(keys)
    ]
    said: dict[int, bytes] = {}
    start = threading.Barrier(len(keys), timeout=30)

    def redeem(port: int, number: int) -> None:
        start.wait()
        said[number] = post(port, "/v1/join", asked[number], source=JOINS)[1]

    with serving(desk, dataclasses.replace(NO_RATE, per_source=len(keys))) as port:
        threads = [
            threading.Thread(target=redeem, args=(port, number)) for number in range(len(keys))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)

    answers = [_open(said[number], asked[number]) for number in range(len(keys))]
    winners = [number for number, answer in enumerate(answers) if answer.admitted]
    assert len(winners) == desk.claims == 1
    state = desk.invites[KEYS.address]
    assert state.phase is Phase.CLAIMED
    assert state.claim is not None
    assert state.claim.ed25519 == keys[winners[0]].public
    told = Counter(
        (answer.refusal.rule, answer.refusal.details["claimant"])
        for answer in answers
        if answer.refusal
    )
    assert told == {("join-claimed", keys[winners[0]].public): 19}


def test_sixteen_open_invites_and_the_first_still_redeems() -> None:
    desk = Desk([invite(number) for number in range(16)], {JOINS: KEYS.address})
    with serving(desk) as port:
        answer = _open(post(port, "/v1/join", sealed(), source=JOINS)[1], sealed())
    assert answer.admitted is not None
