"""A removed member's place in etcd: the gates before, the end of it after, and what is enforced
(E18).

Owns the order of effects around keel.mesh.expulsion's judgement. The peer goes by the network
window, the certificates by keel.mesh.etcdrevoke.

Rules:
(R1) The gates are looked at before anything is signed or cut; of two voters the one that goes is
     taken out there and then, while both still carry the change. By votes and by a block its peer
     goes before its place can: so goes neither of two.
(R2) Otherwise etcd is told last: the removal counts, the peer is gone, then `member remove`.
(R3) Any tend that holds a counting removal finishes what is left of it; nobody else takes a member
     out. A removal that is local leaves etcd alone.
(R4) What is not enforced yet is said, with what it waits for, until it is.
(R5) Whoever knows of its own removal runs no etcd.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import IPv6Address
from typing import NoReturn

from keel import codec
from keel.errors import KeelError, PeerError, Refused
from keel.etcdport import DataState, EtcdMember
from keel.mesh import (
    etcdbirth,
    etcdchange,
    etcdmember,
    etcdown,
    etcdrevoke,
    etcdstart,
    etcdstore,
    etcdtaken,
    expulsion,
    store,
    up,
)
from keel.mesh.duty import Duty, done, nothing, waits
from keel.mesh.etcdbirth import Answers
from keel.mesh.etcdchange import AlreadySo, Changed, NoQuorum
from keel.mesh.etcdcrl import Reason
from keel.mesh.etcdmsg import RecordState
from keel.mesh.etcdplan import DATA_LOST
from keel.mesh.etcdstate import Cluster, Stage
from keel.mesh.expulsion import Consent, Gate, Seat
from keel.mesh.members import Member
from keel.mesh.records import Admission, Genesis, Removal, SelfRecord, Vote
from keel.mesh.store import Node
from keel.mesh.window import Means
from keel.outcome import Waiting
from keel.ports import Deadline, Host
from keel.types import Capability, EtcdMemberId, SigningKey
from keel.unitnames import ETCD_UNIT

NAME = "expulsion"
SETTLE_SECONDS = 20.0
"""What a removal waits for etcd itself: where the one that went was the leader, another is elected
once its peer is gone everywhere."""
PAUSE_SECONDS = 2.0
SOON = timedelta(minutes=10)
"""So long after a removal the tend looks every few seconds for the quorum that it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Enforced:
    """What holds now of a removal, in sentences, and what does not yet."""

    holds: tuple[str, ...] = ()
    waiting: tuple[Waiting, ...] = ()


def before_removal(
    host: Host,
    node: Node,
    subject: Member,
    consent: Consent | None = None,
    *,
    command: str,
    means: Means = Means.REMOVAL,
    dry_run: bool = False,
) -> tuple[str, ...]:
    """Pass the gates of a removal before its window opens; what the operator has to know first.
    Refused (removal-no-quorum, removal-one-voter). Changes nothing but with consent to one voter:
    that member is out of etcd's list when this returns (R1). `dry_run`: changes nothing.
    `command`: what was typed, without its options of consent."""
    carries = means is not Means.BLOCK or _in_cluster(host)
    if subject.capability is not Capability.ETCD or not carries:
        return ()
    seats = _seats_before(host, node)
    listed = seats or not _in_cluster(host)
    found = expulsion.gate(seats, subject.address) if listed else _gate_unseen(host, subject)
    if found is Gate.ONE_VOTER and means is not Means.REMOVAL:
        found = Gate.NO_QUORUM  # its peer goes now, its place only once the removal counts
    expulsion.refuse(found, subject.display, consent or Consent(), command=command)
    if means is Means.BLOCK:
        return ()
    told = expulsion.warnings(seats, subject.address)
    if found is Gate.ONE_VOTER and not dry_run:
        _take_out_now(host, seats, subject)
    return told


