"""The checks of /v1/join: one test per reason, each failing that check alone, and their order."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from ipaddress import IPv6Address
from typing import Any

import pytest

from keel import codec
from keel.mesh import wire
from keel.mesh.invite import (
    MAX_BAD_MACS,
    InviteState,
    cancel_invite,
    confirm_invite,
    count_bad_mac,
    expire_invite,
)
from keel.mesh.joinmsg import MAX_REQUEST_BYTES, REQUEST_KIND, authentication
from keel.mesh.keys import SigningPair
from keel.mesh.redeem import CHECKS, Denied, NewClaim, SameClaim, Verdict, judge
from keel.mesh.token import InviteKeys
from keel.types import Endpoint, MeshId, NodeName, WgKey
from tests.channelkit import (
    INVITER,
    JOINER,
    KEYS,
    MY_ADDRESS,
    NOW,
    OTHER,
    Greeting,
    by_address,
    claimed,
    invite,
    join_view,
    nonce,
    request,
    sealed,
    wg,
)

SOON = NOW + timedelta(minutes=2)
UNUSED = invite()
FROZEN = dataclasses.replace(UNUSED, bad_macs=MAX_BAD_MACS)
SPENT = confirm_invite(claimed(), JOINER.public, SOON)
LATE = UNUSED.expires


def _judge(
    raw: bytes,
    *states: InviteState,
    source: IPv6Address = KEYS.address,
    now: Any = SOON,
    **view: Any,
) -> Verdict:
    invites = by_address(*(states or (UNUSED,)))
    return judge(raw, source=source, invites=invites, view=join_view(**view), now=now)


def _denied(verdict: Verdict) -> Denied:
    assert isinstance(verdict, Denied)
    return verdict


def _framed_bytes(envelope: bytes, *, keys: InviteKeys = KEYS) -> bytes:
    """A frame with a good MAC around any bytes."""
    ids = bytes.fromhex(keys.invite), bytes.fromhex(nonce("request"))
    mac = authentication(keys.request, b"request", *ids, envelope)
    return b"keel/1 join-request\n" + ids[0] + ids[1] + mac + envelope


def _framed(body: object, *pairs: SigningPair) -> bytes:
    """A frame with a good MAC and good signatures around any body."""
    return _framed_bytes(wire.encode(wire.seal(REQUEST_KIND, body, *(pairs or (JOINER,)))))


def _badly_signed() -> bytes:
    made = wire.seal(REQUEST_KIND, request(), JOINER)
    (one,) = made.signatures
    broken = dataclasses.replace(one, value=bytes(64))
    return _framed_bytes(wire.encode(dataclasses.replace(made, signatures=(broken,))))


def _by_root() -> bytes:
    made = wire.seal(REQUEST_KIND, request(), JOINER)
    (one,) = made.signatures
    named = dataclasses.replace(one, key="root:" + one.key)
    return _framed_bytes(wire.encode(dataclasses.replace(made, signatures=(named,))))


def test_a_good_request_for_an_unused_invite_is_a_new_claim() -> None:
    assert _judge(sealed()) == NewClaim(request=request(), invite=UNUSED, keys=KEYS)


def test_the_same_key_gets_the_same_claim_again_until_expiry() -> None:
    state = claimed()
    again = request(nonce=nonce("again"), name=NodeName("renamed"), wireguard=wg("new").public)
    assert state.claim is not None
    same = SameClaim(request=again, invite=state, keys=KEYS, claim=state.claim)
    assert _judge(sealed(again), state) == same
    late = dataclasses.replace(again, time=LATE)
    assert _denied(_judge(sealed(late), state, now=LATE)).rejection.rule == "join-expired"


@pytest.mark.parametrize("state", [UNUSED, claimed()], ids=["unused", "claimed by itself"])
def test_an_expiry_that_the_joiners_clock_denies_is_told_as_a_difference_of_the_clocks(
    state: InviteState,
) -> None:
    rejection = _denied(_judge(sealed(), state, now=LATE)).rejection
    assert rejection.rule == "join-clock"
    assert rejection.remedy.endswith("the invite is still open")
    assert _judge(sealed(), state, now=SOON) != rejection


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(sealed(request(time=LATE)), id="its clock says so, too"),
        pytest.param(sealed(request(time=LATE + timedelta(days=1))), id="its clock is further"),
        pytest.param(sealed(request(mesh=MeshId("0" * 32))), id="what it asks is no request"),
    ],
)
def test_an_expiry_that_nobody_denies_is_told(raw: bytes) -> None:
    assert _denied(_judge(raw, UNUSED, now=LATE)).rejection.rule == "join-expired"


def test_a_member_that_lost_its_place_redeems_with_its_own_key_name_and_wireguard_key() -> None:
    verdict = _judge(
        sealed(),
        names={NodeName("delta"): JOINER.public},
        wireguard={wg("delta").public: JOINER.public},
    )
    assert isinstance(verdict, NewClaim)


@pytest.mark.parametrize(
    ("raw", "source", "rule", "status"),
    [
        pytest.param(
            b"x" * (MAX_REQUEST_BYTES + 1), KEYS.address, "join-size", 413, id="too large"
        ),
        pytest.param(sealed(), MY_ADDRESS, "join-source", 403, id="from a member's address"),
        pytest.param(b"{}", KEYS.address, "join-invite", 403, id="no frame"),
        pytest.param(
            sealed(), invite(1).address, "join-invite", 403, id="from another invite's address"
        ),
        pytest.param(
            sealed(keys=dataclasses.replace(KEYS, request=KEYS.answer)),
            KEYS.address,
            "join-mac",
            403,
            id="under another key",
        ),
    ],
)
def test_before_the_mac_nothing_is_proven_and_nothing_is_told(
    raw: bytes, source: IPv6Address, rule: str, status: int
) -> None:
    denied = _denied(_judge(raw, UNUSED, invite(1), source=source))
    assert (denied.rejection.rule, denied.rejection.status) == (rule, status)
    assert (denied.rejection.proven, denied.keys) == (False, None)


def test_a_bad_mac_is_counted_until_the_invite_is_frozen_and_nothing_else_is() -> None:
    bad = sealed(keys=dataclasses.replace(KEYS, request=KEYS.answer))
    assert _denied(_judge(bad)).counted == count_bad_mac(UNUSED)
    assert _denied(_judge(bad, FROZEN)).counted is None
    assert _denied(_judge(sealed(), FROZEN)).counted is None
    assert _denied(_judge(b"{}")).counted is None


@pytest.mark.parametrize(
    ("raw", "given", "rule"),
    [
        pytest.param(_framed_bytes(b"{}"), {}, "join-possession", id="no envelope"),
        pytest.param(_framed(request(), JOINER, OTHER), {}, "join-possession", id="two signers"),
        pytest.param(_badly_signed(), {}, "join-possession", id="a signature that is none"),
        pytest.param(_by_root(), {}, "join-possession", id="signed by a root"),
        pytest.param(_framed("text"), {}, "join-form", id="a body that is no object"),
        pytest.param(_framed(Greeting(word="x")), {}, "join-form", id="another body"),
        pytest.param(_framed(request(), OTHER), {}, "join-form", id="another signer"),
        pytest.param(
            _framed(request(nonce=nonce("within"))), {}, "join-form", id="another nonce within"
        ),
        pytest.param(
            _framed(request(invite=invite(1).invite)), {}, "join-form", id="another invite within"
        ),
        pytest.param(
            sealed(request(mesh=MeshId("ff" * 16))), {}, "join-mesh", id="for another mesh"
        ),
        pytest.param(sealed(request(version=2)), {}, "join-version", id="a later version"),
        pytest.param(
            _framed({"mesh": request().mesh, "version": 2, "new": 1}),
            {},
            "join-version",
            id="a later version's form",
        ),
        pytest.param(
            _framed(codec.to_json(request()) | {"new": 1}), {}, "join-form", id="unknown field"
        ),
        pytest.param(sealed(request(name=NodeName("No"))), {}, "join-name", id="no name"),
        pytest.param(sealed(request(name=NodeName("alpha"))), {}, "join-name", id="a live name"),
        pytest.param(
            sealed(),
            {"removed": frozenset({JOINER.public})},
            "join-key-removed",
            id="a removed key",
        ),
        pytest.param(
            sealed(request(wireguard=wg("inviter").public)),
            {},
            "join-wireguard-key",
            id="a live WireGuard key",
        ),
        pytest.param(
            sealed(request(wireguard=KEYS.pair.public)),
            {},
            "join-wireguard-key",
            id="the invite's own WireGuard key",
        ),
        pytest.param(
            sealed(request(endpoints=(Endpoint.parse("[fd12:3456:789a::9]:1"),))),
            {},
            "join-endpoint",
            id="an endpoint inside the mesh",
        ),
        pytest.param(
            sealed(request(time=SOON - timedelta(seconds=301))), {}, "join-clock", id="clock behind"
        ),
        pytest.param(
            sealed(request(time=SOON + timedelta(seconds=301))), {}, "join-clock", id="clock ahead"
        ),
    ],
)
def test_each_proven_refusal_has_its_reason_and_carries_the_keys_to_seal_it(
    raw: bytes, given: dict[str, Any], rule: str
) -> None:
    denied = _denied(_judge(raw, **given))
    assert denied.rejection.rule == rule
    assert denied.rejection.proven
    assert denied.keys == KEYS
    assert denied.counted is None
    assert denied.rejection.refusal().as_error().rule == rule


@pytest.mark.parametrize(
    ("state", "now", "rule", "says"),
    [
        pytest.param(cancel_invite(UNUSED, NOW), SOON, "join-cancelled", "cancelled", id="gone"),
        pytest.param(SPENT, SOON, "join-spent", "by this node", id="spent by itself"),
        pytest.param(
            confirm_invite(claimed(key=OTHER, name="echo"), OTHER.public, SOON),
            SOON,
            "join-spent",
            "by node echo",
            id="spent by another",
        ),
        pytest.param(SPENT, LATE, "join-spent", "by this node", id="spent, and its time is over"),
        pytest.param(expire_invite(UNUSED, LATE), SOON, "join-expired", "expired", id="expired"),
        pytest.param(FROZEN, SOON, "join-frozen", "frozen", id="frozen"),
        pytest.param(
            claimed(key=OTHER, name="echo"), SOON, "join-claimed", "by node echo", id="claimed"
        ),
    ],
)
def test_a_joiner_with_the_secret_is_told_what_became_of_the_invite(
    state: InviteState, now: Any, rule: str, says: str
) -> None:
    rejection = _denied(_judge(sealed(), state, now=now)).rejection
    assert rejection.rule == rule
    assert says in rejection.text


@pytest.mark.parametrize(
    ("state", "rule"),
    [
        pytest.param(FROZEN, "join-frozen", id="frozen"),
        pytest.param(claimed(key=OTHER, name="echo"), "join-claimed", id="claimed by another"),
    ],
)
def test_what_became_of_an_invite_whose_time_is_not_over_goes_before_the_clocks(
    state: InviteState, rule: str
) -> None:
    early = sealed(request(time=NOW - timedelta(days=1)))
    assert _denied(_judge(early, state, now=SOON)).rejection.rule == rule


@pytest.mark.parametrize("name", ["echo", "foxtrot"])
def test_a_name_that_a_claim_holds_is_told_with_the_invite_that_frees_it(name: str) -> None:
    claims = {
        "echo": claimed(1, OTHER, name="echo"),
        "foxtrot": claimed(2, INVITER, name="foxtrot"),
    }
    verdict = _judge(sealed(request(name=NodeName(name))), UNUSED, *claims.values())
    rejection = _denied(verdict).rejection
    assert rejection.rule == "join-name"
    assert f"`keel mesh invite --cancel {claims[name].invite}`" in rejection.remedy


def test_a_second_redeemer_is_told_who_claimed_it() -> None:
    rejection = _denied(_judge(sealed(), claimed(key=OTHER, name="echo"))).rejection
    assert rejection.details == {"claimant": OTHER.public, "name": "echo"}


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        pytest.param(
            {"name": NodeName("echo"), "wireguard": wg("f").public}, "join-name", id="name"
        ),
        pytest.param(
            {"name": NodeName("fox"), "wireguard": wg("echo").public},
            "join-wireguard-key",
            id="WireGuard key",
        ),
    ],
)
def test_what_an_open_claim_holds_is_not_given_twice(changes: dict[str, Any], rule: str) -> None:
    held = claimed(1, OTHER, name="echo")
    assert _denied(_judge(sealed(request(**changes)), UNUSED, held)).rejection.rule == rule
    assert isinstance(_judge(sealed(request(**changes)), UNUSED, invite(1)), NewClaim)


def test_a_clock_refusal_names_both_clocks_and_leaves_the_invite_open() -> None:
    old = request(time=NOW.replace(year=1970))
    denied = _denied(_judge(sealed(old)))
    assert denied.rejection.details == {
        "our_clock": "2026-05-04T12:02:00Z",
        "your_clock": "1970-05-04T12:00:00Z",
    }
    assert "1970-05-04T12:00:00Z" in denied.rejection.text
    assert isinstance(_judge(sealed(request(time=SOON))), NewClaim)


def test_a_claimant_whose_clock_went_wrong_is_told_so_too() -> None:
    old = sealed(request(time=NOW.replace(year=1970)))
    assert _denied(_judge(old, claimed())).rejection.rule == "join-clock"


def test_300_seconds_apart_is_not_too_much() -> None:
    edge = request(time=SOON - timedelta(seconds=300))
    assert isinstance(_judge(sealed(edge)), NewClaim)


def test_the_checks_run_in_the_order_that_is_written() -> None:
    """Starts with all wrong and mends the first refused thing each time."""
    wrong: dict[str, Any] = {
        "mesh": MeshId("ff" * 16),
        "version": 2,
        "name": NodeName("alpha"),
        "wireguard": wg("inviter").public,
        "endpoints": (Endpoint.parse("[fd12:3456:789a::9]:1"),),
        "time": NOW.replace(year=1970),
    }
    mends = {
        "join-mesh": "mesh",
        "join-version": "version",
        "join-name": "name",
        "join-wireguard-key": "wireguard",
        "join-endpoint": "endpoints",
        "join-clock": "time",
    }
    removed = frozenset({JOINER.public})
    seen = []
    for _ in CHECKS:
        verdict = _judge(sealed(request(**wrong)), removed=removed)
        if isinstance(verdict, NewClaim):
            break
        rule = _denied(verdict).rejection.rule
        seen.append(rule)
        if rule == "join-key-removed":
            removed = frozenset()
        else:
            del wrong[mends[rule]]
    assert seen == [
        "join-mesh",
        "join-version",
        "join-name",
        "join-key-removed",
        "join-wireguard-key",
        "join-endpoint",
        "join-clock",
    ]
    assert seen == [rule for rule in CHECKS if rule in seen]


def test_a_wrong_mac_hides_what_became_of_the_invite() -> None:
    bad = sealed(keys=dataclasses.replace(KEYS, request=KEYS.answer))
    rules = {_denied(_judge(bad, state)).rejection.rule for state in (UNUSED, SPENT, FROZEN)}
    assert rules == {"join-mac"}


def test_the_name_of_an_inviter_is_taken_only_by_its_own_key() -> None:
    own = request(INVITER, name=NodeName("alpha"), wireguard=WgKey(wg("inviter").public))
    assert isinstance(_judge(sealed(own, INVITER)), NewClaim)
