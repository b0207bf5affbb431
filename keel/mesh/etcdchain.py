"""Verifies chains link by link, and what is received or about to be installed as a whole.

cryptography 43 has no path validation that knows keel's client leaf, key identifiers, a bridge or
two roots at once, so the steps are keel's own (tests hold them against the library's and
openssl's). Each is PkiRejected with a name of its own:
(V1) chain-length: at least the leaf, at most MAX_CHAIN above it.
(V2) chain-link: each certificate's issuer by name, key identifier (AKI = SKI) and signature is
     the next one, or a root. A root that fits ends the chain: a bridge behind it is not needed.
(V3) chain-root: it does end in one of the given roots.
(V4) chain-algorithm: P-256 keys and ecdsa-with-SHA256 only.
(V5) chain-critical: no critical extension that this module does not know.
(V6) chain-dates: all of them, the root's too, at `now`.
(V7) chain-ca: every issuer is a CA that may sign certificates; the leaf is none.
(V8) chain-path-length: no more CAs below an issuer than it allows; self-issued ones count too.
(V9) chain-constraints: the leaf's names are inside every issuer's constraints.
(V10) chain-usage: the leaf is for this end of TLS, and no issuer says otherwise.
(V11) chain-address: the leaf names the member that is expected.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from ipaddress import IPv6Address

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import ExtendedKeyUsageOID, SignatureAlgorithmOID

from keel.errors import PkiRejected
from keel.mesh import etcdcert
from keel.mesh.etcdcert import PublicKeyHash, value_of
from keel.mesh.etcdpki import MAX_CHAIN, Credential
from keel.mesh.etcdprofile import Kind, profile_check
from keel.types import MeshId


class Purpose(StrEnum):
    """Which end of TLS the chain is presented for."""

    SERVER = "server"
    CLIENT = "client"


def verify_chain(
    chain: Sequence[x509.Certificate],
    roots: Sequence[x509.Certificate],
    *,
    now: datetime,
    purpose: Purpose,
    address: IPv6Address | None = None,
) -> x509.Certificate:
    """The root that the chain (leaf first, no root in it) ends in; PkiRejected otherwise. With an
    address the leaf must be that member's: its SAN when a server, SAN or URI when a client."""
    if not 1 <= len(chain) <= 1 + MAX_CHAIN:
        raise _rejected("chain-length", f"{len(chain)}", f"1 to {1 + MAX_CHAIN} certificates")
    path = _path(chain, roots)
    leaf, *issuers = path
    for certificate in path:
        _check_algorithm(certificate)
        _check_critical(certificate)
        _check_dates(certificate, now)
    for below, issuer in enumerate(issuers):
        _check_issuer(issuer, below=below)
        _check_constraints(leaf, issuer)
        _check_usage(issuer, purpose, required=False)
    _check_leaf(leaf)
    _check_usage(leaf, purpose, required=True)
    if address is not None:
        _check_address(leaf, path[-1], purpose, address)
    return path[-1]


def check_grant(
    intermediate: x509.Certificate,
    root: x509.Certificate,
    *,
    mesh: MeshId,
    address: IPv6Address,
    key: PublicKeyHash,
    now: datetime,
) -> None:
    """What a member checks before it takes a grant: the root is this mesh's, the intermediate is
    the root's own, for this address and for the key that was asked for, in time. Whether the root
    may be pinned (E2) is the caller's question."""
    profile_check(Kind.ROOT, root, root, address=None)
    if etcdcert.mesh_of(root) != mesh:
        raise _rejected("grant-mesh", etcdcert.mesh_of(root), mesh)
    profile_check(Kind.INTERMEDIATE, intermediate, root, address=address)
    if etcdcert.public_key_hash(intermediate) != key:
        raise _rejected("grant-key", "another key", "the key of the request")
    _check_dates(root, now)
    _check_dates(intermediate, now)


def check_credential(
    credential: Credential,
    roots: Sequence[x509.Certificate],
    *,
    kind: Kind,
    now: datetime,
    address: IPv6Address,
) -> None:
    """What is checked before a credential is laid or etcd is started with it: key, profile of
    leaf and intermediate, chain for every purpose that the leaf (MEMBER or CLIENT) is for."""
    if not etcdcert.key_matches(credential.key, credential.leaf):
        raise _rejected("key-match", "another key", "the key of the certificate")
    chain = (credential.leaf, *credential.chain)
    if len(chain) < 2:
        raise _rejected("chain-length", "no intermediate", "the member's intermediate")
    purposes = (Purpose.CLIENT,) if kind is Kind.CLIENT else (Purpose.SERVER, Purpose.CLIENT)
    for purpose in purposes:
        verify_chain(chain, roots, now=now, purpose=purpose, address=address)
    profile_check(kind, chain[0], chain[1], address=address)
    parents = [each for each in (*roots, *chain[2:]) if issued(chain[1], each)]
    profile_check(Kind.INTERMEDIATE, chain[1], parents[0], address=address)


def _path(
    chain: Sequence[x509.Certificate], roots: Sequence[x509.Certificate]
) -> list[x509.Certificate]:
    """From the leaf to a root (V2, V3)."""
    path: list[x509.Certificate] = []
    for position, certificate in enumerate(chain):
        path.append(certificate)
        for root in roots:
            if issued(certificate, root):
                return [*path, root]
        if position + 1 < len(chain) and not issued(certificate, chain[position + 1]):
            said = certificate.issuer.rfc4514_string()
            raise _rejected("chain-link", f"{said}, not the next one's", "the next one's issue")
    raise _rejected(
        "chain-root", chain[-1].issuer.rfc4514_string(), "one of the trusted roots as issuer"
    )


