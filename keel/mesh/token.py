"""The invite's token, and the keys that both sides derive from the secret inside it.

Owns the text form `keel1.` + base64url(fields, check) and HKDF's labels. Knows nothing of whether
an invite is still open (keel.mesh.invite) nor of the messages under its keys (keel.mesh.joinmsg).

Rules:
(T1) Fields in this order, integers big endian: version (1), mesh id (16), invite id (16), secret
     (32), Ed25519 key (32), WireGuard key (32), overlay address (16), expiry in seconds since 1970
     (8), etcd hint (1), flags (1), root fingerprint (32, when flag 1 is set), number of endpoints
     (1) and each as family (1: 4 or 6), address, port (2), length (1) and text of the holder's
     name; then the first 4 bytes of SHA-256 over `keel1.` and all of it.
(T2) White space and line breaks anywhere in the text do not matter; everything else does.
(T3) The check finds a damaged copy. It is no proof: the proofs are the MACs under the secret.
(T4) HKDF-SHA256, salt = mesh id, info = "keel/1 " + label + 0x00 + invite id, 32 bytes a label.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import struct
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, IPv6Network

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from keel.errors import Refused
from keel.mesh.keys import WgPair, wg_pair
from keel.types import (
    Endpoint,
    Fingerprint,
    InviteId,
    MeshId,
    NodeName,
    Secret,
    SigningKey,
    WgKey,
    parse_name,
)

PREFIX = "keel1."
VERSION = 1
MAX_ENDPOINTS = 4
MAX_TEXT = 4096
"""Far more than any token; a larger paste is not one."""
_AROUND = dict.fromkeys(map(ord, "\"'`<>\u2018\u2019\u201c\u201d\u200b\ufeff"))
"""What a mail, a chat or a shell puts around a text or before its lines; no token has any of it."""

_CHECK_BYTES = 4
_HEAD = struct.Struct(">B16s16s32s32s32s16sQBB")
_HAS_ROOT = 1
_LAST_SECOND = 253_402_300_799  # 9999-12-31T23:59:59Z, where Python's datetime ends


class EtcdHint(StrEnum):
    """What the inviter believed of the registry when it made the token or the answer (E8, E11)."""

    NONE = "none"
    FORMS = "forms"
    RUNNING = "running"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """All that a joiner needs. The expiry and the etcd state are hints: the inviter decides."""

    mesh: MeshId
    invite: InviteId
    secret: Secret
    inviter: SigningKey
    wireguard: WgKey
    address: IPv6Address
    expires: datetime
    endpoints: tuple[Endpoint, ...]
    etcd: EtcdHint = EtcdHint.NONE
    root: Fingerprint | None = None
    holder: NodeName | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InviteKeys:
    """Everything under the invite's secret, one label each (T4)."""

    invite: InviteId
    request: Secret
    answer: Secret
    preshared: Secret
    pair: WgPair = field(repr=False)
    address: IPv6Address
    file: Secret


def encode_token(token: Token) -> str:
    """The one text of a token: a single line without white space. ValueError for what T1 cannot
    hold: more than four endpoints, an expiry that is not whole seconds."""
    if len(token.endpoints) > MAX_ENDPOINTS:
        raise ValueError(f"a token carries at most {MAX_ENDPOINTS} endpoints")
    if token.expires.microsecond:
        raise ValueError("a token's expiry is in whole seconds")
    root = bytes.fromhex(token.root) if token.root else b""
    holder = (token.holder or "").encode("ascii")
    fields = b"".join(
        (
            _HEAD.pack(
                VERSION,
                bytes.fromhex(token.mesh),
                bytes.fromhex(token.invite),
                token.secret.reveal(),
                bytes.fromhex(token.inviter),
                base64.b64decode(token.wireguard),
                token.address.packed,
                int(token.expires.timestamp()),
                _HINTS.index(token.etcd),
                _HAS_ROOT if root else 0,
            ),
            root,
            bytes((len(token.endpoints),)),
            *(_pack_endpoint(endpoint) for endpoint in token.endpoints),
            bytes((len(holder),)),
            holder,
        )
    )
    return PREFIX + base64.urlsafe_b64encode(fields + _check(fields)).decode().rstrip("=")


def parse_token(text: str) -> Token:
    """Refused by the reason: token-empty, token-prefix, token-version, token-characters,
    token-damaged, token-fields (T1, T2, T3)."""
    compact = "".join(text[: MAX_TEXT + 1].translate(_AROUND).split())
    if not compact:
        raise Refused("token-empty", "there is no token in the input", _COPY)
    if not re.match(r"keel[0-9]+\.", compact):
        raise Refused("token-prefix", f"a token starts with {PREFIX}", _COPY)
    if not compact.startswith(PREFIX):
        raise _other_version()
    raw = _decode_base64(compact.removeprefix(PREFIX))
    fields, check = raw[:-_CHECK_BYTES], raw[-_CHECK_BYTES:]
    if len(text) > MAX_TEXT or not fields or check != _check(fields):
        raise _damaged()
    if fields[0] != VERSION:
        raise _other_version()
    try:
        return _unpack(fields)
    except ValueError as error:
        raise Refused("token-fields", f"the token makes no sense: {error}", _ANEW) from error


