"""The roster: every record of the mesh that this node holds, and how two rosters become one.

Owns the door (what is let in, what bounds it) and the digest. Who is a member by these records is
keel.mesh.standing's and keel.mesh.members's.

(R1) A merge is a union: nothing goes because it is absent from what another sent. The received
     bytes are kept.
(R2) What is superseded goes: of a member's self records the highest counter stays (two, when two
     have it: that is the proof of a clone), of lists and statements the newest few.
(R3) A record whose signer no admission reaches is an *orphan*: kept apart, in small number, not
     shown and not passed on, until the admissions come. So the order of arrival does not matter,
     and a stranger's records stay a stranger's.
(R4) Everything is bounded, and what goes over a bound is chosen by the records alone (tier and
     distance of the signer, then hash), so that nodes that hold the same records keep the same.
(R5) A signer's first eighth of a bound has the tier of its distance, each further one stands a
     tier behind: whoever floods pushes itself out, and brings no removal of another's to naught.
     The same holds of a member with all that it let in (keel.mesh.branches), and for admissions
     that alone, since what hangs on them goes with them.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from keel.errors import BadSignature, BadValue, Refused
from keel.mesh import standing
from keel.mesh.branches import MAX_KIND_BYTES, Branches, share
from keel.mesh.entry import Entry, Founding, read, read_genesis
from keel.mesh.records import (
    ADMISSION,
    CRL,
    HOLDER,
    REMOVAL,
    SELF,
    SUCCESSION,
    VOTE,
    CrlRecord,
    HolderRecord,
    Removal,
    SelfRecord,
    Vote,
)
from keel.types import MeshId, RecordHash, SigningKey

MAX_BATCH = 8192
"""Records looked at in one merge: a whole roster from disk fits; a message holds about 400."""

MAX_ORPHANS = 256
"""Peers send admissions first, so that few are ever waiting; more is somebody's nonsense."""

MAX_PER_PAIR = 8
"""Removals, or votes, by one signer on one subject: each new one can only lengthen its list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """How many records of a kind are kept: of one signer, and in all."""

    per_signer: int
    total: int


BOUNDS: Mapping[str, Bound] = MappingProxyType(
    {
        ADMISSION: Bound(per_signer=512, total=1024),  # five meshes of 200, half by one inviter
        REMOVAL: Bound(per_signer=256, total=512),  # half of what can be admitted
        VOTE: Bound(per_signer=64, total=448),  # two votes in which all of 200 take part
        SELF: Bound(per_signer=2, total=1280),  # R2
        SUCCESSION: Bound(per_signer=4, total=256),
        CRL: Bound(per_signer=4, total=64),  # the holders there were; newest first
        HOLDER: Bound(per_signer=4, total=64),
    }
)
"""All together fit one list of hashes of an exchange (keel.mesh.exchange.MAX_HASHES), however many
a member signs: a roster that could not be told would keep the mesh from ever learning anything."""
UNKNOWN = Bound(per_signer=16, total=256)
"""Of all kinds that this code does not know together."""

_NO_KIND = ""
_ORDER = (ADMISSION, REMOVAL, SELF, VOTE, HOLDER, CRL, SUCCESSION, _NO_KIND)
"""In which order kinds are sent: what decides who is a member goes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """Immutable. `entries` count and are passed on; `orphans` wait (R3); `distance` is that of
    every key that an admission reaches. Made by `founded` and `merge` only."""

    founding: Founding
    entries: Mapping[RecordHash, Entry] = field(default_factory=dict)
    orphans: Mapping[RecordHash, Entry] = field(default_factory=dict)
    distance: Mapping[SigningKey, int] = field(default_factory=dict)

    @property
    def mesh(self) -> MeshId:
        """The mesh id, which pins the genesis."""
        return self.founding.mesh

    @property
    def raws(self) -> Mapping[RecordHash, bytes]:
        """The exact bytes of all that is kept, orphans too, without the genesis: for the disk."""
        return {one.record: one.raw for one in (*self.entries.values(), *self.orphans.values())}


