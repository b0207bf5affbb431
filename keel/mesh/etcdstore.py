"""The registry's state on disk: loads and writes the pieces of /var/lib/keel/etcd.

Owns which piece lies where and in which order several belong together. Decides nothing.

Rules:
(D1) A file that is there and does not parse is StateCorrupt with its path; absence means what the
     record's type says it means, and nothing else.
(D2) A key is created, never overwritten; a certificate is written beside it once it is granted.
(D3) A numbered directory counts when it is whole; an interrupted one is finished, not skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from cryptography import x509

from keel import codec
from keel.errors import BadValue, PkiRejected, StateCorrupt
from keel.mesh import etcdcert, etcdcrl, etcdpki, etcdtrust, wire
from keel.mesh.birth import HolderBook
from keel.mesh.etcdcert import Authority
from keel.mesh.etcdgrants import GrantLine, Ledger, dump_line, read_ledger
from keel.mesh.etcdpki import Credential
from keel.mesh.etcdstate import Cluster, Failures, Lived, Queue, Restored
from keel.mesh.growth import GrowthBook
from keel.ports import Host
from keel.types import Fingerprint, Secret, parse_hex

T = TypeVar("T")

MAX_LEDGER_BYTES = 64 << 20
MAX_CRL_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaves:
    """A member's two certificates, of one number."""

    number: int
    member: Credential
    client: Credential


def prepare(host: Host) -> None:
    """The state directory, before anything is written into it."""
    host.files.make_dir(host.paths.etcd)


def load_cluster(host: Host) -> Cluster:
    """cluster.json; a node that never took a record has none and is idle."""
    return _load(host, Cluster, host.paths.etcd_cluster) or Cluster()


def save_cluster(host: Host, cluster: Cluster) -> None:
    host.files.write(host.paths.etcd_cluster, codec.dumps(cluster))


def load_record(host: Host) -> bytes | None:
    """The envelope of the newest cluster record that was taken."""
    return _load_envelope(host, host.paths.etcd_record)


def save_record(host: Host, raw: bytes) -> None:
    host.files.write(host.paths.etcd_record, raw)


def load_roots(host: Host) -> tuple[x509.Certificate, ...]:
    """The roots that this node trusts; () before its first grant."""
    raw = host.files.read(host.paths.etcd_trust)
    if raw is None:
        return ()
    try:
        return etcdtrust.parse_bundle(raw)
    except PkiRejected as error:
        raise StateCorrupt(host.paths.etcd_trust, error.summary()) from error


def load_pinned(host: Host) -> frozenset[Fingerprint]:
    """The root that the token named, for the first grant; empty when it named none."""
    raw = host.files.read(host.paths.etcd_pinned)
    if raw is None:
        return frozenset()
    try:
        return frozenset({Fingerprint(parse_hex(raw.decode("ascii"), size=32))})
    except ValueError as error:
        raise StateCorrupt(host.paths.etcd_pinned, "not a fingerprint") from error


def save_roots(host: Host, roots: tuple[x509.Certificate, ...]) -> None:
    host.files.write(host.paths.etcd_trust, etcdtrust.encode_bundle(roots))


def load_crl(host: Host) -> bytes | None:
    raw = host.files.read(host.paths.etcd_crl, max_bytes=MAX_CRL_BYTES)
    if raw is not None and not etcdcrl.is_crl(raw):
        raise StateCorrupt(host.paths.etcd_crl, "not one DER CRL")
    return raw


def save_crl(host: Host, der: bytes) -> None:
    host.files.write(host.paths.etcd_crl, der)


def load_holder(host: Host) -> bytes | None:
    """The holder's statement that this node obeys."""
    return _load_envelope(host, host.paths.holder_statement)


def save_holder(host: Host, raw: bytes) -> None:
    host.files.write(host.paths.holder_statement, raw)


def request_key(host: Host) -> tuple[int, Secret]:
    """The newest intermediate's number and key; made when there is none (D2)."""
    prepare(host)
    number = newest(host, host.paths.etcd / "intermediate") or 1
    return number, make_key(host, host.paths.intermediate(number) / "key.pem")


def begin_intermediate(host: Host) -> None:
    """The key of the next intermediate, once the newest one was granted; already so is fine."""
    number = newest(host, host.paths.etcd / "intermediate")
    granted = load_intermediate(host)
    if granted is not None and granted[0] == number:
        number += 1
    make_key(host, host.paths.intermediate(number) / "key.pem")


def make_key(host: Host, path: Path) -> Secret:
    """The P-256 key in this file, made first when there is none."""
    host.files.make_dir(path.parent)
    raw = host.files.read(path)
    if raw is None:
        key = etcdcert.new_key(Secret(host.chance.bytes(etcdcert.KEY_ENTROPY_BYTES)))
        host.files.create(path, key.reveal())
        return key
    try:
        etcdcert.load_key(Secret(raw))
    except PkiRejected as error:
        raise StateCorrupt(path, error.summary()) from error
    return Secret(raw)


def load_intermediate(host: Host) -> tuple[int, Authority] | None:
    """The newest intermediate that was granted, with its number."""
    number = newest(host, host.paths.etcd / "intermediate")
    while number:
        found = _load_authority(host, host.paths.intermediate(number), "cert.pem", "key.pem")
        if found is not None:
            return number, found
        number -= 1
    return None


def save_intermediate(host: Host, number: int, certificate: x509.Certificate) -> None:
    host.files.write(host.paths.intermediate(number) / "cert.pem", etcdcert.pem(certificate))


