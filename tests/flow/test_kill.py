"""Killed at every effect of every flow, and run again: always the same end (Q3, M2, E8, E10)."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import timedelta
from ipaddress import IPv6Address
from pathlib import Path

import pytest

from keel.mesh import etcdcrl, etcdrecover, etcdstore, roster, store
from keel.mesh.etcdcert import der, serial_of
from keel.mesh.etcdgrants import Event, granted_to
from keel.mesh.growth import GrowthBook
from keel.mesh.identity import address_of
from keel.mesh.invite import Phase
from keel.mesh.keys import signing_pair
from keel.mesh.records import Admission
from keel.types import LOCALHOST, Secret
from keel.unitnames import MESH_UNIT
from tests.conftest import KILLED
from tests.fakes.etcd import UNIT
from tests.flow import stories_removal, stories_window
from tests.flow.arranged import arranged
from tests.flow.growing import three_voters, voters
from tests.flow.held import crl
from tests.flow.kill import Revival, Story, kill_everywhere, tolerate
from tests.flow.world import World

Note = Callable[[str, object], None]

# --- arrangements


@arranged
def one_node(scratch: Path) -> World:
    world = World(scratch)
    world.node("a")
    return world


@arranged
def a_founder(scratch: Path) -> World:
    world = one_node(scratch)
    world.create("a")
    return world


@arranged
def one_invited(scratch: Path) -> World:
    world = a_founder(scratch)
    world.node("b")
    world.tokens["b"] = world.invite("a")
    return world


@arranged
def two_members(scratch: Path) -> World:
    world = one_invited(scratch)
    world.join("b", world.tokens["b"])
    world.settle()
    world.timers()
    return world


@arranged
def a_third_invited(scratch: Path) -> World:
    world = two_members(scratch)
    world.node("c")
    world.tokens["c"] = world.invite("a")
    return world


@arranged
def a_third_invited_by_b(scratch: Path) -> World:
    """b is not the holder: it relays, and c asks by itself."""
    world = two_members(scratch)
    world.node("c")
    world.tokens["c"] = world.invite("b")
    return world


@arranged
def a_claim_that_lapsed(scratch: Path) -> World:
    """c was granted and promised a birth; its confirmation was lost until its time was over."""
    world = two_members(scratch)
    world.node("c")
    world.tokens["c"] = world.invite("a", life=timedelta(minutes=30))
    world.net.lose("request", source="c", path="/v1/hello", count=999)
    assert tolerate(lambda: world.join("c", world.tokens["c"])) is not None
    world.net.nodes["c"].power_off()
    world.net.clock.sleep(1800)
    return world


@arranged
def three_without_etcd(scratch: Path) -> World:
    world = World(scratch)
    for name in "abc":
        world.node(name, mode="cloud")
    world.create("a")
    for name in "bc":
        world.tokens[name] = world.invite("a")
        world.join(name, world.tokens[name])
        world.settle()
    world.timers()
    return world


@arranged
def three_that_can_now(scratch: Path) -> World:
    """A mesh without an etcd root, whose members became able to run etcd."""
    world = three_without_etcd(scratch)
    for name in "abc":
        world.make_capable(name)
    world.timers()
    return world


@arranged
def a_fourth_invited(scratch: Path) -> World:
    world = three_voters(scratch)
    world.tokens["d"] = world.invite("a")
    return world


@arranged
def one_lost_its_data(scratch: Path) -> World:
    world = three_voters(scratch)
    node = world.net.nodes["b"]
    node.units.stop(UNIT)
    node.files.remove(node.paths.etcd_data / "member")
    world.net.clock.sleep(20)
    world.timers(*"abc")
    return world


@arranged
def a_year_passed(scratch: Path) -> World:
    """Every intermediate is due, and every leaf and the CRL long overdue."""
    world = three_voters(scratch)
    world.net.clock.leap(270 * 86400.0)
    return world


@arranged
def a_crl_is_due(scratch: Path) -> World:
    world = three_voters(scratch)
    world.net.clock.leap(19 * 86400.0)
    world.timers()
    world.net.clock.leap(1.5 * 86400.0)
    return world


@arranged
def one_has_news(scratch: Path) -> World:
    """b was away while c joined and a's trust changed: its next sync has much to take and give."""
    world = World(scratch)
    world.mesh("ab", spare="c", mode="cloud")
    world.net.partition("b", "ac")
    world.join("c", world.invite("a"))
    world.trust("b", "a")
    world.settle()
    world.net.heal()
    world.kicks.clear()
    return world


