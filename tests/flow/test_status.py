"""What status says of real states: golden documents and texts of whole nodes (M11, E21)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from keel.cli import status as cli
from keel.mesh import drafts, report, roster, status, store, wire
from tests.flow.steady import steady, steady_text
from tests.flow.world import World

GOLDEN = Path(__file__).parent / "golden"


def formed(world: World) -> None:
    world.mesh("abc")
    world.tends("abc")
    for name in "abc":
        world.sync(name)
        world.settle()


def up(world: World) -> None:
    formed(world)


def alone(world: World) -> None:
    world.node("a")
    world.create("a")


def without_etcd(world: World) -> None:
    world.mesh("ab", mode="cloud")


def suspect(world: World) -> None:
    without_etcd(world)
    cli.look(world.host("a"))
    world.net.cut("a", "b")
    world.net.clock.sleep(20)


def down(world: World) -> None:
    formed(world)
    cli.look(world.host("a"))
    for name in "ab":
        world.net.cut(name, "c")
    world.net.clock.sleep(60)


def cut_off(world: World) -> None:
    """Seen from the one that is alone: its etcd has no leader, and it says so."""
    formed(world)
    cli.look(world.host("a"))
    for name in "bc":
        world.net.cut("a", name)
    world.net.clock.sleep(60)
    world.etcd.settle()


def all_silent(world: World) -> None:
    """The same, for so long that it may have been removed meanwhile."""
    cut_off(world)
    world.net.clock.sleep(600)


def clock_off(world: World) -> None:
    without_etcd(world)
    world.net.nodes["b"].clock.wrong_by = timedelta(seconds=200)


def one_way(world: World) -> None:
    """Packets pass from c to a, and none from a to c."""
    formed(world)
    cli.look(world.host("a"))
    world.net.one_way("c", "a")
    for _ in range(4):
        world.net.clock.sleep(60)
        cli.look(world.host("a"))
    world.etcd.settle()


def clock_far_off(world: World) -> None:
    """c's etcd serves; only what its keel says of that is of another time than this clock's."""
    formed(world)
    world.net.nodes["c"].clock.wrong_by = timedelta(minutes=10)


def cloned(world: World) -> None:
    """A copy of b signed another self record under the same counter."""
    without_etcd(world)
    b = world.loaded("b")
    member = b.view.by_key(b.key)
    assert member is not None
    before = store.load(world.host("a"))
    assert before is not None
    base = roster.founded(b.roster.founding.raw, b.mesh)
    admissions = [entry.raw for entry in b.roster.entries.values() if entry.kind == "admission"]
    other = drafts.make_self(
        roster.merge(base, admissions).roster,
        b.identity.signing,
        wireguard=b.identity.wireguard.public,
        endpoints=(),
        capability=member.capability,
        roots=(),
        lived=0,
        now=world.net.clock.now(),
    )
    store.merge_into(world.host("a"), before, (wire.encode(other),))


def unconfirmed(world: World) -> None:
    """b was admitted and its confirmation is never answered."""
    for name in "ab":
        world.node(name, mode="cloud")
    world.create("a")
    token = world.invite("a")
    world.net.lose("reply", source="b", path="/v1/hello", count=99)
    with pytest.raises(Exception, match="no answer"):
        world.join("b", token)


def interface_gone(world: World) -> None:
    without_etcd(world)
    world.host("a").wireguard.drop_interface("keel0")


def changed_by_hand(world: World) -> None:
    """Its address is off, and something else had its channel's port."""
    without_etcd(world)
    node = world.net.nodes["a"]
    node.wireguard.devices["keel0"].address = None
    node.units.stop("keel-channel.socket")


def window_open(world: World) -> None:
    without_etcd(world)
    world.open_window("a", "b")


def etcd_down(world: World) -> None:
    formed(world)
    world.net.nodes["a"].units.stop("etcd.service")


