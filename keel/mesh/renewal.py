"""When a certificate is renewed, and what is said when it can't be (E4, E14).

Pure. Rules:
(W1) A certificate is due once a third of its life or less is left, and not before a delay of its
     member's own, so that members that were granted together do not renew together.
(W2) What could not end later than it does already is not due: its issuer ends then, too.
(W3) A leaf under another intermediate than the newest is due at once.
(W4) What is due for a day and not renewed is a failure: told, and kept until it is gone.
(W5) An intermediate is renewed under a new key; a key that waits for its grant is asked for again.
(W6) A grant is superseded once the newer one was seen in use, never before.
(W7) One that is not valid yet, made by a clock that ran ahead, is due at once; not while its issuer
     is not valid either, for then it is this clock that is behind.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from ipaddress import IPv6Address

from cryptography import x509

from keel.mesh import etcdchain
from keel.mesh.etcdcert import Serial
from keel.mesh.etcdgrants import Event, GrantLine, Ledger, revoked_serials
from keel.outcome import Plan, Step

SPREAD_SHARE = 24
"""A delay is at most this part of a life: 30 h of a leaf's 30 days, 15 days of a year."""
LATE = timedelta(days=1)
"""A holder that restarts, or a night's cut, is nobody's alarm: at least 7 days of a leaf's life, or
105 of an intermediate's, are left then."""


class Action(StrEnum):
    """The steps of a renewal; each is idempotent."""

    RENEW_INTERMEDIATE = "renew-intermediate"
    ISSUE_LEAF = "issue-leaf"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainView:
    """A member's own chain. `root`: the one that issued the intermediate, None when this node
    does not trust it any more; `asked`: a newer key waits for its grant; `superseded`: the CRL says
    that a newer grant replaced the intermediate, so this one is of an older copy of the disk;
    `leaves`: the newest whole pair and the intermediate that issued it."""

    address: IPv6Address
    root: x509.Certificate | None
    intermediate: x509.Certificate
    asked: bool
    leaves: tuple[x509.Certificate, ...]
    leaf_issuer: x509.Certificate | None
    superseded: bool = False


def due_at(
    certificate: x509.Certificate, issuer: x509.Certificate | None, *, address: IPv6Address
) -> datetime | None:
    """When a certificate of this member is due (W1); None when it never is (W2)."""
    ends, begins = certificate.not_valid_after_utc, certificate.not_valid_before_utc
    if issuer is not None and ends >= issuer.not_valid_after_utc:
        return None
    life = ends - begins
    return ends - life / 3 + life / SPREAD_SHARE * _share(address, begins)


def is_due(
    certificate: x509.Certificate,
    issuer: x509.Certificate | None,
    *,
    address: IPv6Address,
    now: datetime,
) -> bool:
    if certificate.not_valid_before_utc > now:
        return issuer is not None and issuer.not_valid_before_utc <= now  # W7
    due = due_at(certificate, issuer, address=address)
    return due is not None and due <= now


def is_late(
    certificate: x509.Certificate,
    issuer: x509.Certificate | None,
    *,
    address: IPv6Address,
    now: datetime,
) -> bool:
    """Due for so long that somebody has to be told (W4)."""
    due = due_at(certificate, issuer, address=address)
    return due is not None and due + LATE <= now


def decide(view: ChainView, now: datetime) -> Plan:
    """What is due now, the intermediate first: leaves that follow are then under the new one."""
    if view.superseded:  # nobody accepts a leaf of it; the leaves come with the next one
        return Plan(steps=(_step(Action.RENEW_INTERMEDIATE, "a newer grant replaced it"),))
    steps = []
    if view.asked or is_due(view.intermediate, view.root, address=view.address, now=now):
        why = "a third of its life is left" if not view.asked else "its new key waits for a grant"
        steps.append(_step(Action.RENEW_INTERMEDIATE, why))
    if view.leaf_issuer != view.intermediate:
        steps.append(_step(Action.ISSUE_LEAF, "the leaves are not of the newest intermediate"))
    elif any(
        is_due(leaf, view.intermediate, address=view.address, now=now) for leaf in view.leaves
    ):
        steps.append(_step(Action.ISSUE_LEAF, "a third of their life is left"))
    return Plan(steps=tuple(steps))


def superseded(
    ledger: Ledger, now: datetime
) -> tuple[tuple[GrantLine, tuple[GrantLine, ...]], ...]:
    """Of each pair with several grants that still count: the newest, and those that it replaces
    once it was seen in use (W6)."""
    revoked = {entry.serial for entry in revoked_serials(ledger)}
    standing: dict[tuple[IPv6Address, str], list[GrantLine]] = {}
    for line in ledger.lines:
        counts = line.event is Event.GRANTED and line.serial not in revoked
        if counts and line.not_after is not None and line.not_after > now:
            standing.setdefault((line.address, line.ed25519), []).append(line)
    return tuple((lines[-1], tuple(lines[:-1])) for lines in standing.values() if lines[1:])


def next_due(view: ChainView) -> datetime | None:
    """The next moment at which something of the chain is due."""
    found = [due_at(view.intermediate, view.root, address=view.address)]
    found += [due_at(leaf, view.intermediate, address=view.address) for leaf in view.leaves]
    return min((due for due in found if due is not None), default=None)


def in_use(leaves: Iterable[x509.Certificate], intermediate: x509.Certificate) -> bool:
    """Whether each of these leaves, as a handshake showed them, is of that intermediate."""
    found = tuple(leaves)
    return bool(found) and all(etcdchain.issued(leaf, intermediate) for leaf in found)


def serials(lines: Iterable[GrantLine]) -> tuple[Serial, ...]:
    return tuple(line.serial for line in lines if line.serial is not None)


def _share(address: IPv6Address, begins: datetime) -> float:
    """From 0 up to 1: another for each member, and another in each of its terms."""
    seed = hashlib.sha256(address.packed + str(int(begins.timestamp())).encode()).digest()
    return int.from_bytes(seed[:4], "big") / 2**32


def _step(action: Action, why: str) -> Step:
    return Step(action=action.value, subject=_SUBJECTS[action], why=why)


_SUBJECTS = {
    Action.RENEW_INTERMEDIATE: "/var/lib/keel/etcd/intermediate",
    Action.ISSUE_LEAF: "/var/lib/keel/etcd/leaf",
}
