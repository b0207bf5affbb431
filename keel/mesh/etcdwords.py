"""What etcd's error answers mean: gRPC codes, and causes told apart by etcd's own words; and the
alarms among a status's errors.

A table, because several causes share a code and the words are etcd's public constants
(api/v3rpc/rpctypes/error.go); what is not in it is OTHER and keeps its text in EtcdError.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import IntEnum, StrEnum

from keel.errors import EtcdError


class GrpcCode(IntEnum):
    """Those of gRPC's codes that are met here."""

    UNKNOWN = 2
    INVALID = 3
    DEADLINE = 4
    NOT_FOUND = 5
    EXHAUSTED = 8
    PRECONDITION = 9
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


class Cause(StrEnum):
    """Why etcd did not do it, as far as a flow has to know."""

    NO_ANSWER = "no-answer"
    """Nobody listens, TLS was refused, or time ran out: it may or may not have been done."""
    NO_LEADER = "no-leader"
    UNHEALTHY = "unhealthy"
    """A voter is not connected; etcd 3.5.16 then refuses every MemberAdd."""
    TOO_MANY_LEARNERS = "too-many-learners"
    NOT_IN_SYNC = "not-in-sync"
    NOT_A_LEARNER = "not-a-learner"
    """Promoted already, or never one: the list tells which."""
    ALREADY_THERE = "already-there"
    GONE = "gone"
    FULL = "full"
    LEARNER_CANNOT = "learner-cannot"
    """Asked of a learner, which serves no such thing."""
    BARRED = "barred"
    """Somebody enabled etcd's users: it answers a certificate that names no user in this way."""
    OTHER = "other"


class Alarm(StrEnum):
    """What a member has raised for all to see; each member's status lists the alarms of all."""

    FULL = "NOSPACE"
    """Its database reached the quota: nobody takes a write that adds anything."""
    CORRUPT = "CORRUPT"
    """Its data is not the others'. Nobody writes while it stands, also once the member is gone."""


def alarm_in(error: str) -> tuple[int, Alarm] | None:
    """The member's ID and its alarm, when this one of a status's errors is one."""
    found = _ALARM.fullmatch(error.strip())
    return (int(found[1]), Alarm(found[2])) if found else None


def corrupt_members(errors: Iterable[str]) -> frozenset[int]:
    """Whose data etcd calls corrupt, by the errors of a status."""
    alarms = [found for one in errors if (found := alarm_in(one)) is not None]
    return frozenset(member for member, alarm in alarms if alarm is Alarm.CORRUPT)


_ALARM = re.compile(r"memberID:(\d+) alarm:(NOSPACE|CORRUPT)")


def cause_of(error: EtcdError) -> Cause:
    """The cause; a change whose cause is NO_ANSWER may still commit: list before trying again."""
    for code, words, cause in _TABLE:
        if error.grpc_code == code and words in error.message:
            return cause
    return Cause.OTHER


_TABLE = (
    (GrpcCode.UNAVAILABLE, "no leader", Cause.NO_LEADER),
    (GrpcCode.UNAVAILABLE, "unhealthy cluster", Cause.UNHEALTHY),
    (GrpcCode.UNAVAILABLE, "rpc not supported for learner", Cause.LEARNER_CANNOT),
    (GrpcCode.UNAVAILABLE, "", Cause.NO_ANSWER),
    (GrpcCode.DEADLINE, "", Cause.NO_ANSWER),
    (GrpcCode.PRECONDITION, "too many learner members", Cause.TOO_MANY_LEARNERS),
    (GrpcCode.PRECONDITION, "in sync with leader", Cause.NOT_IN_SYNC),
    (GrpcCode.PRECONDITION, "can only promote a learner member", Cause.NOT_A_LEARNER),
    (GrpcCode.PRECONDITION, "Peer URLs already exists", Cause.ALREADY_THERE),
    (GrpcCode.PRECONDITION, "member ID already exist", Cause.ALREADY_THERE),
    (GrpcCode.PRECONDITION, "not enough started members", Cause.UNHEALTHY),
    (GrpcCode.NOT_FOUND, "member not found", Cause.GONE),
    (GrpcCode.UNKNOWN, "CommonName of client sending a request", Cause.BARRED),
    (GrpcCode.EXHAUSTED, "database space exceeded", Cause.FULL),
)