# --- what is done, and done again


def create(world: World) -> None:
    world.create("a")


def create_again(world: World) -> None:
    create(world)
    invite_again(world)


def invite(world: World) -> None:
    world.tokens["b"] = world.invite("a")


def invite_again(world: World) -> None:
    """The operator types the command again, and the token it prints is good."""
    invite(world)
    world.node("b")
    world.join("b", world.tokens["b"])
    world.settle()
    world.timers()


def join(name: str) -> Callable[[World], None]:
    def act(world: World) -> None:
        world.join(name, world.tokens[name])
        world.settle()

    return act


def join_again(name: str, others: str) -> Callable[[World], None]:
    """The same command with the same token, the same keys and so the same address."""

    def act(world: World) -> None:
        began_with = _address_begun(world, name)
        world.join(name, world.tokens[name])
        if began_with is not None:
            assert world.loaded(name).address == began_with
        world.settle()
        world.timers(*others, name)

    return act


def birth(world: World) -> None:
    tolerate(lambda: world.join("c", world.tokens["c"]))
    world.settle()
    world.rest("a", "b", "c", rounds=4)


def birth_again(world: World) -> None:
    join_again("c", "ab")(world)
    world.rest("a", "b", "c", rounds=12)


def grow(world: World) -> None:
    tolerate(lambda: world.join("d", world.tokens["d"]))
    world.settle()
    for _ in range(3):
        world.timers(*"abcd", seconds=5.0)


def grow_again(world: World) -> None:
    join_again("d", "abc")(world)
    voters_become(world, *"abcd")


def replace(world: World) -> None:
    host, spec = world.host("b"), world.spec("b")
    tolerate(lambda: etcdrecover.recover(host, spec, world.loaded("b")))
    for _ in range(3):
        world.timers(*"abc", seconds=5.0)


def replace_again(world: World) -> None:
    """The same command, once who was away has caught up; it says so when it was done."""
    world.timers(*"abc")
    host, spec = world.host("b"), world.spec("b")
    refused = tolerate(lambda: etcdrecover.recover(host, spec, world.loaded("b")))
    assert refused is None or getattr(refused, "rule", "") in ("replace-serves", "locked"), refused
    voters_become(world, *"abc")


def voters_become(world: World, *names: str) -> None:
    for _ in range(8):
        if voters(world) == "".join(names) and world.formed(names):
            break
        world.timers(*names, seconds=10.0)
    world.timers(*names)


def form(world: World) -> None:
    tolerate(lambda: world.form("a"))
    world.settle()
    world.rest("a", "b", "c", rounds=4)


def form_again(world: World) -> None:
    world.settle()  # a member that was off asks the others first who still is one
    world.form("a")
    world.settle()
    world.rest("a", "b", "c", rounds=12)


def sync(world: World) -> None:
    world.sync("b")


def sync_again(world: World) -> None:
    world.sync("b")
    world.timers()


def timers(world: World) -> None:
    world.timers("a", "b")
    world.timers("a", "b")


def leave(world: World) -> None:
    world.leave("b")


def leave_again(world: World) -> None:
    """Typed again, unless it was done: then the node says that it is in no mesh."""
    if store.load(world.host("b")) is not None:
        world.leave("b")
    world.timers("a", "c")


def renew(world: World) -> None:
    for _ in range(2):
        world.timers(*"bca", seconds=5.0)


def renew_again(world: World) -> None:
    """What was granted and not seen in use yet is looked at again by the next passes."""
    for _ in range(4):
        world.timers(*"abc", seconds=5.0)


def _address_begun(world: World, name: str) -> IPv6Address | None:
    """The address that follows from the keys that the node holds already."""
    host, mesh = world.host(name), world.tokens[name].mesh
    for place in (host.paths.pending_join(mesh), host.paths.mesh):
        raw = host.files.read(place / "signing.key")
        if raw is not None:
            seed = Secret(base64.b64decode(raw))
            return address_of(mesh, signing_pair(seed).public)
    return None


# --- the ends


