"""The channel's checks: one test per number, each failing that check alone, their order, and the
asker's side."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from ipaddress import IPv6Address
from typing import Any

import pytest

from keel.errors import PeerError
from keel.mesh import wire
from keel.mesh.envelope import (
    CHECKS,
    MESSAGE_KIND,
    REPLY_KIND,
    Accepted,
    Reply,
    Turned,
    answer,
    check_message,
    message_hash,
    open_reply,
    refuse,
    seal_reply,
)
from keel.mesh.nonces import MAX_PER_SENDER, NonceLedger
from keel.mesh.refusal import Refusal, plain
from keel.types import MeshId, Nonce, SigningKey
from tests.channelkit import (
    CLAIMANT,
    CLAIMED_ADDRESS,
    ME,
    MESH,
    MY_ADDRESS,
    NOW,
    OTHER,
    PEER,
    PEER_ADDRESS,
    SERVES,
    Greeting,
    channel_view,
    message,
    nonce,
    sealed_message,
)

VIEW = channel_view()
STRANGER = IPv6Address("fd12:3456:789a::99")


def _check(
    raw: bytes,
    *,
    source: IPv6Address = PEER_ADDRESS,
    ledger: NonceLedger | None = None,
    now: Any = NOW,
    path: Any = SERVES,
) -> Accepted | Turned:
    return check_message(
        raw, source=source, view=VIEW, serves=path, ledger=ledger or NonceLedger(), now=now
    )


def _accepted(found: Accepted | Turned) -> Accepted:
    assert isinstance(found, Accepted)
    return found


def _turned(found: Accepted | Turned) -> Turned:
    assert isinstance(found, Turned)
    return found


def test_a_good_message_passes_with_its_body_and_its_nonce_noted() -> None:
    raw = sealed_message()
    found = _accepted(_check(raw))
    assert (found.message, found.body, found.claim) == (message(), Greeting(word="hi"), False)
    assert found.request == message_hash(raw)
    assert found.ledger.knows(PEER.public, nonce("message"), NOW, NOW, fresh_only=True)
    assert found.line is not None


def test_an_unexpired_claim_may_say_hello() -> None:
    assert _accepted(_check(sealed_message(CLAIMANT), source=CLAIMED_ADDRESS)).claim


def _signed_twice() -> bytes:
    return wire.encode(wire.seal(MESSAGE_KIND, message(), PEER, OTHER))


def _with_body(**changes: Any) -> bytes:
    return sealed_message(body={"word": "hi", **changes})


@pytest.mark.parametrize(
    ("raw", "source", "rule"),
    [
        pytest.param(b"x" * ((256 << 10) + 1), PEER_ADDRESS, "channel-size", id="1 size"),
        pytest.param(b"x" * (256 << 10), PEER_ADDRESS, "channel-form", id="1 just fits"),
        pytest.param(sealed_message(), STRANGER, "channel-source", id="2 source"),
        pytest.param(b"", PEER_ADDRESS, "channel-form", id="3 nothing"),
        pytest.param(_signed_twice(), PEER_ADDRESS, "channel-form", id="3 two signatures"),
        pytest.param(
            wire.encode(wire.seal(MESSAGE_KIND, Greeting(word="x"), PEER)),
            PEER_ADDRESS,
            "channel-form",
            id="3 no message",
        ),
        pytest.param(
            sealed_message(mesh=MeshId("ff" * 16)), PEER_ADDRESS, "channel-mesh", id="4 mesh"
        ),
        pytest.param(sealed_message(), MY_ADDRESS, "channel-sender", id="5 another's address"),
        pytest.param(
            sealed_message(OTHER, sender=OTHER.public),
            PEER_ADDRESS,
            "channel-sender",
            id="5 another's name",
        ),
        pytest.param(
            sealed_message(receiver=OTHER.public), PEER_ADDRESS, "channel-receiver", id="6 receiver"
        ),
        pytest.param(
            sealed_message(OTHER, sender=PEER.public),
            PEER_ADDRESS,
            "channel-signature",
            id="7 another signer",
        ),
        pytest.param(
            wire.encode(wire.seal(REPLY_KIND, message(), PEER)),
            PEER_ADDRESS,
            "channel-signature",
            id="7 signed as another type",
        ),
    ],
)
def test_checks_1_to_7_refuse_in_plain(raw: bytes, source: IPv6Address, rule: str) -> None:
    turned = _turned(_check(raw, source=source))
    assert (turned.rejection.rule, turned.rejection.proven, turned.asker) == (rule, False, None)
    said = refuse(turned, VIEW, ME, NOW)
    assert said == plain(rule, turned.rejection.text)


def _seen(*, full: bool = False) -> NonceLedger:
    ledger = NonceLedger()
    for label in range(MAX_PER_SENDER) if full else ["message"]:
        ledger, _ = ledger.add(PEER.public, nonce(label), NOW, NOW)
    return ledger


@pytest.mark.parametrize(
    ("raw", "given", "rule"),
    [
        pytest.param(
            sealed_message(time=NOW - timedelta(seconds=301)), {}, "channel-stale", id="8 old"
        ),
        pytest.param(
            sealed_message(time=NOW + timedelta(seconds=301)), {}, "channel-stale", id="8 ahead"
        ),
        pytest.param(sealed_message(), {"ledger": _seen()}, "channel-replay", id="9 replayed"),
        pytest.param(
            sealed_message(kind="roster", time=NOW.replace(year=2020)),
            {"ledger": _seen()},
            "channel-replay",
            id="9 replayed, of a kind that need not be fresh",
        ),
        pytest.param(
            sealed_message(), {"ledger": _seen(full=True)}, "channel-flood", id="9 too many"
        ),
        pytest.param(sealed_message(kind="revoke"), {}, "channel-kind", id="10 kind"),
        pytest.param(_with_body(new=1), {}, "channel-body", id="11 unknown field"),
        pytest.param(_with_body(number="1"), {}, "channel-body", id="11 wrong type"),
        pytest.param(sealed_message(body={}), {}, "channel-body", id="11 missing field"),
    ],
)
def test_from_the_signature_on_refusals_are_signed(
    raw: bytes, given: dict[str, Any], rule: str
) -> None:
    turned = _turned(_check(raw, **given))
    assert (turned.rejection.rule, turned.rejection.proven) == (rule, True)
    assert turned.asker == PEER.public
    with pytest.raises(PeerError) as caught:
        open_reply(refuse(turned, VIEW, ME, NOW), Greeting, request=raw, member="alpha")
    assert (caught.value.reason, caught.value.text) == (rule, turned.rejection.text)
    assert caught.value.remedy()


@pytest.mark.parametrize("seconds", [-300, 300])
def test_a_message_is_fresh_for_five_minutes_either_way(seconds: int) -> None:
    found = _accepted(_check(sealed_message(time=NOW + timedelta(seconds=seconds))))
    assert found.message.sender == PEER.public


def test_a_stale_message_is_told_both_clocks() -> None:
    turned = _turned(_check(sealed_message(time=NOW.replace(year=1970))))
    assert turned.rejection.details == {
        "our_clock": "2026-05-04T12:00:00Z",
        "your_clock": "1970-05-04T12:00:00Z",
    }


def test_a_roster_needs_no_clock() -> None:
    found = _accepted(_check(sealed_message(kind="roster", time=NOW.replace(year=1970))))
    assert found.line is None


@pytest.mark.parametrize(
    ("kind", "path", "rule"),
    [
        pytest.param("hello", {"roster": SERVES["roster"]}, "channel-source", id="another path"),
        pytest.param("roster", SERVES, "channel-kind", id="another kind"),
    ],
)
def test_a_claim_may_say_nothing_but_hello(kind: str, path: Any, rule: str) -> None:
    raw = sealed_message(CLAIMANT, kind=kind)
    assert _turned(_check(raw, source=CLAIMED_ADDRESS, path=path)).rejection.rule == rule


def test_a_refused_message_does_not_use_its_nonce_up() -> None:
    ledger = NonceLedger()
    _turned(_check(sealed_message(body={}), ledger=ledger))
    assert _accepted(_check(sealed_message(), ledger=ledger))


def test_the_checks_run_in_the_order_that_is_written() -> None:
    """Starts with all wrong and mends the first refused thing each time."""
    wrong: dict[str, Any] = {
        "mesh": MeshId("ff" * 16),
        "sender": OTHER.public,
        "receiver": OTHER.public,
        "time": NOW.replace(year=1970),
        "kind": "revoke",
        "body": {},
    }
    signer, ledger, source = OTHER, _seen(), STRANGER
    seen = []
    for _ in CHECKS:
        changes = {"sender": PEER.public} | wrong
        found = _check(sealed_message(signer, **changes), ledger=ledger, source=source)
        if isinstance(found, Accepted):
            break
        seen.append(found.rejection.rule)
        match found.rejection.rule:
            case "channel-source":
                source = PEER_ADDRESS
            case "channel-signature":
                signer = PEER
            case "channel-replay":
                ledger = NonceLedger()
            case "channel-stale":
                del wrong["time"]
            case rule:
                del wrong[rule.removeprefix("channel-")]
    assert seen == [rule for rule in CHECKS if rule not in ("channel-size", "channel-form")]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"nonce": Nonce("x")}, id="nonce"),
        pytest.param({"kind": "Hello"}, id="kind in capitals"),
        pytest.param({"kind": ""}, id="no kind"),
    ],
)
def test_a_malformed_message_is_not_made(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"expected|kind"):
        message(**changes)


# the asker's side

ASKED = sealed_message()
ACCEPTED = _accepted(_check(ASKED))
ANSWER = answer(ACCEPTED, Greeting(word="yes", number=7), pair=ME, now=NOW + timedelta(seconds=3))


def _reply(**changes: Any) -> Reply:
    made = Reply(
        mesh=MESH,
        sender=ME.public,
        receiver=PEER.public,
        kind="hello",
        time=NOW,
        request=message_hash(ASKED),
        body={"word": "yes"},
    )
    return dataclasses.replace(made, **changes)


def test_an_answer_opens_with_its_body_and_the_members_clock() -> None:
    found = open_reply(ANSWER, Greeting, request=ASKED, member="alpha")
    assert found.body == Greeting(word="yes", number=7)
    assert found.time == NOW + timedelta(seconds=3)


def test_a_refusal_that_a_flow_came_to_is_signed_as_well() -> None:
    refusal = Refusal(rule="grant-window", text="a change waits", remedy="confirm it")
    raw = answer(ACCEPTED, refusal, pair=ME, now=NOW)
    with pytest.raises(PeerError) as caught:
        open_reply(raw, Greeting, request=ASKED, member="alpha")
    assert (caught.value.member, caught.value.reason) == ("alpha", "grant-window")
    assert caught.value.remedy() == "confirm it"


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        pytest.param(b"", "reply-form", id="nothing"),
        pytest.param(b"<html>", "reply-form", id="another server"),
        pytest.param(plain("channel-source", "who are you"), "channel-source", id="a plain no"),
        pytest.param(ASKED, "reply-signature", id="the message reflected"),
        pytest.param(seal_reply(_reply(), OTHER), "reply-signature", id="another signer"),
        pytest.param(
            wire.encode(wire.seal(REPLY_KIND, Greeting(word="x"), ME)), "reply-form", id="no reply"
        ),
        pytest.param(seal_reply(_reply(mesh=MeshId("ff" * 16)), ME), "reply-other", id="mesh"),
        pytest.param(
            seal_reply(_reply(sender=SigningKey("00" * 32)), ME), "reply-other", id="sender"
        ),
        pytest.param(seal_reply(_reply(receiver=ME.public), ME), "reply-other", id="receiver"),
        pytest.param(seal_reply(_reply(kind="roster"), ME), "reply-other", id="kind"),
        pytest.param(
            seal_reply(_reply(request="00" * 32), ME), "reply-other", id="to another message"
        ),
        pytest.param(seal_reply(_reply(body={"new": 1}), ME), "reply-body", id="body"),
    ],
)
def test_an_answer_that_does_not_hold_is_told_by_its_reason(raw: bytes, reason: str) -> None:
    with pytest.raises(PeerError) as caught:
        open_reply(raw, Greeting, request=ASKED, member="alpha")
    assert (caught.value.member, caught.value.reason) == ("alpha", reason)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"body": None}, id="neither"),
        pytest.param({"refusal": Refusal(rule="r", text="t", remedy="r")}, id="both"),
    ],
)
def test_a_reply_either_answers_or_refuses(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="either"):
        _reply(**changes)


def test_the_vectors_of_a_message_and_its_answer_hold() -> None:
    assert (message_hash(ASKED), message_hash(ANSWER)) == (
        "f65f5729ab410c75f4444c1aa382530e11dbe45b8f1003ff6b68f25f7dfc4919",
        "53842e8cbc62f0c242a72eabc142a58a11a3b0dcea4f283c95ecf2199665b828",
    )
