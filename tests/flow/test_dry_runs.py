"""`--dry-run` of the commands of a mesh: it says what the command does, and does nothing."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from keel import codec
from keel.mesh import alerting, alerts, store
from keel.mesh.token import Token, encode_token
from keel.mesh.trust import with_block
from keel.mesh.warnings import Severity
from keel.mesh.window import Stage, Window
from keel.ports import WgPeer
from keel.types import SigningKey, WgKey
from keel.unitnames import CHANNEL_SOCKET
from tests.cli.test_manual import VERBS
from tests.flow.test_alerting import CHANNELS, two_with_alert_channels
from tests.flow.test_remove_cli import typed
from tests.flow.test_window import edit, mesh_of, open_removal, open_reset, three_members
from tests.flow.world import World

Steps = list[tuple[str, str]]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return three_members(tmp_path)


def disks(world: World) -> dict[Path, bytes]:
    return {
        path: path.read_bytes()
        for node in world.net.nodes.values()
        for path in node.root.rglob("*")
        if path.is_file()
    }


@contextmanager
def nothing_happens(world: World) -> Iterator[None]:
    """No file of any node is another, no machine was touched, no message left."""
    before = disks(world), done(world)
    yield
    assert (disks(world), done(world)) == before


def done(world: World) -> tuple[int, int, list[list[str]]]:
    effects = [list(node.effects.done) for node in world.net.nodes.values()]
    return len(world.kicks), len(world.net.exchanges), effects


def shown(world: World, name: str, line: str) -> Steps:
    """The steps that a dry run prints, as text and as JSON, and that it does nothing."""
    with nothing_happens(world):
        status, out, err = typed(world, name, f"{line} --dry-run")
        assert (status, err) == (0, [])
        document: dict[str, Any] = json.loads(typed(world, name, f"{line} --dry-run --json")[1])
    assert document["schema"] == "keel.plan/1"
    found = [(step["action"], step["subject"]) for step in document["steps"]]
    lines = [f"{step['action']} {step['subject']}: {step['why']}" for step in document["steps"]]
    assert out.splitlines() == (lines or ["nothing to do"])
    return found


def refused_alike(world: World, name: str, line: str) -> str:
    """The rule by which both the dry run and the command refuse, with the same words."""
    with nothing_happens(world):
        dry = typed(world, name, f"{line} --dry-run")
    assert typed(world, name, line) == dry
    rule: str = json.loads(typed(world, name, f"{line} --dry-run --json")[1])["rule"]
    return rule


def test_trust_add_and_drop_show_the_root_and_the_self_record(world: World) -> None:
    add, drop = "mesh trust add --root b", "mesh trust drop --root b"
    assert shown(world, "a", add) == [("add-root", "b"), ("sign-self", "this node")]
    assert shown(world, "a", drop) == []
    assert typed(world, "a", add)[:2] == (0, "member/b trusted")
    assert shown(world, "a", add) == []
    assert typed(world, "a", add)[:2] == (0, "already so")
    assert shown(world, "a", drop) == [("drop-root", "b"), ("sign-self", "this node")]
    # the inviter's root is no operator's yet, so the others do not hear that it goes
    assert shown(world, "b", "mesh trust drop --root a") == [("drop-root", "a")]
    assert shown(world, "b", "mesh trust add --root a")[0] == ("add-root", "a")


def test_trust_add_shows_that_a_block_is_lifted(world: World) -> None:
    host, node = world.host("a"), world.loaded("a")
    blocked = with_block(node.trust, world.loaded("b").key, why="", now=host.clock.now())
    store.save_trust(host, blocked)
    line = "mesh trust add --root b"
    whole = [("lift-block", "b"), ("add-root", "b"), ("sign-self", "this node")]
    assert shown(world, "a", line) == whole
    assert typed(world, "a", line)[:2] == (0, "member/b trusted")
    assert len(world.kicks) == 1  # of the sync that lets it in
    world.settle()
    trusting = world.loaded("a").trust
    again = with_block(trusting, world.loaded("b").key, why="", now=host.clock.now())
    store.save_trust(host, again)
    assert shown(world, "a", line) == [("lift-block", "b")]


def test_trust_is_refused_alike(world: World) -> None:
    assert refused_alike(world, "a", "mesh trust add --root a") == "trust-self"
    assert refused_alike(world, "a", "mesh trust drop --root x") == "member-unknown"
    world.open_window("a", "c")
    for verb in ("add", "drop"):
        assert refused_alike(world, "a", f"mesh trust {verb} --root b") == "window-open"


def test_an_invite_is_made_by_the_command_alone(world: World) -> None:
    line = "mesh invite --life 30m"
    for dry in (line, f"{line} --wait"):
        assert shown(world, "a", dry) == [
            ("make-invite", "one node"),
            ("add-peer", "who has the token"),
        ]
    ends = typed(world, "a", f"{line} --dry-run")[1].splitlines()[0].rpartition(" ")[2]
    assert typed(world, "a", line)[2][0].endswith(f"is good for one node until {ends}")
    with nothing_happens(world):  # it changes nothing anyway
        listed = typed(world, "a", "mesh invite --list --dry-run")
        assert listed == typed(world, "a", "mesh invite --list")


def test_an_invite_is_refused_alike(world: World) -> None:
    world.node("x", mode="cloud")
    assert refused_alike(world, "x", "mesh invite") == "not-in-mesh"
    assert refused_alike(world, "a", "mesh invite --life 25h") == "invite-life"
    for _ in range(16):
        world.invite("b")
    assert refused_alike(world, "b", "mesh invite") == "invite-too-many"
    world.net.nodes["b"].machine.hosts = ()
    assert refused_alike(world, "b", "mesh invite") == "no-endpoint"
    world.open_window("a", "c")
    assert refused_alike(world, "a", "mesh invite") == "window-open"


def test_a_cancelled_invite_takes_its_claimant_along(world: World) -> None:
    token = world.invite("a")
    line = f"mesh invite --cancel {token.invite[:8]}"
    assert shown(world, "a", line) == [("cancel-invite", token.invite)]
    world.node("d", mode="cloud")
    joiner = world.net.nodes["d"]
    joiner.effects.crash_on = lambda text: text.startswith("post") and "hello" in text
    assert joiner.dies(lambda: world.join("d", token))
    assert shown(world, "a", line) == [
        ("cancel-invite", token.invite),
        ("sign-removal", "d"),
        ("tell-members", "b, c"),
    ]
    joiner.new_life()
    world.net.cut("a", "d")
    assert typed(world, "a", line)[0] == 0
    assert set(world.loaded("a").view.removed) == {world.loaded("d").key}
    assert refused_alike(world, "a", line) == "invite-closed"
    assert refused_alike(world, "a", "mesh invite --cancel ffff") == "invite-unknown"


def test_a_cancelled_invite_of_one_that_is_alone_tells_nobody(tmp_path: Path) -> None:
    world = World(tmp_path)
    mesh_of(world, "a")
    token = world.invite("a")
    world.node("d", mode="cloud")
    joiner = world.net.nodes["d"]
    joiner.effects.crash_on = lambda text: text.startswith("post") and "hello" in text
    assert joiner.dies(lambda: world.join("d", token))
    found = shown(world, "a", f"mesh invite --cancel {token.invite}")
    assert found == [("cancel-invite", token.invite), ("sign-removal", "d")]
    world.open_window("a", "d")
    assert refused_alike(world, "a", f"mesh invite --cancel {token.invite}") == "window-open"


def test_a_creation_is_refused_alike(tmp_path: Path) -> None:
    world = World(tmp_path)
    node = world.node("a", mode="cloud")
    line = "mesh create"
    assert shown(world, "a", line) == [
        ("make-keys", "this node"),
        ("found-mesh", "genesis"),
        ("raise", "interface"),
    ]
    node.wireguard.taken.add("keel0")
    with nothing_happens(world):
        dry = typed(world, "a", f"{line} --dry-run")
    assert dry[0] == 3
    node.wireguard.taken.clear()
    edit(world, "a", "node: {name: a}\n", "")
    node.machine.name = "_"
    assert refused_alike(world, "a", line) == "no-name"


REDEEMS = ["first-contact", "redeem"]
ENDS = ["become-member", "raise", "confirm"]


def token_file(world: World, token: Token, name: str = "d") -> str:
    """The command line that joins with it."""
    path = world.net.nodes[name].root / "token"
    path.write_text(encode_token(token))
    return f"mesh join --token-file {path}"


def actions(world: World, name: str, line: str) -> list[str]:
    return [action for action, _ in shown(world, name, line)]


def dies_before(world: World, token: Token, what: str) -> None:
    """d's join is killed just before this effect."""
    node = world.net.nodes["d"]
    node.effects.crash_on = lambda text: what in text
    assert node.dies(lambda: world.join("d", token))
    node.new_life()


