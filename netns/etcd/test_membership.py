"""keel's changes of the member list and its promotion gate against Debian 13's own etcd."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from ipaddress import IPv6Address
from types import SimpleNamespace
from typing import Any, cast

import pytest

from keel.errors import EtcdError
from keel.mesh import etcdchange, etcdstart, growth
from keel.mesh.etcdchange import AlreadySo, Changed, LearnerInTheWay, NotInSync, VoterDown
from keel.mesh.etcdclient import GatewayClient
from keel.mesh.etcdids import member_id
from keel.mesh.etcdmsg import ClusterRecord, RecordState
from keel.mesh.etcdwords import GrpcCode
from keel.mesh.growth import GrowthBook, GrowthView, Listed, Open, Word
from keel.outcome import Waiting
from keel.ports import Host
from keel.types import LOCALHOST, EtcdMemberId, SigningKey
from netns.etcd.cluster import ELECTIONS, NOW, TOKEN, Network, address, panics, until

KEY = SigningKey("dd" * 32)


class Deaf:
    """A gateway whose next answer to a change never arrives; the change is made."""

    def __init__(self, real: GatewayClient, lost: str) -> None:
        self.real = real
        self.lost = lost

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.real, name)
        if name != self.lost:
            return found

        def unheard(*args: object, **kwargs: object) -> None:
            found(*args, **kwargs)
            raise EtcdError(GrpcCode.DEADLINE, "no answer")

        return unheard


def host(network: Network, *, lost: str = "") -> Host:
    """Only what etcdchange takes of one: the gateways, a's own as ::1."""

    def at(where: IPv6Address) -> Deaf:
        name = "a" if where == LOCALHOST else next(n for n in "abcde" if address(n) == where)
        return Deaf(network.client(name, of="a"), lost)

    return cast(Host, SimpleNamespace(etcd_at=at))


def add(network: Network, name: str) -> EtcdMemberId:
    """A new machine, added by keel once every voter has been connected for five seconds."""
    network.member(name)
    return add_again(network, name)


def seen(network: Network, names: str, learner: EtcdMemberId, near: bool) -> GrowthView:
    """What the holder would see: etcd's list, and the word of every etcd that answers."""
    found = etcdchange.read_list(host(network))
    assert isinstance(found, etcdchange.MemberList)
    words = {}
    for name in names:
        try:
            said = network.client(name).status(timeout_seconds=3)
        except EtcdError:
            continue
        words[EtcdMemberId(said.member_id)] = Word(
            member_id=EtcdMemberId(said.member_id),
            leader=EtcdMemberId(said.leader),
            commit=said.raft_index,
            applied=said.applied_index,
            learner=said.learner,
        )
    members = tuple(
        Listed(
            id=EtcdMemberId(one.id),
            address=etcdchange.address_of(one) or LOCALHOST,
            name=one.name,
            key=KEY if one.learner else None,
            learner=one.learner,
            started=bool(one.client_urls),
        )
        for one in found.members
    )
    return GrowthView(
        members=members,
        words=words,
        line=(),
        book=GrowthBook(open=Open(address=address("d"), since=NOW, key=KEY)),
        near=learner if near else None,
    )


def decided(network: Network, learner: EtcdMemberId, *, near: bool) -> growth.Growth:
    return growth.plan_growth(seen(network, "abcd", learner, near), NOW)


def test_a_learner_is_brought_in_by_keels_own_gate(born: Network) -> None:
    learner = add(born, "d")
    assert isinstance(decided(born, learner, near=True), Waiting)
    assert isinstance(etcdchange.promote(host(born), learner), NotInSync)
    assert isinstance(etcdchange.add(host(born), address("e")), LearnerInTheWay)
    born.members["d"].start("abcd", RecordState.EXISTING)
    until(lambda: isinstance(decided(born, learner, near=True), growth.Promote))
    until(lambda: isinstance(etcdchange.promote(host(born), learner), Changed | AlreadySo))
    assert isinstance(etcdchange.promote(host(born), learner), AlreadySo)
    born.client("d").put(b"by", b"d")
    assert born.client("a").get(b"by") == b"d"


def test_a_dead_learner_is_not_promoted_by_keel_though_etcd_would(born: Network) -> None:
    learner = add(born, "d")
    born.members["d"].start("abcd", RecordState.EXISTING)
    until(lambda: isinstance(decided(born, learner, near=True), growth.Promote))
    born.members["d"].kill()
    found = decided(born, learner, near=True)
    assert isinstance(found, Waiting)
    assert found.why == "its etcd does not answer"
    born.client("a").promote(learner)
    assert not etcdchange.learner_of(born.client("a").members())


def test_while_a_voter_is_down_nobody_is_added_and_it_is_named(born: Network) -> None:
    born.member("d")
    until(lambda: isinstance(etcdchange.add(host(born), address("d")), Changed))
    mine = etcdchange.by_address(born.client("a").members(), address("d"))
    assert mine is not None
    until(lambda: isinstance(etcdchange.remove(host(born), mine.id), Changed | AlreadySo))
    born.members["c"].kill()

    def refused() -> bool:
        found = etcdchange.add(host(born), address("d"))
        if isinstance(found, Changed):  # c was seen a moment ago
            assert found.member is not None
            etcdchange.remove(host(born), found.member.id)
        return found == VoterDown(silent=(address("c"),))

    until(refused)
    born.members["c"].start("abc")
    until(lambda: isinstance(etcdchange.add(host(born), address("d")), Changed))


