"""What a node holds of the registry, as its disk has it."""

from __future__ import annotations

from keel.mesh import etcdcrl, etcdstore
from keel.mesh.etcdcrl import Crl
from tests.flow.world import World


def crl(world: World, name: str = "a") -> Crl:
    """The newest that it took; the holder's when nobody is named."""
    host = world.host(name)
    return etcdcrl.read_crl(etcdstore.load_crl(host) or b"", etcdstore.load_roots(host))


def failed(world: World, name: str) -> list[str]:
    """The codes of what went wrong and is told until it works."""
    return [one.code for one in etcdstore.load_failures(world.host(name)).entries]
