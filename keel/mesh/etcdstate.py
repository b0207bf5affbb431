"""The records of /var/lib/keel/etcd: what a member and what a holder know across restarts.

Owns cluster.json, the marker, queue.json, failures.json and their bytes; reads and writes nothing.
(R1) A file that does not parse is StateCorrupt with its path, never an empty default.
(R2) Unknown fields survive a rewrite.
(R3) A member is `idle`, then `starting` one formation, then `formed` for good (design section 3).
(R4) A formation that was given up is never started again.
(R5) The cluster ID is computed once, at the birth, and kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import TypeVar

from keel.types import EtcdClusterId, EtcdMemberId, FormationId, Nonce, RecordHash, SigningKey

T = TypeVar("T")
"""Far above what any of these grow to; the ledger is read line by line."""

Extra = Mapping[str, object]


class Stage(StrEnum):
    IDLE = "idle"
    STARTING = "starting"
    FORMED = "formed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """cluster.json. `record` is the hash of the newest record taken, `epoch` its epoch.

    `attempt` grows by one each time that data is moved aside and the birth begun anew.
    `replaced`: the last ID of this node's that a record replaced by a new one.
    """

    stage: Stage = Stage.IDLE
    formation: FormationId | None = None
    nonce: Nonce | None = None
    attempt: int = 0
    record: RecordHash | None = None
    epoch: int = 0
    cluster_id: EtcdClusterId | None = None
    given_up: tuple[FormationId, ...] = ()
    replaced: EtcdMemberId | None = None
    extra: Extra = field(default_factory=dict)

    def __post_init__(self) -> None:
        named = None not in (self.formation, self.nonce, self.record, self.cluster_id)
        if self.stage is not Stage.IDLE and not named:
            raise ValueError(f"stage {self.stage} needs formation, nonce, record and cluster_id")
        if self.formation in self.given_up and self.stage is not Stage.IDLE:
            raise ValueError("its formation was given up")


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """Beside etcd's data: the only birth that may use it."""

    formation: FormationId
    attempt: int
    extra: Extra = field(default_factory=dict)


class Wanted(StrEnum):
    """What waits in the queue."""

    ENROL = "enrol"
    RELAY = "relay"
    LEARNER = "learner"
    REPLACE = "replace"
    REVOKE = "revoke"
    CONFIRMATION = "confirmation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """One request that could not be served yet; `envelope` is what has to be sent, if anything."""

    what: Wanted
    subject: SigningKey
    since: datetime
    why: str
    attempts: int = 0
    last_try: datetime | None = None
    envelope: bytes | None = None
    extra: Extra = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    entries: tuple[Queued, ...] = ()
    extra: Extra = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Kept until it is gone (E15)."""

    code: str
    subject: str
    text: str
    remedy: str
    since: datetime
    last: datetime
    extra: Extra = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    entries: tuple[Failure, ...] = ()
    extra: Extra = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lived:
    """How often this disk has lived through an hour or a start; a restored one knows less."""

    counter: int = 0
    extra: Extra = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """restored.json: this holder's disk was put back. The highest that its members showed, and
    whose word was heard since; nothing is signed while it is there."""

    since: datetime
    epoch: int = 0
    crl_number: int = 0
    heard: tuple[SigningKey, ...] = ()
    extra: Extra = field(default_factory=dict)


def start(
    cluster: Cluster,
    *,
    formation: FormationId,
    nonce: Nonce,
    record: RecordHash,
    epoch: int,
    cluster_id: EtcdClusterId,
    replaced: EtcdMemberId | None = None,
    marker: Marker | None = None,
) -> Cluster:
    """`starting` this formation; the attempt stays while it is the same birth and the same place
    in it. `replaced`: the record gives a new place for this one, and this node takes it. `marker`:
    the one beside the data; an attempt that it has seen is never counted again."""
    anew = replaced not in (None, cluster.replaced)
    if cluster.stage is Stage.FORMED and not anew:  # a newer record: the cluster stays
        return replace(cluster, record=record, epoch=epoch)
    again = cluster.stage is Stage.STARTING and cluster.formation == formation and not anew
    last = max(cluster.attempt, marker.attempt if marker is not None else 0)
    return replace(
        cluster,
        stage=Stage.STARTING,
        formation=formation,
        nonce=nonce,
        attempt=cluster.attempt if again else last + 1,
        record=record,
        epoch=epoch,
        cluster_id=cluster_id,
        replaced=replaced if anew else cluster.replaced,
    )


