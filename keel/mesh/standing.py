"""Who is in and who is out: admissions weighed against removals and votes.

Owns the rules of liveness; works on records that passed the door (keel.mesh.entry), in any order.

(S1) A key is *rooted* when a chain of standing admissions leads from it to the founder. It is
     *live* when it is rooted and no counting removal names it.
(S2) An admission stands when its signer is rooted and either not removed, or removed by records
     that list this admission as standing. The lists of all counting removals of a key are united.
(S3) A removal counts when its signer is rooted, not removed (or the removal itself is listed as
     standing), and has the right: it is the subject, the subject's admitter, or has mutual roots
     with it, as the grounds in the removal prove.
(S4) A key with several admitters has one that may remove it: the nearest to the founder, the
     lower key among equals, of those not removed. If each of them could, any member could put
     anyone out by admitting it once more.
(S5) Removals are weighed by their signer's distance from the founder, then by hash: the first that
     counts is applied, then all are looked at again, until none is left that counts. So of two
     members that remove each other, the nearer one's counts. The distance is that of the shortest
     chain of admissions, removals left aside: it cannot depend on the order it serves.
(S6) Votes that suffice (keel.mesh.votes) go before all removals, because a removed founder would
     else put out the majority that voted. Whose votes those are is decided without them, once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from keel.errors import Internal
from keel.mesh import votes
from keel.mesh.entry import Entry, Founding
from keel.mesh.records import Admission, Removal, Vote
from keel.types import NodeName, RecordHash, SigningKey

_BEYOND = 1 << 30
"""The distance of a key that no admission reaches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What the records come to. `removed` holds the counting removals and votes of each key,
    `admission` the standing admission that speaks for each live key but the founder, `called` the
    names that its admitters gave it, `reached` the one by which the founder's chain reaches each
    rooted key but the founder, `remover` the admitter that may remove a live key (S4)."""

    distance: Mapping[SigningKey, int]
    live: frozenset[SigningKey]
    removed: Mapping[SigningKey, tuple[RecordHash, ...]]
    admission: Mapping[SigningKey, Entry]
    called: Mapping[SigningKey, frozenset[NodeName]]
    reached: Mapping[SigningKey, Entry]
    remover: Mapping[SigningKey, SigningKey | None]
    tallies: Mapping[SigningKey, votes.Tally]

    def chain(self, key: SigningKey) -> tuple[Entry, ...]:
        """The admissions from the founder to a rooted key, the founder's first."""
        found: list[Entry] = []
        while key in self.reached:
            found.insert(0, self.reached[key])
            key = found[0].signer
        return tuple(found)


