"""What commands say to whom does not know what to type next."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from keel.cli import status
from keel.cli.mesh import Sync
from keel.errors import StateCorrupt
from keel.mesh import etcd, etcdbeside
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


@pytest.mark.parametrize(
    "command",
    ["mesh etcd form --dry-run", "mesh etcd form", "mesh sync", "mesh leave --dry-run"],
)
def test_a_node_without_company_asks_nobody(world: World, command: str) -> None:
    world.mesh("a")
    typed(world, "a", command)
    told = [text for text in world.net.nodes["a"].console.waited if text.endswith((" ", " on"))]
    assert told == []


def test_a_change_to_the_network_of_a_node_without_company_asks_nobody(world: World) -> None:
    world.mesh("a")
    path = world.net.nodes["a"].paths.spec
    path.write_text(path.read_text().replace("port: 51820", "port: 51820, mtu: 1300"))
    assert typed(world, "a", "spec apply")[0] == 0
    assert world.net.nodes["a"].console.waited == []


def test_there_is_no_place_to_replace_where_no_cluster_is(world: World) -> None:
    world.mesh("ab")
    world.timers()
    for name in "ab":
        status, _, err = typed(world, name, "mesh etcd recover --replace --dry-run")
        assert status == 3
        assert "no cluster was formed yet" in err[0]


@pytest.mark.lives
def test_members_are_named_in_the_order_in_which_a_person_looks_for_them(world: World) -> None:
    world.mesh("abcdef")
    world.timers()
    typed(world, "c", "mesh etcd form --dry-run")
    waited = world.net.nodes["c"].console.waited
    assert "asking a, b, d, e, f" in waited
    assert "measuring on a, b, d, e, f" in waited
    status, out, _ = typed(world, "c", "mesh trust list")
    assert (status, [line.split()[0] for line in out.splitlines()[1:]]) == (0, [*"abdef"])


def test_a_trust_list_without_company_says_so(world: World) -> None:
    world.mesh("a")
    assert typed(world, "a", "mesh trust list")[2] == ["keel: this node has no other members"]


def test_a_join_beside_a_pass_of_the_timer_says_so_in_no_jargon(world: World) -> None:
    world.mesh("a")
    world.node("b")
    joined = world.join("b", world.invite("a"))
    host = world.host("b")
    with host.locks.hold(host.paths.tend_lock, what="the tend"):
        said = etcd.after_join(host, lambda: world.spec("b"), lambda _: None, joined)
    assert said[-1] == "a pass of the timer is at work just now and goes on with it"


def test_a_join_whose_first_pass_meets_a_full_disk_is_a_join_and_says_so(world: World) -> None:
    world.mesh("a")
    world.node("b")
    joined = world.join("b", world.invite("a"))
    world.net.nodes["b"].disk.refuse = lambda _: errno.ENOSPC
    said = etcd.after_join(world.host("b"), lambda: world.spec("b"), lambda _: None, joined)
    assert "no space left on device" in said[-1]


def test_env_without_a_certificate_names_what_issues_it(world: World) -> None:
    world.mesh("a")
    world.timers()
    host = world.host("a")
    host.files.remove(host.paths.etcd / "leaf")
    status, _, err = typed(world, "a", "mesh etcd env")
    assert (status, "`keel mesh etcd tend`" in err[1]) == (3, True)
    typed(world, "a", "mesh etcd tend")
    assert typed(world, "a", "mesh etcd env")[0] == 0


def test_who_does_not_hear_a_voter_says_that_and_why(world: World) -> None:
    formed(world)
    world.sync("a")
    typed(world, "b", "mesh remove c")
    _, out, _ = typed(world, "b", "mesh status")
    assert "whether its etcd serves cannot be seen from here (member-blocked)" in out
    assert "etcd-voter-silent" not in out
    world.net.nodes["c"].power_off()
    world.net.clock.sleep(90)
    _, out, _ = typed(world, "a", "mesh status")
    assert "; without it the cluster has no fault tolerance (member-down)" in out
    assert "etcd-voter-silent" not in out


@pytest.mark.parametrize("entry", ["51820", "7000"], ids=["old port", "a NAT's"])
def test_an_endpoint_that_keeps_the_old_port_is_named(world: World, entry: str) -> None:
    world.mesh("ab")
    path = world.net.nodes["a"].paths.spec
    changed = f'port: 51999, endpoints: ["198.51.100.1:{entry}"]'
    path.write_text(path.read_text().replace("port: 51820", changed))
    _, _, err = typed(world, "a", "spec apply")
    named = [line for line in err if line.startswith("keel: network.wireguard.endpoints still")]
    assert bool(named) is (entry == "51820")


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


def test_a_sync_says_whom_it_reached_by_name(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.mesh("abcde")
    assert Sync(dry_run=False).run(world.host("a")).text.startswith("reached b, c, d, e; ")
    world.net.nodes["e"].power_off()
    world.net.nodes["b"].power_off()
    report = Sync(dry_run=False).run(world.host("a"))
    assert report.text.startswith("reached c, d; ")
    assert [line.split()[1].strip(":") for line in report.notes[:2]] == ["b", "e"]


def test_a_sync_that_reaches_nobody_says_so(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.mesh("ab")
    world.net.nodes["b"].power_off()
    assert Sync(dry_run=False).run(world.host("a")).text.startswith("reached nobody; ")


def test_a_sync_alone_has_nobody_to_reach(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.mesh("a")
    assert Sync(dry_run=False).run(world.host("a")).text == (
        "there is no other member to be asked; 0 new records"
    )


def test_warnings_about_members_stand_in_their_names_order(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.mesh("abcde")
    for name in "bcde":
        world.net.nodes[name].power_off()
    world.net.clock.sleep(120)
    found = status.look(world.host("a"))["warnings"]
    assert isinstance(found, list)
    quiet = [one["text"].split()[0] for one in found if one["code"].startswith("member-")]
    assert quiet == ["b", "c", "d", "e"]


@pytest.mark.parametrize("size", [4000, 2 << 20])
def test_a_marker_that_is_far_too_large_is_told_as_a_damaged_file(
    tmp_path: Path, size: int
) -> None:
    world = World(tmp_path)
    world.mesh("a")
    host = world.host("a")
    host.paths.etcd_marker.parent.mkdir(parents=True)
    host.paths.etcd_marker.write_bytes(b"x" * size)
    for load in (etcdbeside.load_marker, etcdbeside.read_marker):
        with pytest.raises(StateCorrupt) as caught:
            load(host)
        assert "marker.json" in caught.value.summary()
