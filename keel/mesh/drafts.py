"""New records: what a node signs, from what its roster shows.

Owns how admissions, removals, votes and self records are composed. Signs; sends nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from ipaddress import IPv6Address

from keel.mesh.keys import SigningPair
from keel.mesh.roster import Roster
from keel.mesh.wire import Envelope
from keel.types import Capability, Endpoint, NodeName, Nonce, SigningKey, WgKey


def make_genesis(
    pair: SigningPair,
    *,
    name: NodeName,
    wireguard: WgKey,
    capability: Capability,
    now: datetime,
    nonce: Nonce,
    adopted: Sequence[tuple[SigningKey, IPv6Address]] = (),
) -> Envelope:
    """The founder's genesis; wire.encode of it goes to roster.founded."""
    raise NotImplementedError


def make_admission(
    roster: Roster,
    pair: SigningPair,
    *,
    name: NodeName,
    ed25519: SigningKey,
    wireguard: WgKey,
    capability: Capability,
    now: datetime,
    nonce: Nonce,
) -> Envelope:
    """An admission by `pair`, with the address that the key has in this mesh.

    Refused (admitter-not-live, key-removed).
    """
    raise NotImplementedError


def make_self(
    roster: Roster,
    pair: SigningPair,
    *,
    wireguard: WgKey,
    endpoints: Sequence[Endpoint],
    capability: Capability,
    roots: Sequence[SigningKey],
    lived: int,
    now: datetime,
    next_wireguard: WgKey | None = None,
) -> Envelope:
    """The next self record of `pair`: the highest counter in the roster, and one."""
    raise NotImplementedError


def make_removal(
    roster: Roster, pair: SigningPair, subject: SigningKey, *, now: datetime, nonce: Nonce
) -> Envelope:
    """A removal that counts mesh-wide, all of the subject's known records standing.

    Refused (removal-needs-votes, member-unknown).
    """
    raise NotImplementedError


def make_vote(
    roster: Roster, pair: SigningPair, subject: SigningKey, *, now: datetime, nonce: Nonce
) -> Envelope:
    """A vote to remove the subject, with the electorate that this roster shows."""
    raise NotImplementedError
