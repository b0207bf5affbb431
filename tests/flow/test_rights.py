"""What is secret is its owner's alone, and status says where it is not (design section 3)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from keel.cli import status as cli
from keel.errors import PeerError
from keel.mesh import rights
from keel.system.fs import DurableFiles
from tests.flow.world import World

KINDS = {
    "the mesh's directory": "var/lib/keel/mesh",
    "etcd's directory": "var/lib/keel/etcd",
    "signing key": "var/lib/keel/mesh/signing.key",
    "WireGuard key": "var/lib/keel/mesh/wireguard.key",
    "invite": "var/lib/keel/mesh/invites/*.json",
    "intermediate's key": "var/lib/keel/etcd/intermediate/1/key.pem",
    "member's credential": "var/lib/keel/etcd/leaf/1/member.pem",
    "client's credential": "var/lib/keel/etcd/leaf/1/client.pem",
    "root's key": "var/lib/keel/etcd/roots/g1/root.key",
    "what etcd reads": "etc/etcd/keel/member.pem",
    "etcd's settings": "etc/etcd/keel/etcd.env",
    "etcd's own directory": "etc/etcd/keel",
    "etcd's data": "var/lib/keel-etcd/data",
    "what is beside etcd's data": "var/lib/keel-etcd",
}
PENDING = ("signing.key", "wireguard.key", "etcd.key")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """a is a voter, the holder, and has an open invite; d has begun to join."""
    made = World(tmp_path_factory.mktemp("world"))
    made.cluster("abc", spare="d")
    made.net.lose("request", source="d", path="/v1/join", count=999)
    with pytest.raises(PeerError):
        made.join("d", made.invite("a"))
    return made


def one(world: World, name: str, pattern: str) -> Path:
    root = world.net.nodes[name].root
    return sorted(root.glob(pattern))[0]


def test_everything_is_laid_as_it_has_to_be(world: World) -> None:
    assert {name: rights.exposed(world.host(name)) for name in "abcd"} == dict.fromkeys("abcd", ())


@pytest.mark.parametrize("kind", KINDS)
def test_a_secret_that_others_may_read_is_a_warning(world: World, kind: str) -> None:
    path = one(world, "a", KINDS[kind])
    before = path.stat().st_mode & 0o7777
    os.chmod(path, before | 0o040)
    try:
        (found,) = rights.exposed(world.host("a"))
        assert found.path == path
        assert "lets others use it" in found.why
        assert f"chmod {before:o} {path}" in found.remedy
    finally:
        os.chmod(path, before)


@pytest.mark.parametrize("kind", KINDS)
def test_a_secret_that_is_somebody_elses_is_a_warning(world: World, kind: str) -> None:
    node, path = world.net.nodes["a"], one(world, "a", KINDS[kind])
    name = str(path.relative_to(node.root))
    before = node.disk.owners.get(name)
    node.disk.owners[name] = "nobody"
    try:
        (found,) = rights.exposed(node.host)
        assert (found.path, found.why.split(",")[0]) == (path, "it belongs to nobody")
        assert f"chown {before or 'root'}:" in found.remedy
    finally:
        node.disk.owners.pop(name)
        if before is not None:
            node.disk.owners[name] = before


@pytest.mark.parametrize("name", PENDING)
def test_so_is_a_key_of_a_join_that_was_begun(world: World, name: str) -> None:
    path = one(world, "d", f"var/lib/keel/mesh/pending-join/*/{name}")
    os.chmod(path, 0o644)
    assert [found.path for found in rights.exposed(world.host("d"))] == [path]
    os.chmod(path, 0o600)


def test_status_says_it_and_what_mends_it(world: World) -> None:
    path = one(world, "a", "var/lib/keel/mesh/signing.key")
    os.chmod(path, 0o604)
    said = [w for w in cli.look(world.host("a"))["warnings"] if w["code"] == "file-exposed"]  # type: ignore[attr-defined]
    os.chmod(path, 0o600)
    assert [(w["severity"], str(path) in w["text"]) for w in said] == [("critical", True)]
    assert "chmod 600" in said[0]["remedy"]


def test_the_real_disk_tells_mode_and_owner_and_what_is_not_there(tmp_path: Path) -> None:
    files, path = DurableFiles(), tmp_path / "key"
    assert files.access(path) is None
    files.write(path, b"x")
    found = files.access(path)
    assert found is not None
    assert (found.mode, found.owner) == (0o600, path.owner())
    if os.geteuid() == 0:
        os.chown(path, 54321, 54321)
        told = files.access(path)
        assert told is not None
        assert told.owner == "54321"


def test_the_directory_of_hints_is_roots_alone_and_no_pass_changes_that(world: World) -> None:
    node = world.net.nodes["a"]
    before = len(node.effects.done)
    world.net.clock.sleep(1200)
    world.timers("a")
    changed = f"disk set_access {node.paths.run.relative_to(node.root)}"
    assert changed not in node.effects.done[before:]
    assert node.paths.run.stat().st_mode & 0o7777 == 0o700
