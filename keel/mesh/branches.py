"""Whose branch a record is of: what bounds a member together with all that it let in.

Pure. Whoever floods in its own name pushes itself out (keel.mesh.roster's R5); this is for whoever
floods in the names of puppets that it admitted.

(B1) A record is charged to its signer and to every member on a shortest way of admissions from the
     founder to it; not to the founder, below whom everybody is.
(B2) With several shortest ways the one with the smallest share speaks: who is admitted once more by
     a flooder is drawn into no flood.
(B3) What was charged before puts a record a tier behind for each eighth of the bound. Charged in
     the order of distance, an admission never comes before all that it hangs on.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping

from keel.mesh.entry import Entry
from keel.mesh.standing import admission_in
from keel.types import SigningKey

LEVELS = 8
"""So far from the founder branches are told apart; deeper ones belong to those above them."""
SHARES = 8
"""Into how many tiers the records of one branch, or of one signer, fall that fill a bound alone."""
MAX_KIND_BYTES = 4 << 20
"""Of one kind in all: 200 members need a tenth of it, or half if each lists 128 roots."""


def share(records: int, weight: int, total: int) -> int:
    """Which of its shares one has come to that has so much before."""
    return max(records * SHARES // total, weight * SHARES // MAX_KIND_BYTES)


class Branches:
    """What is charged to whom; one for each bounding of one kind."""

    def __init__(
        self, distance: Mapping[SigningKey, int], admissions: Iterable[Entry], total: int
    ) -> None:
        self._total = total
        self._distance = distance
        self._admitters = _nearest_admitters(distance, admissions)
        self._above: dict[SigningKey, frozenset[SigningKey]] = {}
        self._tops: dict[SigningKey, frozenset[SigningKey]] = {}
        for key in sorted(distance, key=lambda one: (distance[one], one)):
            self._place(key)
        self._records: Counter[SigningKey] = Counter()
        self._weights: Counter[SigningKey] = Counter()
        self._shares: dict[SigningKey, int] = {}
        self._known: dict[SigningKey, int] = {}

    def charge(self, entry: Entry) -> int:
        """The share that this record falls into (B2); the next one of its branches comes after."""
        found = min(self._of(top) for top in self._tops[entry.signer])
        for key in self._above[entry.signer]:
            self._records[key] += 1
            self._weights[key] += len(entry.raw)
            now = share(self._records[key], self._weights[key], self._total)
            if now != self._shares.get(key, 0):
                self._shares[key] = now
                self._known.clear()
        return found

    def _place(self, key: SigningKey) -> None:
        admitters = self._admitters.get(key, ())
        own = frozenset((key,) if 0 < self._distance[key] <= LEVELS else ())
        self._above[key] = own.union(*(self._above[one] for one in admitters))
        if self._distance[key] > LEVELS:
            self._tops[key] = frozenset(top for one in admitters for top in self._tops[one])
        else:
            self._tops[key] = frozenset((key,))

    def _of(self, key: SigningKey) -> int:
        """The share of one no deeper than LEVELS."""
        if key not in self._known:
            above = min((self._of(one) for one in self._admitters.get(key, ())), default=0)
            self._known[key] = max(self._shares.get(key, 0), above)
        return self._known[key]


def heads(
    distance: Mapping[SigningKey, int],
    admissions: Iterable[Entry],
    *,
    beneath: Collection[SigningKey],
) -> dict[SigningKey, frozenset[SigningKey]]:
    """Through whom each member is in: those on its shortest ways that one of `beneath` admitted.
    None for what no shortest way reaches from them."""
    admitters = _nearest_admitters(distance, admissions)
    found: dict[SigningKey, frozenset[SigningKey]] = {}
    for key in sorted(admitters, key=lambda one: (distance[one], one)):
        if any(one in beneath for one in admitters[key]):
            found[key] = frozenset((key,))
        else:
            found[key] = frozenset(
                head for one in admitters[key] for head in found.get(one, frozenset())
            )
    return found


def _nearest_admitters(
    distance: Mapping[SigningKey, int], admissions: Iterable[Entry]
) -> dict[SigningKey, tuple[SigningKey, ...]]:
    """By whom a shortest way comes to each."""
    found: dict[SigningKey, set[SigningKey]] = defaultdict(set)
    for one in admissions:
        subject = admission_in(one).ed25519
        if one.signer in distance and distance[one.signer] + 1 == distance.get(subject):
            found[subject].add(one.signer)
    return {key: tuple(sorted(by)) for key, by in found.items()}
