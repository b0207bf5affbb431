"""Envelopes: rules W1 to W5."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from keel.errors import BadSignature, BadValue
from keel.mesh import keys, wire
from keel.mesh.wire import Envelope, Signature
from keel.types import Fingerprint, Secret

PAIR = keys.signing_pair(Secret(bytes(range(32))))
OTHER = keys.signing_pair(Secret(bytes(32)))
ROOT = Fingerprint("ab" * 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    text: str


SEALED = wire.seal("note", Note(text="hello"), PAIR)


def test_what_is_sealed_opens_for_the_right_kind_and_key() -> None:
    back = wire.decode(wire.encode(SEALED), max_bytes=1000)
    assert wire.open_as(Note, back, "note", PAIR.public) == Note(text="hello")


@pytest.mark.parametrize("padding", [0, wire.REMEMBERED_BYTES], ids=["small", "large"])
def test_an_envelope_that_was_read_is_remembered_unless_it_is_large(padding: int) -> None:
    raw = wire.encode(wire.seal("note", Note(text="x" * padding), PAIR))
    found, again = (wire.decode(raw, max_bytes=len(raw)) for _ in range(2))
    assert found == again
    assert (found is again) == (padding == 0)


def test_a_bound_holds_also_for_bytes_that_were_read_before() -> None:
    raw = wire.encode(SEALED)
    assert wire.decode(raw, max_bytes=len(raw)) == wire.decode(raw, max_bytes=len(raw)) == SEALED
    with pytest.raises(BadValue, match="more than"):
        wire.decode(raw, max_bytes=len(raw) - 1)


def test_the_signed_bytes_are_those_of_dsse() -> None:
    # the example of the DSSE specification, protocol.md
    expected = b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    assert wire.pae("http://example.com/HelloWorld", b"hello world") == expected


@pytest.mark.parametrize(
    ("envelope", "kind", "key"),
    [
        pytest.param(SEALED, "remark", PAIR.public, id="another-kind"),
        pytest.param(SEALED, "note", OTHER.public, id="another-key"),
        pytest.param(replace(SEALED, payload=b'{"text":"hullo"}'), "note", PAIR.public, id="bytes"),
        pytest.param(
            replace(SEALED, payload_type=wire.payload_type("remark")),
            "remark",
            PAIR.public,
            id="a-signature-moved-to-another-kind",
        ),
        pytest.param(
            replace(SEALED, payload_type="application/vnd.keel.note.v2+json"),
            "note",
            PAIR.public,
            id="another-version",
        ),
        pytest.param(replace(SEALED, signatures=()), "note", PAIR.public, id="unsigned"),
        pytest.param(
            replace(SEALED, signatures=(*SEALED.signatures, Signature(key=PAIR.public, value=b""))),
            "note",
            PAIR.public,
            id="a-bad-one-beside-the-good-one",
        ),
    ],
)
def test_a_signature_serves_one_kind_one_key_and_these_bytes(
    envelope: Envelope, kind: str, key: Any
) -> None:
    with pytest.raises(BadSignature):
        wire.open_as(Note, envelope, kind, key)


def test_nothing_is_parsed_before_it_is_verified() -> None:
    broken = replace(SEALED, payload=b"{")
    with pytest.raises(BadSignature):
        wire.open_as(Note, broken, "note", PAIR.public)


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b'{"text":"a","more":1}', id="unknown-field"),
        pytest.param(b'{"text":"a","text":"b"}', id="duplicate-key"),
        pytest.param(b"{}", id="missing-field"),
        pytest.param(b'{"text":1}', id="wrong-type"),
    ],
)
def test_a_well_signed_payload_is_still_parsed_strictly(payload: bytes) -> None:
    signature = keys.sign(PAIR, wire.pae(wire.payload_type("note"), payload))
    signed = wire.with_signature(
        Envelope(payload_type=wire.payload_type("note"), payload=payload, signatures=()),
        PAIR.public,
        signature,
    )
    with pytest.raises(BadValue):
        wire.open_as(Note, signed, "note", PAIR.public)


def document(**changes: object) -> dict[str, object]:
    made: dict[str, object] = json.loads(wire.encode(SEALED))
    return made | changes


def compact(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def signature_of(key: str, size: int) -> dict[str, str]:
    return {"keyid": key, "sig": base64.b64encode(bytes(size)).decode()}


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="empty"),
        pytest.param(compact(document(payload="!")), id="payload-not-base64"),
        pytest.param(compact(document(payloadType="text/plain")), id="type-not-keels"),
        pytest.param(compact(document(signatures=[])), id="no-signature"),
        pytest.param(
            compact(document(signatures=[signature_of(f"{n:064x}", 64) for n in range(5)])),
            id="too-many-signatures",
        ),
        pytest.param(compact(document(signatures=[signature_of("x", 64)])), id="key-id"),
        pytest.param(
            compact(document(signatures=[signature_of(PAIR.public, 161)])), id="long-signature"
        ),
        pytest.param(
            compact(document(signatures=[signature_of(PAIR.public, n) for n in (1, 2)])),
            id="one-key-twice",
        ),
        pytest.param(compact(document(extra=1)), id="unknown-field"),
        pytest.param(json.dumps(document()).encode(), id="another-spelling-of-the-same"),
        pytest.param(compact(document(payload="A" * 4000)), id="too-large"),
    ],
)
def test_an_envelope_has_one_form(raw: bytes) -> None:
    with pytest.raises(BadValue):
        wire.decode(raw, max_bytes=2000)


def test_the_kind_tells_versions_apart() -> None:
    later = replace(SEALED, payload_type="application/vnd.keel.note.v12+json")
    assert (wire.kind_of(SEALED), wire.kind_of(later)) == ("note", "note.v12")


def test_a_hash_is_over_type_and_payload_and_not_over_signatures() -> None:
    twice = wire.seal("note", Note(text="hello"), PAIR, OTHER)
    signed = b'DSSEv1 33 application/vnd.keel.note.v1+json 16 {"text":"hello"}'
    assert wire.record_hash(twice) == wire.record_hash(SEALED) == hashlib.sha256(signed).hexdigest()


def test_a_signature_by_the_root_is_carried_beside_the_members() -> None:
    both = wire.with_signature(SEALED, wire.root_key_id(ROOT), b"\x30\x00")
    back = wire.decode(wire.encode(both), max_bytes=2000)
    assert wire.signers(back) == (PAIR.public,)
    assert wire.root_signatures(back) == ((ROOT, b"\x30\x00"),)
    assert wire.open_as(Note, back, "note", PAIR.public) == Note(text="hello")


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        pytest.param(lambda: SEALED, True, id="signed"),
        pytest.param(lambda: replace(SEALED, payload=b""), False, id="changed"),
    ],
)
def test_a_signature_can_be_judged_without_knowing_the_kind(
    make: Callable[[], Envelope], expected: bool
) -> None:
    assert wire.signed_by(make(), PAIR.public) is expected
