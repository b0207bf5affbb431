"""Signed envelopes: DSSE over exact bytes, with a type that names kind and version.

Owns the envelope's form, what exactly is signed, and a record's hash. Knows nothing of what the
kinds mean (keel.mesh.records, the channel's and the cluster's messages do).

Rules:
(W1) What is signed is the pre-authentication encoding of type and payload: one kind's signature
     can never serve another kind or version.
(W2) A signature is verified before the payload is parsed.
(W3) An envelope has one spelling: bytes that are not what `encode` would make are refused. So the
     received bytes are the kept bytes, and nobody can send one record in endless disguises.
(W4) A hash is over what is signed, never over signatures: a signer can make many of those.
(W5) A key id is an Ed25519 key in hex, or `root:` and the fingerprint of the mesh's etcd root. The
     latter's signatures are carried here; who has the root's certificate judges them.
"""

from __future__ import annotations

import functools
import hashlib
import re
from dataclasses import dataclass, replace
from typing import TypeVar

from keel import codec
from keel.errors import BadSignature, BadValue
from keel.mesh import keys
from keel.mesh.keys import SigningPair
from keel.types import Fingerprint, RecordHash, SigningKey

T = TypeVar("T")

MAX_SIGNATURES = 4
"""Two sign a succession, root and holder a statement; twice that leaves room for a later kind."""

MAX_SIGNATURE_BYTES = 160
"""Ed25519 has 64; ECDSA in DER has 72 on P-256 and 139 on P-521."""

REMEMBERED = 64
"""Envelopes whose form was checked before: a pass reads its own record and grant many times."""
REMEMBERED_BYTES = 8 << 10
"""Of an envelope that is kept in memory; larger ones are read anew."""

_TYPE = re.compile(r"application/vnd\.keel\.([a-z][a-z0-9-]{0,39})\.v([1-9][0-9]{0,2})\+json")
_KEY_ID = re.compile(r"(root:)?[0-9a-f]{64}")
_ROOT = "root:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """One signature and the id of the key that is said to have made it (W5)."""

    key: str
    value: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """Exact payload bytes, their type, and signatures over both; nothing in it is proven yet."""

    payload_type: str
    payload: bytes
    signatures: tuple[Signature, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _DsseSignature:
    keyid: str
    sig: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dsse:
    """The envelope as DSSE spells it."""

    payload: bytes
    payloadType: str
    signatures: tuple[_DsseSignature, ...]


def payload_type(kind: str) -> str:
    """The media type of a kind's first version."""
    return f"application/vnd.keel.{kind}.v1+json"


