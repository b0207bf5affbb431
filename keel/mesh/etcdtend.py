"""`keel mesh etcd tend`: one bounded pass over what the registry needs on this node (E14).

Owns the list of duties; each comes to one typed outcome and one sentence. Crash-only; a second
flock keeps two passes apart. While something is open a faster timer runs the same pass.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass

from keel.errors import Internal, KeelError, Refused, StateCorrupt
from keel.mesh import (
    alerting,
    etcdbirth,
    etcdcredentials,
    etcdcrlspread,
    etcdenrol,
    etcdgrow,
    etcdlapse,
    etcdlived,
    etcdmember,
    etcdplace,
    etcdrecover,
    etcdremove,
    etcdrenew,
    etcdrestored,
    etcdrevoke,
    etcdstate,
    etcdstore,
    etcdsupersede,
    selfrecord,
    store,
    talk,
    tended,
)
from keel.mesh.duty import Duty, Result, done, nothing, waits
from keel.mesh.etcdmember import EnableSpec
from keel.mesh.etcdplan import until_clock, until_window
from keel.mesh.store import Node
from keel.outcome import Plan
from keel.ports import Host
from keel.spec.model import Spec
from keel.types import Capability
from keel.unitnames import FAST_TIMER

BIRTH = "the birth of the cluster"
STAGES = {
    etcdstate.Stage.IDLE: "no etcd runs here yet",
    etcdstate.Stage.STARTING: "etcd was started here and waits for a leader",
    etcdstate.Stage.FORMED: "etcd runs here as a member of the cluster",
}
"""How far this node is in its cluster, for whoever watches a pass."""

LoadSpec = Callable[[], Spec]

BESIDE_ANOTHER = "a pass of the timer is at work just now and goes on with it"
"""Said by a command that is done, but for a pass of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """What the duties of one pass work with; the spec is read anew by whoever needs it."""

    host: Host
    node: Node
    load_spec: LoadSpec
    enable_spec: EnableSpec


def tend(
    host: Host, load_spec: LoadSpec, enable_spec: EnableSpec, *, wait_seconds: float = 0.0
) -> tuple[Duty, ...]:
    """One pass. A duty that fails is kept as a failure and does not stop the next. LockHeld when
    another pass is at work and does not end within that time."""
    with host.locks.hold(host.paths.tend_lock, what="the tend", wait_seconds=wait_seconds):
        node = store.require(host)
        one = Pass(host=host, node=node, load_spec=load_spec, enable_spec=enable_spec)
        duties: tuple[Duty, ...]
        if node.key in node.view.removed:
            duties = (_try(one, "removed"),)
        elif selfrecord.own_capability(host, load_spec()) is not Capability.ETCD:
            duties = (nothing("etcd", "this node cannot run etcd"), _try(one, etcdenrol.RELAY))
        else:
            duties = tuple(_try(one, name) for name in DUTIES)
        tended.note(host)
        _pace(host, node, duties)
    return duties


def _try(one: Pass, name: str) -> Duty:
    """One duty behind its own boundary; its failure is kept until it is gone (E15)."""
    host = one.host
    try:
        duty = _done(one, name)
    except KeelError as error:
        code = error.rule if isinstance(error, Refused) else error.code
        _keep(host, name, (code, error.summary(), error.remedy()))
        return Duty(name=name, result=Result.FAILED, text=error.summary())
    _keep(host, name, None)
    return duty


def _done(one: Pass, name: str) -> Duty:
    """The duty; a bug in it is Internal with its type and place alone: a message might quote a
    secret."""
    try:
        return (DUTIES | RETIRED)[name](one)
    except KeelError:
        raise
    except Exception as bug:  # one of the three broad ones: a bug stops no other duty
        last = traceback.extract_tb(bug.__traceback__)[-1]
        raise Internal(f"{type(bug).__name__} at {last.filename}:{last.lineno}") from bug


def _keep(host: Host, name: str, failed: tuple[str, str, str] | None) -> None:
    """What a duty fails with now (code, text, remedy) in place of what it failed with before."""
    before = _failures(host)
    after = before
    for entry in before.entries:
        if entry.subject == name and (failed is None or entry.code != failed[0]):
            after = etcdstate.mend(after, code=entry.code, subject=name)
    if failed is not None:
        code, text, remedy = failed
        now = host.clock.now()
        after = etcdstate.fail(after, code=code, subject=name, text=text, remedy=remedy, now=now)
    if after != before:
        etcdstore.save_failures(host, after)


