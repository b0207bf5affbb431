"""Giving birth to the cluster: the holder's book of formations and the planner over it (E8, E10).

Pure: the world comes in as plain values, one decision comes out; the caller takes one step, looks
again and asks again, from any interrupted state.
(B1) At most one formation is open at a time; never two confirmed ones that somebody may start.
(B2) Every record has the next epoch; the book is durable before a record leaves the holder.
(B3) A reservation ends at its confirmation or at its record's expiry.
(B4) A birth has three members: the holder and the two earliest granted that answer now.
(B5) A newer formation needs the old one never confirmed, or given up by each of its members that
     was not removed since.
(B6) Once a leader of a formation was seen, that formation is the cluster for good.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from ipaddress import IPv6Address

from keel.outcome import Plan, Waiting
from keel.types import EtcdClusterId, FormationId, MeshId, Nonce, SigningKey

RECORD_LIFE = timedelta(hours=1)
BIRTH_SIZE = 3
"""Two are never formed by keel (E19); a fourth comes as a learner (E11)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """A member of a formation: its address, and the key that signs for it."""

    address: IPv6Address
    key: SigningKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Formation:
    """One attempt at a birth. `joiner` is whose confirmation ends the reservation; None when all
    its members were confirmed ones already."""

    formation: FormationId
    nonce: Nonce
    members: tuple[Party, ...]
    cluster_id: EtcdClusterId
    reserved: datetime
    expires: datetime
    joiner: SigningKey | None = None
    confirmed: bool = False
    given_up: frozenset[SigningKey] = frozenset()
    over: bool = False
    extra: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderBook:
    """formation.json: the epochs that were used and every formation, oldest first."""

    epoch: int = 0
    formations: tuple[Formation, ...] = ()
    formed: FormationId | None = None
    extra: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Another member as the holder sees it in this pass.

    `ready`: live, confirmed, capable, holding an unrevoked recorded grant, in no cluster.
    `answers`: it answered a signed probe in this pass. `sees_leader`: and saw a leader.
    """

    name: str
    party: Party
    granted: datetime
    ready: bool
    answers: bool
    sees_leader: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BirthView:
    """What the holder knows when it thinks of a birth. `joiner`: whom it is admitting right now
    (counted in, though not confirmed yet); `removed`: keys that counting removals name."""

    mesh: MeshId
    holder: Party
    book: HolderBook
    candidates: tuple[Candidate, ...]
    joiner: Party | None = None
    holder_ready: bool = True
    holder_sees_leader: bool = False
    window_open: bool = False
    removed: frozenset[SigningKey] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveBirth:
    """Reserve and sign `new` for exactly these."""

    members: tuple[Party, ...]
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class AskToGiveUp:
    """Ask these to give the formation up, signed; a birth comes after all did."""

    formation: FormationId
    members: tuple[Party, ...]
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class NoBirth:
    """Nothing to do about a birth: there is a cluster, or too few could carry one."""

    why: str


Birth = GiveBirth | AskToGiveUp | Waiting | NoBirth


def standing(book: HolderBook, now: datetime) -> Formation | None:
    """The formation that may exist somewhere: confirmed, or reserved and not expired (B1)."""
    raise NotImplementedError


def plan_birth(view: BirthView, now: datetime) -> Birth:
    """What the holder does about a birth now, at an admission (`joiner`) or in its tend."""
    raise NotImplementedError


def reserve(
    view: BirthView, birth: GiveBirth, *, formation: FormationId, nonce: Nonce, now: datetime
) -> HolderBook:
    """The book with the reservation and the next epoch; write it before anything leaves (B2)."""
    raise NotImplementedError


def confirm(book: HolderBook, joiner: SigningKey) -> HolderBook:
    """The joiner's confirmation arrived; already so is fine."""
    raise NotImplementedError


def note_given_up(book: HolderBook, formation: FormationId, key: SigningKey) -> HolderBook:
    raise NotImplementedError


def note_leader(book: HolderBook, formation: FormationId) -> HolderBook:
    """A leader of that formation was seen (B6)."""
    raise NotImplementedError


def next_epoch(book: HolderBook) -> HolderBook:
    """The book with one more epoch used, for a record signed again."""
    return replace(book, epoch=book.epoch + 1)
