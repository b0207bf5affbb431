"""The merged CRL (rules L1 to L4, row E5)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given, settings
from hypothesis import strategies as st

from keel import codec
from keel.errors import Internal, PkiRejected
from keel.mesh import etcdcert, etcdcrl
from keel.mesh.etcdcert import Authority, Serial
from keel.mesh.etcdcrl import Reason, Revoked
from tests.pki import make

ROOT = make.root()
TWO = make.root(generation=2)
INTERMEDIATE = make.intermediate()


def _revoked(
    number: int = 1, reason: Reason = Reason.SUPERSEDED, at: datetime = make.NOW
) -> Revoked:
    return Revoked(serial=etcdcert.format_serial(number), reason=reason, at=at)


def _crl(*revoked: Revoked, number: int = 5, root: Authority = ROOT) -> bytes:
    return etcdcrl.new_crl(root, revoked, number=number, now=make.NOW)


def test_an_empty_crl_is_one_too() -> None:
    raw = _crl()
    crl = etcdcrl.read_crl(raw, [ROOT.certificate])
    assert (crl.der, crl.number, crl.revoked) == (raw, 5, ())
    assert crl.this_update == make.NOW - timedelta(hours=1)
    assert crl.next_update == make.NOW + timedelta(days=30)
    assert crl.signer == etcdcert.fingerprint(ROOT.certificate)


def test_what_was_revoked_reads_back_equal() -> None:
    entries = etcdcrl.unite(_revoked(number, reason) for number, reason in enumerate(Reason, 1))
    crl = etcdcrl.read_crl(_crl(*entries), [ROOT.certificate])
    assert crl.revoked == entries


def test_a_crl_revokes_by_serial() -> None:
    serial = etcdcert.serial_of(INTERMEDIATE.certificate)
    entry = Revoked(serial=serial, reason=Reason.CESSATION, at=make.NOW)
    crl = etcdcrl.read_crl(_crl(entry), [ROOT.certificate])
    assert crl.revokes(INTERMEDIATE.certificate)
    assert not crl.revokes(make.member().leaf)


def test_a_crl_is_late_after_its_next_update_and_still_counts() -> None:
    crl = etcdcrl.read_crl(_crl(), [ROOT.certificate])
    assert not crl.late(crl.next_update)
    assert crl.late(crl.next_update + timedelta(seconds=1))


def test_the_current_root_signs_the_serials_of_every_generation() -> None:
    of_one = make.intermediate(ROOT).certificate
    entry = Revoked(serial=etcdcert.serial_of(of_one), reason=Reason.KEY_COMPROMISE, at=make.NOW)
    crl = etcdcrl.read_crl(_crl(entry, root=TWO, number=6), [TWO.certificate, ROOT.certificate])
    assert crl.revokes(of_one)
    assert crl.signer == etcdcert.fingerprint(TWO.certificate)


# -- uniting


def test_of_two_entries_the_earlier_date_and_the_graver_reason_stay() -> None:
    later = make.NOW + timedelta(days=1)
    united = etcdcrl.unite(
        [_revoked(1, Reason.KEY_COMPROMISE, later)],
        [_revoked(1, Reason.SUPERSEDED, make.NOW), _revoked(2)],
    )
    assert united == (_revoked(1, Reason.KEY_COMPROMISE, make.NOW), _revoked(2))


ENTRIES = st.builds(
    _revoked,
    st.integers(1, 6),
    st.sampled_from(list(Reason)),
    st.integers(-1000, 1000).map(lambda minutes: make.NOW + timedelta(minutes=minutes)),
)


@given(st.lists(ENTRIES, max_size=12), st.randoms(use_true_random=False))
@settings(max_examples=100)
def test_uniting_has_one_result_in_any_order_and_split(entries: list[Revoked], chance: Any) -> None:
    shuffled = list(entries)
    chance.shuffle(shuffled)
    at = len(shuffled) // 2
    united = etcdcrl.unite(entries)
    assert etcdcrl.unite(shuffled[:at], shuffled[at:]) == united
    assert etcdcrl.unite(united, entries) == united
    assert {entry.serial for entry in united} == {entry.serial for entry in entries}


def test_an_entry_is_a_record_like_any_other() -> None:
    entry = _revoked(77, Reason.CESSATION)
    raw = codec.dumps(entry)
    assert codec.loads(Revoked, raw, max_bytes=1000) == entry


# -- making


@pytest.mark.parametrize(
    ("root", "number"),
    [
        pytest.param(ROOT, 0, id="number 0"),
        pytest.param(
            Authority(certificate=ROOT.certificate, key=make.key("x")), 1, id="another key"
        ),
    ],
)
def test_a_crl_without_number_or_key_is_a_bug(root: Authority, number: int) -> None:
    with pytest.raises(Internal):
        etcdcrl.new_crl(root, (), number=number, now=make.NOW)


def test_a_root_is_never_put_on_a_crl() -> None:
    entry = Revoked(
        serial=etcdcert.serial_of(ROOT.certificate), reason=Reason.KEY_COMPROMISE, at=make.NOW
    )
    with pytest.raises(PkiRejected) as caught:
        _crl(entry)
    assert caught.value.check == "crl-root"


@pytest.mark.parametrize(
    "serial",
    [pytest.param("0" * 40, id="zero"), pytest.param("8" + "0" * 39, id="of 160 bits")],
)
def test_a_serial_that_is_none_is_not_put_on_a_crl(serial: str) -> None:
    with pytest.raises(PkiRejected) as caught:
        _crl(Revoked(serial=Serial(serial), reason=Reason.SUPERSEDED, at=make.NOW))
    assert caught.value.check == "crl-entry"


# -- reading


def _by_hand(
    *,
    signer: object = None,
    issuer: x509.Name | None = None,
    algorithm: hashes.HashAlgorithm | None = None,
    next_update: datetime | None = make.NOW + timedelta(days=1),
    extensions: tuple[tuple[x509.ExtensionType, bool], ...] | None = None,
    entries: tuple[x509.RevokedCertificate, ...] = (),
) -> bytes:
    """A CRL with none of keel's rules; good unless told otherwise."""
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(ROOT.certificate.public_key())
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(issuer or ROOT.certificate.subject)
        .last_update(make.NOW)
        .next_update(next_update or make.NOW)
    )
    for value, critical in extensions or ((identifier, False), (x509.CRLNumber(5), False)):
        builder = builder.add_extension(value, critical=critical)
    for entry in entries:
        builder = builder.add_revoked_certificate(entry)
    private: Any = signer or etcdcert.load_key(ROOT.key)
    made = builder.sign(private, algorithm or hashes.SHA256())
    return made.public_bytes(serialization.Encoding.DER)


