"""Issues etcd's certificates: roots, intermediates from verified requests, leaves, credentials.

Owns what goes into a certificate. What must be in it is said a second time and independently by
etcdprofile, which looks at everything made here before it is handed out. Pure but for the nonces
that the library draws for ECDSA: keys, serials and `now` come in.

Rules:
(P1) Nothing of a request is honoured but its key, and that only with the request's own signature.
(P2) notBefore is an hour back (clocks differ), never before the issuer's; notAfter is never after
     the issuer's.
(P3) An authority whose key is not its certificate's signs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv6Address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, SignatureAlgorithmOID

from keel import secretcache
from keel.errors import Internal, PkiRejected
from keel.mesh import etcdcert
from keel.mesh.etcdcert import Authority, Generation, PublicKeyHash
from keel.mesh.etcdids import member_name
from keel.mesh.etcdprofile import (
    BACKDATED,
    INTERMEDIATE_LIFE,
    LEAF_LIFE,
    ROOT_LIFE,
    Kind,
    key_usage,
    only,
    profile_check,
)
from keel.types import LOCALHOST, MeshId, Secret

SERIAL_BYTES = 20
MAX_REQUEST_BYTES = 2048  # keel's own are below 300 bytes
MAX_CHAIN = 3  # an intermediate, and during a rotation a bridge behind it; one to spare

_KEY_BLOCK = b"-----BEGIN PRIVATE KEY-----\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A certificate request that passed check_request; only its key counts (P1)."""

    der: bytes
    key: PublicKeyHash
    public: ec.EllipticCurvePublicKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """What a TLS end presents: its leaf, the chain above it without the root, the leaf's key."""

    leaf: x509.Certificate
    chain: tuple[x509.Certificate, ...]
    key: Secret


def new_root(
    mesh: MeshId, generation: Generation, *, key: Secret, serial: bytes, now: datetime
) -> x509.Certificate:
    """A generation's self-signed root (10 years, no pathLen: a later bridge needs it free)."""
    private = etcdcert.load_key(key)
    name = etcdcert.root_name(mesh, generation.number)
    not_before = _whole_second(now - BACKDATED)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(_serial(serial))
        .not_valid_before(not_before)
        .not_valid_after(not_before + BACKDATED + ROOT_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            key_usage(digital_signature=True, key_cert_sign=True, crl_sign=True), critical=True
        )
    )
    root = _signed(builder, private.public_key(), private.public_key(), private)
    profile_check(Kind.ROOT, root, root, address=None)
    return root


def new_request(key: Secret, address: IPv6Address) -> bytes:
    """A certificate request (DER) for the member's own intermediate key."""
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(etcdcert.common_name(member_name(address)))
        .sign(etcdcert.load_key(key), hashes.SHA256())
    )
    return request.public_bytes(serialization.Encoding.DER)


def check_request(raw: bytes) -> Request:
    """Size, form, P-256 and the request's own signature; PkiRejected names what is wrong."""
    if len(raw) > MAX_REQUEST_BYTES:
        raise PkiRejected(
            "request-size", got=f"{len(raw)} bytes", expected=f"at most {MAX_REQUEST_BYTES}"
        )
    try:
        request = x509.load_der_x509_csr(raw)
        public = request.public_key()
        algorithm = request.signature_algorithm_oid
    except etcdcert.UNPARSED as error:
        raise PkiRejected(
            "request-form", got="bytes that do not parse", expected="a DER certificate request"
        ) from error
    if not isinstance(public, ec.EllipticCurvePublicKey) or not etcdcert.is_p256(public):
        raise PkiRejected("request-key", got="another kind of key", expected="a P-256 key")
    if algorithm != SignatureAlgorithmOID.ECDSA_WITH_SHA256 or not request.is_signature_valid:
        raise PkiRejected(
            "request-signature", got="none by its own key", expected="ecdsa-with-SHA256 by its key"
        )
    return Request(der=raw, key=etcdcert.public_key_hash(request), public=public)


def sign_intermediate(
    root: Authority,
    request: bytes,
    *,
    address: IPv6Address,
    number: int,
    serial: bytes,
    now: datetime,
) -> x509.Certificate:
    """A member's intermediate (1 year) for its /128 and ::1; `number` counts the member's own."""
    checked = check_request(request)
    generation = etcdcert.generation_of(root.certificate)
    name = etcdcert.intermediate_name(address, generation=generation, number=number)
    builder = (
        _builder(root.certificate, INTERMEDIATE_LIFE, now)
        .subject_name(name)
        .public_key(checked.public)
        .serial_number(_serial(serial))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_usage(key_cert_sign=True), critical=True)
        .add_extension(
            x509.NameConstraints(
                permitted_subtrees=[only(address), only(LOCALHOST)],
                excluded_subtrees=[x509.DNSName("")],
            ),
            critical=True,
        )
    )
    made = _signed_by(root, builder, checked.public)
    profile_check(Kind.INTERMEDIATE, made, root.certificate, address=address)
    return made