@dataclass(slots=True)
class _Scale:
    """The state of one weighing."""

    removed: dict[SigningKey, set[RecordHash]]
    listed: dict[SigningKey, set[RecordHash]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Records:
    founder: SigningKey
    distance: Mapping[SigningKey, int]
    by_signer: Mapping[SigningKey, Sequence[Entry]]
    by_subject: Mapping[SigningKey, Sequence[Entry]]
    removals: Sequence[tuple[Entry, Removal]]


def judge(founding: Founding, entries: Iterable[Entry]) -> Standing:
    """Weigh all records (S1 to S6); the same for the same records in any order."""
    found = tuple(entries)
    records = _sorted_out(founding, found)
    without_votes = _weighed(records, {})
    stands = {
        one.record: (_subject(one), one.signer)
        for key in _rooted(records, without_votes)
        for one in records.by_signer.get(key, ())
        if _is_free(without_votes, one)
    }
    stands[founding.record] = (records.founder, records.founder)
    cast = [(one.record, one.body) for one in found if isinstance(one.body, Vote)]
    tallies = votes.tallies(cast, stands, founding.record)
    outvoted = {key: tally for key, tally in tallies.items() if tally.counts}
    scale = _weighed(records, outvoted) if outvoted else without_votes
    reached = _reached(records, scale)
    rooted = {records.founder} | reached.keys()
    live = rooted - scale.removed.keys()
    admitted = {
        key: [
            one for one in records.by_subject[key] if one.signer in rooted and _is_free(scale, one)
        ]
        for key in sorted(live)
        if key != records.founder
    }
    return Standing(
        distance=records.distance,
        live=frozenset(live),
        removed={key: tuple(sorted(by)) for key, by in sorted(scale.removed.items())},
        admission={key: _speaks_for(records, found) for key, found in admitted.items()},
        called={key: _called(found) for key, found in admitted.items()},
        reached=reached,
        remover={
            key: _remover(records, scale, rooted, signer=key, subject=key) for key in sorted(live)
        },
        tallies=tallies,
    )


def admission_in(entry: Entry) -> Admission:
    """The admission that an entry of that kind holds."""
    if not isinstance(entry.body, Admission):
        raise Internal(f"a {entry.kind} record in place of an admission")
    return entry.body


def distances(founder: SigningKey, admissions: Iterable[Entry]) -> dict[SigningKey, int]:
    """How many admissions lead from each key to the founder, removals left aside (S5)."""
    by_signer = defaultdict(list)
    for one in admissions:
        by_signer[one.signer].append(_subject(one))
    found = {founder: 0}
    reached = [founder]
    for key in reached:
        for subject in by_signer[key]:
            if subject not in found:
                found[subject] = found[key] + 1
                reached.append(subject)
    return found


def _sorted_out(founding: Founding, entries: Sequence[Entry]) -> _Records:
    admissions = [one for one in entries if isinstance(one.body, Admission)]
    admissions.sort(key=lambda one: one.record)
    founder = founding.genesis.ed25519
    distance = distances(founder, admissions)
    by_signer: dict[SigningKey, list[Entry]] = defaultdict(list)
    by_subject: dict[SigningKey, list[Entry]] = defaultdict(list)
    for one in admissions:
        by_signer[one.signer].append(one)
        by_subject[_subject(one)].append(one)
    removals = [(one, one.body) for one in entries if isinstance(one.body, Removal)]
    removals.sort(key=lambda pair: (distance.get(pair[0].signer, _BEYOND), pair[0].record))
    return _Records(
        founder=founder,
        distance=distance,
        by_signer=by_signer,
        by_subject=by_subject,
        removals=removals,
    )


def _weighed(records: _Records, outvoted: Mapping[SigningKey, votes.Tally]) -> _Scale:
    scale = _Scale(
        removed={key: set(tally.votes) for key, tally in outvoted.items()},
        listed=defaultdict(set, {key: set(tally.listed) for key, tally in outvoted.items()}),
    )
    pending = list(records.removals)
    rooted = _rooted(records, scale)
    while True:
        counting = next((pair for pair in pending if _counts(records, scale, rooted, *pair)), None)
        if counting is None:
            return scale
        pending.remove(counting)
        entry, removal = counting
        scale.removed.setdefault(removal.subject, set()).add(entry.record)
        scale.listed[removal.subject].update(removal.standing)
        if removal.subject in records.by_signer:  # else nobody hangs on it
            rooted = _rooted(records, scale)


def _counts(
    records: _Records, scale: _Scale, rooted: set[SigningKey], entry: Entry, removal: Removal
) -> bool:
    signer = entry.signer
    if signer not in rooted:
        return False
    if signer in scale.removed and entry.record not in scale.listed[signer]:
        return False
    if signer == removal.subject or removal.grounds:
        return True
    return signer == _remover(records, scale, rooted, signer=signer, subject=removal.subject)


def _remover(
    records: _Records,
    scale: _Scale,
    rooted: set[SigningKey],
    *,
    signer: SigningKey,
    subject: SigningKey,
) -> SigningKey | None:
    """The admitter that may remove (S4); a removed signer takes part for what is listed of it."""
    if subject == records.founder:
        return None  # it admitted itself; whoever admits it again gains nothing
    admitters = {
        one.signer
        for one in records.by_subject.get(subject, ())
        if one.signer in rooted and (one.signer == signer or one.signer not in scale.removed)
    }
    return min(admitters, key=lambda key: (records.distance[key], key), default=None)


def _rooted(records: _Records, scale: _Scale) -> set[SigningKey]:
    return {records.founder} | _reached(records, scale).keys()


def _reached(records: _Records, scale: _Scale) -> dict[SigningKey, Entry]:
    """The standing admission that first reaches each key from the founder outward (S1, S2)."""
    found: dict[SigningKey, Entry] = {}
    queue = [records.founder]
    for key in queue:
        for one in records.by_signer.get(key, ()):
            subject = _subject(one)
            if subject in found or subject == records.founder or not _is_free(scale, one):
                continue
            found[subject] = one
            queue.append(subject)
    return found


def _is_free(scale: _Scale, admission: Entry) -> bool:
    signer = admission.signer
    return signer not in scale.removed or admission.record in scale.listed[signer]


def _speaks_for(records: _Records, admissions: Sequence[Entry]) -> Entry:
    """Of several standing admissions of a key: the nearest signer's, its newest, the lower hash."""
    nearest = min((records.distance[one.signer], one.signer) for one in admissions)
    return _newest([one for one in admissions if one.signer == nearest[1]])


def _called(admissions: Sequence[Entry]) -> frozenset[NodeName]:
    """The names by each admitter's newest."""
    by_signer = defaultdict(list)
    for one in admissions:
        by_signer[one.signer].append(one)
    return frozenset(admission_in(_newest(found)).name for found in by_signer.values())


def _newest(admissions: Sequence[Entry]) -> Entry:
    newest = max(admission_in(one).time for one in admissions)
    return min(
        (one for one in admissions if admission_in(one).time == newest), key=lambda one: one.record
    )


def _subject(entry: Entry) -> SigningKey:
    return admission_in(entry).ed25519