def issued(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    """By name, key identifier and signature (V2)."""
    authority = value_of(certificate, x509.AuthorityKeyIdentifier)
    subject = value_of(issuer, x509.SubjectKeyIdentifier)
    if authority is None or subject is None or authority.key_identifier != subject.digest:
        return False
    if certificate.issuer.public_bytes() != issuer.subject.public_bytes():
        return False
    try:
        certificate.verify_directly_issued_by(issuer)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _check_algorithm(certificate: x509.Certificate) -> None:
    oid = certificate.signature_algorithm_oid
    sound = oid == SignatureAlgorithmOID.ECDSA_WITH_SHA256
    if not sound or not etcdcert.is_p256(certificate.public_key()):
        raise _rejected("chain-algorithm", "another algorithm", "P-256 with ecdsa-with-SHA256")


def _check_critical(certificate: x509.Certificate) -> None:
    for extension in certificate.extensions:
        if extension.critical and not isinstance(extension.value, _UNDERSTOOD):
            raise _rejected("chain-critical", extension.oid.dotted_string, "nothing unknown")


def _check_dates(certificate: x509.Certificate, now: datetime) -> None:
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if not start <= now <= end:
        name = certificate.subject.rfc4514_string()
        raise _rejected(
            "chain-dates", f"{now:%FT%TZ}", f"{name} from {start:%FT%TZ} to {end:%FT%TZ}"
        )


def _check_issuer(issuer: x509.Certificate, *, below: int) -> None:
    """`below` counts the CAs between this one and the leaf (V7, V8)."""
    basic = value_of(issuer, x509.BasicConstraints)
    usage = value_of(issuer, x509.KeyUsage)
    if basic is None or not basic.ca or usage is None or not usage.key_cert_sign:
        raise _rejected("chain-ca", issuer.subject.rfc4514_string(), "a CA as issuer")
    if basic.path_length is not None and below > basic.path_length:
        raise _rejected("chain-path-length", f"{below} below", f"at most {basic.path_length}")


def _check_leaf(leaf: x509.Certificate) -> None:
    basic = value_of(leaf, x509.BasicConstraints)
    usage = value_of(leaf, x509.KeyUsage)
    if basic is not None and basic.ca:
        raise _rejected("chain-ca", "a CA as the leaf", "a leaf")
    if usage is None or not usage.digital_signature:
        raise _rejected("chain-usage", "no digitalSignature", "digitalSignature")


def _check_constraints(leaf: x509.Certificate, issuer: x509.Certificate) -> None:
    """Addresses and DNS names are all that keel constrains; other kinds of constraint that this
    could not weigh are refused with it (V9)."""
    constraints = value_of(issuer, x509.NameConstraints)
    names = value_of(leaf, x509.SubjectAlternativeName)
    if constraints is None:
        return
    permitted, excluded = constraints.permitted_subtrees or (), constraints.excluded_subtrees or ()
    if any(not isinstance(each, x509.IPAddress) for each in permitted):
        raise _rejected("chain-constraints", "a permitted name of another kind", "addresses only")
    if list(excluded) not in ([], [x509.DNSName("")]):
        raise _rejected("chain-constraints", "an excluded name of another kind", "all of DNS")
    for name in names or ():
        inside = any(_holds(each, name) for each in permitted)
        if isinstance(name, x509.IPAddress) and permitted and not inside:
            raise _rejected("chain-constraints", str(name.value), "an address that is permitted")
        if isinstance(name, x509.DNSName) and excluded:
            raise _rejected("chain-constraints", name.value, "no DNS name")


def _holds(subtree: x509.GeneralName, name: x509.GeneralName) -> bool:
    return (
        isinstance(name, x509.IPAddress)
        and isinstance(name.value, IPv6Address)
        and name.value in subtree.value
    )


def _check_usage(certificate: x509.Certificate, purpose: Purpose, *, required: bool) -> None:
    usages = value_of(certificate, x509.ExtendedKeyUsage)
    if (usages is None and required) or (usages is not None and _USAGE[purpose] not in usages):
        name = certificate.subject.rfc4514_string()
        raise _rejected("chain-usage", f"{name} not for it", f"TLS {purpose} authentication")


def _check_address(
    leaf: x509.Certificate, root: x509.Certificate, purpose: Purpose, address: IPv6Address
) -> None:
    names = list(value_of(leaf, x509.SubjectAlternativeName) or ())
    wanted: list[x509.GeneralName] = [x509.IPAddress(address)]
    if purpose is Purpose.CLIENT:
        uri = etcdcert.client_uri(etcdcert.mesh_of(root), address)
        wanted.append(x509.UniformResourceIdentifier(uri))
    if not any(name in names for name in wanted):
        said = ", ".join(str(name.value) for name in names) or "no name"
        raise _rejected("chain-address", said, address.compressed)


def _rejected(check: str, got: str, expected: str) -> PkiRejected:
    return PkiRejected(check, got=got, expected=expected)


_USAGE = {
    Purpose.SERVER: ExtendedKeyUsageOID.SERVER_AUTH,
    Purpose.CLIENT: ExtendedKeyUsageOID.CLIENT_AUTH,
}
_UNDERSTOOD = (
    x509.BasicConstraints,
    x509.KeyUsage,
    x509.ExtendedKeyUsage,
    x509.NameConstraints,
    x509.SubjectAlternativeName,
)
