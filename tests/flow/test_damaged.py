"""A state file that is gone, foreign or damaged stops whoever reads it, with its path (S2, D1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from keel.errors import StateCorrupt
from keel.mesh import etcdholder, etcdstore, pendingjoin, selfrecord, status, store
from keel.ports import Files, Host
from tests.flow.arranged import arranged
from tests.flow.world import World


@arranged
def a_founder_that_invited(scratch: Path) -> World:
    """a founded a mesh, holds its etcd root, and has an open invite."""
    made = World(scratch)
    made.node("a")
    made.create("a")
    made.invite("a")
    return made


@pytest.fixture
def world(tmp_path: Path) -> World:
    return a_founder_that_invited(tmp_path)


def read_all(host: Host) -> None:
    node = store.load(host)
    assert node is not None
    store.load_invites(host)
    store.load_nonces(host)
    pendingjoin.load(host, node.mesh)
    etcdstore.load_pinned(host)
    etcdstore.load_authority(host)
    etcdholder.held_epoch(host)


class Changing:
    """Files that somebody else changes just after the first look at what is in `place`."""

    def __init__(self, files: Files, place: Path, change: Callable[[], object]) -> None:
        self._files = files
        self._place = place
        self._changes = [change]

    def names(self, path: Path) -> tuple[str, ...]:
        listed = self._files.names(path)
        if path == self._place and self._changes:
            self._changes.pop()()
        return listed

    def __getattr__(self, name: str) -> object:
        return getattr(self._files, name)


def seen_while(world: World, place: Path, change: Callable[[], object]) -> Host:
    host = world.host("a")
    return replace(host, files=cast(Files, Changing(host.files, place, change)))


def test_a_record_that_is_replaced_while_it_is_read_is_no_damage(world: World) -> None:
    """`keel mesh status` on a member in the moment in which a pass takes a newer record."""
    host = world.host("a")

    def says_more() -> None:
        selfrecord.refresh(host, world.spec("a"), world.loaded("a"), lived=1)

    found = store.load(seen_while(world, host.paths.roster, says_more))
    assert found is not None
    assert found.roster == world.loaded("a").roster
    me = found.view.by_key(found.key)
    assert me is not None
    assert me.lived == 1


def test_an_invite_that_ends_while_it_is_read_is_no_damage(world: World) -> None:
    host = world.host("a")
    (invite,) = store.load_invites(host)
    ends = partial(store.forget_invite, host, invite.invite)
    assert store.load_invites(seen_while(world, host.paths.invites, ends)) == ()


class Haunted(Changing):
    """Files of which one is always listed and never there."""

    def names(self, path: Path) -> tuple[str, ...]:
        listed = super().names(path)
        return (*listed, GHOST) if path == self._place else listed


GHOST = "0" * 64


def test_a_record_that_is_listed_and_never_there_is_damage(world: World) -> None:
    host = world.host("a")
    haunted = Haunted(host.files, host.paths.roster, lambda: None)
    with pytest.raises(StateCorrupt) as corrupt:
        store.load(replace(host, files=cast(Files, haunted)))
    assert corrupt.value.path == host.paths.roster / GHOST


def gone(path: Path) -> Path:
    path.unlink()
    return path


def garbled(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"garbage")
    return path


def misnamed(path: Path) -> Path:
    return path.rename(path.with_name("0" * 64 if len(path.name) == 64 else "0" * 32 + ".json"))


def forged(path: Path) -> Path:
    """Signed by nobody: its name is still the hash of what is signed."""
    raw = path.read_bytes()
    at = raw.index(b'"sig":"') + len(b'"sig":"')
    path.write_bytes(raw[:at] + (b"A" if raw[at : at + 1] != b"A" else b"B") + raw[at + 1 :])
    return path


def a_record(host: Host) -> Path:
    return host.paths.roster / host.files.names(host.paths.roster)[0]


def an_invite(host: Host) -> Path:
    return host.paths.invites / host.files.names(host.paths.invites)[0]


def a_pending_join(host: Host) -> Path:
    return host.paths.pending_join(store.require(host).mesh) / "join.json"


DAMAGE: dict[str, tuple[Callable[[Host], Path], Callable[[Path], Path]]] = {
    "no genesis": (lambda host: host.paths.genesis, gone),
    "no trust store": (lambda host: host.paths.trust, gone),
    "no key": (lambda host: host.paths.wireguard_key, gone),
    "a record under another's name": (a_record, misnamed),
    "a record of a forged signature": (a_record, forged),
    "an invite under another's name": (an_invite, misnamed),
    "nonces": (lambda host: host.paths.nonces, garbled),
    "window": (lambda host: host.paths.window, garbled),
    "pending join": (a_pending_join, garbled),
    "fingerprint of the root": (lambda host: host.paths.etcd_pinned, garbled),
    "no key of the root": (lambda host: host.paths.generation(1) / "root.key", gone),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_whoever_reads_it_stops_with_its_path_and_a_remedy(world: World, name: str) -> None:
    host = world.host("a")
    find, spoil = DAMAGE[name]
    path = find(host)
    read_all(host)
    spoiled = spoil(path)
    with pytest.raises(StateCorrupt) as caught:
        read_all(host)
    stopped_at = caught.value.path
    if spoil is not forged:
        assert stopped_at == spoiled
    assert stopped_at.parent == spoiled.parent
    assert caught.value.remedy()


def test_a_root_beside_anothers_key_is_not_used(world: World) -> None:
    host = world.host("a")
    path = host.paths.generation(1) / "root.key"
    path.write_bytes((host.paths.intermediate(1) / "key.pem").read_bytes())
    with pytest.raises(StateCorrupt) as caught:
        read_all(host)
    assert caught.value.path == path
    assert "not the key" in caught.value.problem


def test_another_record_in_the_place_of_the_holders_statement_is_not_obeyed(world: World) -> None:
    host = world.host("a")
    host.paths.holder_statement.write_bytes(host.paths.genesis.read_bytes())
    with pytest.raises(StateCorrupt) as caught:
        read_all(host)
    assert caught.value.path == host.paths.holder_statement


def test_a_granted_intermediate_counts_until_the_next_one_is_granted(world: World) -> None:
    """The directory of the next one has only its key while the request is on its way (D3)."""
    host = world.host("a")
    etcdstore.make_key(host, host.paths.intermediate(2) / "key.pem")
    granted = etcdstore.load_intermediate(host)
    assert granted is not None
    assert granted[0] == 1


def test_samples_of_the_last_look_are_hints_and_stop_nothing(world: World) -> None:
    host = world.host("a")
    garbled(host.paths.liveness)
    assert status.look(host, world.spec("a")).members == ()


def test_nonces_that_no_longer_matter_go_once_they_are_many(world: World) -> None:
    host = world.host("a")
    world.node("b", mode="cloud")
    world.join("b", world.invite("a"))
    world.settle()
    lines = host.paths.nonces.read_bytes().splitlines(keepends=True)
    old = [lines[0].replace(lines[0].split()[1], b"%032x" % n) for n in range(5000)]
    world.net.clock.sleep(3600)
    host.paths.nonces.write_bytes(b"".join(old))
    world.sync("b")
    assert len(host.paths.nonces.read_bytes().splitlines()) < 100
