"""`keel mesh remove`: take a member out of the mesh."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from typing import TYPE_CHECKING

from keel import codec
from keel.cli import render
from keel.cli.parser import flag
from keel.cli.verb import Report, Verb
from keel.outcome import Incomplete, exit_of
from keel.ports import Host

if TYPE_CHECKING:
    from keel.mesh.remove import Removed
    from keel.mesh.window import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove:
    member: str
    vote: bool
    lost: bool
    without_quorum: bool
    one_voter: bool
    confirm: str | None
    dry_run: bool

    def run(self, host: Host) -> Report:
        from keel.mesh import remove
        from keel.mesh.expulsion import Consent
        from keel.mesh.removal import Mode
        from keel.spec import specfile

        mode = Mode.LOST if self.lost else Mode.VOTE if self.vote else Mode.PLAIN
        consent = Consent(without_quorum=self.without_quorum, one_voter=self.one_voter)
        if self.dry_run:
            return render.plan_report(remove.plan(host, self.member, mode, consent=consent))
        outcome = remove.remove(
            host, specfile.load(host), self.member, mode, typed=self.confirm, consent=consent
        )
        if isinstance(outcome, Incomplete):
            return waiting(outcome)
        return Report(
            text="\n".join(outcome.changed) or "already so",
            document=document(outcome.value),
            notes=notes(outcome.value),
        )


def waiting(outcome: Incomplete[Window]) -> Report:
    """A window that waits for the operator's word."""
    return Report(
        document={
            "schema": "keel.window/1",
            "waiting": list(outcome.missing),
            "undone_at": codec.format_time(outcome.value.ends),
        },
        notes=(
            *(f"keel: {text}" for text in outcome.missing),
            f"keel: hint: {outcome.remedy}",
        ),
        exit=exit_of(outcome),
    )


def document(removed: Removed) -> dict[str, object]:
    """keel.remove/1."""
    return {
        "schema": "keel.remove/1",
        "member": removed.name,
        "address": removed.address.compressed,
        "means": removed.means.value,
        "mesh_wide": removed.counts,
        "votes": removed.votes or None,
        "admitter": removed.admitter or None,
        "told": list(removed.told),
        "not_told": list(removed.not_told),
        "etcd": removed.etcd or None,
        "enforced": list(removed.enforced.holds),
        "not_yet": [
            {"what": one.what, "for": one.waiting_for, "why": one.why}
            for one in removed.enforced.waiting
        ],
    }


def notes(removed: Removed) -> tuple[str, ...]:
    """What a person has to know besides: how far it goes, and what is left."""
    found = []
    if removed.votes:
        found.append(f"keel: {removed.votes}")
    if removed.told:
        found.append(f"keel: told {', '.join(removed.told)}")
    if removed.not_told:
        names = ", ".join(removed.not_told)
        found.append(f"keel: not reached, learn it before they listen to it: {names}")
    if not removed.counts:
        found.append(f"keel: {removed.name} is blocked on this node alone and stays a member")
        found.append(f"keel: hint: for all: {_for_all(removed)}")
    if removed.etcd:
        found.append(f"keel: etcd: {removed.etcd}")
    found += [f"keel: {said}" for said in removed.enforced.holds]
    found += [f"keel: not enforced yet: {one.text}" for one in removed.enforced.waiting]
    return tuple(found)


def _for_all(removed: Removed) -> str:
    votes = f"`keel mesh remove --vote {removed.name}` on more than half of the members"
    if not removed.admitter:
        return votes
    return f"`keel mesh remove {removed.name}` on {removed.admitter}, which admitted it, or {votes}"


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("member", metavar="NODE", help="a member: name, address or key")
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--vote",
        action="store_true",
        help="vote, where this node has no right to remove it for all; more than half suffice",
    )
    how.add_argument(
        "--lost",
        action="store_true",
        help="vote on one that does not answer and is gone for good, the holder too; with "
        "--confirm",
    )
    consent_arguments(
        parser,
        confirm="NODE once more; --lost, --without-quorum and --one-voter want it, so that nobody"
        " goes by a slip",
    )


def consent_arguments(parser: ArgumentParser, *, confirm: str) -> None:
    """What an operator agrees to, with a name that shows that it is meant; `confirm` says whose."""
    parser.add_argument(
        "--without-quorum",
        action="store_true",
        help="out of the mesh at once, though etcd counts it until a quorum is back; with "
        "--confirm",
    )
    parser.add_argument(
        "--one-voter",
        action="store_true",
        help="take out one of etcd's last two voters; the one that is left has no copy; with "
        "--confirm",
    )
    parser.add_argument(
        "--confirm",
        metavar="NAME",
        help=confirm,
    )


def _options(found: Namespace) -> Remove:
    return Remove(
        member=found.member,
        vote=flag(found, "vote"),
        lost=flag(found, "lost"),
        without_quorum=flag(found, "without_quorum"),
        one_voter=flag(found, "one_voter"),
        confirm=found.confirm,
        dry_run=flag(found, "dry_run"),
    )


REMOVE = Verb(
    name="remove",
    summary="take a member out of the mesh",
    description="Drops the member's peer under a network window, and once that is confirmed signs "
    "what takes it out for all: by right where this node admitted it or the two are each other's "
    "trust roots, by votes with --vote or --lost. Without either it is a block on this node alone. "
    "Then etcd takes it out of its list and the holder revokes its certificates; what is not "
    "enforced yet is said.",
    example="keel mesh remove web-3",
    add_arguments=_arguments,
    options=_options,
    changes=True,
)
