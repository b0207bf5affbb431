"""verify_chain's numbered steps, one wrong chain each, and second opinions about them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime, timedelta
from ipaddress import IPv4Address, IPv4Network, IPv6Network
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, ObjectIdentifier
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from keel.errors import PkiRejected
from keel.mesh import etcdcert, etcdpki
from keel.mesh.etcdcert import Authority
from keel.mesh.etcdchain import Purpose, check_credential, check_grant, verify_chain
from keel.mesh.etcdpki import Credential
from keel.mesh.etcdprofile import Kind, key_usage, only
from keel.types import LOCALHOST
from tests.pki import make
from tests.pki.make import Changes

ROOT = make.root()
INTERMEDIATE = make.intermediate()
MEMBER = make.member()
CLIENT = make.client()
BOTH = [only(make.ADDRESS), only(LOCALHOST)]
"""All that the leaf's names need."""
SECOND = timedelta(seconds=1)
UNKNOWN = x509.UnrecognizedExtension(ObjectIdentifier("1.3.6.1.4.1.55555.1"), b"\x05\x00")


def _root(**changes: Any) -> x509.Certificate:
    return make.rebuilt(ROOT.certificate, Changes(**changes), signer=ROOT.key)


def _intermediate(**changes: Any) -> x509.Certificate:
    return make.rebuilt(INTERMEDIATE.certificate, Changes(**changes), signer=ROOT.key)


def _leaf(**changes: Any) -> x509.Certificate:
    return make.rebuilt(MEMBER.leaf, Changes(**changes), signer=INTERMEDIATE.key)


def _with(value: x509.ExtensionType, *, critical: bool = True) -> dict[type, Any]:
    return {type(value): (critical, value)}


def _constraints(permitted: Any, excluded: Any) -> dict[type, Any]:
    return _with(x509.NameConstraints(permitted, excluded))


def _signed_with_p384() -> list[x509.Certificate]:
    """A whole chain under a P-384 root: every link verifies, the algorithm is not allowed."""
    private = ec.derive_private_key(7 << 300, ec.SECP384R1())
    identifier = x509.SubjectKeyIdentifier.from_public_key(private.public_key())
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(private.public_key())
    both = {
        x509.SubjectKeyIdentifier: (False, identifier),
        x509.AuthorityKeyIdentifier: (False, authority),
    }
    root = make.rebuilt(
        ROOT.certificate, Changes(public=private.public_key(), extensions=both), signer=private
    )
    under = make.rebuilt(
        INTERMEDIATE.certificate,
        Changes(extensions={x509.AuthorityKeyIdentifier: (False, authority)}),
        signer=private,
    )
    return [MEMBER.leaf, under, root]


def _two_deep(*, self_issued: bool) -> list[x509.Certificate]:
    """leaf <- a second CA made with the member's own intermediate <- intermediate."""
    name = INTERMEDIATE.certificate.subject if self_issued else etcdcert.common_name("sub")
    private = etcdcert.load_key(make.key("sub"))
    parent = x509.AuthorityKeyIdentifier.from_issuer_public_key(
        INTERMEDIATE.certificate.public_key()
    )
    own = x509.SubjectKeyIdentifier.from_public_key(private.public_key())
    sub = make.rebuilt(
        INTERMEDIATE.certificate,
        Changes(
            subject=name,
            issuer=INTERMEDIATE.certificate.subject,
            public=private.public_key(),
            extensions={
                x509.SubjectKeyIdentifier: (False, own),
                x509.AuthorityKeyIdentifier: (False, parent),
            },
        ),
        signer=INTERMEDIATE.key,
    )
    below = x509.AuthorityKeyIdentifier.from_issuer_public_key(private.public_key())
    leaf = make.rebuilt(
        MEMBER.leaf,
        Changes(issuer=name, extensions={x509.AuthorityKeyIdentifier: (False, below)}),
        signer=make.key("sub"),
    )
    return [leaf, sub, INTERMEDIATE.certificate, ROOT.certificate]