@dataclass(frozen=True, slots=True, kw_only=True)
class NotTaken:
    """A record that was refused at the door: the hash of its bytes, the rule, and the text."""

    record: RecordHash
    rule: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """The new roster, what now counts that did not before, what ceased to be kept because newer
    records or a bound replaced it, and what was refused."""

    roster: Roster
    added: tuple[RecordHash, ...]
    dropped: tuple[RecordHash, ...]
    refused: tuple[NotTaken, ...]


def founded(genesis_raw: bytes, mesh: MeshId | None = None) -> Roster:
    """The roster of a genesis alone; BadValue, BadSignature, or Refused (foreign-genesis) when
    it is not the one that `mesh` pins."""
    founding = read_genesis(genesis_raw)
    if mesh is not None and founding.mesh != mesh:
        raise Refused(
            "foreign-genesis",
            f"the genesis of mesh {founding.mesh} came in place of {mesh}'s",
            "check the mesh id on both nodes with `keel mesh status`",
        )
    return Roster(founding=founding, distance={founding.genesis.ed25519: 0})


def merge(roster: Roster, raws: Iterable[bytes]) -> Merged:
    """The union of a roster and the records that somebody sent (R1 to R4).

    Never raises for what was sent: each record that fails is refused by itself, and the others
    are taken.
    """
    known = {**roster.entries, **roster.orphans}
    by_bytes = {one.raw for one in known.values()} | {roster.founding.raw}
    arrived: dict[RecordHash, Entry] = {}
    refused: list[NotTaken] = []
    for number, raw in enumerate(raws):
        if raw in by_bytes:
            continue
        if number >= MAX_BATCH:
            refused.append(_not_taken(raw, "batch-too-large", "too many records at once"))
            break
        try:
            entry = read(raw, roster.founding)
        except Refused as error:
            refused.append(_not_taken(raw, error.rule, error.summary()))
        except (BadValue, BadSignature) as error:
            refused.append(_not_taken(raw, error.code, error.summary()))
        else:
            if entry.record not in known and entry.record != roster.founding.record:
                arrived[entry.record] = entry
    if not arrived:
        return Merged(roster=roster, added=(), dropped=(), refused=tuple(refused))
    settled = _settled(roster.founding, [*known.values(), *arrived.values()])
    return Merged(
        roster=settled,
        added=tuple(sorted(settled.entries.keys() - roster.entries.keys())),
        dropped=tuple(sorted(known.keys() - settled.entries.keys() - settled.orphans.keys())),
        refused=tuple(refused),
    )


def digest(roster: Roster) -> str:
    """32 hex digits that are equal exactly when two rosters hold the same counting records."""
    hashed = hashlib.sha256(b"keel/1 roster\x00" + bytes.fromhex(roster.mesh))
    for record in sorted(roster.entries):
        hashed.update(bytes.fromhex(record))
    return hashed.hexdigest()[:32]


def offered(roster: Roster) -> tuple[RecordHash, ...]:
    """The hashes of all that is passed on, in the order in which it is sent (see `missing`)."""
    return tuple(one.record for one in sorted(roster.entries.values(), key=_sending(roster)))


def missing(roster: Roster, theirs: Collection[RecordHash]) -> tuple[bytes, ...]:
    """The records that one who holds `theirs` lacks, in an order in which any prefix is of use:
    admissions first, from the founder outward."""
    known = set(theirs)
    return tuple(
        one.raw
        for one in sorted(roster.entries.values(), key=_sending(roster))
        if one.record not in known
    )


def _not_taken(raw: bytes, rule: str, text: str) -> NotTaken:
    return NotTaken(record=RecordHash(hashlib.sha256(raw).hexdigest()), rule=rule, text=text)


def _sending(roster: Roster) -> Callable[[Entry], tuple[int, int, str]]:
    def order(one: Entry) -> tuple[int, int, str]:
        return _ORDER.index(_class(one)), roster.distance[one.signer], one.record

    return order


