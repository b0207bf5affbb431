"""`keel mesh status`: the document, and the same for people."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from keel.cli import render
from keel.cli.parser import flag
from keel.cli.verb import Report, Verb
from keel.errors import Exit
from keel.ports import Host

if TYPE_CHECKING:
    from keel.mesh.report import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    check: bool

    def run(self, host: Host) -> Report:
        found = look(host)
        degraded = self.check and bool(found["warnings"])
        return Report(
            text=text(found),
            document=found,
            exit=Exit.DIFFERS if degraded else Exit.DONE,
        )


def look(host: Host) -> Document:
    """One look at everything, as keel.status/1."""
    from keel.mesh import selfrecord, status
    from keel.spec import specfile

    spec = specfile.load(host)
    seen, etcd = status.whole(host, spec)

    from keel.mesh import report  # loaded by then, for the greater part

    able = selfrecord.own_capability(host, spec)
    return report.document(spec, seen, etcd, able, host.clock.now())


_SOURCES = {
    "stale": "there is no leader: the members by this node's own copy of the list",
    "record": "etcd does not say who its members are: by the holder's newest record",
}
"""Whose word the list is when it is not etcd's."""

_NOT_BORN = (
    "no cluster yet: the third capable member's join gives birth to it (`keel mesh invite`);\n"
    "where three are members already, `keel mesh etcd form` does"
)


def text(found: Mapping[str, Any]) -> str:
    """For people: this node, its members, the registry, and what to type next."""
    me, mesh = found["self"], found["mesh"]
    parts = [
        f"mesh {mesh['id']} ({mesh['prefix']}), roster {mesh['digest'][:12]}\n"
        f"this node is {me['name']} at {me['address']}, {me['mode']}, WireGuard"
        f" {me['backend'] or '<missing>'}, MTU {me['mtu'] or '<unknown>'}, TCP {me['tcp_bound']}",
        members_text(found["members"]),
    ]
    if found["etcd"]["phase"] != "none":
        parts.append(etcd_text(found["etcd"]))
    parts += [warnings_text(found["warnings"])] if found["warnings"] else []
    return "\n\n".join(parts)


def members_text(members: list[dict[str, Any]]) -> str:
    rows = [
        (
            one["name"],
            one["state"],
            one["address"],
            f"{one['endpoint']} ({one['endpoint_source']})" if one["endpoint"] else "",
            _heard(one),
            _seconds(one["clock_offset_seconds"]),
        )
        for one in members
    ]
    if not rows:
        return "no other members; `keel mesh invite` lets the next node in"
    return render.table(("NAME", "STATE", "ADDRESS", "ENDPOINT", "HEARD", "CLOCK"), rows)


def etcd_text(etcd: Mapping[str, Any]) -> str:
    """The registry: phase, members, certificates, what it waits for."""
    lines = [f"etcd: {etcd['phase']}, root held by {etcd['holder'] or '<none>'}"]
    if etcd["phase"] == "ready" and not etcd["waiting"]:
        lines.append(_NOT_BORN)
    if etcd["voters"]:
        names = {one["id"]: one["name"] for one in etcd["members"]}
        leader = names.get(etcd["leader"], etcd["leader"]) if etcd["leader"] else "<none>"
        if etcd["source"] != "etcd":
            lines.append(f"{_SOURCES[etcd['source']]}; who is silent did not answer now")
        lines.append(
            f"cluster {etcd['cluster_id']}: {etcd['voters']}"
            f" voter{'s' if etcd['voters'] > 1 else ''}, quorum {etcd['quorum']},"
            f" fault tolerance {etcd['fault_tolerance']}, leader {leader}"
        )
        lines.append(
            render.table(
                ("NAME", "ID", "ROLE", "HEALTH", "ADDRESS"),
                [
                    (
                        one["name"],
                        one["id"] or "",
                        one["role"],
                        "healthy" if one["healthy"] else "silent",
                        one["address"] or "",
                    )
                    for one in etcd["members"]
                ],
            )
        )
    if etcd["certificates"]:
        lines.append(
            render.table(
                ("CERTIFICATE", "ENDS", "SERIAL"),
                [(one["kind"], one["not_after"], one["serial"]) for one in etcd["certificates"]],
            )
        )
    lines += [f"{w['what']} waits for {w['for']}: {w['why']}" for w in etcd["waiting"]]
    lines += [f"failed since {f['since']}: {f['text']} ({f['code']})" for f in etcd["failures"]]
    return "\n".join(lines)


def warnings_text(warnings: list[dict[str, str]]) -> str:
    """Each with what to type; of several in a row that are mended alike it is said once."""
    lines = []
    for remedy, alike in groupby(warnings, key=lambda one: one["remedy"]):
        lines += [f"{w['severity']}: {w['text']} ({w['code']})" for w in alike]
        lines.append(f"  hint: {remedy}")
    return "\n".join(lines)


def _heard(member: Mapping[str, Any]) -> str:
    """One number when it is known, else the range in which the last packet came."""
    ago, at_most = _seconds(member["rx_age_seconds"]), _seconds(member["rx_age_at_most_seconds"])
    if not ago or ago == at_most:
        return ago
    return f"{ago.removesuffix('s')}-{at_most}" if at_most else f">{ago}"


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}s"


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--check", action="store_true", help="exit status 1 when there is any warning"
    )


STATUS = Verb(
    name="status",
    summary="what is true of the mesh and its registry now",
    description="Asks every member for a signed answer and looks at the packets received: up, "
    "suspect or down is what is seen, never what is configured. Ends with every warning and what "
    "to type.",
    example="keel mesh status --check",
    add_arguments=_arguments,
    options=lambda found: Status(check=flag(found, "check")),
    reads=True,
)
