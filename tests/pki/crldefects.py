"""Deliberately wrong CRLs: the check of keel's own that finds each, and the linters that must."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from keel.mesh import etcdcert, etcdcrl
from tests.pki import make
from tests.pki.defects import OPENSSL, PKILINT, ZLINT

ROOT = make.root()
TWO = make.root(generation=2)
INTERMEDIATE = make.intermediate()


@dataclass(frozen=True, slots=True, kw_only=True)
class CrlDefect:
    """`linters` are those that must complain; what they can't even load has none."""

    name: str
    check: str
    make: Callable[[], bytes]
    linters: frozenset[str] = frozenset()


def good_crl(*, root: etcdcert.Authority = ROOT) -> bytes:
    return etcdcrl.new_crl(root, (), number=5, now=make.NOW)


def altered(crl: bytes) -> bytes:
    """Of this one, as each is signed with other chance: another's last byte may be this one's."""
    return crl[:-1] + bytes([crl[-1] ^ 1])


def crl_by_hand(
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


def crl_entry(
    number: int = 1, *extensions: tuple[x509.ExtensionType, bool]
) -> x509.RevokedCertificate:
    builder = x509.RevokedCertificateBuilder(number, make.NOW.replace(tzinfo=None))
    for value, critical in extensions:
        builder = builder.add_extension(value, critical=critical)
    return builder.build()


_AKI = x509.AuthorityKeyIdentifier.from_issuer_public_key(ROOT.certificate.public_key())
_OTHER_AKI = x509.AuthorityKeyIdentifier.from_issuer_public_key(TWO.certificate.public_key())
_SERIAL = ROOT.certificate.serial_number

CRLS: tuple[CrlDefect, ...] = (
    CrlDefect(name="nothing", check="crl-form", make=lambda: b""),
    CrlDefect(name="PEM", check="crl-form", make=lambda: b"-----BEGIN X509 CRL-----\n"),
    CrlDefect(name="a certificate", check="crl-form", make=lambda: etcdcert.der(ROOT.certificate)),
    CrlDefect(name="truncated", check="crl-form", make=lambda: good_crl()[:-1]),
    CrlDefect(name="something behind it", check="crl-form", make=lambda: good_crl() + b"\x00"),
    CrlDefect(name="too large", check="crl-size", make=lambda: bytes(etcdcrl.MAX_CRL_BYTES + 1)),
    CrlDefect(
        name="another root's",
        check="crl-signer",
        make=lambda: good_crl(root=TWO),
        linters=frozenset({OPENSSL}),
    ),
    CrlDefect(
        name="a signature that was altered",
        check="crl-signer",
        make=lambda: altered(good_crl()),
        linters=frozenset({OPENSSL}),
    ),
    CrlDefect(
        name="the root's name on another's signature",
        check="crl-signer",
        make=lambda: crl_by_hand(signer=etcdcert.load_key(make.key("x"))),
        linters=frozenset({OPENSSL}),
    ),
    CrlDefect(
        name="a member's own",
        check="crl-signer",
        make=lambda: crl_by_hand(issuer=INTERMEDIATE.certificate.subject),
        linters=frozenset({OPENSSL}),
    ),
    CrlDefect(
        name="SHA-512", check="crl-algorithm", make=lambda: crl_by_hand(algorithm=hashes.SHA512())
    ),
    CrlDefect(
        name="RSA",
        check="crl-algorithm",
        make=lambda: crl_by_hand(signer=rsa.generate_private_key(65537, 2048)),
        linters=frozenset({OPENSSL}),
    ),
    CrlDefect(
        name="nextUpdate not after thisUpdate",
        check="crl-dates",
        make=lambda: crl_by_hand(next_update=None),
        linters=frozenset({OPENSSL}),
    ),
    CrlDefect(
        name="no number",
        check="crl-extensions",
        make=lambda: crl_by_hand(extensions=((_AKI, False),)),
        linters=frozenset({PKILINT}),
    ),
    CrlDefect(
        name="no key identifier",
        check="crl-extensions",
        make=lambda: crl_by_hand(extensions=((x509.CRLNumber(5), False),)),
        linters=frozenset({PKILINT}),
    ),
    CrlDefect(
        name="a critical number",
        check="crl-extensions",
        make=lambda: crl_by_hand(extensions=((_AKI, False), (x509.CRLNumber(5), True))),
        linters=frozenset({OPENSSL, PKILINT}),
    ),
    CrlDefect(
        name="an issuing distribution point",
        check="crl-extensions",
        make=lambda: crl_by_hand(
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
    CrlDefect(
        name="another key's identifier",
        check="crl-key-identifier",
        make=lambda: crl_by_hand(extensions=((_OTHER_AKI, False), (x509.CRLNumber(5), False))),
        linters=frozenset({OPENSSL}),
    ),
    CrlDefect(
        name="number 0",
        check="crl-number",
        make=lambda: crl_by_hand(extensions=((_AKI, False), (x509.CRLNumber(0), False))),
    ),
    CrlDefect(
        name="an endless number",
        check="crl-number",
        make=lambda: crl_by_hand(extensions=((_AKI, False), (x509.CRLNumber(1 << 159), False))),
        linters=frozenset({PKILINT}),
    ),
    CrlDefect(
        name="a serial twice",
        check="crl-entry",
        make=lambda: crl_by_hand(entries=(crl_entry(), crl_entry())),
    ),
    CrlDefect(
        name="the root itself",
        check="crl-root",
        make=lambda: crl_by_hand(entries=(crl_entry(_SERIAL),)),
    ),
    CrlDefect(
        name="a reason that takes back",
        check="crl-entry",
        make=lambda: crl_by_hand(
            entries=(crl_entry(1, (x509.CRLReason(x509.ReasonFlags.remove_from_crl), False)),)
        ),
    ),
    CrlDefect(
        name="a critical reason",
        check="crl-entry",
        make=lambda: crl_by_hand(
            entries=(crl_entry(1, (x509.CRLReason(x509.ReasonFlags.superseded), True)),)
        ),
        linters=frozenset({OPENSSL, PKILINT}),
    ),
    CrlDefect(
        name="another extension of an entry",
        check="crl-entry",
        make=lambda: crl_by_hand(
            entries=(crl_entry(1, (x509.InvalidityDate(make.NOW.replace(tzinfo=None)), False)),)
        ),
    ),
    CrlDefect(
        name="reason unspecified",
        check="crl-entry",
        make=lambda: crl_by_hand(
            entries=(crl_entry(1, (x509.CRLReason(x509.ReasonFlags.unspecified), False)),)
        ),
        linters=frozenset({ZLINT}),
    ),
)