def test_a_join_shows_its_steps_and_asks_nobody(world: World) -> None:
    world.node("d", mode="cloud")
    token = world.invite("a")
    line = token_file(world, token)
    assert shown(world, "d", line) == [
        ("make-keys", "this node"),
        ("first-contact", str(token.endpoints[0])),
        ("redeem", f"invite {token.invite}"),
        ("become-member", f"mesh {token.mesh}"),
        ("raise", "interface"),
        ("confirm", "the inviter"),
    ]
    assert typed(world, "d", line)[0] == 0  # the invite is unused
    assert shown(world, "d", line) == [("raise", "interface"), ("say-hello", "a")]
    text = typed(world, "d", f"{line} --dry-run")[1]
    assert "only if it knows nothing of that is the invite used" in text
    assert typed(world, "d", line)[:2] == (0, "already so")


def test_a_capable_node_s_join_shows_what_it_does_for_etcd(world: World) -> None:
    world.node("d")
    line = token_file(world, replace(world.invite("a"), endpoints=()))
    found = shown(world, "d", line)
    steps = ["make-keys", "make-request", *REDEEMS, *ENDS, "settle"]
    assert [action for action, _ in found] == steps
    assert ("first-contact", "the inviter") in found


def test_a_join_that_was_cut_off_shows_what_is_left(world: World) -> None:
    world.node("d", mode="cloud")
    token, other = world.invite("a"), world.invite("b")
    line = token_file(world, token)
    dies_before(world, token, "/v1/join")
    assert actions(world, "d", line) == [*REDEEMS, *ENDS]
    dies_before(world, token, "mesh/.genesis")
    assert actions(world, "d", line) == ENDS
    assert actions(world, "d", token_file(world, other)) == [*REDEEMS, *ENDS]
    dies_before(world, token, "/v1/hello")
    line = token_file(world, token)
    assert shown(world, "d", line) == [("raise", "interface"), ("confirm", "a")]
    # another invite than the one that is pending is redeemed, with the same keys
    assert actions(world, "d", token_file(world, other)) == [*REDEEMS, *ENDS]
    line = token_file(world, token)
    assert typed(world, "d", line)[:2] == (0, f"member/{world.loaded('d').address} joined")


