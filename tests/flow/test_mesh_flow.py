"""Create, invite, join, sync and leave as whole nodes."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from keel.cli.mesh import Join
from keel.cli.verb import Report
from keel.errors import PeerError, Refused
from keel.mesh import create, etcdstore, members, roster, store, talk
from keel.mesh.etcdmsg import PROBE, Probe, ProbeAnswer
from keel.spec import apply
from keel.types import Endpoint
from keel.unitnames import CHANNEL_SOCKET, FAST_TIMER, TEND_UNIT
from tests.flow.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_three_nodes_become_one_mesh(world: World) -> None:
    world.mesh("abc", mode="cloud")
    for name in "abc":
        world.sync(name)
    views = [world.loaded(name) for name in "abc"]
    assert [[m.name for m in sorted(v.view.members, key=lambda m: m.name)] for v in views] == [
        ["a", "b", "c"]
    ] * 3
    assert len({roster.digest(v.roster) for v in views}) == 1
    assert members.find(views[2].view, "b").address == views[1].address


@pytest.mark.parametrize(
    ("mode", "enrolled"), [("cloud", False), ("cloud_advanced", True)], ids=["plain", "capable"]
)
def test_the_command_brings_the_registry_along_where_it_can_run(
    world: World, tmp_path: Path, mode: str, enrolled: bool
) -> None:
    world.node("a")
    world.node("b", mode=mode)
    world.create("a")
    token = tmp_path / "token"
    token.write_bytes(world.make_invite("a").token.reveal())
    report = Join(source=str(token), discard=False, dry_run=False).run(world.host("b"))
    assert isinstance(report, Report)
    assert report.text == f"member/{world.loaded('b').address} joined"
    assert (etcdstore.load_intermediate(world.host("b")) is not None) is enrolled


def test_a_confirmation_changes_the_joiners_peer_and_nothing_else_of_the_interface(
    world: World,
) -> None:
    """The joiner waits for the answer meanwhile."""
    for name in "ab":
        world.node(name, mode="cloud")
    world.create("a")
    token = world.invite("a")
    inviter = world.net.nodes["a"]
    inviter.effects.done.clear()
    world.join("b", token)
    touched = [what for what in inviter.effects.done if what.startswith(("wg ", "firewall"))]
    key = world.loaded("b").identity.wireguard.public
    assert {what for what in touched if key not in what} == set()
    assert inviter.host.wireguard.show("keel0").peers  # type: ignore[union-attr]  # it is raised


def test_systemd_loads_its_units_anew_only_where_it_has_an_older_one(world: World) -> None:
    fresh, older, killed = (world.node(name, mode="cloud") for name in "abc")
    world.create("a")
    assert fresh.units.reloads == 0
    older.units.unit(CHANNEL_SOCKET).stale = True
    world.create("b")
    assert older.units.reloads == 1
    assert older.effects.done.index("daemon-reload") < older.effects.done.index(
        f"start {CHANNEL_SOCKET}"
    )
    killed.units.unit(CHANNEL_SOCKET).stale = True
    killed.effects.crash_on = lambda text: text == "daemon-reload"
    assert killed.dies(lambda: world.create("c"))
    killed.new_life()
    world.create("c")
    assert killed.units.reloads == 1


def test_a_peer_that_wireguard_does_not_take_keeps_nobody_elses_from_being_set(
    world: World,
) -> None:
    world.mesh("abcd", mode="cloud")
    world.sync("b")
    address = {name: world.loaded(name).address for name in "acd"}
    device = world.net.nodes["b"].wireguard
    key = world.loaded("c").identity.wireguard.public
    device.refuses = {key}
    world.boot("b")
    assert world.peers("b") == {address["a"], address["d"]}
    assert any("Invalid argument" in text for text in world.net.nodes["b"].console.said)
    device.refuses = set()
    world.sync("b")
    assert world.peers("b") == set(address.values())
    device.refuses = {key}
    world.leave("c")
    world.settle()
    assert address["c"] in world.peers("b")  # not even gone, and the rest goes on
    assert not world.loaded("b").view.by_address(address["c"])


def test_the_third_capable_node_gives_birth_to_one_cluster(world: World) -> None:
    world.mesh("abc")
    world.tends("abc")
    (cluster,) = world.etcd.births()
    assert len(cluster.voters()) == 3


def test_the_holder_starts_its_own_etcd_while_the_others_are_told(world: World) -> None:
    world.mesh("ab", spare="c")
    world.tend("a")
    holder = world.net.nodes["a"]
    holder.units.on_start[TEND_UNIT] = lambda: None
    world.join("c", world.invite("a"))
    holder.effects.done.clear()
    world.tend("a")
    done = holder.effects.done
    said = next(at for at, what in enumerate(done) if what.startswith("post"))
    answered = next(at for at, what in enumerate(done) if what.startswith("answer"))
    assert "start etcd.service" in done[said:answered]
    assert "daemon-reload" not in done
    world.settle()
    assert len(world.etcd.births()) == 1


def test_the_key_file_holds_the_key_that_wireguard_shows(world: World) -> None:
    node = world.node("a")
    world.create("a")
    private = world.loaded("a").identity.wireguard.private
    assert base64.b64decode(node.paths.wireguard_key.read_bytes()) == private.reveal()


def test_a_record_that_comes_while_the_tend_runs_is_not_forgotten(world: World) -> None:
    """systemd starts no second pass while one runs: the fast timer is what remains."""
    world.mesh("ab", spare="c")
    member = world.net.nodes["b"]
    member.units.on_start[TEND_UNIT] = lambda: None
    world.join("c", world.invite("a"))
    world.settle()
    assert member.units.unit(FAST_TIMER).active


def test_a_new_endpoint_of_a_member_is_followed(world: World) -> None:
    for name in "ab":
        world.node(name, mode="cloud")
    world.create("a")
    joined = world.join("b", world.invite("a"))
    world.settle()
    spec = world.net.nodes["b"].paths.spec
    spec.write_text(
        spec.read_text().replace("port: 51820}", 'port: 51820, endpoints: ["203.0.113.77:51820"]}')
    )
    assert apply.apply(world.host("b")).value.waiting is None
    device = world.host("a").wireguard.show("keel0")
    assert device is not None
    (endpoint,) = [
        peer.endpoint
        for peer in device.peers
        if peer.allowed == (f"{joined.node.address.compressed}/128",)
    ]
    assert str(endpoint) == "203.0.113.77:51820"


def test_who_was_alone_tells_where_it_is_in_the_pass_that_finds_the_others(world: World) -> None:
    world.mesh("ab")
    world.net.cut("a", "b")
    world.sync("b")
    moved = Endpoint.parse("203.0.113.77:51820")
    world.net.nodes["b"].machine.hosts = (moved,)
    world.sync("b")
    world.net.heal()
    world.sync("b")
    told = world.loaded("a").view.by_key(world.loaded("b").key)
    assert told is not None
    assert told.endpoints == (moved,)


def test_a_member_that_asks_hears_of_damage_by_its_kind_and_the_journal_has_the_path(
    world: World,
) -> None:
    world.mesh("ab")
    damaged = world.host("a").paths.etcd_cluster
    damaged.write_bytes(b"{")
    node = world.loaded("b")
    (member,) = talk.others(node)
    with pytest.raises(PeerError) as caught:
        talk.ask(
            world.host("b"),
            node,
            member,
            PROBE,
            Probe(),
            ProbeAnswer,
            path="/v1/etcd",
        )
    assert caught.value.summary() == "a: a file of its state cannot be read"
    assert str(damaged) in "\n".join(world.net.nodes["a"].console.said)


def test_a_dry_run_of_create_shows_the_root_that_a_capable_founder_makes(world: World) -> None:
    for name, mode in (("a", "cloud_advanced"), ("b", "cloud")):
        world.node(name, mode=mode)
    steps = {
        name: [step.action for step in create.plan(world.host(name), world.spec(name)).steps]
        for name in "ab"
    }
    assert steps["b"] == ["make-keys", "found-mesh", "raise"]
    assert steps["a"] == [*steps["b"], "make-root"]
    world.create("a")
    assert not create.plan(world.host("a"), world.spec("a"))


def test_a_node_whose_join_was_begun_is_told_to_finish_it(world: World) -> None:
    for name in "ab":
        world.node(name, mode="cloud")
    world.create("a")
    token = world.invite("a")
    world.net.cut("a", "b")
    with pytest.raises(PeerError):
        world.join("b", token)
    with pytest.raises(Refused) as refused:
        store.require(world.host("b"))
    assert "same token" in refused.value.remedy()