def load_leaves(host: Host) -> Leaves | None:
    """The newest whole pair of leaves (D3)."""
    number = whole_leaves(host)
    if not number:
        return None
    return Leaves(
        number=number,
        member=_load_credential(host, host.paths.member_credential(number)),
        client=_load_credential(host, host.paths.client_credential(number)),
    )


def whole_leaves(host: Host) -> int:
    """The number of the newest whole pair of leaves; 0 when there is none (D3)."""
    number = newest(host, host.paths.etcd / "leaf")
    while number and not (
        host.files.exists(host.paths.member_credential(number))
        and host.files.exists(host.paths.client_credential(number))
    ):
        number -= 1
    return number


def save_leaves(host: Host, leaves: Leaves) -> None:
    """A new number's pair; the directory counts once both are there."""
    host.files.make_dir(host.paths.leaf(leaves.number))
    for path, credential in (
        (host.paths.member_credential(leaves.number), leaves.member),
        (host.paths.client_credential(leaves.number), leaves.client),
    ):
        host.files.write(path, etcdpki.encode_credential(credential).reveal())


def next_leaf_number(host: Host) -> int:
    """The number for the next pair; an interrupted one is used again."""
    return whole_leaves(host) + 1


def prune(host: Host, kept: int) -> bool:
    """Remove the leaves and the intermediates older than the newest `kept` whole ones; whether
    there was any."""
    leaves, granted = load_leaves(host), load_intermediate(host)
    found = False
    for kind, number in (
        ("leaf", leaves.number if leaves else 0),
        ("intermediate", granted[0] if granted else 0),
    ):
        place = host.paths.etcd / kind
        for name in host.files.names(place):
            if name.isdigit() and int(name) <= number - kept:
                host.files.remove(place / name)
                found = True
    return found


def newest(host: Host, directory: Path) -> int:
    """The highest number that names an entry; 0 when there is none."""
    return max((int(n) for n in host.files.names(directory) if n.isdigit()), default=0)


def load_authority(host: Host) -> tuple[int, Authority] | None:
    """The root that this node signs with, and its generation; None when it is not the holder."""
    numbers = [n[1:] for n in host.files.names(host.paths.roots) if n.startswith("g")]
    for number in sorted((int(n) for n in numbers if n.isdigit()), reverse=True):
        place = host.paths.generation(number)
        found = _load_authority(host, place, "root.pem", "root.key")
        if found is not None:
            return number, found
    return None


def load_ledger(host: Host) -> Ledger:
    """Every grant that this holder ever made."""
    path = host.paths.grants
    return read_ledger(path, host.files.read(path, max_bytes=MAX_LEDGER_BYTES))


def append_grant(host: Host, line: GrantLine) -> None:
    host.files.append(host.paths.grants, dump_line(line))


def load_book(host: Host) -> HolderBook:
    return _load(host, HolderBook, host.paths.reservation) or HolderBook()


def save_book(host: Host, book: HolderBook) -> None:
    host.files.write(host.paths.reservation, codec.dumps(book))


def load_restored(host: Host) -> Restored | None:
    """The note that this holder's disk was put back; None when it was not."""
    return _load(host, Restored, host.paths.holder_restored)


def save_restored(host: Host, restored: Restored) -> None:
    host.files.write(host.paths.holder_restored, codec.dumps(restored))


def load_queue(host: Host) -> Queue:
    return _load(host, Queue, host.paths.etcd_queue) or Queue()


def save_queue(host: Host, queue: Queue) -> None:
    prepare(host)
    host.files.write(host.paths.etcd_queue, codec.dumps(queue))


def load_growth(host: Host) -> GrowthBook:
    return _load(host, GrowthBook, host.paths.growth) or GrowthBook()


def save_growth(host: Host, book: GrowthBook) -> None:
    host.files.write(host.paths.growth, codec.dumps(book))


def load_failures(host: Host) -> Failures:
    return _load(host, Failures, host.paths.etcd_failures) or Failures()


def save_failures(host: Host, failures: Failures) -> None:
    prepare(host)
    host.files.write(host.paths.etcd_failures, codec.dumps(failures))


def load_lived(host: Host) -> Lived:
    return _load(host, Lived, host.paths.lived) or Lived()


def save_lived(host: Host, lived: Lived) -> None:
    host.files.write(host.paths.lived, codec.dumps(lived))


def _load_envelope(host: Host, path: Path) -> bytes | None:
    raw = host.files.read(path)
    if raw is not None:
        try:
            wire.decode(raw, max_bytes=len(raw))
        except BadValue as error:
            raise StateCorrupt(path, error.summary()) from error
    return raw


def _load(host: Host, cls: type[T], path: Path) -> T | None:
    return codec.read_state(cls, path, host.files.read(path))


def _load_authority(host: Host, place: Path, certificate: str, key: str) -> Authority | None:
    raw = host.files.read(place / certificate)
    if raw is None:
        return None
    secret = host.files.read(place / key)
    if secret is None:
        raise StateCorrupt(place / key, "missing beside its certificate")
    try:
        loaded = etcdcert.load_key(Secret(secret))
    except PkiRejected as error:
        raise StateCorrupt(place / key, error.summary()) from error
    try:
        (found,) = etcdcert.parse_pem_certificates(raw, most=1)
    except PkiRejected as error:
        raise StateCorrupt(place / certificate, error.summary()) from error
    if loaded.public_key() != found.public_key():
        raise StateCorrupt(place / key, "not the key of the certificate beside it")
    return Authority(certificate=found, key=Secret(secret))


def _load_credential(host: Host, path: Path) -> Credential:
    try:
        return etcdpki.parse_credential(Secret(host.files.read(path) or b""))
    except PkiRejected as error:
        raise StateCorrupt(path, error.summary()) from error
