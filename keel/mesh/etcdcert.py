"""Certificates and keys as bytes: parsing, naming, fingerprints, and signatures by a root.

Owns the forms in which certificates and keys come in and go out, and the names inside them. Issues
nothing and trusts nothing: that is etcdpki, etcdprofile and etcdchain.

Rules:
(F1) Whatever comes from outside is bounded first, then parsed whole: a certificate whose later
     fields do not parse is refused here and not where one of them happens to be read.
(F2) PEM has one form: 64 columns, LF, nothing between the blocks. Everything else is damage.
(F3) The algorithm is a field of the generation. P-256 is the only one so far: is_p256 is what the
     others ask, so its callers are the places that another one will have to visit.
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import re
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv6Address
from typing import NewType, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from keel import secretcache
from keel.errors import Internal, PkiRejected
from keel.mesh.etcdids import member_name
from keel.types import Fingerprint, MeshId, Secret

Serial = NewType("Serial", str)
"""A certificate's serial number as 40 lower-case hex digits."""

PublicKeyHash = NewType("PublicKeyHash", str)
"""SHA-256 over a SubjectPublicKeyInfo's DER, as 64 lower-case hex digits."""

T = TypeVar("T", bound=x509.ExtensionType)

MAX_CERTIFICATE_BYTES = 4096  # keel's own are below 800 bytes; an RSA generation would need 2 KiB
MAX_KEY_BYTES = 4096
KEY_ENTROPY_BYTES = 40  # FIPS 186-5 A.2.1: 64 bits more than the order, so that no key is likelier
PARSED = 256
"""Certificates that stay parsed: a member meets its own chain again at every step."""

UNPARSED = (
    ValueError,
    TypeError,
    KeyError,  # cryptography 43: a string in a name with an unknown ASN.1 tag
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)
"""Whatever the library raises, early or late, over bytes that are not what they claim to be."""

_ROOT_NAME = re.compile(r"([0-9a-f]{32}) etcd root g([1-9][0-9]{0,5})")
_BEGIN = b"-----BEGIN CERTIFICATE-----\n"
_END = b"-----END CERTIFICATE-----\n"


class Algorithm(StrEnum):
    """What kind of keys a generation has (R12 adds others)."""

    P256 = "p256"


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """Which root: its number is in the root's DN and in every path, and is never used again."""

    number: int
    algorithm: Algorithm = Algorithm.P256


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """A certificate that signs, and its key (PKCS #8 PEM)."""

    certificate: x509.Certificate
    key: Secret


def new_key(entropy: Secret, algorithm: Algorithm = Algorithm.P256) -> Secret:
    """A private key as PKCS #8 PEM, made from KEY_ENTROPY_BYTES unpredictable bytes."""
    raw = entropy.reveal()
    if len(raw) != KEY_ENTROPY_BYTES or len(set(raw)) == 1:
        raise Internal(f"a key needs {KEY_ENTROPY_BYTES} random bytes")
    curve, order = _CURVES[algorithm]
    scalar = int.from_bytes(raw, "big") % (order - 1) + 1
    return _key_pem(ec.derive_private_key(scalar, curve))


def load_key(key: Secret) -> ec.EllipticCurvePrivateKey:
    """The private key inside the one PEM form keel writes (F2); PkiRejected `key` otherwise."""
    raw = key.reveal()
    if len(raw) > MAX_KEY_BYTES:
        raise _rejected("key", "too many bytes", f"at most {MAX_KEY_BYTES}")
    return _loaded_key(raw)


@secretcache.remembered
def _loaded_key(raw: bytes) -> ec.EllipticCurvePrivateKey:
    try:
        loaded = serialization.load_pem_private_key(raw, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # the library's words may quote the input: they are left out of the chain on purpose
        raise _rejected("key", "no readable key", "a P-256 key as PKCS #8 PEM") from None
    if not isinstance(loaded, ec.EllipticCurvePrivateKey) or not is_p256(loaded.public_key()):
        raise _rejected("key", "another kind of key", "a P-256 key as PKCS #8 PEM")
    if _key_pem(loaded) != Secret(raw):
        raise _rejected("key", "another spelling of the key", "PKCS #8 PEM as keel writes it")
    return loaded


def is_p256(key: object) -> bool:
    return isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1)


def key_matches(key: Secret, certificate: x509.Certificate) -> bool:
    """Whether the private key is the certificate's."""
    return load_key(key).public_key() == certificate.public_key()


def public_key_hash(of: x509.Certificate | x509.CertificateSigningRequest) -> PublicKeyHash:
    """Names the key: the same for a request, its certificate and every later one of that key."""
    der = of.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return PublicKeyHash(hashlib.sha256(der).hexdigest())


@functools.lru_cache(maxsize=PARSED)
def parse_certificate(raw: bytes) -> x509.Certificate:
    """One certificate from DER, parsed whole (F1); PkiRejected `certificate` otherwise."""
    if len(raw) > MAX_CERTIFICATE_BYTES:
        raise _rejected("certificate", f"{len(raw)} bytes", f"at most {MAX_CERTIFICATE_BYTES}")
    try:
        certificate = x509.load_der_x509_certificate(raw)
        _read_whole(certificate)
    except UNPARSED as error:
        raise _rejected("certificate", "bytes that do not parse", "one DER certificate") from error
    return certificate


def der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.DER)


