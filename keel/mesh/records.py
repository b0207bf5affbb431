"""The bodies of the roster's records, version 1 of each kind (design section 4).

Owns the fields and the limits of one record by itself. Who has to sign which, and what records
mean together, is keel.mesh.entry's and keel.mesh.standing's.

Every record names its mesh; only the genesis cannot, because the mesh id is its hash. A kind gains
fields only as version 2, which is sent once every live member's self record lists it (`versions`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from ipaddress import IPv6Address

from keel.types import (
    Capability,
    Endpoint,
    Fingerprint,
    MeshId,
    NodeName,
    Nonce,
    RecordHash,
    SigningKey,
    WgKey,
    parse_hex,
    parse_name,
    parse_wg_key,
)

GENESIS = "genesis"
ADMISSION = "admission"
REMOVAL = "removal"
VOTE = "vote"
SELF = "self"
SUCCESSION = "succession"
CRL = "crl"
HOLDER = "holder"

VERSIONS = tuple(
    f"{kind}.v1" for kind in (ADMISSION, CRL, GENESIS, HOLDER, REMOVAL, SELF, SUCCESSION, VOTE)
)
"""What this code reads, as a self record lists it."""

MAX_COUNTER = 2**53 - 1  # what every JSON reader keeps exactly; one a second for 285 million years
MAX_ENDPOINTS = 16  # more than one machine has; each is tried in turn
MAX_ROOTS = 128  # each is chosen by an operator, by name
MAX_VERSIONS = 64
MAX_LISTED = 1024  # hashes in one list: the roster keeps at most 512 admissions of one signer
MAX_ADOPTED = 256  # members of a mesh that was made by hand
MAX_CRL_BYTES = 48 * 1024  # about 1200 serials; more does not fit a message with its chain
MAX_GENERATIONS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedMember:
    """A member of a mesh that was made by hand: its address stays as it was found."""

    ed25519: SigningKey
    address: IPv6Address

    def __post_init__(self) -> None:
        parse_hex(self.ed25519, size=32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Genesis:
    """The founder's admission of itself; the mesh id is its hash, the address follows from that."""

    name: NodeName
    ed25519: SigningKey
    wireguard: WgKey
    capability: Capability
    time: datetime
    nonce: Nonce
    adopted: tuple[AdoptedMember, ...] = ()

    def __post_init__(self) -> None:
        parse_name(self.name)
        parse_hex(self.ed25519, size=32)
        parse_wg_key(self.wireguard)
        parse_hex(self.nonce, size=16)
        _at_most(self.adopted, MAX_ADOPTED, "adopted members")
        _distinct([one.ed25519 for one in self.adopted], "adopted keys")
        _distinct([str(one.address) for one in self.adopted], "adopted addresses")


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """`admitted_by` lets a key into the mesh; signed by `admitted_by`."""

    mesh: MeshId
    name: NodeName
    ed25519: SigningKey
    address: IPv6Address
    wireguard: WgKey
    capability: Capability
    admitted_by: SigningKey
    time: datetime
    nonce: Nonce

    def __post_init__(self) -> None:
        parse_hex(self.mesh, size=16)
        parse_name(self.name)
        parse_hex(self.ed25519, size=32)
        parse_wg_key(self.wireguard)
        parse_hex(self.admitted_by, size=32)
        parse_hex(self.nonce, size=16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """`removed_by` puts `subject` out; signed by `removed_by`.

    `standing` lists the subject's admissions and removals that go on counting: what it signs later
    with an older date is not among them. `grounds` holds the two self records that list each other
    as roots, when that is the signer's right to remove: embedded, because the subject would
    otherwise undo its own removal by publishing a newer self record without that root.
    """

    mesh: MeshId
    subject: SigningKey
    standing: tuple[RecordHash, ...]
    grounds: tuple[bytes, ...]
    removed_by: SigningKey
    time: datetime
    nonce: Nonce

    def __post_init__(self) -> None:
        parse_hex(self.mesh, size=16)
        parse_hex(self.subject, size=32)
        parse_hex(self.removed_by, size=32)
        parse_hex(self.nonce, size=16)
        _hashes(self.standing, "standing records")
        if len(self.grounds) not in (0, 2):
            raise ValueError("grounds are two self records, or none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """`voter` wants `subject` out; `electorate` are the admissions that were live to it."""

    mesh: MeshId
    subject: SigningKey
    standing: tuple[RecordHash, ...]
    electorate: tuple[RecordHash, ...]
    voter: SigningKey
    time: datetime
    nonce: Nonce

    def __post_init__(self) -> None:
        parse_hex(self.mesh, size=16)
        parse_hex(self.subject, size=32)
        parse_hex(self.voter, size=32)
        parse_hex(self.nonce, size=16)
        _hashes(self.standing, "standing records")
        _hashes(self.electorate, "admissions")


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfRecord:
    """What a member says of itself; signed by `ed25519`, the highest counter wins.

    `wireguard_since` is when it took its present WireGuard key, repeated until the next change.
    `roots` are those that its operator made, never a joiner's automatic trust in its inviter.
    """

    mesh: MeshId
    ed25519: SigningKey
    wireguard: WgKey
    wireguard_since: datetime
    next_wireguard: WgKey | None = None
    endpoints: tuple[Endpoint, ...]
    capability: Capability
    roots: tuple[SigningKey, ...]
    versions: tuple[str, ...]
    lived: int
    counter: int
    time: datetime

    def __post_init__(self) -> None:
        parse_hex(self.mesh, size=16)
        parse_hex(self.ed25519, size=32)
        parse_wg_key(self.wireguard)
        if self.next_wireguard is not None:
            parse_wg_key(self.next_wireguard)
        _at_most(self.endpoints, MAX_ENDPOINTS, "endpoints")
        _at_most(self.roots, MAX_ROOTS, "roots")
        _at_most(self.versions, MAX_VERSIONS, "versions")
        for root in self.roots:
            parse_hex(root, size=32)
        in_range(self.lived, "lived")
        in_range(self.counter, "counter")


@dataclass(frozen=True, slots=True, kw_only=True)
class Succession:
    """A signing key hands over to another; signed by both. Kept and passed on, not acted on yet."""

    mesh: MeshId
    old: SigningKey
    new: SigningKey
    time: datetime
    nonce: Nonce

    def __post_init__(self) -> None:
        parse_hex(self.mesh, size=16)
        parse_hex(self.old, size=32)
        parse_hex(self.new, size=32)
        parse_hex(self.nonce, size=16)
        if self.old == self.new:
            raise ValueError("a key does not succeed itself")


@dataclass(frozen=True, slots=True, kw_only=True)
class CrlRecord:
    """The etcd root's revocation list, spread by a member; signed by that member.

    The list carries the root's own signature inside, which whoever installs it must verify.
    """

    mesh: MeshId
    ed25519: SigningKey
    generation: int
    number: int
    der: bytes

    def __post_init__(self) -> None:
        parse_hex(self.mesh, size=16)
        parse_hex(self.ed25519, size=32)
        in_range(self.generation, "generation")
        in_range(self.number, "number")
        _at_most(self.der, MAX_CRL_BYTES, "bytes of DER")


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One generation of the etcd root, as a holder statement names it."""

    number: int
    root: Fingerprint

    def __post_init__(self) -> None:
        in_range(self.number, "number")
        parse_hex(self.root, size=32)


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderRecord:
    """Who holds the etcd root, and which generations; signed by that member and by the root."""

    mesh: MeshId
    ed25519: SigningKey
    epoch: int
    generations: tuple[Generation, ...]

    def __post_init__(self) -> None:
        parse_hex(self.mesh, size=16)
        parse_hex(self.ed25519, size=32)
        in_range(self.epoch, "epoch")
        _at_most(self.generations, MAX_GENERATIONS, "generations")


Record = Genesis | Admission | Removal | Vote | SelfRecord | Succession | CrlRecord | HolderRecord


def _at_most(items: Sequence[object], limit: int, what: str) -> None:
    if len(items) > limit:
        raise ValueError(f"more than {limit} {what}")


def _distinct(items: Sequence[str], what: str) -> None:
    if len(set(items)) != len(items):
        raise ValueError(f"{what} stand twice")


def in_range(value: int, what: str) -> None:
    """ValueError for what is no count: a number that somebody else sends has an end."""
    if not 0 <= value <= MAX_COUNTER:
        raise ValueError(f"{what} is out of range")


def _hashes(items: Sequence[RecordHash], what: str) -> None:
    _at_most(items, MAX_LISTED, what)
    _distinct(items, what)
    for item in items:
        parse_hex(item, size=32)
