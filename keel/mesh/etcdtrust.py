"""The trust bundle: which roots a member's etcd trusts, as one canonical file.

Rules:
(B1) Self-signed roots that pass the profile only: an intermediate in a trust file would defeat
     revocation, because etcd then accepts chains that leave the intermediate out.
(B2) One byte form per set of roots: newest generation first, canonical PEM. etcd skips a damaged
     block without a word, so anything else is an error here and never fewer roots.
(B3) One root, or two while a rotation is on; never two of one generation or of two meshes.
"""

from __future__ import annotations

from collections.abc import Iterable

from cryptography import x509

from keel.types import Fingerprint

MAX_ROOTS = 2


def encode_bundle(roots: Iterable[x509.Certificate]) -> bytes:
    """The canonical file of a set of roots in any order; PkiRejected by B1 or B3."""
    raise NotImplementedError


def parse_bundle(raw: bytes) -> tuple[x509.Certificate, ...]:
    """The roots, newest generation first; PkiRejected for any other bytes than encode_bundle's."""
    raise NotImplementedError


def fingerprints(roots: Iterable[x509.Certificate]) -> frozenset[Fingerprint]:
    """What two bundles are compared by."""
    raise NotImplementedError


def trust_id(roots: Iterable[x509.Certificate]) -> str:
    """One name for a set of roots: SHA-256 over the sorted fingerprints, lower-case hex."""
    raise NotImplementedError
