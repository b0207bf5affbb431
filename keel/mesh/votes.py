"""Removal by votes: who voted, of how many, and whether it suffices.

Owns the count only; what a sufficient vote does is keel.mesh.standing's.

(V1) A vote is well formed when its electorate holds only admissions that stand (the genesis is the
     founder's), one of the voter and one of the subject among them, and with each admission one of
     its signer: chains included, so that nobody can claim an electorate of its friends alone.
(V2) Votes on one subject suffice when some set of them, of different voters, is signed by more than
     half of the union of their electorates.
(V3) Sets are looked for inside each electorate and inside the union of each two. More votes can
     only add such sets, so what once sufficed goes on to. Three views that differ pairwise may go
     unseen until one of the voters votes again, after the rosters were exchanged.
(V4) Whether a voter was removed since does not matter; that its admission stands does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations

from keel.mesh.records import Vote
from keel.types import RecordHash, SigningKey

Stands = Mapping[RecordHash, tuple[SigningKey, SigningKey]]
"""Standing admissions: the subject and the signer of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """`voters` of `electorate` keys voted, at best; `votes` are those that suffice, or all."""

    voters: int
    electorate: int
    counts: bool
    votes: frozenset[RecordHash]
    listed: frozenset[RecordHash]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cast:
    record: RecordHash
    vote: Vote
    keys: frozenset[SigningKey]


def tallies(
    cast: Iterable[tuple[RecordHash, Vote]], stands: Stands, genesis: RecordHash
) -> dict[SigningKey, Tally]:
    """The count on each subject that somebody voted on, by well-formed votes (V1)."""
    by_subject: dict[SigningKey, list[_Cast]] = defaultdict(list)
    for record, vote in cast:
        keys = _electorate(vote, stands, genesis)
        if keys is not None:
            by_subject[vote.subject].append(_Cast(record=record, vote=vote, keys=keys))
    return {subject: _tally(found) for subject, found in sorted(by_subject.items())}


def _electorate(vote: Vote, stands: Stands, genesis: RecordHash) -> frozenset[SigningKey] | None:
    if genesis not in vote.electorate or not all(one in stands for one in vote.electorate):
        return None
    keys = frozenset(stands[one][0] for one in vote.electorate)
    signers = {stands[one][1] for one in vote.electorate}
    return keys if {vote.voter, vote.subject, *signers} <= keys else None


def _tally(found: list[_Cast]) -> Tally:
    """Sets of keys are numbers, a bit a key: a hostile member can cast hundreds of electorates, and
    each is looked for in the union of every two (V3)."""
    bits = {key: 1 << place for place, key in enumerate(sorted(set().union(*map(_keys, found))))}
    masks = [sum(bits[key] for key in one.keys) for one in found]
    voters_of: dict[int, int] = defaultdict(int)
    for one, mask in zip(found, masks, strict=True):
        voters_of[mask] |= bits[one.vote.voter]
    all_voters = len({one.vote.voter for one in found})
    pairs = (a | b for a, b in combinations(voters_of, 2))
    # A union too large for all voters together is not counted: few can make very many of those.
    unions = voters_of.keys() | {one for one in pairs if 2 * all_voters > one.bit_count()}
    sufficient: set[int] = set()
    best: tuple[float, int, int] = (0.0, 0, 0)
    for union in unions:
        inside = [mask for mask in voters_of if mask | union == union]
        voted = 0
        for mask in inside:
            voted |= voters_of[mask]
        voters, size = voted.bit_count(), union.bit_count()
        best = max(best, (voters / size, voters, size))
        if 2 * voters > size:
            sufficient.update(inside)
    votes = [one for one, mask in zip(found, masks, strict=True) if mask in sufficient] or found
    return Tally(
        voters=best[1],
        electorate=best[2],
        counts=bool(sufficient),
        votes=frozenset(one.record for one in votes),
        listed=frozenset(hash_ for one in votes for hash_ in one.vote.standing),
    )


def _keys(cast: _Cast) -> frozenset[SigningKey]:
    return cast.keys
