"""Every refusal of a token and of a join: its own reason, exit status 3, nothing changed (M2)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from ipaddress import IPv6Address
from pathlib import Path

import pytest

from keel.errors import Exit, KeelError, PeerError, Refused
from keel.mesh import admit, etcd, join, receive, store, up
from keel.mesh.invite import Claim, Phase
from keel.mesh.joinmsg import EtcdPart, JoinRequest, seal_request
from keel.mesh.keys import signing_pair
from keel.mesh.store import Node
from keel.mesh.token import Token, derive
from keel.ports import Host
from keel.types import Capability, NodeName, Nonce, Secret
from tests.fakes import FakeNode, public_of
from tests.flow.arranged import arranged
from tests.flow.world import SPEC, World

Disk = dict[str, bytes]

KEPT = ("mesh/pending-join/", "mesh/nonces")
"""What a refused join may leave: keys for the next try, and messages seen."""


def disk(node: FakeNode) -> Disk:
    """Every file of keel's state and of the operator's spec."""
    found: Disk = {}
    for top in ("var/lib/keel", "etc/keel", "etc/systemd", "etc/etcd"):
        for path in sorted((node.root / top).rglob("*")):
            name = str(path.relative_to(node.root))
            if path.is_file() and not any(f"var/lib/keel/{kept}" in name for kept in KEPT):
                found[name] = path.read_bytes()
    return found


@arranged
def one_invited(scratch: Path) -> World:
    """a founded a mesh and invited b, who has not answered yet."""
    made = World(scratch)
    for name in "abc":
        made.node(name)
    made.create("a")
    made.tokens["b"] = made.invite("a")
    return made


@pytest.fixture
def world(tmp_path: Path) -> World:
    return one_invited(tmp_path)


def refuse(world: World, joiner: str, token: Token, *, inviter: str = "a") -> Refused:
    """The refusal; neither side's state may differ from before."""
    nodes = [world.net.nodes[name] for name in (joiner, inviter)]
    before = [disk(node) for node in nodes]
    with pytest.raises(Refused) as caught:
        world.join(joiner, token)
    assert [disk(node) for node in nodes] == before
    assert caught.value.exit is Exit.REFUSED
    assert caught.value.remedy()
    return caught.value


# --- by what became of the invite


def _spent(world: World) -> None:
    world.join("c", world.tokens["b"])
    world.settle()


def _expired(world: World) -> None:
    world.net.clock.sleep(24 * 3600)


def _expired_and_tended(world: World) -> None:
    _expired(world)
    world.sync("a")


def _cancelled(world: World) -> None:
    admit.cancel(world.host("a"), world.spec("a"), world.tokens["b"].invite)


def _frozen(world: World) -> None:
    (state,) = store.load_invites(world.host("a"))
    store.save_invite(world.host("a"), dataclasses.replace(state, bad_macs=10))


def _claimed(world: World) -> None:
    """c got its answer, and its confirmation never came."""
    world.net.lose("request", source="c", path="/v1/hello", count=99)
    with pytest.raises(PeerError):
        world.join("c", world.tokens["b"])


def _name_taken(world: World) -> None:
    world.join("c", world.invite("a"))
    world.settle()
    world.net.nodes["b"].paths.spec.write_text(SPEC.format(mode="cloud_advanced", name="c"))


def _name_claimed(world: World) -> None:
    world.tokens["c"] = world.invite("a")
    world.net.lose("request", source="c", path="/v1/hello", count=99)
    with pytest.raises(PeerError):
        world.join("c", world.tokens["c"])
    world.net.nodes["b"].paths.spec.write_text(SPEC.format(mode="cloud_advanced", name="c"))


@pytest.mark.parametrize(
    ("arrange", "rule", "says"),
    [
        pytest.param(_spent, "join-spent", "used already, by node c", id="spent"),
        pytest.param(_expired, "join-expired", "expired at 2026-01-02", id="expired"),
        pytest.param(_expired_and_tended, "join-expired", "expired at", id="expired and tended"),
        pytest.param(_cancelled, "join-cancelled", "was cancelled", id="cancelled"),
        pytest.param(_frozen, "join-frozen", "ten bad MACs", id="frozen"),
        pytest.param(_claimed, "join-claimed", "claimed by node c", id="claimed by another"),
        pytest.param(_name_taken, "join-name", "another node is called c", id="name of a member"),
        pytest.param(_name_claimed, "join-name", "another node is called c", id="name claimed"),
    ],
)
def test_the_inviter_says_why_and_nothing_changes(
    world: World, arrange: Callable[[World], None], rule: str, says: str
) -> None:
    arrange(world)
    refusal = refuse(world, "b", world.tokens["b"])
    assert (refusal.rule, says in refusal.summary()) == (rule, True)


