"""The channel over a real socket: every numbered check, and an exchange through the real client."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from ipaddress import IPv6Address

import pytest

from keel.errors import PeerError
from keel.mesh.client import HttpChannel
from keel.mesh.envelope import CHECKS, MAX_MESSAGE_BYTES, open_reply
from keel.mesh.limits import Limits
from keel.mesh.nonces import MAX_PER_SENDER
from keel.types import MeshId
from tests.channelkit import (
    CLAIMANT,
    CLAIMED_ADDRESS,
    NOW,
    OTHER,
    PEER,
    PEER_ADDRESS,
    Greeting,
    nonce,
    sealed_message,
)
from tests.desk import Desk, TestClock, post, serving

MEMBER, CLAIMS, STRANGER = "127.0.0.2", "127.0.0.3", "127.0.0.4"
ROOMY = Limits(source_rate=None, total_rate=None, max_body_bytes=MAX_MESSAGE_BYTES + 1000)
"""The server's own bound comes first in practice; here the check's is reached."""


def _desk() -> Desk:
    return Desk((), {MEMBER: PEER_ADDRESS, CLAIMS: CLAIMED_ADDRESS})


def _replayed(desk: Desk) -> None:
    desk.ledger, _ = desk.ledger.add(PEER.public, nonce("message"), NOW, NOW)


def _flooded(desk: Desk) -> None:
    for number in range(MAX_PER_SENDER):
        desk.ledger, _ = desk.ledger.add(PEER.public, nonce(number), NOW, NOW)


def _as_is(desk: Desk) -> None:
    return None


PLAIN = [
    ("channel-size", b"x" * (MAX_MESSAGE_BYTES + 1), MEMBER),
    ("channel-source", sealed_message(), STRANGER),
    ("channel-form", b"{}", MEMBER),
    ("channel-mesh", sealed_message(mesh=MeshId("ff" * 16)), MEMBER),
    ("channel-sender", sealed_message(OTHER), MEMBER),
    ("channel-receiver", sealed_message(receiver=OTHER.public), MEMBER),
    ("channel-signature", sealed_message(OTHER, sender=PEER.public), MEMBER),
]
SIGNED = [
    ("channel-stale", sealed_message(time=NOW - timedelta(seconds=301)), _as_is),
    ("channel-replay", sealed_message(), _replayed),
    ("channel-flood", sealed_message(), _flooded),
    ("channel-kind", sealed_message(kind="revoke"), _as_is),
    ("channel-body", sealed_message(body={"word": 7}), _as_is),
]


def test_every_check_has_its_case_here() -> None:
    rules = [case[0] for case in (*PLAIN, *SIGNED) if case[0] != "channel-flood"]
    assert tuple(rules) == CHECKS


@pytest.mark.parametrize(
    ("rule", "raw", "source"), [pytest.param(*case, id=case[0]) for case in PLAIN]
)
def test_an_unproven_message_is_refused_in_plain(rule: str, raw: bytes, source: str) -> None:
    desk = _desk()
    ledger = desk.ledger
    with serving(desk, ROOMY) as port:
        _, said = post(port, "/v1/hello", raw, source=source)
    assert (desk.refusals, desk.served, desk.ledger) == ({rule: 1}, [], ledger)
    with pytest.raises(PeerError) as caught:
        open_reply(said, Greeting, request=sealed_message(), member="alpha")
    assert caught.value.reason == rule
    assert caught.value.text.endswith("(unsigned)")


@pytest.mark.parametrize(
    ("rule", "raw", "prepare"), [pytest.param(*case, id=case[0]) for case in SIGNED]
)
def test_a_proven_message_is_refused_with_a_signature(
    rule: str, raw: bytes, prepare: Callable[[Desk], None]
) -> None:
    desk = _desk()
    prepare(desk)
    ledger = desk.ledger
    with serving(desk, ROOMY) as port:
        _, said = post(port, "/v1/hello", raw, source=MEMBER)
    assert (desk.refusals, desk.served, desk.ledger) == ({rule: 1}, [], ledger)
    with pytest.raises(PeerError) as caught:
        open_reply(said, Greeting, request=raw, member="alpha")
    assert caught.value.reason == rule
    assert "unsigned" not in caught.value.text


def test_the_same_message_again_is_a_replay() -> None:
    desk = _desk()
    raw = sealed_message()
    with serving(desk) as port:
        _, said = post(port, "/v1/hello", raw, source=MEMBER)
        assert open_reply(said, Greeting, request=raw, member="alpha").body.word == "hello"
        _, said = post(port, "/v1/hello", raw, source=MEMBER)
    with pytest.raises(PeerError) as caught:
        open_reply(said, Greeting, request=raw, member="alpha")
    assert caught.value.reason == "channel-replay"
    assert desk.served == [Greeting(word="hi")]


def _another() -> bytes:
    return sealed_message(CLAIMANT, kind="roster", nonce=nonce("another"))


def test_a_claim_says_hello_and_nothing_else() -> None:
    desk = _desk()
    with serving(desk) as port:
        post(port, "/v1/hello", sealed_message(CLAIMANT), source=CLAIMS)
        post(port, "/v1/hello", _another(), source=CLAIMS)
    assert desk.served == [Greeting(word="hi")]
    assert desk.refusals == {"channel-kind": 1}


def test_an_answer_to_one_member_is_none_to_another() -> None:
    desk = _desk()
    raw = sealed_message()
    with serving(desk) as port:
        _, said = post(port, "/v1/hello", raw, source=MEMBER)
    with pytest.raises(PeerError) as caught:
        open_reply(said, Greeting, request=sealed_message(CLAIMANT), member="alpha")
    assert caught.value.reason == "reply-other"


def test_the_clients_own_bytes_pass_all_checks() -> None:
    desk = Desk((), {"127.0.0.1": PEER_ADDRESS})
    raw = sealed_message()
    with serving(desk) as port:
        channel = HttpChannel(TestClock(), port=port)
        said = channel.post(IPv6Address("::ffff:127.0.0.1"), "/v1/hello", raw, timeout_seconds=10)
        channel.close()
    assert open_reply(said, Greeting, request=raw, member="alpha").body == Greeting(word="hello")