def after_removal(host: Host, node: Node, key: SigningKey, name: str) -> Enforced:
    """What a removal comes to in etcd, once it counts and the peer is gone: done now as far as it
    can be, the rest by the tends. Never fails: what could not be done is among the waiting."""
    if key not in node.view.removed or not _was_capable(node, key):
        return Enforced()
    holds: list[str] = []
    waiting: list[Waiting] = []
    for part in (_end_place, _end_certificates):
        try:
            found = part(host, node, key, name)
        except KeelError as error:
            found = Waiting(what=f"{name} in etcd", waiting_for="the timer", why=error.summary())
        if isinstance(found, Waiting):
            waiting.append(found)
        else:
            holds.append(found)
    up.kick_tend(host)
    return Enforced(holds=tuple(holds), waiting=tuple(waiting))


def duty(host: Host, node: Node) -> Duty:
    """Take out of etcd's list whoever a counting removal names (R3)."""
    if not _in_cluster(host):
        return nothing(NAME, "this node is in no cluster")
    if not _is_due(host, node):
        return nothing(NAME, "nobody who was removed is listed")
    did: list[str] = []
    answers, are_new = etcdbirth.probe_capable(host, node), True
    while True:  # each step makes the list shorter, or ends the pass
        seen = _seats(host, node, answers)
        if isinstance(seen, Waiting):
            return waits(NAME, seen, is_open=_is_fresh(host, node))
        seats, doors = seen
        plan = expulsion.plan(seats)
        if not are_new and (plan.steps or plan.waiting):  # the members' words decide who may go
            answers, are_new = etcdbirth.probe_capable(host, node), True
            continue
        if not plan.steps:
            break
        stuck = _expel(host, seats, doors, EtcdMemberId(int(plan.steps[0].subject, 16)))
        if stuck is not None:
            return waits(NAME, stuck, *plan.waiting, is_open=True)
        did.append(plan.steps[0].why)
        are_new = False
    if plan.waiting:
        return waits(NAME, *plan.waiting, is_open=_is_fresh(host, node))
    _note_clean(host, node)
    if did:
        return done(NAME, "; ".join(did), is_open=True)
    return nothing(NAME, "nobody who was removed is listed")


def retire(host: Host) -> NoReturn:
    """What is left to do on a node that knows of its own removal: its etcd is stopped, and Refused
    says what to do (R5)."""
    if etcdmember.is_laid(host):
        host.overlay.stop()
    raise Refused(
        "node-removed",
        "this node was removed from the mesh: nobody answers it, and its etcd must not run",
        "`keel mesh leave` here moves its keys and state aside; then join with a new invite",
    )


def refuse_expelled(host: Host, node: Node) -> None:
    """Refused on a member that etcd's own list has no more, though the mesh has it: a person took
    it out, or its removal is half done. Asked only while its own etcd does not run."""
    cluster = etcdstore.load_cluster(host)
    if host.units.state(ETCD_UNIT).active == "active":
        return
    if cluster.stage is Stage.STARTING:
        _refuse_lost(host, node, cluster)
    if cluster.stage is not Stage.FORMED:
        return
    answers = etcdbirth.probe_capable(host, node)
    found = etcdchange.read_list(host, _doors(answers))
    if isinstance(found, NoQuorum) or etcdchange.by_address(found.members, node.address):
        return
    raise Refused(
        "etcd-member-removed",
        "etcd's list has this member no more, so its etcd would end at once",
        "`keel mesh etcd recover --replace` gives it a new place in the cluster",
    )


def _refuse_lost(host: Host, node: Node, cluster: Cluster) -> None:
    """The guard's refusal (start-data-missing), told where people look: this member started once,
    and its data is gone."""
    record = etcdtaken.current_record(host)
    absent = host.overlay.data_state() is not DataState.PRESENT
    later = record is not None and record.state is RecordState.EXISTING
    if record is None or not (later and absent and etcdstart.begun(host, cluster)):
        return
    asked = etcdtaken.wants_replacement(host, node.key)
    if not asked and etcdstart.served(host.etcd_at, record, node.address):
        raise Refused(
            "etcd-data-missing", "this member served before, and its data is gone", DATA_LOST
        )


