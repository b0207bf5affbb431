"""How the CRL comes to every member: as a roster record, and from there to disk and to etcd (E5).

Owns the duty `crl`. What the CRL holds is keel.mesh.etcdrevoke's; whether it is believed
keel.mesh.etcdcrl's; etcd reads what is laid at its next handshake.

Rules:
(C1) Taken only when signed under a root that is trusted here and of a higher number than any copy
     on this node: never lower, and nobody's but the holder's.
(C2) It is parsed in the same breath in which it is written, whole or not at all: never absent.
(C3) A copy that is damaged or gone is replaced by another one: from the roster, or from what is
     laid for etcd.
(C4) The holder signs the next one with a third of the time to its nextUpdate left, or when a clock
     that ran ahead dated it; not while its root is not valid either, for then it is this clock
     that is behind. One that is past its nextUpdate still counts.
"""

from __future__ import annotations

from datetime import datetime

from cryptography import x509

from keel.errors import Refused
from keel.mesh import etcdcert, etcdcrl, etcdrevoke, etcdstore, store, talk, wire
from keel.mesh.duty import Duty, done, nothing, waits
from keel.mesh.etcdcrl import Crl
from keel.mesh.etcdplan import until_clock, until_heard
from keel.mesh.records import CRL, MAX_CRL_BYTES, CrlRecord
from keel.outcome import Waiting
from keel.ports import Host
from keel.unitnames import SYNC_UNIT

NAME = "crl"
REFRESH = etcdcrl.CRL_LIFE / 3
FIRST = 1
"""The empty one that every grant brings: it need not travel."""


def duty(host: Host) -> Duty:
    """Take the newest CRL that this node knows of; on the holder also keep it fresh and tell it."""
    if not etcdstore.load_roots(host):
        return nothing(NAME, "this node trusts no root yet")
    found = _take_newest(host)
    if etcdstore.load_authority(host) is None:
        return found
    waiting = _refresh(host)
    if waiting is not None:
        return waits(NAME, waiting)
    told = _tell(host)
    if told is None:
        return found
    return done(NAME, f"CRL {told} goes to every member", is_open=True)


def _take_newest(host: Host) -> Duty:
    with store.locked(host, "the mesh"):
        newest = etcdrevoke.newest_known(host, store.require(host))
        if newest is None:
            raise Refused(
                "crl-missing",
                "no CRL that a trusted root signed is on this node",
                "run `keel mesh sync`, then `keel mesh etcd tend`; the holder has the newest",
            )
        if host.files.read(host.paths.etcd_crl, max_bytes=etcdstore.MAX_CRL_BYTES) == newest.der:
            return nothing(NAME, f"CRL {newest.number} is the newest known here")
        etcdstore.save_crl(host, newest.der)
    return done(NAME, f"took CRL {newest.number}")


def _refresh(host: Host) -> Waiting | None:
    """Sign the next one when it is time for it (C4); what that waits for."""
    now = host.clock.now()
    held = _held(host)
    if held.next_update - now > REFRESH and held.this_update <= max(now, _valid_from(host, held)):
        return None
    if talk.clock_is_off(host):
        return until_clock("the next CRL")
    if talk.clock_is_unheard(host, store.require(host)):
        return until_heard("the next CRL")
    with store.locked(host, "the mesh"):
        etcdrevoke.issue(host, store.require(host))
    return None


def _tell(host: Host) -> int | None:
    """The holder's record of its newest CRL, in the roster; its number when it was not there."""
    held = _held(host)
    with store.locked(host, "the mesh"):
        node = store.require(host)
        told = [
            one.body.number
            for one in node.roster.entries.values()
            if isinstance(one.body, CrlRecord) and one.signer == node.key
        ]
        if held.number <= max(told, default=FIRST):
            return None
        if len(held.der) > MAX_CRL_BYTES:
            raise Refused(
                "crl-too-large",
                f"the CRL has {len(held.der)} bytes, and a record carries {MAX_CRL_BYTES}",
                "remove fewer members at a time; `keel mesh etcd status` shows the CRL's number",
            )
        record = CrlRecord(
            mesh=node.mesh,
            ed25519=node.key,
            generation=_generation(host, held),
            number=held.number,
            der=held.der,
        )
        raw = wire.encode(wire.seal(CRL, record, node.identity.signing))
        store.merge_into(host, node, (raw,))
    host.units.start(SYNC_UNIT, block=False)
    return held.number


def _held(host: Host) -> Crl:
    return etcdcrl.read_crl(etcdstore.load_crl(host) or b"", etcdstore.load_roots(host))


def _generation(host: Host, crl: Crl) -> int:
    return etcdcert.generation_of(_signer(host, crl))


def _valid_from(host: Host, crl: Crl) -> datetime:
    return _signer(host, crl).not_valid_before_utc


def _signer(host: Host, crl: Crl) -> x509.Certificate:
    roots = {etcdcert.fingerprint(one): one for one in etcdstore.load_roots(host)}
    return roots[crl.signer]
