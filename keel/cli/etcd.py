"""`keel mesh etcd status|env|tend|recover`: the registry."""

from __future__ import annotations

import shlex
from argparse import ArgumentParser
from dataclasses import dataclass

from keel.cli import render, status
from keel.cli.form import FORM
from keel.cli.parser import flag
from keel.cli.verb import Group, Report, Verb, no_arguments
from keel.errors import Exit
from keel.ports import Host


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    def run(self, host: Host) -> Report:
        found = status.look(host)
        about = {key: found[key] for key in ("schema", "etcd", "warnings")}
        etcd: dict[str, object] = found["etcd"]  # type: ignore[assignment]  # see mesh.report
        return Report(text=status.etcd_text(etcd), document=about)


@dataclass(frozen=True, slots=True, kw_only=True)
class Env:
    def run(self, host: Host) -> Report:
        from keel.mesh import etcdenv, etcdstore
        from keel.mesh.etcdstate import Stage

        found = etcdenv.environment(host)
        text = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in found.items())
        runs = etcdstore.load_cluster(host).stage is not Stage.IDLE
        return Report(
            text=text,
            document={"schema": "keel.env/1", "env": dict(found)},
            notes=() if runs else _NO_ETCD,
        )


_NO_ETCD = (
    "keel: no etcd of keel's runs on this node yet",
    "keel: hint: `keel mesh etcd status` says what is missing",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tend:
    def run(self, host: Host) -> Report:
        from keel.mesh import etcdtend
        from keel.mesh.duty import Result
        from keel.spec import specfile

        duties = etcdtend.tend(host, lambda: specfile.load(host), specfile.enable_etcd)
        failed = any(duty.result is Result.FAILED for duty in duties)
        return Report(
            text="\n".join(f"{duty.name}: {duty.result}: {duty.text}" for duty in duties),
            document={
                "schema": "keel.tend/1",
                "duties": [
                    {"name": duty.name, "result": duty.result.value, "text": duty.text}
                    for duty in duties
                ],
            },
            exit=Exit.INCOMPLETE if failed else Exit.DONE,
        )


OTHERS_PASS_SECONDS = 60.0
"""How long a command waits for a pass of the timer's that is at work, to make its own after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recover:
    dry_run: bool

    def run(self, host: Host) -> Report:
        from keel.mesh import etcdrecover, store
        from keel.outcome import Waiting, exit_of
        from keel.spec import specfile

        node, spec = store.require(host), specfile.load(host)
        if self.dry_run:
            return render.plan_report(etcdrecover.preview(host, spec, node))
        found = etcdrecover.recover(host, spec, node)
        if isinstance(found, Waiting):
            said = f"{found.text}; the timer goes on"
        else:
            said = "\n".join((found.value, *_passed(host)))
        document = {"schema": "keel.recover/1", "text": said}
        return Report(text=said, document=document, exit=exit_of(found))


def _passed(host: Host) -> tuple[str, ...]:
    """A pass of the tend, and what waits after it; what the command was for is done already."""
    from keel.errors import LockHeld
    from keel.mesh import etcdtend
    from keel.spec import specfile

    try:
        duties = etcdtend.tend(
            host,
            lambda: specfile.load(host),
            specfile.enable_etcd,
            wait_seconds=OTHERS_PASS_SECONDS,
        )
    except LockHeld:
        return (etcdtend.BESIDE_ANOTHER,)
    return tuple(f"{duty.name}: {duty.text}" for duty in duties if duty.waiting)


def _recover_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--replace",
        action="store_true",
        required=True,
        help="give up this member's data and its place; take a new one from the holder",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    test: bool
    dry_run: bool

    def run(self, host: Host) -> Report:
        from keel.mesh import alerting
        from keel.outcome import Incomplete
        from keel.spec import specfile

        if self.dry_run:
            plan = alerting.plan(host, specfile.load(host), is_trial=self.test)
            return render.plan_report(plan)
        tell = alerting.trial if self.test else alerting.deliver
        came_of = tell(host, specfile.load(host))
        missing = came_of.missing if isinstance(came_of, Incomplete) else ()
        nobody = self.test and not came_of.value
        return Report(
            text="\n".join(f"told {name}" for name in came_of.value) or "nobody was told anything",
            document={
                "schema": "keel.told/1",
                "told": list(came_of.value),
                "missing": list(missing),
            },
            notes=tuple(f"keel: {one}" for one in missing) or (_NO_CHANNEL if nobody else ()),
            exit=Exit.INCOMPLETE if missing else Exit.DONE,
        )


_NO_CHANNEL = (
    "keel: hint: monitor.channels in the spec is empty; the journal is told all the same:"
    " `journalctl -u 'keel-*' -g '^alert:'`",
)


def _alert_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--test", action="store_true", help="send a trial to each channel, whatever is open"
    )


ETCD = Group(
    name="etcd",
    summary="the registry that lives on the mesh",
    description="An etcd cluster over the overlay, born when the third capable node joins.",
    children=(
        Verb(
            name="status",
            summary="what is true of the registry now",
            description="Phase, members with role and health, leader, quorum and fault tolerance, "
            "certificates with their ends, what waits and why, what failed.",
            example="keel mesh etcd status --json",
            add_arguments=no_arguments,
            options=lambda _: Status(),
            reads=True,
        ),
        Verb(
            name="env",
            summary="print what etcdctl needs on this node",
            description="Prints shell exports for etcdctl: endpoint, certificate, key and trusted "
            'root. The files are root\'s alone. As in: eval "$(keel mesh etcd env)"; etcdctl get k',
            example="keel mesh etcd env",
            add_arguments=no_arguments,
            options=lambda _: Env(),
            reads=True,
        ),
        Verb(
            name="tend",
            summary="do now what the timer does every five minutes",
            description="One pass over every duty, with a sentence about each: credentials, birth, "
            "renewal, revocation list, members to bring in or take out, alerts. Exit status 4 when "
            "one failed. Safe to cut off; never two at once.",
            example="keel mesh etcd tend",
            add_arguments=no_arguments,
            options=lambda _: Tend(),
            reads=True,
        ),
        Verb(
            name="alert",
            summary="tell the monitor's channels what they are due",
            description="Each channel of the spec is told of a warning once, reminded daily, and "
            "told when it is over. The tend starts this by itself (keel-mesh-alert.service).",
            example="keel mesh etcd alert --test",
            add_arguments=_alert_arguments,
            options=lambda found: Alert(test=flag(found, "test"), dry_run=flag(found, "dry_run")),
            changes=True,
        ),
        FORM,
        Verb(
            name="recover",
            summary="give a member whose data is lost a new place in the cluster",
            description="Asks the holder to take this member's old ID out and to add it again as a "
            "learner, moves what is left of its data aside, and starts etcd anew. Refused while "
            "the others are no quorum without it. Run it again after any interruption.",
            example="keel mesh etcd recover --replace --dry-run",
            add_arguments=_recover_arguments,
            options=lambda found: Recover(dry_run=flag(found, "dry_run")),
            changes=True,
        ),
    ),
)