def _chain(
    *,
    leaf: x509.Certificate | None = None,
    under: x509.Certificate | None = None,
    root: x509.Certificate | None = None,
) -> list[x509.Certificate]:
    return [
        leaf or MEMBER.leaf,
        under or INTERMEDIATE.certificate,
        root or ROOT.certificate,
    ]


WRONG: list[tuple[str, str, Callable[[], list[x509.Certificate]]]] = [
    ("no certificate", "chain-length", lambda: [ROOT.certificate]),
    (
        "more than three issuers",
        "chain-length",
        lambda: [MEMBER.leaf, *[INTERMEDIATE.certificate] * 4, ROOT.certificate],
    ),
    (
        "another member's intermediate",
        "chain-link",
        lambda: _chain(under=make.intermediate(address=make.OTHER_ADDRESS).certificate),
    ),
    (
        "leaf without authority key identifier",
        "chain-link",
        lambda: _chain(leaf=_leaf(without=(x509.AuthorityKeyIdentifier,))),
    ),
    (
        "issuer without key identifier",
        "chain-link",
        lambda: _chain(under=_intermediate(without=(x509.SubjectKeyIdentifier,))),
    ),
    (
        "another key identifier under the right name",
        "chain-link",
        lambda: _chain(
            leaf=_leaf(
                extensions=_with(x509.AuthorityKeyIdentifier(bytes(20), None, None), critical=False)
            )
        ),
    ),
    (
        "the right key identifier under another name",
        "chain-link",
        lambda: _chain(leaf=_leaf(issuer=etcdcert.common_name("someone"))),
    ),
    (
        "signed by another key",
        "chain-link",
        lambda: _chain(leaf=make.rebuilt(MEMBER.leaf, Changes(), signer=make.key("x"))),
    ),
    (
        "another mesh's root",
        "chain-root",
        lambda: _chain(root=make.root(mesh=make.OTHER_MESH).certificate),
    ),
    (
        "intermediate left out",
        "chain-root",
        lambda: [MEMBER.leaf, ROOT.certificate],
    ),
    ("SHA-512", "chain-algorithm", lambda: _chain(leaf=_leaf(hash=hashes.SHA512()))),
    ("a P-384 root", "chain-algorithm", _signed_with_p384),
    (
        "unknown critical extension",
        "chain-critical",
        lambda: _chain(leaf=_leaf(extensions=_with(UNKNOWN))),
    ),
    (
        "leaf that ended",
        "chain-dates",
        lambda: _chain(leaf=_leaf(not_after=make.NOW - timedelta(minutes=1))),
    ),
    (
        "intermediate that ended",
        "chain-dates",
        lambda: _chain(under=_intermediate(not_after=make.NOW - timedelta(minutes=1))),
    ),
    (
        "root that has not begun",
        "chain-dates",
        lambda: _chain(root=_root(not_before=make.NOW + timedelta(minutes=1))),
    ),
    (
        "issuer that is no CA",
        "chain-ca",
        lambda: _chain(under=_intermediate(extensions=_with(x509.BasicConstraints(False, None)))),
    ),
    (
        "issuer without basic constraints",
        "chain-ca",
        lambda: _chain(under=_intermediate(without=(x509.BasicConstraints,))),
    ),
    (
        "issuer without key usage",
        "chain-ca",
        lambda: _chain(under=_intermediate(without=(x509.KeyUsage,))),
    ),
    (
        "issuer that may not sign certificates",
        "chain-ca",
        lambda: _chain(under=_intermediate(extensions=_with(key_usage(crl_sign=True)))),
    ),
    (
        "a CA as the leaf",
        "chain-ca",
        lambda: _chain(leaf=_leaf(extensions=_with(x509.BasicConstraints(True, None)))),
    ),
    ("a CA below path length 0", "chain-path-length", lambda: _two_deep(self_issued=False)),
    (
        "a self-issued CA below path length 0",
        "chain-path-length",
        lambda: _two_deep(self_issued=True),
    ),
    (
        "another member's address",
        "chain-constraints",
        lambda: _chain(
            leaf=_leaf(
                extensions=_with(x509.SubjectAlternativeName([x509.IPAddress(make.OTHER_ADDRESS)]))
            )
        ),
    ),
    (
        "an IPv4 address",
        "chain-constraints",
        lambda: _chain(
            leaf=_leaf(
                extensions=_with(
                    x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("192.0.2.1"))])
                )
            )
        ),
    ),
    (
        "a network where an address belongs",
        "chain-constraints",
        lambda: _chain(
            leaf=_leaf(
                extensions=_with(
                    x509.SubjectAlternativeName([x509.IPAddress(IPv6Network("fd0a::/64"))])
                )
            )
        ),
    ),
    (
        "a DNS name",
        "chain-constraints",
        lambda: _chain(
            leaf=_leaf(extensions=_with(x509.SubjectAlternativeName([x509.DNSName("a.example")])))
        ),
    ),
    (
        "a permitted directory name",
        "chain-constraints",
        lambda: _chain(
            under=_intermediate(
                extensions=_constraints(
                    [*BOTH, x509.DirectoryName(etcdcert.common_name("x"))], [x509.DNSName("")]
                )
            )
        ),
    ),
    (
        "an excluded address",
        "chain-constraints",
        lambda: _chain(
            under=_intermediate(extensions=_constraints(BOTH, [only(make.OTHER_ADDRESS)]))
        ),
    ),
    (
        "IPv4 only permitted",
        "chain-constraints",
        lambda: _chain(
            under=_intermediate(
                extensions=_constraints(
                    [x509.IPAddress(IPv4Network("192.0.2.0/24"))], [x509.DNSName("")]
                )
            )
        ),
    ),
    (
        "a leaf without extended key usage",
        "chain-usage",
        lambda: _chain(leaf=_leaf(without=(x509.ExtendedKeyUsage,))),
    ),
    (
        "a leaf for clients",
        "chain-usage",
        lambda: _chain(
            leaf=_leaf(extensions=_with(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])))
        ),
    ),
    (
        "an issuer for clients",
        "chain-usage",
        lambda: _chain(
            under=_intermediate(
                extensions=_with(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]))
            )
        ),
    ),
    (
        "a leaf that may not sign",
        "chain-usage",
        lambda: _chain(leaf=_leaf(extensions=_with(key_usage(crl_sign=True)))),
    ),
    (
        "a leaf without key usage",
        "chain-usage",
        lambda: _chain(leaf=_leaf(without=(x509.KeyUsage,))),
    ),
    (
        "a leaf without names",
        "chain-address",
        lambda: _chain(leaf=_leaf(without=(x509.SubjectAlternativeName,))),
    ),
    (
        "a leaf of loopback only",
        "chain-address",
        lambda: _chain(
            leaf=_leaf(extensions=_with(x509.SubjectAlternativeName([x509.IPAddress(LOCALHOST)])))
        ),
    ),
]


