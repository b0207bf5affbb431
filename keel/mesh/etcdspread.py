"""Records of a cluster that lives: signed after every change of etcd's list, sent to who lacks one.

Owns when the holder signs `existing` again and who is sent it. The list itself is etcd's.

Rules:
(S1) A record names exactly the members that etcd lists, under the book's next epoch, and the book
     is on disk before the record leaves.
(S2) A node that gets a new place under a new ID is sent a record of its own that says which ID it
     replaces; nobody else ever sees that one. One whose operator wished for the place is not sent
     it, but asks: its wish ends with the taking (keel.mesh.etcdrecover), never after its start.
(S3) Nobody is told to start over an empty directory as a member that started before.
(S4) No record is signed that nobody lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv6Address

from keel.errors import KeelError
from keel.etcdport import EtcdMember
from keel.mesh import birth, etcdbook, etcdchange, etcdissue, etcdstore, etcdtaken, store, talk
from keel.mesh.birth import Formation
from keel.mesh.etcdbirth import CLUSTER, Answers
from keel.mesh.etcdmsg import ClusterRecord, ProbeAnswer, RecordState, TakeRecord, TakeRecordAnswer
from keel.mesh.etcdstate import Stage
from keel.mesh.exchange import ETCD_PATH
from keel.mesh.members import Member
from keel.mesh.store import Node
from keel.ports import Host
from keel.types import EtcdMemberId

EtcdMembers = tuple[EtcdMember, ...]


def spread(host: Host, node: Node, listed: EtcdMembers, answers: Answers) -> tuple[str, ...]:
    """Sign what etcd's list calls for, and send it to every listed member that answered and lacks
    it; who was told. Nothing is signed or sent when nobody lacks anything (S4)."""
    with store.locked(host, "the mesh"):
        common, lacking = _common(host, node, listed, answers)
        own = _own_places(host, node, listed, answers)
    return send(host, node, {**dict.fromkeys(lacking, common), **own})


def record_for(host: Host, node: Node, listed: EtcdMembers, address: IPv6Address) -> bytes:
    """The record for the member at that address, whom the holder can't ask now (it joins, or asks
    for a new place): the common one, or its own when it replaces an ID (S2)."""
    with store.locked(host, "the mesh"):
        replaces = _replaces(host, address)
        if replaces is not None:
            return _sign(host, node, listed, replaces=replaces)
        held, raw = etcdtaken.current_record(host), etcdstore.load_record(host)
        if held is None or raw is None or _differs(host, held, listed):
            return _sign_common(host, node, listed)
        lives = host.clock.now() < held.expires and held.state is RecordState.EXISTING
        return raw if lives else _sign_common(host, node, listed)


def send(host: Host, node: Node, records: Mapping[Member, bytes]) -> tuple[str, ...]:
    """Who took theirs."""
    if not records:
        return ()
    heard = talk.ask_all(
        host,
        node,
        {member: TakeRecord(record=record) for member, record in records.items()},
        CLUSTER,
        TakeRecordAnswer,
        path=ETCD_PATH,
    )
    return tuple(m.display for m, answer in heard.items() if not isinstance(answer, KeelError))


def _common(
    host: Host, node: Node, listed: EtcdMembers, answers: Answers
) -> tuple[bytes, tuple[Member, ...]]:
    """The record for everybody, signed anew when it has to be, and who lacks it."""
    held, raw = etcdtaken.current_record(host), etcdstore.load_record(host)
    if held is None or raw is None or _differs(host, held, listed):
        raw = _sign_common(host, node, listed)
        all_of_them = (m for m, answer in answers.items() if _may_have_it(host, listed, m, answer))
        return raw, tuple(all_of_them)
    expired = held.expires <= host.clock.now()
    lacking = tuple(
        member
        for member, answer in answers.items()
        if _may_have_it(host, listed, member, answer)
        and _lacks(held, answer, expired=expired, born=_started(listed, member))
    )
    if lacking and (expired or held.state is RecordState.NEW):
        raw = _sign_common(host, node, listed)
    return raw, lacking


def _lacks(held: ClusterRecord, answer: ProbeAnswer, *, expired: bool, born: bool) -> bool:
    """Whether a member's own record is older, or of a birth that is over before it was born."""
    if answer.epoch < held.epoch:
        return not (expired and _serves(answer))
    return held.state is RecordState.NEW and not born and not _serves(answer)


def _own_places(
    host: Host, node: Node, listed: EtcdMembers, answers: Answers
) -> dict[Member, bytes]:
    """Records with `replaces`, for who did not hear of its new place and does not ask (S2)."""
    held = etcdtaken.current_record(host)
    epoch = 0 if held is None else held.epoch
    found = {}
    for member, answer in answers.items():
        replaces = _replaces(host, member.address)
        listed_now = etcdchange.by_address(listed, member.address) is not None
        due = listed_now and not _started(listed, member) and answer.epoch <= epoch
        if replaces is not None and due and not answer.replacing:
            found[member] = _sign(host, node, listed, replaces=replaces)
    return found


def _may_have_it(host: Host, listed: EtcdMembers, member: Member, answer: ProbeAnswer) -> bool:
    if etcdchange.by_address(listed, member.address) is None:
        return False
    if _started(listed, member):
        return answer.stage is not Stage.IDLE  # S3
    return _replaces(host, member.address) is None


def _started(listed: EtcdMembers, member: Member) -> bool:
    mine = etcdchange.by_address(listed, member.address)
    return mine is not None and bool(mine.client_urls)


def _replaces(host: Host, address: IPv6Address) -> EtcdMemberId | None:
    open_one = etcdstore.load_growth(host).open
    return open_one.replaces if open_one is not None and open_one.address == address else None


def _serves(answer: ProbeAnswer) -> bool:
    return answer.etcd is not None and bool(answer.etcd.leader)


def _differs(host: Host, held: ClusterRecord, listed: EtcdMembers) -> bool:
    return (held.formation, held.members) != (
        _formation(host).formation,
        etcdchange.addresses(listed),
    )


def _sign_common(host: Host, node: Node, listed: EtcdMembers) -> bytes:
    """Signed, and taken by the holder itself; one that is not listed keeps it all the same, so
    that it knows what it signed (S4)."""
    raw = _sign(host, node, listed)
    if node.address in etcdchange.addresses(listed):
        etcdtaken.take_record(host, node, raw)
    else:
        etcdstore.save_record(host, raw)
    return raw


def _sign(
    host: Host, node: Node, listed: EtcdMembers, *, replaces: EtcdMemberId | None = None
) -> bytes:
    book = etcdbook.use_epoch(host, etcdstore.load_book(host))
    return etcdissue.sign_record(
        host,
        node,
        _formation(host),
        epoch=book.epoch,
        state=RecordState.EXISTING,
        members=etcdchange.addresses(listed),
        replaces=replaces,
    )


def _formation(host: Host) -> Formation:
    book = etcdstore.load_book(host)
    return birth.formation_of(book, book.formed)
