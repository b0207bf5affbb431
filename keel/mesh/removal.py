"""Who may take whom out of the mesh, and by what means: decided from what was observed (M9).

Pure. What a removal or a vote then does to the view is keel.mesh.standing's.

(R1) By right the removal counts for all at once: the subject's admitter, or mutual roots that the
     two operators made. Only the subject itself leaves; nobody removes itself.
(R2) By votes (--vote; --lost for one that does not answer): a block here at once, and for all when
     more than half voted.
(R3) Without right and without votes it is a block here and nothing else, and the plan says so.
(R4) The holder stays while it lives: nobody else can grant, renew or revoke. A lost one goes by
     votes alone, so that no single member decides it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv6Address

from keel.errors import Refused
from keel.mesh.drafts import Right
from keel.mesh.votes import Tally
from keel.mesh.window import Means
from keel.outcome import Plan, Step
from keel.types import SigningKey


class Mode(StrEnum):
    """What the operator asks for."""

    PLAIN = "plain"
    VOTE = "vote"
    LOST = "lost"
    """As a vote, for a member that is gone for good; it has to be silent."""


class Action(StrEnum):
    """The steps of a removal's Plan, in their order."""

    ARM = "arm-window"
    DROP_PEER = "drop-peer"
    CONFIRM = "confirm"
    SIGN = "sign-removal"
    BLOCK = "block-here"
    VOTE = "cast-vote"
    TELL = "tell-members"
    ETCD = "etcd-member"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalView:
    """The subject as this node sees it. `answers`: it gave a signed answer just now; `blocked`: it
    is no peer here already; `voted`: this node's vote is in the roster; `listed`: etcd lists it;
    `admitter`: what the member is called that may remove it as its admitter, when one lives."""

    me: SigningKey
    subject: SigningKey
    name: str
    address: IPv6Address
    right: Right
    is_holder: bool
    answers: bool
    blocked: bool
    voted: bool
    listed: bool
    admitter: str = ""


def decide(view: RemovalView, mode: Mode) -> Means:
    """By what means the subject goes. Refused (remove-self, remove-holder, lost-answers)."""
    if view.subject == view.me:
        raise Refused(
            "remove-self",
            "this node does not remove itself",
            "`keel mesh leave` takes it out of its mesh",
        )
    if view.is_holder and (mode is not Mode.LOST or view.answers):
        raise Refused(
            "remove-holder",
            f"{view.name} holds the etcd root, which the other members need",
            f"if it is gone for good: `keel mesh remove --lost {view.name} --confirm"
            f" {view.name}` on more than half of"
            " the members",
        )
    if mode is Mode.LOST and view.answers:
        raise Refused(
            "lost-answers",
            f"{view.name} is not lost: it answered just now",
            f"`keel mesh leave` on it; or `keel mesh remove {view.name}`",
        )
    if view.right is not Right.NONE and not view.is_holder:
        return Means.REMOVAL
    return Means.BLOCK if mode is Mode.PLAIN else Means.VOTE


def is_done(view: RemovalView, means: Means) -> bool:
    """Whether nothing is left for this node to do."""
    if means is Means.REMOVAL:
        return False
    return view.blocked and (means is Means.BLOCK or view.voted)


def plan(view: RemovalView, means: Means) -> Plan:
    """The steps from here: what the dry run shows and the real run does."""
    if is_done(view, means):
        return Plan()
    steps = []
    if not view.blocked:
        steps += [
            _step(Action.ARM, view, "undone after 120 s unless it is confirmed"),
            _step(Action.DROP_PEER, view, "this node hears and reaches it no more"),
            _step(Action.CONFIRM, view, "most members have to answer as before, or the operator"),
        ]
    return Plan(steps=(*steps, *following(view, means)))


def following(view: RemovalView, means: Means) -> tuple[Step, ...]:
    """The steps that a confirmed window leads to, or that need none."""
    steps = []
    if means is Means.REMOVAL:
        steps.append(_step(Action.SIGN, view, _RIGHTS[view.right]))
    elif means is Means.VOTE:
        steps.append(_step(Action.BLOCK, view, "a vote blocks here at once"))
        steps.append(_step(Action.VOTE, view, "it counts when more than half voted"))
    else:
        whose = f", {view.admitter} has" if view.admitter else ""
        why = f"no right to remove it for all{whose}: here alone"
        steps.append(_step(Action.BLOCK, view, why))
    if means is not Means.BLOCK:
        steps.append(_step(Action.TELL, view, "each that answers within 15 s, sync the rest"))
    if means is Means.REMOVAL and view.listed:
        steps.append(_step(Action.ETCD, view, "etcd still lists it"))
    return tuple(steps)


def count_text(tally: Tally | None) -> str:
    """`k of n`, and whether it suffices."""
    if tally is None:
        return "no vote counts yet"
    needed = tally.electorate // 2 + 1
    said = f"{tally.voters} of {tally.electorate} voted, {needed} are needed"
    return f"{said}: removed for all" if tally.counts else said


def _step(action: Action, view: RemovalView, why: str) -> Step:
    return Step(action=action.value, subject=view.name, why=why)


_RIGHTS = {
    Right.SUBJECT: "its own word",
    Right.ADMITTER: "this node admitted it",
    Right.MUTUAL_ROOTS: "the two are each other's trust roots by their operators' word",
    Right.NONE: "no right",
}