def test_who_discarded_its_join_is_told_that_the_claim_is_its_own_and_how_to_end_it(
    world: World,
) -> None:
    token = world.tokens["b"]
    world.net.lose("reply", path="/v1/join", count=99)
    with pytest.raises(PeerError):
        world.join("b", token)
    world.net.losses.clear()
    join.discard_pending(world.host("b"), world.spec("b"))
    refusal = refuse(world, "b", token)
    assert refusal.rule == "join-claimed"
    assert "a join that was begun here and discarded" in refusal.summary()
    end = f"keel mesh invite --cancel {token.invite}"
    assert f"`{end}`" in refusal.remedy()
    another = refuse(world, "b", world.invite("a"))
    assert another.rule == "join-name"
    assert f"claimed invite {token.invite} and has not confirmed" in another.summary()
    assert f"`{end}`" in another.remedy()


@pytest.mark.parametrize(
    "wrong_by",
    [
        pytest.param(timedelta(minutes=10), id="ten minutes ahead"),
        pytest.param(timedelta(minutes=-10), id="ten minutes behind"),
        pytest.param(
            datetime(1970, 1, 1, tzinfo=UTC) - datetime(2026, 1, 1, tzinfo=UTC), id="1970"
        ),
    ],
)
def test_a_wrong_clock_is_told_both_and_joins_once_it_is_right(
    world: World, wrong_by: timedelta
) -> None:
    clock = world.net.nodes["b"].clock
    clock.wrong_by = wrong_by
    refusal = refuse(world, "b", world.tokens["b"])
    assert refusal.rule == "join-clock"
    ours, theirs = world.net.clock.now(), world.net.clock.now() + wrong_by
    for moment in (ours, theirs):
        assert f"{moment:%Y-%m-%dT%H:%M}" in refusal.summary()
    (state,) = store.load_invites(world.host("a"))
    assert state.phase is Phase.UNUSED
    clock.wrong_by = timedelta()
    begun = keys_begun(world, "b")
    world.join("b", world.tokens["b"])
    assert world.net.nodes["b"].paths.signing_key.read_bytes() == begun


def test_a_temporary_peer_that_nothing_used_for_a_minute_is_made_anew(world: World) -> None:
    """Of a joiner whose clock went back WireGuard ignores every handshake, until it forgets it."""
    world.net.nodes["b"].clock.wrong_by = timedelta(minutes=10)
    refuse(world, "b", world.tokens["b"])
    (state,) = store.load_invites(world.host("a"))
    key = up.temporary_peer(world.loaded("a"), state).key
    (device,) = world.net.nodes["a"].wireguard.devices.values()
    for seconds, remembered in ((50, True), (15, False)):
        world.net.clock.sleep(seconds)
        world.sync("a")
        assert (device.peers[key].latest_handshake is not None) is remembered


def keys_begun(world: World, name: str) -> bytes:
    paths = world.net.nodes[name].paths
    return (paths.pending_join(world.tokens[name].mesh) / "signing.key").read_bytes()


# --- by what the joiner is already


def test_a_member_refuses_another_meshs_token_and_tells_the_way_out(world: World) -> None:
    world.create("c")
    foreign = world.invite("c")
    world.join("b", world.tokens["b"])
    refusal = refuse(world, "b", foreign, inviter="c")
    assert refusal.rule == "other-mesh"
    assert "keel mesh leave" in refusal.remedy()


