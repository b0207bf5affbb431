"""A member, or a token's holder, that signs what is valid and means harm: it harms nobody else."""

from __future__ import annotations

import base64
import gc
from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pytest

from keel import codec
from keel.cli import status
from keel.errors import PeerError, Refused
from keel.mesh import drafts, envelope, exchange, members, roster, store, talk, wire
from keel.mesh.envelope import Message, Reply
from keel.mesh.exchange import RosterAnswer, RosterAsk
from keel.mesh.records import MAX_LISTED, REMOVAL, Removal
from keel.mesh.roster import Roster
from keel.mesh.trust import with_block
from keel.types import Capability, Endpoint, Nonce, RecordHash, SigningKey, WgKey
from tests.fakes import FakeNode
from tests.flow.arranged import arranged
from tests.flow.world import World

SILENT_SECONDS = 3600.0


@arranged
def three_members(scratch: Path) -> World:
    """a founded a mesh, b and c are in it; b is the hostile one."""
    made = World(scratch)
    made.mesh("abc", mode="cloud")
    for name in "abc":
        made.sync(name)
    return made


@pytest.fixture
def world(tmp_path: Path) -> World:
    return three_members(tmp_path)


def tell(world: World, teller: str, listener: str, *records: bytes) -> None:
    """The teller says these records to one member, and keeps none of them."""
    node = world.loaded(teller)
    member = members.find(node.view, listener)
    ask = RosterAsk(digest=roster.digest(node.roster), records=records)
    path = "/v1/roster"
    talk.ask(world.host(teller), node, member, exchange.ROSTER, ask, RosterAnswer, path=path)


def said(world: World, name: str, *endpoints: Endpoint) -> bytes:
    """A self record with these endpoints, signed by that member."""
    return _said(world, name, endpoints=endpoints)


def replaced_key(world: World, name: str, wireguard: WgKey) -> bytes:
    """A self record that says that the member has this WireGuard key now."""
    return _said(world, name, wireguard=wireguard)


def _said(
    world: World, name: str, *, endpoints: tuple[Endpoint, ...] = (), wireguard: WgKey | None = None
) -> bytes:
    node = world.loaded(name)
    record = drafts.make_self(
        node.roster,
        node.identity.signing,
        wireguard=wireguard or node.identity.wireguard.public,
        endpoints=endpoints,
        capability=Capability.NONE,
        roots=(),
        lived=0,
        now=world.net.clock.now(),
    )
    return wire.encode(record)


def inside(world: World) -> Endpoint:
    return Endpoint(host=world.loaded("a").address, port=51820)


NOWHERE = {
    "this machine": Endpoint(host=IPv4Address("127.0.0.1"), port=22),
    "everybody": Endpoint(host=IPv4Address("224.0.0.1"), port=53),
    "no address": Endpoint(host=IPv4Address("0.0.0.0"), port=53),
}


@pytest.mark.parametrize(
    "endpoint",
    [pytest.param(None, id="inside the mesh")]
    + [pytest.param(value, id=name) for name, value in NOWHERE.items()],
)
def test_endpoints_that_no_packet_should_go_to_are_left_out_and_stop_no_sync(
    world: World, endpoint: Endpoint | None
) -> None:
    bad = endpoint or inside(world)
    good = world.net.nodes["b"].endpoint(51820)
    tell(world, "b", "a", said(world, "b", bad, replace(bad, port=7), good, replace(good, port=9)))
    world.net.nodes["b"].power_off()
    tried = set()
    for _ in range(4):
        world.net.clock.sleep(SILENT_SECONDS)
        world.sync("a")
        tried.add(peer_of(world, "a", "b"))
    assert tried == {good, replace(good, port=9)}
    assert world.loaded("c").address in world.peers("a")


def peer_of(world: World, at: str, name: str) -> Endpoint | None:
    (device,) = world.net.nodes[at].wireguard.devices.values()
    wireguard = world.loaded(name).identity.wireguard.public
    return device.peers[wireguard].endpoint


def test_a_message_is_taken_once_whoever_sends_it_again(world: World) -> None:
    listener = world.net.nodes["a"]
    heard: list[tuple[str, IPv6Address, bytes]] = []
    take = listener.handler
    assert take is not None

    def overheard(path: str, source: IPv6Address, body: bytes) -> tuple[int, bytes]:
        heard.append((path, source, body))
        return take(path, source, body)

    listener.handler = overheard
    tell(world, "b", "a")
    status, again = take(*heard[0])
    assert status == 403
    with pytest.raises(PeerError) as caught:
        envelope.open_reply(again, RosterAnswer, request=heard[0][2], member="a")
    assert caught.value.reason == "channel-replay"


def test_who_is_blocked_here_is_not_heard_while_its_peer_is_still_there(world: World) -> None:
    host, node = world.host("a"), world.loaded("a")
    tell(world, "b", "a")
    blocked = with_block(node.trust, world.loaded("b").key, why="", now=host.clock.now())
    store.save_trust(host, blocked)
    with pytest.raises(PeerError) as caught:
        tell(world, "b", "a")
    assert caught.value.reason == "channel-source"
    tell(world, "c", "a")


def test_a_joiner_may_not_take_its_invites_own_key(world: World) -> None:
    joiner = world.node("d", mode="cloud")
    token = world.invite("a")
    _take_key_of_invite(world, joiner, token.invite)
    with pytest.raises(Refused) as caught:
        world.join("d", token)
    assert caught.value.rule == "join-wireguard-key"


