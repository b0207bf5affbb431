"""One record at the door: its size, form, signatures and fields, before it is let into a roster.

Owns what can be judged of a record by itself and the genesis. Numbered checks, in this order:
(D1) size, by kind and as a whole; (D2) the envelope's one form; (D3) every Ed25519 signature is
good, before anything is parsed; (D4) fields, strictly; (D5) it is of this mesh; (D6) exactly those
signed who have to; (D7) an admission's address is the one its key has in this mesh; (D8) a
removal's grounds are two self records that list each other.

A kind that this code does not know passes D1 to D3 and is kept unread, so that a mesh can be
upgraded node by node.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv6Address
from types import MappingProxyType

from keel import codec
from keel.errors import BadSignature, Refused
from keel.mesh import wire
from keel.mesh.identity import address_of, mesh_id_of
from keel.mesh.records import (
    ADMISSION,
    CRL,
    GENESIS,
    HOLDER,
    REMOVAL,
    SELF,
    SUCCESSION,
    VOTE,
    Admission,
    CrlRecord,
    Genesis,
    HolderRecord,
    Record,
    Removal,
    SelfRecord,
    Succession,
    Vote,
)
from keel.mesh.wire import Envelope
from keel.types import MeshId, RecordHash, SigningKey

_KIB = 1024

MAX_UNKNOWN_BYTES = 16 * _KIB
"""As much as the largest of the records that every member makes."""

MAX_BYTES: Mapping[str, int] = MappingProxyType(
    {
        GENESIS: 64 * _KIB,  # 256 adopted members
        ADMISSION: 4 * _KIB,  # about 900 bytes, whatever it says
        SUCCESSION: 4 * _KIB,
        SELF: 16 * _KIB,  # 128 roots
        HOLDER: 16 * _KIB,
        REMOVAL: 136 * _KIB,  # 1024 hashes, and two self records that base64 made larger twice
        VOTE: 136 * _KIB,  # 1500 hashes
        CRL: 96 * _KIB,  # 48 KiB of DER
    }
)
"""What an encoded record of a kind may weigh (D1); all fit one message of the channel, where base64
makes them larger twice."""

OPENED = 2048
"""So many records, of the size that members make, are opened once a process: a whole mesh of 200's.
The channel's service loads its roster with every request."""

_BODIES: Mapping[str, type[Record]] = MappingProxyType(
    {
        GENESIS: Genesis,
        ADMISSION: Admission,
        REMOVAL: Removal,
        VOTE: Vote,
        SELF: SelfRecord,
        SUCCESSION: Succession,
        CRL: CrlRecord,
        HOLDER: HolderRecord,
    }
)

UPGRADE = "compare `keel --version` on both nodes; if they are equal, do not trust the sender"


