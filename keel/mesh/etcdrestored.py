"""A holder whose disk was put back unites what its members hold with what is left here, then signs
on (design section 3).

Owns the asking and the order of what is written. That it is behind is keel.mesh.etcdmemory's to
notice; until this has ended nothing is signed.

Rules:
(U1) More than half of the other capable members have to be heard; who was heard counts, also if it
     is silent later.
(U2) Only what this node's own root signed is believed: intermediates go into the ledger, the CRL's
     serials into the next CRL, the cluster's formation into the book.
(U3) The CRL's number and the book's epoch end above all that anybody showed. The note goes last, so
     a kill anywhere is made good by doing it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from keel.errors import KeelError, PkiRejected, Refused
from keel.mesh import (
    etcdbirth,
    etcdbook,
    etcdcert,
    etcdcrl,
    etcdmemory,
    etcdrevoke,
    etcdstore,
    store,
    talk,
)
from keel.mesh.asked import Asked
from keel.mesh.birth import HolderBook
from keel.mesh.duty import Duty, done, nothing, waits
from keel.mesh.etcdcert import Authority
from keel.mesh.etcdchain import check_grant
from keel.mesh.etcdcheck import read_record
from keel.mesh.etcdgrants import Event, GrantLine
from keel.mesh.etcdmemory import TELL
from keel.mesh.etcdmsg import ClusterRecord, Tell, TellAnswer
from keel.mesh.etcdstate import Restored, Stage
from keel.mesh.exchange import ETCD_PATH
from keel.mesh.members import Member
from keel.mesh.store import Node
from keel.outcome import Waiting
from keel.ports import Host

NAME = "memory"

Told = Mapping[Member, TellAnswer]


def tell(asked: Asked) -> TellAnswer:
    """The channel's kind `tell`: what this member holds of the holder's."""
    host = asked.host
    granted = etcdstore.load_intermediate(host)
    return TellAnswer(
        crl=etcdstore.load_crl(host),
        intermediate=None if granted is None else etcdcert.der(granted[1].certificate),
        record=etcdstore.load_record(host),
        formed=etcdstore.load_cluster(host).stage is Stage.FORMED,
    )


def duty(host: Host, node: Node) -> Duty:
    """Once a boot the holder asks whether it knows less than its members; if so it unites what they
    hold with its own, as soon as enough of them answered (U1)."""
    if etcdstore.load_authority(host) is None:
        return nothing(NAME, "another node holds the root")
    if not _is_behind(host, node):
        _tell_doubts(host, node)
        return nothing(NAME, "nobody knows more than this holder")
    others = etcdbirth.capable_others(node)
    heard = talk.ask_all(
        host, node, dict.fromkeys(others, Tell()), TELL, TellAnswer, path=ETCD_PATH
    )
    told = {m: one.body for m, one in heard.items() if not isinstance(one, KeelError)}
    with store.locked(host, "the mesh"):
        note = _take(host, store.require(host), told)
        silent = [one.display for one in others if one.key not in note.heard]
        if others and len(silent) * 2 >= len(others):
            return waits(NAME, _waiting(silent, note.since), is_open=True)
        number = _sign_on(host, node, note)
        etcdmemory.doubt(host, [one.key for one in others if one.key not in note.heard])
    return done(NAME, f"this disk was put back; what was signed since is known again: CRL {number}")


def _is_behind(host: Host, node: Node) -> bool:
    if etcdstore.load_restored(host) is not None:
        return True
    if host.files.exists(host.paths.holder_compared):
        return False
    answers = etcdbirth.probe_capable(host, node)
    if etcdstore.load_restored(host) is not None:
        return True
    others = etcdbirth.capable_others(node)
    if len(answers) * 2 > len(others):
        store.keep_hint(host, host.paths.holder_compared, b"")
    return False


def _tell_doubts(host: Host, node: Node) -> None:
    """Refused with the names of those who claimed more than they could show: it stops nothing, and
    an operator has to know."""
    names = [
        member.display
        for doubt in etcdmemory.load_doubts(host)
        if (member := node.view.by_key(doubt.key)) is not None
    ]
    if names:
        raise Refused(
            "memory-unproven",
            f"{', '.join(names)} claims to hold more than this holder ever signed, and shows"
            " nothing of it",
            "see who runs that node; a stranger's goes with `keel mesh remove`",
        )


def _take(host: Host, node: Node, told: Told) -> Restored:
    """What was told, on disk; the note with whom it came from."""
    note = etcdstore.load_restored(host)
    found = etcdstore.load_authority(host)
    assert note is not None and found is not None  # noqa: S101, PT018  # the caller saw both
    for member, answer in told.items():
        _take_intermediate(host, node, found[1], member, answer.intermediate)
        number = _take_crl(host, answer.crl)
        record = _read(host, answer.record)
        if record is not None and answer.formed:
            etcdbook.note_born(host, node, record)
        note = replace(
            note,
            crl_number=max(note.crl_number, number),
            epoch=max(note.epoch, record.epoch if record is not None else 0),
            heard=tuple(sorted({*note.heard, member.key})),
        )
    etcdstore.save_restored(host, note)
    return note


def _take_intermediate(
    host: Host, node: Node, root: Authority, member: Member, raw: bytes | None
) -> None:
    """A grant that the ledger lost (U2); what it is not this root's is no grant."""
    try:
        certificate = etcdcert.parse_certificate(raw or b"")
        key = etcdcert.public_key_hash(certificate)
        check_grant(
            certificate,
            root.certificate,
            mesh=node.mesh,
            address=member.address,
            key=key,
            now=host.clock.now(),
        )
    except PkiRejected:
        return
    serial = etcdcert.serial_of(certificate)
    if serial in {line.serial for line in etcdstore.load_ledger(host).lines}:
        return
    etcdstore.append_grant(
        host,
        GrantLine(
            event=Event.GRANTED,
            address=member.address,
            ed25519=member.key,
            time=certificate.not_valid_before_utc,
            serial=serial,
            generation=etcdcert.generation_of(root.certificate),
            csr_key=key,
            not_after=certificate.not_valid_after_utc,
            intermediate=etcdcert.der(certificate),
        ),
    )


def _take_crl(host: Host, raw: bytes | None) -> int:
    """Its number, if this root signed it; the newest one is kept, so that no serial is lost."""
    roots = etcdstore.load_roots(host)
    try:
        found = etcdcrl.read_crl(raw or b"", roots)
        held = etcdcrl.read_crl(etcdstore.load_crl(host) or b"", roots).number
    except PkiRejected:
        return 0
    if found.number > held:
        etcdstore.save_crl(host, found.der)
    return found.number


def _read(host: Host, raw: bytes | None) -> ClusterRecord | None:
    try:
        return read_record(raw or b"", etcdstore.load_roots(host))
    except Refused:
        return None


def _sign_on(host: Host, node: Node, note: Restored) -> int:
    """U3; the first thing that is signed again is the CRL, above every other."""
    book: HolderBook = etcdstore.load_book(host)
    etcdstore.save_book(host, replace(book, epoch=max(book.epoch, note.epoch) + 1))
    number = etcdrevoke.issue(host, node, above=note.crl_number, restored=True)
    host.files.remove(host.paths.holder_restored)
    return number


def _waiting(silent: Iterable[str], since: datetime) -> Waiting:
    return Waiting(
        what="every signature of the holder",
        waiting_for=", ".join(sorted(silent)),
        why="its disk was put back, and more than half of the others say first what it signed",
        since=since,
    )
