"""Leaving a mesh, trusting a member's operator, and what etcdctl is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from keel.errors import LockHeld, Refused
from keel.mesh import etcdenv, leave, store, trustflow
from keel.mesh.expulsion import Consent
from keel.unitnames import CHANNEL_SOCKET, FAST_TIMER, MESH_UNIT, PASSES, PULLED_IN, TIMERS
from tests.flow.arranged import arranged
from tests.flow.world import World


def mesh_of(world: World, names: str, *, mode: str = "cloud") -> None:
    world.mesh(names, mode=mode)
    for name in names:
        world.sync(name)
        world.settle()


def test_who_is_alone_leaves_without_a_word(tmp_path: Path) -> None:
    world = World(tmp_path)
    mesh_of(world, "a")
    left = world.leave("a")
    assert (left.told, left.not_told) == ((), ())
    assert store.load(world.host("a")) is None


def test_a_leave_that_was_cut_off_goes_on_and_signs_nothing_twice(tmp_path: Path) -> None:
    world = World(tmp_path)
    mesh_of(world, "ab")
    node = world.net.nodes["b"]
    node.effects.crash_on = lambda text: text.startswith("post ")
    assert node.dies(lambda: world.leave("b"))
    node.new_life()
    signed = world.loaded("b").view.removed
    assert len(signed) == 1
    assert world.leave("b").told == ("a",)
    assert world.loaded("a").view.removed == signed


def test_who_leaves_gives_tcp_back_to_the_kernel(tmp_path: Path) -> None:
    world = World(tmp_path)
    mesh_of(world, "ab")
    machine = world.host("b").machine
    machine.bound_tcp()
    leave.leave(world.host("b"), world.spec("b"))
    assert machine.tcp_bound_now() == "off"


def voters(world: World) -> int:
    (cluster,) = world.etcd.clusters
    return len(cluster.voters())


@arranged
def formed(tmp_path: Path) -> World:
    world = World(tmp_path)
    mesh_of(world, "abc", mode="cloud_advanced")
    world.rest("a", "b", "c")
    return world


def test_a_voter_leaves_and_the_others_take_it_out_of_their_list(tmp_path: Path) -> None:
    world = formed(tmp_path)
    paths = world.host("c").paths
    world.host("c").units.start(FAST_TIMER, block=False)  # something is open just then
    world.leave("c")
    assert store.load(world.host("c")) is None
    assert world.host("c").units.state("etcd.service").enabled == "masked"
    assert not paths.etcd_data.exists()
    assert list(paths.etcd_data.parent.glob("data.left-*"))
    assert list(paths.laid.iterdir()) == []
    node = world.net.nodes["c"]
    keels = (*TIMERS, FAST_TIMER, CHANNEL_SOCKET, *PULLED_IN, MESH_UNIT)
    assert [name for name in keels if node.units.unit(name).active] == []
    assert not node.units.enabled() & set(keels)
    assert {f"stop {unit}" for unit in PASSES} <= set(node.effects.done)
    assert (node.wireguard.devices, node.firewall.ruleset) == ({}, None)
    for _ in range(3):
        world.timers("a", "b")
    assert voters(world) == 2


def test_a_pass_that_is_at_work_has_its_end_before_the_node_is_out(tmp_path: Path) -> None:
    world = formed(tmp_path)
    host = world.host("c")
    with host.locks.hold(host.paths.tend_lock, what="the tend"), pytest.raises(LockHeld):
        world.leave("c")
    assert world.loaded("c").view.removed == {}
    assert world.leave("c").told == ("a", "b")
    assert store.load(host) is None


def test_a_change_to_the_network_that_begins_while_the_gates_are_asked_stops_a_leave(
    tmp_path: Path,
) -> None:
    world = formed(tmp_path)
    world.net.delay("c", "a", 1.0)
    world.net.clock.after(1.0, lambda: world.open_window("c", "b"))
    with pytest.raises(Refused) as refused:
        world.leave("c")
    assert refused.value.rule == "window-open"
    assert world.loaded("c").view.removed == {}


def everything(world: World, name: str) -> dict[str, bytes]:
    root = world.net.nodes[name].root
    return {str(one): one.read_bytes() for one in root.rglob("*") if one.is_file()}


def planned(world: World, name: str) -> list[str]:
    """What a dry run of a leave shows; it changes nothing."""
    before, peers = everything(world, name), world.peers(name)
    found = [step.action for step in leave.plan(world.host(name)).steps]
    after = everything(world, name)
    assert {path for path in before if "/run/" not in path and before[path] != after[path]} == set()
    assert world.peers(name) == peers
    return found


def test_a_dry_run_shows_the_steps_and_changes_nothing(tmp_path: Path) -> None:
    world = formed(tmp_path)
    whole = ["sign-removal", "tell-members", "stop-etcd", "lower", "move-aside"]
    assert planned(world, "c") == whole
    node = world.net.nodes["c"]
    node.effects.crash_on = lambda text: text.startswith("post ") and "roster" in text
    assert node.dies(lambda: world.leave("c"))
    node.new_life()
    assert planned(world, "c") == whole[1:]
    world.leave("c")
    for _ in range(3):
        world.timers("a", "b")
    for name, rule in (("a", "leave-holder"), ("b", "removal-one-voter")):
        with pytest.raises(Refused) as refused:
            leave.plan(world.host(name))
        assert refused.value.rule == rule
    consent = Consent(one_voter=True)
    assert len(leave.plan(world.host("b"), consent=consent).steps) == len(whole)
    assert voters(world) == 2


def test_a_dry_run_of_one_that_is_alone_tells_nobody(tmp_path: Path) -> None:
    world = World(tmp_path)
    mesh_of(world, "a")
    assert planned(world, "a") == ["sign-removal", "lower", "move-aside"]


def test_one_of_two_voters_leaves_by_consent_alone(tmp_path: Path) -> None:
    world = formed(tmp_path)
    world.leave("c")
    for _ in range(3):
        world.timers("a", "b")
    host, spec = world.host("b"), world.spec("b")
    before = world.loaded("b").roster.raws
    with pytest.raises(Refused) as refused:
        leave.leave(host, spec)
    assert refused.value.rule == "removal-one-voter"
    consent = Consent(one_voter=True)
    with pytest.raises(Refused) as refused:
        leave.leave(host, spec, consent=consent, typed="a")
    assert refused.value.rule == "name-not-typed"
    assert world.loaded("b").roster.raws == before
    leave.leave(host, spec, consent=consent, typed="b")
    assert voters(world) == 1


def test_trust_in_the_inviter_is_automatic_and_becomes_the_operators_word(tmp_path: Path) -> None:
    world = World(tmp_path)
    mesh_of(world, "abc")
    host, spec = world.host("b"), world.spec("b")
    assert {row[0]: row[2] for row in trustflow.listing(host)} == {"a": "joined", "c": "none"}
    assert trustflow.add_root(host, spec, "a").changed == ("member/a trusted",)
    assert trustflow.add_root(host, spec, "a").changed == ()
    assert trustflow.add_root(host, spec, "c").changed == ("member/c trusted",)
    me = world.loaded("b")
    listed = me.view.by_key(me.key)
    assert listed is not None
    assert len(listed.roots) == 2
    assert trustflow.drop_root(host, spec, "c").changed == ("member/c no longer trusted",)
    assert {row[0]: row[2] for row in trustflow.listing(host)} == {"a": "operator", "c": "none"}
    with pytest.raises(Refused) as refused:
        trustflow.add_root(host, spec, "b")
    assert refused.value.rule == "trust-self"


def test_etcdctl_gets_this_nodes_own_endpoint_and_newest_certificate(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.node("a")
    world.create("a")
    host = world.host("a")
    with pytest.raises(Refused) as refused:
        etcdenv.environment(host)
    assert refused.value.rule == "no-certificate"
    world.tend("a")
    found = etcdenv.environment(host)
    assert found["ETCDCTL_ENDPOINTS"] == "https://[::1]:2379"
    assert found["ETCDCTL_CERT"] == found["ETCDCTL_KEY"] == str(host.paths.client_credential(1))
    assert Path(found["ETCDCTL_CACERT"]).exists()