def test_a_member_whose_inviter_it_does_not_know_redeems_with_its_own_keys(world: World) -> None:
    stranger = replace(world.invite("a"), inviter=SigningKey("0" * 64))
    assert actions(world, "b", token_file(world, stranger, "b")) == [*REDEEMS, *ENDS]


def test_a_join_of_another_mesh_is_given_up_by_the_command_alone(world: World) -> None:
    for name in "dx":
        world.node(name, mode="cloud")
    world.create("x")
    token, other = world.invite("a"), world.invite("x")
    assert shown(world, "d", "mesh join --discard-pending") == []
    dies_before(world, token, "/v1/join")
    line = token_file(world, other)
    assert refused_alike(world, "d", line) == "pending-join"
    found = shown(world, "d", f"{line} --discard-pending")
    assert found[:2] == [("discard-pending", token.mesh), ("make-keys", "this node")]
    assert shown(world, "d", "mesh join --discard-pending") == [
        ("lower", "keel0"),
        ("discard-pending", token.mesh),
    ]
    assert typed(world, "d", "mesh join --discard-pending")[0] == 0
    assert world.host("d").files.names(world.host("d").paths.pending_joins) == ()


def test_a_member_gives_a_join_up_and_keeps_its_interface(world: World) -> None:
    world.node("d", mode="cloud")
    token = world.invite("a")
    dies_before(world, token, "/v1/hello")
    found = shown(world, "d", "mesh join --discard-pending")
    assert found == [("discard-pending", token.mesh)]


