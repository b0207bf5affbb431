"""Kill stories of a voter's removal, of its revocation, and of a holder whose disk was put back."""

from __future__ import annotations

import shutil
from pathlib import Path

from keel.mesh import etcdrevoke, etcdstore, store
from keel.mesh.etcdcrl import Reason
from keel.mesh.etcdgrants import Event
from tests.flow.arranged import arranged
from tests.flow.held import crl
from tests.flow.kill import Story, tolerate
from tests.flow.stories_window import TIMER, gone
from tests.flow.world import World


@arranged
def three_voters(scratch: Path) -> World:
    world = World(scratch)
    world.cluster("abc")
    world.timers()
    return world


@arranged
def put_back(scratch: Path) -> World:
    """a's state is that of a copy from before c's certificates were revoked."""
    world = three_voters(scratch)
    state = world.host("a").paths.etcd
    kept = scratch / "copy"
    shutil.copytree(state, kept)
    revoke(world)
    world.timers()
    shutil.rmtree(state)
    kept.rename(state)
    (world.host("a").paths.holder_compared).unlink(missing_ok=True)
    return world


def remove(world: World) -> None:
    world.remove("a", "c")
    world.settle()


def remove_again(world: World) -> None:
    """What was armed is undone by its timer, what was confirmed goes on; typed again."""
    world.settle()
    world.net.clock.sleep(TIMER)
    world.timers("a", "b")
    world.remove("a", "c")
    world.settle()
    for _ in range(3):
        world.timers("a", "b", seconds=10.0)


def leave(world: World) -> None:
    world.leave("c")
    world.settle()


def leave_again(world: World) -> None:
    """The same command, for as long as c is in the mesh; the others' timers take it out of etcd."""
    world.settle()
    if store.load(world.host("c")) is not None:
        world.leave("c")
    world.settle()
    for _ in range(4):
        world.timers("a", "b", seconds=10.0)


def c_left(world: World) -> None:
    """c is in no mesh, its state is aside as a whole, and its etcd stands; a and b go on alone."""
    host = world.host("c")
    assert store.load(host) is None
    assert not host.paths.mesh.exists()
    assert not host.paths.etcd.exists()
    assert not host.paths.etcd_data.exists()
    assert world.peers("c") == set()
    (cluster,) = world.etcd.births()
    wanted = {f"keel-{world.loaded(name).address.packed.hex()}" for name in "ab"}
    assert {one.name for one in cluster.voters()} == wanted
    assert world.formed("ab")
    assert world.agree("ab")
    granted = [
        one for one in etcdstore.load_ledger(world.host("a")).lines if one.event is Event.GRANTED
    ]
    mine = {world.loaded(name).address for name in "ab"}
    gone_serials = {one.serial for one in granted if one.address not in mine}
    assert gone_serials
    for name in "ab":
        assert gone_serials <= {one.serial for one in crl(world, name).revoked}


def revoke(world: World) -> None:
    """c asks the holder to revoke what was granted to it."""
    host, node = world.host("c"), world.loaded("c")
    with store.locked(host, "the mesh"):
        etcdrevoke.request(
            host, node, address=node.address, key=node.key, reason=Reason.KEY_COMPROMISE
        )
    tolerate(lambda: etcdrevoke.duty(host, node))
    world.settle()


def revoke_again(world: World) -> None:
    tolerate(lambda: etcdrevoke.duty(world.host("c"), world.loaded("c")))
    world.settle()
    for _ in range(3):
        world.timers(seconds=10.0)


def remember(world: World) -> None:
    world.tend("a")


def remember_again(world: World) -> None:
    world.settle()
    for _ in range(3):
        world.timers(seconds=10.0)


def expelled(world: World) -> None:
    gone("c", "a", "b")(world)
    (cluster,) = world.etcd.births()
    wanted = {f"keel-{world.loaded(name).address.packed.hex()}" for name in "ab"}
    assert {one.name for one in cluster.voters()} == wanted
    assert world.formed("ab")
    revoked(world)


def revoked(world: World) -> None:
    """One line in the ledger, and the same CRL on a and b, laid for etcd as well."""
    granted = etcdstore.load_intermediate(world.host("c"))
    assert granted is not None
    seen = {name: crl(world, name) for name in "ab"}
    for name, one in seen.items():
        assert one.revokes(granted[1].certificate)
        laid = world.host(name).overlay.laid("crl.der")
        assert laid is not None
        assert laid.reveal() == one.der
    assert seen["a"].der == seen["b"].der
    assert etcdstore.load_restored(world.host("a")) is None


STORIES = {
    "removal of a voter, the holder": Story(three_voters, remove, remove_again, expelled, "a", 134),
    "removal of a voter, the other": Story(three_voters, remove, remove_again, expelled, "b", 116),
    "leave of a voter, itself": Story(three_voters, leave, leave_again, c_left, "c", 50),
    "leave of a voter, the holder": Story(three_voters, leave, leave_again, c_left, "a", 40),
    "revocation": Story(three_voters, revoke, revoke_again, revoked, "a", 78),
    "a holder put back": Story(put_back, remember, remember_again, revoked, "a", 65),
}