def test_a_join_of_another_mesh_that_may_be_open_there_is_not_forgotten(world: World) -> None:
    world.create("c")
    foreign = world.invite("c")
    world.net.lose("reply", source="b", path="/v1/join", count=99)
    with pytest.raises(PeerError):
        world.join("b", world.tokens["b"])
    world.net.losses.clear()
    refusal = refuse(world, "b", foreign, inviter="c")
    assert refusal.rule == "pending-join"
    assert "--discard-pending" in refusal.remedy()
    with pytest.raises(Refused, match="was begun here"):
        world.create("b")
    joined = world.join("b", foreign, discard=True)
    assert joined.node.mesh == foreign.mesh


# --- by the wrong key: silence, with its causes


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda t: dataclasses.replace(t, secret=Secret(bytes(32))), id="secret"),
        pytest.param(
            lambda t: dataclasses.replace(t, wireguard=public_of(Secret(bytes(31) + b"\x01"))),
            id="inviter's WireGuard key",
        ),
        pytest.param(lambda t: dataclasses.replace(t, invite="00" * 16), id="invite id"),
    ],
)
def test_a_wrong_token_meets_silence_and_nothing_changes(
    world: World, spoil: Callable[[Token], Token]
) -> None:
    before = [disk(world.net.nodes[name]) for name in "ab"]
    with pytest.raises(PeerError) as caught:
        world.join("b", spoil(world.tokens["b"]))
    assert caught.value.reason == "no-answer"
    assert "one of three" in caught.value.remedy()
    assert [disk(world.net.nodes[name]) for name in "ab"] == before
    assert world.net.nodes["b"].wireguard.devices == {}


def test_a_token_that_was_used_long_ago_is_met_with_silence_and_the_hint_says_so(
    world: World,
) -> None:
    """Its invite is forgotten, and its temporary peer with it: also where the clocks only said that
    a day had passed."""
    world.join("c", world.tokens["b"])
    world.settle()
    for name in "abc":
        world.net.nodes[name].clock.wrong_by = timedelta(hours=25)
    world.sync("a")  # hears that the others' clocks say so, too
    world.sync("a")
    for name in "abc":
        world.net.nodes[name].clock.wrong_by = timedelta()
    with pytest.raises(PeerError) as caught:
        world.join("b", world.tokens["b"])
    assert caught.value.reason == "no-answer"
    assert "used or ended a day ago" in caught.value.remedy()


def test_an_inviter_whose_wireguard_alone_answers_is_silent_for_other_reasons(world: World) -> None:
    """The network between carries no full packets, for instance."""
    world.net.lose("reply", path="/v1/join", count=99)
    with pytest.raises(PeerError) as caught:
        world.join("b", world.tokens["b"])
    assert caught.value.reason == "no-answer"
    assert caught.value.remedy().startswith("WireGuard there answered")
    world.net.losses.clear()
    world.join("b", world.tokens["b"])
    assert world.agree("ab")


def test_an_answer_that_the_pinned_inviter_did_not_sign_is_not_believed(world: World) -> None:
    other = signing_pair(Secret(bytes(32))).public
    with pytest.raises(PeerError) as caught:
        world.join("b", dataclasses.replace(world.tokens["b"], inviter=other))
    assert caught.value.reason == "answer-signature"
    assert store.load(world.host("b")) is None


def test_ten_bad_macs_freeze_the_invite_and_are_all_that_changes(world: World) -> None:
    a = world.net.nodes["a"]
    before = disk(a)
    (state,) = store.load_invites(a.host)
    for _ in range(10):
        a.serve("/v1/join", state.address, _request(world, bad_mac=True))
    (frozen,) = store.load_invites(a.host)
    assert frozen == dataclasses.replace(state, bad_macs=10)
    changed = {name for name, data in disk(a).items() if before.get(name) != data}
    assert changed == {f"var/lib/keel/mesh/invites/{state.invite}.json"}
    assert refuse(world, "b", world.tokens["b"]).rule == "join-frozen"


def _request(world: World, *, bad_mac: bool) -> bytes:
    token = world.tokens["b"]
    keys = derive(
        token.secret,
        mesh=token.mesh,
        invite=token.invite,
        prefix=world.loaded("a").prefix,
    )
    pair = signing_pair(Secret(b"\x07" * 32))
    raw = seal_request(
        JoinRequest(
            mesh=token.mesh,
            invite=token.invite,
            nonce=Nonce("11" * 16),
            ed25519=pair.public,
            wireguard=public_of(Secret(b"\x08" * 32)),
            name=NodeName("x"),
            capability=Capability.NONE,
            time=world.net.clock.now(),
        ),
        keys,
        pair,
    )
    at = raw.index(bytes.fromhex("11" * 16)) + 16
    return raw[:at] + bytes([raw[at] ^ bad_mac]) + raw[at + 1 :]