def member_leaf(
    intermediate: Authority, *, key: Secret, address: IPv6Address, serial: bytes, now: datetime
) -> x509.Certificate:
    """The member's certificate for 2379 and 2380, both as server and as client (30 days)."""
    made = _leaf(
        intermediate,
        "keel-peer",
        [x509.IPAddress(address), x509.IPAddress(LOCALHOST)],
        [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH],
        key=key,
        serial=serial,
        now=now,
    )
    profile_check(Kind.MEMBER, made, intermediate.certificate, address=address)
    return made


def client_leaf(
    intermediate: Authority, *, key: Secret, address: IPv6Address, serial: bytes, now: datetime
) -> x509.Certificate:
    """keel's own client certificate (30 days); its URI names mesh and member."""
    mesh, _ = etcdcert.name_words(intermediate.certificate.issuer)
    made = _leaf(
        intermediate,
        "keel-client",
        [x509.UniformResourceIdentifier(etcdcert.client_uri(mesh, address))],
        [ExtendedKeyUsageOID.CLIENT_AUTH],
        key=key,
        serial=serial,
        now=now,
    )
    profile_check(Kind.CLIENT, made, intermediate.certificate, address=address)
    return made


def encode_credential(credential: Credential) -> Secret:
    """Leaf, chain and key in ONE PEM file, so that a single rename replaces all of them."""
    certificates = b"".join(etcdcert.pem(one) for one in (credential.leaf, *credential.chain))
    return Secret(certificates + credential.key.reveal())


def parse_credential(raw: Secret) -> Credential:
    """The inverse, canonical form only; PkiRejected `pem`, `certificate`, `key`, `key-match`."""
    return _parsed(raw.reveal())


@secretcache.remembered
def _parsed(raw: bytes) -> Credential:
    head, block, tail = raw.partition(_KEY_BLOCK)
    leaf, *chain = etcdcert.parse_pem_certificates(head, most=1 + MAX_CHAIN)
    key = Secret(block + tail)
    if not etcdcert.key_matches(key, leaf):
        raise PkiRejected("key-match", got="another key", expected="the key of the certificate")
    return Credential(leaf=leaf, chain=tuple(chain), key=key)


def _leaf(
    intermediate: Authority,
    name: str,
    names: Iterable[x509.GeneralName],
    usages: Iterable[x509.ObjectIdentifier],
    *,
    key: Secret,
    serial: bytes,
    now: datetime,
) -> x509.Certificate:
    public = etcdcert.load_key(key).public_key()
    builder = (
        _builder(intermediate.certificate, LEAF_LIFE, now)
        .subject_name(etcdcert.common_name(name))
        .public_key(public)
        .serial_number(_serial(serial))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
    )
    return _signed_by(intermediate, builder, public)


def _builder(issuer: x509.Certificate, life: timedelta, now: datetime) -> x509.CertificateBuilder:
    """Issuer and dates by P2."""
    now = _whole_second(now)
    if not issuer.not_valid_before_utc <= now < issuer.not_valid_after_utc:
        ends = f"{issuer.not_valid_before_utc:%Y-%m-%d} to {issuer.not_valid_after_utc:%Y-%m-%d}"
        raise PkiRejected("issuer-dates", got=f"{now:%Y-%m-%d}", expected=ends)
    return (
        x509.CertificateBuilder()
        .issuer_name(issuer.subject)
        .not_valid_before(max(now - BACKDATED, issuer.not_valid_before_utc))
        .not_valid_after(min(now + life, issuer.not_valid_after_utc))
    )


def _signed_by(
    authority: Authority, builder: x509.CertificateBuilder, subject: ec.EllipticCurvePublicKey
) -> x509.Certificate:
    private = etcdcert.load_key(authority.key)
    if private.public_key() != authority.certificate.public_key():
        raise PkiRejected("key-match", got="another key", expected="the issuer's key")  # P3
    return _signed(builder, subject, private.public_key(), private)


def _signed(
    builder: x509.CertificateBuilder,
    subject: ec.EllipticCurvePublicKey,
    issuer: ec.EllipticCurvePublicKey,
    private: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    return (
        builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(subject), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), critical=False)
        .sign(private, hashes.SHA256())
    )


def _serial(raw: bytes) -> int:
    """159 bits: positive, and never more than 20 octets of DER."""
    number = int.from_bytes(raw, "big") >> 1
    if len(raw) != SERIAL_BYTES or number.bit_length() < 96:
        raise Internal(f"a serial needs {SERIAL_BYTES} random bytes")
    return number


def _whole_second(when: datetime) -> datetime:
    return when.astimezone(UTC).replace(microsecond=0)
