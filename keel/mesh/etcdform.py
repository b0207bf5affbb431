"""`keel mesh etcd form`: the cluster formed by hand, on a mesh that has none (E13).

Owns the asking and the executing; what is next is keel.mesh.forming's. The tend's lock is held
throughout, so that no pass of the tend decides anything meanwhile.

Rules:
(O1) Steps of one action are done, then every member is asked again (a run after any interruption
     begins with that, too). Who is left out is asked once: each silence costs its full time.
(O2) This node's own reservation is the intent: while it lies there, the root counts as made by a
     form that is not through, and the tend gives no birth.
(O3) The first refusal of a reservation releases all; a root that no other member trusts is moved
     aside when another one won, `roots` last: that it is gone says that the moving is through.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from keel.errors import KeelError, LockHeld, PeerError, Refused
from keel.mesh import (
    etcdcredentials,
    etcdformdoors,
    etcdformview,
    etcdissue,
    etcdmeasure,
    etcdreserve,
    etcdstate,
    etcdstore,
    etcdtend,
    fitness,
    forming,
    members,
    store,
    talk,
)
from keel.mesh.duty import Result
from keel.mesh.envelope import Answered
from keel.mesh.etcdmember import EnableSpec
from keel.mesh.etcdmsg import PROBE_SECONDS, Grant
from keel.mesh.etcdstate import Queued, Wanted
from keel.mesh.etcdtend import LoadSpec
from keel.mesh.exchange import ETCD_PATH
from keel.mesh.fitness import Check
from keel.mesh.forming import Action
from keel.mesh.formmsg import (
    AskEnrolment,
    Enrolled,
    EnrolledAnswer,
    EnrolmentAnswer,
    Reserve,
    ReserveAnswer,
)
from keel.mesh.members import Member
from keel.mesh.store import Node
from keel.outcome import Done, Incomplete, Plan, Step
from keel.ports import Host
from keel.spec.model import Spec
from keel.types import Capability, SigningKey
from keel.unitnames import SYNC_UNIT

MAX_ROUNDS = 8
"""Four kinds of steps, each once, and as many again for what changed meanwhile."""
LOCK_SECONDS = 60.0
"""A pass of the tend with nothing unusual takes far less."""
FRESH_SECONDS = 300.0
"""A root is made while every reservation has at least as long to run again."""
ON = "run `keel mesh etcd form` again; it goes on where it stopped"
TO_MOVE = ("intermediate", "leaf", "trust.pem", "crl.der", "holder", "grants.jsonl", "roots")
"""What hangs on a root, itself last (O3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What a dry run shows: the Plan or the refusal, and what was measured either way."""

    plan: Plan | None
    refusal: Refused | None
    checks: tuple[Check, ...]


def preview(host: Host, spec: Spec, *, without: Sequence[str] = ()) -> Preview:
    """The dry run: what form would do now, or why not; and every capable member that answers is
    measured. Changes nothing."""
    node = store.require(host)
    talk.refuse_wrong_clock(host)
    view, named = etcdformview.observe(host, spec, node, without=_left_out(node, without))
    wanted = [
        named[one.name]
        for one in view.peers
        if one.answer is not None and one.answer.capability is Capability.ETCD
    ]
    silent = ((one.name, one.why) for one in forming.silent(view))
    found = (*etcdmeasure.examine(host, spec, node, wanted), *fitness.unheard(silent))
    try:
        return Preview(plan=forming.decide(view), refusal=None, checks=found)
    except Refused as refusal:
        return Preview(plan=None, refusal=refusal, checks=found)


def form(
    host: Host, load_spec: LoadSpec, enable_spec: EnableSpec, *, without: Sequence[str] = ()
) -> Done[Plan] | Incomplete[Plan]:
    """The cluster formed, or on its way; on a formed one the ready members in line for it. `value`
    is what is left. Refused by forming's rules, with nothing changed; run again it goes on."""
    talk.refuse_wrong_clock(host)
    with host.locks.hold(
        host.paths.tend_lock, what="the registry's state", wait_seconds=LOCK_SECONDS
    ):
        outcome = _Form(host, load_spec, _left_out(store.require(host), without)).run()
    if isinstance(outcome, Incomplete):
        return outcome
    try:
        duties = etcdtend.tend(host, load_spec, enable_spec)
    except LockHeld:
        return outcome  # a pass that was kicked meanwhile does the same
    said = tuple(d.text for d in duties if d.result is Result.DONE)
    return replace(outcome, changed=(*outcome.changed, *said))


def _left_out(node: Node, names: Sequence[str]) -> frozenset[SigningKey]:
    return frozenset(members.find(node.view, name).key for name in names)


class _Form:
    """One run: what was changed so far, and who reserved itself."""

    def __init__(self, host: Host, load_spec: LoadSpec, without: frozenset[SigningKey]) -> None:
        self._host = host
        self._load_spec = load_spec
        self._without = without
        self._unasked: frozenset[SigningKey] = frozenset()
        self._reserved: frozenset[SigningKey] = frozenset()
        self._reserved_at = 0.0
        self._changed: list[str] = []
        self._kept = False
        self._missing: tuple[str, ...] = ()
        self._members: Mapping[str, Member] = {}

    def run(self) -> Done[Plan] | Incomplete[Plan]:
        """Rounds of asking, deciding and doing, until nothing is left but the birth."""
        left = Plan()
        for _ in range(MAX_ROUNDS):
            try:
                left = self._decide()
            except Refused as refusal:
                return self._refuse(refusal)
            group = forming.leading(left)
            if not group or group[0].action == Action.GIVE_BIRTH:
                self._release(through=True)
                return Done(value=left, changed=tuple(self._changed))
            self._execute(Action(group[0].action), group)
            if self._missing:
                break
        missing = self._missing or tuple(f"{one.action} {one.subject}" for one in left.steps)
        return Incomplete(value=left, missing=missing, remedy=ON)

    def _decide(self) -> Plan:
        host, node = self._host, store.require(self._host)
        if host.clock.monotonic() - self._reserved_at > FRESH_SECONDS:
            self._reserved = frozenset()
        view, self._members = etcdformview.observe(
            host,
            self._load_spec(),
            node,
            without=self._without,
            reserved=self._reserved,
            unasked=self._unasked,
        )
        plan = forming.decide(view)
        self._unasked = self._without
        return plan

    def _refuse(self, refusal: Refused) -> Incomplete[Plan]:
        """Nothing was changed, or what was is put back: the refusal itself. Once this run made the
        root or enrolled somebody it is an interruption."""
        if refusal.rule == "form-lost":
            self._undo()
        elif self._kept:
            return Incomplete(value=Plan(), missing=(refusal.summary(),), remedy=refusal.remedy())
        self._release()
        raise refusal

    def _execute(self, action: Action, steps: Sequence[Step]) -> None:
        """The birth is no act of a form's own: the tend gives it."""
        members = [self._members[one.subject] for one in steps if one.subject in self._members]
        acts: Mapping[Action, Callable[[], None]] = {
            Action.RESERVE: lambda: self._reserve(steps),
            Action.MAKE_ROOT: self._make_root,
            Action.GRANT_SELF: self._grant_self,
            Action.ENROL: lambda: self._enrol(members),
            Action.QUEUE_LEARNER: lambda: self._queue(members),
        }
        acts[action]()

    def _note(self, text: str) -> None:
        self._host.console.say(f"etcd: {text}")
        self._changed.append(text)

    # reserving

    def _reserve(self, steps: Sequence[Step]) -> None:
        """One after another in order of address; the first refusal releases all (O3)."""
        host, node = self._host, store.require(self._host)
        self._reserved_at = host.clock.monotonic()
        for step in steps:
            member = self._members.get(step.subject)
            host.console.waiting(f"reserving {step.subject}")
            try:
                if member is None:
                    with store.locked(host, "the mesh"):
                        etcdreserve.reserve(host, self._load_spec(), node, node.key)
                else:
                    self._reserved |= {member.key}  # also when only its answer is lost
                    talk.ask(
                        host,
                        node,
                        member,
                        etcdformdoors.RESERVE,
                        Reserve(),
                        ReserveAnswer,
                        path=ETCD_PATH,
                    )
            except (Refused, PeerError) as error:
                self._give_way(step.subject, error)
        self._reserved |= {node.key}
        self._note(f"reserved {', '.join(step.subject for step in steps)}")

    def _give_way(self, name: str, error: Refused | PeerError) -> NoReturn:
        rule = error.rule if isinstance(error, Refused) else error.reason
        self._release()
        if isinstance(error, PeerError) and error.reason in ("unreachable", "timeout"):
            raise Refused(
                "form-silent",
                error.summary(),
                f"bring {name} back, or form without it: --without {name}",
            ) from error
        raise Refused(rule, f"{name}: {_said(error)}", error.remedy()) from error

    def _release(self, *, through: bool = False) -> None:
        """Whoever reserved itself in this run is told; who misses it is free in ten minutes. This
        node's own stays while a root hangs on it, unless the form is through (O2)."""
        host, node = self._host, store.require(self._host)
        asked = [m for m in talk.others(node) if m.key in self._reserved]
        talk.ask_all(
            host,
            node,
            dict.fromkeys(asked, Reserve(release=True)),
            etcdformdoors.RESERVE,
            ReserveAnswer,
            path=ETCD_PATH,
            timeout_seconds=PROBE_SECONDS,
        )
        self._reserved = frozenset()
        if through or etcdstore.load_authority(host) is None:
            with store.locked(host, "the mesh"):
                etcdreserve.release(host, node.key)

    def _undo(self) -> None:
        """This node's root, which no other member trusts, out of the way (O3)."""
        host = self._host
        with store.locked(host, "the mesh"):
            node = store.require(host)
            stamp = host.clock.now().strftime("%Y%m%dT%H%M%SZ")
            place = host.paths.left / f"{node.mesh}-etcd-{stamp}"
            host.files.make_dir(place)
            for name in TO_MOVE:
                if host.files.exists(host.paths.etcd / name):
                    host.files.rename(host.paths.etcd / name, place / name)
        host.console.say(f"etcd: moved this node's unused root to {place}")

    # the root and what hangs on it

    def _make_root(self) -> None:
        """Made and told to the roster under one lock, so that it is known or not there."""
        host = self._host
        self._kept = True
        with store.locked(host, "the mesh"):
            node = store.require(host)
            etcdreserve.reserve(host, self._load_spec(), node, node.key)  # still this node's alone
            etcdissue.make_root(host, node)
            statement = etcdstore.load_holder(host) or b""
            store.merge_into(host, node, (statement,))
        host.units.start(SYNC_UNIT, block=False)
        self._note("etcd/root g1 created")

    def _grant_self(self) -> None:
        self._kept = True
        etcdcredentials.grant_oneself(self._host, store.require(self._host))
        self._note("this node has its own certificate")

    def _enrol(self, wanted: Sequence[Member]) -> None:
        """Each member's own request, granted and sent back; who failed is named, the rest kept."""
        host, node = self._host, store.require(self._host)
        names = ", ".join(one.display for one in wanted)
        host.console.waiting(f"enrolling {names}")
        failed: dict[str, KeelError] = {}
        asked = talk.ask_all(
            host,
            node,
            dict.fromkeys(wanted, AskEnrolment()),
            etcdformdoors.ENROLMENT,
            EnrolmentAnswer,
            path=ETCD_PATH,
        )
        grants: dict[Member, Enrolled] = {}
        for member, heard in asked.items():
            try:
                grants[member] = Enrolled(grant=self._grant(heard))
            except KeelError as error:
                failed[member.display] = error
        answers = talk.ask_all(
            host, node, grants, etcdformdoors.ENROLLED, EnrolledAnswer, path=ETCD_PATH
        )
        for member, answer in answers.items():
            if isinstance(answer, KeelError):
                failed[member.display] = answer
        done = [one.display for one in wanted if one.display not in failed]
        if done:
            self._kept = True
            self._note(f"enrolled {', '.join(done)}")
        self._missing = tuple(f"{name}: {_said(error)}" for name, error in failed.items())

    def _grant(self, heard: Answered[EnrolmentAnswer] | KeelError) -> Grant:
        if isinstance(heard, KeelError):
            raise heard
        host, asked = self._host, heard.body
        with store.locked(host, "the mesh"):
            node, _ = store.merge_held(host, store.require(host), (asked.record,))
            admitted = {one.key: one.address for one in node.view.members}
            return etcdissue.grant(host, node, asked.enrolment, admitted=admitted)

    def _queue(self, wanted: Sequence[Member]) -> None:
        host = self._host
        with store.locked(host, "the mesh"):
            queue = etcdstore.load_queue(host)
            for member in wanted:
                entry = Queued(
                    what=Wanted.LEARNER,
                    subject=member.key,
                    since=host.clock.now(),
                    why="it was ready when the operator formed",
                )
                queue = etcdstate.enqueue(queue, entry)
            etcdstore.save_queue(host, queue)
        self._note(f"{', '.join(one.display for one in wanted)} waits in line for the cluster")


def _said(error: KeelError) -> str:
    """Why, without the member's name, which stands before it."""
    return error.text if isinstance(error, PeerError) else error.summary()