def mark_formed(cluster: Cluster) -> Cluster:
    """Once etcd answered with the computed ID and a leader; `existing` only from then on."""
    return replace(cluster, stage=Stage.FORMED)


def give_up(cluster: Cluster, formation: FormationId) -> Cluster:
    """Promise never to start that formation again (R4); already so is fine."""
    given_up = tuple(sorted({*cluster.given_up, formation}))
    if cluster.formation != formation:
        return replace(cluster, given_up=given_up)
    return Cluster(
        attempt=cluster.attempt,
        epoch=cluster.epoch,
        given_up=given_up,
        replaced=cluster.replaced,
        extra=cluster.extra,
    )


def marker_for(cluster: Cluster) -> Marker | None:
    """The marker that this stage may start over; None while idle."""
    if cluster.formation is None:
        return None
    return Marker(formation=cluster.formation, attempt=cluster.attempt)


def matches(marker: Marker | None, cluster: Cluster) -> bool:
    """Whether the data beside the marker belongs to this birth and attempt."""
    wanted = marker_for(cluster)
    return (
        marker is not None
        and wanted is not None
        and (marker.formation, marker.attempt) == (wanted.formation, wanted.attempt)
    )


def enqueue(queue: Queue, entry: Queued) -> Queue:
    """At the end of the line; the same wish keeps its place and its `since`."""
    for place, old in enumerate(queue.entries):
        if (old.what, old.subject) == (entry.what, entry.subject):
            kept = replace(entry, since=old.since, attempts=old.attempts, last_try=old.last_try)
            return replace(
                queue, entries=(*queue.entries[:place], kept, *queue.entries[place + 1 :])
            )
    return replace(queue, entries=(*queue.entries, entry))


def tried(queue: Queue, entry: Queued, now: datetime, why: str) -> Queue:
    """Note a try that did not succeed."""
    return _swap(queue, entry, replace(entry, attempts=entry.attempts + 1, last_try=now, why=why))


def dequeue(queue: Queue, what: Wanted, subject: SigningKey) -> Queue:
    """Served or no longer wanted; absent is fine."""
    kept = tuple(e for e in queue.entries if (e.what, e.subject) != (what, subject))
    return replace(queue, entries=kept)


def fail(
    failures: Failures, *, code: str, subject: str, text: str, remedy: str, now: datetime
) -> Failures:
    """Note a failure; one that is there already keeps its `since`."""
    since = next((f.since for f in failures.entries if (f.code, f.subject) == (code, subject)), now)
    kept = tuple(f for f in failures.entries if (f.code, f.subject) != (code, subject))
    new = Failure(code=code, subject=subject, text=text, remedy=remedy, since=since, last=now)
    return replace(failures, entries=(*kept, new))


def mend(failures: Failures, *, code: str, subject: str) -> Failures:
    """It works again; absent is fine."""
    kept = tuple(f for f in failures.entries if (f.code, f.subject) != (code, subject))
    return replace(failures, entries=kept)


def give_reasons(queue: Queue, what: Wanted, reasons: Mapping[SigningKey, str]) -> Queue:
    """Say why each of these waits; nothing else of them changes."""
    return replace(
        queue,
        entries=tuple(
            replace(e, why=reasons[e.subject]) if e.what is what and e.subject in reasons else e
            for e in queue.entries
        ),
    )


def entry_of(queue: Queue, what: Wanted, subject: SigningKey) -> Queued | None:
    return next((e for e in queue.entries if (e.what, e.subject) == (what, subject)), None)


def _swap(queue: Queue, old: Queued, new: Queued) -> Queue:
    entries = tuple(
        new if (e.what, e.subject) == (old.what, old.subject) else e for e in queue.entries
    )
    return replace(queue, entries=entries)