STATES: dict[str, tuple[Callable[[World], None], str]] = {
    "alone": (alone, "a"),
    "up": (up, "a"),
    "without-etcd": (without_etcd, "a"),
    "suspect": (suspect, "a"),
    "down": (down, "a"),
    "cut-off": (cut_off, "a"),
    "all-silent": (all_silent, "a"),
    "clock-off": (clock_off, "a"),
    "one-way": (one_way, "a"),
    "clock-far-off": (clock_far_off, "a"),
    "cloned": (cloned, "a"),
    "unconfirmed": (unconfirmed, "b"),
    "interface-gone": (interface_gone, "a"),
    "changed-by-hand": (changed_by_hand, "a"),
    "window-open": (window_open, "a"),
    "etcd-down": (etcd_down, "a"),
}


@pytest.mark.parametrize("state", STATES)
def test_status_says_what_is_so(state: str, tmp_path: Path) -> None:
    arrange, name = STATES[state]
    world = World(tmp_path)
    arrange(world)
    # With etcd the roster names the root, whose signature and so whose fingerprint is never twice
    # the same.
    found: dict[str, Any] = steady(cli.look(world.host(name)))
    text = json.dumps(found, indent=2, sort_keys=True) + "\n\n" + cli.text(found) + "\n"
    text = steady_text(text)
    golden = GOLDEN / f"{state}.txt"
    if os.environ.get("KEEL_GOLDEN") == "write":
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text)
    assert text == golden.read_text()


def test_check_is_red_with_any_warning_and_green_without(tmp_path: Path) -> None:
    world = World(tmp_path)
    without_etcd(world)
    assert cli.Status(check=True).run(world.host("a")).exit == 0
    world.host("a").wireguard.drop_interface("keel0")
    assert cli.Status(check=True).run(world.host("a")).exit == 1
    assert cli.Status(check=False).run(world.host("a")).exit == 0


def codes(world: World, name: str = "a") -> list[str]:
    return [one["code"] for one in cli.look(world.host(name))["warnings"]]