def test_a_member_that_takes_an_invites_key_later_stops_no_sync(world: World) -> None:
    joiner = world.node("d", mode="cloud")
    token = world.invite("a")
    world.join("d", token)
    world.settle()
    wireguard = _take_key_of_invite(world, joiner, token.invite)
    with pytest.raises(PeerError):  # a looks for it under the new key at once
        tell(world, "d", "a", replaced_key(world, "d", wireguard))
    world.sync("a")
    assert world.loaded("d").address in world.peers("a")
    assert world.loaded("c").address in world.peers("a")


def _take_key_of_invite(world: World, joiner: FakeNode, invite: str) -> WgKey:
    """Make the joiner's WireGuard key the one that the token makes; its public key."""
    node = world.loaded("a")
    (state,) = (i for i in store.load_invites(world.host("a")) if i.invite == invite)
    pair = state.keys(node.mesh, node.prefix).pair
    pending = joiner.paths.pending_join(node.mesh)
    joiner.host.files.make_dir(pending)
    private = base64.b64encode(pair.private.reveal()) + b"\n"
    joiner.host.files.write(pending / "wireguard.key", private)
    return pair.public


def test_a_machine_with_very_many_addresses_joins_and_syncs(world: World) -> None:
    node = world.node("d", mode="cloud")
    first = node.machine.hosts[0]
    node.machine.hosts = (
        first,
        *(replace(first, host=IPv4Address(f"198.51.100.{n}")) for n in range(1, 40)),
    )
    world.join("d", world.invite("a"))
    world.settle()
    world.sync("d")
    assert world.loaded("d").address in world.peers("a")


def answers(world: World, name: str, *, body: dict[str, object], time: datetime | None) -> None:
    """From now on this member gives this signed answer, whatever it is asked."""
    node = world.loaded(name)

    def handle(path: str, source: IPv6Address, raw: bytes) -> tuple[int, bytes]:
        asked = codec.loads(Message, wire.decode(raw, max_bytes=1 << 20).payload, max_bytes=1 << 20)
        reply = Reply(
            mesh=asked.mesh,
            sender=asked.receiver,
            receiver=asked.sender,
            kind=asked.kind,
            time=time or world.net.clock.now(),
            request=envelope.message_hash(raw),
            body=body,
        )
        return 200, envelope.seal_reply(reply, node.identity.signing)

    world.net.nodes[name].handler = handle


def hello(**changes: object) -> dict[str, object]:
    return {"digest": "0" * 32, "etcd": "none", **changes}


YEAR_1 = datetime(1, 1, 1, tzinfo=UTC)
YEAR_9999 = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
ANSWERS: dict[str, tuple[dict[str, object], datetime | None]] = {
    "a silence that no clock holds": (hello(tend_silent_seconds=10**19), None),
    "a silence of three thousand years": (hello(tend_silent_seconds=10**11), None),
    "a silence to come": (hello(tend_silent_seconds=-1), None),
    "words that steer a terminal": (hello(digest="\x1b[2J", etcd="\x1b[2J"), None),
    "words that are no text": (hello(digest="\ud800", etcd="\ud800"), None),
    "the first moment": (hello(), YEAR_1),
    "the last moment": (hello(), YEAR_9999),
    "another kind's answer": ({"records": [], "have": [], "digest": ""}, None),
    "hashes of nothing": ({"digest": "0", "have": ["ab" * 32] * 4096}, None),
    "records of nothing": ({"digest": "0", "records": ["", "AA==", "e30="] * 999}, None),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_whatever_a_member_answers_the_others_look_and_sync(world: World, name: str) -> None:
    body, time = ANSWERS[name]
    answers(world, "b", body=body, time=time)
    before = roster.digest(world.loaded("a").roster)
    shown = status.text(status.look(world.host("a")))
    assert all(char.isprintable() or char == "\n" for char in shown)
    world.sync("a")
    assert roster.digest(world.loaded("a").roster) == before
    assert {m["name"]: m["state"] for m in status.look(world.host("a"))["members"]}["c"] == "up"


def heavy(world: World, name: str, number: int) -> bytes:
    """A removal of nobody, as large as one may be."""
    node = world.loaded(name)
    body = Removal(
        mesh=node.mesh,
        subject=SigningKey(f"{number:064x}"),
        standing=tuple(RecordHash(f"{n:064x}") for n in range(MAX_LISTED)),
        grounds=(),
        removed_by=node.key,
        time=world.net.clock.now(),
        nonce=Nonce(f"{number:032x}"),
    )
    return wire.encode(wire.seal(REMOVAL, body, node.identity.signing))


def test_of_rosters_that_somebody_flooded_few_are_kept_in_memory(world: World) -> None:
    host, records = world.host("a"), [heavy(world, "b", number) for number in range(32)]
    with store.locked(host, "the flood's beginning, that no message has to bring"):
        store.merge_held(host, world.loaded("a"), records[:20])
    assert sum(map(len, world.loaded("a").roster.raws.values())) < store.REMEMBERED_BYTES
    for record in records[20:]:
        tell(world, "b", "a", record)
    world.loaded("a")
    gc.collect()
    flooded = [
        one
        for one in gc.get_objects()
        if isinstance(one, Roster)
        and one.mesh == world.loaded("a").mesh
        and sum(map(len, one.raws.values())) > store.REMEMBERED_BYTES
    ]
    assert 1 <= len(flooded) <= 2


def test_a_member_that_dawdles_and_has_always_more_to_tell_holds_no_pass_up(world: World) -> None:
    more = [f"{n:064x}" for n in range(300)]
    answers(world, "b", body={"digest": "0", "have": more}, time=None)
    world.net.delay("a", "b", 14.0)
    began = world.net.clock.monotonic()
    world.sync("a")
    assert world.net.clock.monotonic() - began < 120