def pae(type_name: str, payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding: the bytes that are signed (W1)."""
    name = type_name.encode()
    return b"DSSEv1 %d %s %d %s" % (len(name), name, len(payload), payload)


def message(envelope: Envelope) -> bytes:
    """What an envelope's signatures are over."""
    return pae(envelope.payload_type, envelope.payload)


def seal(kind: str, body: object, *pairs: SigningPair) -> Envelope:
    """A dataclass as a signed envelope of version 1 of its kind, one signature per pair."""
    payload = codec.dumps(body)
    signed = pae(payload_type(kind), payload)
    return Envelope(
        payload_type=payload_type(kind),
        payload=payload,
        signatures=tuple(
            Signature(key=pair.public, value=keys.sign(pair, signed)) for pair in pairs
        ),
    )


def with_signature(envelope: Envelope, key: str, value: bytes) -> Envelope:
    """The envelope with one more signature, made elsewhere over `message(envelope)`."""
    added = Signature(key=key, value=value)
    return replace(envelope, signatures=(*envelope.signatures, added))


def root_key_id(root: Fingerprint) -> str:
    """The key id of an etcd root's signature (W5)."""
    return _ROOT + root


def encode(envelope: Envelope) -> bytes:
    """The one byte form of an envelope (W3)."""
    return codec.dumps(
        _Dsse(
            payload=envelope.payload,
            payloadType=envelope.payload_type,
            signatures=tuple(
                _DsseSignature(keyid=one.key, sig=one.value) for one in envelope.signatures
            ),
        )
    )


def decode(raw: bytes, *, max_bytes: int) -> Envelope:
    """The envelope in these bytes, its form checked and nothing else; BadValue says what is off."""
    if len(raw) > min(max_bytes, REMEMBERED_BYTES):
        return _decoded(raw, max_bytes)
    return _remembered(raw)


@functools.lru_cache(maxsize=REMEMBERED)
def _remembered(raw: bytes) -> Envelope:
    return _decoded(raw, REMEMBERED_BYTES)


def _decoded(raw: bytes, max_bytes: int) -> Envelope:
    found = codec.loads(_Dsse, raw, max_bytes=max_bytes)
    envelope = Envelope(
        payload_type=found.payloadType,
        payload=found.payload,
        signatures=tuple(Signature(key=one.keyid, value=one.sig) for one in found.signatures),
    )
    _check_form(envelope)
    if encode(envelope) != raw:
        raise BadValue("", "not in the one form an envelope has")
    return envelope


def kind_of(envelope: Envelope) -> str:
    """The kind that an envelope claims: `self`, or `self.v2` for a version this code lacks."""
    kind, version = _type_parts(envelope.payload_type)
    return kind if version == "1" else f"{kind}.v{version}"


def record_hash(envelope: Envelope) -> RecordHash:
    """SHA-256 over type and payload (W4)."""
    return RecordHash(hashlib.sha256(message(envelope)).hexdigest())


def signers(envelope: Envelope) -> tuple[SigningKey, ...]:
    """The Ed25519 keys that are said to have signed, in order; proven only by `verified`."""
    return tuple(SigningKey(one.key) for one in envelope.signatures if not _is_root(one.key))


def root_signatures(envelope: Envelope) -> tuple[tuple[Fingerprint, bytes], ...]:
    """Root fingerprints and signatures, for whoever has the certificates (W5)."""
    return tuple(
        (Fingerprint(one.key.removeprefix(_ROOT)), one.value)
        for one in envelope.signatures
        if _is_root(one.key)
    )


def verified(envelope: Envelope, kind: str, key: SigningKey) -> bytes:
    """The payload, once it is proven to be of this kind and signed by this key; BadSignature."""
    if envelope.payload_type != payload_type(kind):
        raise BadSignature(f"a message of another type in place of {kind}")
    if not signed_by(envelope, key):
        raise BadSignature(f"the signature on {kind}")
    return envelope.payload


def signed_by(envelope: Envelope, key: SigningKey) -> bool:
    """Whether the envelope carries a good signature by this key, whatever its kind."""
    values = [one.value for one in envelope.signatures if one.key == key]
    return bool(values) and all(keys.verify(key, message(envelope), value) for value in values)


def open_as(cls: type[T], envelope: Envelope, kind: str, key: SigningKey) -> T:
    """Verify, then parse strictly (W2); BadSignature or BadValue."""
    payload = verified(envelope, kind, key)
    return codec.loads(cls, payload, max_bytes=len(payload))


def _check_form(envelope: Envelope) -> None:
    _type_parts(envelope.payload_type)
    if not 1 <= len(envelope.signatures) <= MAX_SIGNATURES:
        raise BadValue("signatures", f"expected 1 to {MAX_SIGNATURES} of them")
    for one in envelope.signatures:
        if not _KEY_ID.fullmatch(one.key):
            raise BadValue("signatures", "a key id is an Ed25519 key or root:FINGERPRINT")
        if len(one.value) > MAX_SIGNATURE_BYTES:
            raise BadValue("signatures", "a signature is too long")
    if len({one.key for one in envelope.signatures}) != len(envelope.signatures):
        raise BadValue("signatures", "one key signed twice")


def _type_parts(type_name: str) -> tuple[str, str]:
    match = _TYPE.fullmatch(type_name)
    if match is None:
        raise BadValue("payloadType", "not a type of keel's")
    return match[1], match[2]


def _is_root(key: str) -> bool:
    return key.startswith(_ROOT)
