"""Giving birth to the cluster: the holder's book of formations and the planner over it (E8, E10).

Pure: the world comes in as plain values, one decision comes out; the caller takes one step, looks
again and asks again, from any interrupted state.
(B1) At most one formation is open at a time; never two confirmed ones that somebody may start.
(B2) Every record has the next epoch; the book is durable before a record leaves the holder.
(B3) A reservation ends at its confirmation, or at its record's expiry when another one is begun.
(B4) A birth has three members: the holder and the two earliest granted that answer now. Whoever is
     being admitted counts as granted last and as answering.
(B5) A newer formation needs the old one never confirmed, or given up by each of its members that
     was not removed since.
(B6) Once a leader of a formation was seen, that formation is the cluster for good.
(B7) A formation is given up only when those of it who were not removed are no quorum of it.
(B8) A book that lacks a formation which the holder itself started is an older copy: it gives no
     birth, for the cluster that it forgot may live.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from ipaddress import IPv6Address

from keel.errors import Internal, Refused
from keel.mesh.etcdids import birth_id, cluster_token
from keel.outcome import Plan, Step, Waiting
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
    (counted in, though not confirmed yet); `removed`: keys that counting removals name;
    `by_hand`: a form that is not through enrols the members first; `started_here`: formations that
    the holder's own etcd took part in, by what lies beside the book."""

    mesh: MeshId
    holder: Party
    book: HolderBook
    candidates: tuple[Candidate, ...]
    joiner: Party | None = None
    holder_ready: bool = True
    holder_sees_leader: bool = False
    window_open: bool = False
    by_hand: bool = False
    removed: frozenset[SigningKey] = frozenset()
    started_here: frozenset[FormationId] = frozenset()


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
class SameBirth:
    """The one who is being admitted asked before: sign the record of this reservation again."""

    formation: Formation


@dataclass(frozen=True, slots=True, kw_only=True)
class NoBirth:
    """Nothing to do about a birth: there is a cluster, or too few could carry one."""

    why: str


Birth = GiveBirth | SameBirth | AskToGiveUp | Waiting | NoBirth


def standing(book: HolderBook, now: datetime) -> Formation | None:
    """The formation that may exist somewhere: confirmed, or reserved and not expired (B1)."""
    newest = _newest(book)
    if newest is None or not (newest.confirmed or now < newest.expires):
        return None
    return newest


def under_way(book: HolderBook, removed: frozenset[SigningKey]) -> Formation | None:
    """The confirmed formation whose members are to start, if there is one that was not given up."""
    newest = _newest(book)
    if newest is None or not newest.confirmed or _given_up(newest, removed):
        return None
    return newest


def plan_birth(view: BirthView, now: datetime) -> Birth:
    """What the holder does about a birth now, at an admission (`joiner`) or in its tend."""
    if view.book.formed is not None:
        return NoBirth(why="the cluster is there")
    if view.holder_sees_leader or any(one.sees_leader for one in view.candidates):
        return NoBirth(why="a leader was seen")
    forgotten = view.started_here - {one.formation for one in view.book.formations}
    if forgotten:
        return _waiting(
            "the other members",
            f"formation.json is an older copy: it lacks formation {', '.join(sorted(forgotten))},"
            " which was started here; whoever is in that cluster tells of it",
        )
    formation = standing(view.book, now)
    if formation is not None and not _given_up(formation, view.removed):
        return _go_on_with(formation, view)
    if view.window_open:
        return _waiting("its network change", "a change to the network waits for its word")
    if view.by_hand:
        return _waiting("`keel mesh etcd form`", "it was begun here and enrols every member first")
    if not view.holder_ready:
        return _waiting("the holder's own grant", "the holder carries the cluster as well")
    return _choose(view, now)


def reserve(
    view: BirthView, birth: GiveBirth, *, formation: FormationId, nonce: Nonce, now: datetime
) -> HolderBook:
    """The book with the reservation and the next epoch; write it before anything leaves (B2).

    `view.book` is the book as it is under the lock; Refused when another birth was begun since.
    """
    open_one = standing(view.book, now)
    taken = open_one is not None and not _given_up(open_one, view.removed)
    if view.book.formed is not None or taken:
        raise Refused(
            "birth-taken",
            "another birth was begun meanwhile",
            "nothing: `keel mesh etcd status` shows it, and the timer brings this node in",
        )
    keys = {one.key for one in birth.members}
    joiner = view.joiner.key if view.joiner is not None and view.joiner.key in keys else None
    new = Formation(
        formation=formation,
        nonce=nonce,
        members=birth.members,
        cluster_id=birth_id(
            (one.address for one in birth.members), cluster_token(view.mesh, formation)
        ),
        reserved=now,
        expires=now + RECORD_LIFE,
        joiner=joiner,
        confirmed=joiner is None,
    )
    past = tuple(replace(one, over=True) for one in view.book.formations)
    return replace(view.book, epoch=view.book.epoch + 1, formations=(*past, new))


