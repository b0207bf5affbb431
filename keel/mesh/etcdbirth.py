"""The holder's flow of a birth: at an admission, at its confirmation, and as a duty of the tend.

Owns the order of effects around keel.mesh.birth's decisions (E8, E10).

Rules:
(F1) Peers and the own etcd are asked before the lock is taken; what is decided is decided under
     it.
(F2) The book is on disk before a record that follows from it leaves.
(F3) Until a formation is confirmed, nobody but its joiner is given a record of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from keel import codec
from keel.errors import KeelError
from keel.mesh import (
    birth,
    etcdbook,
    etcdissue,
    etcdlapse,
    etcdmemory,
    etcdown,
    etcdreserve,
    etcdstore,
    etcdtaken,
    exchange,
    members,
    selfrecord,
    store,
    talk,
    up,
)
from keel.mesh.birth import (
    AskToGiveUp,
    BirthView,
    Candidate,
    Formation,
    GiveBirth,
    HolderBook,
    NoBirth,
    Party,
    SameBirth,
)
from keel.mesh.etcdgrants import first_granted, live_grant
from keel.mesh.etcdholder import holder_of
from keel.mesh.etcdmsg import (
    PROBE,
    PROBE_SECONDS,
    GiveUp,
    GiveUpAnswer,
    Probe,
    ProbeAnswer,
    RecordState,
    TakeRecord,
    TakeRecordAnswer,
)
from keel.mesh.etcdrequests import check_given_up
from keel.mesh.etcdstate import Stage
from keel.mesh.exchange import ETCD_PATH
from keel.mesh.invite import Claim, claimed_members
from keel.mesh.joinmsg import EtcdPart
from keel.mesh.members import Member
from keel.mesh.store import Node
from keel.mesh.token import EtcdHint
from keel.outcome import Waiting
from keel.ports import Host, Meanwhile
from keel.types import Capability, SigningKey

CLUSTER = "cluster"
GIVE_UP = "give-up"

Answers = Mapping[Member, ProbeAnswer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the holder's duty saw and did in one pass."""

    answers: Answers
    waiting: tuple[Waiting, ...]
    told: tuple[str, ...] = ()


def capable_others(node: Node) -> tuple[Member, ...]:
    """The others who say that they can run etcd."""
    return tuple(m for m in talk.others(node) if m.capability is Capability.ETCD)


def probe_capable(host: Host, node: Node) -> Answers:
    """The signed answers of every capable member that answers now."""
    return probe(host, node, capable_others(node))


def probe(host: Host, node: Node, members: Collection[Member]) -> Answers:
    """The signed answers of those of the members that answer now; on the holder they also show
    whether it remembers less than they do."""
    heard = talk.ask_all(
        host,
        node,
        dict.fromkeys(members, Probe()),
        PROBE,
        ProbeAnswer,
        path=ETCD_PATH,
        timeout_seconds=PROBE_SECONDS,
    )
    said = {m: answer.body for m, answer in heard.items() if not isinstance(answer, KeelError)}
    etcdmemory.notice(host, node, said)
    return said


def give_etcd_part(host: Host, node: Node, claim: Claim) -> EtcdPart:
    """The registry's part of an admission: the grant, and at the third the birth's record."""
    if claim.enrolment is None:
        return EtcdPart(state=EtcdHint.NONE)
    if etcdstore.load_authority(host) is None:
        return _holder_is_elsewhere(host, node)
    with store.locked(host, "the mesh"):
        etcdbook.note_confirmed(host, node)
        formed = etcdbook.note_leader(host, node).formed is not None
    answers = {} if formed else probe_capable(host, node)
    leader = formed or etcdown.sees_leader(host)
    with store.locked(host, "the mesh"):
        node = store.require(host)
        admitted = {member.key: member.address for member in node.view.members}
        for address, open_claim in claimed_members(
            store.load_invites(host), host.clock.now()
        ).items():
            admitted[open_claim.ed25519] = address
        etcdlapse.watch(host, node, claim)
        granted = etcdissue.grant(
            host, node, claim.enrolment, admitted=admitted, wireguard=claim.wireguard
        )
        joiner = Party(address=claim.address, key=claim.ed25519)
        hint, record, note = _birth_at_admission(host, node, answers, joiner, sees_leader=leader)
    return EtcdPart(
        state=hint, holder=node.key, grant=codec.dumps(granted), cluster_record=record, note=note
    )


def joined(host: Host, key: SigningKey) -> None:
    """A joiner confirmed: its reservation becomes a formation, and the tend goes on with it."""
    if etcdstore.load_authority(host) is not None:
        with store.locked(host, "the mesh"):
            etcdstore.save_book(host, birth.confirm(etcdstore.load_book(host), key))
            etcdlapse.confirmed(host, key)
    up.kick_tend(host)