@pytest.mark.parametrize(("_name", "check", "build"), WRONG, ids=[case[0] for case in WRONG])
def test_a_wrong_chain_fails_at_the_step_it_breaks(
    _name: str, check: str, build: Callable[[], list[x509.Certificate]]
) -> None:
    *chain, root = build()
    with pytest.raises(PkiRejected) as caught:
        verify_chain(chain, [root], now=make.NOW, purpose=Purpose.SERVER, address=make.ADDRESS)
    assert caught.value.check == check


def test_a_member_leaf_is_good_for_both_ends_and_a_client_leaf_for_one() -> None:
    for purpose in Purpose:
        found = verify_chain(
            [MEMBER.leaf, *MEMBER.chain],
            [ROOT.certificate],
            now=make.NOW,
            purpose=purpose,
            address=make.ADDRESS,
        )
        assert found == ROOT.certificate
    verify_chain(
        [CLIENT.leaf, *CLIENT.chain],
        [ROOT.certificate],
        now=make.NOW,
        purpose=Purpose.CLIENT,
        address=make.ADDRESS,
    )
    with pytest.raises(PkiRejected) as caught:
        verify_chain(
            [CLIENT.leaf, *CLIENT.chain],
            [ROOT.certificate],
            now=make.NOW,
            purpose=Purpose.SERVER,
        )
    assert caught.value.check == "chain-usage"


