"""A machine that is installed anew, or another one, joins under a name that was used before: it is
a new member, and nothing of the old one's comes back with it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from keel.errors import Refused
from keel.mesh.expulsion import Consent
from tests.flow.arranged import arranged
from tests.flow.growing import grow, learners, off, the_cluster, three_voters
from tests.flow.world import SPEC, World

pytestmark = pytest.mark.lives


def spec(world: World, name: str, called: str) -> None:
    text = SPEC.format(mode="cloud_advanced", name=called)
    world.net.nodes[name].paths.spec.write_text(text)


def anew(world: World, name: str) -> None:
    """Nothing of keel's or etcd's is left on the machine."""
    node = world.net.nodes[name]
    off(world, name)
    for place in node.root.iterdir():
        shutil.rmtree(place)
    for shipped in ("etc/keel", "var/lib/keel"):
        (node.root / shipped).mkdir(parents=True)
    for unit in node.units.units.values():
        unit.enabled = unit.masked = False
    spec(world, name, name)
    node.power_on()


def joins(world: World, name: str, inviter: str = "a") -> None:
    world.join(name, world.invite(inviter))
    world.settle()


def removed(world: World) -> None:
    """c, by right, and out of etcd's list."""
    world.remove("a", "c")
    world.settle()


def listed(world: World) -> None:
    """c, and etcd counts it still: there was no quorum to take it out."""
    off(world, "b")
    world.remove("a", "c", typed="c", consent=Consent(without_quorum=True))
    world.confirm("a")
    world.settle()
    world.timers("a")


def unheard(world: World) -> None:
    """The same, and nobody has looked since."""
    world.remove("a", "c")


@pytest.mark.parametrize("gone", [removed, unheard, listed])
def test_a_removed_voter_comes_back_as_a_new_one(
    tmp_path: Path, gone: Callable[[World], None]
) -> None:
    world = three_voters(tmp_path)
    old = world.loaded("c").address
    gone(world)
    anew(world, "c")
    joins(world, "c")
    for _ in range(3):
        world.timers("a", "c")
    if not world.net.nodes["b"].alive:
        assert learners(world) == []  # no quorum: it waits, and the old one is still listed
        world.boot("b")
    grow(world, *"abc")
    world.timers()
    assert world.loaded("c").address != old
    urls = {one.peer_url for one in the_cluster(world).members.values()}
    assert not any(old.compressed in url for url in urls)
    assert world.formed("abc")
    assert world.agree("abc")


@arranged
def four_voters(scratch: Path) -> World:
    world = three_voters(scratch)
    joins(world, "d")
    grow(world, *"abcd")
    return world


def test_one_that_was_off_for_all_of_it_takes_both_in_turn(tmp_path: Path) -> None:
    world = four_voters(tmp_path)
    off(world, "d")
    world.remove("a", "c", typed="c", consent=Consent(without_quorum=True))
    world.settle()
    anew(world, "c")
    joins(world, "c", "b")
    for _ in range(3):
        world.timers(*"abc")
    world.boot("d")
    grow(world, *"abcd")
    world.timers()
    names = sorted(member.display for member in world.loaded("d").view.members)
    assert names == ["a", "b", "c", "d"]
    assert world.agree("abcd")


def test_another_machine_takes_the_name_and_the_old_one_stays_out(tmp_path: Path) -> None:
    world = three_voters(tmp_path)
    removed(world)
    spec(world, "d", "c")
    joins(world, "d")
    grow(world, "a", "b", "d")
    for _ in range(2):
        world.timers()
    old, new = world.loaded("c"), world.loaded("d")
    for name in ("a", "b", "d"):
        view = world.loaded(name).view
        assert old.key in view.removed
        assert [one.key for one in view.members if one.display == "c"] == [new.key]
        assert old.address not in world.peers(name)
    assert world.formed(["a", "b", "d"])


def test_one_that_was_installed_anew_and_not_removed_is_told_to_remove_it_first(
    tmp_path: Path,
) -> None:
    world = three_voters(tmp_path)
    anew(world, "c")
    with pytest.raises(Refused) as refused:
        joins(world, "c")
    assert refused.value.rule == "join-name"
    assert "`keel mesh remove c`" in refused.value.remedy()
    world.remove("a", "c")
    world.settle()
    joins(world, "c")
    grow(world, *"abc")
    assert world.agree("abc")