def members_are(*names: str) -> Callable[[World], None]:
    """One mesh of exactly these, the same everywhere; each invite went to one, each key was
    admitted once, and everybody lets everybody in."""

    def holds(world: World) -> None:
        nodes = {name: world.loaded(name) for name in names}
        for node in nodes.values():
            assert sorted(one.display for one in node.view.members) == sorted(names)
        assert len({roster.digest(node.roster) for node in nodes.values()}) == 1
        admitted = [
            entry.body.ed25519
            for entry in nodes[names[0]].roster.entries.values()
            if isinstance(entry.body, Admission)
        ]
        assert len(admitted) == len(set(admitted))
        for name in names:
            assert MESH_UNIT in world.net.nodes[name].units.enabled()
            assert {n.address for o, n in nodes.items() if o != name} <= world.peers(name)
        spent = {i.invite: i for n in names for i in store.load_invites(world.host(n))}
        for name, token in world.tokens.items():
            if name in names:
                assert spent[token.invite].phase is Phase.SPENT
                assert spent[token.invite].claim.ed25519 == nodes[name].key

    return holds


def one_cluster(world: World) -> None:
    members_are("a", "b", "c")(world)
    (cluster,) = world.etcd.births()
    assert {member.name for member in cluster.voters()} == {
        f"keel-{world.loaded(name).address.packed.hex()}" for name in "abc"
    }
    assert world.formed("abc")


def four_voters(world: World) -> None:
    members_are(*"abcd")(world)
    (cluster,) = world.etcd.births()
    assert (voters(world), len(cluster.members)) == ("abcd", 4)
    assert world.formed("abcd")
    assert world.host("d").etcd_at(LOCALHOST).get(b"early") == b"kept"
    nothing_is_open(world, *"abcd")


def whole_under_a_new_id(world: World) -> None:
    (cluster,) = world.etcd.births()
    assert (voters(world), len(cluster.members)) == ("abc", 3)
    assert world.formed("abc")
    assert world.host("b").etcd_at(LOCALHOST).get(b"early") == b"kept"
    assert etcdstore.load_cluster(world.host("b")).replaced is not None
    nothing_is_open(world, *"abc")


def nothing_is_open(world: World, *names: str) -> None:
    """Nobody waits in a line, no wish is left, and the holder's book is closed."""
    for name in names:
        assert etcdstore.load_queue(world.host(name)).entries == ()
    assert etcdstore.load_growth(world.host("a")) == GrowthBook()


def one_cluster_and_no_queue(world: World) -> None:
    one_cluster(world)
    for name in "abc":
        assert etcdstore.load_queue(world.host(name)).entries == ()


def nothing_is_left_of_the_claim(world: World) -> None:
    host = world.host("a")
    ledger, book = etcdstore.load_ledger(host), etcdstore.load_book(host)
    assert [line.event for line in ledger.lines].count(Event.REVOKED) == 1
    crl = etcdcrl.read_crl(etcdstore.load_crl(host) or b"", etcdstore.load_roots(host))
    assert (crl.number, len(crl.revoked)) == (2, 1)
    assert [one.over for one in book.formations] == [True]
    assert etcdstore.load_queue(host).entries == ()


def every_chain_is_new(world: World) -> None:
    """One new intermediate each, in use and with leaves of its own; the old ones, and nothing else,
    are revoked everywhere; etcd was not restarted, and nothing failed."""
    ledger = etcdstore.load_ledger(world.host("a"))
    old, new = set(), set()
    for name in "abc":
        host, node = world.host(name), world.loaded(name)
        grants = granted_to(ledger, node.address, node.key)
        old |= {one.serial for one in grants[:-1]}
        new |= {grants[-1].serial}
        held, leaves = etcdstore.load_intermediate(host), etcdstore.load_leaves(host)
        assert held is not None
        assert leaves is not None
        assert (held[0], serial_of(held[1].certificate)) == (2, grants[-1].serial)
        assert leaves.member.chain == (held[1].certificate,)
        assert set(host.etcd_at(node.address).served()) == {der(leaves.member.leaf)}
        assert etcdstore.load_failures(host).entries == ()
    for name in "abc":
        found = crl(world, name)
        assert {one.serial for one in found.revoked} == old
    assert len(new) == 3
    one_cluster(world)


