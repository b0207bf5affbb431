"""Knocks at a member's etcd with certificates that it must not take; root on another member.

Arguments: the member's address, and a third member's. Prints one JSON object, attempt -> outcome:
an HTTP status, or why the connection came to nothing.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from ipaddress import IPv6Address

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import ExtendedKeyUsageOID

from keel.cli.compose import compose
from keel.mesh import etcdcert, etcdpki, etcdstore, store
from keel.mesh.etcdcert import Authority
from keel.mesh.etcdpki import Credential
from keel.types import LOCALHOST, MeshId, Secret

SECONDS = 60
CLIENT, PEER = 2379, 2380
PATHS = {CLIENT: "/health", PEER: "/version"}
NOW = datetime.now(tz=UTC)


def key() -> Secret:
    return etcdcert.new_key(Secret(os.urandom(etcdcert.KEY_ENTROPY_BYTES)))


def authority(root: Authority, address: IPv6Address) -> Authority:
    """An intermediate for that address under a root."""
    own = key()
    certificate = etcdpki.sign_intermediate(
        root,
        etcdpki.new_request(own, address),
        address=address,
        number=1,
        serial=os.urandom(etcdpki.SERIAL_BYTES),
        now=NOW,
    )
    return Authority(certificate=certificate, key=own)


def member(under: Authority, address: IPv6Address) -> Credential:
    """A member's leaf as keel makes them; a root that constrains names is not asked."""
    own = key()
    leaf = etcdpki.member_leaf(
        under, key=own, address=address, serial=os.urandom(etcdpki.SERIAL_BYTES), now=NOW
    )
    return Credential(leaf=leaf, chain=(under.certificate,), key=own)


def by_hand(under: Authority, addresses: tuple[IPv6Address, ...]) -> Credential:
    """A leaf that keel would not make: any addresses, or none at all; fit for both ends."""
    own = key()
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(under.certificate.subject)
        .public_key(etcdcert.load_key(own).public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - timedelta(minutes=5))
        .not_valid_after(NOW + timedelta(days=1))
        .add_extension(
            x509.ExtendedKeyUsage(
                [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
            ),
            critical=False,
        )
    )
    if addresses:
        names = x509.SubjectAlternativeName([x509.IPAddress(one) for one in addresses])
        builder = builder.add_extension(names, critical=True)
    leaf = builder.sign(etcdcert.load_key(under.key), hashes.SHA256())
    return Credential(leaf=leaf, chain=(under.certificate,), key=own)


def knock(
    address: str,
    port: int,
    credential: Credential | None,
    version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
) -> str:
    """What came of one request: TLS 1.3 tells a refused certificate on the first read only."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = context.maximum_version = version
    if credential is not None:
        with tempfile.NamedTemporaryFile(dir="/run") as file:
            file.write(etcdpki.encode_credential(credential).reveal())
            file.flush()
            context.load_cert_chain(file.name)
    try:
        with (
            socket.create_connection((address, port), timeout=SECONDS) as plain,
            context.wrap_socket(plain) as tls,
        ):
            tls.sendall(f"GET {PATHS[port]} HTTP/1.0\r\nHost: etcd\r\n\r\n".encode())
            answer = tls.recv(100)
    except TimeoutError:
        return f"no answer in {SECONDS} s"  # which refuses nobody
    except OSError as error:
        return f"refused: {error.__class__.__name__}: {str(error)[:60]}"
    return answer.decode("ascii", "replace").split("\r")[0] or "refused: closed without an answer"


def main(target: str, third: str) -> None:
    host = compose(verbose=False, stderr=sys.stderr)
    own = store.require(host).address
    granted = etcdstore.load_intermediate(host)
    leaves = etcdstore.load_leaves(host)
    holder = etcdstore.load_authority(host)
    if granted is None or leaves is None or holder is None:
        sys.exit("run it on the holder, as a member of the cluster")
    other = IPv6Address(third)
    false_key = key()
    false_root = Authority(
        certificate=etcdpki.new_root(
            MeshId("00" * 16),
            etcdcert.Generation(number=1),
            key=false_key,
            serial=os.urandom(etcdpki.SERIAL_BYTES),
            now=NOW,
        ),
        key=false_key,
    )
    tried: dict[str, tuple[int, Credential | None]] = {
        "client port: its own client certificate": (CLIENT, leaves.client),
        "client port: none": (CLIENT, None),
        "client port: another root's": (CLIENT, member(authority(false_root, own), own)),
        "client port: for another member's /128": (CLIENT, by_hand(granted[1], (other,))),
        "peer port: its own member certificate": (PEER, leaves.member),
        "peer port: none": (PEER, None),
        "peer port: another root's": (PEER, member(authority(false_root, own), own)),
        "peer port: without a SAN": (PEER, by_hand(granted[1], ())),
        "peer port: ::1 alone": (PEER, by_hand(granted[1], (LOCALHOST,))),
        "peer port: for another member's /128": (PEER, by_hand(granted[1], (other, LOCALHOST))),
        # signed by the true root: only the address that it comes from speaks against it
        "peer port: another member's own": (PEER, member(authority(holder[1], other), other)),
        "peer port: the client certificate": (PEER, leaves.client),
    }
    found = {what: knock(target, port, credential) for what, (port, credential) in tried.items()}
    old = ssl.TLSVersion.TLSv1_2
    found["client port: TLS 1.2"] = knock(target, CLIENT, leaves.client, old)
    found["peer port: TLS 1.2"] = knock(target, PEER, leaves.member, old)
    json.dump(found, sys.stdout)


main(*sys.argv[1:])
