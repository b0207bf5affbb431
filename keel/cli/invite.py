"""`keel mesh invite`: make, list and cancel invites."""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from keel import codec
from keel.cli import render
from keel.cli.parser import flag
from keel.cli.verb import Options, Report, Verb
from keel.errors import UsageError
from keel.ports import Deadline, Host

if TYPE_CHECKING:
    from keel.mesh.invite import InviteState

DEFAULT_LIFE = "24h"
UNITS = {"s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True, slots=True, kw_only=True)
class Make:
    life: timedelta
    wait: bool
    dry_run: bool

    def run(self, host: Host) -> Iterator[Report]:
        from keel.mesh import admit, etcd, store
        from keel.spec import specfile

        words = etcd.words(host, store.require(host))
        if self.dry_run:
            plan = admit.plan_invite(host, specfile.load(host), life=self.life)
            yield render.plan_report(plan)
            return
        made = admit.make_invite(host, specfile.load(host), words, life=self.life).value
        expires = codec.format_time(made.state.expires)
        yield Report(
            text=made.token.reveal().decode(),
            document={
                "schema": "keel.invite/1",
                "invite": made.state.invite,
                "token": made.token.reveal().decode(),
                "expires": expires,
            },
            notes=(
                f"keel: invite {made.state.invite} is good for one node until {expires}",
                "keel: hint: `keel mesh join` on the new node asks for the token; keep it secret",
            ),
        )
        if self.wait:
            deadline = Deadline.after(host.clock, self.life.total_seconds())
            spent = admit.wait_until_spent(host, made.state.invite, deadline)
            name = spent.claim.name if spent.claim else "<unknown>"
            yield Report(notes=(f"keel: member/{name} joined",))


@dataclass(frozen=True, slots=True, kw_only=True)
class List:
    def run(self, host: Host) -> Report:
        from keel.mesh import store

        now = host.clock.now()
        rows = [_row(state, now) for state in store.load_invites(host)]
        return Report(
            text=render.table(
                ("INVITE", "STATE", "NODE", "EXPIRES"), [tuple(row.values()) for row in rows]
            ),
            document={"schema": "keel.invites/1", "invites": rows},
            notes=() if rows else ("keel: no invite was made on this node",),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    invite: str
    """The start of its ID."""
    dry_run: bool

    def run(self, host: Host) -> Report:
        from keel.mesh import admit
        from keel.spec import specfile

        if self.dry_run:
            return render.plan_report(admit.plan_cancel(host, self.invite))
        done = admit.cancel(host, specfile.load(host), self.invite)
        return Report(
            text="\n".join(done.changed) or "already so",
            document={"schema": "keel.cancel/1", "invite": done.value.invite},
        )


def parse_life(text: str) -> timedelta:
    """From 90s, 30m or 24h; ValueError otherwise."""
    found = re.fullmatch(r"([0-9]{1,6})([smh])", text)
    if not found:
        raise ValueError("a time is a number and s, m or h, as in 30m")
    return timedelta(seconds=int(found[1]) * UNITS[found[2]])


def _row(state: InviteState, now: datetime) -> dict[str, str]:
    from keel.mesh.invite import OPEN, Phase

    phase = Phase.EXPIRED if state.phase in OPEN and now >= state.expires else state.phase
    return {
        "invite": state.invite,
        "state": "frozen" if state.frozen and phase in OPEN else phase.value,
        "node": state.claim.name if state.claim else "",
        "expires": codec.format_time(state.expires),
    }


def _arguments(parser: ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--wait", action="store_true", help="wait until the new node has joined")
    what.add_argument("--list", action="store_true", help="show the invites known here")
    what.add_argument(
        "--cancel",
        metavar="ID",
        help="end the invite whose ID begins so; a node that claimed it is removed",
    )
    parser.add_argument(
        "--life",
        metavar="TIME",
        help="how long the new one is good: a number and s, m or h; 24h, the most, without it",
    )


def _options(found: Namespace) -> Options:
    if found.life is not None and (flag(found, "list") or found.cancel is not None):
        raise UsageError(
            "--life is for a new invite; --list and --cancel make none", command="keel mesh invite"
        )
    dry_run = flag(found, "dry_run")
    if flag(found, "list"):
        return List()
    if found.cancel is not None:
        return Cancel(invite=found.cancel.strip().lower(), dry_run=dry_run)
    try:
        life = parse_life(found.life or DEFAULT_LIFE)
        return Make(life=life, wait=flag(found, "wait"), dry_run=dry_run)
    except ValueError as error:
        raise UsageError(f"--life: {error}", command="keel mesh invite") from error


INVITE = Verb(
    name="invite",
    summary="print a token that lets one new node in",
    description="Prints one token on stdout, for one node and at most 24 hours. Whoever has it can "
    "join: pass it on as you would a password.",
    example="keel mesh invite --wait",
    add_arguments=_arguments,
    options=_options,
    changes=True,
    resume="an invite that was made stays open: `keel mesh invite --list` shows it,"
    " `keel mesh invite --cancel ID` ends it; the same command again makes another",
)