# --- invites


def test_no_invite_where_no_endpoint_is_known(world: World) -> None:
    world.net.nodes["a"].machine.hosts = ()
    before = disk(world.net.nodes["a"])
    with pytest.raises(Refused) as caught:
        world.invite("a")
    assert caught.value.rule == "no-endpoint"
    assert disk(world.net.nodes["a"]) == before


def test_sixteen_are_open_at_most_and_the_first_still_redeems(world: World) -> None:
    for _ in range(15):
        world.invite("a")
    before = disk(world.net.nodes["a"])
    with pytest.raises(Refused) as caught:
        world.invite("a")
    assert (caught.value.rule, disk(world.net.nodes["a"])) == ("invite-too-many", before)
    world.join("b", world.tokens["b"])
    assert world.loaded("b").view.by_key(world.loaded("a").key) is not None
    world.invite("a")


def test_a_claimed_invite_that_is_cancelled_removes_its_claimant_for_good(world: World) -> None:
    world.net.lose("request", source="b", path="/v1/hello", count=99)
    with pytest.raises(PeerError):
        world.join("b", world.tokens["b"])
    _cancelled(world)
    world.settle()
    claimant = world.loaded("b").key
    assert claimant in world.loaded("a").view.removed
    assert world.loaded("b").address not in world.peers("a")
    world.net.losses.clear()
    with pytest.raises(KeelError) as caught:
        world.join("b", world.tokens["b"])
    assert getattr(caught.value, "rule", "") == "join-cancelled"
    again = world.invite("a")
    with pytest.raises(Refused) as caught:
        world.join("b", again)
    assert caught.value.rule == "join-key-removed"
    assert "keel mesh leave" in caught.value.remedy()
    world.leave("b")
    world.join("b", again)
    world.settle()
    assert sorted(m.display for m in world.loaded("a").view.members) == ["a", "b"]


def test_a_closed_invite_cannot_be_cancelled(world: World) -> None:
    world.join("b", world.tokens["b"])
    with pytest.raises(Refused) as caught:
        _cancelled(world)
    assert caught.value.rule == "invite-closed"


def test_of_two_joiners_at_once_one_wins_and_the_other_is_told_who(world: World) -> None:
    """c's request arrives while the inviter is answering b's."""
    a = world.net.nodes["a"]
    handler, told = a.handler, []

    def and_then_c(path: str, source: IPv6Address, body: bytes) -> object:
        answer = handler(path, source, body)
        if path == "/v1/join" and not told:
            told.append(None)
            with pytest.raises(Refused) as caught:
                world.join("c", world.tokens["b"])
            told[0] = caught.value
        return answer

    a.handler = and_then_c  # type: ignore[assignment]
    world.join("b", world.tokens["b"])
    assert told[0].rule == "join-claimed"
    assert "node b" in told[0].summary()
    assert store.load(world.host("c")) is None
    assert sorted(m.display for m in world.loaded("a").view.members) == ["a", "b"]


def test_an_invite_that_is_cancelled_while_it_is_redeemed_admits_nobody(tmp_path: Path) -> None:
    """The etcd part asks other members, with no lock held: the operator may be quicker."""
    world = World(tmp_path)
    for name in "ab":
        world.node(name)
    world.create("a")
    token = world.invite("a")
    host = world.host("a")

    def too_late(_host: Host, _node: Node, _claim: Claim) -> EtcdPart:
        admit.cancel(host, world.spec("a"), token.invite)
        return EtcdPart(note="granted")

    doors = dataclasses.replace(etcd.doors(), give_etcd_part=too_late)
    world.net.nodes["a"].handler = lambda path, source, body: receive.receive(
        host, world.spec("a"), doors, path, source, body
    )
    with pytest.raises(PeerError):
        world.join("b", token)
    assert store.load(world.host("b")) is None
    assert [member.name for member in world.loaded("a").view.members] == ["a"]
