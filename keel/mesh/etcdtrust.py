"""The trust bundle: which roots a member's etcd trusts, as one canonical file.

Rules:
(B1) Self-signed roots that pass the profile only: an intermediate in a trust file would defeat
     revocation, because etcd then accepts chains that leave the intermediate out.
(B2) One byte form per set of roots: newest generation first, canonical PEM. etcd skips a damaged
     block without a word, so anything else is an error here and never fewer roots.
(B3) One root, or two while a rotation is on; never two of one generation or of two meshes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from cryptography import x509

from keel.errors import PkiRejected
from keel.mesh import etcdcert
from keel.mesh.etcdprofile import Kind, profile_check
from keel.types import Fingerprint

MAX_ROOTS = 2

REMEMBERED = 4
"""Bundles that stay parsed: a member has one, and two while a rotation is on."""


def encode_bundle(roots: Iterable[x509.Certificate]) -> bytes:
    """The canonical file of a set of roots in any order; PkiRejected by B1 or B3."""
    return b"".join(etcdcert.pem(root) for root in _ordered(roots))


@functools.lru_cache(maxsize=REMEMBERED)
def parse_bundle(raw: bytes) -> tuple[x509.Certificate, ...]:
    """The roots, newest generation first; PkiRejected for any other bytes than encode_bundle's."""
    found = etcdcert.parse_pem_certificates(raw, most=MAX_ROOTS)
    if found != _ordered(found):
        raise PkiRejected("bundle-order", got="older first", expected="the newest generation first")
    return found


def fingerprints(roots: Iterable[x509.Certificate]) -> frozenset[Fingerprint]:
    """What two bundles are compared by."""
    return frozenset(etcdcert.fingerprint(root) for root in roots)


def _ordered(roots: Iterable[x509.Certificate]) -> tuple[x509.Certificate, ...]:
    found = sorted(roots, key=etcdcert.generation_of, reverse=True)
    if not 1 <= len(found) <= MAX_ROOTS:
        raise PkiRejected("bundle-size", got=f"{len(found)} roots", expected=f"1 to {MAX_ROOTS}")
    for root in found:
        profile_check(Kind.ROOT, root, root, address=None)
    if len({etcdcert.generation_of(root) for root in found}) != len(found):
        raise PkiRejected("bundle-generation", got="one twice", expected="each generation once")
    if len({etcdcert.mesh_of(root) for root in found}) != 1:
        raise PkiRejected("bundle-mesh", got="roots of two meshes", expected="one mesh's")
    return tuple(found)
