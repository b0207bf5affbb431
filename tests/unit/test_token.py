"""The token's rules T1 to T4, and vectors that keep the protocol where it is."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
from datetime import UTC, datetime, timedelta
from ipaddress import IPv6Address

import pytest

from keel.errors import Refused
from keel.mesh.firewallrules import invite_range
from keel.mesh.token import (
    EtcdHint,
    Token,
    derive,
    encode_token,
    parse_token,
)
from keel.types import Endpoint, NodeName
from tests.channelkit import INVITE, KEYS, MESH, NOW, PREFIX, SECRET, TOKEN

BARE = dataclasses.replace(TOKEN, root=None, holder=None, endpoints=(), etcd=EtcdHint.NONE)


def _fields(token: Token = TOKEN) -> bytes:
    text = encode_token(token).removeprefix("keel1.")
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))[:-4]


def _with_check(fields: bytes) -> str:
    check = hashlib.sha256(b"keel1." + fields).digest()[:4]
    return "keel1." + base64.urlsafe_b64encode(fields + check).decode().rstrip("=")


def _patched(at: int, value: bytes, token: Token = TOKEN) -> str:
    fields = _fields(token)
    return _with_check(fields[:at] + value + fields[at + len(value) :])


@pytest.mark.parametrize(
    "token",
    [
        pytest.param(TOKEN, id="with everything"),
        pytest.param(BARE, id="with as little as possible"),
        *(pytest.param(dataclasses.replace(TOKEN, etcd=hint), id=hint) for hint in EtcdHint),
        pytest.param(
            dataclasses.replace(TOKEN, endpoints=TOKEN.endpoints * 2), id="four endpoints"
        ),
    ],
)
def test_a_token_reads_back_as_it_was_written(token: Token) -> None:
    assert parse_token(encode_token(token)) == token


@pytest.mark.parametrize(
    "dress",
    [
        pytest.param(lambda text: f"  {text}\n", id="around"),
        pytest.param(
            lambda text: "\r\n".join(text[i : i + 20] for i in range(0, 999, 20)), id="mail"
        ),
        pytest.param(lambda text: text.replace("A", " A\t"), id="blanks inside"),
        pytest.param(lambda text: f'"{text}"\n', id="in quotes"),
        pytest.param(lambda text: f"\u201c{text[:80]}\r\n{text[80:]}\u201d", id="in a letter's"),
        pytest.param(lambda text: f"`{text}`", id="in a chat's"),
        pytest.param(lambda text: f"> {text[:60]}\n> {text[60:]}\n", id="in an answer's"),
        pytest.param(lambda text: f"\ufeff{text[:9]}\u200b{text[9:]}", id="of no width"),
    ],
)
def test_what_stands_around_a_token_and_between_its_lines_does_not_matter(dress) -> None:  # type: ignore[no-untyped-def]
    assert parse_token(dress(encode_token(TOKEN))) == TOKEN


TEXT = encode_token(TOKEN)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        pytest.param("", "token-empty", id="nothing"),
        pytest.param(" \n", "token-empty", id="white space"),
        pytest.param("hello", "token-prefix", id="another text"),
        pytest.param(TEXT.removeprefix("keel1."), "token-prefix", id="without its prefix"),
        pytest.param(TEXT.upper(), "token-prefix", id="in capitals"),
        pytest.param(TEXT.replace("keel1.", "keel2."), "token-version", id="another prefix"),
        pytest.param(_patched(0, b"\x02"), "token-version", id="another version inside"),
        pytest.param(TEXT[:40] + "!" + TEXT[41:], "token-characters", id="a strange character"),
        pytest.param(TEXT[:40] + "+" + TEXT[41:], "token-characters", id="the other base64"),
        pytest.param(TEXT[:40] + "é" + TEXT[41:], "token-characters", id="not ASCII"),
        pytest.param(TEXT + "=", "token-characters", id="padding"),
        pytest.param(TEXT[:-1] + "_", "token-damaged", id="stray bits at the end"),
        pytest.param("keel1.", "token-damaged", id="only the prefix"),
        pytest.param(TEXT[:-4], "token-damaged", id="cut off"),
        pytest.param("keel1.AAAAA", "token-damaged", id="a length that base64 never has"),
        pytest.param("keel1.AAAA", "token-damaged", id="shorter than its check"),
        pytest.param(TEXT[:40] + TEXT[41] + TEXT[40] + TEXT[42:], "token-damaged", id="swapped"),
        pytest.param(TEXT + "A" * 5000, "token-damaged", id="endless"),
        pytest.param(_with_check(_fields()[:100]), "token-fields", id="too few fields"),
        pytest.param(_with_check(_fields() + b"\x00"), "token-fields", id="a tail"),
        pytest.param(_patched(145, b"\xff" * 8), "token-fields", id="expires after all time"),
        pytest.param(_patched(153, b"\x04"), "token-fields", id="an unknown etcd state"),
        pytest.param(_patched(154, b"\x02"), "token-fields", id="an unknown flag"),
        pytest.param(_patched(155, b"\x01\x05", BARE), "token-fields", id="an unknown family"),
        pytest.param(
            _with_check(_fields(BARE)[:155] + b"\x01\x04\x01\x02\x03\x04\x00\x00\x00"),
            "token-fields",
            id="port 0",
        ),
        pytest.param(
            _with_check(
                _fields(BARE)[:155] + b"\x05" + b"\x04\x01\x02\x03\x04\x00\x01" * 5 + b"\0"
            ),
            "token-fields",
            id="five endpoints",
        ),
        pytest.param(
            _with_check(_fields(BARE)[:156] + b"\x02A!"), "token-fields", id="a name that is none"
        ),
        pytest.param(
            _with_check(_fields(BARE)[:156] + b"\x01\xff"), "token-fields", id="a name in bytes"
        ),
    ],
)
def test_each_malformation_has_its_reason_and_a_remedy(text: str, rule: str) -> None:
    with pytest.raises(Refused) as caught:
        parse_token(text)
    assert caught.value.rule == rule
    assert "keel" in caught.value.remedy()


def test_every_changed_character_is_noticed() -> None:
    for at in range(len("keel1."), len(TEXT)):
        other = "B" if TEXT[at] == "A" else "A"
        with pytest.raises(Refused, match="refused"):
            parse_token(TEXT[:at] + other + TEXT[at + 1 :])


@pytest.mark.parametrize(
    "token",
    [
        pytest.param(dataclasses.replace(TOKEN, endpoints=TOKEN.endpoints * 3), id="six endpoints"),
        pytest.param(
            dataclasses.replace(TOKEN, expires=NOW + timedelta(microseconds=1)), id="microseconds"
        ),
    ],
)
def test_what_a_token_cannot_hold_is_not_written(token: Token) -> None:
    with pytest.raises(ValueError, match="token"):
        encode_token(token)


def test_no_repr_shows_the_secret_or_a_key() -> None:
    shown = repr(TOKEN) + repr(KEYS)
    for secret in (SECRET, KEYS.request, KEYS.preshared, KEYS.pair.private, KEYS.file):
        raw = secret.reveal()
        assert raw.hex() not in shown
        assert base64.b64encode(raw).decode()[:16] not in shown
        assert repr(raw) not in shown


def test_the_temporary_address_is_never_a_members() -> None:
    assert KEYS.address in PREFIX
    assert KEYS.address in invite_range(PREFIX)
    assert invite_range(PREFIX).prefixlen == 80


def test_every_label_mesh_and_invite_gives_other_keys() -> None:
    other_mesh = derive(SECRET, mesh=type(MESH)("ff" * 16), invite=INVITE, prefix=PREFIX)
    other_invite = derive(SECRET, mesh=MESH, invite=type(INVITE)("ff" * 16), prefix=PREFIX)
    found = {
        value.reveal()
        for keys in (KEYS, other_mesh, other_invite)
        for value in (keys.request, keys.answer, keys.preshared, keys.pair.private, keys.file)
    }
    assert len(found) == 15
    assert len({KEYS.address, other_mesh.address, other_invite.address}) == 3


def test_the_vectors_of_the_derived_keys_hold() -> None:
    assert {
        "req": KEYS.request.reveal().hex(),
        "ans": KEYS.answer.reveal().hex(),
        "psk": KEYS.preshared.reveal().hex(),
        "x25519": KEYS.pair.public,
        "addr": KEYS.address.compressed,
        "file": KEYS.file.reveal().hex(),
    } == {
        "req": "f4aca1fca698081f58c364dcbef749b169af110299f8732d2ba23c6ba2b9b99f",
        "ans": "4c8997eadc7a3bb2549b1dbef8fe39ca351fb316f3d2b17095fa8a15f777f557",
        "psk": "c351c6e0346c6a7412964cc040e2e9575c40e2aa87e67ff39c4b273ded509d85",
        "x25519": "UqLXI8vFd6MzOFjg++YHI2CE8U9CRZOol+MeSx5sRiE=",
        "addr": "fd12:3456:789a:0:ffff:cfeb:e933:98ff",
        "file": "c0c6c2d03bb112cbff087bc080cdacdb3af9440f2c8f741d369c67a5a37e15b2",
    }


def test_hkdf_is_what_rfc_5869_says() -> None:
    import hmac

    salt = bytes.fromhex(MESH)
    extracted = hmac.digest(salt, SECRET.reveal(), "sha256")
    info = b"keel/1 req\x00" + bytes.fromhex(INVITE)
    assert KEYS.request.reveal() == hmac.digest(extracted, info + b"\x01", "sha256")


def test_the_vector_of_the_tokens_text_holds() -> None:
    token = Token(
        mesh=MESH,
        invite=INVITE,
        secret=SECRET,
        inviter=TOKEN.inviter,
        wireguard=TOKEN.wireguard,
        address=IPv6Address("fd12:3456:789a::1"),
        expires=datetime(2026, 5, 5, 12, tzinfo=UTC),
        endpoints=(Endpoint.parse("203.0.113.7:51820"),),
        etcd=EtcdHint.RUNNING,
        holder=NodeName("alpha"),
    )
    assert encode_token(token) == (
        "keel1.AQARIjNEVWZ3iJmqu8zd7v-goaKjpKWmp6ipqqusra6vAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBka"
        "GxwdHh8V3vY62i7UCkjXkl6Wg69_UdKu4dIr4utDkcz3rgiYXyuEDyRkGNq2mV6WrK8TWQD2BiNGCz0Pi5z66iHe"
        "WjxL_RI0VniaAAAAAAAAAAAAAQAAAABp-dvAAgABBMsAcQfKbAVhbHBoYYKUIy0"
    )
