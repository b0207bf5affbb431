"""`--dry-run` of the commands of a mesh: it says what the command does, and does nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from keel.mesh import store
from keel.mesh.trust import with_block
from tests.flow.test_remove_cli import typed
from tests.flow.test_window import mesh_of, three_members
from tests.flow.world import World

Steps = list[tuple[str, str]]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return three_members(tmp_path)


def disks(world: World) -> dict[Path, bytes]:
    return {
        path: path.read_bytes()
        for node in world.net.nodes.values()
        for path in node.root.rglob("*")
        if path.is_file()
    }


@contextmanager
def nothing_happens(world: World) -> Iterator[None]:
    """No file of any node is another, no machine was touched, no message left."""
    before = disks(world), done(world)
    yield
    assert (disks(world), done(world)) == before


def done(world: World) -> tuple[int, int, list[list[str]]]:
    effects = [list(node.effects.done) for node in world.net.nodes.values()]
    return len(world.kicks), len(world.net.exchanges), effects


def shown(world: World, name: str, line: str) -> Steps:
    """The steps that a dry run prints, as text and as JSON, and that it does nothing."""
    with nothing_happens(world):
        status, out, err = typed(world, name, f"{line} --dry-run")
        assert (status, err) == (0, [])
        document: dict[str, Any] = json.loads(typed(world, name, f"{line} --dry-run --json")[1])
    assert document["schema"] == "keel.plan/1"
    found = [(step["action"], step["subject"]) for step in document["steps"]]
    lines = [f"{step['action']} {step['subject']}: {step['why']}" for step in document["steps"]]
    assert out.splitlines() == (lines or ["nothing to do"])
    return found


def refused_alike(world: World, name: str, line: str) -> str:
    """The rule by which both the dry run and the command refuse, with the same words."""
    with nothing_happens(world):
        dry = typed(world, name, f"{line} --dry-run")
    assert typed(world, name, line) == dry
    rule: str = json.loads(typed(world, name, f"{line} --dry-run --json")[1])["rule"]
    return rule


def test_trust_add_and_drop_show_the_root_and_the_self_record(world: World) -> None:
    add, drop = "mesh trust add --root b", "mesh trust drop --root b"
    assert shown(world, "a", add) == [("add-root", "b"), ("sign-self", "this node")]
    assert shown(world, "a", drop) == []
    assert typed(world, "a", add)[:2] == (0, "member/b trusted")
    assert shown(world, "a", add) == []
    assert typed(world, "a", add)[:2] == (0, "already so")
    assert shown(world, "a", drop) == [("drop-root", "b"), ("sign-self", "this node")]
    # the inviter's root is no operator's yet, so the others do not hear that it goes
    assert shown(world, "b", "mesh trust drop --root a") == [("drop-root", "a")]
    assert shown(world, "b", "mesh trust add --root a")[0] == ("add-root", "a")


def test_trust_add_shows_that_a_block_is_lifted(world: World) -> None:
    host, node = world.host("a"), world.loaded("a")
    blocked = with_block(node.trust, world.loaded("b").key, why="", now=host.clock.now())
    store.save_trust(host, blocked)
    line = "mesh trust add --root b"
    whole = [("lift-block", "b"), ("add-root", "b"), ("sign-self", "this node")]
    assert shown(world, "a", line) == whole
    assert typed(world, "a", line)[:2] == (0, "member/b trusted")
    assert len(world.kicks) == 1  # of the sync that lets it in
    world.settle()
    trusting = world.loaded("a").trust
    again = with_block(trusting, world.loaded("b").key, why="", now=host.clock.now())
    store.save_trust(host, again)
    assert shown(world, "a", line) == [("lift-block", "b")]


def test_trust_is_refused_alike(world: World) -> None:
    assert refused_alike(world, "a", "mesh trust add --root a") == "trust-self"
    assert refused_alike(world, "a", "mesh trust drop --root x") == "member-unknown"
    world.open_window("a", "c")
    for verb in ("add", "drop"):
        assert refused_alike(world, "a", f"mesh trust {verb} --root b") == "window-open"


def test_an_invite_is_made_by_the_command_alone(world: World) -> None:
    line = "mesh invite --life 30m"
    for dry in (line, f"{line} --wait"):
        assert shown(world, "a", dry) == [
            ("make-invite", "one node"),
            ("add-peer", "who has the token"),
        ]
    ends = typed(world, "a", f"{line} --dry-run")[1].splitlines()[0].rpartition(" ")[2]
    assert typed(world, "a", line)[2][0].endswith(f"is good for one node until {ends}")
    with nothing_happens(world):  # it changes nothing anyway
        listed = typed(world, "a", "mesh invite --list --dry-run")
        assert listed == typed(world, "a", "mesh invite --list")


def test_an_invite_is_refused_alike(world: World) -> None:
    world.node("x", mode="cloud")
    assert refused_alike(world, "x", "mesh invite") == "not-in-mesh"
    assert refused_alike(world, "a", "mesh invite --life 25h") == "invite-life"
    for _ in range(16):
        world.invite("b")
    assert refused_alike(world, "b", "mesh invite") == "invite-too-many"
    world.net.nodes["b"].machine.hosts = ()
    assert refused_alike(world, "b", "mesh invite") == "no-endpoint"
    world.open_window("a", "c")
    assert refused_alike(world, "a", "mesh invite") == "window-open"


def test_a_cancelled_invite_takes_its_claimant_along(world: World) -> None:
    token = world.invite("a")
    line = f"mesh invite --cancel {token.invite[:8]}"
    assert shown(world, "a", line) == [("cancel-invite", token.invite)]
    world.node("d", mode="cloud")
    joiner = world.net.nodes["d"]
    joiner.effects.crash_on = lambda text: text.startswith("post") and "hello" in text
    assert joiner.dies(lambda: world.join("d", token))
    assert shown(world, "a", line) == [
        ("cancel-invite", token.invite),
        ("sign-removal", "d"),
        ("tell-members", "b, c"),
    ]
    joiner.new_life()
    world.net.cut("a", "d")
    assert typed(world, "a", line)[0] == 0
    assert set(world.loaded("a").view.removed) == {world.loaded("d").key}
    assert refused_alike(world, "a", line) == "invite-closed"
    assert refused_alike(world, "a", "mesh invite --cancel ffff") == "invite-unknown"


def test_a_cancelled_invite_of_one_that_is_alone_tells_nobody(tmp_path: Path) -> None:
    world = World(tmp_path)
    mesh_of(world, "a")
    token = world.invite("a")
    world.node("d", mode="cloud")
    joiner = world.net.nodes["d"]
    joiner.effects.crash_on = lambda text: text.startswith("post") and "hello" in text
    assert joiner.dies(lambda: world.join("d", token))
    found = shown(world, "a", f"mesh invite --cancel {token.invite}")
    assert found == [("cancel-invite", token.invite), ("sign-removal", "d")]
    world.open_window("a", "d")
    assert refused_alike(world, "a", f"mesh invite --cancel {token.invite}") == "window-open"
