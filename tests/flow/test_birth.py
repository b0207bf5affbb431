"""The birth of the registry on bad days: one cluster ever, and every member in it (E8 to E12)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from ipaddress import IPv6Address
from pathlib import Path

import pytest

from keel import codec
from keel.errors import KeelError, PeerError, Refused
from keel.mesh import etcdbirth, etcdstore, join, store, talk
from keel.mesh.etcdlook import Role, own_role
from keel.mesh.etcdmsg import ClusterRecord, TakeRecord, TakeRecordAnswer
from keel.mesh.etcdplan import WINDOW
from keel.mesh.etcdstate import Stage
from keel.mesh.join import Joined
from keel.mesh.members import find
from keel.unitnames import FAST_TIMER
from tests.fakes.etcd import UNIT
from tests.flow.arranged import arranged
from tests.flow.world import World

HOUR = 3600.0


@arranged
def two_and_one_invited(scratch: Path) -> World:
    """a founded the mesh, b is in it and has its grant, c is invited."""
    made = World(scratch)
    made.mesh("ab", spare="cd")
    made.timers("a", "b")
    made.tokens["c"] = made.invite("a")
    return made


@pytest.fixture
def world(tmp_path: Path) -> World:
    return two_and_one_invited(tmp_path)


def one_cluster(world: World, *names: str) -> None:
    """One birth ever, its voters exactly these, all of them serving."""
    (cluster,) = world.etcd.births()
    assert {member.name for member in cluster.voters()} == {
        f"keel-{world.loaded(name).address.packed.hex()}" for name in names
    }
    assert world.formed(names)


def while_answering(world: World, name: str, path: str, run: Callable[[], object]) -> None:
    """Let `run` happen once after the node acted on a request and before its answer arrives."""
    node = world.net.nodes[name]
    handler, left = node.handler, [run]

    def and_then(at: str, source: IPv6Address, body: bytes) -> object:
        answer = handler(at, source, body)
        if at == path and left:
            left.pop()()
        return answer

    node.handler = and_then  # type: ignore[assignment]


# --- E10: two at once


@pytest.mark.parametrize("path", ["/v1/join", "/v1/hello"])
def test_of_two_invites_redeemed_at_one_moment_one_forms_and_the_other_waits(
    world: World, path: str
) -> None:
    world.tokens["d"] = world.invite("a")
    while_answering(world, "a", path, lambda: world.join("d", world.tokens["d"]))
    world.join("c", world.tokens["c"])
    world.settle()
    world.rest("a", "b", "c")
    world.timers()
    (cluster,) = world.etcd.births()
    assert len(cluster.voters()) == 3
    assert sorted(m.display for m in world.loaded("d").view.members) == ["a", "b", "c", "d"]
    roles = {name: own_role(world.host(name)) for name in "abcd"}
    assert sorted(roles.values()) == [Role.LEARNER, Role.VOTER, Role.VOTER, Role.VOTER]
    (loser,) = (name for name, role in roles.items() if role is Role.LEARNER)
    assert loser in "cd"


def test_a_reservation_whose_joiner_never_confirms_ends_and_the_next_one_forms(
    world: World,
) -> None:
    world.net.lose("request", source="c", path="/v1/hello", count=999)
    with pytest.raises(PeerError):
        world.join("c", world.tokens["c"])
    world.net.nodes["c"].power_off()
    joined = world.join("d", world.invite("a"))
    assert joined.etcd.cluster_record is None
    world.settle()
    world.timers("a", "b", "d")
    assert world.etcd.births() == []
    world.net.clock.sleep(1.1 * HOUR)
    world.rest("a", "b", "d")
    one_cluster(world, "a", "b", "d")


# --- E8, E12: somebody is missing


@pytest.mark.lives
def test_a_third_party_that_is_off_for_three_hours_joins_the_same_cluster(world: World) -> None:
    while_answering(world, "a", "/v1/join", world.net.nodes["b"].power_off)
    world.join("c", world.tokens["c"])
    world.settle()
    for _ in range(4):
        world.timers("a", "c")
    assert world.formed("ac")
    world.host("a").etcd_at(world.loaded("a").address).put(b"before", b"kept")
    world.net.clock.sleep(3 * HOUR)
    world.boot("b")
    world.rest("a", "b", "c")
    one_cluster(world, "a", "b", "c")
    assert world.host("b").etcd_at(world.loaded("b").address).get(b"before") == b"kept"


def test_while_its_network_is_being_changed_a_member_starts_no_etcd(world: World) -> None:
    """It took the record before, and was about to."""
    world.join("c", world.tokens["c"])
    world.kicks.clear()
    world.tend("a")
    world.kicks.clear()
    assert etcdstore.load_cluster(world.host("b")).stage is Stage.STARTING
    world.open_window("b", "a")
    (waiting,) = next(one for one in world.tend("b") if one.name == "etcd").waiting
    assert (waiting.what, waiting.waiting_for) == ("the start of etcd", WINDOW)
    assert "b" not in world.etcd.processes
    store.end_window(world.host("b"))
    world.rest("a", "b", "c")
    one_cluster(world, "a", "b", "c")


def test_a_member_that_does_not_answer_is_waited_for_by_name(world: World) -> None:
    world.net.nodes["b"].power_off()
    joined = world.join("c", world.tokens["c"])
    assert joined.etcd.cluster_record is None
    world.settle()
    duties = {duty.name: duty for duty in world.tend("a")}
    assert [waiting.waiting_for for waiting in duties["birth"].waiting] == ["b"]
    assert world.etcd.births() == []
    world.boot("b")
    world.rest("a", "b", "c")
    one_cluster(world, "a", "b", "c")


def test_the_third_may_be_invited_by_one_who_is_not_the_holder(world: World) -> None:
    joined = world.join("c", world.invite("b"))
    assert joined.etcd.holder == world.loaded("a").key
    assert "a holds the etcd root" in (joined.etcd.note or "")
    world.settle()
    world.rest("a", "b", "c")
    one_cluster(world, "a", "b", "c")


def test_it_may_be_invited_while_the_holder_is_away(world: World) -> None:
    token = world.invite("b")
    world.net.nodes["a"].power_off()
    world.join("c", token)
    world.settle()
    world.timers("b", "c")
    duties = {duty.name: duty for duty in world.tend("c")}
    assert [waiting.waiting_for for waiting in duties["credentials"].waiting] == ["a"]
    world.boot("a")
    world.rest("a", "b", "c")
    one_cluster(world, "a", "b", "c")


@pytest.mark.lives
def test_a_joiner_that_dies_once_confirmed_comes_in_when_it_is_back(world: World) -> None:
    node = world.net.nodes["c"]
    node.effects.crash_on = lambda text: text.startswith("answer") and text.endswith("/v1/hello")
    assert node.dies(lambda: world.join("c", world.tokens["c"]))
    node.power_off()
    world.settle()
    for _ in range(4):
        world.timers("a", "b")
    assert world.formed("ab")
    world.net.clock.sleep(2 * HOUR)
    world.boot("c")
    world.join("c", world.tokens["c"])
    world.rest("a", "b", "c")
    one_cluster(world, "a", "b", "c")


@pytest.mark.lives
def test_members_that_cannot_run_etcd_are_members_all_the_same(tmp_path: Path) -> None:
    world = World(tmp_path)
    for name in "axbyc":
        world.node(name, mode="cloud" if name in "xy" else "cloud_advanced")
    world.create("a")
    for name in "xbyc":
        world.join(name, world.invite("a"))
        world.settle()
    world.rest("a", "b", "c")
    world.timers()
    one_cluster(world, "a", "b", "c")
    assert all(len(world.loaded(name).view.members) == 5 for name in "axbyc")
    for name in "xy":
        assert not world.net.nodes[name].paths.etcd.exists()


def test_a_founder_that_cannot_run_etcd_joins_people_and_says_that_there_is_no_root(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.node("x", mode="cloud")
    world.create("x")
    for name in "abc":
        world.node(name)
        joined = world.join(name, world.invite("x"))
        assert "no etcd root" in (joined.etcd.note or "")
        world.settle()
    world.timers()
    assert world.etcd.births() == []
    assert world.agree("xabc")


# --- a join never fails because of its etcd part


def test_a_garbled_request_for_a_certificate_does_not_stop_a_join(world: World) -> None:
    host = world.host("c")
    joined = join.join(
        host,
        world.spec("c"),
        world.tokens["c"],
        ask_etcd=lambda _: b"no envelope",
        prepare=lambda *_: None,
        discard=False,
    ).value
    assert joined.etcd.grant is None
    assert joined.etcd.note == "value: not JSON"
    world.settle()
    world.rest("a", "b", "c")
    one_cluster(world, "a", "b", "c")


def test_a_node_without_the_overlay_joins_without_etcd(world: World) -> None:
    world.net.nodes["c"].overlay_etcd_installed = False
    joined = world.join("c", world.tokens["c"])
    world.settle()
    world.timers()
    assert joined.etcd.grant is None
    assert world.etcd.births() == []
    assert world.agree("abc")
    world.net.nodes["c"].overlay_etcd_installed = True
    world.rest("a", "b", "c")
    one_cluster(world, "a", "b", "c")


def test_a_holder_whose_state_is_damaged_still_admits_to_the_mesh(world: World) -> None:
    world.net.nodes["a"].paths.grants.write_bytes(b"{}\n")
    joined = world.join("c", world.tokens["c"])
    assert joined.etcd.grant is None
    assert joined.etcd.note == "a file of its state cannot be read"
    assert sorted(m.display for m in world.loaded("c").view.members) == ["a", "b", "c"]


# --- E10: what a member refuses


@arranged
def three_formed(scratch: Path) -> World:
    world = two_and_one_invited(scratch)
    world.join("c", world.tokens["c"])
    world.settle()
    world.rest("a", "b", "c")
    one_cluster(world, "a", "b", "c")
    return world


@pytest.fixture
def formed(tmp_path: Path) -> World:
    return three_formed(tmp_path)


def test_a_party_knows_the_others_by_the_word_that_begins_the_birth(world: World) -> None:
    """Its tunnel to the third is made while its etcd starts; no sync came in between."""
    world.join("c", world.tokens["c"])
    world.kicks.clear()
    third = world.loaded("c").address
    assert third not in world.peers("b")
    world.tend("a")
    assert third in world.peers("b")
    assert world.loaded("b").view.by_address(third)


def tell(world: World, teller: str, told: str, record: bytes) -> str:
    """The reason with which a member refuses a record that another brings it."""
    node = world.loaded(teller)
    with pytest.raises(PeerError) as caught:
        talk.ask(
            world.host(teller),
            node,
            find(node.view, told),
            etcdbirth.CLUSTER,
            TakeRecord(record=record),
            TakeRecordAnswer,
            path=etcdbirth.ETCD_PATH,
        )
    return caught.value.reason


@arranged
def of_another_mesh(scratch: Path) -> bytes:
    other = World(scratch)
    for name in "abc":
        other.node(f"o-{name}")
    other.create("o-a")
    for name in "bc":
        joined: Joined = other.join(f"o-{name}", other.invite("o-a"))
        other.settle()
    assert joined.etcd.cluster_record is not None
    return joined.etcd.cluster_record


def test_a_member_in_a_cluster_takes_no_other_record(formed: World, tmp_path: Path) -> None:
    host = formed.host("c")
    held = etcdstore.load_record(host) or b""
    before = etcdstore.load_cluster(host)
    reasons = {
        "another mesh's": tell(formed, "b", "c", of_another_mesh(tmp_path / "other")),
        "nonsense": tell(formed, "b", "c", b"{}"),
        "spoilt": tell(formed, "b", "c", held.replace(b'"payload":"', b'"payload":"AAAA', 1)),
    }
    assert reasons == {
        "another mesh's": "record-signature",
        "nonsense": "record-malformed",
        "spoilt": "record-signature",
    }
    assert (etcdstore.load_cluster(host), etcdstore.load_record(host)) == (before, held)


def test_a_member_that_is_starting_refuses_what_is_old_or_late(world: World) -> None:
    joined = world.join("c", world.tokens["c"])
    record = joined.etcd.cluster_record or b""
    world.net.clock.sleep(1.1 * HOUR)
    assert tell(world, "a", "b", record) == "record-expired"
    assert etcdstore.load_cluster(world.host("b")).stage is Stage.IDLE


def test_a_record_that_does_not_name_a_member_is_not_for_it(world: World) -> None:
    world.tokens["d"] = world.invite("a")
    record = world.join("c", world.tokens["c"]).etcd.cluster_record or b""
    world.join("d", world.tokens["d"])
    assert tell(world, "a", "d", record) == "record-not-for-me"
    assert world.loaded("d").address not in named_in(record)


def named_in(record: bytes) -> tuple[IPv6Address, ...]:
    from keel.mesh import wire

    payload = wire.decode(record, max_bytes=len(record)).payload
    return codec.loads(ClusterRecord, payload, max_bytes=len(payload)).members


# --- never a second birth


@pytest.mark.lives
@pytest.mark.parametrize(
    "what",
    [
        pytest.param(("etcd_data",), id="data"),
        pytest.param(("etcd_data", "etcd_marker"), id="data and marker"),
        pytest.param(("etcd_log",), id="write-ahead log"),
    ],
)
def test_two_of_three_wiped_refuse_to_start_and_say_what_to_do(
    formed: World, what: tuple[str, ...]
) -> None:
    formed.host("a").etcd_at(formed.loaded("a").address).put(b"before", b"kept")
    for name in "bc":
        node = formed.net.nodes[name]
        node.units.stop(UNIT)
        for each in what:
            path: Path = getattr(node.paths, each)
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    formed.refused.clear()
    for name in "bc":
        formed.boot(name)
    for _ in range(5):
        formed.timers()
    assert len(formed.etcd.clusters) == 1
    assert not formed.formed("b")
    said = {(n, getattr(e, "rule", e.code)): e.remedy() for n, e in formed.refused}
    for name in "bc":
        assert "/var/lib/keel-etcd was moved" in said[name, "start-data-missing"]
        (failure,) = etcdstore.load_failures(formed.host(name)).entries
        assert failure.code == "etcd-data-missing"
    (cluster,) = formed.etcd.births()
    assert cluster.data[b"before"] == b"kept"


@pytest.mark.lives
def test_one_that_was_wiped_while_starting_never_gives_birth_again(world: World) -> None:
    world.join("c", world.tokens["c"])
    world.settle()
    world.rest("a", "b", "c")
    for name in "abc":
        world.net.nodes[name].power_off()
        shutil.rmtree(world.net.nodes[name].paths.etcd_data)
    for name in "abc":
        world.boot(name)
    for _ in range(4):
        world.timers()
    assert len(world.etcd.births()) == 1
    assert not any(world.formed(name) for name in "abc")


def test_the_holder_of_the_root_does_not_leave_the_others(world: World) -> None:
    with pytest.raises(Refused) as caught:
        world.leave("a")
    assert caught.value.rule == "leave-holder"
    world.leave("b")
    world.timers("a")
    world.leave("a")
    assert store.load(world.host("a")) is None
    assert list(world.net.nodes["a"].paths.left.glob("*/etcd/roots/g1/root.key"))


def test_a_lost_answer_of_the_holder_costs_nothing(world: World) -> None:
    for path in ("/v1/join", "/v1/hello", "/v1/etcd", "/v1/roster"):
        world.net.lose("reply", path=path)
        world.net.duplicates.add(path)
    world.join("c", world.tokens["c"])
    world.settle()
    world.rest("a", "b", "c")
    one_cluster(world, "a", "b", "c")


@pytest.mark.lives
@pytest.mark.parametrize("pair", ["ab", "ac", "bc"])
def test_a_partition_during_the_birth_heals_into_one_cluster(world: World, pair: str) -> None:
    while_answering(world, "a", "/v1/hello", lambda: world.net.cut(*pair))
    try:
        world.join("c", world.tokens["c"])
    except KeelError:
        world.net.heal()
        world.join("c", world.tokens["c"])
        world.net.cut(*pair)
    world.settle()
    for _ in range(3):
        world.timers()
    world.net.heal()
    world.rest("a", "b", "c", rounds=20)
    one_cluster(world, "a", "b", "c")


def test_a_record_that_was_taken_already_is_taken_and_hastens_the_tend(formed: World) -> None:
    """A pass is at work with it already, unless a kill came in between."""
    record = etcdstore.load_record(formed.host("c"))
    assert record is not None
    formed.host("c").units.stop(FAST_TIMER)
    node = formed.loaded("a")
    answered = talk.ask(
        formed.host("a"),
        node,
        find(node.view, "c"),
        etcdbirth.CLUSTER,
        TakeRecord(record=record),
        TakeRecordAnswer,
        path=etcdbirth.ETCD_PATH,
    )
    assert answered.body.stage is Stage.FORMED
    assert formed.net.nodes["c"].units.unit(FAST_TIMER).active
