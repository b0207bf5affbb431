"""Forming the cluster by hand: who has to agree first, who is ready, and the Plan (E13).

Pure: the flow (keel.mesh.etcdform) asks every member, hands the answers in, executes the leading
steps of one action, and asks again. The dry run shows the same Plan.

Rules:
(P1) Every reason to refuse is found before anything is changed, and names whoever it is about.
(P2) Without an etcd root, or with one that no other member knows of yet, every capable member, and
     every silent one that never said whether it is capable, reserves itself for this node first, in
     order of address: of two that form at once one is refused at the first member they share.
(P3) A root is made after every reservation and before any enrolment; no record before the last
     enrolment.
(P4) A birth has three members: the holder and the two first granted, in order of address among
     those granted at once. The others wait in line for a place as learner.
(P5) A root that no other member trusts yields to another that somebody does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from ipaddress import IPv6Address

from keel.errors import Refused
from keel.mesh.birth import BIRTH_SIZE
from keel.mesh.etcdcert import Serial
from keel.mesh.etcdmsg import ProbeAnswer
from keel.mesh.etcdstate import Stage
from keel.mesh.reservation import Reservation
from keel.outcome import Plan, Step, Waiting
from keel.types import Capability, Fingerprint, FormationId, SigningKey

AGAIN = "then run this again"
UNDER_WAY = Waiting(
    what="the birth of the cluster",
    waiting_for="its members",
    why="they were told to start; `keel mesh etcd status` shows them",
)


class Action(StrEnum):
    """The steps of a form, in their order; each is idempotent."""

    RESERVE = "reserve"
    MAKE_ROOT = "make-root"
    GRANT_SELF = "grant-self"
    ENROL = "enrol"
    GIVE_BIRTH = "give-birth"
    QUEUE_LEARNER = "queue-learner"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Another live member. `capable`: by its newest record; `said`: it made one. `answer`: its word
    in this pass, or None and `why`. `granted`: every serial that this node's ledger has for it, and
    since when without a revocation."""

    name: str
    key: SigningKey
    address: IPv6Address
    capable: bool
    said: bool = True
    answer: ProbeAnswer | None = None
    why: str = "no answer"
    granted: frozenset[Serial] = frozenset()
    granted_since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FormView:
    """What the node that forms knows. `root`: the one that it holds, whole and told to the roster;
    `established`: another member trusts it, or it was not made by a form; `pinned`: the one that it
    trusts. `formations`: those of its book; `begun`: one of them stands. `listed`, `queued`: who is
    in etcd's list already, or waits for it. `reserved`: who reserved itself in this run. `held`:
    this node's own reservation."""

    name: str
    key: SigningKey
    address: IPv6Address
    capable: bool
    window_open: bool
    holder: SigningKey | None
    holder_name: str
    root: Fingerprint | None
    pinned: Fingerprint | None
    established: bool
    granted: bool
    formations: frozenset[FormationId]
    begun: bool
    formed: bool
    peers: tuple[Peer, ...]
    listed: frozenset[IPv6Address] = frozenset()
    queued: frozenset[SigningKey] = frozenset()
    without: frozenset[SigningKey] = frozenset()
    reserved: frozenset[SigningKey] = frozenset()
    held: Reservation | None = None
    held_name: str = ""


def decide(view: FormView) -> Plan:
    """The ordered steps to a cluster, and who waits in line; Refused by: form-not-capable,
    form-window, form-not-the-holder, form-without-self, form-without-answers, form-silent,
    form-other-cluster, form-lost, form-other-root, form-other-identity, form-not-trusted,
    form-reserved, form-too-few."""
    _check_here(view)
    peers = _taking_part(view)
    if view.formed:
        return _learners(view, peers)
    _check_lost(view, peers)
    _check_peers(view, peers)
    ready = [one for one in peers if _is_capable(one)]
    if 1 + len(ready) < BIRTH_SIZE:
        raise _too_few(view, ready)
    steps = [*_reservations(view, ready), *_root(view)]
    steps += [
        _step(Action.ENROL, one.name, "it has no certificate of this root yet")
        for one in sorted(ready, key=lambda one: one.name)
        if not _enrolled(view, one)
    ]
    if view.begun:
        return Plan(steps=tuple(steps), waiting=(UNDER_WAY,))
    born, later = _chosen(ready)
    names = ", ".join((view.name, *sorted(one.name for one in born)))
    steps.append(_step(Action.GIVE_BIRTH, names, "there is no cluster and three are ready"))
    return Plan(steps=tuple(steps), waiting=tuple(_in_line(one) for one in later))


