"""A path that carries small packets only, and says nothing of the others: pings pass, and nothing
that matters. Whoever stands before it is told that cause and no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from keel.cli import status as cli
from keel.cli.form import Form
from keel.errors import Exit, PeerError, Refused
from keel.mesh import selfrecord, store, wire
from keel.mesh.exchange import Hello
from keel.mesh.removal import Mode
from keel.mesh.window import settings_of
from keel.spec import apply
from keel.spec.model import MAX_MTU
from tests.flow.arranged import arranged
from tests.flow.test_form import without_root
from tests.flow.world import World

FULL = "full packets"


@arranged
def three(scratch: Path) -> World:
    world = World(scratch)
    world.mesh("abc", mode="cloud")
    world.timers()
    return world


@pytest.fixture
def world(tmp_path: Path) -> World:
    return three(tmp_path)


def narrow(world: World, *pairs: str) -> None:
    for one, other in pairs:
        world.net.narrow(one, other)


def warned(world: World, name: str) -> list[tuple[str, str]]:
    found: list[dict[str, Any]] = cli.look(world.host(name))["warnings"]  # type: ignore[assignment]
    return [(one["code"], one["text"].partition(" ")[0]) for one in found]


def test_status_on_both_ends_names_the_path(world: World) -> None:
    assert warned(world, "a") == []
    narrow(world, "ac")
    assert warned(world, "a") == [("path-mtu", "c")]
    assert warned(world, "c") == [("path-mtu", "a")]
    assert warned(world, "b") == []
    found = cli.look(world.host("a"))
    states = {one["name"]: one["state"] for one in found["members"]}  # type: ignore[attr-defined]
    assert states == {"b": "up", "c": "suspect"}
    world.net.heal()
    assert warned(world, "a") == []


def test_what_is_asked_in_full_packets_takes_more_than_one(world: World) -> None:
    """With a self record that says as little as one can."""
    node = world.loaded("a")
    hello = Hello(digest="", record=selfrecord.newest(node))
    assert len(wire.encode(wire.seal("hello", hello, node.identity.signing))) > MAX_MTU


def test_one_that_answers_nothing_is_only_silent(world: World) -> None:
    cli.look(world.host("a"))
    world.net.cut("a", "c")
    world.net.clock.sleep(20)
    assert warned(world, "a") == [("member-suspect", "c")]


def edit_mtu(world: World) -> None:
    spec = world.net.nodes["a"].paths.spec
    spec.write_text(spec.read_text().replace("port: 51820", "port: 51820, mtu: 1400"))


def test_a_larger_mtu_that_the_paths_do_not_carry_is_undone(world: World) -> None:
    """Small pings would pass all the same, and confirm what breaks the registry."""
    edit_mtu(world)

    def too_large(text: str) -> bool:
        if text.startswith("wg raise"):
            narrow(world, "ab", "ac")
        return False

    world.net.nodes["a"].effects.crash_on = too_large
    with pytest.raises(Refused) as refused:
        apply.apply(world.host("a"))
    assert refused.value.rule == "window-unconfirmed"
    assert settings_of(world.spec("a")).mtu == 1280
    assert not store.window_is_open(world.host("a"))


def test_a_larger_mtu_that_they_carry_is_confirmed(world: World) -> None:
    edit_mtu(world)
    assert apply.apply(world.host("a")).value.waiting is None
    assert settings_of(world.spec("a")).mtu == 1400


def test_one_that_answers_small_messages_is_not_lost(world: World) -> None:
    narrow(world, "ac")
    with pytest.raises(Refused) as refused:
        world.remove("a", "c", Mode.LOST, typed="c")
    assert refused.value.rule == "lost-answers"


def test_a_join_over_it_is_told(world: World) -> None:
    world.node("d", mode="cloud_advanced")
    token = world.invite("a")
    narrow(world, "ad")
    with pytest.raises(PeerError) as silent:
        world.join("d", token)
    assert FULL in silent.value.remedy()


def test_form_names_it(tmp_path: Path) -> None:
    world = without_root(tmp_path)
    narrow(world, "ac")
    with pytest.raises(Refused) as refused:
        world.form("a")
    assert refused.value.rule == "form-silent"
    assert FULL in refused.value.summary()


@pytest.mark.parametrize("formed", [False, True], ids=["before", "formed"])
def test_the_dry_run_of_form_is_a_no_go(tmp_path: Path, formed: bool) -> None:
    world = without_root(tmp_path)
    if formed:
        world.form("a")
        world.settle()
        world.rest("a", "b", "c")
    narrow(world, "ac")
    found = Form(without=(), dry_run=True).run(world.host("a"))
    assert isinstance(found.document, dict)
    assert found.exit is (Exit.DONE if formed else Exit.REFUSED)
    assert found.document["go"] is False
    (row,) = (one for one in found.document["checks"] if one["verdict"] == "no-go")
    assert (row["what"], row["where"]) == ("answer", "c")
    assert FULL in row["value"]
    assert "1360" in row["remedy"]


def test_the_dry_run_of_form_is_a_no_go_for_one_that_is_off(tmp_path: Path) -> None:
    world = without_root(tmp_path)
    world.net.nodes["c"].power_off()
    found = Form(without=(), dry_run=True).run(world.host("a"))
    assert isinstance(found.document, dict)
    rows = [one for one in found.document["checks"] if one["verdict"] == "no-go"]
    assert ("answer", "c") in {(one["what"], one["where"]) for one in rows}
    again = Form(without=("c",), dry_run=True).run(world.host("a"))
    assert isinstance(again.document, dict)
    assert "c" not in {one["where"] for one in again.document["checks"]}
