"""What etcdpki issues, and what it refuses to (rules P1 to P3; rows E2, E3, E4)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from ipaddress import ip_network

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from keel.errors import Internal, PkiRejected
from keel.mesh import etcdcert, etcdpki
from keel.mesh.etcdcert import Authority, Generation
from keel.mesh.etcdpki import Credential
from keel.types import LOCALHOST, MeshId, Secret
from tests.pki import make

HOUR = timedelta(hours=1)


def _value(certificate: x509.Certificate, kind: type) -> object:
    return certificate.extensions.get_extension_for_class(kind).value


def test_a_root_lives_ten_years_and_leaves_room_for_a_bridge() -> None:
    root = make.root(generation=7).certificate
    assert root.subject.rfc4514_string() == f"CN={make.MESH} etcd root g7,O=keel"
    assert root.not_valid_before_utc == make.NOW - HOUR
    assert root.not_valid_after_utc == make.NOW + timedelta(days=3650)
    assert _value(root, x509.BasicConstraints) == x509.BasicConstraints(ca=True, path_length=None)
    usage = _value(root, x509.KeyUsage)
    assert (usage.digital_signature, usage.key_cert_sign, usage.crl_sign) == (True, True, True)
    assert (etcdcert.mesh_of(root), etcdcert.generation_of(root)) == (make.MESH, 7)


def test_an_intermediate_is_bound_to_its_member_and_can_make_no_other() -> None:
    made = make.intermediate(number=3).certificate
    assert made.subject.rfc4514_string() == f"CN=keel-{make.ADDRESS.packed.hex()} int g1-3"
    assert made.not_valid_after_utc == make.NOW + timedelta(days=365)
    assert _value(made, x509.BasicConstraints) == x509.BasicConstraints(ca=True, path_length=0)
    constraints = _value(made, x509.NameConstraints)
    assert [each.value for each in constraints.permitted_subtrees] == [
        ip_network((make.ADDRESS, 128)),
        ip_network((LOCALHOST, 128)),
    ]
    assert constraints.excluded_subtrees == [x509.DNSName("")]


def test_a_member_leaf_serves_and_dials_on_its_address_and_on_loopback() -> None:
    leaf = make.member().leaf
    assert leaf.not_valid_after_utc == make.NOW + timedelta(days=30)
    names = _value(leaf, x509.SubjectAlternativeName)
    assert names.get_values_for_type(x509.IPAddress) == [make.ADDRESS, LOCALHOST]
    assert list(_value(leaf, x509.ExtendedKeyUsage)) == [
        ExtendedKeyUsageOID.SERVER_AUTH,
        ExtendedKeyUsageOID.CLIENT_AUTH,
    ]


def test_the_client_leaf_names_mesh_and_member_and_is_no_server() -> None:
    leaf = make.client().leaf
    names = _value(leaf, x509.SubjectAlternativeName)
    assert [name.value for name in names] == [
        f"https://{make.MESH}.keel.internal/member/{make.ADDRESS.packed.hex()}"
    ]
    assert list(_value(leaf, x509.ExtendedKeyUsage)) == [ExtendedKeyUsageOID.CLIENT_AUTH]


def test_no_common_name_holds_a_dot() -> None:
    issued = (
        make.root().certificate,
        make.intermediate().certificate,
        make.member().leaf,
        make.client().leaf,
    )
    for certificate in issued:
        for part in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME):
            assert "." not in str(part.value)


def test_no_certificate_outlives_its_issuer_or_begins_before_it() -> None:
    root = make.root()
    late = root.certificate.not_valid_after_utc - timedelta(days=5)
    under = make.intermediate(root, now=late)
    leaf = make.member(under, now=late).leaf
    assert under.certificate.not_valid_after_utc == root.certificate.not_valid_after_utc
    assert leaf.not_valid_after_utc == root.certificate.not_valid_after_utc
    at_once = make.intermediate(root, now=make.NOW + timedelta(seconds=1)).certificate
    assert at_once.not_valid_before_utc == make.NOW - HOUR + timedelta(seconds=1)
    early = make.intermediate(root, now=make.NOW - timedelta(minutes=30)).certificate
    assert early.not_valid_before_utc == root.certificate.not_valid_before_utc


@pytest.mark.parametrize(
    "offset",
    [
        pytest.param(timedelta(days=3651), id="after its end"),
        pytest.param(timedelta(days=-1), id="before its start"),
    ],
)
def test_an_authority_that_is_not_in_time_signs_nothing(offset: timedelta) -> None:
    root = make.root()
    with pytest.raises(PkiRejected) as caught:
        make.intermediate(root, now=make.NOW + offset)
    assert caught.value.check == "issuer-dates"


def test_an_authority_with_another_key_signs_nothing() -> None:
    wrong = Authority(certificate=make.root().certificate, key=make.key("another"))
    with pytest.raises(PkiRejected) as caught:
        make.intermediate(wrong)
    assert caught.value.check == "key-match"


@pytest.mark.parametrize(
    ("issue", "check"),
    [
        pytest.param(lambda: make.root(mesh=MeshId("a mesh")), "subject", id="a root"),
        pytest.param(lambda: make.intermediate(number=0), "subject", id="an intermediate"),
        pytest.param(
            lambda: make.member(make.intermediate(), address=make.OTHER_ADDRESS),
            "issuer-constraints",
            id="a member's leaf",
        ),
        pytest.param(
            lambda: make.client(make.intermediate(), address=make.OTHER_ADDRESS),
            "issuer-constraints",
            id="a client's leaf",
        ),
    ],
)
def test_what_would_break_the_profile_never_leaves_its_issuer(
    issue: Callable[[], object], check: str
) -> None:
    with pytest.raises(PkiRejected) as caught:
        issue()
    assert caught.value.check == check


@pytest.mark.parametrize(
    "raw", [pytest.param(bytes(20), id="zeros"), pytest.param(b"\xff" * 8, id="too short")]
)
def test_a_serial_without_entropy_is_a_bug(raw: bytes) -> None:
    with pytest.raises(Internal):
        etcdpki.new_root(
            make.MESH, Generation(number=1), key=make.key("k"), serial=raw, now=make.NOW
        )


def test_the_longest_serial_still_has_twenty_octets() -> None:
    made = etcdpki.new_root(
        make.MESH, Generation(number=1), key=make.key("k"), serial=b"\xff" * 20, now=make.NOW
    )
    assert made.serial_number == (1 << 159) - 1
    assert etcdcert.serial_of(made) == "7" + "f" * 39


def _request(private: object, algorithm: hashes.HashAlgorithm | None) -> bytes:
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    made = builder.sign(private, algorithm)  # type: ignore[arg-type]
    return made.public_bytes(serialization.Encoding.DER)


def _broken(request: bytes) -> bytes:
    return request[:-1] + bytes([request[-1] ^ 1])


GOOD_REQUEST = etcdpki.new_request(make.key("member's"), make.ADDRESS)


@pytest.mark.parametrize(
    ("raw", "check"),
    [
        pytest.param(b"0" * 2049, "request-size", id="too large"),
        pytest.param(b"", "request-form", id="nothing"),
        pytest.param(b"\x30\x03\x02\x01\x00", "request-form", id="other DER"),
        pytest.param(GOOD_REQUEST + b"\x00", "request-form", id="something behind it"),
        pytest.param(
            _request(ec.generate_private_key(ec.SECP384R1()), hashes.SHA256()),
            "request-key",
            id="another curve",
        ),
        pytest.param(
            _request(rsa.generate_private_key(65537, 2048), hashes.SHA256()),
            "request-key",
            id="RSA",
        ),
        pytest.param(
            _request(ed25519.Ed25519PrivateKey.generate(), None), "request-key", id="Ed25519"
        ),
        pytest.param(
            _request(ec.generate_private_key(ec.SECP256R1()), hashes.SHA512()),
            "request-signature",
            id="another hash",
        ),
        pytest.param(_broken(GOOD_REQUEST), "request-signature", id="a broken signature"),
    ],
)
def test_a_bad_request_is_refused_by_name(raw: bytes, check: str) -> None:
    with pytest.raises(PkiRejected) as caught:
        etcdpki.check_request(raw)
    assert caught.value.check == check


def test_a_good_request_tells_its_key() -> None:
    checked = etcdpki.check_request(GOOD_REQUEST)
    assert checked.der == GOOD_REQUEST
    made = etcdpki.sign_intermediate(
        make.root(),
        GOOD_REQUEST,
        address=make.ADDRESS,
        number=1,
        serial=make.serial("x"),
        now=make.NOW,
    )
    assert etcdcert.public_key_hash(made) == checked.key


def test_nothing_that_a_request_asks_for_is_honoured() -> None:
    private = etcdcert.load_key(make.key("greedy"))
    greedy = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(etcdcert.root_name(make.MESH, 1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=9), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("evil.example")]), critical=False)
        .sign(private, hashes.SHA256())
        .public_bytes(serialization.Encoding.DER)
    )
    plain = etcdpki.new_request(make.key("greedy"), make.ADDRESS)
    tbs = {
        etcdpki.sign_intermediate(
            make.root(),
            request,
            address=make.ADDRESS,
            number=1,
            serial=make.serial("x"),
            now=make.NOW,
        ).tbs_certificate_bytes
        for request in (greedy, plain)
    }
    assert len(tbs) == 1


def test_a_credential_is_one_file_and_reads_back_equal() -> None:
    credential = make.member()
    raw = etcdpki.encode_credential(credential)
    assert raw.reveal().count(b"-----BEGIN CERTIFICATE-----") == 2
    assert raw.reveal().count(b"-----BEGIN PRIVATE KEY-----") == 1
    assert etcdpki.parse_credential(raw) == credential


CREDENTIAL_PEM = etcdpki.encode_credential(make.member()).reveal()


@pytest.mark.parametrize(
    ("raw", "check"),
    [
        pytest.param(b"", "pem", id="empty"),
        pytest.param(make.key("member").reveal(), "pem", id="key only"),
        pytest.param(etcdcert.pem(make.member().leaf), "key", id="no key"),
        pytest.param(CREDENTIAL_PEM[:-2], "key", id="truncated key"),
        pytest.param(CREDENTIAL_PEM + b"\n", "key", id="something behind it"),
        pytest.param(CREDENTIAL_PEM.replace(b"\n", b"\r\n"), "pem", id="line ends"),
        pytest.param(CREDENTIAL_PEM[1:], "pem", id="a damaged first line"),
        pytest.param(
            etcdcert.pem(make.member().leaf) + make.key("another").reveal(),
            "key-match",
            id="another key",
        ),
        pytest.param(etcdcert.pem(make.member().leaf) * 4 + CREDENTIAL_PEM, "pem", id="too many"),
    ],
)
def test_a_damaged_credential_is_refused_by_name(raw: bytes, check: str) -> None:
    with pytest.raises(PkiRejected) as caught:
        etcdpki.parse_credential(Secret(raw))
    assert caught.value.check == check


def test_no_repr_shows_a_key() -> None:
    credential: Credential = make.member()
    shown = repr(credential) + repr(make.root())
    for secret in (credential.key, make.root().key):
        for line in secret.reveal().decode().splitlines()[1:-1]:
            assert line not in shown
