"""Every state file emptied in turn: a node goes on, or stops and names the file; it is never taken
for a fresh one, and there is never a second cluster."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from keel.errors import StateCorrupt
from keel.mesh import etcdstore, store
from keel.mesh.store import Node
from tests.fakes.etcd import UNIT
from tests.flow.kill import tolerate
from tests.flow.world import World

pytestmark = pytest.mark.lives

PLACES = ("var/lib/keel", "var/lib/keel-etcd/marker.json", "etc/etcd/keel")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Three voters, and an open invite on the holder."""
    made = World(tmp_path_factory.mktemp("world"))
    made.cluster("abc")
    made.invite("a")
    made.timers()
    return made


def state_files(world: World, name: str) -> list[Path]:
    root = world.net.nodes[name].root
    found = [path for place in PLACES for path in (root / place, *(root / place).rglob("*"))]
    return sorted({path for path in found if path.is_file()})


def kind(root: Path, path: Path) -> str:
    """A file's name without what differs from run to run."""
    return re.sub(r"[0-9a-f]{32,64}", "ID", str(path.relative_to(root)))


def commands(world: World, name: str) -> dict[str, Callable[[], object]]:
    return {
        "create": lambda: world.create(name),
        "invite": lambda: world.make_invite(name),
        "sync": lambda: world.sync(name),
        "up": lambda: world.up(name),
        "tend": lambda: world.tend(name),
    }


def outcome(world: World, name: str, path: Path) -> tuple[str, ...]:
    """Which commands stopped because of the emptied file; each names it, with a remedy."""
    stopped = []
    for command, run in commands(world, name).items():
        error = tolerate(run)
        if command == "tend" and error is None:
            kept = etcdstore.load_failures(world.host(name)).entries
            stopped += [f"tend {_named(path, one.text, one.remedy)}" for one in kept]
        if error is not None:
            stopped.append(f"{command} {_named(path, error.summary(), error.remedy())}")
    return tuple(stopped)


def _named(path: Path, text: str, remedy: str) -> str:
    return "names it" if str(path) in text and remedy else f"says {text!r}"


def still_itself(world: World, name: str, before: Node) -> None:
    try:
        now = store.load(world.host(name))
    except StateCorrupt:
        return
    assert now is not None
    assert (now.mesh, now.key) == (before.mesh, before.key)


@pytest.mark.parametrize("name", ["a", "c"])
def test_an_emptied_file_never_makes_a_fresh_node(world: World, name: str) -> None:
    node = world.net.nodes[name]
    before = world.loaded(name)
    authority = etcdstore.load_authority(world.host(name))
    seen: dict[str, tuple[str, ...]] = {}
    for path in state_files(world, name):
        copy = {p: p.read_bytes() for p in state_files(world, name)}
        path.write_bytes(b"")
        seen[kind(node.root, path)] = outcome(world, name, path)
        still_itself(world, name, before)
        node.units.stop(UNIT)
        node.units.start_without_effect(UNIT)
        assert len(world.etcd.clusters) == 1
        for now in state_files(world, name):
            if now not in copy:
                now.unlink()
        for was, data in copy.items():
            was.write_bytes(data)
        assert etcdstore.load_authority(world.host(name)) == authority
        world.etcd.start_again(node)
        world.net.clock.sleep(20)
    world.timers()
    world.timers()  # each start of etcd was told of in a record, and copies of these were put back
    assert world.formed("abc")
    assert world.agree("abc")
    wrong = {k: v for k, v in seen.items() if any(not one.endswith("names it") for one in v)}
    assert wrong == {}
    for must_stop in MUST_STOP:
        if must_stop in seen:
            assert seen[must_stop], must_stop
    assert len(seen) >= 15


MUST_STOP = (
    "var/lib/keel/mesh/genesis",
    "var/lib/keel/mesh/signing.key",
    "var/lib/keel/mesh/wireguard.key",
    "var/lib/keel/mesh/trust.json",
    "var/lib/keel/mesh/roster/ID",
    "var/lib/keel/mesh/invites/ID.json",
    "var/lib/keel/etcd/cluster.json",
    "var/lib/keel/etcd/formation.json",
    "var/lib/keel/etcd/intermediate/1/cert.pem",
    "var/lib/keel/etcd/intermediate/1/key.pem",
    "var/lib/keel/etcd/roots/g1/root.pem",
    "var/lib/keel/etcd/roots/g1/root.key",
    "var/lib/keel/etcd/trust.pem",
    "var/lib/keel/etcd/record",
)