def leading(plan: Plan) -> tuple[Step, ...]:
    """The first steps of one action: they are done together, then the members are asked again."""
    first = plan.steps[0].action if plan.steps else None
    found = []
    for step in plan.steps:
        if step.action != first:
            break
        found.append(step)
    return tuple(found)


def _check_here(view: FormView) -> None:
    if not view.capable:
        raise Refused(
            "form-not-capable",
            "this node cannot run etcd",
            "set `installation: {mode: cloud_advanced}`, install keel-overlay-etcd,"
            " `keel spec apply`; or form on a node that can",
        )
    if view.window_open:
        raise _window("this node")
    if view.key in view.without:
        raise Refused("form-without-self", "a cluster is not formed without its holder", AGAIN)
    if view.holder not in (None, view.key):
        raise Refused(
            "form-not-the-holder",
            f"{view.holder_name} holds the etcd root",
            f"run `keel mesh etcd form` on {view.holder_name}",
        )


def _taking_part(view: FormView) -> tuple[Peer, ...]:
    """Every member that answered; Refused when one that counts is silent and was not left out, or
    when one that was left out does answer: its word may be the reason not to form."""
    answering = [one.name for one in view.peers if one.answer and one.key in view.without]
    if answering:
        raise Refused(
            "form-without-answers",
            f"{_list(answering)} was to be left out, and answers",
            "run it again without `--without` for a member that answers",
        )
    kept_silent = silent(view)
    if kept_silent and not view.formed:
        raise Refused(
            "form-silent",
            "; ".join(f"{one.name}: {one.why}" for one in kept_silent),
            "bring it back, or form without it: "
            + " ".join(f"--without {one.name}" for one in kept_silent),
        )
    return tuple(one for one in view.peers if one.answer is not None)


def silent(view: FormView) -> tuple[Peer, ...]:
    """Who may be capable, kept silent, and is not left out by name."""
    return tuple(
        one
        for one in view.peers
        if one.answer is None and (one.capable or not one.said) and one.key not in view.without
    )


def _check_peers(view: FormView, peers: tuple[Peer, ...]) -> None:
    answers = [(one, one.answer) for one in peers if one.answer is not None]
    _refuse_all(
        [one.name for one, said in answers if said.window_open and _is_capable(one)], _window
    )
    _refuse_all(
        [
            one.name
            for one, said in answers
            if said.stage is not Stage.IDLE and said.formation not in view.formations
        ],
        lambda names: Refused(
            "form-other-cluster",
            f"{names} is in a cluster that this node does not know",
            "look at `keel mesh etcd status` there; `keel mesh leave` frees it",
        ),
    )
    _check_roots(view, answers)
    _refuse_all(
        [
            f"{one.name}: `keel mesh trust add --root {view.name}`"
            for one, said in answers
            if _is_capable(one)
            and not said.trusts_you
            and not (view.formed and _enrolled(view, one))
        ],
        lambda commands: Refused(
            "form-not-trusted",
            "this node is not a trust root of every other capable member",
            f"on each of these, {AGAIN}: {commands}",
        ),
        joint="; ",
    )
    if view.held is not None and view.held.by != view.key:
        raise Refused(
            "form-reserved",
            f"this node is reserved for {view.held_name}, who forms the cluster",
            "nothing: that one goes on; if it was cut off, form again in ten minutes",
        )


def _check_lost(view: FormView, peers: tuple[Peer, ...]) -> None:
    """Before all else: a cluster that grew from the other root looks strange, too (P5)."""
    if view.root is None or view.established:
        return
    others = [one.name for one in peers if one.answer and one.answer.root not in (None, view.root)]
    if others:
        raise lost(f"{_list(others)} trusts another etcd root")