def test_a_join_is_refused_alike(world: World) -> None:
    for name in "dx":
        world.node(name, mode="cloud")
    world.create("x")
    token = world.invite("a")
    line = token_file(world, token)
    world.net.nodes["d"].wireguard.taken.add("keel0")
    with nothing_happens(world):
        dry = typed(world, "d", f"{line} --dry-run --json")
    assert (dry[0], json.loads(dry[1])["rule"]) == (3, "interface-taken")
    world.net.nodes["d"].wireguard.taken.clear()
    edit(world, "d", "node: {name: d}\n", "")
    world.net.nodes["d"].machine.name = "_"
    assert refused_alike(world, "d", line) == "no-name"
    assert refused_alike(world, "x", token_file(world, token, "x")) == "other-mesh"
    assert refused_alike(world, "a", token_file(world, token, "a")) == "join-own-invite"
    (world.net.nodes["d"].root / "token").write_text("keel1.AAAA")
    assert refused_alike(world, "d", line) == "token-damaged"
    world.open_window("b", "c")
    assert refused_alike(world, "b", token_file(world, token, "b")) == "window-open"


@pytest.mark.parametrize(
    ("hours", "rule"),
    [
        pytest.param(24.1, "join-expired", id="expired"),
        pytest.param(24.01, "", id="expired by a little, which this clock may be ahead"),
        pytest.param(-0.1, "join-clock", id="made later than now"),
        pytest.param(-0.01, "", id="made a little later, which this clock may be behind"),
    ],
)
def test_a_clock_by_which_every_inviter_refuses_is_told_before_one_is_asked(
    world: World, hours: float, rule: str
) -> None:
    world.node("d", mode="cloud")
    line = token_file(world, world.invite("a"))
    world.net.nodes["d"].clock.wrong_by = timedelta(hours=hours)
    if not rule:
        assert actions(world, "d", line) == ["make-keys", *REDEEMS, *ENDS]
        return
    with nothing_happens(world):
        dry = typed(world, "d", f"{line} --dry-run --json")
    real = typed(world, "d", f"{line} --json")
    assert (dry[0], json.loads(dry[1])["rule"]) == (real[0], rule)
    assert json.loads(real[1])["rule"] in ("join-clock", rule)


def test_a_confirmation_shows_what_follows_from_a_removal(world: World) -> None:
    open_removal(world)
    whole = [("confirm", "the removal of b"), ("sign-removal", "b"), ("tell-members", "b")]
    assert shown(world, "a", "network confirm") == whole
    node = world.net.nodes["a"]
    node.effects.crash_on = lambda text: "mesh/roster" in text
    assert node.dies(lambda: world.confirm("a"))
    node.new_life()
    assert shown(world, "a", "network confirm") == whole[1:]
    assert shown(world, "a", "mesh remove b") == whole[1:]  # which goes on just so
    assert refused_alike(world, "a", "network undo") == "window-confirmed"
    node.effects.crash_on = lambda text: text.endswith("unlink var/lib/keel/mesh/window.json")
    assert node.dies(lambda: world.confirm("a"))
    node.new_life()
    assert shown(world, "a", "network confirm") == whole[2:]
    assert typed(world, "a", "network confirm")[:2] == (0, "member/b removed")
    assert refused_alike(world, "a", "network confirm") == "window-none"
    assert shown(world, "a", "network undo") == []