def test_a_client_leaf_names_its_own_member_only() -> None:
    with pytest.raises(PkiRejected) as caught:
        verify_chain(
            [CLIENT.leaf, *CLIENT.chain],
            [ROOT.certificate],
            now=make.NOW,
            purpose=Purpose.CLIENT,
            address=make.OTHER_ADDRESS,
        )
    assert caught.value.check == "chain-address"


def test_a_leaf_straight_under_the_root_verifies() -> None:
    """The canary of a rotation is one."""
    canary = make.rebuilt(
        MEMBER.leaf,
        Changes(
            issuer=ROOT.certificate.subject,
            extensions={
                x509.AuthorityKeyIdentifier: (
                    False,
                    x509.AuthorityKeyIdentifier.from_issuer_public_key(
                        ROOT.certificate.public_key()
                    ),
                )
            },
        ),
        signer=ROOT.key,
    )
    for chain in ([canary], [canary, INTERMEDIATE.certificate]):
        verify_chain(
            chain,
            [ROOT.certificate],
            now=make.NOW,
            purpose=Purpose.SERVER,
            address=make.ADDRESS,
        )


def _bridge(old: Authority, new: Authority) -> x509.Certificate:
    """The new root's name and key, signed by the old root."""
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(old.certificate.public_key())
    return make.rebuilt(
        new.certificate,
        Changes(
            issuer=old.certificate.subject,
            serial=int.from_bytes(make.serial("bridge"), "big") >> 1,
            not_after=make.NOW + timedelta(days=180),
            extensions={
                x509.AuthorityKeyIdentifier: (False, identifier),
                x509.BasicConstraints: (True, x509.BasicConstraints(True, 1)),
            },
        ),
        signer=old.key,
    )


@pytest.mark.parametrize(
    ("generations", "ends_in"),
    [
        pytest.param([1], 1, id="old root alone"),
        pytest.param([2], 2, id="new root alone"),
        pytest.param([2, 1], 2, id="both"),
        pytest.param([1, 2], 2, id="both, the old one first"),
    ],
)
def test_a_chain_with_a_bridge_verifies_under_old_new_and_both(
    generations: list[int], ends_in: int
) -> None:
    roots = {1: make.root(generation=1), 2: make.root(generation=2)}
    under = make.intermediate(roots[2])
    member = make.member(under)
    bridged = Credential(
        leaf=member.leaf,
        chain=(under.certificate, _bridge(roots[1], roots[2])),
        key=member.key,
    )
    trusted = [roots[number].certificate for number in generations]
    found = verify_chain(
        [bridged.leaf, *bridged.chain],
        trusted,
        now=make.NOW,
        purpose=Purpose.SERVER,
        address=make.ADDRESS,
    )
    assert etcdcert.generation_of(found) == ends_in
    if 2 in generations:
        check_credential(bridged, trusted, kind=Kind.MEMBER, now=make.NOW, address=make.ADDRESS)


