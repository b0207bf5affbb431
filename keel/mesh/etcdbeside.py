"""The marker beside etcd's data, which says of which birth that is (design section 3)."""

from __future__ import annotations

from keel import codec
from keel.mesh.etcdstate import Marker
from keel.mesh.passmsg import MAX_ANSWER_BYTES, MAX_MARKER_BYTES, Ask, Beside
from keel.ports import Host


def read_marker(host: Host) -> Marker | None:
    """By a process that may look there; StateCorrupt when it is damaged."""
    path = host.paths.etcd_marker
    return codec.read_state(Marker, path, host.files.read(path, max_bytes=MAX_MARKER_BYTES))


def load_marker(host: Host) -> Marker | None:
    """The same, by any process: the channel's asks the one that may."""
    said = codec.loads(Beside, host.passes(Ask.MARKER), max_bytes=MAX_ANSWER_BYTES)
    return codec.read_state(Marker, host.paths.etcd_marker, said.marker)
