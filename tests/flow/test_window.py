"""The network window on whole nodes: armed, confirmed, undone, whatever dies in between (M10)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pytest

from keel.errors import KeelError, ProcFailed, Refused
from keel.mesh import admit, leave, netwindow, remove, store, trustflow
from keel.mesh.removal import Mode
from keel.mesh.window import Stage, settings_of
from keel.outcome import Done, Incomplete
from keel.spec import apply
from tests.fakes.clock import START
from tests.flow.arranged import arranged
from tests.flow.world import World


def mesh_of(world: World, names: str) -> None:
    for name in names:
        world.node(name, mode="cloud")
    world.create(names[0])
    for name in names[1:]:
        world.join(name, world.invite(names[0]))
        world.settle()
    world.timers(seconds=1)


@arranged
def three_members(scratch: Path) -> World:
    made = World(scratch)
    mesh_of(made, "abc")
    return made


@pytest.fixture
def world(tmp_path: Path) -> World:
    return three_members(tmp_path)


def edit(world: World, name: str, old: str, new: str) -> None:
    spec = world.net.nodes[name].paths.spec
    assert old in spec.read_text()
    spec.write_text(spec.read_text().replace(old, new))


def seen(world: World, name: str) -> tuple[int, int, set[IPv6Address]]:
    """Port, MTU and peers of the interface."""
    (device,) = world.net.nodes[name].wireguard.devices.values()
    return device.port, device.mtu, world.peers(name)


def said(world: World, name: str) -> list[tuple[object, ...]]:
    """The members by this node's roster, with their endpoints."""
    return [(m.name, m.address, m.endpoints) for m in world.loaded(name).view.members]


def over_ssh(world: World, name: str, *far_ends: IPv4Address | IPv6Address) -> None:
    world.net.nodes[name].machine.sessions = far_ends


def open_removal(world: World) -> None:
    """a removes b over an SSH session from b: only the operator may confirm."""
    over_ssh(world, "a", world.loaded("b").address)
    assert isinstance(world.remove("a", "b"), Incomplete)


def open_reset(world: World) -> None:
    over_ssh(world, "a", world.loaded("b").address)
    edit(world, "a", "port: 51820", "port: 51999, mtu: 1300")
    assert apply.apply(world.host("a")).value.waiting is not None


OPEN = {"removal": open_removal, "settings": open_reset}


def killed(world: World) -> None:
    world.net.nodes["a"].new_life()
    world.net.clock.sleep(121)


def rebooted(world: World) -> None:
    world.net.nodes["a"].power_off()
    world.boot("a")


def timer_lost(world: World) -> None:
    """As when somebody stopped it by hand."""
    world.net.nodes["a"].units.timers.clear()
    world.sync("a")


def by_hand(world: World) -> None:
    assert len(world.undo("a").changed) == 1


def record_torn(world: World) -> None:
    world.net.nodes["a"].paths.window.write_bytes(b"{")
    world.net.clock.sleep(121)


def record_torn_and_rebooted(world: World) -> None:
    world.net.nodes["a"].paths.window.write_bytes(b"{")
    rebooted(world)


UNDONE_BY = {
    "the timer, after a kill": killed,
    "a reboot": rebooted,
    "the sync, when the timer is gone": timer_lost,
    "the operator": by_hand,
    "the timer, with the record torn": record_torn,
    "a reboot, with the record torn": record_torn_and_rebooted,
}


@pytest.mark.parametrize("undo", UNDONE_BY)
@pytest.mark.parametrize("change", OPEN)
def test_unconfirmed_it_is_undone_alike(world: World, change: str, undo: str) -> None:
    before, told = seen(world, "a"), said(world, "a")
    OPEN[change](world)
    assert seen(world, "a") != before
    UNDONE_BY[undo](world)
    assert seen(world, "a") == before
    assert not store.window_is_open(world.host("a"))
    assert not world.host("a").units.scheduled(netwindow.UNDO_UNIT)
    world.settle()
    world.timers()
    assert said(world, "a") == told
    assert world.agree("abc")