@pytest.mark.parametrize(
    ("moment", "sound"),
    [
        pytest.param(MEMBER.leaf.not_valid_before_utc, True, id="its first second"),
        pytest.param(MEMBER.leaf.not_valid_after_utc, True, id="its last"),
        pytest.param(MEMBER.leaf.not_valid_before_utc - SECOND, False, id="before"),
        pytest.param(MEMBER.leaf.not_valid_after_utc + SECOND, False, id="after"),
    ],
)
def test_a_chain_is_in_time_from_its_first_to_its_last_second(
    moment: datetime, sound: bool
) -> None:
    outcome = nullcontext() if sound else pytest.raises(PkiRejected, match="chain-dates")
    with outcome:
        verify_chain(
            [MEMBER.leaf, *MEMBER.chain],
            [ROOT.certificate],
            now=moment,
            purpose=Purpose.SERVER,
        )


# -- what is received, and what is about to be laid


def _grant(**over: Any) -> None:
    arguments = {
        "intermediate": INTERMEDIATE.certificate,
        "root": ROOT.certificate,
        "mesh": make.MESH,
        "address": make.ADDRESS,
        "key": etcdcert.public_key_hash(INTERMEDIATE.certificate),
        "now": make.NOW,
    } | over
    check_grant(arguments.pop("intermediate"), arguments.pop("root"), **arguments)


def test_a_good_grant_is_taken() -> None:
    _grant()


@pytest.mark.parametrize(
    ("over", "check"),
    [
        pytest.param({"root": INTERMEDIATE.certificate}, "subject", id="no root"),
        pytest.param({"mesh": make.OTHER_MESH}, "grant-mesh", id="another mesh's root"),
        pytest.param({"address": make.OTHER_ADDRESS}, "subject", id="another member's"),
        pytest.param(
            {"key": etcdcert.public_key_hash(ROOT.certificate)}, "grant-key", id="another key's"
        ),
        pytest.param(
            {"now": make.NOW + timedelta(days=366)}, "chain-dates", id="intermediate that ended"
        ),
        pytest.param({"now": make.NOW + timedelta(days=3651)}, "chain-dates", id="root that ended"),
    ],
)
def test_a_bad_grant_is_refused_by_name(over: dict[str, Any], check: str) -> None:
    with pytest.raises(PkiRejected) as caught:
        _grant(**over)
    assert caught.value.check == check


@pytest.mark.parametrize("kind", [Kind.MEMBER, Kind.CLIENT])
def test_a_good_credential_may_be_laid(kind: Kind) -> None:
    credential = MEMBER if kind is Kind.MEMBER else CLIENT
    check_credential(credential, [ROOT.certificate], kind=kind, now=make.NOW, address=make.ADDRESS)


@pytest.mark.parametrize(
    ("credential", "kind", "check"),
    [
        pytest.param(
            Credential(leaf=MEMBER.leaf, chain=MEMBER.chain, key=make.key("x")),
            Kind.MEMBER,
            "key-match",
            id="another key",
        ),
        pytest.param(
            Credential(leaf=MEMBER.leaf, chain=(), key=MEMBER.key),
            Kind.MEMBER,
            "chain-length",
            id="no intermediate",
        ),
        pytest.param(CLIENT, Kind.MEMBER, "chain-usage", id="a client leaf for a member's"),
        pytest.param(MEMBER, Kind.CLIENT, "subject", id="a member leaf for a client's"),
        pytest.param(
            Credential(
                leaf=MEMBER.leaf,
                chain=(_intermediate(not_after=make.NOW + timedelta(days=400)),),
                key=MEMBER.key,
            ),
            Kind.MEMBER,
            "life",
            id="an intermediate outside the profile",
        ),
    ],
)
def test_a_bad_credential_is_not_laid(credential: Credential, kind: Kind, check: str) -> None:
    with pytest.raises(PkiRejected) as caught:
        check_credential(
            credential, [ROOT.certificate], kind=kind, now=make.NOW, address=make.ADDRESS
        )
    assert caught.value.check == check


# -- second opinions


