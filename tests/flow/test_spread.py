"""The roster spreads, whoever is down, and nothing goes by absence (M5, M8); lost messages (M2)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from ipaddress import IPv6Address
from pathlib import Path

import pytest

from keel.errors import PeerError, Refused
from keel.mesh import admit, drafts, envelope, roster, store, trustflow, wire
from keel.mesh.envelope import Accepted, ChannelView, Serves
from keel.mesh.exchange import RosterAnswer, RosterAsk
from keel.mesh.invite import Phase
from keel.mesh.nonces import NonceLedger
from keel.mesh.records import SelfRecord
from keel.types import Nonce
from tests.flow.arranged import arranged
from tests.flow.world import World


@arranged
def three_members_and_one_outside(scratch: Path) -> World:
    """Four nodes, a, b and c of which are one mesh; d has no token yet."""
    made = World(scratch)
    for name in "abcd":
        made.node(name, mode="cloud")
    made.create("a")
    for name in "bc":
        made.tokens[name] = made.invite("a")
        made.join(name, made.tokens[name])
        made.settle()
    made.timers()
    return made


@pytest.fixture
def world(tmp_path: Path) -> World:
    return three_members_and_one_outside(tmp_path)


def names(world: World, name: str) -> list[str]:
    return sorted(member.display for member in world.loaded(name).view.members)


def test_what_came_since_a_node_was_read_stays_when_something_else_is_merged(world: World) -> None:
    """A message is answered with the node as it was before the lock was there."""
    host = world.host("a")
    stale = world.loaded("a")
    (nonce_b, nonce_c) = ("b" * 32, "c" * 32)
    made = [
        wire.encode(
            drafts.make_removal(
                stale.roster,
                stale.identity.signing,
                world.loaded(name).key,
                now=host.clock.now(),
                nonce=Nonce(nonce),
            )
        )
        for name, nonce in (("b", nonce_b), ("c", nonce_c))
    ]
    for raw in made:
        with store.locked(host, "a test"):
            store.merge_into(host, stale, (raw,))
    assert set(made) <= set(world.loaded("a").roster.raws.values())


# --- messages that go missing, come twice, or come late


@pytest.mark.parametrize("path", ["/v1/join", "/v1/hello", "/v1/roster"])
@pytest.mark.parametrize("what", ["request", "reply"])
def test_a_lost_message_costs_a_try_and_no_more(world: World, what: str, path: str) -> None:
    token = world.invite("a")
    world.net.lose(what, path=path)  # type: ignore[arg-type]
    world.join("d", token)
    world.settle()
    world.timers()
    (claim,) = [i.claim for i in store.load_invites(world.host("a")) if i.invite == token.invite]
    assert claim is not None
    assert claim.address == world.loaded("d").address
    assert names(world, "d") == list("abcd")
    assert world.agree("abcd")


@pytest.mark.parametrize("path", ["/v1/join", "/v1/hello", "/v1/roster"])
def test_a_message_that_arrives_twice_is_as_one(world: World, path: str) -> None:
    world.net.duplicates.add(path)
    world.join("d", world.invite("a"))
    world.settle()
    world.timers()
    assert names(world, "d") == list("abcd")
    assert world.agree("abcd")


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("/v1/join", "request"),
        ("/v1/join", "reply"),
        ("/v1/hello", "request"),
        ("/v1/hello", "reply"),
    ],
)
def test_a_cut_that_outlasts_the_command_is_mended_by_the_same_command(
    world: World, path: str, what: str
) -> None:
    token = world.invite("a")
    world.net.lose(what, source="d", path=path, count=999)  # type: ignore[arg-type]
    with pytest.raises(PeerError) as caught:
        world.join("d", token)
    assert caught.value.exit == 4
    begun = _seed(world, "d", token.mesh)
    world.net.losses.clear()
    world.join("d", token)
    world.settle()
    world.timers()
    assert world.net.nodes["d"].paths.signing_key.read_bytes() == begun
    assert world.agree("abcd")


def _seed(world: World, name: str, mesh: str) -> bytes:
    paths = world.net.nodes[name].paths
    pending = paths.pending_joins / mesh / "signing.key"
    return (pending if pending.exists() else paths.signing_key).read_bytes()


def test_an_unconfirmed_join_is_finished_by_the_timer(world: World) -> None:
    world.net.lose("request", source="d", path="/v1/hello", count=999)
    with pytest.raises(PeerError):
        world.join("d", world.invite("a"))
    world.net.losses.clear()
    world.timers()
    world.timers()
    assert not world.net.nodes["d"].paths.pending_joins.joinpath(world.loaded("d").mesh).exists()
    assert names(world, "b") == list("abcd")


@pytest.mark.parametrize("inviter", ["a", "b"])
def test_a_claim_that_lapsed_is_redeemed_anew_with_the_same_key(world: World, inviter: str) -> None:
    token = world.invite("a")
    world.net.lose("request", source="d", path="/v1/hello", count=999)
    with pytest.raises(PeerError):
        world.join("d", token)
    address = world.loaded("d").address
    assert address in world.peers("a")
    world.net.clock.sleep(24 * 3600)
    world.timers("a")
    world.net.losses.clear()
    assert address not in world.peers("a")
    assert names(world, "a") == ["a", "b", "c"]
    with pytest.raises(Refused) as caught:
        world.join("d", token)
    assert caught.value.rule == "join-expired"
    joined = world.join("d", world.invite(inviter))
    world.settle()
    world.timers()
    assert joined.node.address == address
    assert world.agree("abcd")
    assert names(world, "c") == list("abcd")


def test_a_member_whose_inviter_forgot_it_is_taken_back_with_the_same_address(
    world: World,
) -> None:
    """a comes back from an old copy of its disk, which does not know b."""
    address = world.loaded("b").address
    host = world.host("a")
    node = world.loaded("a")
    for record, entry in node.roster.entries.items():
        if b'"b"' in wire.decode(entry.raw, max_bytes=len(entry.raw)).payload or (
            entry.signer == world.loaded("b").key
        ):
            host.files.remove(host.paths.roster / record)
    world.up("a")
    assert names(world, "a") == ["a", "c"]
    joined = world.join("b", world.invite("a"))
    world.settle()
    world.timers()
    assert joined.node.address == address
    assert names(world, "a") == ["a", "b", "c"]
    assert world.agree("abc")


def test_a_token_of_its_own_mesh_costs_a_member_nothing(world: World) -> None:
    before = world.loaded("b").view
    token = world.invite("a")
    assert world.join("b", token).inviter.display == "a"
    assert world.loaded("b").view == before
    (state,) = [i for i in store.load_invites(world.host("a")) if i.invite == token.invite]
    assert state.phase is Phase.UNUSED


# --- spreading


@pytest.mark.parametrize("down", ["a", "b", "c"])
def test_news_spreads_whoever_is_down_and_reaches_the_one_later(world: World, down: str) -> None:
    inviter = "b" if down == "a" else "a"
    token = world.invite(inviter)
    world.net.nodes[down].power_off()
    world.join("d", token)
    world.settle()
    up = [name for name in "abcd" if name != down]
    world.timers(*up)
    assert world.agree(up)
    world.boot(down)
    world.settle()
    world.timers()
    assert world.agree("abcd")
    assert names(world, down) == list("abcd")
    for name in "abcd":
        others = {world.loaded(other).address for other in "abcd" if other != name}
        assert others <= world.peers(name)


def test_two_halves_go_on_and_become_one_again(world: World) -> None:
    world.net.partition("ad", "bc")
    world.join("d", world.invite("a"))
    world.trust("b", "c")
    world.timers()
    assert not world.agree("abcd")
    world.net.heal()
    world.timers()
    world.timers()
    assert world.agree("abcd")


# --- what others answer


def answers(world: World, name: str, make: Callable[[World, RosterAsk], RosterAnswer]) -> None:
    """The node answers rosters, properly signed, with what a liar would."""
    node = world.net.nodes[name]
    before = node.handler

    def handler(path: str, source: IPv6Address, body: bytes) -> object:
        if path != "/v1/roster":
            return before(path, source, body)
        me = world.loaded(name)
        checked = envelope.check_message(
            body,
            source=source,
            view=ChannelView(
                mesh=me.mesh,
                me=me.key,
                members={one.address: one.key for one in me.view.members},
                claims={},
            ),
            serves={"roster": Serves(body=RosterAsk, fresh=False)},
            ledger=NonceLedger(),
            now=world.net.clock.now(),
        )
        assert isinstance(checked, Accepted)
        said = make(world, checked.body)
        return 200, envelope.answer(
            checked, said, pair=me.identity.signing, now=world.net.clock.now()
        )

    node.handler = handler  # type: ignore[assignment]


def _nothing(world: World, ask: RosterAsk) -> RosterAnswer:
    return RosterAnswer(digest=ask.digest)


def _empty(world: World, ask: RosterAsk) -> RosterAnswer:
    return RosterAnswer(digest="0" * 32)


def _only_itself(world: World, ask: RosterAsk) -> RosterAnswer:
    node = world.loaded("c")
    own = [e for e in node.roster.entries.values() if e.signer == node.key]
    return RosterAnswer(
        digest="1" * 32, records=tuple(e.raw for e in own), have=tuple(e.record for e in own)
    )


def _older(world: World, ask: RosterAsk) -> RosterAnswer:
    """What it held before b's newest self record."""
    node = world.loaded("c")
    kept = [e for e in node.roster.entries.values() if not isinstance(e.body, SelfRecord)]
    return RosterAnswer(
        digest="2" * 32, records=tuple(e.raw for e in kept), have=tuple(e.record for e in kept)
    )


