"""The join's frames, J1 to J4: what holds, what does not, and vectors of the MACs."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from keel.errors import BadValue, PeerError
from keel.mesh import wire
from keel.mesh.joinmsg import (
    ANSWER_KIND,
    Admitted,
    EtcdPart,
    JoinAnswer,
    JoinRequest,
    answer_mac_holds,
    authentication,
    open_answer,
    request_hash,
    request_mac_holds,
    seal_answer,
    split_request,
)
from keel.mesh.refusal import UNPROVEN_ANSWER, Refusal
from keel.mesh.token import EtcdHint
from keel.types import MeshId, Nonce, Secret, SigningKey
from tests.channelkit import (
    INVITE,
    INVITER,
    JOINER,
    KEYS,
    MESH,
    NOW,
    OTHER,
    invite,
    keys_of,
    nonce,
    request,
    sealed,
)

REQUEST = sealed()
ADMITTED = Admitted(
    admission=b"admission",
    genesis=b"genesis",
    roster=(b"one", b"two"),
    etcd=EtcdPart(state=EtcdHint.FORMS, grant=b"grant", cluster_record=b"record"),
)
REFUSAL = Refusal(rule="join-name", text="no", remedy="choose another", details={"a": "b"})
ANSWER_MAGIC = b"keel/1 join-answer\n"


def _answer(**changes: Any) -> JoinAnswer:
    made = JoinAnswer(
        mesh=MESH, invite=INVITE, request=request_hash(REQUEST), time=NOW, admitted=ADMITTED
    )
    return dataclasses.replace(made, **changes)


def _open(raw: bytes, *, sent: bytes = REQUEST) -> JoinAnswer:
    return open_answer(raw, KEYS, inviter=INVITER.public, mesh=MESH, request=sent)


def _framed(envelope: bytes, *, sent: bytes = REQUEST, key: Secret = KEYS.answer) -> bytes:
    ids = bytes.fromhex(INVITE), bytes.fromhex(split_request(sent).nonce)
    digest = hashlib.sha256(sent).digest()
    return ANSWER_MAGIC + authentication(key, b"answer", *ids, digest, envelope) + envelope


def _forged(body: object) -> bytes:
    return _framed(wire.encode(wire.seal(ANSWER_KIND, body, INVITER)))


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(_answer(), id="admitted"),
        pytest.param(_answer(admitted=None, refusal=REFUSAL), id="refused"),
        pytest.param(
            _answer(admitted=Admitted(admission=b"a", genesis=b"g", roster=())), id="bare"
        ),
    ],
)
def test_an_answer_opens_as_it_was_sealed(answer: JoinAnswer) -> None:
    raw = seal_answer(answer, KEYS, INVITER, REQUEST)
    assert answer_mac_holds(raw, KEYS, request=REQUEST)
    assert _open(raw) == answer


def test_a_request_comes_apart_as_it_was_sealed() -> None:
    frame = split_request(REQUEST)
    assert (frame.invite, frame.nonce, frame.raw) == (INVITE, request().nonce, REQUEST)
    assert request_mac_holds(frame, KEYS)
    envelope = wire.decode(frame.envelope, max_bytes=9999)
    assert wire.open_as(JoinRequest, envelope, "join-request", JOINER.public) == request()


def test_no_single_changed_byte_of_a_request_keeps_its_mac() -> None:
    for at in range(len(b"keel/1 join-request\n") + 16, len(REQUEST)):
        changed = REQUEST[:at] + bytes((REQUEST[at] ^ 1,)) + REQUEST[at + 1 :]
        assert not request_mac_holds(split_request(changed), KEYS)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{}", id="JSON"),
        pytest.param(REQUEST[:84], id="without an envelope"),
        pytest.param(_framed(b"x"), id="an answer"),
    ],
)
def test_what_is_no_request_frame_is_a_bad_value(raw: bytes) -> None:
    with pytest.raises(BadValue):
        split_request(raw)


def test_another_invites_keys_do_not_verify() -> None:
    assert not request_mac_holds(split_request(REQUEST), keys_of(invite(1)))
    raw = seal_answer(_answer(), KEYS, INVITER, REQUEST)
    assert not answer_mac_holds(raw, keys_of(invite(1)), request=REQUEST)


OTHER_REQUEST = sealed(request(nonce=nonce("another")))
GOOD = seal_answer(_answer(), KEYS, INVITER, REQUEST)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        pytest.param(b"", "unproven", id="nothing"),
        pytest.param(UNPROVEN_ANSWER, "unproven", id="a plain refusal"),
        pytest.param(b"<html>", "unproven", id="another server"),
        pytest.param(REQUEST, "unproven", id="the request reflected"),
        pytest.param(GOOD + b"x" * (1 << 20), "unproven", id="too large"),
        pytest.param(GOOD[:-1] + b" ", "answer-mac", id="changed"),
        pytest.param(_framed(b"{}", key=KEYS.request), "answer-mac", id="under the request's key"),
        pytest.param(
            seal_answer(_answer(request=request_hash(OTHER_REQUEST)), KEYS, INVITER, OTHER_REQUEST),
            "answer-mac",
            id="an answer to another request",
        ),
        pytest.param(
            seal_answer(_answer(), KEYS, OTHER, REQUEST), "answer-signature", id="another signer"
        ),
        pytest.param(
            _framed(split_request(REQUEST).envelope), "answer-signature", id="another kind"
        ),
        pytest.param(_framed(b"{}"), "answer-form", id="no envelope"),
        pytest.param(_forged(REFUSAL), "answer-form", id="another body"),
        pytest.param(_forged(_answer(mesh=MeshId("ff" * 16))), "answer-other", id="another mesh"),
        pytest.param(_forged(_answer(request="00" * 32)), "answer-other", id="another hash"),
        pytest.param(
            _forged(_answer(invite=type(INVITE)("ff" * 16))), "answer-other", id="another invite"
        ),
    ],
)
def test_an_answer_that_proves_nothing_is_told_by_its_reason(raw: bytes, reason: str) -> None:
    with pytest.raises(PeerError) as caught:
        _open(raw)
    assert caught.value.reason == reason
    assert "keel mesh join" in caught.value.remedy()


def test_an_answer_names_the_request_that_it_is_sealed_for() -> None:
    with pytest.raises(ValueError, match="another request"):
        seal_answer(_answer(), KEYS, INVITER, OTHER_REQUEST)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: _answer(admitted=None), id="neither"),
        pytest.param(lambda: _answer(refusal=REFUSAL), id="both"),
    ],
)
def test_an_answer_either_admits_or_refuses(make: Callable[[], JoinAnswer]) -> None:
    with pytest.raises(ValueError, match="either"):
        make()


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"nonce": Nonce("zz")}, id="nonce"),
        pytest.param({"ed25519": SigningKey("00")}, id="signing key"),
        pytest.param({"wireguard": "AAAA"}, id="WireGuard key"),
        pytest.param({"endpoints": request().endpoints * 9}, id="nine endpoints"),
    ],
)
def test_a_request_with_a_malformed_field_is_not_made(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"expected|key|endpoints"):
        request(**changes)


def test_the_vectors_of_the_macs_hold() -> None:
    assert authentication(KEYS.request, b"request", b"a", b"bc").hex() == (
        "8a60e3ead63b5966dbe4551540529379cfb11a8402697c801c56ab054a6adc3b"
    )
    assert split_request(REQUEST).mac.hex() == (
        "829d3ff672b7595c5b67bb584fc3e078b1f788b0cc536525c0a482866a6e10c5"
    )
    assert GOOD[len(ANSWER_MAGIC) :][:32].hex() == (
        "93954593e51dd920304d2ff7136e3fe59f23050a0e1fb32f6fa9314b33e85930"
    )
