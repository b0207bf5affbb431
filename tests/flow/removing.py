"""What the tests of removals share: the record alone, and the registry's part after it."""

from __future__ import annotations

from keel.mesh import drafts, etcdremove, store, up, wire
from keel.mesh.etcdremove import Enforced
from keel.mesh.expulsion import Consent
from keel.mesh.members import Member
from keel.types import Nonce
from tests.flow.world import World

NONCE = Nonce("ab" * 16)


def member(world: World, at: str, name: str) -> Member:
    """A live member as another node sees it."""
    found = world.loaded(at).view.by_key(world.loaded(name).key)
    assert found is not None
    return found


def before(world: World, by: str, name: str, consent: Consent | None = None) -> tuple[str, ...]:
    return etcdremove.before_removal(
        world.host(by),
        world.loaded(by),
        member(world, by, name),
        consent,
        command=f"keel mesh remove {name}",
    )


def sign(world: World, by: str, name: str) -> None:
    """The record, and this node's own peer; the window is not these tests' matter."""
    host, node, subject = world.host(by), world.loaded(by), world.loaded(name)
    removal = drafts.make_removal(
        node.roster, node.identity.signing, subject.key, now=host.clock.now(), nonce=NONCE
    )
    with store.locked(host, "the mesh"):
        after, _ = store.merge_into(host, node, (wire.encode(removal),))
        up.follow(host, world.spec(by), node, after)


def remove(world: World, by: str, name: str) -> Enforced:
    """As `keel mesh remove` once its window is confirmed: signed, told, then etcd."""
    sign(world, by, name)
    world.sync(by)
    world.settle()
    key = world.loaded(name).key
    found = etcdremove.after_removal(world.host(by), world.loaded(by), key, name)
    world.settle()
    return found
