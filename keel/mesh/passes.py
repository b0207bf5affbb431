"""What is done for the channel's process by the one that runs the passes (keel.mesh.passmsg).

Owns what each word means. Whoever asks has said nothing but the word: what is to be done follows
from this node's own state.
"""

from __future__ import annotations

from collections.abc import Mapping

from keel import codec
from keel.errors import Refused, StateCorrupt
from keel.mesh import etcdmeasure, etcdown, etcdstore, store
from keel.mesh.etcdstate import Stage
from keel.mesh.passmsg import MAX_MARKER_BYTES, Ask, Beside
from keel.ports import Host
from keel.unitnames import FAST_TIMER, PASSES_UNIT, SYNC_UNIT, TEND_UNIT

KICKS: Mapping[str, Ask] = {
    TEND_UNIT: Ask.TEND,
    SYNC_UNIT: Ask.SYNC,
    FAST_TIMER: Ask.FAST,
    PASSES_UNIT: Ask.READY,
}
"""All that the channel's process may have started, by the word for it."""
_UNITS = {ask: unit for unit, ask in KICKS.items()}


def answer(host: Host, word: str) -> bytes:
    """Do it; what there is to be told, else nothing. ValueError when it is no word."""
    ask = Ask(word)
    if ask is Ask.GROUND:
        return codec.dumps(etcdmeasure.ground(host))
    if ask is Ask.MARKER:
        return codec.dumps(Beside(marker=_marker(host)))
    if ask is Ask.HALT:
        _halt(host)
    elif ask is not Ask.READY:
        host.units.start(_UNITS[ask], block=False)
    return b""


def _marker(host: Host) -> bytes | None:
    try:
        return host.files.read(host.paths.etcd_marker, max_bytes=MAX_MARKER_BYTES)
    except StateCorrupt as error:
        return error.problem.encode()  # whoever asked finds it as damaged as it is


def _halt(host: Host) -> None:
    """Stop an etcd that never saw a leader, for good; Refused when it is a cluster's."""
    formed = etcdstore.load_cluster(host).stage is Stage.FORMED
    if formed or etcdown.had_leader(host, store.require(host).address):
        raise Refused(
            "formation-alive",
            "this node saw a leader of that formation",
            "look at `keel mesh etcd status`",
        )
    host.overlay.stop()