def test_a_right_that_was_lost_meanwhile_leaves_a_block(world: World) -> None:
    armed = replace(window_of_b(world), stage=Stage.CONFIRMED)
    store.save_window(world.host("b"), armed)
    assert shown(world, "b", "network confirm") == [("block-here", "c")]
    assert typed(world, "b", "network confirm")[:2] == (0, "member/c blocked here")


def window_of_b(world: World) -> Window:
    """One of b's, which never had the right that it says."""
    world.open_window("b", "c")
    found = store.load_window(world.host("b"))
    assert found is not None
    return found


def test_a_confirmation_shows_the_settings_that_stay_and_an_undoing_what_goes(
    world: World,
) -> None:
    open_reset(world)
    what = "the change of port and mtu"
    assert shown(world, "a", "network confirm") == [
        ("confirm", what),
        ("keep-settings", "port, mtu"),
    ]
    assert shown(world, "a", "network undo") == [("undo-change", what)]
    found = store.load_window(world.host("a"))
    assert found is not None
    store.save_window(world.host("a"), replace(found, stage=Stage.UNDOING))
    assert refused_alike(world, "a", "network confirm") == "window-undone"
    assert typed(world, "a", "network undo")[:2] == (0, f"{what} undone")


def test_a_change_whose_record_is_torn_is_shown_to_be_undone(world: World) -> None:
    world.net.nodes["a"].paths.window.write_bytes(b"{")
    line, torn = "network undo", "a change whose record cannot be read"
    assert shown(world, "a", line) == [("undo-change", torn)]
    assert typed(world, "a", line)[:2] == (0, f"{torn} undone")


def test_a_clock_is_accepted_by_the_command_alone(tmp_path: Path) -> None:
    world = World(tmp_path)
    mesh_of(world, "a")
    line = "mesh doctor --accept-clock"
    now = codec.format_time(world.host("a").clock.now().replace(microsecond=0))
    assert shown(world, "a", line) == [("accept-clock", now)]
    assert typed(world, "a", line)[1].startswith(f"clock {now} accepted")
    with nothing_happens(world):
        assert typed(world, "a", "mesh doctor --dry-run") == typed(world, "a", "mesh doctor")


def test_a_clock_that_members_contradict_is_refused_alike(world: World) -> None:
    world.net.nodes["b"].clock.wrong_by = timedelta(hours=1)
    world.sync("b")
    assert refused_alike(world, "b", "mesh doctor --accept-clock") == "clock-contradicted"


def test_alerts_show_who_would_be_told_what(tmp_path: Path) -> None:
    world = two_with_alert_channels(tmp_path)
    line, trial = "mesh etcd alert", "this is a trial; nothing is wrong"
    names = [alerting.name_of(one) for one in world.spec("a").monitor.channels]
    assert shown(world, "a", line) == []
    assert shown(world, "a", f"{line} --test") == [("tell", name) for name in names]
    assert trial in typed(world, "a", f"{line} --test --dry-run")[1]
    broken = alerts.Alert(
        code="etcd-failed",
        subject="etcd",
        severity=Severity.CRITICAL,
        text="broken",
        remedy="nothing",
        since=world.host("a").clock.now() - timedelta(hours=1),
    )
    world.host("a").files.write(
        world.host("a").paths.alerts, codec.dumps(alerts.Alerts(open=(broken,)))
    )
    assert shown(world, "a", line) == [("tell", name) for name in names]
    assert typed(world, "a", line)[1].splitlines() == [f"told {name}" for name in names]
    assert shown(world, "a", line) == []