def pem(certificate: x509.Certificate) -> bytes:
    """The one PEM form (F2)."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def parse_pem_certificates(raw: bytes, *, most: int) -> tuple[x509.Certificate, ...]:
    """Every certificate of a canonical PEM (F2); PkiRejected `pem` for anything else in it."""
    if len(raw) > most * 2 * MAX_CERTIFICATE_BYTES:
        raise _rejected("pem", f"{len(raw)} bytes", f"at most {most} certificates")
    *blocks, rest = raw.split(_END)
    if rest or len(blocks) > most:
        raise _rejected("pem", "damaged or additional blocks", f"1 to {most} whole certificates")
    found = tuple(_parse_block(block) for block in blocks)
    if not found:
        raise _rejected("pem", "no certificate", f"1 to {most} whole certificates")
    return found


def fingerprint(of: x509.Certificate | bytes) -> Fingerprint:
    """SHA-256 over the DER of a certificate; PkiRejected for bytes that are not exactly one
    certificate (DER, or one canonical PEM block)."""
    return Fingerprint(hashlib.sha256(der(_certificate(of))).hexdigest())


def value_of(certificate: x509.Certificate, kind: type[T]) -> T | None:
    """The value of an extension, or None when the certificate has none of that kind."""
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def serial_of(certificate: x509.Certificate) -> Serial:
    return format_serial(certificate.serial_number)


def format_serial(number: int) -> Serial:
    return Serial(f"{number:040x}")


def root_name(mesh: MeshId, generation: int) -> x509.Name:
    """The subject of a generation's root; no two generations share one."""
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "keel"),
            x509.NameAttribute(NameOID.COMMON_NAME, f"{mesh} etcd root g{generation}"),
        ]
    )


def common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def intermediate_name(address: IPv6Address, *, generation: int, number: int) -> x509.Name:
    """The subject of a member's intermediate; `number` counts the member's own."""
    return common_name(f"{member_name(address)} int g{generation}-{number}")


def client_uri(mesh: MeshId, address: IPv6Address) -> str:
    """What keel's client leaf carries: names mesh and member, and resolves to nothing."""
    return f"https://{mesh}.keel.internal/member/{address.packed.hex()}"


def mesh_of(root: x509.Certificate) -> MeshId:
    """The mesh that a root's subject names; PkiRejected `subject` when it is no root's."""
    return _root_words(root.subject)[0]


def generation_of(root: x509.Certificate) -> int:
    """The generation that a root's subject names; PkiRejected `subject` when it is no root's."""
    return _root_words(root.subject)[1]


def name_words(name: x509.Name) -> tuple[MeshId, int]:
    """Mesh and generation out of a root's name, where only the name is at hand (an issuer)."""
    return _root_words(name)


def sign_with_root(root: Authority, message: bytes) -> bytes:
    """ECDSA P-256 with SHA-256 in DER over the bytes (a DSSE pre-authentication encoding)."""
    if not _may_sign_records(root.certificate) or not key_matches(root.key, root.certificate):
        raise Internal("records are signed by a root with digitalSignature and its own key")
    return load_key(root.key).sign(message, ec.ECDSA(hashes.SHA256()))


def verify_root_signature(root: x509.Certificate, message: bytes, signature: bytes) -> bool:
    """Whether the root, being one that may sign records, made this signature. Whether the root
    is the pinned one is the caller's question."""
    key = root.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey) or not is_p256(key):
        return False
    try:
        key.verify(signature, message, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return _may_sign_records(root)


def _may_sign_records(root: x509.Certificate) -> bool:
    usage = value_of(root, x509.KeyUsage)
    may = usage is not None and usage.digital_signature and usage.key_cert_sign
    return may and root.subject == root.issuer


def _root_words(name: x509.Name) -> tuple[MeshId, int]:
    text = ",".join(
        value if isinstance(value := part.value, str) else value.hex()
        for part in name.get_attributes_for_oid(NameOID.COMMON_NAME)
    )
    found = _ROOT_NAME.fullmatch(text)
    if not found or name != root_name(MeshId(found[1]), int(found[2])):
        raise _rejected("subject", name.rfc4514_string(), "O=keel, CN=<mesh> etcd root g<number>")
    return MeshId(found[1]), int(found[2])


def _certificate(of: x509.Certificate | bytes) -> x509.Certificate:
    if isinstance(of, x509.Certificate):
        return of
    if of.startswith(b"-----"):
        return parse_pem_certificates(of, most=1)[0]
    return parse_certificate(of)


def _parse_block(block: bytes) -> x509.Certificate:
    try:
        raw = base64.b64decode(block.removeprefix(_BEGIN).replace(b"\n", b""), validate=True)
    except binascii.Error as error:
        raise _rejected("pem", "a damaged block", "base64 of a certificate") from error
    certificate = parse_certificate(raw)
    if pem(certificate) != block + _END:
        raise _rejected("pem", "another spelling of a certificate", "64 columns, LF, no more")
    return certificate


def _read_whole(certificate: x509.Certificate) -> None:
    """Make the lazy parser read every field; its errors are the caller's to catch."""
    for field in (
        "version",
        "serial_number",
        "subject",
        "issuer",
        "not_valid_before_utc",
        "not_valid_after_utc",
        "signature_algorithm_oid",
        "extensions",
    ):
        getattr(certificate, field)
    certificate.public_key()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> Secret:
    return Secret(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )


def _rejected(check: str, got: str, expected: str) -> PkiRejected:
    return PkiRejected(check, got=got, expected=expected)


_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_CURVES = {Algorithm.P256: (ec.SECP256R1(), _P256_ORDER)}
