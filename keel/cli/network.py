"""`keel network confirm|undo`: the operator's word on a change that waits."""

from __future__ import annotations

from dataclasses import dataclass

from keel.cli import render
from keel.cli.parser import flag
from keel.cli.verb import Group, Report, Verb, no_arguments
from keel.ports import Host


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirm:
    dry_run: bool

    def run(self, host: Host) -> Report:
        from keel.cli.remove import notes
        from keel.mesh import network
        from keel.spec import specfile

        if self.dry_run:
            return render.plan_report(network.plan_confirm(host))
        done = network.confirm(host, specfile.held(host))
        return Report(
            text="\n".join(done.changed) or "already so",
            document={"schema": "keel.network/1", "changed": list(done.changed)},
            notes=() if done.value is None else notes(done.value),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    dry_run: bool

    def run(self, host: Host) -> Report:
        from keel.mesh import netwindow, network
        from keel.spec import specfile

        if self.dry_run:
            return render.plan_report(netwindow.plan_undo(host))
        done = network.undo(host, specfile.held(host))
        return Report(
            text="\n".join(done.changed) or "no change to the network waits",
            document={"schema": "keel.network/1", "changed": list(done.changed)},
        )


NETWORK = Group(
    name="network",
    summary="confirm or undo a change to the network",
    description="A change to the network (a peer removed; port, MTU or endpoints) is undone by "
    "itself after 120 s unless most members answer as before, or it is confirmed here.",
    children=(
        Verb(
            name="confirm",
            summary="keep the change that waits, and do what follows from it",
            description="Confirms the change that waits and goes on with it. Type it in a session "
            "that was opened after the change: then you know that you can still get in.",
            example="keel network confirm",
            add_arguments=no_arguments,
            options=lambda found: Confirm(dry_run=flag(found, "dry_run")),
            changes=True,
        ),
        Verb(
            name="undo",
            summary="take the change that waits back at once",
            description="Puts the network back as it was before the change that waits. A timer "
            "does it by itself after 120 s, and the next boot before it raises any peer.",
            example="keel network undo",
            add_arguments=no_arguments,
            options=lambda found: Undo(dry_run=flag(found, "dry_run")),
            changes=True,
        ),
    ),
)