def confirm(book: HolderBook, joiner: SigningKey) -> HolderBook:
    """The joiner's confirmation arrived; already so is fine, and so is a joiner of no birth.

    One that comes after the expiry still counts unless another formation was begun meanwhile.
    """
    return replace(
        book,
        formations=tuple(
            replace(one, confirmed=True) if one.joiner == joiner and not one.over else one
            for one in book.formations
        ),
    )


def confirm_live(book: HolderBook, live: Iterable[SigningKey]) -> HolderBook:
    """The book after a holder died between a joiner's confirmation and its note: who is in the
    roster has confirmed."""
    for key in live:
        book = confirm(book, key)
    return book


def cancel(book: HolderBook, joiner: SigningKey) -> HolderBook:
    """The joiner's claim lapsed or was cancelled before it confirmed: its reservation is over."""
    return replace(
        book,
        formations=tuple(
            replace(one, over=True) if one.joiner == joiner and not one.confirmed else one
            for one in book.formations
        ),
    )


def note_given_up(book: HolderBook, formation: FormationId, key: SigningKey) -> HolderBook:
    """A member's signed word that it saw no leader of it and shall never start it."""
    return replace(
        book,
        formations=tuple(
            replace(one, given_up=one.given_up | {key}) if one.formation == formation else one
            for one in book.formations
        ),
    )


def note_leader(book: HolderBook, formation: Formation) -> HolderBook:
    """A leader of that formation was seen (B6); an older copy of the book knows it again."""
    if any(one.formation == formation.formation for one in book.formations):
        return replace(book, formed=formation.formation)
    past = tuple(replace(one, over=True) for one in book.formations)
    return replace(book, formed=formation.formation, formations=(*past, formation))


def next_epoch(book: HolderBook) -> HolderBook:
    """The book with one more epoch used, for a record signed again (B2)."""
    return replace(book, epoch=book.epoch + 1)


def formation_of(book: HolderBook, formation: FormationId | None) -> Formation:
    """The formation of this name; Internal when the book has none, for no line of it ever goes."""
    for one in book.formations:
        if one.formation == formation:
            return one
    raise Internal(f"formation {formation} is not in the holder's book")


def _newest(book: HolderBook) -> Formation | None:
    return next((one for one in reversed(book.formations) if not one.over), None)


def _left(formation: Formation, removed: frozenset[SigningKey]) -> tuple[Party, ...]:
    return tuple(one for one in formation.members if one.key not in removed)


def _given_up(formation: Formation, removed: frozenset[SigningKey]) -> bool:
    return all(one.key in formation.given_up for one in _left(formation, removed))


def _go_on_with(formation: Formation, view: BirthView) -> Birth:
    if not formation.confirmed:
        if view.joiner is not None and view.joiner.key == formation.joiner:
            return SameBirth(formation=formation)
        return _waiting(
            f"formation {formation.formation}",
            "a birth is reserved for one who has not confirmed its join yet",
            since=formation.reserved,
        )
    left = _left(formation, view.removed)
    if len(left) > len(formation.members) // 2:
        names = {one.party.key: one.name for one in view.candidates if not one.answers}
        silent = ", ".join(names[one.key] for one in left if one.key in names)
        return _waiting(
            silent or f"a leader of formation {formation.formation}",
            "its members were told to start; two of three elect a leader",
            since=formation.reserved,
        )
    ask = tuple(one for one in left if one.key not in formation.given_up)
    steps = tuple(
        Step(
            action="ask-to-give-up",
            subject=one.address.compressed,
            why=f"formation {formation.formation} lost its quorum before it had a leader",
        )
        for one in ask
    )
    return AskToGiveUp(formation=formation.formation, members=ask, plan=Plan(steps=steps))


def _choose(view: BirthView, now: datetime) -> Birth:
    ready = [one for one in view.candidates if one.ready]
    if view.joiner is not None:
        ready = [one for one in ready if one.party.key != view.joiner.key]
        ready.append(
            Candidate(
                name="the one who joins", party=view.joiner, granted=now, ready=True, answers=True
            )
        )
    if 1 + len(ready) < BIRTH_SIZE:
        return NoBirth(why=f"{1 + len(ready)} of {BIRTH_SIZE} members are ready for a cluster")
    ready.sort(key=lambda one: (one.granted, one.party.address))
    chosen = [one for one in ready if one.answers][: BIRTH_SIZE - 1]
    if 1 + len(chosen) < BIRTH_SIZE:
        silent = ", ".join(one.name for one in ready if not one.answers)
        return _waiting(silent, "a birth takes those who answer now")
    members = (view.holder, *(one.party for one in chosen))
    return GiveBirth(members=members, plan=_birth_plan(members))


def _birth_plan(members: tuple[Party, ...]) -> Plan:
    first = Step(
        action="reserve-formation",
        subject=", ".join(one.address.compressed for one in members),
        why="there is no cluster and three members are ready",
    )
    sent = tuple(
        Step(action="send-record", subject=one.address.compressed, why="it gives birth with us")
        for one in members
    )
    return Plan(steps=(first, *sent))


def _waiting(waiting_for: str, why: str, *, since: datetime | None = None) -> Waiting:
    return Waiting(what="the birth of the cluster", waiting_for=waiting_for, why=why, since=since)
