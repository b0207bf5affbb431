"""The holder's acts: makes the root, grants intermediates, signs statements and records (E2, E5).

Owns the only uses of the root's key. Which requests are believed is keel.mesh.etcdrequests's.

Rules:
(H1) The root's key is made once a generation, on this node, and never leaves it.
(H2) A grant is in the ledger, fsynced, before it leaves; the same request gets the same one again.
(H3) Whatever is signed passes keel's own profile before it is used.
(H4) Nothing is signed for the cluster while this node's clock differs from most members'.
(H5) Nothing is signed by a holder whose disk was put back before it asked its members.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv6Address

from keel.errors import Refused
from keel.mesh import (
    branches,
    etcdcert,
    etcdcrl,
    etcdpki,
    etcdstore,
    records,
    talk,
    wire,
)
from keel.mesh.birth import Formation
from keel.mesh.etcdcert import Authority, Generation
from keel.mesh.etcdgrants import Event, GrantLine, live_grant
from keel.mesh.etcdmsg import KIND_CLUSTER, Grant, RecordState, new_record, seal_by_root
from keel.mesh.etcdrequests import CheckedEnrolment, EnrolmentContext, check_enrolment
from keel.mesh.store import Node
from keel.ports import Host
from keel.types import EtcdMemberId, SigningKey, WgKey


def make_root(host: Host, node: Node) -> None:
    """Generation 1 with its empty CRL and the holder's statement; already so is fine."""
    place = host.paths.generation(1)
    etcdstore.prepare(host)
    key = etcdstore.make_key(host, place / "root.key")
    if host.files.read(place / "root.pem") is None:
        talk.refuse_wrong_clock(host)
        root = etcdpki.new_root(
            node.mesh,
            Generation(number=1),
            key=key,
            serial=host.chance.bytes(etcdpki.SERIAL_BYTES),
            now=host.clock.now(),
        )
        host.files.write(place / "root.pem", etcdcert.pem(root))
    authority = require_authority(host)
    if etcdstore.load_crl(host) is None:
        etcdstore.save_crl(host, etcdcrl.new_crl(authority, (), number=1, now=host.clock.now()))
    if etcdstore.load_holder(host) is None:
        etcdstore.save_holder(host, _holder_statement(node, authority))


def require_authority(host: Host) -> Authority:
    """The signing root; Refused on any node but the holder."""
    found = etcdstore.load_authority(host)
    if found is None:
        raise Refused(
            "not-the-holder",
            "this node does not hold the etcd root",
            "run it on the holder; `keel mesh etcd status` names it",
        )
    return found[1]


def require_signer(host: Host, *, restored: bool = False) -> Authority:
    """The signing root of a holder that may sign now; Refused with a wrong clock (H4), or while it
    knows less than its members (H5); `restored`: it has asked them."""
    authority = require_authority(host)
    talk.refuse_wrong_clock(host)
    if etcdstore.load_restored(host) is not None and not restored:
        raise Refused(
            "holder-restored",
            "this holder's disk was put back, and it asks the members first what it signed since",
            "see that more than half of the other capable members answer; `keel mesh etcd tend`",
        )
    return authority


def grant(
    host: Host,
    node: Node,
    raw: bytes,
    *,
    admitted: Mapping[SigningKey, IPv6Address],
    wireguard: WgKey | None = None,
) -> Grant:
    """The grant for an enrolment, new or as it was given before; Refused by etcdrequests's rules.
    Hold the lock."""
    authority = require_signer(host)
    ledger = etcdstore.load_ledger(host)
    checked = check_enrolment(
        raw,
        EnrolmentContext(
            mesh=node.mesh,
            admitted=admitted,
            removed=frozenset(node.view.removed),
            ledger=ledger,
            now=host.clock.now(),
            heads=_heads(node),
        ),
    )
    wanted = checked.enrolment
    line = live_grant(ledger, wanted.address, wanted.ed25519)
    if line is None or line.csr_key != checked.request.key:
        line = _sign(host, authority, checked, wireguard)
        etcdstore.append_grant(host, line)
    assert line.intermediate is not None  # noqa: S101  # GrantLine's own rule for a grant
    return Grant(
        mesh=node.mesh,
        address=wanted.address,
        ed25519=wanted.ed25519,
        intermediate=line.intermediate,
        roots=(etcdcert.der(authority.certificate),),
        crl=etcdstore.load_crl(host) or b"",
        holder=etcdstore.load_holder(host) or b"",
    )


def _heads(node: Node) -> Mapping[SigningKey, frozenset[SigningKey]]:
    founder = node.roster.founding.genesis.ed25519
    admissions = [one for one in node.roster.entries.values() if one.kind == records.ADMISSION]
    return branches.heads(node.roster.distance, admissions, beneath=(founder, node.key))


def sign_record(
    host: Host,
    node: Node,
    formation: Formation,
    *,
    epoch: int,
    state: RecordState,
    members: tuple[IPv6Address, ...] | None = None,
    replaces: EtcdMemberId | None = None,
) -> bytes:
    """The cluster record of a formation, under an epoch that the book has used for it already.
    `members`: those that etcd lists, when they are not the birth's any more."""
    authority = require_signer(host)
    roots = (authority.certificate,)
    crl = etcdcrl.read_crl(etcdstore.load_crl(host) or b"", roots)
    record = new_record(
        formation,
        mesh=node.mesh,
        epoch=epoch,
        nonce=formation.nonce,
        state=state,
        members=members or tuple(one.address for one in formation.members),
        root=etcdcert.fingerprint(authority.certificate),
        crl_number=crl.number,
        holder=etcdstore.load_holder(host) or b"",
        now=host.clock.now().replace(microsecond=0),
        replaces=replaces,
    )
    return seal_by_root(KIND_CLUSTER, record, authority)


def _sign(
    host: Host, authority: Authority, checked: CheckedEnrolment, wireguard: WgKey | None
) -> GrantLine:
    wanted = checked.enrolment
    number = 1 + sum(
        1
        for line in etcdstore.load_ledger(host).lines
        if line.event is Event.GRANTED and line.address == wanted.address
    )
    now = host.clock.now()
    certificate = etcdpki.sign_intermediate(
        authority,
        checked.request.der,
        address=wanted.address,
        number=number,
        serial=host.chance.bytes(etcdpki.SERIAL_BYTES),
        now=now,
    )
    return GrantLine(
        event=Event.GRANTED,
        address=wanted.address,
        ed25519=wanted.ed25519,
        time=now,
        serial=etcdcert.serial_of(certificate),
        generation=etcdcert.generation_of(authority.certificate),
        csr_key=checked.request.key,
        nonce=wanted.nonce,
        not_after=certificate.not_valid_after_utc,
        wireguard=wireguard,
        intermediate=etcdcert.der(certificate),
    )


def _holder_statement(node: Node, authority: Authority) -> bytes:
    """Signed by the member and by the root, so that it is a roster record as it stands."""
    root = etcdcert.fingerprint(authority.certificate)
    body = records.HolderRecord(
        mesh=node.mesh,
        ed25519=node.key,
        epoch=1,
        generations=(
            records.Generation(number=etcdcert.generation_of(authority.certificate), root=root),
        ),
    )
    envelope = wire.seal(records.HOLDER, body, node.identity.signing)
    signature = etcdcert.sign_with_root(authority, wire.message(envelope))
    return wire.encode(wire.with_signature(envelope, wire.root_key_id(root), signature))
