"""Deliberately wrong certificates and CRLs, one table: what is wrong, the check of keel's own that
finds it, and which linters find it as well (pki-facts' matrix, measured again by linters.py).

A bad root signs the good intermediate of the same key and name, a bad intermediate the good leaf:
so whatever a linter says about a chain, it says because of the one wrong certificate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import IPv6Address, IPv6Network
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, ObjectIdentifier

from keel.mesh import etcdcert
from keel.mesh.etcdprofile import Kind, key_usage, only
from keel.types import LOCALHOST
from tests.pki import make
from tests.pki.make import Changes

OPENSSL = "openssl"
ZLINT = "zlint"
PKILINT = "pkilint"
PKILINT_CHAIN = "pkilint-chain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """A root, an intermediate and a leaf, one of them wrong (or none)."""

    root: x509.Certificate
    intermediate: x509.Certificate
    leaf: x509.Certificate
    leaf_kind: Kind = Kind.MEMBER

    def subject(self, kind: Kind) -> tuple[x509.Certificate, x509.Certificate]:
        """The certificate of that kind and its issuer."""
        match kind:
            case Kind.ROOT:
                return self.root, self.root
            case Kind.INTERMEDIATE:
                return self.intermediate, self.root
            case _:
                return self.leaf, self.intermediate


def good_chain(leaf_kind: Kind = Kind.MEMBER) -> Chain:
    made = make.member() if leaf_kind is Kind.MEMBER else make.client()
    return Chain(
        root=make.root().certificate,
        intermediate=make.intermediate().certificate,
        leaf=made.leaf,
        leaf_kind=leaf_kind,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """`check` is keel's; `linters` are those that must complain. Those not named may say what
    they like: an old one that learns something new is no failure of keel's."""

    name: str
    kind: Kind
    check: str
    make: Callable[[], x509.Certificate]
    linters: frozenset[str] = frozenset()

    @property
    def address(self) -> IPv6Address | None:
        return None if self.kind is Kind.ROOT else make.ADDRESS

    def chain(self) -> Chain:
        good = good_chain(Kind.CLIENT if self.kind is Kind.CLIENT else Kind.MEMBER)
        bad = self.make()
        return Chain(
            root=bad if self.kind is Kind.ROOT else good.root,
            intermediate=bad if self.kind is Kind.INTERMEDIATE else good.intermediate,
            leaf=bad if self.kind in (Kind.MEMBER, Kind.CLIENT) else good.leaf,
            leaf_kind=good.leaf_kind,
        )


def _root(**changes: Any) -> Callable[[], x509.Certificate]:
    good = make.root()
    return lambda: make.rebuilt(good.certificate, Changes(**changes), signer=good.key)


def _intermediate(**changes: Any) -> Callable[[], x509.Certificate]:
    good = make.intermediate().certificate
    return lambda: make.rebuilt(good, Changes(**changes), signer=make.root().key)


def _member(**changes: Any) -> Callable[[], x509.Certificate]:
    good = make.member().leaf
    return lambda: make.rebuilt(good, Changes(**changes), signer=make.intermediate().key)


def _client(**changes: Any) -> Callable[[], x509.Certificate]:
    good = make.client().leaf
    return lambda: make.rebuilt(good, Changes(**changes), signer=make.intermediate().key)


def _ext(*values: x509.ExtensionType, critical: bool) -> dict[type, tuple[bool, Any]]:
    return {type(value): (critical, value) for value in values}


def _names(*names: x509.GeneralName) -> dict[type, tuple[bool, Any]]:
    return _ext(x509.SubjectAlternativeName(names), critical=False)


def _constraints(permitted: Any, excluded: Any, *, critical: bool) -> dict[type, tuple[bool, Any]]:
    value = x509.NameConstraints(permitted_subtrees=permitted, excluded_subtrees=excluded)
    return _ext(value, critical=critical)


def _version_one() -> x509.Certificate:
    """cryptography builds version 3 only: a good leaf without its version field (which is how
    DER says 1), both lengths around it mended, and no longer signed."""
    raw = etcdcert.der(make.member().leaf)
    outer, inner = (int.from_bytes(raw[at : at + 2], "big") - 5 for at in (2, 6))
    head = b"\x30\x82" + outer.to_bytes(2, "big") + b"\x30\x82" + inner.to_bytes(2, "big")
    return x509.load_der_x509_certificate(head + raw[13:])


