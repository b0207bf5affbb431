"""What commands say to whom does not know what to type next."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flow.test_remove_cli import typed
from tests.flow.test_status import formed
from tests.flow.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "world")


def test_env_says_that_no_etcd_runs_yet(world: World) -> None:
    world.mesh("ab")
    world.timers()
    status, out, err = typed(world, "a", "mesh etcd env")
    assert (status, out.count("export ")) == (0, 5)
    assert err[0] == "keel: no etcd of keel's runs on this node yet"


def test_env_of_a_member_of_the_cluster_says_nothing_else(world: World) -> None:
    formed(world)
    assert typed(world, "a", "mesh etcd env")[2] == []


def test_a_trial_of_no_channels_says_where_they_belong(world: World) -> None:
    world.node("a")
    status, out, err = typed(world, "a", "mesh etcd alert --test")
    assert (status, out) == (0, "nobody was told anything")
    assert "monitor.channels in the spec is empty" in err[0]
    assert typed(world, "a", "mesh etcd alert")[2] == []


def test_a_member_whose_mode_was_taken_back_is_still_called_a_voter(world: World) -> None:
    formed(world)
    path = world.net.nodes["b"].paths.spec
    path.write_text(path.read_text().replace("cloud_advanced", "cloud"))
    assert typed(world, "b", "mesh etcd status")[1].startswith("etcd: voter")
    status, out, err = typed(world, "b", "diff")
    assert status == 1
    assert "installation.mode" in out
    assert "stays cloud_advanced" in "\n".join(err)


@pytest.mark.parametrize("command", ["mesh create", "mesh join --token-file {token}"])
def test_a_member_is_told_in_which_mesh_it_is_already(
    world: World, tmp_path: Path, command: str
) -> None:
    world.mesh("ab")
    token = tmp_path / "token"
    token.write_text(world.make_invite("a").token.reveal().decode())
    status, out, err = typed(world, "b", command.format(token=token))
    assert (status, out) == (0, "already so")
    assert err[0] == f"keel: this node is in mesh {world.loaded('b').mesh} already"


def test_who_wants_to_go_without_a_quorum_is_given_the_whole_command(world: World) -> None:
    formed(world)
    for name in "ac":
        world.net.nodes[name].power_off()
    status, _, err = typed(world, "b", "mesh leave --yes")
    assert status == 3
    assert "`keel mesh leave --without-quorum --confirm b`" in err[-1]
    status, _, err = typed(world, "b", "mesh leave --without-quorum --yes")
    assert (status, err[-1]) == (3, "keel: hint: type the same command with `--confirm b`")
    assert typed(world, "b", "mesh leave --without-quorum --confirm b")[0] == 0


def test_a_node_does_not_leave_by_a_slip(world: World) -> None:
    world.mesh("ab")
    status, _, err = typed(world, "b", "mesh leave")
    assert status == 3
    assert err[0].startswith("keel: error: this takes b out of its mesh for good, and there is no")
    assert err[1].endswith("`keel mesh leave --yes` in a script, or `keel mesh leave --confirm b`")
    status, _, err = typed(world, "b", "mesh leave --yes --confirm a")
    assert (status, err[0]) == (3, "keel: error: this node is b, not a")
    assert world.loaded("b").view.by_key(world.loaded("b").key)
    status, out, _ = typed(world, "b", "mesh leave --confirm b")
    assert (status, out.endswith(" left")) == (0, True)


def test_a_node_whose_leave_was_cut_off_is_asked_for_the_name_it_had(world: World) -> None:
    world.mesh("ab")
    victim = world.net.nodes["b"]
    victim.effects.crash_on = lambda text: text.startswith("wg drop")
    assert victim.dies(lambda: typed(world, "b", "mesh leave --yes"))
    victim.new_life()
    assert typed(world, "b", "mesh leave")[2][0].startswith("keel: error: this takes b out")
    assert typed(world, "b", "mesh leave --confirm b")[0] == 0