def test_a_node_in_no_mesh_tells_nobody(tmp_path: Path) -> None:
    world = World(tmp_path)
    spec = world.node("a").paths.spec
    spec.write_text(spec.read_text() + CHANNELS)
    assert shown(world, "a", "mesh etcd alert") == []
    assert refused_alike(world, "a", "mesh etcd alert --test") == "not-in-mesh"


FIREWALL = ("load-firewall", "inet keel")
EXCHANGE = ("exchange-records", "b, c")
UP, SYNC = "mesh up", "mesh sync"


def invites(world: World) -> list[str]:
    """The peers of a's invites, by what they are called; those of the joins are used."""
    return [f"invite {one.invite}" for one in store.load_invites(world.host("a"))]


def test_up_and_sync_have_little_to_do_where_all_is_well(world: World) -> None:
    assert shown(world, "a", UP) == [FIREWALL]
    assert shown(world, "a", SYNC) == [FIREWALL, EXCHANGE]


def test_up_shows_what_a_boot_has_to_raise(world: World) -> None:
    node = world.net.nodes["a"]
    node.power_off()
    node.power_on()
    used = [("set-peer", one) for one in invites(world)]
    peers = [("set-peer", "b"), ("set-peer", "c")]
    found = shown(world, "a", UP)
    assert found[:3] == [("ask-first", "this node"), ("raise", "keel0"), FIREWALL]
    assert sorted(found[3:]) == sorted([*used, *peers])
    assert "raise keel0: it is not there" in typed(world, "a", f"{UP} --dry-run")[1].splitlines()
    listens = ("start", CHANNEL_SOCKET)
    found = shown(world, "a", SYNC)
    assert found[:2] == [("raise", "keel0"), FIREWALL]
    assert sorted(found[2:6]) == sorted([*used, *peers])
    assert found[6:] == [listens, EXCHANGE]
    assert typed(world, "a", UP)[0] == 0
    assert shown(world, "a", UP) == [FIREWALL]
    assert shown(world, "a", SYNC) == [FIREWALL, listens, EXCHANGE]


def test_up_shows_what_was_changed_by_hand(world: World) -> None:
    node = world.net.nodes["a"]
    device = node.wireguard.devices["keel0"]
    b, stranger = world.loaded("b"), WgKey(base64.b64encode(bytes(32)).decode())
    del device.peers[b.identity.wireguard.public]
    node.wireguard.set_peer("keel0", WgPeer(key=stranger, allowed=b.address))
    device.port, device.mtu = 1, 1500
    node.paths.channel_drop_in.unlink()
    node.move(IPv4Address("192.0.2.200"))
    changed = [
        ("raise", "keel0"),
        FIREWALL,
        ("remove-peer", stranger),
        ("set-peer", "b"),
        ("write-channel-address", world.loaded("a").address.compressed),
    ]
    assert shown(world, "a", UP) == [*changed, ("sign-self", "this node")]
    assert shown(world, "a", SYNC) == [("sign-self", "this node"), *changed, EXCHANGE]
    out = typed(world, "a", f"{UP} --dry-run")[1].splitlines()
    assert out[0] == "raise keel0: not as the state says: port, MTU"
    assert typed(world, "a", UP)[0] == 0
    assert shown(world, "a", UP) == [FIREWALL]


def test_up_shows_that_a_capable_node_bounds_tcp(world: World) -> None:
    world.make_capable("b")
    bound = ("bound-tcp", "this host")
    assert shown(world, "b", UP) == [FIREWALL, bound, ("sign-self", "this node")]
    assert typed(world, "b", UP)[0] == 0
    assert shown(world, "b", UP) == [FIREWALL]
    world.net.nodes["b"].machine.unbound_tcp()
    edit(world, "b", "network:", "network:\n  tcp_bound: off")
    assert shown(world, "b", UP) == [FIREWALL]