def _end_place(host: Host, node: Node, key: SigningKey, name: str) -> str | Waiting:
    """Its place in etcd's list, as far as this node can end it."""
    if not _in_cluster(host):
        return f"etcd: the cluster's members take {name} out of their list by themselves"
    host.console.waiting(f"taking {name} out of etcd's list of members")
    deadline = Deadline.after(host.clock, SETTLE_SECONDS)
    found = duty(host, node)
    while found.waiting and not deadline.passed(host.clock):
        host.clock.sleep(PAUSE_SECONDS)
        found = duty(host, node)
    address = node.roster.founding.address_of(key)
    mine = next((one for one in found.waiting if name in one.what), None)
    if mine is not None or found.waiting:
        return mine or found.waiting[0]
    record = etcdtaken.current_record(host)
    was = record is not None and address in record.members
    return f"etcd: {name} is {'out of' if was else 'not in'} the list of members"


def _end_certificates(host: Host, node: Node, key: SigningKey, name: str) -> str | Waiting:
    """Its certificates: revoked here on the holder, asked of the holder elsewhere."""
    address = node.roster.founding.address_of(key)
    reason = Reason.CESSATION
    with store.locked(host, "the mesh"):
        if etcdstore.load_authority(host) is not None:
            number = etcdrevoke.revoke(host, node, address=address, key=key, reason=reason)
            return f"etcd: CRL {number} revokes the certificates of {name}"
        entry = etcdrevoke.request(host, node, address=address, key=key, reason=reason)
    try:
        answer = etcdrevoke.ask_holder(host, node, entry)
    except PeerError as error:
        return f"etcd: the holder revoked nothing: {error.text}"
    if isinstance(answer, Waiting):
        return answer
    return f"etcd: the holder's CRL {answer} revokes the certificates of {name}"


def _in_cluster(host: Host) -> bool:
    return etcdstore.load_cluster(host).stage is not Stage.IDLE


def _seats_before(host: Host, node: Node) -> tuple[Seat, ...]:
    """As _seats, or by the members' words on a node that has no etcd to ask; () when nothing is
    known."""
    answers = etcdbirth.probe_capable(host, node)
    seen = _seats(host, node, answers)
    if not isinstance(seen, Waiting):
        return seen[0]
    return () if _in_cluster(host) else _seats_by_word(node, answers)


def _seats_by_word(node: Node, answers: Answers) -> tuple[Seat, ...]:
    """Whoever says that it is in the cluster, and whoever is silent: it may be."""
    if not any(one.stage is Stage.FORMED for one in answers.values()):
        return ()
    return tuple(
        Seat(
            id=EtcdMemberId(0),
            name=member.display,
            address=member.address,
            learner=False,
            healthy=member in answers and answers[member].sees_leader,
        )
        for member in node.view.members
        if member.capability is Capability.ETCD
        and member.key != node.key
        and (member not in answers or answers[member].stage is not Stage.IDLE)
    )


def _gate_unseen(host: Host, subject: Member) -> Gate:
    """Without a list: a member of the cluster's record has a place, and no quorum is seen."""
    record = etcdtaken.current_record(host)
    listed = record is not None and subject.address in record.members
    return Gate.NO_QUORUM if listed else Gate.NOT_LISTED


def _seats(
    host: Host, node: Node, answers: Answers
) -> tuple[tuple[Seat, ...], tuple[IPv6Address, ...]] | Waiting:
    """etcd's list with what the members say of themselves, and whose etcd can be asked."""
    doors = _doors(answers)
    found = etcdchange.read_list(host, doors)
    if isinstance(found, NoQuorum):
        return expulsion.still_listed(_missed(host, node), "the cluster's leader", found.why)
    healthy = set(doors)
    if etcdown.sees_leader(host):
        healthy.add(node.address)
    gone = expulsion.removed_at(node.roster, node.view)
    seats = []
    for member in found.members:
        address = etcdchange.address_of(member) or IPv6Address(0)
        live = node.view.by_address(address)
        seats.append(
            Seat(
                id=EtcdMemberId(member.id),
                name=live.display if live else _listed_name(node, gone, address, member),
                address=address,
                learner=member.learner,
                healthy=address in healthy,
                removed=address in gone,
            )
        )
    return tuple(seats), doors


