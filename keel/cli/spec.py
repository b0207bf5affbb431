"""`keel spec show|check|apply` and `keel diff`."""

from __future__ import annotations

import errno
from argparse import ArgumentParser
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from keel.cli import render
from keel.cli.parser import flag
from keel.cli.verb import Group, Report, Verb, no_arguments
from keel.errors import DiskTrouble, Exit, NotRoot
from keel.ports import Host

if TYPE_CHECKING:
    from keel.spec.diff import Difference
    from keel.spec.model import Spec


FIXED = {
    "installation.mode": "a member of the cluster stays {now}: set it back, or nothing renews its"
    " certificates; `keel mesh leave` takes it out",
    "network.wireguard.interface": "a member keeps its interface: set it back to {now}, or leave"
    " and join again",
    "node.name": "a member keeps its name {now} until it leaves and joins again",
    "overlays.etcd": "a member of the cluster stays one: set it back to {now}; `keel mesh leave`"
    " takes it out",
}
"""What is said of a difference that apply leaves alone."""


def _readable(host: Host, read: Callable[[], Spec]) -> Spec:
    """The spec, by whoever may read the file; what this node is (keel.spec.specfile) only root may
    hold it against."""
    try:
        return read()
    except DiskTrouble as error:
        if error.error_number == errno.EACCES and not host.machine.is_root():
            raise NotRoot from error
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class Show:
    def run(self, host: Host) -> Report:
        from keel.spec import parse, specfile

        own = None if host.machine.is_root() else host.paths.spec
        spec = _readable(host, lambda: specfile.wanted(host, own))
        return Report(
            text=parse.render_spec(spec),
            document={"schema": "keel.spec/1", "spec": parse.as_document(spec)},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    file: Path | None

    def run(self, host: Host) -> Report:
        from keel.mesh import store
        from keel.spec import specfile

        path = self.file or host.paths.spec
        spec = _readable(host, lambda: specfile.wanted(host, path, needed=True))
        # What this node is, nobody else may read.
        if host.machine.is_root() and store.load(host) is not None:
            from keel.spec import apply

            apply.refuse_interface(host, spec)
        return Report(text=f"{path} is valid", document={"schema": "keel.check/1", "valid": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class Apply:
    dry_run: bool

    def run(self, host: Host) -> Report:
        from keel.cli.remove import waiting
        from keel.spec import apply, specfile

        if self.dry_run:
            return render.plan_report(apply.plan(host))
        old_port = _old_port(apply.differences(host), specfile.wanted(host))
        done = apply.apply(host)
        if done.value.waiting is not None:
            report = waiting(done.value.waiting)
            return replace(report, notes=(*report.notes, *old_port))
        notes = [f"keel: waits for {w.waiting_for}: {w.why}" for w in done.value.left.waiting]
        notes += _fixed(apply.fixed(host, specfile.wanted(host)))
        if done.value.restart_due:
            notes += [
                "keel: etcd still runs with the settings it was started with",
                "keel: hint: `systemctl restart etcd`, on one member at a time, once"
                " `keel mesh etcd status` shows all voters healthy",
            ]
        return Report(
            text="\n".join(done.changed) or "already so",
            document={
                "schema": "keel.apply/1",
                "changed": list(done.changed),
                "waiting": render.plan_document(done.value.left)["waiting"],
                "restart_due": done.value.restart_due,
            },
            notes=(*notes, *old_port),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    def run(self, host: Host) -> Report:
        from keel.spec import apply, specfile

        makable, fixed = apply.differences(host), apply.fixed(host, specfile.wanted(host))
        found = (*makable, *fixed)
        rows = [{"name": one.name, "now": one.now, "wanted": one.wanted} for one in found]
        return Report(
            text=render.table(("NAME", "NOW", "WANTED"), [tuple(row.values()) for row in rows])
            if rows
            else "",
            document={"schema": "keel.diff/1", "differences": rows},
            notes=(
                *(f"keel: hint: {hint}" for hint in _hints({one.name for one in makable})),
                *_fixed(fixed),
            ),
            exit=Exit.DIFFERS if rows else Exit.DONE,
        )


def _old_port(found: Iterable[Difference], spec: Spec) -> tuple[str, ...]:
    """Endpoints that go on naming the port which is given up; another one may be a NAT's."""
    old = next((one.now for one in found if one.name == "wireguard.port"), None)
    stale = [str(one) for one in spec.network.wireguard.endpoints if str(one.port) == old]
    if not stale:
        return ()
    return (
        f"keel: network.wireguard.endpoints still has the old port: {', '.join(stale)}",
        "keel: hint: unless a NAT forwards that port, change the entries as well, then `keel spec"
        " apply` again: invites and the other members go by them",
    )


def _hints(names: set[str]) -> tuple[str, ...]:
    """What to type about these; certificates are the tend's."""
    from keel.spec.diff import CERTIFICATES

    found = []
    if names - {CERTIFICATES}:
        found.append("`keel spec apply` makes it so")
    if CERTIFICATES in names:
        found.append("`keel mesh etcd tend` renews what is due, or says what is in the way")
    return tuple(found)


def _fixed(found: Iterable[Difference]) -> list[str]:
    return [f"keel: {one.name}: {FIXED[one.name].format(now=one.now)}" for one in found]


def _check_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help="instead of the spec")


SPEC = Group(
    name="spec",
    summary="what the operator wants of this node",
    description="Show, check or apply /etc/keel/spec.yaml, which keel.spec(5) describes.",
    children=(
        Verb(
            name="show",
            summary="print the spec with every default filled in",
            description="Prints the spec as keel understands it, with every default filled in.",
            example="keel spec show",
            add_arguments=no_arguments,
            options=lambda _: Show(),
            reads=True,
            needs_root=False,
        ),
        Verb(
            name="check",
            summary="say whether the spec is valid",
            description="Reads the spec, or FILE, and names the first fault by its dotted path. "
            "Exit status 2 when there is one.",
            example="keel spec check spec-new.yaml",
            add_arguments=_check_arguments,
            options=lambda found: Check(file=found.file),
            reads=True,
            needs_root=False,
        ),
        Verb(
            name="apply",
            summary="make this node what the spec says",
            description="Makes this node what the spec says and prints what it changed. Run again "
            "it changes nothing. On a node in no mesh there is nothing to change.",
            example="keel spec apply --dry-run",
            add_arguments=no_arguments,
            options=lambda found: Apply(dry_run=flag(found, "dry_run")),
            changes=True,
        ),
    ),
)

DIFF = Verb(
    name="diff",
    summary="show where this node differs from its spec",
    description="Compares this node with its spec and changes nothing. Exit status 0: no "
    "difference; 1: it differs; 2: the spec is not valid.",
    example="keel diff && echo as wanted",
    add_arguments=no_arguments,
    options=lambda _: Diff(),
    reads=True,
)