def is_open(host: Host, removed: frozenset[SigningKey]) -> bool:
    """Whether this node is in the middle of a birth: it started, or has to begin one."""
    if etcdstore.load_cluster(host).stage is Stage.STARTING:
        return True
    formation = birth.under_way(etcdstore.load_book(host), removed)
    held = etcdtaken.current_record(host)
    return formation is not None and (held is None or held.formation != formation.formation)


def begin(host: Host, node: Node) -> bytes | None:
    """The record of a formation that was confirmed since the last pass, taken by the holder itself;
    asks nobody: the others wait for it."""
    with store.locked(host, "the mesh"):
        book = etcdbook.note_confirmed(host, node)
        formation = birth.under_way(book, frozenset(node.view.removed))
        held = etcdtaken.current_record(host)
        if (
            book.formed
            or formation is None
            or (held is not None and held.formation == formation.formation)
        ):
            return None
        return _record_for(host, node, book, formation)


def tell_all(host: Host, node: Node, record: bytes, *, meanwhile: Meanwhile) -> Seen:
    """Send a formation's record to its other parties at once: they have not started yet, and to
    ask each before would only cost a round trip. The holder's own etcd is started `meanwhile`: no
    leader is elected in a hurry before all three are there, so neither is to wait for the other."""
    listed = etcdtaken.parse_record(record).members
    parties = [member for member in talk.others(node) if member.address in listed]
    return Seen(answers={}, waiting=(), told=_send(host, node, record, parties, meanwhile))


def holder_duty(host: Host, node: Node) -> Seen:
    """Give birth when it is time, and see to it that every party of a formation has its record, or
    that it is given up once it can have no leader."""
    with store.locked(host, "the mesh"):
        if etcdbook.note_leader(host, node).formed is not None:
            return Seen(answers={}, waiting=())  # from then on the list is etcd's
    answers = probe_capable(host, node)
    leader = etcdown.sees_leader(host)
    record = None
    with store.locked(host, "the mesh"):
        node = store.require(host)
        etcdbook.note_confirmed(host, node)
        view = birth_view(host, node, answers, sees_leader=leader)
        decided = birth.plan_birth(view, host.clock.now())
        book = (
            etcdbook.reserve(host, view, decided) if isinstance(decided, GiveBirth) else view.book
        )
        formation = birth.under_way(book, view.removed)
        abandoned = isinstance(decided, AskToGiveUp)
        if formation and not abandoned:
            record = _record_for(host, node, book, formation)
    if isinstance(decided, AskToGiveUp):
        return Seen(answers=answers, waiting=(_give_up(host, node, decided),))
    told = _tell_parties(host, node, formation, record, answers) if formation and record else ()
    waiting = (decided,) if isinstance(decided, Waiting) else ()
    return Seen(answers=answers, waiting=waiting, told=told)


def birth_view(
    host: Host,
    node: Node,
    answers: Answers,
    *,
    sees_leader: bool,
    joiner: Party | None = None,
) -> BirthView:
    """What the holder knows, in the planner's words; `sees_leader`: its own etcd does."""
    ledger = etcdstore.load_ledger(host)
    by_key = {member.key: answer for member, answer in answers.items()}
    candidates = []
    for member in talk.others(node):
        granted = first_granted(ledger, member.address, member.key)
        if granted is None or member.capability is not Capability.ETCD:
            continue
        answer = by_key.get(member.key)
        candidates.append(
            Candidate(
                name=member.display,
                party=Party(address=member.address, key=member.key),
                granted=granted,
                ready=live_grant(ledger, member.address, member.key) is not None
                and (answer is None or answer.stage is Stage.IDLE),
                answers=answer is not None,
                sees_leader=answer is not None and answer.sees_leader,
            )
        )
    return BirthView(
        mesh=node.mesh,
        holder=Party(address=node.address, key=node.key),
        book=etcdstore.load_book(host),
        candidates=tuple(candidates),
        joiner=joiner,
        holder_ready=etcdstore.load_intermediate(host) is not None,
        holder_sees_leader=sees_leader,
        window_open=store.window_is_open(host),
        by_hand=etcdreserve.forms_here(host, node),
        removed=frozenset(node.view.removed),
        started_here=etcdbook.started_here(host),
    )


def _birth_at_admission(
    host: Host, node: Node, answers: Answers, joiner: Party, *, sees_leader: bool
) -> tuple[EtcdHint, bytes | None, str | None]:
    view = birth_view(host, node, answers, joiner=joiner, sees_leader=sees_leader)
    decided = birth.plan_birth(view, host.clock.now())
    match decided:
        case GiveBirth():
            book = etcdbook.reserve(host, view, decided)
            formation = book.formations[-1]
            if joiner not in formation.members:
                return EtcdHint.WAITING, None, "others were granted earlier and form first"
            return EtcdHint.FORMS, _sign_new(host, node, formation, book.epoch), None
        case SameBirth():
            return EtcdHint.FORMS, _sign_again(host, node, view.book, decided.formation), None
        case Waiting():
            return EtcdHint.WAITING, None, f"{decided.what}: {decided.why}"
        case NoBirth():
            hint = EtcdHint.RUNNING if view.book.formed else EtcdHint.WAITING
            return hint, None, decided.why
        case _:
            return EtcdHint.WAITING, None, "an earlier formation has to be given up first"


