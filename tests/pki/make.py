"""Factories of keys, certificates and chains: a fixed clock, one key for each label."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import IPv6Address

from cryptography import x509
from cryptography.hazmat.primitives import hashes

from keel.mesh import etcdcert, etcdpki
from keel.mesh.etcdcert import Authority, Generation
from keel.mesh.etcdpki import Credential
from keel.types import MeshId, Secret

NOW = datetime(2026, 12, 1, 12, 0, 0, tzinfo=UTC)
MESH = MeshId("0123456789abcdef" * 2)
OTHER_MESH = MeshId("fedcba9876543210" * 2)
ADDRESS = IPv6Address("fd0a:1b2c:3d4e:0:1122:3344:5566:7788")
OTHER_ADDRESS = IPv6Address("fd0a:1b2c:3d4e:0:99aa:bbcc:ddee:ff00")


def bytes_of(label: str, size: int) -> bytes:
    return hashlib.shake_256(label.encode()).digest(size)


def key(label: str) -> Secret:
    return etcdcert.new_key(Secret(bytes_of(f"key {label}", etcdcert.KEY_ENTROPY_BYTES)))


def serial(label: str) -> bytes:
    return bytes_of(f"serial {label}", etcdpki.SERIAL_BYTES)


def root(*, mesh: MeshId = MESH, generation: int = 1, now: datetime = NOW) -> Authority:
    label = f"root {mesh} {generation}"
    certificate = etcdpki.new_root(
        mesh, Generation(number=generation), key=key(label), serial=serial(label), now=now
    )
    return Authority(certificate=certificate, key=key(label))


def intermediate(
    under: Authority | None = None,
    *,
    address: IPv6Address = ADDRESS,
    number: int = 1,
    now: datetime = NOW,
) -> Authority:
    under = under or root()
    label = f"intermediate {address} {number}"
    certificate = etcdpki.sign_intermediate(
        under,
        etcdpki.new_request(key(label), address),
        address=address,
        number=number,
        serial=serial(f"{label} under {etcdcert.serial_of(under.certificate)}"),
        now=now,
    )
    return Authority(certificate=certificate, key=key(label))


def member(
    under: Authority | None = None, *, address: IPv6Address = ADDRESS, now: datetime = NOW
) -> Credential:
    under = under or intermediate(address=address, now=now)
    leaf = etcdpki.member_leaf(
        under, key=key("member"), address=address, serial=serial(f"member {now}"), now=now
    )
    return Credential(leaf=leaf, chain=(under.certificate,), key=key("member"))


def client(
    under: Authority | None = None, *, address: IPv6Address = ADDRESS, now: datetime = NOW
) -> Credential:
    under = under or intermediate(address=address, now=now)
    leaf = etcdpki.client_leaf(
        under, key=key("client"), address=address, serial=serial(f"client {now}"), now=now
    )
    return Credential(leaf=leaf, chain=(under.certificate,), key=key("client"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """How a deliberately wrong certificate differs from the good one that it is made from."""

    subject: x509.Name | None = None
    issuer: x509.Name | None = None
    serial: int | None = None
    not_before: datetime | None = None
    not_after: datetime | None = None
    public: object | None = None
    hash: hashes.HashAlgorithm = field(default_factory=hashes.SHA256)
    without: tuple[type[x509.ExtensionType], ...] = ()
    extensions: Mapping[type[x509.ExtensionType], tuple[bool, x509.ExtensionType]] = field(
        default_factory=dict
    )


def rebuilt(
    good: x509.Certificate, changes: Changes, *, signer: object | Secret
) -> x509.Certificate:
    """The certificate again, with these changes and no rule looked at, signed by any key."""
    builder = (
        x509.CertificateBuilder()
        .subject_name(good.subject if changes.subject is None else changes.subject)
        .issuer_name(good.issuer if changes.issuer is None else changes.issuer)
        .public_key(changes.public or good.public_key())  # type: ignore[arg-type]
        .serial_number(changes.serial or good.serial_number)
        .not_valid_before(changes.not_before or good.not_valid_before_utc)
        .not_valid_after(changes.not_after or good.not_valid_after_utc)
    )
    kept = {
        type(each.value): (each.critical, each.value)
        for each in good.extensions
        if not isinstance(each.value, changes.without)
    }
    for critical, value in {**kept, **changes.extensions}.values():
        builder = builder.add_extension(value, critical=critical)
    private = etcdcert.load_key(signer) if isinstance(signer, Secret) else signer
    return builder.sign(private, changes.hash)  # type: ignore[arg-type]