def _entry(
    number: int = 1, *extensions: tuple[x509.ExtensionType, bool]
) -> x509.RevokedCertificate:
    builder = x509.RevokedCertificateBuilder(number, make.NOW.replace(tzinfo=None))
    for value, critical in extensions:
        builder = builder.add_extension(value, critical=critical)
    return builder.build()


_AKI = x509.AuthorityKeyIdentifier.from_issuer_public_key(ROOT.certificate.public_key())
_OTHER_AKI = x509.AuthorityKeyIdentifier.from_issuer_public_key(TWO.certificate.public_key())
_SERIAL = ROOT.certificate.serial_number

WRONG: dict[str, tuple[str, Callable[[], bytes]]] = {
    "nothing": ("crl-form", lambda: b""),
    "PEM": ("crl-form", lambda: b"-----BEGIN X509 CRL-----\n"),
    "a certificate": ("crl-form", lambda: etcdcert.der(ROOT.certificate)),
    "truncated": ("crl-form", lambda: _crl()[:-1]),
    "something behind it": ("crl-form", lambda: _crl() + b"\x00"),
    "too large": ("crl-size", lambda: bytes(etcdcrl.MAX_CRL_BYTES + 1)),
    "another root's": ("crl-signer", lambda: _crl(root=TWO)),
    "a signature that was altered": (
        "crl-signer",
        lambda: _crl()[:-1] + bytes([_crl()[-1] ^ 1]),
    ),
    "the root's name on another's signature": (
        "crl-signer",
        lambda: _by_hand(signer=etcdcert.load_key(make.key("x"))),
    ),
    "a member's own": ("crl-signer", lambda: _by_hand(issuer=INTERMEDIATE.certificate.subject)),
    "SHA-512": ("crl-algorithm", lambda: _by_hand(algorithm=hashes.SHA512())),
    "RSA": (
        "crl-algorithm",
        lambda: _by_hand(signer=rsa.generate_private_key(65537, 2048)),
    ),
    "nextUpdate not after thisUpdate": ("crl-dates", lambda: _by_hand(next_update=None)),
    "no number": ("crl-extensions", lambda: _by_hand(extensions=((_AKI, False),))),
    "no key identifier": (
        "crl-extensions",
        lambda: _by_hand(extensions=((x509.CRLNumber(5), False),)),
    ),
    "a critical number": (
        "crl-extensions",
        lambda: _by_hand(extensions=((_AKI, False), (x509.CRLNumber(5), True))),
    ),
    "an issuing distribution point": (
        "crl-extensions",
        lambda: _by_hand(
            extensions=(
                (_AKI, False),
                (x509.CRLNumber(5), False),
                (
                    x509.IssuingDistributionPoint(None, None, False, True, None, False, False),
                    True,
                ),
            )
        ),
    ),
    "another key's identifier": (
        "crl-key-identifier",
        lambda: _by_hand(extensions=((_OTHER_AKI, False), (x509.CRLNumber(5), False))),
    ),
    "number 0": (
        "crl-number",
        lambda: _by_hand(extensions=((_AKI, False), (x509.CRLNumber(0), False))),
    ),
    "an endless number": (
        "crl-number",
        lambda: _by_hand(extensions=((_AKI, False), (x509.CRLNumber(1 << 159), False))),
    ),
    "a serial twice": ("crl-entry", lambda: _by_hand(entries=(_entry(), _entry()))),
    "the root itself": ("crl-root", lambda: _by_hand(entries=(_entry(_SERIAL),))),
    "a reason that takes back": (
        "crl-entry",
        lambda: _by_hand(
            entries=(_entry(1, (x509.CRLReason(x509.ReasonFlags.remove_from_crl), False)),)
        ),
    ),
    "a critical reason": (
        "crl-entry",
        lambda: _by_hand(entries=(_entry(1, (x509.CRLReason(x509.ReasonFlags.superseded), True)),)),
    ),
    "another extension of an entry": (
        "crl-entry",
        lambda: _by_hand(
            entries=(_entry(1, (x509.InvalidityDate(make.NOW.replace(tzinfo=None)), False)),)
        ),
    ),
    "reason unspecified": (
        "crl-entry",
        lambda: _by_hand(
            entries=(_entry(1, (x509.CRLReason(x509.ReasonFlags.unspecified), False)),)
        ),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_crl_is_refused_by_name(name: str) -> None:
    check, build = WRONG[name]
    with pytest.raises(PkiRejected) as caught:
        etcdcrl.read_crl(build(), [ROOT.certificate])
    assert caught.value.check == check


def test_the_crl_made_by_hand_is_good_but_for_what_is_changed() -> None:
    crl = etcdcrl.read_crl(_by_hand(entries=(_entry(3),)), [ROOT.certificate])
    assert crl.revoked == (_revoked(3, Reason.UNSPECIFIED),)


def test_a_root_of_another_kind_signs_no_crl() -> None:
    private = ec.generate_private_key(ec.SECP384R1())
    certificate = make.rebuilt(
        ROOT.certificate, make.Changes(public=private.public_key()), signer=private
    )
    with pytest.raises(PkiRejected) as caught:
        etcdcrl.read_crl(_by_hand(signer=private), [certificate])
    assert caught.value.check == "crl-signer"


@pytest.mark.parametrize(
    ("held", "taken"),
    [
        pytest.param(0, True, id="none held"),
        pytest.param(4, True, id="newer"),
        pytest.param(5, False, id="the same number"),
        pytest.param(6, False, id="older"),
    ],
)
def test_only_a_higher_number_is_taken(held: int, taken: bool) -> None:
    raw = _crl(number=5)
    if taken:
        assert etcdcrl.accept_crl(raw, [ROOT.certificate], held_number=held).number == 5
    else:
        with pytest.raises(PkiRejected, match="crl-older"):
            etcdcrl.accept_crl(raw, [ROOT.certificate], held_number=held)


GOOD = _crl(_revoked(1), _revoked(2, Reason.UNSPECIFIED))


@given(st.integers(0, len(GOOD) - 1), st.integers(1, 255))
@settings(max_examples=400)
def test_no_changed_byte_of_a_crl_goes_unnoticed(position: int, difference: int) -> None:
    changed = bytearray(GOOD)
    changed[position] ^= difference
    with pytest.raises(PkiRejected):
        etcdcrl.read_crl(bytes(changed), [ROOT.certificate])


@given(st.binary(max_size=500))
@settings(max_examples=200)
def test_other_bytes_are_no_crl(raw: bytes) -> None:
    with pytest.raises(PkiRejected):
        etcdcrl.read_crl(raw, [ROOT.certificate])


def test_ten_thousand_entries_fit() -> None:
    entries = [
        _revoked(int.from_bytes(make.bytes_of(f"{number}", 20), "big") >> 1)
        for number in range(10_000)
    ]
    raw = _crl(*entries)
    assert len(raw) < etcdcrl.MAX_CRL_BYTES
    assert len(etcdcrl.read_crl(raw, [ROOT.certificate]).revoked) == 10_000
