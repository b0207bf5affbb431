"""Key pairs and signatures."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest

from keel.errors import BadValue
from keel.mesh import keys
from keel.types import Secret, SigningKey

SEED = Secret(bytes(range(32)))
PAIR = keys.signing_pair(SEED)


def test_a_signature_is_judged_by_key_and_message() -> None:
    other = keys.signing_pair(Secret(bytes(32)))
    signature = keys.sign(PAIR, b"message")
    judged = (
        keys.verify(PAIR.public, b"message", signature),
        keys.verify(PAIR.public, b"massage", signature),
        keys.verify(other.public, b"message", signature),
    )
    assert judged == (True, False, False)


@pytest.mark.parametrize(
    ("public", "signature"),
    [
        pytest.param("zz" * 32, bytes(64), id="key-not-hex"),
        pytest.param("ab" * 31, bytes(64), id="key-too-short"),
        pytest.param(PAIR.public, b"", id="signature-empty"),
        pytest.param(PAIR.public, bytes(65), id="signature-too-long"),
        pytest.param("00" * 32, bytes(64), id="key-of-small-order"),
    ],
)
def test_what_is_no_signature_is_refused_without_an_exception(
    public: str, signature: bytes
) -> None:
    assert not keys.verify(SigningKey(public), b"", signature)


def test_a_wireguard_pair_follows_from_its_secret_as_rfc_7748_says() -> None:
    private = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
    public = bytes.fromhex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
    assert keys.wg_pair(Secret(private)).public == base64.b64encode(public).decode()


def test_a_wireguard_key_is_kept_clamped_as_wg_shows_it() -> None:
    pair = keys.wg_pair(Secret(b"\xff" * 32))
    assert pair.private.reveal() == b"\xf8" + b"\xff" * 30 + b"\x7f"


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda: keys.signing_pair(Secret(bytes(31))), id="seed-too-short"),
        pytest.param(lambda: keys.wg_pair(Secret(bytes(33))), id="private-too-long"),
    ],
)
def test_keys_of_another_length_are_refused(call: Callable[[], object]) -> None:
    with pytest.raises(BadValue):
        call()


def test_secrets_do_not_show() -> None:
    assert "hidden" in repr(PAIR)
    assert SEED.reveal().hex() not in repr(PAIR)