def _settled(founding: Founding, entries: Sequence[Entry]) -> Roster:
    """What is kept of these records; the same for the same records in any order (R4)."""
    founder = founding.genesis.ed25519
    admissions = [one for one in entries if one.kind == ADMISSION]
    while True:
        distance = standing.distances(founder, admissions)
        reached = [one for one in admissions if one.signer in distance]
        kept = _bounded(reached, distance, reached)
        if len(kept) == len(admissions):
            break
        admissions = kept
    by_class: dict[str, list[Entry]] = defaultdict(list)
    orphans = [one for one in entries if one.signer not in distance]
    for one in entries:
        if one.kind != ADMISSION and one.signer in distance:
            by_class[_class(one)].append(one)
    admissions = kept
    for found in by_class.values():
        kept = kept + _bounded(found, distance, admissions)
    orphans.sort(key=lambda one: one.record)
    return Roster(
        founding=founding,
        entries={one.record: one for one in kept},
        orphans={one.record: one for one in _within_size(orphans, MAX_ORPHANS)},
        distance=distance,
    )


def _bounded(
    entries: Sequence[Entry], distance: Mapping[SigningKey, int], admissions: Sequence[Entry]
) -> list[Entry]:
    """The entries of one kind within its bounds: per pair and signer first, then in all."""
    kept = _of_each_signer(entries)
    total = BOUNDS.get(entries[0].kind, UNKNOWN).total if entries else 0
    if len(kept) <= total and sum(len(one.raw) for one, _ in kept) <= MAX_KIND_BYTES:
        return [one for one, _ in kept]
    branches = Branches(distance, admissions, total)
    tiers = []
    for one, own in sorted(kept, key=lambda pair: _rank(pair[0], pair[1], distance)):
        tiers.append((_rank(one, max(own, branches.charge(one)), distance), one))
    tiers.sort(key=lambda pair: pair[0])
    return _within_size([one for _, one in tiers], total)


def _rank(
    entry: Entry, share: int, distance: Mapping[SigningKey, int]
) -> tuple[int, int, RecordHash]:
    """The order in which a bound takes: the tier, the nearer signer, the hash."""
    near = distance[entry.signer]
    return near + share, near, entry.record


def _of_each_signer(entries: Sequence[Entry]) -> list[tuple[Entry, int]]:
    """What is within the bounds per pair and signer, each with its signer's share (R5)."""
    signers: Counter[SigningKey] = Counter()
    weights: Counter[SigningKey] = Counter()
    pairs: Counter[tuple[SigningKey, object]] = Counter()
    newest = _newest_counters(entries)
    kept = []
    for one in sorted(entries, key=_preference):
        pair = (one.signer, _paired_with(one))
        bound = BOUNDS.get(one.kind, UNKNOWN)
        within = signers[one.signer] < bound.per_signer
        within &= pair[1] is None or pairs[pair] < MAX_PER_PAIR
        within &= not isinstance(one.body, SelfRecord) or one.body.counter == newest[one.signer]
        if within:
            mine = share(signers[one.signer], weights[one.signer], bound.total)
            kept.append((one, 0 if one.kind == ADMISSION else mine))
            signers[one.signer] += 1
            weights[one.signer] += len(one.raw)
            pairs[pair] += 1
    return kept


def _within_size(entries: Sequence[Entry], total: int) -> list[Entry]:
    kept = []
    size = 0
    for one in entries[:total]:
        size += len(one.raw)
        if size > MAX_KIND_BYTES:
            break
        kept.append(one)
    return kept


def _preference(entry: Entry) -> tuple[int, int, str]:
    """Which of one signer's records are kept first."""
    match entry.body:
        case SelfRecord(counter=counter):
            return -counter, 0, entry.record
        case CrlRecord(generation=generation, number=number):
            return -generation, -number, entry.record
        case HolderRecord(epoch=epoch):
            return -epoch, 0, entry.record
        case _:
            return 0, 0, entry.record


def _newest_counters(entries: Sequence[Entry]) -> dict[SigningKey, int]:
    newest: dict[SigningKey, int] = {}
    for one in entries:
        if isinstance(one.body, SelfRecord):
            newest[one.signer] = max(one.body.counter, newest.get(one.signer, 0))
    return newest


def _paired_with(entry: Entry) -> SigningKey | None:
    return entry.body.subject if isinstance(entry.body, Removal | Vote) else None


def _class(entry: Entry) -> str:
    return entry.kind if entry.kind in BOUNDS else _NO_KIND
