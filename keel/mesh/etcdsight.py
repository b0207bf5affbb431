"""One look at the cluster by its holder: etcd's list, what the members say, and who waits in line.

Owns how the world becomes the planner's words (keel.mesh.growth), and that line and book on disk
follow it. Changes nothing of etcd's.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from ipaddress import IPv6Address

from keel.etcdport import EtcdMember
from keel.mesh import etcdchange, etcdown, etcdstore, etcdtaken, growth, store
from keel.mesh.birth import Party
from keel.mesh.etcdbirth import Answers, probe, probe_capable
from keel.mesh.etcdchange import NoQuorum
from keel.mesh.etcdgrants import first_granted, live_grant
from keel.mesh.etcdmsg import ProbeAnswer
from keel.mesh.etcdstate import Stage
from keel.mesh.growth import GrowthBook, GrowthView, Listed, Waiter, Word
from keel.mesh.invite import claimed_members
from keel.mesh.members import Member
from keel.mesh.store import Node
from keel.outcome import Waiting
from keel.ports import Host
from keel.types import Capability, EtcdMemberId, SigningKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Joiner:
    """Who is being admitted right now: not in the roster yet, and here it answers."""

    party: Party
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """etcd's list, what the members said, and both in the planner's words. `doors`: whose etcd can
    be asked when this node's own can't."""

    listed: tuple[EtcdMember, ...]
    answers: Answers
    view: GrowthView
    doors: tuple[IPv6Address, ...]
    found: etcdchange.MemberList


def look(
    host: Host,
    node: Node,
    *,
    near: EtcdMemberId | None = None,
    joiner: Joiner | None = None,
    replacing: SigningKey | None = None,
) -> Sight | Waiting:
    """Ask everybody, read etcd's list, and bring the line up to date on disk."""
    answers = probe_capable(host, node)
    doors = tuple(m.address for m, one in answers.items() if one.etcd and one.etcd.leader)
    found = etcdchange.read_list(host, doors)
    if isinstance(found, NoQuorum):
        return Waiting(
            what="the cluster's growth", waiting_for="the cluster's leader", why=found.why
        )
    answers = _asked_again(host, node, answers, found.members)
    own = etcdown.word(host)
    words = _words(node, found.members, answers, own)
    anew = {m.key for m, one in answers.items() if one.replacing}
    if replacing is not None:
        anew.add(replacing)
    if etcdtaken.wants_replacement(host, node.key):
        anew.add(node.key)
    with store.locked(host, "the mesh"):
        listed = _in_words(host, node, found.members, joiner)
        line = _line(host, node, found.members, answers, joiner, anew)
        book = _keep_book(host, listed, words)
    view = GrowthView(
        members=listed,
        words=words,
        line=line,
        book=book,
        near=near,
        replacing=frozenset(anew),
    )
    return Sight(listed=found.members, answers=answers, view=view, doors=doors, found=found)


def _asked_again(
    host: Host, node: Node, answers: Answers, members: tuple[EtcdMember, ...]
) -> Answers:
    """With newer answers of those who said that they want a new place and are listed as started:
    perhaps in the place that they were given since. Their wish ended before that start."""
    begun = {etcdchange.address_of(one) for one in members if one.client_urls}
    doubtful = [m for m, one in answers.items() if one.replacing and m.address in begun]
    if not doubtful:
        return answers
    sure = {member: one for member, one in answers.items() if member not in doubtful}
    return {**sure, **probe(host, node, doubtful)}


def _words(
    node: Node, members: tuple[EtcdMember, ...], answers: Answers, own: Word | None
) -> dict[EtcdMemberId, Word]:
    """What the members say of their own etcds; nobody speaks for an ID that etcd lists at another
    address."""
    said = {member.address: answer.etcd for member, answer in answers.items()}
    said[node.address] = own
    found = {}
    for address, word in said.items():
        mine = etcdchange.by_address(members, address)
        if word is not None and mine is not None and mine.id == word.member_id:
            found[word.member_id] = word
    return found


