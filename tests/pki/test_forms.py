"""The forms of certificates and keys (rules F1 to F3), names, and signatures by a root."""

from __future__ import annotations

import base64
import hashlib
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from keel.errors import Internal, PkiRejected
from keel.mesh import etcdcert
from keel.mesh.etcdcert import Authority, Generation
from keel.mesh.etcdprofile import key_usage
from keel.types import Secret
from tests.pki import make
from tests.pki.make import Changes

ROOT = make.root()
DER = etcdcert.der(ROOT.certificate)
PEM = etcdcert.pem(ROOT.certificate)


def _pkcs8(private: object, encryption: object = None) -> Secret:
    return Secret(
        private.private_bytes(  # type: ignore[attr-defined]
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            encryption or serialization.NoEncryption(),
        )
    )


# -- keys


def test_a_key_follows_from_its_entropy_and_only_from_it() -> None:
    assert make.key("a") == make.key("a")
    assert make.key("a") != make.key("b")


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(bytes(40), id="zeros"),
        pytest.param(b"\xff" * 40, id="ones"),
        pytest.param(bytes(range(39)), id="too short"),
    ],
)
def test_a_key_without_entropy_is_a_bug(raw: bytes) -> None:
    with pytest.raises(Internal):
        etcdcert.new_key(Secret(raw))


def test_a_generation_is_p256_unless_it_says_otherwise() -> None:
    assert Generation(number=1).algorithm is etcdcert.Algorithm.P256


EC_KEY = ec.generate_private_key(ec.SECP256R1())


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(Secret(b""), id="empty"),
        pytest.param(Secret(PEM), id="a certificate"),
        pytest.param(Secret(b"x" * 4097), id="too large"),
        pytest.param(_pkcs8(ec.generate_private_key(ec.SECP384R1())), id="another curve"),
        pytest.param(_pkcs8(rsa.generate_private_key(65537, 2048)), id="RSA"),
        pytest.param(
            _pkcs8(EC_KEY, serialization.BestAvailableEncryption(b"secret")), id="encrypted"
        ),
        pytest.param(
            Secret(
                EC_KEY.private_bytes(
                    serialization.Encoding.PEM,
                    serialization.PrivateFormat.TraditionalOpenSSL,
                    serialization.NoEncryption(),
                )
            ),
            id="SEC 1",
        ),
        pytest.param(Secret(_pkcs8(EC_KEY).reveal() + b"\n"), id="something behind it"),
    ],
)
def test_another_key_or_another_spelling_is_refused_without_its_bytes(key: Secret) -> None:
    with pytest.raises(PkiRejected) as caught:
        etcdcert.load_key(key)
    assert caught.value.check == "key"
    assert caught.value.__cause__ is None


def test_a_key_matches_its_own_certificate_only() -> None:
    assert etcdcert.key_matches(ROOT.key, ROOT.certificate)
    assert not etcdcert.key_matches(make.key("x"), ROOT.certificate)


# -- certificates


def test_der_and_pem_read_back_equal() -> None:
    assert etcdcert.parse_certificate(DER) == ROOT.certificate
    assert etcdcert.parse_pem_certificates(PEM, most=1) == (ROOT.certificate,)


def _with_extension(oid: str, value: bytes) -> bytes:
    unknown = x509.UnrecognizedExtension(x509.ObjectIdentifier(oid), value)
    builder = (
        x509.CertificateBuilder()
        .subject_name(ROOT.certificate.subject)
        .issuer_name(ROOT.certificate.issuer)
        .public_key(EC_KEY.public_key())
        .serial_number(5)
        .not_valid_before(make.NOW)
        .not_valid_after(make.NOW + timedelta(days=1))
        .add_extension(unknown, critical=False)
    )
    return etcdcert.der(builder.sign(EC_KEY, hashes.SHA256()))


def _version(number: int) -> bytes:
    return DER.replace(b"\xa0\x03\x02\x01\x02", bytes([0xA0, 3, 2, 1, number]), 1)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x30\x00", id="an empty sequence"),
        pytest.param(DER[:-1], id="truncated"),
        pytest.param(DER + b"\x00", id="something behind it"),
        pytest.param(PEM, id="PEM"),
        pytest.param(b"\x30" * 5000, id="too large"),
        pytest.param(_version(1), id="version 2"),
        pytest.param(_version(9), id="version 10"),
        pytest.param(_with_extension("2.5.29.19", b"\x04\x01x"), id="basic constraints of garbage"),
        pytest.param(_with_extension("2.5.29.17", b"\x30\x04\x83\x02\x05\x00"), id="an X.400 name"),
        pytest.param(DER.replace(b"\x13", b"\x1f"), id="a string of no known kind"),
    ],
)
def test_what_is_not_exactly_one_certificate_is_refused(raw: bytes) -> None:
    with pytest.raises(PkiRejected) as caught:
        etcdcert.parse_certificate(raw)
    assert caught.value.check == "certificate"


