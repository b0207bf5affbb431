"""Whether the holder remembers less than its members do: its disk was put back (design section 3).

Owns the note of it, restored.json, which forbids every signature until keel.mesh.etcdrestored has
united what the members hold with what is left here.

(M1) Whatever the holder signs is on its disk before it leaves, so a member that holds a higher
     epoch, a higher CRL number or an intermediate that the ledger lacks is proof.
(M2) The note only grows until it goes: the highest numbers that anybody showed.
"""

from __future__ import annotations

from collections.abc import Iterable

from keel.errors import PkiRejected
from keel.mesh import etcdcert, etcdcrl, etcdstore, store
from keel.mesh.etcdmsg import ProbeAnswer
from keel.mesh.etcdstate import Restored
from keel.ports import Host


def notice(host: Host, answers: Iterable[ProbeAnswer]) -> bool:
    """Look at what members just said of themselves; whether this holder is behind them. Nothing
    on any other node. Do not hold the lock."""
    found = etcdstore.load_authority(host)
    if found is None:
        return False
    root = etcdcert.fingerprint(found[1].certificate)
    said = [one for one in answers if one.root == root]
    if not any(_knows_more(host, one) for one in said):
        return etcdstore.load_restored(host) is not None
    with store.locked(host, "the mesh"):
        before = etcdstore.load_restored(host) or Restored(since=host.clock.now())
        after = Restored(
            since=before.since,
            epoch=max(before.epoch, *(one.epoch for one in said)),
            crl_number=max(before.crl_number, *(one.crl_number for one in said)),
            heard=before.heard,
            extra=before.extra,
        )
        if after != etcdstore.load_restored(host):
            etcdstore.save_restored(host, after)
    return True


def _knows_more(host: Host, answer: ProbeAnswer) -> bool:
    serials = {line.serial for line in etcdstore.load_ledger(host).lines}
    return (
        answer.epoch > etcdstore.load_book(host).epoch
        or answer.crl_number > _crl_number(host)
        or (answer.intermediate is not None and answer.intermediate not in serials)
    )


def _crl_number(host: Host) -> int:
    """The number on disk; a CRL that is damaged or gone is another matter (etcdcrlspread mends
    it), and there is nothing to compare with."""
    raw = host.files.read(host.paths.etcd_crl, max_bytes=etcdstore.MAX_CRL_BYTES)
    try:
        return etcdcrl.read_crl(raw or b"", etcdstore.load_roots(host)).number
    except PkiRejected:
        return etcdcrl.MAX_NUMBER