def _in_words(
    host: Host, node: Node, members: tuple[EtcdMember, ...], joiner: Joiner | None
) -> tuple[Listed, ...]:
    """etcd's members with the nodes that they are of: the mesh's, claimants', the joiner."""
    of: dict[IPv6Address, tuple[SigningKey, str]] = {}
    if joiner is not None:
        of[joiner.party.address] = (joiner.party.key, joiner.name)
    for claimed, claim in claimed_members(store.load_invites(host), host.clock.now()).items():
        of[claimed] = (claim.ed25519, claim.name)
    for one in node.view.members:
        of[one.address] = (one.key, one.display)
    found = []
    for member in members:
        address = etcdchange.address_of(member) or IPv6Address(0)
        key, name = of.get(address, (None, member.name or etcdchange.text_of(member)))
        found.append(
            Listed(
                id=EtcdMemberId(member.id),
                address=address,
                name=name,
                key=key,
                learner=member.learner,
                started=bool(member.client_urls),
            )
        )
    return tuple(found)


def _line(
    host: Host,
    node: Node,
    members: tuple[EtcdMember, ...],
    answers: Answers,
    joiner: Joiner | None,
    anew: Set[SigningKey],
) -> tuple[Waiter, ...]:
    """Everybody who may come in and is not listed, in the order of queue.json, which follows."""
    said = {member.key: answer for member, answer in answers.items()}
    ready = _ready(host, node, members, answers, anew)
    waiters = {
        key: Waiter(
            name=one.display,
            party=Party(address=one.address, key=key),
            answers=key in said or key == node.key,
        )
        for key, one in ready.items()
    }
    if joiner is not None and etcdchange.by_address(members, joiner.party.address) is None:
        waiters.setdefault(
            joiner.party.key, Waiter(name=joiner.name, party=joiner.party, answers=True)
        )
    before = etcdstore.load_queue(host)
    queue = growth.line_up(before, waiters, host.clock.now())
    if queue != before:
        etcdstore.save_queue(host, queue)
    return tuple(waiters[key] for key in growth.in_line(queue))


def _ready(
    host: Host,
    node: Node,
    members: tuple[EtcdMember, ...],
    answers: Answers,
    anew: Set[SigningKey],
) -> dict[SigningKey, Member]:
    """Live, capable, granted, not listed, and with no data that served, unless its operator gives
    that up (`anew`); the earliest granted first."""
    ledger = etcdstore.load_ledger(host)
    said = {member.key: answer for member, answer in answers.items()}
    found = []
    for one in node.view.members:
        granted = first_granted(ledger, one.address, one.key)
        if granted is None or live_grant(ledger, one.address, one.key) is None:
            continue
        if one.key in node.blocked or one.capability is not Capability.ETCD:
            continue
        if etcdchange.by_address(members, one.address) is not None:
            continue
        if _stage(host, node, one, said) is Stage.FORMED and one.key not in anew:
            continue  # `keel mesh etcd recover --replace` is for that
        found.append((granted, one.address, one))
    return {one.key: one for _, _, one in sorted(found, key=lambda each: each[:2])}


def _stage(
    host: Host, node: Node, one: Member, said: Mapping[SigningKey, ProbeAnswer]
) -> Stage | None:
    """How far it says that it is; None while it does not answer."""
    if one.key == node.key:
        return etcdstore.load_cluster(host).stage
    answer = said.get(one.key)
    return None if answer is None else answer.stage


def _keep_book(
    host: Host, listed: tuple[Listed, ...], words: Mapping[EtcdMemberId, Word]
) -> GrowthBook:
    """growth.json as the list says: who became a voter is settled, a learner is the open one."""
    before = etcdstore.load_growth(host)
    voters = (one.key for one in listed if not one.learner and one.started and one.key)
    book = growth.settled(before, voters)
    learner = next((one for one in listed if one.learner), None)
    if learner is not None:
        book = growth.adopt(book, learner, host.clock.now())
        if learner.id in words and _heard_long_ago(book, host):
            book = growth.heard(book, host.clock.now())
    if book != before:
        etcdstore.save_growth(host, book)
    return book


def _heard_long_ago(book: GrowthBook, host: Host) -> bool:
    """Whether to note again that the learner answered: not with every look."""
    last = book.open.heard if book.open is not None else None
    return last is None or host.clock.now() - last >= growth.HEARD_EVERY