@pytest.mark.parametrize("change", OPEN)
def test_it_lasts_while_its_timer_runs(world: World, change: str) -> None:
    OPEN[change](world)
    armed = seen(world, "a")
    world.timers("a")
    world.up("a")
    assert seen(world, "a") == armed
    world.net.clock.sleep(119 - world.net.clock.monotonic() % 1 - 60)
    assert store.window_is_open(world.host("a"))


@pytest.mark.parametrize("change", OPEN)
def test_the_operators_word_confirms_and_the_timer_is_gone(world: World, change: str) -> None:
    OPEN[change](world)
    armed = seen(world, "a")
    assert world.confirm("a").changed
    assert not store.window_is_open(world.host("a"))
    world.net.clock.sleep(200)
    world.timers("a")
    rebooted(world)
    assert seen(world, "a") == armed


LEAPS = {
    "+1h": timedelta(hours=1),
    "-1d": timedelta(days=-1),
    "1970": datetime(1970, 1, 1, tzinfo=UTC) - START,
    "+10y": timedelta(days=3650),
}


def members_of(world: World, name: str) -> tuple[int, int, set[IPv6Address]]:
    """As `seen`, without what spent invites left."""
    port, mtu, peers = seen(world, name)
    return port, mtu, peers & {world.loaded(each).address for each in "abc"}


@pytest.mark.parametrize("by", LEAPS.values(), ids=LEAPS)
@pytest.mark.parametrize("change", OPEN)
def test_a_clock_that_leaps_hastens_no_undoing_and_loses_none(
    world: World, change: str, by: timedelta
) -> None:
    """The timer is systemd's, which knows no date."""
    clock, before, told = world.net.nodes["a"].clock, members_of(world, "a"), said(world, "a")
    OPEN[change](world)
    clock.wrong_by = by
    world.net.clock.sleep(30)
    world.timers("a", seconds=60)
    assert store.window_is_open(world.host("a"))
    clock.wrong_by = -by if abs(by) < timedelta(days=2) else timedelta()
    world.timers("a", seconds=31)
    assert not store.window_is_open(world.host("a"))
    assert members_of(world, "a") == before
    clock.wrong_by = timedelta()
    for _ in range(4):  # WireGuard takes no handshake of an earlier time for three minutes
        world.timers()
    assert said(world, "a") == told
    assert world.agree("abc")


@pytest.mark.parametrize("by", LEAPS.values(), ids=LEAPS)
@pytest.mark.parametrize("change", OPEN)
def test_what_was_confirmed_outlives_leaps_of_the_clock(
    world: World, change: str, by: timedelta
) -> None:
    OPEN[change](world)
    world.net.nodes["a"].clock.wrong_by = by
    armed = members_of(world, "a")
    assert world.confirm("a").changed
    world.net.nodes["a"].clock.wrong_by = timedelta()
    world.net.clock.sleep(200)
    rebooted(world)
    world.timers("a")
    assert members_of(world, "a") == armed


def test_settings_that_most_members_can_judge_are_confirmed_by_them(world: World) -> None:
    over_ssh(world, "a", IPv4Address("198.51.100.7"))
    edit(world, "a", "port: 51820", "port: 51999")
    done = apply.apply(world.host("a"))
    assert done.changed == ("change-network wireguard.port: 51820 -> 51999",)
    assert not store.window_is_open(world.host("a"))
    assert seen(world, "a")[0] == 51999
    assert apply.differences(world.host("a")) == ()


def test_settings_that_silence_most_members_are_undone_and_refused(world: World) -> None:
    before = seen(world, "a")
    edit(world, "a", "port: 51820", "port: 51999")

    def deaf(text: str) -> bool:
        if text.startswith("wg raise"):
            world.net.cut("a", "b")
        return False

    world.net.nodes["a"].effects.crash_on = deaf
    with pytest.raises(Refused) as refused:
        apply.apply(world.host("a"))
    assert refused.value.rule == "window-unconfirmed"
    assert "b did not answer" in refused.value.summary()
    assert seen(world, "a") == before
    assert [one.name for one in apply.differences(world.host("a"))] == ["wireguard.port"]
    assert any("1 of 2 did" in text for text in world.net.nodes["a"].console.waited)


