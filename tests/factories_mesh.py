"""Records for tests: members by name, with keys that follow from the name.

Composes records by hand (never through keel.mesh.drafts), so that dishonest ones can be made too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import IPv6Address

from keel.mesh import keys, roster, wire
from keel.mesh.entry import Entry, read
from keel.mesh.identity import address_of, mesh_id_of
from keel.mesh.keys import SigningPair
from keel.mesh.records import (
    VERSIONS,
    Admission,
    AdoptedMember,
    CrlRecord,
    Generation,
    Genesis,
    HolderRecord,
    Removal,
    SelfRecord,
    Succession,
    Vote,
)
from keel.mesh.wire import Envelope
from keel.types import (
    Capability,
    Fingerprint,
    MeshId,
    NodeName,
    Nonce,
    RecordHash,
    Secret,
    SigningKey,
    WgKey,
)

ROOT = Generation(number=1, root=Fingerprint("ab" * 32))
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def hashed(*words: object) -> bytes:
    return hashlib.sha256("/".join(map(str, words)).encode()).digest()


def pair(name: str) -> SigningPair:
    return keys.signing_pair(Secret(hashed("sign", name)))


def key(name: str) -> SigningKey:
    return pair(name).public


def wg(name: str) -> WgKey:
    return keys.wg_pair(Secret(hashed("wg", name))).public


def nonce(*words: object) -> Nonce:
    return Nonce(hashed("nonce", *words)[:16].hex())


def at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def genesis(name: str = "f", *, adopted: tuple[AdoptedMember, ...] = ()) -> Envelope:
    body = Genesis(
        name=NodeName(name),
        ed25519=key(name),
        wireguard=wg(name),
        capability=Capability.ETCD,
        time=NOON,
        nonce=nonce("genesis", name),
        adopted=adopted,
    )
    return wire.seal("genesis", body, pair(name))


class Mesh:
    """Makes the records of one mesh, whose founder is `f`; each maker returns encoded bytes."""

    def __init__(self, founding: Envelope | None = None) -> None:
        self.genesis = founding or genesis()
        self.genesis_raw = wire.encode(self.genesis)
        self.id: MeshId = mesh_id_of(self.genesis)
        self.empty = roster.founded(self.genesis_raw)

    def admission_body(
        self, by: str, who: str, *, minutes: float = 1, wireguard: WgKey | None = None, n: int = 0
    ) -> Admission:
        return Admission(
            mesh=self.id,
            name=NodeName(who),
            ed25519=key(who),
            address=self.address(who),
            wireguard=wireguard or wg(who),
            capability=Capability.NONE,
            admitted_by=key(by),
            time=at(minutes),
            nonce=nonce("admission", by, who, n),
        )

    def admission(
        self, by: str, who: str, *, minutes: float = 1, wireguard: WgKey | None = None, n: int = 0
    ) -> bytes:
        body = self.admission_body(by, who, minutes=minutes, wireguard=wireguard, n=n)
        return seal("admission", body, by)

    def self_body(
        self,
        who: str,
        *,
        counter: int = 1,
        roots: Iterable[str] = (),
        wireguard: WgKey | None = None,
        since: float = 1,
        next_wireguard: WgKey | None = None,
    ) -> SelfRecord:
        return SelfRecord(
            mesh=self.id,
            ed25519=key(who),
            wireguard=wireguard or wg(who),
            wireguard_since=at(since),
            next_wireguard=next_wireguard,
            endpoints=(),
            capability=Capability.ETCD,
            roots=tuple(key(root) for root in roots),
            versions=VERSIONS,
            lived=counter,
            counter=counter,
            time=at(counter),
        )

    def said(
        self,
        who: str,
        *,
        counter: int = 1,
        roots: Iterable[str] = (),
        wireguard: WgKey | None = None,
        since: float = 1,
        next_wireguard: WgKey | None = None,
    ) -> bytes:
        body = self.self_body(
            who,
            counter=counter,
            roots=roots,
            wireguard=wireguard,
            since=since,
            next_wireguard=next_wireguard,
        )
        return seal("self", body, who)

    def removal_body(
        self,
        by: str,
        who: str,
        *,
        standing: Iterable[bytes] = (),
        grounds: tuple[bytes, ...] = (),
        n: int = 0,
    ) -> Removal:
        return Removal(
            mesh=self.id,
            subject=key(who),
            standing=self.hashes(*standing),
            grounds=grounds,
            removed_by=key(by),
            time=at(n),
            nonce=nonce("removal", by, who, n),
        )

    def removal(
        self, by: str, who: str, *, standing: Iterable[bytes] = (), mutual: bool = False, n: int = 0
    ) -> bytes:
        grounds = self.grounds(by, who) if mutual else ()
        body = self.removal_body(by, who, standing=standing, grounds=grounds, n=n)
        return seal("removal", body, by)

    def grounds(self, by: str, who: str) -> tuple[bytes, ...]:
        return self.said(by, roots=[who]), self.said(who, roots=[by])

    def vote(
        self,
        by: str,
        who: str,
        electorate: Iterable[bytes],
        *,
        standing: Iterable[bytes] = (),
        n: int = 0,
    ) -> bytes:
        body = Vote(
            mesh=self.id,
            subject=key(who),
            standing=self.hashes(*standing),
            electorate=(wire.record_hash(self.genesis), *self.hashes(*electorate)),
            voter=key(by),
            time=at(n),
            nonce=nonce("vote", by, who, n),
        )
        return seal("vote", body, by)

    def succession(self, old: str, new: str) -> bytes:
        body = Succession(
            mesh=self.id, old=key(old), new=key(new), time=NOON, nonce=nonce(old, new)
        )
        return seal("succession", body, old, new)

    def crl_body(self, who: str, *, generation: int = 1, number: int = 1) -> CrlRecord:
        return CrlRecord(
            mesh=self.id, ed25519=key(who), generation=generation, number=number, der=b"0"
        )

    def crl(self, who: str, *, generation: int = 1, number: int = 1) -> bytes:
        return seal("crl", self.crl_body(who, generation=generation, number=number), who)

    def holder(self, who: str, *, epoch: int = 1) -> bytes:
        body = HolderRecord(mesh=self.id, ed25519=key(who), epoch=epoch, generations=(ROOT,))
        envelope = wire.seal("holder", body, pair(who))
        return wire.encode(wire.with_signature(envelope, "root:" + "ab" * 32, b"\x30"))

    def address(self, who: str) -> IPv6Address:
        return address_of(self.id, key(who))

    def entry(self, raw: bytes) -> Entry:
        return read(raw, self.empty.founding)

    def hashes(self, *raws: bytes) -> tuple[RecordHash, ...]:
        return tuple(wire.record_hash(wire.decode(raw, max_bytes=1 << 20)) for raw in raws)

    def roster(self, *raws: bytes) -> roster.Roster:
        merged = roster.merge(self.empty, raws)
        assert merged.refused == ()
        return merged.roster


def seal(kind: str, body: object, *names: str) -> bytes:
    return wire.encode(wire.seal(kind, body, *(pair(name) for name in names)))


def respelled(raw: bytes) -> Envelope:
    """The envelope in these bytes, to be changed with `dataclasses.replace`."""
    return wire.decode(raw, max_bytes=1 << 20)


def spoilt(raw: bytes) -> bytes:
    """The same record with a signature that is not good."""
    envelope = respelled(raw)
    (first, *rest) = envelope.signatures
    bad = replace(first, value=bytes(64))
    return wire.encode(replace(envelope, signatures=(bad, *rest)))
