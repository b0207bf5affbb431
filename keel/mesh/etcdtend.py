"""`keel mesh etcd tend`: one bounded pass over what the registry needs on this node (E14).

Owns the list of duties; each comes to one typed outcome and one sentence. Crash-only; a second
flock keeps two passes apart. While something is open a faster timer runs the same pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from keel.errors import KeelError, PeerError, Refused
from keel.mesh import (
    etcdbirth,
    etcdissue,
    etcdmember,
    etcdstate,
    etcdstore,
    members,
    selfrecord,
    store,
    talk,
    up,
)
from keel.mesh.duty import Duty, Result, done, nothing, waits
from keel.mesh.etcdbirth import ETCD_PATH
from keel.mesh.etcddoors import ENROLL
from keel.mesh.etcdholder import holder_of
from keel.mesh.etcdmember import EnableSpec
from keel.mesh.etcdmsg import Enroll, EnrollAnswer
from keel.mesh.etcdplan import CLOCK, CLOCK_DIFFERS
from keel.mesh.store import Node
from keel.mesh.trust import may_ask
from keel.outcome import Plan, Waiting
from keel.ports import Host
from keel.spec.model import Spec
from keel.types import Capability, SigningKey

LIVED_SECONDS = 3600.0


LoadSpec = Callable[[], Spec]


def tend(host: Host, load_spec: LoadSpec, enable_spec: EnableSpec) -> tuple[Duty, ...]:
    """One pass. A duty that fails is kept as a failure and does not stop the next."""
    with host.locks.hold(host.paths.tend_lock, what="the tend", wait_seconds=0.0):
        node = store.require(host)
        if selfrecord.own_capability(host, load_spec()) is not Capability.ETCD:
            return (nothing("etcd", "this node cannot run etcd"),)

        def own_etcd() -> Duty:
            return _try(host, "etcd", lambda: _own_etcd(host, load_spec, enable_spec, node))

        duties = (
            _try(host, "credentials", lambda: _credentials(host, node)),
            _try(host, "birth", lambda: _birth(host, node, own_etcd)),
            own_etcd(),
            _try(host, "lived", lambda: _lived(host, load_spec())),
        )
        _pace(host, duties, frozenset(node.view.removed))
    return duties


def _try(host: Host, name: str, run: Callable[[], Duty]) -> Duty:
    """One duty behind its own boundary; its failure is kept until it is gone (E15)."""
    failures = etcdstore.load_failures(host)
    try:
        duty = run()
    except KeelError as error:
        code = error.rule if isinstance(error, Refused) else error.code
        etcdstore.save_failures(
            host,
            etcdstate.fail(
                failures,
                code=code,
                subject=name,
                text=error.summary(),
                remedy=error.remedy(),
                now=host.clock.now(),
            ),
        )
        return Duty(name=name, result=Result.FAILED, text=error.summary())
    left = tuple(entry for entry in failures.entries if entry.subject == name)
    for entry in left:
        failures = etcdstate.mend(failures, code=entry.code, subject=name)
    if left:
        etcdstore.save_failures(host, failures)
    return duty


def _credentials(host: Host, node: Node) -> Duty:
    """A capable member without a grant asks the holder for one; the holder grants itself."""
    name = "credentials"
    if etcdstore.load_intermediate(host) is not None:
        return nothing(name, "this node has its intermediate")
    if etcdstore.load_authority(host) is not None:
        grant_oneself(host, node)
        return done(name, "granted this node its own intermediate")
    holder = holder_of(host, node)
    member = node.view.by_key(holder) if holder else None
    if member is None:
        return _wait(name, "a grant", "the holder", "no holder of the etcd root is known here yet")
    request = Enroll(
        enrolment=_enrolment(host, node),
        admissions=members.chain(node.roster, node.key),
    )
    try:
        answer = talk.ask(host, node, member, ENROLL, request, EnrollAnswer, path=ETCD_PATH)
    except PeerError as error:
        return _wait(name, "a grant", member.display, error.text)
    with store.locked(host, "the mesh"):
        etcdmember.take_grant(
            host,
            node,
            answer.body.grant,
            trusted=may_ask(node.trust, member.key),
        )
    return done(name, f"{member.display} granted the intermediate")


def _enrolment(host: Host, node: Node) -> bytes:
    _, key = etcdstore.request_key(host)
    return etcdmember.enrolment(host, node.mesh, node.identity.signing, key)


def grant_oneself(host: Host, node: Node) -> None:
    """The holder's own grant, by the same way as everybody's."""
    with store.locked(host, "the mesh"):
        admitted = {member.key: member.address for member in node.view.members}
        request = _enrolment(host, node)
        granted = etcdissue.grant(host, node, request, admitted=admitted)
        etcdmember.take_grant(host, node, granted, trusted=True)


def _birth(host: Host, node: Node, own_etcd: Callable[[], Duty]) -> Duty:
    """A formation that was just confirmed begins here and now; the round trips come after it."""
    if etcdstore.load_authority(host) is None:
        return nothing("birth", "another node holds the root")
    if talk.clock_is_off(host):
        waiting = Waiting(what="the birth of the cluster", waiting_for=CLOCK, why=CLOCK_DIFFERS)
        return waits("birth", waiting, is_open=True)
    record = etcdbirth.begin(host, node)
    if record is None:
        seen = etcdbirth.holder_duty(host, node)
    else:
        own_etcd()
        seen = etcdbirth.tell_all(host, node, record)
    if seen.told:
        return done("birth", f"told {', '.join(seen.told)}", is_open=True)
    if seen.waiting:
        return waits("birth", *seen.waiting, is_open=True)
    return nothing("birth", "no birth is due")


def _own_etcd(host: Host, load_spec: LoadSpec, enable_spec: EnableSpec, node: Node) -> Duty:
    before = etcdstore.load_cluster(host)
    left: Plan = etcdmember.settle(host, load_spec, enable_spec, node)
    after = etcdstore.load_cluster(host)
    if left.waiting:
        return waits("etcd", *left.waiting)
    if before != after:
        return done("etcd", f"this member is {after.stage}")
    return nothing("etcd", f"this member is {after.stage}")


def _lived(host: Host, spec: Spec) -> Duty:
    """Count the hours that this disk lives through, and its starts: a restored one knows fewer
    than its peers were told. Only while etcd runs: its guard asks the peers first."""
    name = "lived"
    if not etcdmember.sees_leader(host) or _counted_lately(host):
        return nothing(name, "counted within the hour")
    with store.locked(host, "the mesh"):
        before = etcdstore.load_lived(host)
        after = replace(before, counter=before.counter + 1)
        etcdstore.save_lived(host, after)
        selfrecord.refresh(host, spec, store.require(host), lived=after.counter)
        host.files.make_dir(host.paths.run, mode=0o755)
        stamp = f"{host.clock.monotonic():.0f}".encode()
        host.files.write(host.paths.lived_counted, stamp)
    return nothing(name, f"counted {after.counter}")


def _counted_lately(host: Host) -> bool:
    """Whether this boot counted within the hour; /run forgets with the boot."""
    raw = host.files.read(host.paths.lived_counted)
    age = host.clock.monotonic() - float(raw) if raw and raw.isdigit() else -1.0
    return 0 <= age < LIVED_SECONDS


def _wait(name: str, what: str, whom: str, why: str) -> Duty:
    return waits(name, Waiting(what=what, waiting_for=whom, why=why))


def _pace(host: Host, duties: tuple[Duty, ...], removed: frozenset[SigningKey]) -> None:
    """The fast timer runs while a transition is open on this node, and only then."""
    if any(duty.open for duty in duties) or etcdbirth.is_open(host, removed):
        host.units.start(up.FAST_TIMER, block=False)
        return
    host.units.stop(up.FAST_TIMER)
    # one may have come while this pass ended: its kick met a running unit
    if etcdbirth.is_open(host, removed):
        host.units.start(up.FAST_TIMER, block=False)