def test_an_edit_of_the_spec_takes_no_effect_before_it_is_applied(world: World) -> None:
    before = seen(world, "a")
    edit(world, "a", "port: 51820", "port: 51999, mtu: 1300")
    world.timers("a")
    rebooted(world)
    assert seen(world, "a") == before
    assert settings_of(world.spec("a")).port == 51820
    found = [one.name for one in apply.differences(world.host("a"))]
    assert [name for name in found if "unit" not in name] == ["wireguard.mtu", "wireguard.port"]


def test_without_other_members_nobody_can_be_cut_off(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.node("a", mode="cloud")
    world.create("a")
    edit(world, "a", "port: 51820", "port: 51999")
    assert apply.apply(world.host("a")).value.waiting is None
    assert seen(world, "a")[0] == 51999


def test_new_endpoints_are_told_under_the_window_and_taken_back_with_it(world: World) -> None:
    over_ssh(world, "a", world.loaded("b").address)
    old = world.loaded("b").view.by_key(world.loaded("a").key)
    edit(world, "a", "port: 51820", 'port: 51820, endpoints: ["203.0.113.77:51820"]')
    assert apply.apply(world.host("a")).value.waiting is not None
    world.timers()
    told = world.loaded("b").view.by_key(world.loaded("a").key)
    assert told is not None
    assert [str(one) for one in told.endpoints] == ["203.0.113.77:51820"]
    world.net.clock.sleep(121)
    world.timers()
    back = world.loaded("b").view.by_key(world.loaded("a").key)
    assert back is not None
    assert old is not None
    assert back.endpoints == old.endpoints


def confirmed_and_dead(world: World) -> None:
    """The command dies right after the confirmation is on disk."""
    node = world.net.nodes["a"]
    node.effects.crash_on = lambda text: text.startswith("unschedule") and (
        (found := store.load_window(node.host)) is not None and found.stage is Stage.CONFIRMED
    )


def test_what_was_confirmed_is_gone_on_with_by_the_next_sync(world: World) -> None:
    confirmed_and_dead(world)
    assert world.net.nodes["a"].dies(lambda: world.remove("a", "b"))
    world.net.nodes["a"].new_life()
    assert store.window_is_open(world.host("a"))
    world.net.clock.sleep(300)  # its timer comes, and is refused
    with pytest.raises(Refused) as refused:
        world.undo("a")
    assert refused.value.rule == "window-confirmed"
    world.sync("a")
    assert not store.window_is_open(world.host("a"))
    assert [m.name for m in world.loaded("a").view.members if m.name == "b"] == []


def test_what_was_confirmed_is_gone_on_with_by_the_same_command(world: World) -> None:
    confirmed_and_dead(world)
    assert world.net.nodes["a"].dies(lambda: world.remove("a", "b"))
    world.net.nodes["a"].new_life()
    done = world.remove("a", "b")
    assert isinstance(done, Done)
    assert done.value.counts
    assert not store.window_is_open(world.host("a"))


def test_what_was_confirmed_is_gone_on_with_by_a_second_confirmation(world: World) -> None:
    confirmed_and_dead(world)
    assert world.net.nodes["a"].dies(lambda: world.remove("a", "b"))
    world.net.nodes["a"].new_life()
    with pytest.raises(Refused) as refused:
        world.remove("a", "c")
    assert refused.value.rule == "window-open"
    done = world.confirm("a")
    assert done.value is not None
    assert done.value.counts
    assert not store.window_is_open(world.host("a"))


def test_what_was_reset_and_cut_off_is_told_so_to_a_removal(world: World) -> None:
    """Confirmed, of another kind, and not done: every removal waits for it."""
    edit(world, "a", "port: 51820", "port: 51999")
    confirmed_and_dead(world)
    assert world.net.nodes["a"].dies(lambda: apply.apply(world.host("a")))
    world.net.nodes["a"].new_life()
    with pytest.raises(Refused) as refused:
        world.remove("a", "b")
    assert refused.value.rule == "window-open"
    world.sync("a")
    assert seen(world, "a")[0] == 51999


def test_a_confirmation_that_comes_too_late_is_told_so(world: World) -> None:
    open_removal(world)
    world.net.clock.sleep(121)
    with pytest.raises(Refused) as refused:
        world.confirm("a")
    assert refused.value.rule == "window-none"
    assert world.undo("a").changed == ()


def test_a_confirmation_while_it_is_being_undone_is_refused_and_sync_ends_it(
    world: World,
) -> None:
    before = seen(world, "a")
    open_removal(world)
    node = world.net.nodes["a"]
    node.effects.crash_on = lambda text: text.startswith("wg raise")
    assert node.dies(lambda: world.undo("a"))
    node.new_life()
    with pytest.raises(Refused) as refused:
        world.confirm("a")
    assert refused.value.rule == "window-undone"
    world.sync("a")
    assert seen(world, "a") == before
    assert not store.window_is_open(node.host)


def test_the_operator_may_confirm_what_the_members_are_waited_for(world: World) -> None:
    """From another session, while the command still waits."""
    node = world.net.nodes["a"]

    def silent(text: str) -> bool:
        if text.startswith("wg remove"):
            world.net.cut("a", "c")
            world.net.clock.after(15, lambda: world.confirm("a") and None)
        return False

    node.effects.crash_on = silent
    with pytest.raises(Refused) as refused:
        world.remove("a", "b")
    assert refused.value.rule == "window-none"
    assert not store.window_is_open(node.host)
    assert len(world.loaded("a").view.members) == 2


REFUSED_MEANWHILE: dict[str, Callable[[World], object]] = {
    "invite": lambda world: world.make_invite("a"),
    "invite --cancel": lambda world: admit.cancel(
        world.host("a"), world.spec("a"), store.load_invites(world.host("a"))[0].invite
    ),
    "join": lambda world: world.join("a", world.tokens["a"]),
    "leave": lambda world: leave.leave(world.host("a"), world.spec("a")),
    "trust add": lambda world: trustflow.add_root(world.host("a"), world.spec("a"), "c"),
    "trust drop": lambda world: trustflow.drop_root(world.host("a"), world.spec("a"), "c"),
    "spec apply": lambda world: apply.apply(world.host("a")),
    "remove": lambda world: world.remove("a", "c"),
    "remove --dry-run": lambda world: remove.plan(world.host("a"), "c", Mode.PLAIN),
    "remove --vote": lambda world: world.remove("a", "c", Mode.VOTE),
}


@pytest.mark.parametrize("change", REFUSED_MEANWHILE)
def test_while_one_waits_other_changes_are_refused_and_change_nothing(
    world: World, change: str
) -> None:
    world.tokens["a"] = world.invite("b")
    world.invite("a")
    open_removal(world)
    node = world.net.nodes["a"]
    before = {p: p.read_bytes() for p in node.paths.mesh.rglob("*") if p.is_file()}
    machine = seen(world, "a")
    with pytest.raises(KeelError) as refused:
        REFUSED_MEANWHILE[change](world)
    assert isinstance(refused.value, Refused)
    assert (refused.value.rule, refused.value.exit) == ("window-open", 3)
    assert {p: p.read_bytes() for p in node.paths.mesh.rglob("*") if p.is_file()} == before
    assert seen(world, "a") == machine


def test_nobody_is_asked_about_the_removal_of_the_only_other_member(tmp_path: Path) -> None:
    world = World(tmp_path)
    mesh_of(world, "ab")
    said = world.net.nodes["a"].console.waited
    before, carried = len(said), len(world.net.exchanges)
    assert isinstance(world.remove("a", "b"), Incomplete)
    assert (said[before:], world.net.exchanges[carried:]) == ([], [])


def test_of_two_changes_at_once_the_one_that_armed_first_stands(world: World) -> None:
    """The other one has looked already, and asks the members just then."""
    world.net.delay("a", "c", 1.0)
    world.net.clock.after(1.0, lambda: world.open_window("a", "c"))
    machine = seen(world, "a")
    with pytest.raises(Refused) as refused:
        world.remove("a", "b")
    assert refused.value.rule == "window-open"
    waiting = store.load_window(world.host("a"))
    assert waiting is not None
    assert waiting.removing is not None
    assert waiting.removing.name == "c"
    assert seen(world, "a") == machine


def new_port_at_c(world: World) -> object:
    edit(world, "c", "51820", "51777")
    return apply.apply(world.host("c"))


MEANWHILE_ELSEWHERE: dict[str, Callable[[World], object]] = {
    "a removal": lambda world: world.remove("c", "b"),
    "a vote": lambda world: world.remove("c", "b", Mode.VOTE),
    "new settings": new_port_at_c,
    "trust": lambda world: trustflow.add_root(world.host("c"), world.spec("c"), "b"),
    "an invite": lambda world: world.make_invite("c"),
    "a sync": lambda world: world.sync("c"),
}


@pytest.mark.parametrize("died", [False, True], ids=["lives", "dies"])
@pytest.mark.parametrize("other", MEANWHILE_ELSEWHERE)
@pytest.mark.parametrize("change", OPEN)
def test_what_others_change_meanwhile_leaves_the_undoing_right(
    world: World, change: str, other: str, died: bool
) -> None:
    before, node = seen(world, "a"), world.net.nodes["c"]
    OPEN[change](world)
    if died:
        node.new_life()
        node.effects.crash_at = 9
    with contextlib.suppress(KeelError):
        assert node.dies(lambda: MEANWHILE_ELSEWHERE[other](world)) is died
    node.new_life()
    world.settle()
    world.net.clock.sleep(125)
    for _ in range(3):
        world.timers()
    assert seen(world, "a") == before
    assert not store.window_is_open(world.host("a"))
    assert not store.window_is_open(world.host("c"))


def test_settings_that_cannot_be_read_stop_the_node_with_their_path(world: World) -> None:
    node = world.net.nodes["a"]
    node.paths.settings.write_bytes(b"{")
    with pytest.raises(KeelError) as stopped:
        world.sync("a")
    assert str(node.paths.settings) in stopped.value.summary()


def test_while_one_waits_nobody_new_is_let_in_and_the_invite_stays_open(world: World) -> None:
    world.node("d", mode="cloud")
    token = world.invite("a")
    open_removal(world)
    before = store.load_invites(world.host("a"))
    with pytest.raises(Refused) as refused:
        world.join("d", token)
    assert refused.value.rule == "join-window"
    assert store.load_invites(world.host("a")) == before
    world.undo("a")
    world.join("d", token)
    world.settle()
    assert len(world.loaded("a").view.members) == 4


def test_who_claimed_before_the_change_goes_on_with_its_join(world: World) -> None:
    world.node("d", mode="cloud")
    token = world.invite("a")
    world.net.lose("reply", source="d", path="/v1/join", count=9999)
    with pytest.raises(KeelError):
        world.join("d", token)
    world.net.losses.clear()
    open_removal(world)
    world.join("d", token)
    world.settle()
    assert len(world.loaded("a").view.members) == 4


def test_what_the_machine_does_not_take_is_undone_at_once(world: World) -> None:
    before = seen(world, "a")
    node = world.net.nodes["a"]
    node.wireguard.ports_taken = {51999}
    edit(world, "a", "port: 51820", "port: 51999")
    with pytest.raises(ProcFailed):
        apply.apply(node.host)
    assert not store.window_is_open(node.host)
    assert not node.host.units.scheduled(netwindow.UNDO_UNIT)
    assert seen(world, "a") == before
