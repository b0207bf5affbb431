"""Changes of etcd's list: what each answer, and each that is lost, comes to."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv6Address
from pathlib import Path

import pytest

from keel.etcdport import EtcdMember
from keel.mesh import etcdchange, growth
from keel.mesh.etcdchange import (
    AlreadySo,
    Change,
    Changed,
    LearnerInTheWay,
    NoQuorum,
    NotInSync,
    Unknown,
    VoterDown,
)
from keel.ports import Host
from keel.types import LOCALHOST
from tests.fakes.etcd import UNIT
from tests.flow.arranged import arranged
from tests.flow.growing import off, three_voters
from tests.flow.world import World

NEW = IPv6Address("fd00::d")
OTHER = IPv6Address("fd00::e")


@arranged
def three_settled_voters(scratch: Path) -> World:
    made = three_voters(scratch)
    made.net.clock.sleep(10)
    return made


@pytest.fixture
def world(tmp_path: Path) -> World:
    return three_settled_voters(tmp_path)


def host(world: World) -> Host:
    return world.host("a")


def address(world: World, name: str) -> IPv6Address:
    return world.loaded(name).address


def listed(world: World) -> tuple[EtcdMember, ...]:
    found = etcdchange.read_list(host(world))
    assert isinstance(found, etcdchange.MemberList)
    return found.members


def id_of(world: World, name: str) -> int:
    found = etcdchange.by_address(listed(world), address(world, name))
    assert found is not None
    return found.id


def added(world: World) -> EtcdMember:
    change = etcdchange.add(host(world), NEW)
    assert isinstance(change, Changed)
    assert change.member is not None
    return change.member


def test_a_learner_is_added_once(world: World) -> None:
    member = added(world)
    assert member.learner
    assert member in listed(world)
    again = etcdchange.add(host(world), NEW)
    assert again == AlreadySo(members=listed(world), member=member)


def test_a_second_learner_finds_the_first_in_the_way(world: World) -> None:
    member = added(world)
    assert etcdchange.add(host(world), OTHER) == LearnerInTheWay(learner=member)


@pytest.mark.parametrize("late", [False, True], ids=["made", "not made"])
@pytest.mark.parametrize("kind", ["add_learner", "remove"])
def test_a_lost_answer_is_read_from_the_list(world: World, kind: str, late: bool) -> None:
    (world.etcd.lost_requests if late else world.etcd.lost_answers)[kind] = 1
    act: Callable[[], Change] = (
        (lambda: etcdchange.add(host(world), NEW))
        if kind == "add_learner"
        else (lambda: etcdchange.remove(host(world), id_of(world, "c")))
    )
    found = act()
    assert isinstance(found, Unknown if late else Changed)


def test_one_that_came_in_between_is_in_the_way(world: World) -> None:
    real = host(world).etcd_at(LOCALHOST)
    node = world.net.nodes["a"]
    at = node.etcd_at

    class Racing:
        """Another learner comes between the first look and the call."""

        def __getattr__(self, name: str) -> object:
            return getattr(real, name)

        def add_learner(self, peer_url: str, *, timeout_seconds: float = 20.0) -> EtcdMember:
            at(LOCALHOST).add_learner("https://[fd00::e]:2380")
            return at(LOCALHOST).add_learner(peer_url)

    node.etcd_at = lambda where: Racing() if where == LOCALHOST else at(where)  # type: ignore[assignment, return-value]
    found = etcdchange.add(host(world), NEW)
    assert isinstance(found, LearnerInTheWay)
    assert etcdchange.address_of(found.learner) == OTHER


def test_a_silent_voter_is_named(world: World) -> None:
    off(world, "c")
    silent = etcdchange.add(host(world), NEW)
    assert silent == VoterDown(silent=(address(world, "c"),))
    world.boot("c")
    assert etcdchange.add(host(world), NEW) == VoterDown(silent=())


def test_a_voter_that_the_others_can_not_spare_is_not_removed(world: World) -> None:
    off(world, "c")
    found = etcdchange.remove(host(world), id_of(world, "b"))
    assert isinstance(found, VoterDown)
    assert isinstance(etcdchange.remove(host(world), id_of(world, "c")), Changed)
    assert len(listed(world)) == 2


def test_who_is_gone_already_is_not_removed(world: World) -> None:
    found = etcdchange.remove(host(world), 7)
    assert found == AlreadySo(members=listed(world))


def test_without_a_leader_nothing_is_asked_for(world: World) -> None:
    for name in "bc":
        off(world, name)
    assert isinstance(etcdchange.add(host(world), NEW), NoQuorum)
    assert isinstance(etcdchange.promote(host(world), 7), NoQuorum)
    assert isinstance(etcdchange.remove(host(world), 7), NoQuorum)


def test_the_quorum_goes_between_the_change_and_the_look(world: World) -> None:
    node = world.net.nodes["a"]
    at = node.etcd_at

    class Dying:
        def __getattr__(self, name: str) -> object:
            return getattr(at(LOCALHOST), name)

        def remove(self, member_id: int, *, timeout_seconds: float = 20.0) -> None:
            at(LOCALHOST).remove(member_id)
            off(world, "b")

    node.etcd_at = lambda where: Dying() if where == LOCALHOST else at(where)  # type: ignore[assignment, return-value]
    found = etcdchange.remove(host(world), id_of(world, "c"))
    assert isinstance(found, NoQuorum)


def test_an_answer_that_the_list_does_not_bear_out_is_not_believed(world: World) -> None:
    at = world.net.nodes["a"].etcd_at

    class Lying:
        def __getattr__(self, name: str) -> object:
            return getattr(at(LOCALHOST), name)

        def remove(self, member_id: int, *, timeout_seconds: float = 20.0) -> None:
            """Says yes and does nothing."""

    world.net.nodes["a"].etcd_at = (  # type: ignore[assignment]
        lambda where: Lying() if where == LOCALHOST else at(where)
    )
    found = etcdchange.remove(host(world), id_of(world, "c"))
    assert found == Unknown(why="the list does not show it")


def test_a_learner_is_not_asked_for_the_list(world: World) -> None:
    world.etcd.catch_up_seconds = 600.0  # no pass promotes it meanwhile
    world.join("d", world.invite("a"))
    world.settle()
    world.net.clock.sleep(2)
    found = etcdchange.read_list(world.host("d"))
    assert found == NoQuorum(why="it is a learner")


def test_another_etcd_is_asked_when_the_own_one_does_not_serve(world: World) -> None:
    world.net.nodes["a"].units.stop(UNIT)
    world.net.clock.sleep(20)
    assert isinstance(etcdchange.read_list(host(world)), NoQuorum)
    found = etcdchange.read_list(host(world), (address(world, "b"),))
    assert isinstance(found, etcdchange.MemberList)
    assert found.at == address(world, "b")
    assert isinstance(
        etcdchange.remove(host(world), id_at_b(found, address(world, "a")), (found.at,)), Changed
    )


def id_at_b(found: etcdchange.MemberList, where: IPv6Address) -> int:
    member = etcdchange.by_address(found.members, where)
    assert member is not None
    return member.id


def test_the_leader_is_asked_to_promote(world: World) -> None:
    leader = next(
        name
        for name, process in world.etcd.processes.items()
        if process.member == process.cluster.leader
    )
    for name in "abc":
        seen = etcdchange.read_list(world.host(name))
        assert isinstance(seen, etcdchange.MemberList)
        assert seen.leader == (LOCALHOST if name == leader else address(world, leader))


def test_one_that_has_not_caught_up_is_not_promoted(world: World) -> None:
    member = added(world)
    assert etcdchange.promote(host(world), member.id) == NotInSync()


def test_a_voter_is_promoted_already_and_a_stranger_never(world: World) -> None:
    found = etcdchange.promote(host(world), id_of(world, "b"))
    assert isinstance(found, AlreadySo)
    assert found.member is not None
    assert isinstance(etcdchange.promote(host(world), 7), Unknown)


LEARNER = EtcdMember(
    id=255, name="", peer_urls=("https://[fd00::d]:2380",), client_urls=(), learner=True
)
NAMES = {NEW: "d", OTHER: "e"}
WORDS = {
    "a voter is down": (VoterDown(silent=(NEW, LOCALHOST)), "d, ::1", growth.VOTER_DOWN),
    "a voter was away": (
        VoterDown(silent=()),
        "a steady connection",
        "etcd waits until every voter has been connected for five seconds",
    ),
    "a learner": (LearnerInTheWay(learner=LEARNER), "d", growth.ONE_AT_A_TIME),
    "no quorum": (NoQuorum(why="so"), "the next pass", "so"),
    "unknown": (Unknown(why="so"), "the next pass", "so"),
    "not in sync": (NotInSync(), "the next pass", "etcd itself says that it has not caught up"),
    "changed": (Changed(members=()), "nobody", "it is so"),
    "already so": (AlreadySo(members=()), "nobody", "it is so"),
}


@pytest.mark.parametrize("case", WORDS)
def test_what_it_waits_for_is_said_in_the_nodes_names(case: str) -> None:
    change, whom, why = WORDS[case]
    found = etcdchange.waiting("it", change, NAMES)
    assert (found.what, found.waiting_for, found.why) == ("it", whom, why)


def test_a_learner_that_is_nobodys_is_called_by_its_id() -> None:
    found = etcdchange.waiting("it", LearnerInTheWay(learner=LEARNER), {})
    assert found.waiting_for == "ff"
    assert (
        etcdchange.address_of(EtcdMember(id=1, name="", peer_urls=(), client_urls=(), learner=True))
        is None
    )


def test_a_voter_that_hears_no_leader_is_named_like_one_that_is_silent(world: World) -> None:
    members = listed(world)
    off(world, "b")
    off(world, "c")
    assert host(world).etcd_at(address(world, "a")).status(timeout_seconds=1.0).leader == 0
    silent = etcdchange.silent_voters(host(world), members)
    assert set(silent) == {address(world, name) for name in "abc"}
