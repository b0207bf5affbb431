"""Who holds the etcd root: by the statement this node obeys, else by the roster's hint."""

from __future__ import annotations

from keel import codec
from keel.errors import BadValue, StateCorrupt
from keel.mesh import etcdstore, records, wire
from keel.mesh.members import Member
from keel.mesh.records import HolderRecord
from keel.mesh.store import Node
from keel.ports import Host
from keel.types import SigningKey

MOST_ASKED = 8
"""Of those that claim to hold the root, while this node can tell none from the others."""


def holder_of(host: Host, node: Node) -> SigningKey | None:
    """The holder's signing key; None when this mesh has no root that this node has heard of.

    Before a node's first grant it has no root to judge a statement by; the roster's is then only
    a hint whom to ask, and the grant that comes back is judged by its own rules.
    """
    held = _held(host)
    if held is not None:
        return held.ed25519
    return next(iter(hinted(node)), None)


def hinted(node: Node) -> tuple[SigningKey, ...]:
    """Every live member but this one that the roster's statements name, the highest epoch first.
    Any member can say so, and without a root nobody can tell who lies: ask the next one as well."""
    hints = [
        _parse(raw)
        for raw in node.roster.raws.values()
        if wire.kind_of(wire.decode(raw, max_bytes=len(raw))) == records.HOLDER
    ]
    # this node's own would be its held one, unless its root gave way to another's
    live = [
        one
        for one in hints
        if node.view.by_key(one.ed25519) is not None and one.ed25519 != node.key
    ]
    live.sort(key=lambda one: (one.epoch, one.ed25519), reverse=True)
    return tuple(dict.fromkeys(one.ed25519 for one in live))


def candidates(host: Host, node: Node) -> tuple[Member, ...]:
    """Whom to ask for a grant: the holder that this node obeys; before it has a root, whoever is
    named."""
    held = obeyed(host)
    keys = (held,) if held else hinted(node)[:MOST_ASKED]
    found = (node.view.by_key(key) for key in keys)
    return tuple(one for one in found if one is not None)


def holder_member(host: Host, node: Node) -> Member | None:
    """The holder as a live member; None when none is known here, or it is a member no more."""
    key = holder_of(host, node)
    return None if key is None else node.view.by_key(key)


def held_epoch(host: Host) -> int:
    """The epoch of the statement that this node obeys; an older one is never obeyed again."""
    held = _held(host)
    return 0 if held is None else held.epoch


def obeyed(host: Host) -> SigningKey | None:
    """Whom the statement names that this node obeys."""
    held = _held(host)
    return None if held is None else held.ed25519


def is_told(host: Host, node: Node) -> bool:
    """Whether the statement that this node obeys is in its roster: the last that the making of a
    root does, before which nothing may hang on that root."""
    return etcdstore.load_holder(host) in node.roster.raws.values()


def _held(host: Host) -> HolderRecord | None:
    raw = etcdstore.load_holder(host)
    if raw is None:
        return None
    try:
        return _parse(raw)
    except BadValue as error:
        raise StateCorrupt(host.paths.holder_statement, error.summary()) from error


def _parse(raw: bytes) -> HolderRecord:
    envelope = wire.decode(raw, max_bytes=len(raw))
    try:
        payload = envelope.payload
        return codec.again(HolderRecord, payload, max_bytes=len(payload), strict=True)
    except BadValue as error:
        raise BadValue(f"holder statement {error.path}", error.problem) from error