def _library_says(chain: list[x509.Certificate], root: x509.Certificate, purpose: Purpose) -> bool:
    policy = PolicyBuilder().store(Store([root])).time(make.NOW.replace(tzinfo=None))
    try:
        if purpose is Purpose.SERVER:
            verifier = policy.build_server_verifier(x509.IPAddress(make.ADDRESS))
            verifier.verify(chain[0], list(chain[1:]))
        else:
            policy.build_client_verifier().verify(chain[0], list(chain[1:]))
    except VerificationError:
        return False
    return True


def _openssl_says(
    chain: list[x509.Certificate], root: x509.Certificate, purpose: Purpose, directory: Path
) -> bool:
    files = {"root": [root], "above": chain[1:], "leaf": chain[:1]}
    for name, certificates in files.items():
        (directory / name).write_bytes(b"".join(etcdcert.pem(each) for each in certificates))
    above = ["-untrusted", str(directory / "above")] if chain[1:] else []
    done = subprocess.run(
        [
            "openssl",
            "verify",
            "-x509_strict",
            "-attime",
            str(int(make.NOW.timestamp())),
            "-CAfile",
            str(directory / "root"),
            *above,
            "-purpose",
            f"ssl{purpose}",
            *(["-verify_ip", make.ADDRESS.compressed] if purpose is Purpose.SERVER else []),
            str(directory / "leaf"),
        ],
        capture_output=True,
        check=False,
    )
    return done.returncode == 0


@pytest.mark.parametrize("purpose", list(Purpose))
@pytest.mark.parametrize("kind", [Kind.MEMBER, Kind.CLIENT])
def test_the_library_and_openssl_agree_about_good_chains(
    kind: Kind, purpose: Purpose, tmp_path: Path
) -> None:
    credential = MEMBER if kind is Kind.MEMBER else CLIENT
    chain = [credential.leaf, *credential.chain]
    expected = not (kind is Kind.CLIENT and purpose is Purpose.SERVER)
    assert _library_says(chain, ROOT.certificate, purpose) is expected
    assert _openssl_says(chain, ROOT.certificate, purpose, tmp_path) is expected


UNSEEN_BY_BOTH = {
    # keel's own strictness: legal for others
    "SHA-512",
    "a P-384 root",
    "a permitted directory name",
    "an excluded address",
    "a leaf without extended key usage",
    "a leaf without key usage",
}


@pytest.mark.parametrize(
    ("name", "build"),
    [
        (name, build)
        for name, check, build in WRONG
        if check != "chain-length" and name not in UNSEEN_BY_BOTH
    ],
    ids=[
        name for name, check, _ in WRONG if check != "chain-length" and name not in UNSEEN_BY_BOTH
    ],
)
def test_openssl_or_the_library_refuses_too(
    name: str, build: Callable[[], list[x509.Certificate]], tmp_path: Path
) -> None:
    *chain, root = build()
    accepted = {
        "library": _library_says(chain, root, Purpose.SERVER),
        "openssl": _openssl_says(chain, root, Purpose.SERVER, tmp_path),
    }
    assert not all(accepted.values()), accepted


def test_nothing_that_keel_accepts_is_refused_by_another() -> None:
    """keel may be stricter than the library, never laxer: the bridge and both roots included."""
    roots = {1: make.root(generation=1), 2: make.root(generation=2)}
    under = make.intermediate(roots[2])
    member = make.member(under)
    chain = [member.leaf, under.certificate, _bridge(roots[1], roots[2])]
    for root in roots.values():
        for purpose in Purpose:
            verify_chain(chain, [root.certificate], now=make.NOW, purpose=purpose)
            assert _library_says(chain, root.certificate, purpose)


def test_sizes_stay_far_below_the_bounds() -> None:
    for certificate in (ROOT.certificate, INTERMEDIATE.certificate, MEMBER.leaf, CLIENT.leaf):
        assert len(etcdcert.der(certificate)) * 4 < etcdcert.MAX_CERTIFICATE_BYTES
    request = etcdpki.new_request(make.key("x"), make.ADDRESS)
    assert len(request) * 4 < etcdpki.MAX_REQUEST_BYTES