def test_a_fingerprint_is_over_the_der_whatever_the_form() -> None:
    expected = hashlib.sha256(DER).hexdigest()
    assert {etcdcert.fingerprint(form) for form in (ROOT.certificate, DER, PEM)} == {expected}


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"garbage", id="garbage"),
        pytest.param(PEM + PEM, id="two certificates"),
        pytest.param(PEM[:-30], id="a truncated block"),
        pytest.param(PEM.replace(b"\n", b"\r\n"), id="line ends"),
        pytest.param(b"# a root\n" + PEM, id="a comment before it"),
        pytest.param(make.key("x").reveal(), id="a key"),
        pytest.param(PEM.replace(b"CERTIFICATE", b"X509 CRL"), id="another label"),
    ],
)
def test_nothing_but_a_certificate_has_a_fingerprint(raw: bytes) -> None:
    with pytest.raises(PkiRejected):
        etcdcert.fingerprint(raw)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(PEM * 3, id="too many"),
        pytest.param(PEM + b"\n", id="an empty line behind it"),
        pytest.param(PEM.replace(b"\n", b"", 1), id="first line joined"),
        pytest.param(PEM.replace(b"-----END", b"----END"), id="END damaged"),
        pytest.param(PEM[:100] + b"!" + PEM[101:], id="not base64"),
        pytest.param(PEM[:100] + b"\n" + PEM[100:], id="other columns"),
        pytest.param(PEM + b" " * 40000, id="too large"),
        pytest.param(
            b"-----BEGIN CERTIFICATE-----\n"
            + base64.b64encode(DER)
            + b"\n-----END CERTIFICATE-----\n",
            id="one long line",
        ),
    ],
)
def test_pem_has_one_form(raw: bytes) -> None:
    with pytest.raises(PkiRejected) as caught:
        etcdcert.parse_pem_certificates(raw, most=2)
    assert caught.value.check == "pem"


def test_a_damaged_certificate_in_sound_pem_is_refused() -> None:
    raw = base64.encodebytes(DER[:-4]).replace(b"\n", b"")
    block = b"-----BEGIN CERTIFICATE-----\n" + raw + b"\n-----END CERTIFICATE-----\n"
    with pytest.raises(PkiRejected) as caught:
        etcdcert.parse_pem_certificates(block, most=2)
    assert caught.value.check == "certificate"


# -- names and dates


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(x509.Name([]), id="empty"),
        pytest.param(etcdcert.common_name(f"{make.MESH} etcd root g1"), id="no organisation"),
        pytest.param(etcdcert.root_name(make.MESH, 0), id="generation 0"),
        pytest.param(
            x509.Name([*etcdcert.root_name(make.MESH, 1), *etcdcert.common_name("x")]),
            id="two common names",
        ),
        pytest.param(etcdcert.common_name("someone"), id="someone else"),
    ],
)
def test_a_name_that_is_no_roots_has_no_generation(name: x509.Name) -> None:
    with pytest.raises(PkiRejected) as caught:
        etcdcert.name_words(name)
    assert caught.value.check == "subject"


def test_names_carry_no_dot_and_fit() -> None:
    label = etcdcert.intermediate_name(make.ADDRESS, generation=999_999, number=999_999)
    (part,) = label
    assert "." not in str(part.value)
    assert len(str(part.value)) <= 64


# -- signatures by a root

MESSAGE = b"DSSEv1 28 application/vnd.keel.x+json 2 {}"


def test_a_root_signs_bytes_and_its_certificate_verifies_them() -> None:
    signature = etcdcert.sign_with_root(ROOT, MESSAGE)
    assert etcdcert.verify_root_signature(ROOT.certificate, MESSAGE, signature)


def _resigned(changes: Changes) -> x509.Certificate:
    return make.rebuilt(ROOT.certificate, changes, signer=ROOT.key)


P384 = ec.generate_private_key(ec.SECP384R1())


@pytest.mark.parametrize(
    ("certificate", "message", "signature"),
    [
        pytest.param(ROOT.certificate, MESSAGE + b"x", None, id="another message"),
        pytest.param(make.root(generation=2).certificate, MESSAGE, None, id="another root"),
        pytest.param(ROOT.certificate, MESSAGE, b"", id="no signature"),
        pytest.param(ROOT.certificate, MESSAGE, b"\x30\x06\x02\x01\x01\x02\x01\x01", id="tiny"),
        pytest.param(
            _resigned(
                Changes(
                    extensions={x509.KeyUsage: (True, key_usage(key_cert_sign=True, crl_sign=True))}
                )
            ),
            MESSAGE,
            None,
            id="a root without digitalSignature",
        ),
        pytest.param(
            _resigned(Changes(without=(x509.KeyUsage,))), MESSAGE, None, id="no key usage"
        ),
        pytest.param(
            _resigned(Changes(issuer=etcdcert.common_name("x"))), MESSAGE, None, id="no root"
        ),
        pytest.param(
            make.rebuilt(ROOT.certificate, Changes(public=P384.public_key()), signer=P384),
            MESSAGE,
            P384.sign(MESSAGE, ec.ECDSA(hashes.SHA256())),
            id="a P-384 root",
        ),
    ],
)
def test_a_signature_that_is_not_the_roots_does_not_verify(
    certificate: x509.Certificate, message: bytes, signature: bytes | None
) -> None:
    made = etcdcert.sign_with_root(ROOT, MESSAGE) if signature is None else signature
    assert not etcdcert.verify_root_signature(certificate, message, made)


def test_a_members_leaf_signs_no_records() -> None:
    leaf = make.member()
    signature = etcdcert.load_key(leaf.key).sign(MESSAGE, ec.ECDSA(hashes.SHA256()))
    assert not etcdcert.verify_root_signature(leaf.leaf, MESSAGE, signature)


@pytest.mark.parametrize(
    "authority",
    [
        pytest.param(make.intermediate(), id="an intermediate"),
        pytest.param(Authority(certificate=ROOT.certificate, key=make.key("x")), id="another key"),
    ],
)
def test_only_a_root_with_its_own_key_signs_records(authority: Authority) -> None:
    with pytest.raises(Internal):
        etcdcert.sign_with_root(authority, MESSAGE)
