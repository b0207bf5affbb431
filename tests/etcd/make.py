"""Factories of etcd's messages: one mesh, one root, named members, a fixed clock.

ECDSA draws a nonce for each signature, so what has one is made once and remembered.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import cache
from ipaddress import IPv6Address

from keel.mesh import keys, wire
from keel.mesh.birth import Formation, Party
from keel.mesh.etcdcert import Authority, der, fingerprint, public_key_hash, serial_of
from keel.mesh.etcdcrl import Revoked, new_crl
from keel.mesh.etcdgrants import Event, GrantLine, Ledger
from keel.mesh.etcdids import birth_id, cluster_token
from keel.mesh.etcdmsg import (
    KIND_CLUSTER,
    ClusterRecord,
    Grant,
    RecordState,
    new_record,
    seal_by_root,
)
from keel.mesh.etcdpki import encode_credential
from keel.mesh.etcdstate import Cluster, Stage
from keel.mesh.etcdtrust import encode_bundle
from keel.mesh.keys import SigningPair, signing_pair
from keel.mesh.records import HOLDER, Generation, HolderRecord
from keel.types import FormationId, MeshId, Nonce, RecordHash, Secret, SigningKey
from tests.pki import make as pki
from tests.pki.make import MESH, NOW

NONCE = Nonce("ab" * 16)
F1, F2 = FormationId("01" * 8), FormationId("02" * 8)


root = cache(pki.root)


@cache
def intermediate(*, address: IPv6Address, number: int = 1) -> Authority:
    return pki.intermediate(root(), address=address, number=number)


def pair(name: str) -> SigningPair:
    return signing_pair(Secret(pki.bytes_of(f"seed {name}", 32)))


def key(name: str) -> SigningKey:
    return pair(name).public


def address(name: str) -> IPv6Address:
    return IPv6Address(f"fd0a:1b2c:3d4e::{ord(name):x}:1")


def party(name: str) -> Party:
    return Party(address=address(name), key=key(name))


def formation(
    names: str = "abc", *, name: FormationId = F1, mesh: MeshId = MESH, confirmed: bool = False
) -> Formation:
    members = tuple(party(each) for each in names)
    return Formation(
        formation=name,
        nonce=NONCE,
        members=members,
        cluster_id=birth_id((one.address for one in members), cluster_token(mesh, name)),
        reserved=NOW,
        expires=NOW + timedelta(hours=1),
        confirmed=confirmed,
    )


@cache
def holder_statement(
    by: Authority | None = None,
    *,
    epoch: int = 1,
    mesh: MeshId = MESH,
    roots: tuple[Authority, ...] | None = None,
) -> bytes:
    by = by or root()
    named = tuple(
        Generation(number=number, root=fingerprint(one.certificate))
        for number, one in enumerate(roots if roots is not None else (by,), 1)
    )
    body = HolderRecord(mesh=mesh, ed25519=key("a"), epoch=epoch, generations=named)
    return seal_by_root(HOLDER, body, by)


def record(
    of: Formation | None = None,
    *,
    epoch: int = 1,
    state: RecordState = RecordState.NEW,
    names: str = "abc",
) -> ClusterRecord:
    return new_record(
        of or formation(),
        mesh=MESH,
        epoch=epoch,
        nonce=NONCE,
        state=state,
        members=[address(name) for name in names],
        root=fingerprint(root().certificate),
        crl_number=1,
        holder=holder_statement(),
        now=NOW,
    )


@cache
def sealed(body: ClusterRecord, by: Authority | None = None) -> bytes:
    return seal_by_root(KIND_CLUSTER, body, by or root())


@cache
def crl(*revoked: Revoked, by: Authority | None = None, number: int = 1) -> bytes:
    return new_crl(by or root(), revoked, number=number, now=NOW)


@cache
def grant(name: str = "c") -> Grant:
    return Grant(
        mesh=MESH,
        address=address(name),
        ed25519=key(name),
        intermediate=der(intermediate(address=address(name)).certificate),
        roots=(der(root().certificate),),
        crl=crl(),
        holder=holder_statement(),
    )


def grant_line(name: str = "c", *, number: int = 1, seconds: int = 0) -> GrantLine:
    certificate = intermediate(address=address(name), number=number).certificate
    return GrantLine(
        event=Event.GRANTED,
        address=address(name),
        ed25519=key(name),
        time=NOW + timedelta(seconds=seconds),
        serial=serial_of(certificate),
        generation=1,
        csr_key=public_key_hash(certificate),
        not_after=certificate.not_valid_after_utc,
        intermediate=der(certificate),
    )


def ledger(*lines: GrantLine) -> Ledger:
    return Ledger(lines=lines)


def resigned(raw: bytes, by: SigningPair) -> bytes:
    """The same payload and type, signed by another member instead."""
    old = wire.decode(raw, max_bytes=1 << 16)
    bare = replace(old, signatures=())
    return wire.encode(wire.with_signature(bare, by.public, keys.sign(by, wire.message(bare))))


def cluster(stage: Stage = Stage.STARTING, *, attempt: int = 1) -> Cluster:
    """cluster.json of a member of the formation `abc`."""
    if stage is Stage.IDLE:
        return Cluster()
    of = formation()
    return Cluster(
        stage=stage,
        formation=of.formation,
        nonce=of.nonce,
        attempt=attempt,
        record=RecordHash("0" * 64),
        epoch=1,
        cluster_id=of.cluster_id,
    )


@cache
def credential(name: str = "c") -> Secret:
    """member.pem of a member."""
    return encode_credential(pki.member(intermediate(address=address(name)), address=address(name)))


@cache
def bundle(by: Authority | None = None) -> bytes:
    return encode_bundle([(by or root()).certificate])