def test_up_names_invites_and_claimants(world: World) -> None:
    world.node("d", mode="cloud")
    dies_before(world, world.invite("a"), "/v1/hello")
    world.net.nodes["a"].wireguard.devices["keel0"].peers.clear()
    found = shown(world, "a", UP)
    assert {name for _, name in found[1:]} == {*"bcd", *invites(world)}


@pytest.mark.parametrize("line", [UP, SYNC])
def test_a_change_that_nobody_confirmed_is_shown_to_be_undone_first(
    world: World, line: str
) -> None:
    world.open_window("a", "b")  # its timer is gone
    undone = [("undo-change", "the removal of b"), ("raise", "interface")]
    assert shown(world, "a", line) == undone
    world.net.nodes["a"].paths.window.write_bytes(b"{")
    torn = ("undo-change", "a change whose record cannot be read")
    assert shown(world, "a", line) == [torn, undone[1]]
    assert typed(world, "a", line)[0] == 0
    assert not store.window_is_open(world.host("a"))


def test_a_sync_goes_on_with_what_was_confirmed_and_leaves_what_waits(world: World) -> None:
    open_removal(world)
    assert shown(world, "a", SYNC) == [FIREWALL, ("exchange-records", "c")]
    found = store.load_window(world.host("a"))
    assert found is not None
    store.save_window(world.host("a"), replace(found, stage=Stage.CONFIRMED))
    going_on = [("sign-removal", "b"), ("tell-members", "b")]
    assert shown(world, "a", SYNC) == [*going_on, FIREWALL, ("exchange-records", "c")]


def test_a_sync_shows_which_invites_end_and_which_are_forgotten(world: World) -> None:
    token = world.invite("a", life=timedelta(minutes=1))
    world.net.clock.sleep(61)
    assert ("end-invite", token.invite) in shown(world, "a", SYNC)
    world.sync("a")
    assert "end-invite" not in actions(world, "a", SYNC)
    world.net.clock.sleep(86400)
    assert ("forget-invite", token.invite) in shown(world, "a", SYNC)
    world.sync("a")
    assert store.load_invites(world.host("a")) == ()


def test_a_sync_shows_the_peers_that_are_made_anew(world: World) -> None:
    world.node("d", mode="cloud")
    dies_before(world, world.invite("a"), "/v1/hello")
    world.net.clock.sleep(61)
    renewed = [("renew-peer", one) for one in invites(world)]
    assert shown(world, "a", SYNC) == [*renewed, FIREWALL, EXCHANGE]
    world.net.nodes["b"].power_off()
    world.sync("a")
    world.net.clock.sleep(200)
    world.sync("a")
    assert ("renew-peer", "b") in shown(world, "a", SYNC)


def test_a_sync_shows_that_it_confirms_a_join_that_was_begun(world: World) -> None:
    world.node("d", mode="cloud")
    dies_before(world, world.invite("a"), "/v1/hello")
    found = shown(world, "d", SYNC)
    assert found[-2:] == [("confirm", "the inviter"), ("exchange-records", "a, b, c")]


def test_a_sync_of_one_that_is_alone_asks_nobody(tmp_path: Path) -> None:
    world = World(tmp_path)
    mesh_of(world, "a")
    assert shown(world, "a", SYNC) == [FIREWALL]


@pytest.mark.parametrize("line", [UP, SYNC])
def test_where_no_mesh_is_both_are_refused_alike(tmp_path: Path, line: str) -> None:
    world = World(tmp_path)
    world.node("a")
    assert refused_alike(world, "a", line) == "not-in-mesh"


ONLY_LOOK = {
    "keel diff",
    "keel mesh etcd env",
    "keel mesh etcd status",
    "keel mesh status",
    "keel mesh trust list",
    "keel spec check",
    "keel spec show",
}
A_PASS = {"keel mesh etcd tend"}
"""Each of its duties asks the others and acts on their answers before the next one looks."""


def test_every_command_that_changes_something_has_a_dry_run() -> None:
    without = {words for words, verb in VERBS if not verb.changes}
    assert without == ONLY_LOOK | A_PASS
