"""The one merged CRL: built by the holder, read and judged by everybody.

Rules:
(L1) One DER, signed by the current root, with the serials of every generation still trusted: etcd
     takes one file, looks at serials only, and a second root's empty CRL would readmit people.
(L2) Read only when signed under a root that the reader names; of several the highest number counts
     (keel.mesh.etcdrevoke.newest_known).
(L3) A root is never on it: etcd would then refuse chains that carry the root and no others.
(L4) Past its nextUpdate it still counts and still starts etcd; that it is late is a warning.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import chain

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import SignatureAlgorithmOID

from keel.errors import Internal, PkiRejected
from keel.mesh import etcdcert
from keel.mesh.etcdcert import Authority, Serial
from keel.mesh.etcdprofile import BACKDATED, MAX_SERIAL_BITS
from keel.types import Fingerprint

CRL_LIFE = timedelta(days=30)
MAX_CRL_BYTES = 1 << 20  # 20 000 entries
REMEMBERED = 8
"""CRLs whose meaning is kept in memory: a pass meets one, and reads it again and again."""
REMEMBERED_BYTES = 48 << 10
"""Of a CRL that is kept so; a record carries no larger one. Of larger ones the last is kept."""
MAX_NUMBER = (1 << MAX_SERIAL_BITS) - 1
"""Of a CRL, by RFC 5280: 20 octets."""


class Reason(StrEnum):
    """Why a certificate was revoked, in X.509's words; UNSPECIFIED is left out of the CRL."""

    UNSPECIFIED = "unspecified"
    SUPERSEDED = "superseded"
    CESSATION = "cessationOfOperation"
    CA_COMPROMISE = "cACompromise"
    KEY_COMPROMISE = "keyCompromise"


@dataclass(frozen=True, slots=True, kw_only=True)
class Revoked:
    """One revoked serial; fit for keel's JSON records."""

    serial: Serial
    reason: Reason
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Crl:
    """A CRL that was read: its exact bytes and what is in them. `signer` is the root that it
    verified under."""

    der: bytes
    number: int
    this_update: datetime
    next_update: datetime
    signer: Fingerprint
    revoked: tuple[Revoked, ...]

    def late(self, now: datetime) -> bool:
        """Past its nextUpdate (L4)."""
        return now > self.next_update

    def revokes(self, certificate: x509.Certificate) -> bool:
        serial = etcdcert.serial_of(certificate)
        return any(entry.serial == serial for entry in self.revoked)


def unite(*sets: Iterable[Revoked]) -> tuple[Revoked, ...]:
    """One entry per serial, ordered by serial: the earliest date, the gravest reason."""
    found: dict[Serial, Revoked] = {}
    for entry in chain.from_iterable(sets):
        other = found.setdefault(entry.serial, entry)
        if other != entry:
            found[entry.serial] = Revoked(
                serial=entry.serial,
                reason=max(entry.reason, other.reason, key=_GRAVITY.index),
                at=min(entry.at, other.at),
            )
    return tuple(found[serial] for serial in sorted(found))


def new_crl(root: Authority, revoked: Iterable[Revoked], *, number: int, now: datetime) -> bytes:
    """The DER of a CRL (also of an empty one) that read_crl accepts under that root."""
    if number < 1 or not etcdcert.key_matches(root.key, root.certificate):
        raise Internal("a CRL has a number from 1 and is signed with its root's own key")
    now = now.astimezone(UTC).replace(microsecond=0)
    certificate = root.certificate
    private = etcdcert.load_key(root.key)
    entries = unite(revoked)
    _check_roots({entry.serial for entry in entries}, [certificate])
    # under a clock that is behind its root's time the list begins with its root
    begins = max(now - BACKDATED, certificate.not_valid_before_utc)
    builder = (
        # the builder's own method copies the whole list for every entry that is added
        x509.CertificateRevocationListBuilder(
            revoked_certificates=[_entry(each) for each in entries]
        )
        .issuer_name(certificate.subject)
        .last_update(begins)
        .next_update(max(now, begins) + CRL_LIFE)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(private.public_key()), critical=False
        )
        .add_extension(x509.CRLNumber(number), critical=False)
    )
    made = builder.sign(private, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.DER)


def read_crl(raw: bytes, roots: Sequence[x509.Certificate]) -> Crl:
    """Bounded, whole, and signed under one of the roots; PkiRejected names what is wrong."""
    if len(raw) > MAX_CRL_BYTES:
        raise _rejected("crl-size", f"{len(raw)} bytes", f"at most {MAX_CRL_BYTES}")
    return (_of_many if len(raw) <= REMEMBERED_BYTES else _the_last)(raw, tuple(roots))


def _read(raw: bytes, roots: tuple[x509.Certificate, ...]) -> Crl:
    """What these bytes are under these roots: the same whenever it is asked."""
    try:
        crl = x509.load_der_x509_crl(raw)
        if not raw.endswith(b"\0" + crl.signature):
            # A BIT STRING may name unused bits; then two spellings carry one good signature.
            raise _rejected("crl-form", "unused bits in the signature", "none")
        signer = _signer(crl, roots)
        next_update = crl.next_update_utc
        if next_update is None or next_update <= crl.last_update_utc:
            raise _rejected("crl-dates", "no or an earlier nextUpdate", "one after thisUpdate")
        return Crl(
            der=raw,
            number=_number(crl, signer),
            this_update=crl.last_update_utc,
            next_update=next_update,
            signer=etcdcert.fingerprint(signer),
            revoked=_entries(crl, roots),
        )
    except etcdcert.UNPARSED as error:
        raise _rejected("crl-form", "bytes that do not parse", "one DER CRL") from error