def test_when_nobody_was_heard_for_long_this_node_may_be_the_one_that_is_out(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.mesh("abc", mode="cloud")
    world.timers()
    world.net.nodes["b"].power_off()
    world.net.clock.sleep(600)
    world.sync("a")
    assert "all-silent" not in codes(world)
    world.net.nodes["c"].power_off()
    world.net.clock.sleep(300)
    assert "all-silent" not in codes(world)
    world.net.clock.sleep(360)
    told = cli.look(world.host("a"))["warnings"][0]
    assert told["code"] == "all-silent"
    assert told["text"].startswith("no other member was heard for 11 minutes")
    assert "`keel mesh leave --without-quorum --confirm a`" in told["remedy"]


def test_what_all_members_have_in_common_is_shown_once_and_no_alert_is_over_by_that(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.mesh("abc", mode="cloud")
    cli.look(world.host("a"))
    for name in "bc":
        world.net.nodes[name].power_off()
    world.net.clock.sleep(60)
    assert codes(world) == ["member-down", "member-down"]
    world.net.clock.sleep(600)
    found = cli.look(world.host("a"))
    assert [one["code"] for one in found["warnings"]] == ["all-silent"]
    assert [one["state"] for one in found["members"]] == ["down", "down"]
    spec, now = world.spec("a"), world.net.clock.now()
    held = report.warnings(spec, *status.whole(world.host("a"), spec), now)
    assert [one.code for one in held] == ["all-silent", "member-down", "member-down"]


def test_when_all_are_down_at_once_the_hint_looks_at_this_node_first(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.mesh("abc", mode="cloud")
    world.timers()

    def hints() -> list[bool]:
        found = cli.look(world.host("a"))["warnings"]
        return ["this node's own network" in w["remedy"] for w in found]

    world.net.nodes["b"].power_off()
    world.net.clock.sleep(60)
    world.sync("a")
    assert hints() == [False]
    world.net.nodes["c"].power_off()
    world.net.clock.sleep(60)
    assert hints() == [True, True]


def test_a_removed_node_that_boots_again_is_told_what_that_looks_like(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.mesh("ab", mode="cloud")
    world.net.nodes["b"].power_off()
    world.remove("a", "b")
    world.confirm("a")
    world.boot("b")
    world.timers("b")
    (told,) = (w for w in cli.look(world.host("b"))["warnings"] if w["code"] == "all-silent")
    assert told["text"].startswith("no other member was heard for as long as it runs")


def test_a_voter_whose_mode_was_taken_back_is_told_that_it_still_is_one(tmp_path: Path) -> None:
    world = World(tmp_path)
    formed(world)
    path = world.net.nodes["b"].paths.spec
    path.write_text(path.read_text().replace("cloud_advanced", "cloud"))
    (told,) = (w for w in cli.look(world.host("b"))["warnings"] if w["code"] == "mode-kept")
    assert "counts this node as its voter" in told["text"]
    assert "`installation: {mode: cloud_advanced}`" in told["remedy"]
    assert "mode-kept" not in codes(world, "a")


@pytest.mark.parametrize(
    ("seconds", "carries"),
    [(None, False), (0, True), (179, True), (-179, True), (181, False), (-181, False)],
    ids=["no handshake ever", "just now", "just in time", "a clock set back", "old", "far ahead"],
)
def test_a_link_carries_both_ways_while_handshakes_end(
    seconds: int | None, carries: bool, tmp_path: Path
) -> None:
    world = World(tmp_path)
    suspect(world)
    spec, now = world.spec("a"), world.net.clock.now()
    seen = status.look(world.host("a"), spec)
    (one,) = seen.members
    assert one.peer is not None
    ended = None if seconds is None else now - timedelta(seconds=seconds)
    met = replace(one, silent_seconds=0.0, peer=replace(one.peer, latest_handshake=ended))
    (told,) = report.mesh_warnings(spec, replace(seen, members=(met,)), now)
    assert told.remedy.startswith("look again" if carries else "its packets arrive here")


@pytest.mark.parametrize(
    ("ago", "at_most", "said", "shown"),
    [
        pytest.param(9.8, 10.2, "received 10 s ago", "10s", id="known"),
        pytest.param(0.0, 58.0, "received between 0 and 58 s ago", "0-58s", id="between two looks"),
        pytest.param(10.0, None, "received at a time that is not known", ">10s", id="one look"),
        pytest.param(30.0, 90.0, "nothing received for 30 s", "30-90s", id="surely long ago"),
        pytest.param(None, None, "nothing was ever received", "<none>", id="never"),
    ],
)
def test_when_something_was_heard_is_said_no_more_exactly_than_it_is_known(
    ago: float | None, at_most: float | None, said: str, shown: str, tmp_path: Path
) -> None:
    world = World(tmp_path)
    suspect(world)
    spec, now = world.spec("a"), world.net.clock.now()
    seen = status.look(world.host("a"), spec)
    met = replace(seen.members[0], silent_seconds=ago, silent_at_most=at_most)
    (told,) = report.mesh_warnings(spec, replace(seen, members=(met,)), now)
    assert said in told.text
    ages = {"rx_age_seconds": ago, "rx_age_at_most_seconds": at_most}
    _, row = cli.members_text([{**cli.look(world.host("a"))["members"][0], **ages}]).splitlines()
    assert row.split()[-2] == shown


def test_a_channel_that_is_down_here_is_no_reason_of_a_members_silence(tmp_path: Path) -> None:
    world = World(tmp_path)
    without_etcd(world)
    cli.look(world.host("a"))
    world.net.nodes["a"].units.stop("keel-channel.socket")
    world.net.cut("a", "b")
    world.net.clock.sleep(60)
    own, down = cli.look(world.host("a"))["warnings"]
    assert (own["code"], down["code"]) == ("channel-down", "member-down")
    assert down["remedy"].startswith("see whether b runs")


def test_what_is_mended_alike_is_hinted_at_once() -> None:
    rows = [
        {"severity": "critical", "text": text, "code": "code", "remedy": remedy}
        for text, remedy in (("one", "x"), ("two", "x"), ("three", "y"))
    ]
    assert cli.warnings_text(rows).splitlines() == [
        "critical: one (code)",
        "critical: two (code)",
        "  hint: x",
        "critical: three (code)",
        "  hint: y",
    ]