def _check_roots(view: FormView, answers: list[tuple[Peer, ProbeAnswer]]) -> None:
    """One root, and under it only what this node's ledger knows."""
    others = [one.name for one, said in answers if said.root not in (None, view.root)]
    if view.root is None and view.pinned is not None:
        others.append("this node")
    _refuse_all(
        others,
        lambda names: Refused(
            "form-other-root",
            f"{names} trusts another etcd root than this node holds",
            "`keel mesh etcd status` there names the holder; form on that node",
        ),
    )
    _refuse_all(
        [
            one.name
            for one, said in answers
            if said.intermediate is not None
            and said.root == view.root
            and said.intermediate not in one.granted
        ],
        lambda names: Refused(
            "form-other-identity",
            f"{names} has a certificate that this node never granted to it",
            "see whether its disk is another node's copy; `keel mesh leave` there, and join anew",
        ),
    )


def lost(why: str) -> Refused:
    """Of two that formed at once the other won (P5)."""
    return Refused(
        "form-lost",
        f"another node has formed first: {why}",
        "nothing: what this node had begun is moved aside; `keel mesh etcd tend` asks the holder",
    )


def _window(names: str) -> Refused:
    return Refused(
        "form-window",
        f"{names}: a change to the network waits for its confirmation",
        f"wait until it is confirmed or undone, {AGAIN}",
    )


def _too_few(view: FormView, ready: list[Peer]) -> Refused:
    names = (view.name, *(one.name for one in ready))
    cannot = [one.name for one in view.peers if one.key not in {r.key for r in ready}]
    missing = f"; not ready: {_list(cannot)}" if cannot else ""
    return Refused(
        "form-too-few",
        f"{len(names)} of {BIRTH_SIZE} members are ready: {_list(names)}{missing}",
        "make another member capable (cloud_advanced and keel-overlay-etcd), or invite one",
    )


def _reservations(view: FormView, ready: list[Peer]) -> list[Step]:
    """In order of address, this node's own among them (P2)."""
    if view.established:
        return []
    wanted = [(view.address, view.name, view.key), *((o.address, o.name, o.key) for o in ready)]
    return [
        _step(Action.RESERVE, name, "nobody else may form meanwhile")
        for _, name, key in sorted(wanted)
        if key not in view.reserved
    ]


def _root(view: FormView) -> list[Step]:
    steps = []
    if view.root is None:
        steps.append(_step(Action.MAKE_ROOT, "etcd root g1", "this mesh has none"))
    if not view.granted:
        steps.append(_step(Action.GRANT_SELF, view.name, "the holder carries the cluster as well"))
    return steps


def _chosen(ready: Iterable[Peer]) -> tuple[list[Peer], list[Peer]]:
    """Who gives birth beside the holder, and who comes later (P4)."""
    first = sorted(
        ready,
        key=lambda one: (
            one.granted_since is None,
            one.granted_since.timestamp() if one.granted_since else 0.0,
            one.address,
        ),
    )
    return first[: BIRTH_SIZE - 1], first[BIRTH_SIZE - 1 :]


def _learners(view: FormView, peers: tuple[Peer, ...]) -> Plan:
    """On a formed cluster: those who are ready and not in it get in line, one after the other."""
    _check_peers(view, peers)
    missing = [
        one
        for one in sorted(peers, key=lambda one: one.name)
        if _is_capable(one) and one.address not in view.listed
    ]
    steps = [
        _step(Action.ENROL, one.name, "it has no certificate of this root yet")
        for one in missing
        if not _enrolled(view, one)
    ]
    steps += [
        _step(Action.QUEUE_LEARNER, one.name, "it is ready and not in the cluster")
        for one in missing
        if one.key not in view.queued
    ]
    return Plan(
        steps=tuple(steps),
        waiting=tuple(_in_line(one) for one in missing if one.key in view.queued),
    )


def _enrolled(view: FormView, peer: Peer) -> bool:
    said = peer.answer
    return (
        said is not None
        and view.root is not None
        and said.root == view.root
        and said.intermediate in peer.granted
        and peer.granted_since is not None
    )


def _is_capable(peer: Peer) -> bool:
    return peer.answer is not None and peer.answer.capability is Capability.ETCD


def _in_line(peer: Peer) -> Waiting:
    return Waiting(
        what=f"the place of {peer.name}",
        waiting_for="the cluster",
        why="a birth has three members; the others come as learners, one after the other",
    )


def _refuse_all(names: list[str], refusal: Callable[[str], Refused], *, joint: str = ", ") -> None:
    if names:
        raise refusal(joint.join(names))


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)


def _step(action: Action, subject: str, why: str) -> Step:
    return Step(action=action.value, subject=subject, why=why)