_of_many = functools.lru_cache(maxsize=REMEMBERED)(_read)
_the_last = functools.lru_cache(maxsize=1)(_read)


def is_crl(raw: bytes) -> bool:
    """Whether these bytes are a DER CRL at all; whose, and how good, is read_crl's."""
    try:
        x509.load_der_x509_crl(raw)
    except etcdcert.UNPARSED:
        return False
    return True


def _entry(revoked: Revoked) -> x509.RevokedCertificate:
    number = int(revoked.serial, 16)
    _check_serial(number)
    return x509.RevokedCertificateBuilder(
        serial_number=number,
        revocation_date=revoked.at.astimezone(UTC).replace(microsecond=0, tzinfo=None),
        extensions=_EXTENSIONS[revoked.reason],
    ).build()


def _signer(
    crl: x509.CertificateRevocationList, roots: Sequence[x509.Certificate]
) -> x509.Certificate:
    if crl.signature_algorithm_oid != SignatureAlgorithmOID.ECDSA_WITH_SHA256:
        raise _rejected("crl-algorithm", "another algorithm", "ecdsa-with-SHA256")
    for root in roots:
        public = root.public_key()
        if (
            isinstance(public, ec.EllipticCurvePublicKey)
            and etcdcert.is_p256(public)
            and root.subject.public_bytes() == crl.issuer.public_bytes()
            and crl.is_signature_valid(public)
        ):
            return root
    raise _rejected("crl-signer", crl.issuer.rfc4514_string(), "one of the trusted roots")


def _number(crl: x509.CertificateRevocationList, signer: x509.Certificate) -> int:
    """Exactly the two extensions of RFC 5280 5.2, neither of them critical."""
    found = {extension.oid: extension for extension in crl.extensions}
    if set(found) != {x509.CRLNumber.oid, x509.AuthorityKeyIdentifier.oid} or any(
        extension.critical for extension in found.values()
    ):
        names = ", ".join(sorted(oid.dotted_string for oid in found))
        raise _rejected("crl-extensions", names or "none", "CRL number and key identifier")
    identifier = found[x509.AuthorityKeyIdentifier.oid].value
    wanted = x509.SubjectKeyIdentifier.from_public_key(signer.public_key()).digest
    if identifier != x509.AuthorityKeyIdentifier(wanted, None, None):
        raise _rejected("crl-key-identifier", "another key's", "the signer's")
    number = crl.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    if not number >= 1 or number.bit_length() > MAX_SERIAL_BITS:
        raise _rejected("crl-number", str(number)[:60], "1 or more, in 20 octets")
    return number


def _entries(
    crl: x509.CertificateRevocationList, roots: Sequence[x509.Certificate]
) -> tuple[Revoked, ...]:
    found = tuple(_read_entry(entry) for entry in crl)
    serials = {entry.serial for entry in found}
    if len(serials) != len(found):
        raise _rejected("crl-entry", "a serial twice", "each serial once")
    _check_roots(serials, roots)
    return found


def _check_roots(serials: Collection[Serial], roots: Sequence[x509.Certificate]) -> None:
    if any(etcdcert.serial_of(root) in serials for root in roots):
        raise _rejected("crl-root", "a root's serial", "intermediates only")  # L3


def _check_serial(number: int) -> None:
    if number <= 0 or number.bit_length() > MAX_SERIAL_BITS:
        raise _rejected("crl-entry", "a serial that is none", "1 or more, in 20 octets")


def _read_entry(entry: x509.RevokedCertificate) -> Revoked:
    number = entry.serial_number
    _check_serial(number)
    reason = Reason.UNSPECIFIED
    for extension in entry.extensions:
        value = extension.value
        reasons = (
            []
            if not isinstance(value, x509.CRLReason)
            else [ours for ours, flag in _FLAGS.items() if flag is value.reason]
        )
        if extension.critical or not reasons:
            raise _rejected("crl-entry", f"{value}"[:80], "no extension but a reason of keel's")
        reason = reasons[0]
    return Revoked(
        serial=etcdcert.format_serial(number), reason=reason, at=entry.revocation_date_utc
    )


def _rejected(check: str, got: str, expected: str) -> PkiRejected:
    return PkiRejected(check, got=got, expected=expected)


_GRAVITY = list(Reason)
_FLAGS: dict[Reason, x509.ReasonFlags | None] = {
    Reason.UNSPECIFIED: None,  # RFC 5280 5.3.1: leave it out instead
    Reason.SUPERSEDED: x509.ReasonFlags.superseded,
    Reason.CESSATION: x509.ReasonFlags.cessation_of_operation,
    Reason.CA_COMPROMISE: x509.ReasonFlags.ca_compromise,
    Reason.KEY_COMPROMISE: x509.ReasonFlags.key_compromise,
}
_EXTENSIONS: dict[Reason, list[x509.Extension[x509.ExtensionType]]] = {
    reason: []
    if flag is None
    else [x509.Extension(x509.CRLReason.oid, False, x509.CRLReason(flag))]
    for reason, flag in _FLAGS.items()
}