def _missed(host: Host, node: Node) -> str:
    """Who of the removed is a member by the newest record; etcd itself can't be asked."""
    gone, record = expulsion.removed_at(node.roster, node.view), etcdtaken.current_record(host)
    listed = [one for one in record.members if one in gone] if record is not None else []
    return (
        ", ".join(expulsion.name_of(node.roster, gone[one]) for one in listed) or "a removed member"
    )


def _doors(answers: Answers) -> tuple[IPv6Address, ...]:
    return tuple(member.address for member, one in answers.items() if one.sees_leader)


def _listed_name(
    node: Node, gone: dict[IPv6Address, SigningKey], address: IPv6Address, member: EtcdMember
) -> str:
    return (
        expulsion.name_of(node.roster, gone[address])
        if address in gone
        else etcdchange.text_of(member)
    )


def _expel(
    host: Host, seats: Sequence[Seat], doors: Sequence[IPv6Address], member: EtcdMemberId
) -> Waiting | None:
    """One member out of the list, or what that waits for."""
    name = next(one.name for one in seats if one.id == member)
    change = etcdchange.remove(host, member, doors)
    if isinstance(change, Changed | AlreadySo):
        host.console.say(f"etcd: {name} is out of the list of members")
        return None
    found = etcdchange.waiting(name, change, {one.address: one.name for one in seats})
    return expulsion.still_listed(name, found.waiting_for, found.why)


def _take_out_now(host: Host, seats: Sequence[Seat], subject: Member) -> None:
    """R1; Refused when it did not go, with the mesh as it was."""
    mine = next(one for one in seats if one.address == subject.address)
    other = [one.address for one in seats if one.address != subject.address]
    stuck = _expel(host, seats, other, mine.id)
    if stuck is not None:
        raise Refused(
            "removal-not-taken-out",
            f"etcd did not take {subject.display} out: {stuck.why}",
            "look at `keel mesh etcd status`, then run this again: the mesh is as it was",
        )


def _is_due(host: Host, node: Node) -> bool:
    """Whether somebody removed may be listed: by the record, or because nobody looked since the
    last removal (or the boot)."""
    gone = expulsion.removed_at(node.roster, node.view)
    record = etcdtaken.current_record(host)
    if record is not None and any(one in gone for one in record.members):
        return True
    return bool(gone) and host.files.read(host.paths.expelled) != _clean(node)


def _is_fresh(host: Host, node: Node) -> bool:
    """Whether somebody was removed a moment ago: what stands in the way then soon does not. When a
    record was signed is its signer's word, and may be any time."""
    now = host.clock.now()
    return any(
        isinstance(entry.body, Removal | Vote) and abs(now - entry.body.time) < SOON
        for entry in node.roster.entries.values()
    )


def _note_clean(host: Host, node: Node) -> None:
    store.keep_hint(host, host.paths.expelled, _clean(node))


def _clean(node: Node) -> bytes:
    return codec.dumps(tuple(sorted(node.view.removed)))


def _was_capable(node: Node, key: SigningKey) -> bool:
    """Whether it ever said that it can run etcd."""
    said: list[Capability] = [
        entry.body.capability
        for entry in node.roster.entries.values()
        if (isinstance(entry.body, SelfRecord) and entry.signer == key)
        or (isinstance(entry.body, Admission) and entry.body.ed25519 == key)
    ]
    founder: Genesis = node.roster.founding.genesis
    if founder.ed25519 == key:
        said.append(founder.capability)
    return Capability.ETCD in said
