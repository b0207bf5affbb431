"""The fakes keep WireGuard's and etcd's rules; what they let pass, the lab must let pass too."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from ipaddress import IPv4Address, IPv6Address, IPv6Network
from pathlib import Path

import pytest

from keel.errors import EtcdError, LockHeld, PeerError, ProcFailed, Refused
from keel.etcdport import DataState
from keel.mesh.liveness import Answer, Liveness, Samples, judge, take
from keel.mesh.refusal import plain
from keel.ports import WgPeer
from keel.types import LOCALHOST, Endpoint, Secret
from tests.fakes import Crash, Effects, FakeEtcd, FakeNet, FakeNode, crash_points, public_of

PREFIX = IPv6Network("fd00:1:2::/64")
PSK = Secret(b"p" * 32)
PORT = 51820


def private_of(node: FakeNode) -> Secret:
    return Secret(hashlib.sha256(node.name.encode()).digest())


def address_of(node: FakeNode) -> IPv6Address:
    return IPv6Address(f"fd00:1:2::{ord(node.name):x}")


def raise_device(node: FakeNode, address: IPv6Address | None = None) -> None:
    wireguard = node.host.wireguard
    wireguard.raise_interface("keel0", port=PORT, mtu=1280, private=private_of(node))
    wireguard.set_address("keel0", address or address_of(node), PREFIX)


def add_peer(
    node: FakeNode,
    other: FakeNode,
    *,
    endpoint: bool = True,
    preshared: Secret | None = None,
    allowed: IPv6Address | None = None,
) -> None:
    peer = WgPeer(
        key=public_of(private_of(other)),
        allowed=allowed or address_of(other),
        endpoint=other.endpoint(PORT) if endpoint else None,
        preshared=preshared,
    )
    node.host.wireguard.set_peer("keel0", peer)


def echo(path: str, source: IPv6Address, body: bytes) -> tuple[int, bytes]:
    return 200, b"%s %s %s" % (path.encode(), str(source).encode(), body)


def make_net(tmp_path: Path, names: str = "ab") -> FakeNet:
    net = FakeNet(tmp_path)
    nodes = [net.node(name) for name in names]
    for node in nodes:
        node.handler = echo
        raise_device(node)
    for node in nodes:
        for other in nodes:
            if other is not node:
                add_peer(node, other)
    return net


def post(net: FakeNet, one: str, other: str) -> bytes:
    target = address_of(net.nodes[other])
    return net.nodes[one].host.channel.post(target, "/v1/hello", b"hi", timeout_seconds=30)


def outcome(net: FakeNet, one: str = "a", other: str = "b") -> str:
    """`answered`, or the reason why not."""
    try:
        post(net, one, other)
    except PeerError as error:
        return error.reason
    return "answered"


# the net


def test_a_request_arrives_with_the_senders_overlay_address(tmp_path: Path) -> None:
    assert post(make_net(tmp_path), "a", "b") == b"/v1/hello fd00:1:2::61 hi"


def test_a_node_reaches_itself(tmp_path: Path) -> None:
    assert post(make_net(tmp_path), "a", "a") == b"/v1/hello fd00:1:2::61 hi"


def _no_peer_at_a(net: FakeNet) -> None:
    net.nodes["a"].wireguard.devices["keel0"].peers.clear()


def _no_peer_at_b(net: FakeNet) -> None:
    net.nodes["b"].wireguard.devices["keel0"].peers.clear()


def _psk_at_one(net: FakeNet) -> None:
    add_peer(net.nodes["a"], net.nodes["b"], preshared=PSK)


def _psk_at_both(net: FakeNet) -> None:
    add_peer(net.nodes["a"], net.nodes["b"], preshared=PSK)
    add_peer(net.nodes["b"], net.nodes["a"], preshared=PSK)


def _source_not_allowed(net: FakeNet) -> None:
    raise_device(net.nodes["a"], IPv6Address("fd00:1:2::9"))


def _target_moved(net: FakeNet) -> None:
    raise_device(net.nodes["b"], IPv6Address("fd00:1:2::9"))


def _other_key(net: FakeNet) -> None:
    b = net.nodes["b"].host.wireguard
    b.raise_interface("keel0", port=51820, mtu=1280, private=PSK)


def _forget_endpoints(net: FakeNet, *names: str) -> None:
    for name in names:
        for peer in net.nodes[name].wireguard.devices["keel0"].peers.values():
            peer.endpoint = None


def _one_endpoint(net: FakeNet) -> None:
    _forget_endpoints(net, "a")


def _no_endpoints(net: FakeNet) -> None:
    _forget_endpoints(net, "a", "b")


def _cut(net: FakeNet) -> None:
    net.cut("a", "b")


def _healed(net: FakeNet) -> None:
    net.partition(["a"], ["b"])
    net.heal()


def _off(net: FakeNet) -> None:
    net.nodes["b"].power_off()


def _moved_one_end(net: FakeNet) -> None:
    net.nodes["b"].move(IPv4Address("198.51.100.7"))


def _moved_both(net: FakeNet) -> None:
    net.nodes["a"].move(IPv4Address("198.51.100.8"))
    net.nodes["b"].move(IPv4Address("198.51.100.7"))


def _lost_request(net: FakeNet) -> None:
    net.lose("request", source="a")


def _lost_reply(net: FakeNet) -> None:
    net.lose("reply", target="b", path="/v1/hello")


def _other_loss(net: FakeNet) -> None:
    net.lose("request", source="b")
    net.lose("request", path="/v1/join")


@pytest.mark.parametrize(
    ("arrange", "expected"),
    [
        pytest.param(_no_peer_at_a, "unreachable", id="no peer at the sender"),
        pytest.param(_no_peer_at_b, "unreachable", id="no peer at the receiver"),
        pytest.param(_psk_at_one, "unreachable", id="preshared key at one end"),
        pytest.param(_psk_at_both, "answered", id="preshared key at both"),
        pytest.param(_source_not_allowed, "unreachable", id="source address not allowed"),
        pytest.param(_target_moved, "unreachable", id="target has another address"),
        pytest.param(_other_key, "unreachable", id="target has another key"),
        pytest.param(_one_endpoint, "answered", id="one end knows the other"),
        pytest.param(_no_endpoints, "unreachable", id="neither knows the other"),
        pytest.param(_cut, "unreachable", id="cut"),
        pytest.param(_healed, "answered", id="healed"),
        pytest.param(_off, "unreachable", id="powered off"),
        pytest.param(_moved_one_end, "answered", id="one end moved"),
        pytest.param(_moved_both, "unreachable", id="both moved at once"),
        pytest.param(_lost_request, "timeout", id="request lost"),
        pytest.param(_lost_reply, "timeout", id="reply lost"),
        pytest.param(_other_loss, "answered", id="others' packets lost"),
    ],
)
def test_whether_a_request_is_answered(
    tmp_path: Path, arrange: Callable[[FakeNet], None], expected: str
) -> None:
    net = make_net(tmp_path)
    arrange(net)
    assert outcome(net) == expected


def test_a_lost_reply_was_acted_upon_and_a_lost_request_was_not(tmp_path: Path) -> None:
    net = make_net(tmp_path)
    seen: list[bytes] = []
    net.nodes["b"].handler = lambda path, source, body: (seen.append(body), (200, b""))[1]
    _lost_request(net)
    assert (outcome(net), seen) == ("timeout", [])
    _lost_reply(net)
    assert (outcome(net), seen) == ("timeout", [b"hi"])
    net.duplicates.add("/v1/hello")
    assert (outcome(net), seen) == ("answered", [b"hi"] * 3)


def test_an_error_in_the_handler_is_what_the_channels_server_makes_of_it(tmp_path: Path) -> None:
    net = make_net(tmp_path)

    def refuses(path: str, source: IPv6Address, body: bytes) -> tuple[int, bytes]:
        raise Refused("rule", "not today", "come back tomorrow")

    net.nodes["b"].handler = refuses
    assert post(net, "a", "b") == plain("refused", "not today")


def test_what_the_handler_changes_may_take_the_answers_way_back(tmp_path: Path) -> None:
    net = make_net(tmp_path)

    def drops_the_peer(path: str, source: IPv6Address, body: bytes) -> tuple[int, bytes]:
        _no_peer_at_b(net)
        return 200, b""

    net.nodes["b"].handler = drops_the_peer
    assert outcome(net) == "timeout"


def test_behind_nat_a_node_is_reached_once_it_called(tmp_path: Path) -> None:
    net = FakeNet(tmp_path)
    a, b = net.node("a"), net.node("b", behind_nat=True)
    for node in (a, b):
        node.handler = echo
        raise_device(node)
    own = b.host.machine.underlay_endpoints(PORT)
    assert own == (Endpoint.parse("192.168.0.2:51820"),)
    a.host.wireguard.set_peer(
        "keel0", WgPeer(key=public_of(private_of(b)), allowed=address_of(b), endpoint=own[0])
    )
    add_peer(b, a, endpoint=False)
    assert outcome(net) == "unreachable"
    add_peer(b, a)
    assert outcome(net, "b", "a") == "answered"
    assert outcome(net) == "answered"


def test_delay_passes_on_the_clock_and_too_late_is_a_timeout(tmp_path: Path) -> None:
    net = make_net(tmp_path)
    net.delay("a", "b", 0.125)
    post(net, "a", "b")
    assert net.clock.monotonic() == pytest.approx(0.25)
    net.delay("a", "b", 20)
    assert outcome(net) == "timeout"


def test_asking_many_takes_as_long_as_the_slowest_and_names_every_failure(tmp_path: Path) -> None:
    net = make_net(tmp_path, "abc")
    net.cut("a", "c")
    net.delay("a", "b", 0.125)
    targets = {address_of(net.nodes[name]): b"hi" for name in "bc"}
    found = net.nodes["a"].host.channel.post_all(targets, "/v1/hello", timeout_seconds=5)
    assert found[address_of(net.nodes["b"])] == b"/v1/hello fd00:1:2::61 hi"
    assert isinstance(found[address_of(net.nodes["c"])], PeerError)
    assert net.clock.monotonic() == pytest.approx(5)


def test_loss_by_chance_is_the_same_for_one_seed(tmp_path: Path) -> None:
    def run(name: str) -> list[str]:
        net = make_net(tmp_path / name)
        net.loss_rate = 0.3
        return [outcome(net) for _ in range(30)]

    first = run("one")
    assert first == run("two")
    assert {"answered", "timeout"} <= set(first)


def test_received_bytes_grow_while_connected_and_liveness_follows(tmp_path: Path) -> None:
    net = make_net(tmp_path)
    wireguard = net.nodes["a"].host.wireguard
    samples = Samples()

    def verdict() -> Liveness:
        nonlocal samples
        now = net.clock.monotonic()
        samples = take(samples, wireguard.show("keel0"), now=now)
        (sample,) = samples.peers.values()
        return judge(sample, now=now, answer=Answer.NOT_ASKED)

    seen = []
    for _ in range(3):
        net.clock.sleep(12)
        seen.append(verdict())
    net.cut("a", "b")
    for _ in range(6):
        net.clock.sleep(12)
        seen.append(verdict())
    assert [each.value for each in seen[1:]] == ["up"] * 3 + ["suspect"] * 2 + ["down"] * 3


def test_the_devices_refuse_what_the_real_adapter_refuses(tmp_path: Path) -> None:
    net = make_net(tmp_path, "abc")
    with pytest.raises(Refused):
        add_peer(net.nodes["a"], net.nodes["b"], allowed=address_of(net.nodes["c"]))


def test_a_peer_for_no_interface_fails_as_wg_does(tmp_path: Path) -> None:
    net = FakeNet(tmp_path)
    with pytest.raises(ProcFailed):
        add_peer(net.node("a"), net.node("b"))


# lives and deaths


def flow(node: FakeNode, other: FakeNode) -> None:
    host = node.host
    host.files.make_dir(host.paths.mesh)
    with host.locks.hold(host.paths.lock, what="this node"):
        host.files.write(host.paths.trust, b"intent")
    host.channel.post(address_of(other), "/v1/hello", b"hi", timeout_seconds=5)
    host.files.write(host.paths.trust, b"outcome")


def test_every_effect_can_be_died_before_and_the_next_life_comes_to_the_same_end(
    tmp_path: Path,
) -> None:
    net = make_net(tmp_path / "clean")
    start = len(net.nodes["a"].effects.done)
    flow(net.nodes["a"], net.nodes["b"])
    points = list(crash_points(net.nodes["a"].effects, start=start))
    assert [point.text for point in points if not point.text.startswith("disk")] == [
        "lock lock",
        "post fd00:1:2::62 /v1/hello",
        "answer fd00:1:2::62 /v1/hello",
    ]
    for point in points:
        net = make_net(tmp_path / str(point.number))
        a, b = net.nodes["a"], net.nodes["b"]
        a.effects.crash_at = point.number
        assert a.dies(partial(flow, a, b))
        assert a.effects.crashed_before == point.text
        a.new_life()
        assert not a.dies(partial(flow, a, b))
        assert a.files.read(a.paths.trust) == b"outcome"


def test_the_dead_have_no_effect_any_more() -> None:
    effects = Effects(crash_on=lambda text: text == "b")
    effects.happen("a")
    for text in ("b", "c"):
        with pytest.raises(Crash):
            effects.happen(text)
    assert (effects.done, effects.crashed_before) == (["a"], "b")


def test_a_receiver_that_dies_leaves_the_sender_without_an_answer(tmp_path: Path) -> None:
    net = make_net(tmp_path)
    b = net.nodes["b"]

    def writes(path: str, source: IPv6Address, body: bytes) -> tuple[int, bytes]:
        b.files.make_dir(b.paths.mesh)
        return 200, b""

    b.handler = writes
    b.effects.crash_on = lambda text: text.startswith("disk")
    assert outcome(net) == "timeout"
    assert outcome(net) == "unreachable"
    b.new_life()
    assert outcome(net) == "answered"


def test_power_takes_the_volatile_and_leaves_the_disk(tmp_path: Path) -> None:
    net = make_net(tmp_path)
    a = net.nodes["a"]
    a.files.write(a.paths.etcd_loaded, b"x")
    a.files.make_dir(a.paths.mesh)
    a.files.write(a.paths.trust, b"y")
    a.units.start("keel-channel.socket")
    a.firewall.load("table")
    a.power_on()
    assert a.files.read(a.paths.etcd_loaded) is None
    assert a.files.read(a.paths.trust) == b"y"
    assert a.host.wireguard.show("keel0") is None
    assert a.units.state("keel-channel.socket").active == "inactive"
    assert a.firewall.ruleset is None


def test_two_holders_of_one_lock_meet(tmp_path: Path) -> None:
    a = make_net(tmp_path).nodes["a"]
    with (
        a.locks.hold(a.paths.lock, what="this node"),
        pytest.raises(LockHeld),
        a.locks.hold(a.paths.lock, what="this node"),
    ):
        raise AssertionError


def test_time_runs_what_falls_due_in_order(tmp_path: Path) -> None:
    clock = FakeNet(tmp_path).clock
    seen: list[tuple[str, float]] = []
    clock.after(3, lambda: seen.append(("later", clock.monotonic())))
    clock.after(1, lambda: seen.append(("sooner", clock.monotonic())))
    clock.after(1, lambda: clock.after(1, lambda: seen.append(("then", clock.monotonic()))))
    clock.sleep(10)
    assert seen == [("sooner", 1), ("then", 2), ("later", 3)]


# etcd

TOKEN = "keel-mesh-1"
URLS = {name: f"https://[fd00:1:2::{ord(name):x}]:2380" for name in "abcd"}


def lay(node: FakeNode, state: str, members: str) -> None:
    cluster = ",".join(f"keel-{name}={URLS[name]}" for name in members)
    env = (
        "# of the test\n"
        f"ETCD_NAME=keel-{node.name}\n"
        f"ETCD_INITIAL_ADVERTISE_PEER_URLS={URLS[node.name]}\n"
        f"ETCD_INITIAL_CLUSTER={cluster}\n"
        f"ETCD_INITIAL_CLUSTER_STATE={state}\n"
        f"ETCD_INITIAL_CLUSTER_TOKEN={TOKEN}\n"
    )
    node.host.overlay.lay({"etcd.env": Secret(env.encode()), "member.pem": Secret(b"x")})


def make_etcd(tmp_path: Path, names: str = "abcd") -> FakeEtcd:
    world = FakeEtcd(make_net(tmp_path, names))
    for node in world.net.nodes.values():
        world.install(node)
    return world


def born(tmp_path: Path, names: str = "abcd", founders: str = "abc") -> FakeEtcd:
    world = make_etcd(tmp_path, names)
    for name in founders:
        start(world, name, "new", founders)
    world.net.clock.sleep(10)
    return world


def start(world: FakeEtcd, name: str, state: str, members: str) -> None:
    node = world.net.nodes[name]
    lay(node, state, members)
    node.host.overlay.start()


def refused(act: Callable[[], object]) -> str:
    with pytest.raises(EtcdError) as caught:
        act()
    return caught.value.message.removeprefix("etcdserver: ")


def test_a_birth_has_the_ids_that_token_and_urls_give(tmp_path: Path) -> None:
    world = make_etcd(tmp_path)
    a = world.net.nodes["a"].host
    start(world, "a", "new", "abc")
    assert refused(lambda: a.etcd_at(LOCALHOST).status()) == "no etcd answers at ::1"
    ids = sorted(
        hashlib.sha1((url + TOKEN).encode()).digest()[:8] for url in list(URLS.values())[:3]
    )
    cluster = int.from_bytes(hashlib.sha1(b"".join(ids)).digest()[:8], "big")
    start(world, "b", "new", "abc")
    status = a.etcd_at(LOCALHOST).status()
    assert status.cluster_id == cluster
    listed = a.etcd_at(LOCALHOST).members()
    assert sorted(member.id for member in listed) == [int.from_bytes(each, "big") for each in ids]
    assert status.leader in [member.id for member in listed]
    assert [member.name for member in listed] == ["keel-a", "keel-b", "keel-c"]
    assert [bool(member.client_urls) for member in listed] == [True, True, False]


def test_whether_it_ever_had_a_leader_is_known_after_a_restart_alone(tmp_path: Path) -> None:
    world = make_etcd(tmp_path)
    a = world.net.nodes["a"].host
    start(world, "a", "new", "abc")
    assert not a.etcd_at(LOCALHOST).had_leader()
    start(world, "b", "new", "abc")
    assert a.etcd_at(LOCALHOST).had_leader()
    world.net.nodes["b"].power_off()
    a.units.restart("etcd.service")
    assert refused(lambda: a.etcd_at(LOCALHOST).status()) == "no etcd answers at ::1"
    assert a.etcd_at(LOCALHOST).had_leader()


def test_writes_need_a_quorum_and_are_read_everywhere(tmp_path: Path) -> None:
    world = born(tmp_path)
    net = world.net
    a, c = net.nodes["a"].host, net.nodes["c"].host
    a.etcd_at(LOCALHOST).put(b"k", b"v")
    assert c.etcd_at(LOCALHOST).get(b"k") == b"v"
    assert a.etcd_at(address_of(net.nodes["b"])).get(b"k") == b"v"
    net.partition("c", "ab")
    assert refused(lambda: c.etcd_at(LOCALHOST).put(b"k", b"w")) == "request timed out"
    assert c.etcd_at(LOCALHOST).status().errors == ("etcdserver: no leader",)
    a.etcd_at(LOCALHOST).put(b"k", b"x")
    net.heal()
    assert c.etcd_at(LOCALHOST).get(b"k") == b"x"


def test_a_learner_is_added_started_caught_up_and_promoted(tmp_path: Path) -> None:
    world = born(tmp_path)
    clock = world.net.clock
    a = world.net.nodes["a"].host.etcd_at(LOCALHOST)
    d = world.net.nodes["d"].host.etcd_at(LOCALHOST)
    added = a.add_learner(URLS["d"])
    assert (added.learner, added.name) == (True, "")
    assert refused(lambda: a.add_learner(URLS["d"])) == "Peer URLs already exists"
    other = "https://[fd00:1:2::99]:2380"
    assert refused(lambda: a.add_learner(other)) == "too many learner members in cluster"
    not_yet = "can only promote a learner member which is in sync with leader"
    assert refused(lambda: a.promote(added.id)) == not_yet
    start(world, "d", "existing", "abcd")
    assert d.status().learner
    assert refused(d.members) == "rpc not supported for learner"
    assert refused(lambda: a.promote(added.id)) == not_yet
    clock.sleep(7)
    assert d.status().applied_index == d.status().raft_index
    a.promote(added.id)
    assert refused(lambda: a.promote(added.id)) == "can only promote a learner member"
    assert refused(lambda: a.promote(1)) == "member not found"
    assert [member.learner for member in d.members()] == [False] * 4


def test_a_dead_learner_that_had_caught_up_is_promoted_all_the_same(tmp_path: Path) -> None:
    world = born(tmp_path)
    a = world.net.nodes["a"].host.etcd_at(LOCALHOST)
    added = a.add_learner(URLS["d"])
    start(world, "d", "existing", "abcd")
    world.net.clock.sleep(7)
    world.net.nodes["a"].host.etcd_at(address_of(world.net.nodes["d"])).status()
    world.net.nodes["d"].power_off()
    a.promote(added.id)


def test_nobody_is_added_while_a_voter_is_unconnected_or_was_until_just_now(tmp_path: Path) -> None:
    world = born(tmp_path)
    a = world.net.nodes["a"].host.etcd_at(LOCALHOST)
    world.net.partition("c", "ab")
    assert refused(lambda: a.add_learner(URLS["d"])) == "unhealthy cluster"
    world.net.heal()
    assert refused(lambda: a.add_learner(URLS["d"])) == "unhealthy cluster"
    world.net.clock.sleep(5)
    a.add_learner(URLS["d"])


def test_with_one_of_three_down_only_the_one_that_is_down_can_be_removed(tmp_path: Path) -> None:
    world = born(tmp_path)
    a = world.net.nodes["a"].host.etcd_at(LOCALHOST)
    ids = {member.name: member.id for member in a.members()}
    world.net.nodes["c"].power_off()
    assert refused(lambda: a.remove(ids["keel-b"])) == "unhealthy cluster"
    a.remove(ids["keel-c"])
    assert refused(lambda: a.remove(ids["keel-c"])) == "member not found"


def test_a_removed_member_ends_well_and_stays_out(tmp_path: Path) -> None:
    world = born(tmp_path)
    c = world.net.nodes["c"]
    a = world.net.nodes["a"].host.etcd_at(LOCALHOST)
    a.remove(next(each.id for each in a.members() if each.name == "keel-c"))
    assert c.units.state("etcd.service").active == "inactive"
    c.host.overlay.start()
    assert c.units.state("etcd.service").active == "inactive"


def test_a_change_may_commit_without_its_answer(tmp_path: Path) -> None:
    world = born(tmp_path)
    a = world.net.nodes["a"].host.etcd_at(LOCALHOST)
    world.lost_answers["add_learner"] = 1
    assert refused(lambda: a.add_learner(URLS["d"])) == "context deadline exceeded"
    assert [member.peer_urls for member in a.members() if member.learner] == [(URLS["d"],)]


def test_a_restarted_member_goes_on_with_its_data_whatever_the_state_flag(tmp_path: Path) -> None:
    world = born(tmp_path)
    c = world.net.nodes["c"].host
    c.etcd_at(LOCALHOST).put(b"k", b"v")
    c.overlay.stop()
    start(world, "c", "new", "abc")
    assert c.etcd_at(LOCALHOST).get(b"k") == b"v"
    assert len(world.births()) == 1


def test_two_wiped_members_that_start_anew_are_a_second_birth(tmp_path: Path) -> None:
    world = born(tmp_path)
    nodes = world.net.nodes
    nodes["a"].host.etcd_at(LOCALHOST).put(b"k", b"v")
    for name in "abc":
        nodes[name].host.overlay.stop()
    for name in "ab":
        nodes[name].host.overlay.set_data_aside("lost")
        assert nodes[name].host.overlay.data_state() is DataState.ABSENT
        start(world, name, "new", "abc")
    assert nodes["a"].host.etcd_at(LOCALHOST).get(b"k") is None
    first, second = world.births()
    assert first.id == second.id


def test_one_wiped_member_that_starts_new_beside_a_leader_is_fed_the_data(tmp_path: Path) -> None:
    world = born(tmp_path)
    c = world.net.nodes["c"].host
    c.etcd_at(LOCALHOST).put(b"k", b"v")
    c.overlay.stop()
    c.overlay.set_data_aside("lost")
    start(world, "c", "new", "abc")
    assert c.etcd_at(LOCALHOST).get(b"k") == b"v"
    assert len(world.births()) == 1


@pytest.mark.parametrize(
    ("name", "members", "said"),
    [
        pytest.param("c", "abc", "c: panics, its data is gone", id="wiped and listed as started"),
        pytest.param(
            "d", "abcd", "d: could not get the cluster from its members", id="never added"
        ),
    ],
)
def test_a_start_as_existing_that_cannot_be_fails_and_is_tried_again(
    tmp_path: Path, name: str, members: str, said: str
) -> None:
    world = born(tmp_path)
    node = world.net.nodes[name]
    node.host.overlay.stop()
    node.host.overlay.set_data_aside("lost")
    start(world, name, "existing", members)
    assert node.units.state("etcd.service").active == "failed"
    world.net.clock.sleep(6)
    assert world.log == [said, said]


def test_a_list_that_differs_from_the_clusters_fails(tmp_path: Path) -> None:
    world = born(tmp_path)
    world.net.nodes["a"].host.etcd_at(LOCALHOST).add_learner(URLS["d"])
    start(world, "d", "existing", "adb")
    assert world.log == ["d: member count is unequal"]


def test_without_its_certificate_the_unit_stays_inactive_and_a_guard_can_refuse(
    tmp_path: Path,
) -> None:
    world = make_etcd(tmp_path)
    a = world.net.nodes["a"]
    a.host.overlay.start()
    assert a.units.state("etcd.service").active == "inactive"
    world.guards["a"] = lambda: False
    start(world, "a", "new", "a")
    assert a.units.state("etcd.service").active == "failed"
    world.guards["a"] = lambda: True
    world.net.clock.sleep(6)
    assert a.units.state("etcd.service").active == "active"
    assert a.host.etcd_at(LOCALHOST).members()[0].name == "keel-a"