def _altered_signature() -> x509.Certificate:
    raw = etcdcert.der(make.member().leaf)
    return x509.load_der_x509_certificate(raw[:-1] + bytes([raw[-1] ^ 1]))


_OTHER_KEY = etcdcert.load_key(make.key("another")).public_key()
_P384 = ec.derive_private_key(0x1234567890ABCDEF << 200 | 1, ec.SECP384R1())
_SKI = x509.SubjectKeyIdentifier
_AKI = x509.AuthorityKeyIdentifier
_ROOT_SKI = _SKI.from_public_key(make.root().certificate.public_key()).digest
_PERMITTED = [only(make.ADDRESS), only(LOCALHOST)]
_ALL_DNS = [x509.DNSName("")]
_UNKNOWN = x509.UnrecognizedExtension(ObjectIdentifier("1.3.6.1.4.1.55555.1"), b"\x05\x00")
_DIRECTORY = x509.DirectoryName(etcdcert.common_name("someone"))

CERTIFICATES: tuple[Defect, ...] = (
    Defect(
        name="version 1",
        kind=Kind.MEMBER,
        check="version",
        make=_version_one,
        linters=frozenset({OPENSSL, ZLINT, PKILINT}),
    ),
    Defect(
        name="leaf with a P-384 key",
        kind=Kind.MEMBER,
        check="public-key",
        make=_member(
            public=_P384.public_key(),
            extensions=_ext(_SKI.from_public_key(_P384.public_key()), critical=False),
        ),
    ),
    Defect(
        name="signed with SHA-512",
        kind=Kind.MEMBER,
        check="algorithm",
        make=_member(hash=hashes.SHA512()),
    ),
    Defect(name="tiny serial", kind=Kind.MEMBER, check="serial", make=_member(serial=7)),
    Defect(
        name="root without its generation",
        kind=Kind.ROOT,
        check="subject",
        make=_root(
            subject=etcdcert.common_name("etcd root"), issuer=etcdcert.common_name("etcd root")
        ),
        linters=frozenset({OPENSSL}),
    ),
    Defect(
        name="intermediate with another member's name",
        kind=Kind.INTERMEDIATE,
        check="subject",
        make=_intermediate(
            subject=etcdcert.intermediate_name(make.OTHER_ADDRESS, generation=1, number=1)
        ),
        linters=frozenset({OPENSSL}),
    ),
    Defect(
        name="intermediate that names another generation",
        kind=Kind.INTERMEDIATE,
        check="subject",
        make=_intermediate(
            subject=etcdcert.intermediate_name(make.ADDRESS, generation=2, number=1)
        ),
        linters=frozenset({OPENSSL}),
    ),
    Defect(
        name="CA with an empty subject",
        kind=Kind.INTERMEDIATE,
        check="subject",
        make=_intermediate(subject=x509.Name([])),
        linters=frozenset({OPENSSL, ZLINT}),
    ),
    Defect(
        name="member leaf named root",
        kind=Kind.MEMBER,
        check="subject",
        make=_member(subject=etcdcert.common_name("root")),
    ),
    Defect(
        name="client leaf named root",
        kind=Kind.CLIENT,
        check="subject",
        make=_client(subject=etcdcert.common_name("root")),
    ),
    Defect(
        name="another issuer's name",
        kind=Kind.INTERMEDIATE,
        check="issuer",
        make=_intermediate(issuer=etcdcert.root_name(make.MESH, 2)),
        linters=frozenset({OPENSSL}),
    ),
    Defect(
        name="leaf that begins before its issuer",
        kind=Kind.MEMBER,
        check="not-before",
        make=_member(not_before=make.NOW - timedelta(hours=2)),
    ),
    Defect(
        name="leaf that outlives its issuer",
        kind=Kind.MEMBER,
        check="not-after",
        make=_member(not_after=make.NOW + timedelta(days=366)),
    ),
    Defect(
        name="leaf of 31 days",
        kind=Kind.MEMBER,
        check="life",
        make=_member(not_after=make.NOW + timedelta(days=31)),
    ),
    Defect(
        name="intermediate of 13 months",
        kind=Kind.INTERMEDIATE,
        check="life",
        make=_intermediate(not_after=make.NOW + timedelta(days=395)),
    ),
    Defect(
        name="root of 11 years",
        kind=Kind.ROOT,
        check="life",
        make=_root(not_after=make.NOW + timedelta(days=4015)),
    ),
    Defect(
        name="basic constraints not critical",
        kind=Kind.INTERMEDIATE,
        check="basic-constraints",
        make=_intermediate(
            extensions=_ext(x509.BasicConstraints(ca=True, path_length=0), critical=False)
        ),
        linters=frozenset({OPENSSL, ZLINT, PKILINT}),
    ),
    Defect(
        name="intermediate without path length",
        kind=Kind.INTERMEDIATE,
        check="basic-constraints",
        make=_intermediate(
            extensions=_ext(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        ),
    ),
    Defect(
        name="root with a path length",
        kind=Kind.ROOT,
        check="basic-constraints",
        make=_root(extensions=_ext(x509.BasicConstraints(ca=True, path_length=1), critical=True)),
    ),
    Defect(
        name="leaf that is a CA",
        kind=Kind.MEMBER,
        check="basic-constraints",
        make=_member(
            extensions=_ext(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        ),
        linters=frozenset({PKILINT}),
    ),
    Defect(
        name="CA without key usage",
        kind=Kind.INTERMEDIATE,
        check="key-usage",
        make=_intermediate(without=(x509.KeyUsage,)),
        linters=frozenset({OPENSSL, ZLINT, PKILINT}),
    ),
    Defect(
        name="root that may not sign records",
        kind=Kind.ROOT,
        check="key-usage",
        make=_root(extensions=_ext(key_usage(key_cert_sign=True, crl_sign=True), critical=True)),
    ),
    Defect(
        name="EC leaf with keyEncipherment",
        kind=Kind.MEMBER,
        check="key-usage",
        make=_member(
            extensions=_ext(
                x509.KeyUsage(True, False, True, False, False, False, False, False, False),
                critical=True,
            )
        ),
        linters=frozenset({PKILINT}),
    ),
    Defect(
        name="client leaf for servers",
        kind=Kind.CLIENT,
        check="extended-key-usage",
        make=_client(
            extensions=_ext(
                x509.ExtendedKeyUsage(
                    [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
                ),
                critical=False,
            )
        ),
    ),
    Defect(
        name="member leaf for clients only",
        kind=Kind.MEMBER,
        check="extended-key-usage",
        make=_member(
            extensions=_ext(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
            )
        ),
        linters=frozenset({OPENSSL}),
    ),
    Defect(
        name="intermediate with extended key usage",
        kind=Kind.INTERMEDIATE,
        check="extended-key-usage",
        make=_intermediate(
            extensions=_ext(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
            )
        ),
        linters=frozenset({OPENSSL}),
    ),
    Defect(
        name="name constraints not critical",
        kind=Kind.INTERMEDIATE,
        check="name-constraints",
        make=_intermediate(extensions=_constraints(_PERMITTED, _ALL_DNS, critical=False)),
        linters=frozenset({ZLINT, PKILINT}),
    ),
    Defect(
        name="no name constraints",
        kind=Kind.INTERMEDIATE,
        check="name-constraints",
        make=_intermediate(without=(x509.NameConstraints,)),
    ),
    Defect(
        name="DNS left open",
        kind=Kind.INTERMEDIATE,
        check="name-constraints",
        make=_intermediate(extensions=_constraints(_PERMITTED, None, critical=True)),
    ),
    Defect(
        name="the whole mesh permitted",
        kind=Kind.INTERMEDIATE,
        check="name-constraints",
        make=_intermediate(
            extensions=_constraints(
                [x509.IPAddress(IPv6Network("fd0a:1b2c:3d4e::/64")), only(LOCALHOST)],
                _ALL_DNS,
                critical=True,
            )
        ),
    ),
    Defect(
        name="a directory name excluded",
        kind=Kind.INTERMEDIATE,
        check="name-constraints",
        make=_intermediate(
            extensions=_constraints(_PERMITTED, [*_ALL_DNS, _DIRECTORY], critical=True)
        ),
    ),
    Defect(
        name="root with name constraints",
        kind=Kind.ROOT,
        check="name-constraints",
        make=_root(extensions=_constraints(_PERMITTED, _ALL_DNS, critical=True)),
    ),
    Defect(
        name="member leaf for another member's address",
        kind=Kind.MEMBER,
        check="alternative-name",
        make=_member(
            extensions=_names(x509.IPAddress(make.OTHER_ADDRESS), x509.IPAddress(LOCALHOST))
        ),
        linters=frozenset({OPENSSL}),
    ),
    Defect(
        name="member leaf with a DNS name",
        kind=Kind.MEMBER,
        check="alternative-name",
        make=_member(
            extensions=_names(
                x509.IPAddress(make.ADDRESS),
                x509.IPAddress(LOCALHOST),
                x509.DNSName("etcd.example"),
            )
        ),
        linters=frozenset({OPENSSL}),
    ),
    Defect(
        name="member leaf without a name",
        kind=Kind.MEMBER,
        check="alternative-name",
        make=_member(without=(x509.SubjectAlternativeName,)),
    ),
    Defect(
        name="client leaf of another mesh",
        kind=Kind.CLIENT,
        check="alternative-name",
        make=_client(
            extensions=_names(
                x509.UniformResourceIdentifier(etcdcert.client_uri(make.OTHER_MESH, make.ADDRESS))
            )
        ),
    ),
    Defect(
        name="intermediate with an alternative name",
        kind=Kind.INTERMEDIATE,
        check="alternative-name",
        make=_intermediate(extensions=_names(x509.IPAddress(make.ADDRESS))),
    ),
    Defect(
        name="root without key identifier",
        kind=Kind.ROOT,
        check="subject-key-identifier",
        make=_root(without=(_SKI,)),
        linters=frozenset({OPENSSL, ZLINT, PKILINT}),
    ),
    Defect(
        name="CA without key identifier",
        kind=Kind.INTERMEDIATE,
        check="subject-key-identifier",
        make=_intermediate(without=(_SKI,)),
        linters=frozenset({OPENSSL, ZLINT, PKILINT}),
    ),
    Defect(
        name="key identifier of another key",
        kind=Kind.MEMBER,
        check="subject-key-identifier",
        make=_member(extensions=_ext(_SKI.from_public_key(_OTHER_KEY), critical=False)),
    ),
    Defect(
        name="intermediate without authority key identifier",
        kind=Kind.INTERMEDIATE,
        check="authority-key-identifier",
        make=_intermediate(without=(_AKI,)),
        linters=frozenset({OPENSSL, ZLINT, PKILINT, PKILINT_CHAIN}),
    ),
    Defect(
        name="leaf without authority key identifier",
        kind=Kind.MEMBER,
        check="authority-key-identifier",
        make=_member(without=(_AKI,)),
        linters=frozenset({OPENSSL, ZLINT, PKILINT, PKILINT_CHAIN}),
    ),
    Defect(
        name="authority key identifier of another key",
        kind=Kind.INTERMEDIATE,
        check="authority-key-identifier",
        make=_intermediate(
            extensions=_ext(_AKI.from_issuer_public_key(_OTHER_KEY), critical=False)
        ),
        linters=frozenset({OPENSSL, PKILINT_CHAIN}),
    ),
    Defect(
        name="authority key identifier with issuer and serial",
        kind=Kind.INTERMEDIATE,
        check="authority-key-identifier",
        make=_intermediate(
            extensions=_ext(
                _AKI(
                    _ROOT_SKI,
                    [x509.DirectoryName(make.root().certificate.subject)],
                    make.root().certificate.serial_number,
                ),
                critical=False,
            )
        ),
    ),
    Defect(
        name="an unknown critical extension",
        kind=Kind.MEMBER,
        check="extensions",
        make=_member(extensions=_ext(_UNKNOWN, critical=True)),
        linters=frozenset({OPENSSL}),
    ),
    Defect(
        name="a signature that was altered",
        kind=Kind.MEMBER,
        check="signature",
        make=_altered_signature,
        linters=frozenset({OPENSSL, PKILINT_CHAIN}),
    ),
)
"""issuer-constraints is not about a certificate by itself: test_profile.py has it."""