def _foreign(world: World, ask: RosterAsk) -> RosterAnswer:
    """Another mesh's records."""
    if store.load(world.host("d")) is None:
        world.create("d")
    other = world.loaded("d").roster
    return RosterAnswer(
        digest=roster.digest(other),
        records=(other.founding.raw, *roster.missing(other, ())),
        have=tuple(other.entries),
    )


def _forged(world: World, ask: RosterAsk) -> RosterAnswer:
    """c removes b, whom it did not admit, and spoils a's records."""
    node = world.loaded("c")
    removal = drafts.make_removal(
        node.roster,
        node.identity.signing,
        world.loaded("b").key,
        now=world.net.clock.now(),
        nonce=Nonce("22" * 16),
    )
    spoilt = [
        e.raw.replace(b'"payload":"e', b'"payload":"f', 1) for e in node.roster.entries.values()
    ]
    return RosterAnswer(digest="3" * 32, records=(wire.encode(removal), *spoilt))


def _nonsense(world: World, ask: RosterAsk) -> RosterAnswer:
    return RosterAnswer(digest="4" * 32, records=(b"", b"{}", b"\x00" * 1000))


@pytest.mark.parametrize(
    "lie", [_nothing, _empty, _only_itself, _older, _foreign, _forged, _nonsense]
)
def test_no_answer_removes_anybody(
    world: World, lie: Callable[[World, RosterAsk], RosterAnswer]
) -> None:
    answers(world, "c", lie)
    before = {name: (names(world, name), world.peers(name)) for name in "ab"}
    for _ in range(2):
        world.timers("a", "b")
    assert {name: (names(world, name), world.peers(name)) for name in "ab"} == before


