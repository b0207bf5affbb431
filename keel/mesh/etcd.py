"""Where the registry meets the mesh: what create, invite and join do about etcd, and its doors.

Owns nothing but the joints: no flow of the mesh knows the registry's modules, and none fails
because of them (E8).
"""

from __future__ import annotations

import contextlib

from keel import codec
from keel.errors import KeelError, LockHeld, Refused
from keel.mesh import (
    etcdbirth,
    etcdcert,
    etcdcredentials,
    etcddoors,
    etcdenrol,
    etcdgrow,
    etcdissue,
    etcdlook,
    etcdmember,
    etcdreserve,
    etcdstate,
    etcdstore,
    etcdtaken,
    etcdtend,
    selfrecord,
    store,
)
from keel.mesh.admit import EtcdWords
from keel.mesh.duty import Result
from keel.mesh.etcdgrants import live_grant
from keel.mesh.etcdholder import holder_member, holder_of
from keel.mesh.etcdmember import EnableSpec
from keel.mesh.etcdmsg import Grant
from keel.mesh.etcdstate import Stage
from keel.mesh.etcdtend import LoadSpec
from keel.mesh.join import Joined
from keel.mesh.joinmsg import EtcdPart
from keel.mesh.receive import Doors
from keel.mesh.store import Node
from keel.mesh.token import EtcdHint, Token
from keel.ports import Host
from keel.spec.model import Spec
from keel.types import Capability

JOIN = "join"


def doors() -> Doors:
    """What the registry's flows hang into the channel."""
    return Doors(
        etcd=etcddoors.kinds(),
        confirming=etcdenrol.to_relay,
        give_etcd_part=etcdgrow.give_etcd_part,
        joined=etcdbirth.joined,
        own_role=etcdlook.own_role,
    )


def after_create(host: Host, spec: Spec, node: Node) -> tuple[str, ...]:
    """On a capable founder the mesh's etcd root, and its own credentials (E1, E2). Whoever types
    create on a member, or where another holds the root, gets none of its own; nor does a founder
    that became capable later and has company: there may be more to agree on (E13)."""
    genesis = node.roster.founding.genesis
    if selfrecord.own_capability(host, spec) is not Capability.ETCD or node.key != genesis.ed25519:
        return ()
    if holder_of(host, node) not in (None, node.key) or etcdreserve.load(host) is not None:
        return ()
    if genesis.capability is not Capability.ETCD and len(node.view.members) > 1:
        return ()
    before = etcdstore.load_intermediate(host)
    with store.locked(host, "the mesh"):
        etcdissue.make_root(host, node)
        statement = etcdstore.load_holder(host) or b""
        node, _ = store.merge_held(host, store.require(host), (statement,))
    etcdcredentials.grant_oneself(host, node)
    return () if before else ("etcd/root g1 created",)


def words(host: Host, node: Node) -> EtcdWords:
    """What a new token says of the registry; from this node's disk alone."""
    member = holder_member(host, node)
    roots = etcdstore.load_roots(host)
    root = etcdcert.fingerprint(roots[0]) if roots else None
    return EtcdWords(hint=_hint(host, node), root=root, holder=member.name if member else None)


def _hint(host: Host, node: Node) -> EtcdHint:
    if etcdstore.load_authority(host) is None:
        return EtcdHint.NONE if holder_of(host, node) is None else EtcdHint.WAITING
    if etcdstore.load_book(host).formed is not None:
        return EtcdHint.RUNNING
    ledger = etcdstore.load_ledger(host)
    ready = [
        member
        for member in node.view.members
        if member.key != node.key
        and member.capability is Capability.ETCD
        and live_grant(ledger, member.address, member.key) is not None
    ]
    return EtcdHint.FORMS if len(ready) == 1 else EtcdHint.WAITING


def enrolment(host: Host, spec: Spec, token: Token, identity: store.Identity) -> bytes | None:
    """What a join request carries for the holder: only a capable node's (E1). Its key waits with
    the joiner's other keys until the join is granted, and so does the root that the token names:
    whoever grants may be another than the inviter (E2)."""
    if selfrecord.own_capability(host, spec) is not Capability.ETCD:
        return None
    if store.load(host) is None:
        key = etcdstore.make_key(host, host.paths.pending_etcd_key(token.mesh))
        if token.root is not None:
            host.files.write(host.paths.pending_etcd_root(token.mesh), token.root.encode())
    else:
        _, key = etcdstore.request_key(host)
    return etcdtaken.enrolment(host, token.mesh, identity.signing, key)


def before_confirmation(
    host: Host, load_spec: LoadSpec, enable_spec: EnableSpec, node: Node, part: EtcdPart
) -> None:
    """Take the grant that came with the answer, and do ahead what a birth would wait for. Never
    fails: what went wrong is met again, and told, by after_join."""
    if part.grant is None or selfrecord.own_capability(host, load_spec()) is not Capability.ETCD:
        return
    with contextlib.suppress(KeelError):
        _take_grant(host, node, part.grant)
        with host.locks.hold(host.paths.tend_lock, what="the tend"):
            etcdmember.settle(host, load_spec, enable_spec, node)


def after_join(
    host: Host, load_spec: LoadSpec, enable_spec: EnableSpec, joined: Joined
) -> tuple[str, ...]:
    """Take what the answer brought for etcd and start with it; what is missing, in words. Never
    fails: what went wrong is kept as a failure and the timer goes on."""
    spec = load_spec()
    if selfrecord.own_capability(host, spec) is not Capability.ETCD:
        return ()
    said = [] if joined.etcd.note is None else [joined.etcd.note]
    try:
        said += _taken(host, joined)
        duties = etcdtend.tend(host, load_spec, enable_spec)
    except LockHeld:
        return (*said, etcdtend.BESIDE_ANOTHER)
    except KeelError as error:
        return (*said, error.summary())
    return (*said, *(duty.text for duty in duties if duty.result is not Result.NOTHING))


def _taken(host: Host, joined: Joined) -> tuple[str, ...]:
    """What was wrong with what the answer brought, which is noted."""
    try:
        _take(host, joined)
    except KeelError as error:
        _note_failure(host, error)
        return (error.summary(),)
    return ()


def _take(host: Host, joined: Joined) -> None:
    part = joined.etcd
    if part.grant is None:
        return
    _take_grant(host, joined.node, part.grant)
    with store.locked(host, "the mesh"):
        # The holder may have sent a newer record of the same birth meanwhile.
        idle = etcdstore.load_cluster(host).stage is Stage.IDLE
        if part.cluster_record is not None and idle:
            etcdtaken.take_record(host, joined.node, part.cluster_record)


def _take_grant(host: Host, node: Node, raw: bytes) -> None:
    grant = codec.loads(Grant, raw, max_bytes=etcdstore.MAX_CRL_BYTES)
    with store.locked(host, "the mesh"):
        etcdtaken.take_grant(host, node, grant, trusted=True)


def _note_failure(host: Host, error: KeelError) -> None:
    etcdstore.save_failures(
        host,
        etcdstate.fail(
            etcdstore.load_failures(host),
            code=error.rule if isinstance(error, Refused) else error.code,
            subject=JOIN,
            text=error.summary(),
            remedy=error.remedy(),
            now=host.clock.now(),
        ),
    )