def _failures(host: Host) -> etcdstate.Failures:
    """What fails by the last pass. A damaged list is begun anew, so that it stops no duty: it says
    only what fails now, which this pass finds again."""
    try:
        return etcdstore.load_failures(host)
    except StateCorrupt:
        etcdstore.save_failures(host, etcdstate.Failures())
        return etcdstate.Failures()


def _birth(one: Pass) -> Duty:
    """A formation that was just confirmed begins here and now; the round trips come after it."""
    host, node = one.host, one.node
    if etcdstore.load_authority(host) is None:
        return nothing("birth", "another node holds the root")
    if talk.clock_is_off(host):
        waiting = until_clock(BIRTH)
        return waits("birth", waiting, is_open=True)
    if store.window_is_open(host) and etcdstore.load_book(host).formed is None:
        waiting = until_window(BIRTH)
        return waits("birth", waiting, is_open=True)
    record = etcdbirth.begin(host, node)
    if record is None:
        seen = etcdbirth.holder_duty(host, node)
    else:
        seen = etcdbirth.tell_all(host, node, record, meanwhile=lambda: _try(one, "etcd"))
    if seen.told:
        return done("birth", f"told {', '.join(sorted(seen.told))}", is_open=True)
    if seen.waiting:
        return waits("birth", *seen.waiting, is_open=True)
    return nothing("birth", "no birth is due")


def _own_etcd(one: Pass) -> Duty:
    host = one.host
    etcdremove.refuse_expelled(host, one.node)
    before = etcdstore.load_cluster(host)
    left: Plan = etcdmember.settle(host, one.load_spec, one.enable_spec, one.node)
    after = etcdstore.load_cluster(host)
    if left.waiting:
        return waits("etcd", *left.waiting)
    if before != after:  # what came before it in this pass has not seen it: another one follows
        return done("etcd", STAGES[after.stage], is_open=True)
    return nothing("etcd", STAGES[after.stage])


def _pace(host: Host, node: Node, duties: tuple[Duty, ...]) -> None:
    """The fast timer runs while a transition is open on this node, and only then."""
    if any(duty.open for duty in duties) or _is_open(host, node):
        host.units.start(FAST_TIMER, block=False)
        return
    host.units.stop(FAST_TIMER)
    # one may have come while this pass ended: its kick met a running unit
    if _is_open(host, node):
        host.units.start(FAST_TIMER, block=False)


def _is_open(host: Host, node: Node) -> bool:
    removed = frozenset(node.view.removed)
    try:
        return etcdbirth.is_open(host, removed) or etcdenrol.is_open(host, node)
    except KeelError:
        return False  # the duties met the same, and tell it: a person is needed, and no hurry


DUTIES: dict[str, Callable[[Pass], Duty]] = {
    etcdrestored.NAME: lambda one: etcdrestored.duty(one.host, one.node),
    etcdcredentials.NAME: lambda one: etcdcredentials.duty(one.host, one.node),
    etcdlapse.NAME: lambda one: etcdlapse.duty(one.host),
    etcdrenew.RENEWAL: lambda one: etcdrenew.duty(one.host, one.node),
    etcdrevoke.NAME: lambda one: etcdrevoke.duty(one.host, one.node),
    etcdcrlspread.NAME: lambda one: etcdcrlspread.duty(one.host),
    "birth": _birth,
    "etcd": _own_etcd,
    etcdrenew.SERVED: lambda one: etcdrenew.served(one.host, one.node),
    etcdsupersede.NAME: lambda one: etcdsupersede.duty(one.host, one.node),
    etcdenrol.RELAY: lambda one: etcdenrol.relay(one.host, one.node),
    etcdremove.NAME: lambda one: etcdremove.duty(one.host, one.node),
    etcdgrow.NAME: lambda one: etcdgrow.duty(one.host, one.node),
    etcdrecover.NAME: lambda one: etcdrecover.duty(one.host, one.node),
    etcdplace.NAME: lambda one: etcdplace.duty(one.host, one.node),
    etcdlived.NAME: lambda one: etcdlived.duty(one.host, one.load_spec()),
    alerting.NAME: lambda one: alerting.duty(one.host, one.load_spec()),
}
"""Every duty of a pass, in its order: what comes later may lean on what came before."""

RETIRED: dict[str, Callable[[Pass], Duty]] = {
    "removed": lambda one: etcdremove.retire(one.host),
}
"""What is left to do on a node that knows of its own removal."""