@dataclass(frozen=True, slots=True, kw_only=True)
class Founding:
    """What a genesis pins: the mesh id, the founder, and the addresses of an adopted mesh."""

    mesh: MeshId
    genesis: Genesis
    record: RecordHash
    raw: bytes

    def address_of(self, key: SigningKey) -> IPv6Address:
        """The one address a key may have here; Refused (address-taken) when an adopted member of
        another key was found with it."""
        adopted = {one.ed25519: one.address for one in self.genesis.adopted}
        if key in adopted:
            return adopted[key]
        address = address_of(self.mesh, key)
        if address in adopted.values():
            raise Refused(
                "address-taken",
                f"{address} belongs to a member that was there when the mesh was adopted",
                "run the command again: it makes a new key, and with it another address",
            )
        return address


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A record that passed the door; `body` is None for a kind that this code does not know."""

    record: RecordHash
    kind: str
    signer: SigningKey
    body: Record | None
    raw: bytes


def read_genesis(raw: bytes) -> Founding:
    """A genesis by itself; whether it is the right one is for who knows the mesh id."""
    envelope = wire.decode(raw, max_bytes=MAX_BYTES[GENESIS])
    signer = _verified_signers(envelope)[0]
    body = wire.open_as(Genesis, envelope, GENESIS, signer)
    _expect_signers(envelope, {body.ed25519})
    founding = Founding(
        mesh=mesh_id_of(envelope), genesis=body, record=wire.record_hash(envelope), raw=raw
    )
    founding.address_of(body.ed25519)
    return founding


def read(raw: bytes, founding: Founding) -> Entry:
    """A record that somebody sent, checked by D1 to D8; BadValue, BadSignature or Refused."""
    small = len(raw) <= MAX_UNKNOWN_BYTES
    envelope, entry = _opened(raw) if small else _open(raw)
    if entry.body is None:
        return entry
    _check_mesh(entry.body, envelope, founding)
    signer = _check_signers(entry.body, envelope)
    if isinstance(entry.body, Admission):
        _check_address(entry.body, founding)
    if isinstance(entry.body, Removal):
        _check_grounds(entry.body)
    return replace(entry, signer=signer)


@functools.lru_cache(maxsize=OPENED)
def _opened(raw: bytes) -> tuple[Envelope, Entry]:
    return _open(raw)


def _open(raw: bytes) -> tuple[Envelope, Entry]:
    """The part of `read` that hangs on the bytes alone; the signer is the first one."""
    envelope = wire.decode(raw, max_bytes=max(MAX_BYTES.values()))
    kind = wire.kind_of(envelope)
    _check_size(kind, raw)
    signers = _verified_signers(envelope)
    body: Record | None = None
    if kind in _BODIES:
        body = codec.loads(_BODIES[kind], envelope.payload, max_bytes=len(envelope.payload))
    record = record_id(raw, envelope)
    return envelope, Entry(record=record, kind=kind, signer=signers[0], body=body, raw=raw)


def record_id(raw: bytes, envelope: Envelope | None = None) -> RecordHash:
    """The name under which a roster keeps these bytes: the record's hash, or for an unknown kind
    that of all bytes; BadValue for what is no envelope.

    An unknown kind's is over the signatures too: else a copy with a spoilt signature of a key that
    this code cannot judge would keep the good one out.
    """
    envelope = envelope or wire.decode(raw, max_bytes=max(MAX_BYTES.values()))
    if wire.kind_of(envelope) in _BODIES:
        return wire.record_hash(envelope)
    return RecordHash(hashlib.sha256(raw).hexdigest())


def _check_size(kind: str, raw: bytes) -> None:
    limit = MAX_BYTES.get(kind, MAX_UNKNOWN_BYTES)
    if len(raw) > limit:
        raise Refused(
            "record-too-large", f"a {kind} record has {len(raw)} bytes, {limit} at most", UPGRADE
        )


def _verified_signers(envelope: Envelope) -> tuple[SigningKey, ...]:
    signers = wire.signers(envelope)
    if not signers or not all(wire.signed_by(envelope, key) for key in signers):
        raise BadSignature(f"a {wire.kind_of(envelope)} record")
    return signers


def _check_mesh(body: Record, envelope: Envelope, founding: Founding) -> None:
    mesh = mesh_id_of(envelope) if isinstance(body, Genesis) else body.mesh
    if mesh != founding.mesh:
        raise Refused(
            "foreign-mesh",
            f"a record of mesh {mesh} came to mesh {founding.mesh}",
            "find out which node sent it: it belongs to another mesh",
        )


def _check_signers(body: Record, envelope: Envelope) -> SigningKey:
    needed: tuple[SigningKey, ...]
    match body:
        case Admission():
            needed = (body.admitted_by,)
        case Removal():
            needed = (body.removed_by,)
        case Vote():
            needed = (body.voter,)
        case Succession():
            needed = (body.old, body.new)
        case _:  # the kinds by which a member speaks of itself
            needed = (body.ed25519,)
    _expect_signers(envelope, set(needed), by_root=isinstance(body, HolderRecord))
    return needed[0]


def _expect_signers(envelope: Envelope, needed: set[SigningKey], *, by_root: bool = False) -> None:
    by_roots = len(wire.root_signatures(envelope))
    if set(wire.signers(envelope)) != needed or by_roots != int(by_root):
        raise BadSignature(f"a {wire.kind_of(envelope)} record, signed by others than it says,")


def _check_address(body: Admission, founding: Founding) -> None:
    if body.admitted_by == body.ed25519:
        raise Refused("self-admission", "a key admits itself", UPGRADE)
    if body.address != founding.address_of(body.ed25519):
        raise Refused(
            "address-not-of-key",
            f"an admission of {body.name} claims {body.address}, which its key does not give",
            UPGRADE,
        )


def _check_grounds(body: Removal) -> None:
    if not body.grounds:
        return
    remover, subject = (_self_in(raw) for raw in body.grounds)
    if (
        (remover.ed25519, subject.ed25519) != (body.removed_by, body.subject)
        or {remover.mesh, subject.mesh} != {body.mesh}
        or body.subject not in remover.roots
        or body.removed_by not in subject.roots
    ):
        raise Refused(
            "grounds-do-not-hold", "a removal names mutual roots that are not in its proof", UPGRADE
        )


def _self_in(raw: bytes) -> SelfRecord:
    envelope = wire.decode(raw, max_bytes=MAX_BYTES[SELF])
    signers = _verified_signers(envelope)
    body = wire.open_as(SelfRecord, envelope, SELF, signers[0])
    _expect_signers(envelope, {body.ed25519})
    return body
