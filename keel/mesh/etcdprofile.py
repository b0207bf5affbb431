"""keel's own rules for certificates, one named check per rule, before anything is used.

Says again, apart from what issues (etcdpki), what each kind of certificate must be: no linter
knows about lives inside lives, the generation in the name, the entropy of a serial or the closed
DNS. Looks at one certificate and its issuer; whether a chain ends in a trusted root, and whether
it is in time, is etcdchain's.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from ipaddress import IPv6Address

from cryptography import x509

ROOT_LIFE = timedelta(days=3650)
INTERMEDIATE_LIFE = timedelta(days=365)
LEAF_LIFE = timedelta(days=30)
BACKDATED = timedelta(hours=1)  # members' clocks may differ by 300 s before keel itself waits


class Kind(StrEnum):
    """What a certificate is for; a bridge between two roots will be a fifth."""

    ROOT = "root"
    INTERMEDIATE = "intermediate"
    MEMBER = "member"
    CLIENT = "client"


def profile_check(
    kind: Kind,
    certificate: x509.Certificate,
    issuer: x509.Certificate,
    *,
    address: IPv6Address | None,
) -> None:
    """PkiRejected with the name of the first rule broken. `address` is the member's; None for a
    root, whose issuer is itself."""
    raise NotImplementedError
