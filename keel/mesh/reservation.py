"""Whom this member takes etcd's first root from while a cluster is formed by hand. Pure.

A reservation is for ten minutes and for one key; asked again by the same key it begins anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from keel.errors import Refused
from keel.mesh.etcdstate import Stage
from keel.types import SigningKey

RESERVED_FOR = timedelta(minutes=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """forming.json: this node takes etcd's first root from `by` alone until then."""

    by: SigningKey
    since: datetime
    until: datetime
    extra: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReserveView:
    """A member that is asked to reserve itself. `holder`: who holds the root as far as it knows;
    `authority`: it holds one itself; `held_name`: whom it is reserved for, as it shows it."""

    me: SigningKey
    capable: bool
    trusts_asker: bool
    authority: bool
    holder: SigningKey | None
    stage: Stage
    window_open: bool
    held: Reservation | None
    held_name: str = ""


def live(reservation: Reservation | None, now: datetime) -> Reservation | None:
    """The reservation while it holds; one that a clock made which ran ahead never does."""
    if reservation is None or not now < reservation.until <= now + 2 * RESERVED_FOR:
        return None
    return reservation


def reserve(view: ReserveView, by: SigningKey, now: datetime) -> Reservation:
    """The reservation of this member for `by`; Refused by: reserve-not-trusted, reserve-window,
    reserve-in-cluster, reserve-root-known, reserve-taken."""
    if view.capable and by != view.me and not view.trusts_asker:
        raise Refused(
            "reserve-not-trusted",
            "the node that forms is no trust root of this capable member",
            "`keel mesh trust add --root` on that member, naming the node that forms",
        )
    if view.window_open:
        raise Refused(
            "reserve-window",
            "a change to the network waits for its confirmation there",
            "wait until it is confirmed or undone, then form again",
        )
    if view.stage is not Stage.IDLE:
        raise Refused(
            "reserve-in-cluster", "it is in a cluster already", "look at `keel mesh etcd status`"
        )
    if (view.authority and by != view.me) or view.holder not in (None, by):
        raise Refused(
            "reserve-root-known",
            "it knows of an etcd root already",
            "`keel mesh etcd status` names the holder: form on that node",
        )
    held = live(view.held, now)
    if held is not None and held.by != by:
        raise Refused(
            "reserve-taken",
            f"it is reserved for {view.held_name}, who forms the cluster",
            "nothing: that one goes on; if it was cut off, form again in ten minutes",
        )
    return Reservation(by=by, since=now, until=now + RESERVED_FOR)
