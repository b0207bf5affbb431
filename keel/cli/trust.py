"""`keel mesh trust list|add|drop`: whose requests this node obeys."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass

from keel.cli import render
from keel.cli.parser import flag
from keel.cli.verb import Group, Report, Verb, no_arguments
from keel.ports import Host


@dataclass(frozen=True, slots=True, kw_only=True)
class List:
    def run(self, host: Host) -> Report:
        from keel.mesh import trustflow

        rows = trustflow.listing(host)
        return Report(
            text=render.table(("NAME", "ADDRESS", "ROOT"), rows),
            notes=() if rows else ("keel: this node has no other members",),
            document={
                "schema": "keel.trust/1",
                "members": [
                    {"name": name, "address": address, "root": origin}
                    for name, address, origin in rows
                ],
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """`add` or drop the root that is a member by this name."""

    member: str
    add: bool
    dry_run: bool

    def run(self, host: Host) -> Report:
        from keel.mesh import trustflow
        from keel.spec import specfile

        if self.dry_run:
            found = trustflow.plan(host, specfile.load(host), self.member, add=self.add)
            return render.plan_report(found)
        change = trustflow.add_root if self.add else trustflow.drop_root
        done = change(host, specfile.load(host), self.member)
        return Report(
            text="\n".join(done.changed) or "already so",
            document={"schema": "keel.trust-change/1", "member": done.value.display},
        )


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--root", required=True, metavar="NODE", help="a member: name or address")


def _change(found: Namespace, *, add: bool) -> Change:
    return Change(member=found.root, add=add, dry_run=flag(found, "dry_run"))


TRUST = Group(
    name="trust",
    summary="which members' operators this node obeys",
    description="A trust root may ask this node for acts, such as revoking. It decides nothing "
    "about who is a member.",
    children=(
        Verb(
            name="list",
            summary="show every member and whether it is a trust root of this node",
            description="Shows every other member: operator for a root that was added here, joined "
            "for the inviter, blocked for one that this node alone has done with, none otherwise.",
            example="keel mesh trust list",
            add_arguments=no_arguments,
            options=lambda _: List(),
            reads=True,
        ),
        Verb(
            name="add",
            summary="make a member a trust root of this node",
            description="Makes a member a trust root of this node, by its operator's word, and "
            "says so in this node's own record. A block of it on this node is lifted.",
            example="keel mesh trust add --root web-2",
            add_arguments=_arguments,
            options=lambda found: _change(found, add=True),
            changes=True,
        ),
        Verb(
            name="drop",
            summary="take a trust root back",
            description="The member is no trust root of this node any more. It stays a member.",
            example="keel mesh trust drop --root web-2",
            add_arguments=_arguments,
            options=lambda found: _change(found, add=False),
            changes=True,
        ),
    ),
)
