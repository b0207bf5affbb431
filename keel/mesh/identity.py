"""What follows from a mesh's genesis and a member's signing key: mesh id, prefix, address.

Owns those derivations (design section 4, Identity) and nothing else.
"""

from __future__ import annotations

import hashlib
from ipaddress import IPv6Address, IPv6Network

from keel.mesh.wire import Envelope
from keel.types import MeshId, SigningKey

_ADDRESS_LABEL = b"keel/1 address\x00"
_INVITES = b"\xff\xff"
"""prefix:ffff::/80 is for the temporary addresses of open invites."""


def mesh_id_of(genesis: Envelope) -> MeshId:
    """The id that pins the genesis: the first 16 bytes of SHA-256 over its payload."""
    return MeshId(hashlib.sha256(genesis.payload).hexdigest()[:32])


def prefix_of(mesh: MeshId) -> IPv6Network:
    """The mesh's /64: `fd`, 5 bytes of SHA-256 over the mesh id, subnet 0."""
    unique = hashlib.sha256(bytes.fromhex(mesh)).digest()[:5]
    return IPv6Network((b"\xfd" + unique + bytes(10), 64))


def address_of(mesh: MeshId, key: SigningKey) -> IPv6Address:
    """A member's /128: the prefix and 8 hashed bytes, hashed again while an invite's."""
    prefix = prefix_of(mesh).network_address.packed[:8]
    hashed = hashlib.sha256(_ADDRESS_LABEL + bytes.fromhex(mesh) + bytes.fromhex(key)).digest()
    while hashed.startswith(_INVITES):
        hashed = hashlib.sha256(hashed).digest()
    return IPv6Address(prefix + hashed[:8])
