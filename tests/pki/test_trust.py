"""The trust bundle (rules B1 to B3): one byte form, and never fewer roots by damage."""

from __future__ import annotations

from itertools import permutations

import pytest
from cryptography import x509
from hypothesis import example, given, settings
from hypothesis import strategies as st

from keel.errors import PkiRejected
from keel.mesh import etcdcert, etcdtrust
from tests.pki import make
from tests.pki.make import Changes

ONE = make.root(generation=1).certificate
TWO = make.root(generation=2).certificate
TEN = make.root(generation=10).certificate
FOREIGN = make.root(mesh=make.OTHER_MESH, generation=2).certificate
BUNDLE = etcdtrust.encode_bundle([ONE, TWO])


def _again(root: x509.Certificate, key: str) -> x509.Certificate:
    """A second root of the same name."""
    return make.rebuilt(
        root, Changes(serial=int.from_bytes(make.serial("again"), "big") >> 1), signer=make.key(key)
    )


def test_a_bundle_has_one_form_whatever_the_order() -> None:
    for roots in permutations([ONE, TEN]):
        raw = etcdtrust.encode_bundle(roots)
        assert raw == etcdcert.pem(TEN) + etcdcert.pem(ONE)
        assert etcdtrust.parse_bundle(raw) == (TEN, ONE)


def test_one_root_is_a_bundle_too() -> None:
    assert etcdtrust.parse_bundle(etcdtrust.encode_bundle([ONE])) == (ONE,)


@pytest.mark.parametrize(
    ("roots", "check"),
    [
        pytest.param([], "bundle-size", id="none"),
        pytest.param([ONE, TWO, TEN], "bundle-size", id="three"),
        pytest.param([ONE, ONE], "bundle-generation", id="one twice"),
        pytest.param(
            [ONE, _again(ONE, f"root {make.MESH} 1")],
            "bundle-generation",
            id="two of one generation",
        ),
        pytest.param([ONE, FOREIGN], "bundle-mesh", id="two meshes"),
        pytest.param([make.intermediate().certificate], "subject", id="an intermediate"),
        pytest.param(
            [make.rebuilt(ONE, Changes(), signer=make.key("x"))], "signature", id="not self-signed"
        ),
    ],
)
def test_a_set_that_is_no_bundle_is_not_written(roots: list[x509.Certificate], check: str) -> None:
    with pytest.raises(PkiRejected) as caught:
        etcdtrust.encode_bundle(roots)
    assert caught.value.check == check


@pytest.mark.parametrize(
    ("raw", "check"),
    [
        pytest.param(b"", "pem", id="empty"),
        pytest.param(etcdcert.pem(ONE) + etcdcert.pem(TWO), "bundle-order", id="older first"),
        pytest.param(etcdcert.pem(TWO) * 2, "bundle-generation", id="one twice"),
        pytest.param(BUNDLE + etcdcert.pem(ONE), "pem", id="three blocks"),
        pytest.param(BUNDLE + make.key("x").reveal(), "pem", id="a key in it"),
        pytest.param(
            BUNDLE + etcdcert.pem(make.intermediate().certificate), "pem", id="an intermediate too"
        ),
        pytest.param(
            etcdcert.pem(ONE) + etcdcert.pem(make.intermediate().certificate),
            "subject",
            id="an intermediate beside a root",
        ),
        pytest.param(BUNDLE.replace(b"\n", b"\r\n"), "pem", id="line ends"),
    ],
)
def test_other_bytes_are_refused_by_name(raw: bytes, check: str) -> None:
    with pytest.raises(PkiRejected) as caught:
        etcdtrust.parse_bundle(raw)
    assert caught.value.check == check


def _parsed(raw: bytes) -> tuple[x509.Certificate, ...] | None:
    try:
        return etcdtrust.parse_bundle(raw)
    except PkiRejected:
        return None


@given(st.integers(0, len(BUNDLE) - 1))
@settings(max_examples=300)
@example(len(etcdcert.pem(TWO)))
def test_a_truncated_bundle_is_an_error_unless_it_ends_between_two_roots(length: int) -> None:
    """At the one length where a whole block is left it is another, smaller bundle: that is why
    bundles are compared by fingerprints before they are installed."""
    found = _parsed(BUNDLE[:length])
    assert found == ((TWO,) if length == len(etcdcert.pem(TWO)) else None)


@pytest.mark.filterwarnings("ignore:Parsed a negative serial number")
@given(st.integers(0, len(BUNDLE) - 1), st.integers(0, 255))
@settings(max_examples=500)
@example(1005, 47)
def test_no_changed_byte_goes_unnoticed(position: int, value: int) -> None:
    changed = BUNDLE[:position] + bytes([value]) + BUNDLE[position + 1 :]
    assert _parsed(changed) == ((TWO, ONE) if changed == BUNDLE else None)


@given(st.integers(0, len(BUNDLE)), st.binary(min_size=1, max_size=80))
@settings(max_examples=300)
def test_nothing_can_be_put_in(position: int, more: bytes) -> None:
    assert _parsed(BUNDLE[:position] + more + BUNDLE[position:]) is None


@given(st.binary(max_size=3000))
@settings(max_examples=200)
def test_other_bytes_are_no_bundle(raw: bytes) -> None:
    assert _parsed(raw) is None


def test_bundles_are_compared_by_fingerprints() -> None:
    assert etcdtrust.fingerprints([ONE, TWO]) == {
        etcdcert.fingerprint(ONE),
        etcdcert.fingerprint(TWO),
    }
