"""Every rule of keel's profile finds its deliberately wrong certificate, by its name."""

from __future__ import annotations

import pytest
from cryptography import x509

from keel.errors import Internal, PkiRejected
from keel.mesh import etcdcert, etcdprofile
from keel.mesh.etcdprofile import Kind, profile_check
from tests.pki import make
from tests.pki.defects import CERTIFICATES, Defect, good_chain
from tests.pki.make import Changes


@pytest.mark.parametrize("defect", CERTIFICATES, ids=lambda defect: defect.name)
def test_a_wrong_certificate_is_refused_by_the_rule_it_breaks(defect: Defect) -> None:
    certificate, issuer = defect.chain().subject(defect.kind)
    with pytest.raises(PkiRejected) as caught:
        profile_check(defect.kind, certificate, issuer, address=defect.address)
    assert caught.value.check == defect.check
    assert caught.value.got != caught.value.expected


@pytest.mark.parametrize("kind", list(Kind))
def test_a_good_certificate_passes_every_rule(kind: Kind) -> None:
    chain = good_chain(Kind.CLIENT if kind is Kind.CLIENT else Kind.MEMBER)
    certificate, issuer = chain.subject(kind)
    address = None if kind is Kind.ROOT else make.ADDRESS
    profile_check(kind, certificate, issuer, address=address)


def test_every_rule_has_a_certificate_that_breaks_it() -> None:
    broken = {defect.check for defect in CERTIFICATES} | {"issuer-constraints"}
    assert broken == set(etcdprofile.RULES)


def test_a_leaf_of_another_members_intermediate_is_refused() -> None:
    other = make.intermediate(address=make.OTHER_ADDRESS)
    leaf = make.rebuilt(
        make.member().leaf,
        Changes(
            issuer=other.certificate.subject,
            extensions={
                x509.AuthorityKeyIdentifier: (
                    False,
                    x509.AuthorityKeyIdentifier.from_issuer_public_key(
                        other.certificate.public_key()
                    ),
                )
            },
        ),
        signer=other.key,
    )
    with pytest.raises(PkiRejected) as caught:
        profile_check(Kind.MEMBER, leaf, other.certificate, address=make.ADDRESS)
    assert caught.value.check == "issuer-constraints"


def test_an_issuer_without_key_identifier_has_no_sound_children() -> None:
    root = make.root()
    bare = make.rebuilt(
        root.certificate, Changes(without=(x509.SubjectKeyIdentifier,)), signer=root.key
    )
    with pytest.raises(PkiRejected) as caught:
        profile_check(
            Kind.INTERMEDIATE, make.intermediate().certificate, bare, address=make.ADDRESS
        )
    assert caught.value.check == "authority-key-identifier"


def test_an_intermediate_is_not_checked_without_its_address() -> None:
    with pytest.raises(Internal):
        profile_check(
            Kind.INTERMEDIATE,
            make.intermediate().certificate,
            make.root().certificate,
            address=None,
        )


def test_the_serials_bounds_are_the_entropy_and_twenty_octets() -> None:
    for bits, sound in ((95, False), (96, True), (159, True)):
        leaf = make.rebuilt(
            make.member().leaf, Changes(serial=1 << (bits - 1)), signer=make.intermediate().key
        )
        issuer = make.intermediate().certificate
        if sound:
            profile_check(Kind.MEMBER, leaf, issuer, address=make.ADDRESS)
        else:
            with pytest.raises(PkiRejected):
                profile_check(Kind.MEMBER, leaf, issuer, address=make.ADDRESS)


def test_names_are_compared_by_their_bytes() -> None:
    """RFC 5280 lets two encodings of one name be equal; a CRL's issuer and etcd's pool are not
    to depend on who knows that."""
    root = make.root()
    printable = x509.Name(
        [
            x509.NameAttribute(part.oid, part.value, _type=x509.name._ASN1Type.PrintableString)
            for part in root.certificate.subject
        ]
    )
    made = make.rebuilt(
        root.certificate, Changes(subject=printable, issuer=printable), signer=root.key
    )
    assert made.subject == etcdcert.root_name(make.MESH, 1)
    with pytest.raises(PkiRejected) as caught:
        profile_check(Kind.ROOT, made, made, address=None)
    assert caught.value.check == "subject"
