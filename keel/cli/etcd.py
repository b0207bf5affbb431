"""`keel mesh etcd status|env|tend`: the registry."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from keel.cli import status
from keel.cli.form import FORM
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
        from keel.mesh import etcdenv

        found = etcdenv.environment(host)
        text = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in found.items())
        return Report(text=text, document={"schema": "keel.env/1", "env": dict(found)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Tend:
    def run(self, host: Host) -> Report:
        from keel.mesh import etcdtend
        from keel.mesh.duty import Result
        from keel.spec import apply

        duties = etcdtend.tend(host, lambda: apply.load(host), apply.enable_etcd)
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
            description="One pass: ask for credentials that are missing, go on with a birth, and "
            "bring this node's etcd to what its record says. Safe to cut off; never two at once.",
            example="keel mesh etcd tend",
            add_arguments=no_arguments,
            options=lambda _: Tend(),
            reads=True,
        ),
        FORM,
    ),
)
