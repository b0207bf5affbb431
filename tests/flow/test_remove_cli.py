"""`keel mesh remove`, `keel network` and `keel spec apply` as typed: text, status, JSON."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from keel.cli.main import main
from tests.flow.test_window import edit, over_ssh, three_members
from tests.flow.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return three_members(tmp_path)


def typed(world: World, name: str, line: str) -> tuple[int, str, list[str]]:
    out, err = io.StringIO(), io.StringIO()
    node = world.net.nodes[name]
    status = main(line.split(), stdout=out, stderr=err, make_host=lambda chosen, stderr: node.host)
    return status, out.getvalue().strip(), err.getvalue().splitlines()


def document(world: World, name: str, line: str) -> tuple[int, dict[str, Any]]:
    status, out, _ = typed(world, name, f"{line} --json")
    found: dict[str, Any] = json.loads(out)
    return status, found


def test_a_removal_says_what_it_did_and_who_knows(world: World) -> None:
    world.net.nodes["c"].power_off()
    # nobody but b answered, so only the operator confirms it
    status, out, err = typed(world, "a", "mesh remove b")
    assert (status, out) == (4, "")
    assert err[0] == ("keel: the removal of b waits for your word: no member answered just before")
    assert err[1].startswith("keel: hint: `keel network confirm` within 120 s")
    status, out, err = typed(world, "a", "network confirm")
    assert (status, out) == (0, "member/b removed")
    assert err == ["keel: not reached, learn it before they listen to it: c"]


def test_a_removal_in_json(world: World) -> None:
    address = world.loaded("b").address.compressed
    assert document(world, "a", "mesh remove b") == (
        0,
        {
            "schema": "keel.remove/1",
            "member": "b",
            "address": address,
            "means": "removal",
            "mesh_wide": True,
            "votes": None,
            "admitter": None,
            "told": ["c"],
            "not_told": [],
            "etcd": None,
            "enforced": [],
            "not_yet": [],
        },
    )
    assert typed(world, "a", "mesh remove b")[:2] == (0, "already so")


def test_a_block_says_that_it_is_one_and_what_removes_for_all(world: World) -> None:
    status, out, err = typed(world, "b", "mesh remove c")
    assert (status, out) == (0, "member/c blocked here")
    assert err[0] == "keel: c is blocked on this node alone and stays a member"
    assert err[1].startswith(
        "keel: hint: for all: `keel mesh remove c` on a, which admitted it, or"
    )
    assert "`keel mesh remove --vote c`" in err[1]
    blocked = document(world, "b", "mesh status")[1]["warnings"][0]
    assert blocked["remedy"].startswith("`keel mesh remove c` on a, which admitted it, or")


def test_the_dry_run_of_a_block_says_who_may_do_more(world: World) -> None:
    _, out, _ = typed(world, "b", "mesh remove c --dry-run")
    assert "no right to remove it for all, a has: here alone" in out


@pytest.mark.parametrize(
    ("off", "said"),
    [
        pytest.param((), (), id="all heard it"),
        pytest.param(
            ("c",), ("keel: not reached, learn it from the others: c",), id="one heard it"
        ),
        pytest.param(
            ("c", "a"),
            (
                "keel: nobody was reached of a, c: whichever of them still lists this node takes it"
                " out with `keel mesh remove b`",
            ),
            id="nobody heard it",
        ),
    ],
)
def test_who_leaves_is_told_from_whom_the_others_hear_it(
    world: World, off: tuple[str, ...], said: tuple[str, ...]
) -> None:
    for name in off:
        world.net.nodes[name].power_off()
    address = world.loaded("b").address
    status, out, err = typed(world, "b", "mesh leave --yes")
    assert (status, out) == (0, f"member/{address} left")
    assert err[0].startswith("keel: its keys and state are kept below")
    assert tuple(err[1:]) == said


def test_with_the_admitter_gone_votes_alone_remove_for_all(world: World) -> None:
    typed(world, "a", "mesh leave --yes")
    world.timers()
    _, out, _ = typed(world, "b", "mesh remove c --dry-run")
    assert "no right to remove it for all: here alone" in out
    typed(world, "b", "mesh remove c")
    err = typed(world, "b", "network confirm")[2]
    assert err[-1].startswith("keel: hint: for all: `keel mesh remove --vote c` on more than half")
    warned = document(world, "b", "mesh status")[1]["warnings"]
    remedies = [one["remedy"] for one in warned if one["code"] == "member-blocked"]
    assert remedies[0].startswith("`keel mesh remove --vote c` on more than half")


def test_a_vote_prints_how_many_of_how_many(world: World) -> None:
    status, out, err = typed(world, "b", "mesh remove --vote c")
    assert (status, out) == (0, "member/c blocked here, and voted on")
    assert err[0] == "keel: 1 of 3 voted, 2 are needed"
    assert err[1] == "keel: told a"


def test_a_lost_member_has_to_be_typed_twice(world: World) -> None:
    world.net.nodes["c"].power_off()
    status, found = document(world, "b", "mesh remove --lost c")
    assert (status, found["rule"]) == (3, "name-not-typed")
    status, out, _ = typed(world, "b", "mesh remove --lost c --confirm c")
    assert (status, out) == (0, "member/c blocked here, and voted on")


def test_the_dry_run_prints_the_plan(world: World) -> None:
    status, out, _ = typed(world, "a", "mesh remove b --dry-run")
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()] == [
        "arm-window",
        "drop-peer",
        "confirm",
        "sign-removal",
        "tell-members",
    ]


def test_apply_that_waits_for_the_operator_says_so_and_goes_on_after(world: World) -> None:
    over_ssh(world, "a", world.loaded("b").address)
    edit(world, "a", "port: 51820", "port: 51999")
    status, found = document(world, "a", "spec apply")
    assert (status, found["schema"]) == (4, "keel.window/1")
    window = document(world, "a", "mesh status")[1]["window"]
    assert (window["change"], window["confirmed_by"], window["stage"]) == (
        "settings",
        "operator",
        "armed",
    )
    assert document(world, "a", "network confirm")[1]["changed"] == ["network/port changed"]
    assert typed(world, "a", "spec apply")[:2] == (0, "already so")
    assert document(world, "a", "mesh status")[1]["window"] is None


def test_undo_says_what_it_undid(world: World) -> None:
    over_ssh(world, "a", world.loaded("b").address)
    typed(world, "a", "mesh remove b")
    assert typed(world, "a", "network undo")[:2] == (0, "the removal of b undone")
    assert typed(world, "a", "network undo")[:2] == (0, "no change to the network waits")
    status, found = document(world, "a", "network confirm")
    assert (status, found["rule"]) == (3, "window-none")


def test_status_shows_a_confirmed_change_that_is_gone_on_with(world: World) -> None:
    from tests.flow.test_window import confirmed_and_dead

    confirmed_and_dead(world)
    assert world.net.nodes["a"].dies(lambda: world.remove("a", "b"))
    world.net.nodes["a"].new_life()
    found = document(world, "a", "mesh status")[1]
    (warning,) = [one for one in found["warnings"] if one["code"] == "window-open"]
    assert warning["text"].endswith("the removal of b is confirmed, and goes on")