def one_crl_everywhere(world: World) -> None:
    now = world.host("a").clock.now()
    found = {name: crl(world, name) for name in "abc"}
    assert len({one.der for one in found.values()}) == 1
    assert found["a"].next_update - now > timedelta(days=29)
    for name in "abc":
        laid = world.host(name).overlay.laid("crl.der")
        assert laid is not None
        assert laid.reveal() == found["a"].der
        assert etcdstore.load_failures(world.host(name)).entries == ()


def b_is_gone(world: World) -> None:
    assert store.load(world.host("b")) is None
    assert world.net.nodes["b"].wireguard.devices == {}
    for name in "ac":
        node = world.loaded(name)
        assert sorted(one.display for one in node.view.members) == ["a", "c"]
        assert world.peers(name) <= {world.loaded(other).address for other in "ac"} | {
            one.address for one in store.load_invites(world.host(name))
        }
    assert world.agree("ac")


STORIES = {
    "create": Story(one_node, create, create_again, members_are("a", "b"), "a", 95),
    "invite": Story(a_founder, invite, invite_again, members_are("a", "b"), "a", 10),
    "join, the joiner": Story(
        one_invited, join("b"), join_again("b", "a"), members_are("a", "b"), "b", 150
    ),
    "join, the inviter": Story(
        one_invited, join("b"), join_again("b", "a"), members_are("a", "b"), "a", 65
    ),
    "sync": Story(one_has_news, sync, sync_again, members_are("a", "b", "c"), "b", 18),
    "leave": Story(three_without_etcd, leave, leave_again, b_is_gone, "b", 28),
    "birth, the joiner": Story(a_third_invited, birth, birth_again, one_cluster, "c", 330),
    "birth, the holder": Story(a_third_invited, birth, birth_again, one_cluster, "a", 210),
    "relay, the inviter": Story(
        a_third_invited_by_b, birth, birth_again, one_cluster_and_no_queue, "b", 165
    ),
    "lapse, the holder": Story(
        a_claim_that_lapsed, timers, timers, nothing_is_left_of_the_claim, "a", 40
    ),
    "birth, the other": Story(a_third_invited, birth, birth_again, one_cluster, "b", 165),
    "learner, the joiner": Story(a_fourth_invited, grow, grow_again, four_voters, "d", 300),
    "learner, the holder": Story(a_fourth_invited, grow, grow_again, four_voters, "a", 200),
    "replacement, the member": Story(
        one_lost_its_data, replace, replace_again, whole_under_a_new_id, "b", 100
    ),
    "replacement, the holder": Story(
        one_lost_its_data, replace, replace_again, whole_under_a_new_id, "a", 100
    ),
    "renewal, a member": Story(a_year_passed, renew, renew_again, every_chain_is_new, "b", 200),
    "renewal, the holder": Story(a_year_passed, renew, renew_again, every_chain_is_new, "a", 300),
    "CRL, the holder": Story(a_crl_is_due, renew, renew_again, one_crl_everywhere, "a", 170),
    "CRL, a member": Story(a_crl_is_due, renew, renew_again, one_crl_everywhere, "b", 150),
    "form, the holder": Story(three_that_can_now, form, form_again, one_cluster, "a", 300),
    "form, a member": Story(three_that_can_now, form, form_again, one_cluster, "b", 260),
    **stories_removal.STORIES,
    **stories_window.STORIES,
}


@pytest.mark.slow
@pytest.mark.parametrize("story", STORIES)
def test_killed_here_and_there_it_comes_to_the_same_end(
    tmp_path: Path, story: str, record_property: Note
) -> None:
    for tally in kill_everywhere(STORIES[story], tmp_path, list(Revival), sample=2):
        record_property(KILLED, (story, *tally))


@pytest.mark.parametrize(
    "sample",
    [
        pytest.param(16, id="many", marks=pytest.mark.long),
        pytest.param(None, id="all", marks=pytest.mark.exhaustive),
    ],
)
@pytest.mark.parametrize("revival", list(Revival), ids=lambda it: it.name.lower())
@pytest.mark.parametrize("story", STORIES)
def test_killed_anywhere_it_comes_to_the_same_end(
    tmp_path: Path, story: str, revival: Revival, sample: int | None, record_property: Note
) -> None:
    (tally,) = kill_everywhere(STORIES[story], tmp_path, [revival], sample=sample)
    record_property(KILLED, (story, *tally))