# --- leaving


@pytest.mark.parametrize("away", [None, "c"])
def test_a_member_that_left_is_gone_from_every_other(world: World, away: str | None) -> None:
    address, mesh = world.loaded("b").address, world.loaded("b").mesh
    if away is not None:
        world.net.nodes[away].power_off()
    left = world.leave("b")
    assert left.not_told == (() if away is None else (away,))
    world.settle()
    if away is not None:
        world.boot(away)
    world.timers("a", "c")
    for name in "ac":
        assert names(world, name) == ["a", "c"]
        assert address not in world.peers(name)
    assert world.net.nodes["b"].wireguard.devices == {}
    assert list(world.net.nodes["b"].paths.left.glob(f"{mesh}-*/mesh/signing.key"))
    world.join("b", world.invite("a"))
    world.settle()
    world.timers()
    assert names(world, "c") == ["a", "b", "c"]
    assert world.loaded("b").address != address


def test_the_founder_may_leave_and_the_mesh_goes_on(world: World) -> None:
    world.leave("a")
    world.settle()
    world.timers("b", "c")
    assert names(world, "b") == names(world, "c") == ["b", "c"]
    world.join("d", world.invite("b"))
    world.settle()
    world.timers("b", "c", "d")
    assert names(world, "c") == ["b", "c", "d"]


# --- trust


def test_trust_is_told_to_all_and_dropped_again(world: World) -> None:
    def origin() -> dict[str, str]:
        return {name: of for name, _, of in trustflow.listing(world.host("b"))}

    assert origin() == {"a": "joined", "c": "none"}
    world.trust("b", "c")
    world.trust("b", "c")
    world.timers()
    assert origin() == {"a": "joined", "c": "operator"}
    b, c = world.loaded("b").key, world.loaded("c").key
    for name in "abc":
        told = world.loaded(name).view.by_key(b)
        assert told is not None
        assert told.roots == (c,)
    trustflow.drop_root(world.host("b"), world.spec("b"), "c")
    trustflow.drop_root(world.host("b"), world.spec("b"), "a")
    world.timers()
    assert origin() == {"a": "none", "c": "none"}
    told = world.loaded("a").view.by_key(b)
    assert told is not None
    assert told.roots == ()
    assert names(world, "b") == ["a", "b", "c"]


@pytest.mark.parametrize(("whom", "rule"), [("b", "trust-self"), ("nobody", "member-unknown")])
def test_trust_refuses_itself_and_strangers(world: World, whom: str, rule: str) -> None:
    with pytest.raises(Refused) as caught:
        world.trust("b", whom)
    assert caught.value.rule == rule


def test_an_invite_of_an_hour_lives_an_hour(world: World) -> None:
    token = world.invite("a", life=timedelta(hours=1))
    world.net.clock.sleep(3601)
    with pytest.raises(Refused) as caught:
        world.join("d", token)
    assert caught.value.rule == "join-expired"
    world.net.clock.sleep(24 * 3600)
    world.timers("a")
    assert store.load_invites(world.host("a")) == ()
    with pytest.raises(PeerError, match="no answer"):
        world.join("d", token)


def test_waiting_for_an_invite_ends_with_its_redemption(world: World) -> None:
    from keel.ports import Deadline

    made = world.make_invite("a")
    world.net.clock.after(5, lambda: world.join("d", world.tokens["d"]))
    from keel.mesh.token import parse_token

    world.tokens["d"] = parse_token(made.token.reveal().decode())
    host = world.host("a")
    deadline = Deadline.after(host.clock, 60)
    assert admit.wait_until_spent(host, made.state.invite, deadline).phase is Phase.SPENT