def derive(secret: Secret, *, mesh: MeshId, invite: InviteId, prefix: IPv6Network) -> InviteKeys:
    """The invite's keys (T4), and its temporary address: prefix:ffff: + 6 derived bytes."""

    def labelled(label: bytes) -> Secret:
        info = b"keel/1 " + label + b"\x00" + bytes.fromhex(invite)
        hkdf = HKDF(algorithm=SHA256(), length=32, salt=bytes.fromhex(mesh), info=info)
        return Secret(hkdf.derive(secret.reveal()))

    return InviteKeys(
        invite=invite,
        request=labelled(b"req"),
        answer=labelled(b"ans"),
        preshared=labelled(b"psk"),
        pair=wg_pair(labelled(b"x25519")),
        address=temporary_address(prefix, labelled(b"addr").reveal()[:6]),
        file=labelled(b"file"),
    )


def temporary_address(prefix: IPv6Network, six: bytes) -> IPv6Address:
    """prefix:ffff: and six bytes: the range that no member's address can be in."""
    return IPv6Address(prefix.network_address.packed[:8] + b"\xff\xff" + six)


def _check(fields: bytes) -> bytes:
    return hashlib.sha256(PREFIX.encode() + fields).digest()[:_CHECK_BYTES]


def _other_version() -> Refused:
    return Refused(
        "token-version",
        "the token was made by another version of keel",
        "install the same version of keel on both nodes, then run `keel mesh invite` again",
    )


def _decode_base64(text: str) -> bytes:
    if not re.fullmatch(r"[A-Za-z0-9_-]*", text):
        raise Refused("token-characters", "the token holds characters that no token has", _COPY)
    padded = text + "=" * (-len(text) % 4)
    try:
        raw = base64.urlsafe_b64decode(padded)
    except binascii.Error as error:  # a length that base64 never has
        raise _damaged() from error
    if base64.urlsafe_b64encode(raw).decode() != padded:
        raise _damaged()
    return raw


def _damaged() -> Refused:
    return Refused("token-damaged", "the token was damaged while it was copied", _COPY)


def _pack_endpoint(endpoint: Endpoint) -> bytes:
    return bytes((endpoint.host.version,)) + endpoint.host.packed + endpoint.port.to_bytes(2, "big")


def _unpack(fields: bytes) -> Token:
    rest = _Reader(fields)
    _, mesh, invite, secret, inviter, wireguard, address, expires, hint, flags = _HEAD.unpack(
        rest.take(_HEAD.size)
    )
    if flags not in (0, _HAS_ROOT) or hint >= len(_HINTS):
        raise ValueError("a flag or an etcd state that keel does not know")
    if expires > _LAST_SECOND:
        raise ValueError("it expires after the end of the calendar")
    root = Fingerprint(rest.take(32).hex()) if flags else None
    endpoints = tuple(_unpack_endpoint(rest) for _ in range(rest.byte()))
    if len(endpoints) > MAX_ENDPOINTS:
        raise ValueError("too many endpoints")
    holder = rest.take(rest.byte()).decode("ascii")
    if rest.left():
        raise ValueError("something stands behind its end")
    return Token(
        mesh=MeshId(mesh.hex()),
        invite=InviteId(invite.hex()),
        secret=Secret(secret),
        inviter=SigningKey(inviter.hex()),
        wireguard=WgKey(base64.b64encode(wireguard).decode()),
        address=IPv6Address(address),
        expires=datetime.fromtimestamp(expires, tz=UTC),
        endpoints=endpoints,
        etcd=_HINTS[hint],
        root=root,
        holder=parse_name(holder) if holder else None,
    )


def _unpack_endpoint(rest: _Reader) -> Endpoint:
    family = rest.byte()
    if family not in (4, 6):
        raise ValueError("an endpoint of an unknown family")
    host = IPv4Address(rest.take(4)) if family == 4 else IPv6Address(rest.take(16))
    port = int.from_bytes(rest.take(2), "big")
    if port == 0:
        raise ValueError("an endpoint without a port")
    return Endpoint(host=host, port=port)


class _Reader:
    """Takes fields off the front; ValueError when there is not enough."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def take(self, size: int) -> bytes:
        taken, self._data = self._data[:size], self._data[size:]
        if len(taken) != size:
            raise ValueError("it is too short")
        return taken

    def byte(self) -> int:
        return self.take(1)[0]

    def left(self) -> int:
        return len(self._data)


_HINTS = tuple(EtcdHint)
_COPY = "copy the whole line that `keel mesh invite` printed and try again"
_ANEW = "make a new one with `keel mesh invite` on a member"
