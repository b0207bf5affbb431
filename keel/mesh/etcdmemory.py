"""Whether the holder remembers less than its members do: its disk was put back (design section 3).

Owns the note of it, restored.json, which forbids every signature until keel.mesh.etcdrestored has
united what the members hold with what is left here; and who claimed more than it could show.

(M1) Whatever the holder signs is on its disk before it leaves, so a member that holds a higher
     epoch, a higher CRL number or an intermediate that the ledger lacks is proof.
(M2) A claim is no proof: whoever makes one is asked to show what this root signed, and only that
     counts. Who answers and shows nothing is not believed for an hour.
(M3) Who claims more and does not answer the second question closes the gate as well: it may be
     cut off. After the others were heard, its claims are not believed for an hour.
(M4) The note only grows until it goes: the highest numbers that anybody showed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from cryptography import x509

from keel import codec
from keel.errors import BadValue, KeelError, PkiRejected, Refused
from keel.mesh import etcdcert, etcdcrl, etcdstore, store, talk
from keel.mesh.etcdcert import Serial
from keel.mesh.etcdchain import check_grant
from keel.mesh.etcdcheck import read_record
from keel.mesh.etcdmsg import ProbeAnswer, Tell, TellAnswer
from keel.mesh.etcdstate import Restored
from keel.mesh.exchange import ETCD_PATH
from keel.mesh.members import Member
from keel.mesh.store import Node
from keel.ports import Host
from keel.types import SigningKey

TELL = "tell"
TELL_SECONDS = 8.0
"""As long as the probe before it."""
DOUBTED_SECONDS = 3600.0
MAX_DOUBTS_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """A member whose claim was not proven, and this node's monotonic clock then."""

    key: SigningKey
    monotonic: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubts:
    """/run/keel/doubted.json; it goes with the boot."""

    entries: tuple[Doubt, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a member holds that this node's own root signed; 0 and None where it showed nothing."""

    epoch: int = 0
    crl_number: int = 0
    intermediate: Serial | None = None


def notice(host: Host, node: Node, said: Mapping[Member, ProbeAnswer]) -> bool:
    """Look at what members just said of themselves, and have those who claim more show it; whether
    this holder is behind them. Nothing on any other node. Do not hold the lock."""
    found = etcdstore.load_authority(host)
    if found is None:
        return False
    root = etcdcert.fingerprint(found[1].certificate)
    doubted = {one.key for one in load_doubts(host)}
    claimants = [
        member
        for member, answer in said.items()
        if answer.root == root and member.key not in doubted and _is_more(host, answer)
    ]
    if not claimants:
        return etcdstore.load_restored(host) is not None
    heard = talk.ask_all(
        host,
        node,
        dict.fromkeys(claimants, Tell()),
        TELL,
        TellAnswer,
        path=ETCD_PATH,
        timeout_seconds=TELL_SECONDS,
    )
    showed = {
        member: _show(node, found[1].certificate, member, answer.body)
        for member, answer in heard.items()
        if not isinstance(answer, KeelError)
    }
    unproven = [m.key for m, one in showed.items() if not _is_more(host, one)]
    if len(unproven) < len(claimants):
        _note(host, [one for member, one in showed.items() if member.key not in unproven])
    doubt(host, unproven)
    return etcdstore.load_restored(host) is not None


def load_doubts(host: Host) -> tuple[Doubt, ...]:
    """Whose claims are not believed now."""
    raw = host.files.read(host.paths.doubted)
    try:
        found = codec.loads(Doubts, raw or b"{}", max_bytes=MAX_DOUBTS_BYTES).entries
    except BadValue:
        return ()  # a hint of this boot
    now = host.clock.monotonic()
    return tuple(one for one in found if 0 <= now - one.monotonic < DOUBTED_SECONDS)


def doubt(host: Host, keys: Iterable[SigningKey]) -> None:
    """Believe no claim of these for an hour."""
    wanted = tuple(keys)
    if not wanted:
        return
    now = host.clock.monotonic()
    kept = tuple(one for one in load_doubts(host) if one.key not in wanted)
    entries = (*kept, *(Doubt(key=key, monotonic=now) for key in wanted))
    host.files.make_dir(host.paths.run)
    host.files.write(host.paths.doubted, codec.dumps(Doubts(entries=entries)))


def held_crl_number(host: Host) -> int:
    """The number on disk; a CRL that is damaged or gone is another matter (etcdcrlspread mends
    it), and there is nothing to compare with."""
    raw = host.files.read(host.paths.etcd_crl, max_bytes=etcdstore.MAX_CRL_BYTES)
    try:
        return etcdcrl.read_crl(raw or b"", etcdstore.load_roots(host)).number
    except PkiRejected:
        return etcdcrl.MAX_NUMBER


def _note(host: Host, proven: Iterable[Shown]) -> None:
    with store.locked(host, "the mesh"):
        held = etcdstore.load_restored(host)
        before = held or Restored(since=host.clock.now())
        after = replace(
            before,
            epoch=max(before.epoch, *(one.epoch for one in proven), 0),
            crl_number=max(before.crl_number, *(one.crl_number for one in proven), 0),
        )
        if after != held:
            etcdstore.save_restored(host, after)


def _is_more(host: Host, said: ProbeAnswer | Shown) -> bool:
    serials = {line.serial for line in etcdstore.load_ledger(host).lines}
    return (
        said.epoch > etcdstore.load_book(host).epoch
        or said.crl_number > held_crl_number(host)
        or (said.intermediate is not None and said.intermediate not in serials)
    )


def _show(node: Node, root: x509.Certificate, member: Member, told: TellAnswer) -> Shown:
    """Of what a member told, that which this root signed (M2)."""
    number, epoch, serial = 0, 0, None
    with contextlib.suppress(PkiRejected):
        number = etcdcrl.read_crl(told.crl or b"", (root,)).number
    with contextlib.suppress(Refused):
        epoch = read_record(told.record or b"", (root,)).epoch
    with contextlib.suppress(PkiRejected):
        serial = _granted(node, root, member, told.intermediate or b"")
    return Shown(epoch=epoch, crl_number=number, intermediate=serial)


def _granted(node: Node, root: x509.Certificate, member: Member, raw: bytes) -> Serial:
    """The serial of an intermediate that this root signed for that member; when it was is no
    matter, so a clock that is wrong hides no proof."""
    certificate = etcdcert.parse_certificate(raw)
    check_grant(
        certificate,
        root,
        mesh=node.mesh,
        address=member.address,
        key=etcdcert.public_key_hash(certificate),
        now=certificate.not_valid_before_utc,
    )
    return etcdcert.serial_of(certificate)
