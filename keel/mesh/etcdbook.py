"""The holder's book of formations on disk: the notes that are made in it, each durable before what
follows from it leaves.

Owns when a note is due; what it means is keel.mesh.birth's. All are called under the lock.
"""

from __future__ import annotations

from keel.mesh import birth, etcdbeside, etcdstore, etcdtaken
from keel.mesh.birth import BirthView, Formation, GiveBirth, HolderBook, Party
from keel.mesh.etcdmsg import ClusterRecord
from keel.mesh.etcdstate import Stage
from keel.mesh.store import Node
from keel.ports import Host
from keel.types import FormationId, Nonce


def reserve(host: Host, view: BirthView, decided: GiveBirth) -> HolderBook:
    """A new formation, the last of the book, and an epoch for its record."""
    book = birth.reserve(
        view,
        decided,
        formation=FormationId(host.chance.bytes(8).hex()),
        nonce=Nonce(host.chance.bytes(16).hex()),
        now=host.clock.now(),
    )
    etcdstore.save_book(host, book)
    return book


def use_epoch(host: Host, book: HolderBook) -> HolderBook:
    """The next epoch, for a record that is about to be signed."""
    book = birth.next_epoch(book)
    etcdstore.save_book(host, book)
    return book


def note_confirmed(host: Host, node: Node) -> HolderBook:
    """The roster says who confirmed, also when this node died before `joined` did."""
    book = etcdstore.load_book(host)
    confirmed = birth.confirm_live(book, [member.key for member in node.view.members])
    if confirmed != book:
        etcdstore.save_book(host, confirmed)
    return confirmed


def note_leader(host: Host, node: Node) -> HolderBook:
    """Once this node's own etcd saw a leader its formation is the cluster."""
    book, cluster = etcdstore.load_book(host), etcdstore.load_cluster(host)
    if book.formed or cluster.stage is not Stage.FORMED:
        return book
    record = etcdtaken.current_record(host)
    if record is None or record.formation != cluster.formation:
        return book
    return note_born(host, node, record)


def note_born(host: Host, node: Node, record: ClusterRecord) -> HolderBook:
    """The cluster of this record is the cluster, also when an older copy of the book lacks it."""
    book = etcdstore.load_book(host)
    if book.formed:
        return book
    parties = tuple(
        Party(address=one.address, key=one.key)
        for one in node.view.members
        if one.address in record.members
    )
    born = Formation(
        formation=record.formation,
        nonce=record.nonce,
        members=parties,
        cluster_id=record.cluster_id,
        reserved=record.issued,
        expires=record.expires,
        confirmed=True,
    )
    book = birth.note_leader(book, born)
    etcdstore.save_book(host, book)
    return book


def started_here(host: Host) -> frozenset[FormationId]:
    """Formations that this node's own etcd took part in, by cluster.json and by the marker beside
    its data."""
    cluster = etcdstore.load_cluster(host)
    marker = etcdbeside.load_marker(host)
    found = {cluster.formation, marker.formation if marker else None}
    return frozenset(one for one in found if one is not None and one not in cluster.given_up)
