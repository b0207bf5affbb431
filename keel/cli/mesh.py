"""`keel mesh create|join|leave|sync|up`: a node's own way into, in and out of a mesh."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from keel.cli import render, tokens
from keel.cli.parser import flag
from keel.cli.remove import consent_arguments
from keel.cli.verb import Report, Verb, no_arguments
from keel.outcome import Incomplete, exit_of
from keel.ports import Host

if TYPE_CHECKING:
    from keel.mesh.join import AskEtcd, Joined, Prepare
    from keel.mesh.store import Node
    from keel.mesh.token import Token
    from keel.spec.model import Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    dry_run: bool

    def run(self, host: Host) -> Report:
        from keel.mesh import create, etcd
        from keel.spec import specfile

        if self.dry_run:
            return render.plan_report(create.plan(host, specfile.load(host)))
        spec = specfile.load(host)
        done = create.create(host, spec)
        made = etcd.after_create(host, spec, done.value)
        return Report(
            text=_changed((*done.changed, *made)),
            document={"schema": "keel.create/1", **_node(done.value)},
            notes=(
                *(_is_in(done.value) if not done.changed else ()),
                *((f"keel: keep a backup of {host.paths.roots}",) if made else ()),
                "keel: hint: `keel mesh invite` lets the next node in",
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """`source` is a file, - for stdin, or None for a prompt."""

    source: str | None
    discard: bool
    dry_run: bool

    def run(self, host: Host) -> Report:
        from keel.mesh import join
        from keel.spec import specfile

        if self.dry_run:
            return self._plan(host)
        if self.discard and self.source is None:
            gone = join.discard_pending(host, specfile.load(host))
            return Report(
                text="\n".join(gone.changed) or "no join is under way here",
                document={"schema": "keel.discard/1", "discarded": list(gone.value)},
            )
        spec = specfile.load(host)
        token = tokens.read(self.source)
        registry = _registry(host, spec, token)
        done = join.join(
            host,
            spec,
            token,
            ask_etcd=registry.ask,
            prepare=registry.prepare,
            discard=self.discard,
        )
        said = registry.finish(done.value)
        return Report(
            text=_changed(done.changed),
            document={
                "schema": "keel.join/1",
                **_node(done.value.node),
                "inviter": done.value.inviter.display,
            },
            notes=(
                *(_is_in(done.value.node) if not done.changed else ()),
                *(_STILL_OPEN if not done.changed else ()),
                *(f"keel: etcd: {text}" for text in said),
                "keel: hint: `keel mesh status` shows the others",
            ),
        )

    def _plan(self, host: Host) -> Report:
        from keel.mesh import joinplan
        from keel.spec import specfile

        spec = specfile.load(host)
        if self.discard and self.source is None:
            return render.plan_report(joinplan.plan_discard(host, spec))
        token = tokens.read(self.source)
        return render.plan_report(joinplan.plan(host, spec, token, discard=self.discard))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Registry:
    """What a join does about etcd, before, amid and after."""

    ask: AskEtcd
    prepare: Prepare
    finish: Callable[[Joined], tuple[str, ...]]


def _registry(host: Host, spec: Spec, token: Token) -> _Registry:
    """A node that cannot run etcd does nothing about it, and loads nothing for it: that would be
    half of what its join waits for by itself."""
    from keel.mesh import selfrecord
    from keel.spec import specfile
    from keel.types import Capability

    if selfrecord.own_capability(host, spec) is not Capability.ETCD:
        return _Registry(ask=lambda _: None, prepare=lambda _node, _part: None, finish=lambda _: ())
    from keel.mesh import etcd

    load, enable = lambda: specfile.load(host), specfile.enable_etcd
    return _Registry(
        ask=lambda identity: etcd.enrolment(host, spec, token, identity),
        prepare=lambda node, part: etcd.before_confirmation(host, load, enable, node, part),
        finish=lambda joined: etcd.after_join(host, load, enable, joined),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """`confirm` is this node's name, which is asked for otherwise; `yes` stands for it, but where a
    consent needs it."""

    without_quorum: bool
    one_voter: bool
    confirm: str | None
    yes: bool
    dry_run: bool

    def run(self, host: Host) -> Report:
        from keel.cli import prompt
        from keel.mesh import leave
        from keel.mesh.expulsion import Consent
        from keel.spec import specfile

        given = Consent(without_quorum=self.without_quorum, one_voter=self.one_voter)
        consent = given if given != Consent() else None
        if self.dry_run:
            return render.plan_report(leave.plan(host, consent=consent))
        spec = specfile.load(host)
        name = leave.own_name(host)
        typed = prompt.ask_name(name, self.confirm, yes=self.yes)
        done = leave.leave(host, spec, typed=typed, consent=consent)
        left = done.value
        notes = [f"keel: its keys and state are kept below {host.paths.left}"]
        if left.not_told:
            silent = ", ".join(sorted(left.not_told))
            notes.append(
                f"keel: not reached, learn it from the others: {silent}"
                if left.told
                else f"keel: nobody was reached of {silent}: whichever of them still lists this"
                f" node takes it out with `keel mesh remove {name}`"
            )
        return Report(
            text=_changed(done.changed),
            document={
                "schema": "keel.leave/1",
                "told": list(left.told),
                "not_told": list(left.not_told),
            },
            notes=tuple(notes),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    dry_run: bool

    def run(self, host: Host) -> Report:
        from keel.mesh import sync
        from keel.spec import specfile

        if self.dry_run:
            return render.plan_report(sync.plan(host, specfile.held(host)))
        outcome = sync.sync(host, specfile.held(host))
        missing = outcome.missing if isinstance(outcome, Incomplete) else ()
        notes = [f"keel: {text}" for text in missing]
        if isinstance(outcome, Incomplete):
            notes.append(f"keel: hint: {outcome.remedy}")
        value = outcome.value
        if value.reached or missing:
            reached = f"reached {', '.join(value.reached) or 'nobody'}"
        else:
            reached = "there is no other member to be asked"
        return Report(
            text=f"{reached}; {value.learned} new records",
            document={
                "schema": "keel.sync/1",
                "reached": list(value.reached),
                "learned": value.learned,
                "missing": list(missing),
            },
            notes=tuple(notes),
            exit=exit_of(outcome),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Up:
    dry_run: bool

    def run(self, host: Host) -> Report:
        from keel.mesh import network, store
        from keel.spec import specfile

        if self.dry_run:
            return render.plan_report(network.plan_raise(host, specfile.held(host)))
        network.raise_all(host, specfile.held(host))
        node = store.require(host)
        return Report(text=f"mesh/{node.mesh} up", document={"schema": "keel.up/1", **_node(node)})


_STILL_OPEN = ("keel: unless this node or another used it, the invite stays open for another one",)


def _is_in(node: Node) -> tuple[str, ...]:
    """For who typed it on a node that is a member, perhaps of another mesh than is thought."""
    return (f"keel: this node is in mesh {node.mesh} already",)


def _changed(lines: tuple[str, ...]) -> str:
    return "\n".join(lines) or "already so"


def _node(node: Node) -> dict[str, object]:
    return {
        "mesh": node.mesh,
        "prefix": node.prefix.compressed,
        "address": node.address.compressed,
    }


def _join_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="where the token is, - for stdin; without it the token is asked for. It is never an "
        "argument: those can be read by everyone on this host",
    )
    parser.add_argument(
        "--discard-pending",
        action="store_true",
        help="give up a join of another mesh that was begun here; alone, do only that",
    )


def _join_options(found: Namespace) -> Join:
    return Join(
        source=found.token_file,
        discard=flag(found, "discard_pending"),
        dry_run=flag(found, "dry_run"),
    )


def _leave_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--yes",
        action="store_true",
        help="do not ask for this node's name: for scripts",
    )
    consent_arguments(
        parser,
        confirm="this node's name, instead of typing it when asked; --yes does not stand for it"
        " with --without-quorum and --one-voter",
    )


CREATE = Verb(
    name="create",
    summary="make a mesh with this node as its first member",
    description="Makes this node's keys and a mesh of one, and raises its interface and channel. "
    "Run again it goes on where it stopped; on a member it changes nothing.",
    example="keel mesh create",
    add_arguments=no_arguments,
    options=lambda found: Create(dry_run=flag(found, "dry_run")),
    changes=True,
)
JOIN = Verb(
    name="join",
    summary="make this node a member, with a token from `keel mesh invite`",
    description="Redeems a token and makes this node a member of its mesh. Whatever goes wrong on "
    "the way, the same command with the same token goes on, with the same address.",
    example="keel mesh join --token-file token.txt",
    add_arguments=_join_arguments,
    options=_join_options,
    changes=True,
)
LEAVE = Verb(
    name="leave",
    summary="take this node out of its mesh",
    description="Signs this node's own removal, tells the others, and moves keys and state aside. "
    "A node that joins again does so with new keys and a new address. A voter leaves while the "
    "others are a quorum without it; they take it out of etcd's list by themselves. Asks for this "
    "node's name first.",
    example="keel mesh leave",
    add_arguments=_leave_arguments,
    options=lambda found: Leave(
        without_quorum=flag(found, "without_quorum"),
        one_voter=flag(found, "one_voter"),
        confirm=found.confirm,
        yes=flag(found, "yes"),
        dry_run=flag(found, "dry_run"),
    ),
    changes=True,
)
SYNC = Verb(
    name="sync",
    summary="exchange rosters with the other members now",
    description="Exchanges records with every member, ends what has expired, and puts the "
    "interface's peers right. keel-mesh-sync.timer does it every minute.",
    example="keel mesh sync",
    add_arguments=no_arguments,
    options=lambda found: Sync(dry_run=flag(found, "dry_run")),
    changes=True,
)
UP = Verb(
    name="up",
    summary="raise the interface, its peers and the firewall from this node's state",
    description="Raises the interface with its live members, open claims and invites. "
    "keel-mesh.service does it at boot.",
    example="keel mesh up",
    add_arguments=no_arguments,
    options=lambda found: Up(dry_run=flag(found, "dry_run")),
    changes=True,
)