def _holder_is_elsewhere(host: Host, node: Node) -> EtcdPart:
    holder = holder_of(host, node)
    if holder is None:
        return EtcdPart(state=EtcdHint.NONE, note="this mesh has no etcd root yet")
    member = node.view.by_key(holder)
    name = member.display if member else "a node that is gone"
    return EtcdPart(
        state=EtcdHint.WAITING, holder=holder, note=f"{name} holds the etcd root and grants"
    )


def _sign_new(host: Host, node: Node, formation: Formation, epoch: int) -> bytes:
    return etcdissue.sign_record(host, node, formation, epoch=epoch, state=RecordState.NEW)


def _sign_again(host: Host, node: Node, book: HolderBook, formation: Formation) -> bytes:
    """The same birth under the next epoch."""
    book = etcdbook.use_epoch(host, book)
    return _sign_new(host, node, formation, book.epoch)


def _give_up(host: Host, node: Node, asked: AskToGiveUp) -> Waiting:
    """Have a formation given up by those who are left of it, this node first, and note their signed
    words; what the birth waits for then."""
    keys = {party.key for party in asked.members}
    members = [member for member in talk.others(node) if member.key in keys]
    own = keys & {node.key}
    statements = {key: etcdtaken.give_up(host, node, asked.formation) for key in own}
    heard = talk.ask_all(
        host,
        node,
        dict.fromkeys(members, GiveUp(formation=asked.formation)),
        GIVE_UP,
        GiveUpAnswer,
        path=ETCD_PATH,
    )
    statements |= {
        member.key: one.body.statement
        for member, one in heard.items()
        if not isinstance(one, KeelError)
    }
    with store.locked(host, "the mesh"):
        book = etcdstore.load_book(host)
        formation = birth.formation_of(book, asked.formation)
        for key, raw in statements.items():
            check_given_up(raw, mesh=node.mesh, formation=formation, key=key)
            book = birth.note_given_up(book, asked.formation, key)
        etcdstore.save_book(host, book)
    silent = ", ".join(member.display for member in members if member.key not in statements)
    return Waiting(
        what="the birth of the cluster",
        waiting_for=silent or "the next pass",
        why="a formation that can have no leader any more is given up first",
    )


def _record_for(host: Host, node: Node, book: HolderBook, formation: Formation) -> bytes:
    """The record that the parties are to have, taken by the holder itself first: the one it has,
    or a new one when that has expired."""
    held = etcdtaken.current_record(host)
    raw = etcdstore.load_record(host)
    if (
        held is not None
        and raw is not None
        and held.formation == formation.formation
        and host.clock.now() < held.expires
    ):
        # a kill may have come between the record and the stage that names it
        etcdtaken.take_record(host, node, raw)
        return raw
    signed = _sign_again(host, node, book, formation)
    etcdtaken.take_record(host, node, signed)
    return signed


def _tell_parties(
    host: Host, node: Node, formation: Formation, record: bytes, answers: Answers
) -> tuple[str, ...]:
    """Send the record to every party that answers and is not in the cluster yet."""
    held = etcdtaken.current_record(host)
    epoch = held.epoch if held else 0
    parties = {one.key for one in formation.members}
    lacking = [
        member
        for member, answer in answers.items()
        if member.key in parties and not answer.sees_leader and answer.epoch < epoch
    ]
    return _send(host, node, record, lacking)


def _send(
    host: Host,
    node: Node,
    record: bytes,
    parties: list[Member],
    meanwhile: Meanwhile | None = None,
) -> tuple[str, ...]:
    message = TakeRecord(record=record, introductions=_introductions(node, record))
    heard = talk.ask_all(
        host,
        node,
        dict.fromkeys(parties, message),
        CLUSTER,
        TakeRecordAnswer,
        path=ETCD_PATH,
        meanwhile=meanwhile,
    )
    return tuple(m.display for m, answer in heard.items() if not isinstance(answer, KeelError))


def _introductions(node: Node, record: bytes) -> tuple[bytes, ...]:
    """What makes the parties of a record known to each other: admissions and self records."""
    listed = etcdtaken.parse_record(record).members
    found: dict[bytes, None] = {}
    for member in node.view.members:
        if member.address in listed:
            newest = selfrecord.newest_of(node, member.key)
            found |= dict.fromkeys(members.chain(node.roster, member.key))
            found |= {} if newest is None else {newest: None}
    return exchange.batch(found)
