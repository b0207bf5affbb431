"""Key pairs: Ed25519 for signing, X25519 for WireGuard.

Owns how a pair follows from its 32 secret bytes, how a message is signed and how a signature is
judged. Makes no randomness, reads no file. One library judges every Ed25519 signature (libsodium:
it refuses non-canonical signatures and keys of small order), so that all nodes agree.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass

import nacl.exceptions
import nacl.signing
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from keel import secretcache
from keel.errors import BadValue
from keel.types import Secret, SigningKey, WgKey, parse_hex

KEY_BYTES = 32
SIGNATURE_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningPair:
    """An Ed25519 key pair; the seed is what is kept on disk."""

    public: SigningKey
    seed: Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class WgPair:
    """An X25519 key pair; `private` is clamped, as `wg` shows it."""

    public: WgKey
    private: Secret


def signing_pair(seed: Secret) -> SigningPair:
    """The Ed25519 pair of a 32-byte seed; BadValue for another length."""
    _expect_key_bytes(seed)
    public, _ = _signer(seed.reveal())
    return SigningPair(public=public, seed=seed)


def wg_pair(private: Secret) -> WgPair:
    """The X25519 pair of 32 secret bytes, clamped first; BadValue for another length.

    The kernel clamps what it is given and shows the result, so an unclamped key would look
    changed at every comparison.
    """
    _expect_key_bytes(private)
    scalar = bytearray(private.reveal())
    scalar[0] &= 248
    scalar[31] = (scalar[31] & 127) | 64
    return WgPair(public=_wg_public(bytes(scalar)), private=Secret(bytes(scalar)))


def sign(pair: SigningPair, message: bytes) -> bytes:
    """The 64-byte Ed25519 signature over a message."""
    _, signer = _signer(pair.seed.reveal())
    return signer.sign(message).signature


def verify(public: SigningKey, message: bytes, signature: bytes) -> bool:
    """Whether the signature is this key's over this message; never raises for bad input."""
    try:
        raw = bytes.fromhex(parse_hex(public, size=KEY_BYTES))
    except ValueError:
        return False
    if len(signature) != SIGNATURE_BYTES:
        return False
    try:
        nacl.signing.VerifyKey(raw).verify(message, signature)
    except nacl.exceptions.BadSignatureError:
        return False
    return True


@secretcache.remembered
def _signer(seed: bytes) -> tuple[SigningKey, nacl.signing.SigningKey]:
    """The public key of a seed and what signs with it: they take as long as a signature does."""
    signer = nacl.signing.SigningKey(seed)
    return SigningKey(signer.verify_key.encode().hex()), signer


@secretcache.remembered
def _wg_public(scalar: bytes) -> WgKey:
    key = X25519PrivateKey.from_private_bytes(scalar)
    public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    return WgKey(base64.b64encode(public).decode())


def _expect_key_bytes(secret: Secret) -> None:
    if len(secret.reveal()) != KEY_BYTES:
        raise BadValue("", f"a key has {KEY_BYTES} bytes")
