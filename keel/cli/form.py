"""`keel mesh etcd form`: the cluster by hand."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from typing import TYPE_CHECKING

from keel.cli import render
from keel.cli.parser import flag
from keel.cli.verb import Report, Verb
from keel.errors import Exit, UsageError
from keel.outcome import Done, Plan
from keel.ports import Host

if TYPE_CHECKING:
    from keel.mesh.etcdform import Preview


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceLearner:
    name: str
    dry_run: bool

    def run(self, host: Host) -> Report:
        from keel.mesh import etcdgrow, store

        node = store.require(host)
        found = etcdgrow.replace_learner(host, node, self.name, dry_run=self.dry_run)
        if isinstance(found, Plan):
            return render.plan_report(found)
        return Report(text=found, document={"schema": "keel.form/1", "changed": [found]})


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    without: tuple[str, ...]
    dry_run: bool

    def run(self, host: Host) -> Report:
        from keel.mesh import etcdform
        from keel.spec import specfile

        if self.dry_run:
            return _preview(etcdform.preview(host, specfile.load(host), without=self.without))
        outcome = etcdform.form(
            host, lambda: specfile.load(host), specfile.enable_etcd, without=self.without
        )
        done = isinstance(outcome, Done)
        changed = outcome.changed if isinstance(outcome, Done) else ()
        missing = () if isinstance(outcome, Done) else outcome.missing
        left = render.plan_document(outcome.value)
        notes = [f"keel: {text}" for text in missing]
        notes += [f"keel: {w.text}" for w in outcome.value.waiting]
        notes.append(
            "keel: hint: `keel mesh etcd status` shows the cluster"
            if isinstance(outcome, Done)
            else f"keel: hint: {outcome.remedy}"
        )
        return Report(
            text="\n".join(changed) or ("already so" if done else "not done yet"),
            document={
                "schema": "keel.form/1",
                "changed": list(changed),
                "missing": list(missing),
                "waiting": left["waiting"],
            },
            notes=tuple(notes),
            exit=Exit.DONE if done else Exit.INCOMPLETE,
        )


def _preview(found: Preview) -> Report:
    """The Plan or the refusal, then go or no-go for every number."""
    from keel.mesh import fitness

    bad = fitness.against(found.checks)
    rows = [(one.what, one.where, one.value, one.verdict.value) for one in found.checks]
    parts = [] if found.plan is None else [render.plan_text(found.plan), ""]
    parts.append(render.table(("CHECK", "WHERE", "VALUE", "VERDICT"), rows))
    parts += [f"{one.what} {one.where}: {one.remedy}" for one in bad]
    plan = render.plan_document(found.plan or Plan())
    return Report(
        text="\n".join(parts),
        document={
            "schema": "keel.form/1",
            "steps": plan["steps"],
            "waiting": plan["waiting"],
            "checks": [
                {
                    "what": one.what,
                    "where": one.where,
                    "value": one.value,
                    "verdict": one.verdict.value,
                    "remedy": one.remedy or None,
                }
                for one in found.checks
            ],
            "go": not bad and found.refusal is None,
            "refused": None if found.refusal is None else render.error_document(found.refusal),
        },
        notes=() if found.refusal is None else (render.error_text(found.refusal),),
        exit=Exit.DONE if found.refusal is None else found.refusal.exit,
    )


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--without",
        metavar="NAME",
        action="append",
        default=[],
        help="form although this member is silent; it joins the cluster later. May be repeated",
    )
    parser.add_argument(
        "--replace-learner",
        metavar="NAME",
        help="take this silent learner out of the cluster for the next in line, and nothing else",
    )


def _options(found: Namespace) -> Form | ReplaceLearner:
    if found.replace_learner is not None:
        if found.without:
            raise UsageError("--replace-learner takes no --without", command="keel mesh etcd form")
        return ReplaceLearner(name=found.replace_learner, dry_run=flag(found, "dry_run"))
    return Form(without=tuple(found.without), dry_run=flag(found, "dry_run"))


FORM = Verb(
    name="form",
    summary="form the cluster by hand, or bring ready members into it",
    description="On a mesh without a cluster: asks every member, makes etcd's root if there is "
    "none, enrols every capable member, and lets three of them give birth. On a formed cluster the "
    "ready members that are not in it get in line as learners. Refuses, with nothing changed, "
    "whenever a member could lose by it. Run again it goes on where it stopped.",
    example="keel mesh etcd form --dry-run",
    add_arguments=_arguments,
    options=_options,
    changes=True,
)
