"""Whole nodes whose clocks leap to 1970 or ten years ahead, and back: nothing that was done or
noted meanwhile holds anything up once they are right."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from keel.errors import KeelError, Refused
from keel.mesh import etcdstore, spread, status, store, sync, talk
from keel.mesh.envelope import Answered
from keel.mesh.etcdcrl import Reason
from keel.mesh.etcdgrants import revoked_serials
from keel.mesh.invite import Phase
from keel.mesh.liveness import Liveness, PeerSample
from keel.mesh.nonces import MAX_PER_SENDER, NonceLedger
from keel.mesh.token import Token
from keel.ports import WgPeerState
from keel.types import Nonce, WgKey
from tests.flow.arranged import arranged
from tests.flow.world import World

YEARS = timedelta(days=3650)
LEAPS = {"1970": datetime(1970, 1, 1, tzinfo=UTC) - datetime(2026, 1, 1, tzinfo=UTC), "+10y": YEARS}


@arranged
def a_pair(scratch: Path) -> World:
    """Two members, the first the holder; c holds a token."""
    world = World(scratch)
    world.mesh("ab", spare="c")
    world.timers("a", "b")
    world.tokens["c"] = world.invite("a")
    return world


@pytest.fixture
def pair(tmp_path: Path) -> World:
    return a_pair(tmp_path)


def leap(world: World, by: timedelta, *names: str) -> None:
    for name in names:
        world.net.nodes[name].clock.wrong_by = by


def right(world: World) -> None:
    leap(world, timedelta(), *world.net.nodes)


def invites(world: World) -> list[Phase]:
    return [one.phase for one in store.load_invites(world.host("a"))]


def refused(world: World, token: Token) -> str:
    with pytest.raises(Refused) as caught:
        world.join("c", token)
    return caught.value.rule


@pytest.mark.parametrize("by", LEAPS.values(), ids=LEAPS)
@pytest.mark.parametrize("boots", [False, True], ids=["runs", "boots"])
def test_an_invite_outlives_a_leap_of_its_inviters_clock(
    pair: World, by: timedelta, boots: bool
) -> None:
    if boots:
        pair.net.nodes["a"].power_off()
    leap(pair, by, "a")
    if boots:
        pair.boot("a")
        pair.settle()
    assert refused(pair, pair.tokens["c"]) == "join-clock"
    for _ in range(3):
        pair.timers("a", "b")
    assert invites(pair)[-1] is Phase.UNUSED
    right(pair)
    pair.timers("a", "b")
    pair.join("c", pair.tokens["c"])
    pair.rest(*"abc")
    assert pair.formed("abc")


def test_an_invite_still_ends_at_its_time_by_a_clock_that_is_right(pair: World) -> None:
    pair.net.clock.leap(86400.0)
    pair.timers("a", "b")
    assert invites(pair)[-1] is Phase.EXPIRED


@arranged
def left_alone(scratch: Path) -> World:
    """b has used a's token and left again; another token of a's is open."""
    world = World(scratch)
    for name in "abc":
        world.node(name, mode="cloud")
    world.create("a")
    world.tokens["b"] = world.invite("a")
    world.join("b", world.tokens["b"])
    world.settle()
    world.leave("b")
    world.settle()
    world.tokens["c"] = world.invite("a")
    return world


def boots_ahead(world: World, *, ntp: bool = False, seconds: float = 0.0) -> None:
    """a, by two days; it has run for so long when its timers pass."""
    a = world.net.nodes["a"]
    a.power_off()
    leap(world, timedelta(days=2), "a")
    a.machine.ntp = ntp
    world.boot("a")
    world.net.clock.leap(seconds)
    for _ in range(2):
        world.timers("a")


def test_a_lone_inviter_that_boots_ahead_forgets_nothing_before_ntp_could_set_it_right(
    tmp_path: Path,
) -> None:
    world = left_alone(tmp_path)
    boots_ahead(world)
    right(world)
    world.timers("a")
    assert sorted(invites(world)) == [Phase.SPENT, Phase.UNUSED]
    assert refused(world, world.tokens["b"]) == "join-spent"
    world.join("c", world.tokens["c"])


@pytest.mark.parametrize(
    ("ntp", "seconds"),
    [pytest.param(True, 0.0, id="NTP agrees"), pytest.param(False, 3600.0, id="NTP never comes")],
)
def test_a_lone_inviter_goes_by_its_clock_once_ntp_agrees_or_had_its_time(
    tmp_path: Path, ntp: bool, seconds: float
) -> None:
    world = left_alone(tmp_path)
    boots_ahead(world, ntp=ntp, seconds=seconds)
    assert invites(world) == []


@pytest.mark.parametrize("boots", [False, True], ids=["runs", "boots"])
def test_what_a_claim_was_granted_outlives_a_leap_of_its_inviters_clock(
    pair: World, boots: bool
) -> None:
    pair.net.lose("request", source="c", path="/v1/hello", count=999)
    with pytest.raises(KeelError):
        pair.join("c", pair.tokens["c"])
    if boots:
        pair.net.nodes["a"].power_off()
    leap(pair, YEARS, "a")
    if boots:
        pair.net.cut("a", "b")  # nobody tells it what time it is
        pair.boot("a")
        pair.settle()
    pair.tend("a")
    pair.sync("a")
    pair.tend("a")
    pair.net.heal()
    right(pair)
    pair.net.losses.clear()
    pair.join("c", pair.tokens["c"])
    pair.rest(*"abc")
    assert pair.formed("abc")
    ledger = etcdstore.load_ledger(pair.host("a"))
    assert Reason.CESSATION not in {one.reason for one in revoked_serials(ledger)}


def test_what_members_noted_while_they_were_ahead_together_closes_no_channel(pair: World) -> None:
    """A host gave all its machines one wrong time for half a day."""
    for asker, teller in ("ab", "ba"):
        host, key = pair.host(teller), pair.loaded(asker).key
        ahead = host.clock.now() + YEARS
        ledger = NonceLedger()
        for number in range(MAX_PER_SENDER):
            ledger, _ = ledger.add(key, Nonce(f"{number:032x}"), ahead, ahead)
        raw = ledger.dump()[1].replace(b"floor 0", b"floor %d" % ahead.timestamp())
        host.files.write(host.paths.nonces, raw)
    pair.sync("a")
    states = [one.state for one in status.look(pair.host("a"), pair.spec("a")).members]
    answers = spread.ping(pair.host("a"), pair.loaded("a"), talk.others(pair.loaded("a")))
    assert states == [Liveness.UP]
    assert all(isinstance(one, Answered) for one in answers.values())


def test_a_member_whose_clock_was_ahead_is_found_again_from_another_place(tmp_path: Path) -> None:
    """Behind NAT, so that only its own handshakes find the way; they are of an earlier time than
    those that WireGuard remembers of it."""
    world = World(tmp_path)
    for name in "ab":
        world.node(name, mode="cloud", behind_nat=name == "b")
    world.create("a")
    world.join("b", world.invite("a"))
    world.settle()
    leap(world, YEARS, "b")
    for _ in range(3):
        world.timers()
    world.net.nodes["b"].power_off()
    world.net.nodes["b"].move(IPv4Address("198.51.100.7"))
    right(world)
    world.boot("b")
    for _ in range(6):
        world.timers()
    (seen,) = status.look(world.host("a"), world.spec("a")).members
    assert seen.state is Liveness.UP


NOW = datetime(2026, 5, 4, tzinfo=UTC)
SHAKEN = WgPeerState(
    key=WgKey("k"),
    endpoint=None,
    allowed=(),
    latest_handshake=NOW,
    received_bytes=0,
    sent_bytes=0,
    keepalive_seconds=10,
    has_preshared=False,
)


@pytest.mark.parametrize(
    ("shaken", "heard", "silent"),
    [
        pytest.param(timedelta(seconds=100), None, False, id="a handshake just now"),
        pytest.param(timedelta(seconds=180), None, True, id="a handshake long ago"),
        pytest.param(-YEARS, None, True, id="a handshake of a clock that was ahead"),
        pytest.param(-YEARS, 100.0, False, id="the same, and packets come"),
        pytest.param(YEARS, 100.0, False, id="the clock is ahead, and packets come"),
        pytest.param(YEARS, 180.0, True, id="both long ago"),
        pytest.param(None, None, True, id="never"),
    ],
)
def test_a_peer_is_silent_when_neither_clock_has_a_word_of_it(
    shaken: timedelta | None, heard: float | None, silent: bool
) -> None:
    state = replace(SHAKEN, latest_handshake=None if shaken is None else NOW - shaken)
    at = None if heard is None else 1000.0 - heard
    sample = PeerSample(received_bytes=1, sampled_at=990.0, heard_after=at, heard_before=at)
    assert sync.is_silent(state, sample, now=NOW, monotonic=1000.0) is silent


def test_packets_without_an_answer_are_no_word_of_a_peer() -> None:
    """They are its handshakes, on a link that carries nothing to it."""
    sample = PeerSample(received_bytes=1, sampled_at=990.0, heard_after=930.0, heard_before=990.0)
    state = replace(SHAKEN, latest_handshake=None)
    assert sync.is_silent(state, sample, now=NOW, monotonic=1000.0)