@pytest.mark.parametrize("lost", ["add_learner", "promote", "remove"])
def test_a_change_whose_answer_is_lost_was_made(born: Network, lost: str) -> None:
    born.member("d")
    deaf = host(born, lost=lost)
    until(lambda: isinstance(etcdchange.add(deaf, address("d")), Changed | AlreadySo))
    mine = etcdchange.by_address(born.client("a").members(), address("d"))
    assert mine is not None
    if lost == "promote":
        born.members["d"].start("abcd", RecordState.EXISTING)
        until(lambda: isinstance(etcdchange.promote(deaf, mine.id), Changed))
    if lost == "remove":
        assert isinstance(etcdchange.remove(deaf, mine.id), Changed)
        assert len(born.client("a").members()) == 3


def test_one_that_never_started_goes_by_id_and_the_next_comes_in(born: Network) -> None:
    learner = add(born, "d")
    late = NOW + timedelta(hours=1)
    found = growth.plan_growth(seen(born, "abc", learner, near=False), late)
    assert isinstance(found, growth.TakeOut)
    gone = found.member.id
    until(lambda: isinstance(etcdchange.remove(host(born), gone), Changed | AlreadySo))
    add(born, "e")


def test_lost_data_comes_back_under_a_new_id(born: Network) -> None:
    born.client("a").put(b"early", b"kept")
    born.members["b"].kill()
    born.members["b"].wipe()
    old = member_id(address("b"), TOKEN)
    # it may have been the leader: then the others elect one first
    until(lambda: isinstance(etcdchange.remove(host(born), old), Changed | AlreadySo))
    assert isinstance(etcdchange.remove(host(born), old), AlreadySo)
    until(lambda: isinstance(etcdchange.add(host(born), address("b")), Changed | AlreadySo))
    born.members["b"].start("abc", RecordState.EXISTING)
    mine = etcdchange.by_address(born.client("a").members(), address("b"))
    assert mine is not None
    assert mine.id != old
    until(lambda: isinstance(etcdchange.promote(host(born), mine.id), Changed | AlreadySo))
    until(in_sync(born))


def in_sync(network: Network) -> Callable[[], bool]:
    return lambda: network.client("b").get(b"early") == b"kept"


def test_a_learner_that_lost_its_data_is_seen_and_comes_back_under_a_new_id(
    born: Network,
) -> None:
    """etcd itself panics over the empty directory; keel asks the others first."""
    born.client("a").put(b"early", b"kept")
    learner = add(born, "d")
    mine = born.members["d"]
    record = cast(
        ClusterRecord,
        SimpleNamespace(
            members=tuple(address(one) for one in "abcd"),
            cluster_id=born.client("a").status().cluster_id,
        ),
    )
    at = host(born).etcd_at
    assert not etcdstart.served(at, record, address("d"))

    def start() -> None:
        mine.start("abcd", RecordState.EXISTING)

    def start_without_data() -> None:
        mine.kill()
        mine.wipe()
        assert etcdstart.served(at, record, address("d"))
        start()

    start()
    for _ in ELECTIONS:
        until(lambda: etcdstart.served(at, record, address("d")))
        until(lambda: born.client("d").status().raft_index >= born.client("a").status().raft_index)
        if panics(mine, born.client("a"), start_without_data):
            break
    else:
        raise AssertionError("never a panic")
    mine.wipe()
    until(lambda: isinstance(etcdchange.remove(host(born), learner), Changed | AlreadySo))
    anew = add_again(born, "d")
    assert anew != learner
    assert not etcdstart.served(at, record, address("d"))
    mine.start("abcd", RecordState.EXISTING)
    until(lambda: isinstance(decided(born, anew, near=True), growth.Promote))
    until(lambda: isinstance(etcdchange.promote(host(born), anew), Changed | AlreadySo))
    assert born.client("d").get(b"early") == b"kept"


def add_again(network: Network, name: str) -> EtcdMemberId:
    """Added by keel once every voter has been connected for five seconds."""
    until(lambda: isinstance(etcdchange.add(host(network), address(name)), Changed | AlreadySo))
    found = etcdchange.add(host(network), address(name))
    assert isinstance(found, AlreadySo)
    assert found.member is not None
    return EtcdMemberId(found.member.id)


def test_the_alarm_of_a_corrupt_member_goes_once_its_id_is_out_of_the_list(born: Network) -> None:
    gone = member_id(address("b"), TOKEN)
    wish = {"action": "ACTIVATE", "memberID": str(gone), "alarm": "CORRUPT"}
    born.client("a")._post("maintenance/alarm", wish, 10)
    with pytest.raises(EtcdError) as caught:
        born.client("c").put(b"any", b"thing")
    assert "corrupt" in caught.value.message
    found = etcdchange.read_list(host(born))
    assert isinstance(found, etcdchange.MemberList)
    assert found.corrupt == {gone}
    assert etcdchange.disarm_gone(host(born), found) == ()  # it is a member still
    born.members["b"].kill()
    until(lambda: isinstance(etcdchange.remove(host(born), gone), Changed | AlreadySo))
    found = etcdchange.read_list(host(born))
    assert isinstance(found, etcdchange.MemberList)
    assert etcdchange.disarm_gone(host(born), found) == (gone,)
    born.client("c").put(b"any", b"thing")
    assert born.client("a").get(b"any") == b"thing"
    found = etcdchange.read_list(host(born))
    assert isinstance(found, etcdchange.MemberList)
    assert found.corrupt == frozenset()
