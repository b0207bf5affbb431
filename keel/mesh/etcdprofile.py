"""keel's own rules for certificates, one named check per rule, before anything is used.

Says again, apart from what issues (etcdpki), what each kind of certificate must be: no linter
knows about lives inside lives, the generation in the name, the entropy of a serial or the closed
DNS. Looks at one certificate and its issuer; whether a chain ends in a trusted root, and whether
it is in time, is etcdchain's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from ipaddress import IPv6Address, IPv6Network

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, SignatureAlgorithmOID

from keel.errors import Internal, PkiRejected
from keel.mesh import etcdcert
from keel.types import LOCALHOST

ROOT_LIFE = timedelta(days=3650)
INTERMEDIATE_LIFE = timedelta(days=365)
LEAF_LIFE = timedelta(days=30)
BACKDATED = timedelta(hours=1)  # members' clocks may differ by 300 s before keel itself waits
MIN_SERIAL_BITS = 96  # a random serial of 159 bits is shorter once in 2^63
MAX_SERIAL_BITS = 159  # 20 octets of DER, and still positive (RFC 5280 4.1.2.2)


class Kind(StrEnum):
    """What a certificate is for; a bridge between two roots will be a fifth."""

    ROOT = "root"
    INTERMEDIATE = "intermediate"
    MEMBER = "member"
    CLIENT = "client"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    kind: Kind
    certificate: x509.Certificate
    issuer: x509.Certificate
    member: IPv6Address | None

    @property
    def address(self) -> IPv6Address:
        if self.member is None:
            raise Internal(f"a certificate of kind {self.kind} is checked for an address")
        return self.member

    def extension(self, kind: type[x509.ExtensionType]) -> tuple[bool, object] | None:
        """Whether it is critical, and its value; None when there is none."""
        return _extension(self.certificate, kind)


Rule = Callable[[_Case], tuple[object, object]]
"""What the certificate has, and what it must have; a check holds when the two are equal."""


def profile_check(
    kind: Kind,
    certificate: x509.Certificate,
    issuer: x509.Certificate,
    *,
    address: IPv6Address | None,
) -> None:
    """PkiRejected with the name of the first rule broken. `address` is the member's; None for a
    root, whose issuer is itself."""
    case = _Case(kind=kind, certificate=certificate, issuer=issuer, member=address)
    for check, rule in RULES.items():
        got, expected = rule(case)
        if got != expected:
            raise PkiRejected(check, got=_words(got), expected=_words(expected))


def key_usage(
    *, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False
) -> x509.KeyUsage:
    """The extension with these bits and no others."""
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )


def only(address: IPv6Address) -> x509.IPAddress:
    """The name constraint that leaves this one address."""
    return x509.IPAddress(IPv6Network((address, 128)))


def _version(case: _Case) -> tuple[object, object]:
    return case.certificate.version, x509.Version.v3


def _public_key(case: _Case) -> tuple[object, object]:
    return etcdcert.is_p256(case.certificate.public_key()), True


def _algorithm(case: _Case) -> tuple[object, object]:
    return case.certificate.signature_algorithm_oid, SignatureAlgorithmOID.ECDSA_WITH_SHA256


def _serial(case: _Case) -> tuple[object, object]:
    number = case.certificate.serial_number
    bits = number.bit_length() if number > 0 else 0
    fair = min(max(bits, MIN_SERIAL_BITS), MAX_SERIAL_BITS)
    return f"a positive number of {bits} bits", f"a positive number of {fair} bits"


def _subject(case: _Case) -> tuple[object, object]:
    got = case.certificate.subject
    expected = _SUBJECTS[case.kind](case)
    return got.public_bytes(), expected.public_bytes()


def _root_subject(case: _Case) -> x509.Name:
    return etcdcert.root_name(*etcdcert.name_words(case.certificate.subject))


def _intermediate_subject(case: _Case) -> x509.Name:
    _, generation = etcdcert.name_words(case.issuer.subject)
    number = _number_in(case.certificate.subject)
    return etcdcert.intermediate_name(case.address, generation=generation, number=number)


def _issuer(case: _Case) -> tuple[object, object]:
    return case.certificate.issuer.public_bytes(), case.issuer.subject.public_bytes()


def _not_before(case: _Case) -> tuple[object, object]:
    got = case.certificate.not_valid_before_utc
    return got, max(got, case.issuer.not_valid_before_utc)


def _not_after(case: _Case) -> tuple[object, object]:
    got = case.certificate.not_valid_after_utc
    return got, min(got, case.issuer.not_valid_after_utc)


def _life(case: _Case) -> tuple[object, object]:
    got = case.certificate.not_valid_after_utc - case.certificate.not_valid_before_utc
    longest = _LIVES[case.kind] + BACKDATED
    return got, min(max(got, timedelta(seconds=1)), longest)


def _basic_constraints(case: _Case) -> tuple[object, object]:
    ca = case.kind in (Kind.ROOT, Kind.INTERMEDIATE)
    length = 0 if case.kind is Kind.INTERMEDIATE else None
    wanted = x509.BasicConstraints(ca=ca, path_length=length)
    return case.extension(x509.BasicConstraints), (True, wanted)


def _key_usage(case: _Case) -> tuple[object, object]:
    return case.extension(x509.KeyUsage), (True, _USAGES[case.kind])


def _extended_key_usage(case: _Case) -> tuple[object, object]:
    usages = _EXTENDED[case.kind]
    wanted = (False, x509.ExtendedKeyUsage(usages)) if usages else None
    return case.extension(x509.ExtendedKeyUsage), wanted


def _name_constraints(case: _Case) -> tuple[object, object]:
    wanted = _constraints(case.address) if case.kind is Kind.INTERMEDIATE else None
    return case.extension(x509.NameConstraints), wanted


def _issuer_constraints(case: _Case) -> tuple[object, object]:
    """A leaf's issuer must be the same member's intermediate."""
    wanted = _constraints(case.address) if case.kind in (Kind.MEMBER, Kind.CLIENT) else None
    return _extension(case.issuer, x509.NameConstraints), wanted


def _alternative_name(case: _Case) -> tuple[object, object]:
    names = _NAMES[case.kind](case)
    wanted = (False, x509.SubjectAlternativeName(names)) if names else None
    return case.extension(x509.SubjectAlternativeName), wanted


def _no_names(_case: _Case) -> list[x509.GeneralName]:
    return []


def _member_names(case: _Case) -> list[x509.GeneralName]:
    return [x509.IPAddress(case.address), x509.IPAddress(LOCALHOST)]


def _client_names(case: _Case) -> list[x509.GeneralName]:
    mesh, _ = etcdcert.name_words(case.issuer.issuer)
    return [x509.UniformResourceIdentifier(etcdcert.client_uri(mesh, case.address))]


def _subject_key_identifier(case: _Case) -> tuple[object, object]:
    """By method 1 of RFC 5280 4.2.1.2, whatever the kind of key."""
    public = case.certificate.public_key()
    wanted = x509.SubjectKeyIdentifier.from_public_key(public)
    return case.extension(x509.SubjectKeyIdentifier), (False, wanted)


def _authority_key_identifier(case: _Case) -> tuple[object, object]:
    """The key identifier alone: issuer and serial inside it would forbid a bridge."""
    identifier = etcdcert.value_of(case.issuer, x509.SubjectKeyIdentifier)
    got = case.extension(x509.AuthorityKeyIdentifier)
    if identifier is None:
        return got, "an issuer with a key identifier"
    return got, (False, x509.AuthorityKeyIdentifier(identifier.digest, None, None))


def _extensions(case: _Case) -> tuple[object, object]:
    found = {extension.oid.dotted_string for extension in case.certificate.extensions}
    return sorted(found - _KNOWN), []


def _signature(case: _Case) -> tuple[object, object]:
    try:
        case.certificate.verify_directly_issued_by(case.issuer)
    except (InvalidSignature, ValueError, TypeError):
        return "a signature that does not verify", "the issuer's"
    return "the issuer's", "the issuer's"


def _constraints(address: IPv6Address) -> tuple[bool, x509.NameConstraints]:
    """Excluding the empty DNS name closes all of DNS: without it a member could mint any."""
    wanted = x509.NameConstraints(
        permitted_subtrees=[only(address), only(LOCALHOST)], excluded_subtrees=[x509.DNSName("")]
    )
    return True, wanted


def _extension(
    certificate: x509.Certificate, kind: type[x509.ExtensionType]
) -> tuple[bool, object] | None:
    try:
        found = certificate.extensions.get_extension_for_class(kind)
    except x509.ExtensionNotFound:
        return None
    return found.critical, found.value


def _number_in(name: x509.Name) -> int:
    """The member's own count at the end of an intermediate's name; 1 when there is none."""
    texts = [part.value for part in name.get_attributes_for_oid(NameOID.COMMON_NAME)]
    found = re.search(r"-([1-9][0-9]{0,8})\Z", str(texts[0])) if texts else None
    return int(found[1]) if found else 1


def _words(value: object) -> str:
    match value:
        case None:
            return "none"
        case bytes():
            return value.hex()
        case (bool() as critical, inner):
            return f"{'critical ' if critical else ''}{inner}"
        case _:
            return str(value)


_LIVES = {
    Kind.ROOT: ROOT_LIFE,
    Kind.INTERMEDIATE: INTERMEDIATE_LIFE,
    Kind.MEMBER: LEAF_LIFE,
    Kind.CLIENT: LEAF_LIFE,
}
_SUBJECTS: dict[Kind, Callable[[_Case], x509.Name]] = {
    Kind.ROOT: _root_subject,
    Kind.INTERMEDIATE: _intermediate_subject,
    Kind.MEMBER: lambda _: etcdcert.common_name("keel-peer"),
    Kind.CLIENT: lambda _: etcdcert.common_name("keel-client"),
}
_NAMES: dict[Kind, Callable[[_Case], list[x509.GeneralName]]] = {
    Kind.ROOT: _no_names,
    Kind.INTERMEDIATE: _no_names,
    Kind.MEMBER: _member_names,
    Kind.CLIENT: _client_names,
}
_USAGES = {
    Kind.ROOT: key_usage(digital_signature=True, key_cert_sign=True, crl_sign=True),
    Kind.INTERMEDIATE: key_usage(key_cert_sign=True),
    Kind.MEMBER: key_usage(digital_signature=True),  # RFC 8813: no encipherment with EC keys
    Kind.CLIENT: key_usage(digital_signature=True),
}
_EXTENDED: dict[Kind, tuple[x509.ObjectIdentifier, ...]] = {
    Kind.ROOT: (),
    Kind.INTERMEDIATE: (),
    Kind.MEMBER: (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH),
    Kind.CLIENT: (ExtendedKeyUsageOID.CLIENT_AUTH,),
}
_KNOWN = {
    kind.oid.dotted_string
    for kind in (
        x509.BasicConstraints,
        x509.KeyUsage,
        x509.ExtendedKeyUsage,
        x509.NameConstraints,
        x509.SubjectAlternativeName,
        x509.SubjectKeyIdentifier,
        x509.AuthorityKeyIdentifier,
    )
}

RULES: dict[str, Rule] = {
    "version": _version,
    "public-key": _public_key,
    "algorithm": _algorithm,
    "serial": _serial,
    "subject": _subject,
    "issuer": _issuer,
    "not-before": _not_before,
    "not-after": _not_after,
    "life": _life,
    "basic-constraints": _basic_constraints,
    "key-usage": _key_usage,
    "extended-key-usage": _extended_key_usage,
    "name-constraints": _name_constraints,
    "issuer-constraints": _issuer_constraints,
    "alternative-name": _alternative_name,
    "subject-key-identifier": _subject_key_identifier,
    "authority-key-identifier": _authority_key_identifier,
    "extensions": _extensions,
    "signature": _signature,
}
"""Every check by its name, in the order in which they are made."""
