"""The way from the channel's process to the passes, over a real socket: words, answers, garbage."""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import pytest

from keel.errors import BadValue, DeadlinePassed, Internal, KeelError, ProcFailed, Refused
from keel.mesh import passes, passmsg
from keel.mesh.passmsg import Ask
from keel.mesh.refusal import Refusal
from keel.ports import UnitState
from keel.system.counter import ANSWERS, IDLE_SECONDS, TOLD_SECONDS, Counter
from keel.system.passes import KickedUnits, PassesSocket
from keel.unitnames import FAST_TIMER, PASSES_UNIT, SYNC_UNIT, TEND_TIMER, TEND_UNIT
from tests.channelkit import NOW

PATIENCE = 20.0
KICKED = [ask for ask in Ask if ask not in passmsg.ANSWERED]


@dataclass
class HandClock:
    """Time passes when a test says so."""

    seconds: float = 0.0

    def now(self) -> datetime:
        return NOW

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody sleeps here")


@dataclass
class Desk:
    """What the passes' process does with each word."""

    path: Path
    listening: socket.socket
    clock: HandClock = field(default_factory=HandClock)
    said: list[Ask] = field(default_factory=list)
    heard: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    act: Callable[[Ask], bytes] = lambda ask: f"of {ask}".encode()
    needed: bool = False
    looked: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def counter(self) -> Counter:
        return Counter(
            [self.listening],
            self._answer,
            clock=self.clock,
            needed=self._needed,
            look_seconds=0.01,
        )

    def until_heard(self) -> None:
        assert self.heard.acquire(timeout=PATIENCE)

    def _answer(self, ask: Ask) -> bytes:
        self.said.append(ask)
        self.heard.release()
        return self.act(ask)

    def _needed(self) -> bool:
        self.looked.release()
        return self.needed


@pytest.fixture
def desk() -> Iterator[Desk]:
    with tempfile.TemporaryDirectory() as short:  # a socket's path has 107 bytes at most
        path = Path(short) / "passes.sock"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
            listening.bind(str(path))
            listening.listen(2)
            yield Desk(path, listening)


@contextmanager
def running(desk: Desk) -> Iterator[PassesSocket]:
    counter = desk.counter()
    thread = threading.Thread(target=counter.run)
    thread.start()
    try:
        yield PassesSocket(desk.path, answer_seconds=PATIENCE)
    finally:
        counter.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def send(desk: Desk, raw: bytes) -> bytes:
    """What comes back on a raw connection."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as way:
        way.settimeout(PATIENCE)
        way.connect(str(desk.path))
        way.send(raw)
        return way.recv(4096)


@pytest.mark.parametrize("ask", KICKED)
def test_a_kick_is_heard_and_nothing_is_said_to_it(desk: Desk, ask: Ask) -> None:
    with running(desk) as say:
        assert say(ask) == b""
        desk.until_heard()
    assert desk.said == [ask]


def test_a_kick_waits_for_nobody_and_is_taken_by_whoever_comes(desk: Desk) -> None:
    assert PassesSocket(desk.path)(Ask.TEND) == b""
    with running(desk):
        desk.until_heard()
    assert desk.said == [Ask.TEND]


@pytest.mark.parametrize("ask", sorted(passmsg.ANSWERED))
def test_what_is_answered_is_answered(desk: Desk, ask: Ask) -> None:
    with running(desk) as say:
        assert passmsg.open_answer(say(ask)) == f"of {ask}".encode()


def test_a_no_comes_back_with_its_reason(desk: Desk) -> None:
    def no(_: Ask) -> bytes:
        raise Refused("formation-alive", "it lives", "look at it")

    desk.act = no
    with running(desk) as say:
        with pytest.raises(Refused) as caught:
            passmsg.open_answer(say(Ask.HALT))
        assert (caught.value.rule, caught.value.text) == ("formation-alive", "it lives")
        assert say(Ask.TEND) == b""
        assert passmsg.open_answer(_turned(desk, say)) == b"yes"


def _turned(desk: Desk, say: PassesSocket) -> bytes:
    """After all that failed the next one is served."""
    desk.act = lambda _: b"yes"
    return say(Ask.GROUND)


def test_more_answers_than_are_worked_at_are_refused_and_kicks_go_on(desk: Desk) -> None:
    over = threading.Event()

    def wait(ask: Ask) -> bytes:
        assert ask not in passmsg.ANSWERED or over.wait(PATIENCE)
        return b"done"

    desk.act = wait
    desk.listening.listen(32)  # as the unit has it
    with running(desk) as say, ThreadPoolExecutor(ANSWERS) as pool:
        asked = [pool.submit(say, Ask.GROUND) for _ in range(ANSWERS)]
        for _ in asked:
            desk.until_heard()
        with pytest.raises(Refused) as caught:
            passmsg.open_answer(say(Ask.GROUND))
        say(Ask.SYNC)
        desk.until_heard()
        over.set()
        assert {passmsg.open_answer(one.result()) for one in asked} == {b"done"}
        assert passmsg.open_answer(say(Ask.GROUND)) == b"done"
    assert caught.value.rule == "channel-busy"
    assert desk.said[-2:] == [Ask.SYNC, Ask.GROUND]


@pytest.mark.parametrize(
    "raw",
    [b"\xff\xfe", b"tend\n", b"tend sync", b"t" * 4096, b"halt\0"],
    ids=["no text", "a line", "two words", "long", "a null"],
)
def test_what_is_no_word_is_dropped(desk: Desk, raw: bytes) -> None:
    with running(desk) as say:
        assert send(desk, raw) == b""
        assert passmsg.open_answer(say(Ask.GROUND)) == b"of ground"
    assert desk.said == [Ask.GROUND]


def test_garbage_is_told_once_in_a_while_with_its_number(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    with running(desk):
        for _ in range(5):
            send(desk, b"garbage")
        desk.clock.seconds += TOLD_SECONDS
        send(desk, b"garbage")
    told = [record.message for record in caplog.records]
    assert told == [f"{number} messages that are no word were dropped" for number in (1, 5)]


def test_one_that_knocks_and_says_nothing_keeps_nobody_waiting(desk: Desk) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        silent.connect(str(desk.path))
        with running(desk) as say:
            assert passmsg.open_answer(say(Ask.GROUND)) == b"of ground"


def test_it_ends_when_nobody_asked_for_a_while_and_nothing_needs_it(desk: Desk) -> None:
    desk.needed = True
    thread = threading.Thread(target=desk.counter().run)
    thread.start()
    assert not desk.looked.acquire(timeout=0.05)
    desk.clock.seconds += IDLE_SECONDS
    assert desk.looked.acquire(timeout=PATIENCE)
    desk.needed = False
    desk.clock.seconds += IDLE_SECONDS
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_without_a_socket_it_says_who_starts_it() -> None:
    with pytest.raises(KeelError, match="keel-passes.socket"):
        Counter([], lambda _: b"", clock=HandClock(), needed=lambda: False)


def test_where_nobody_listens_a_kick_is_lost_and_a_question_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    say = PassesSocket(tmp_path / "gone")
    assert say(Ask.TEND) == b""
    assert "the timer's pass comes" in caplog.text
    with pytest.raises(ProcFailed):
        say(Ask.GROUND)


def test_where_nobody_takes_it_a_kick_is_lost_and_a_question_ends_in_time(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    say = PassesSocket(desk.path, answer_seconds=0.05)
    with pytest.raises(DeadlinePassed):
        say(Ask.GROUND)
    for _ in range(4):  # until the backlog is full
        assert say(Ask.TEND) == b""
    assert "the timer's pass comes" in caplog.text


def test_only_these_units_are_started_by_the_channel_each_by_its_word() -> None:
    said: list[str] = []
    units = KickedUnits(said.append, passes.KICKS)
    units.start(TEND_UNIT, FAST_TIMER, block=False)
    units.start(SYNC_UNIT, block=False)
    units.start(PASSES_UNIT, block=False)
    assert said == ["tend", "fast", "sync", "ready"]
    assert set(said) == set(KICKED)


@pytest.mark.parametrize(
    "beyond",
    [
        lambda units: units.start("sshd.service", block=False),
        lambda units: units.start(TEND_UNIT, "sshd.service", block=False),
        lambda units: units.start(TEND_UNIT),
        lambda units: units.state("etcd.service"),
        lambda units: units.stop(FAST_TIMER),
        lambda units: units.restart(TEND_UNIT),
        lambda units: units.enable(TEND_TIMER),
        lambda units: units.disable(TEND_TIMER),
        lambda units: units.reload_configuration(),
        lambda units: units.schedule(SYNC_UNIT, seconds=1),
        lambda units: units.unschedule(SYNC_UNIT),
        lambda units: units.scheduled(SYNC_UNIT),
    ],
)
def test_whatever_else_is_asked_of_systemd_is_a_bug(
    beyond: Callable[[KickedUnits], UnitState | bool | None],
) -> None:
    said: list[str] = []
    with pytest.raises(Internal):
        beyond(KickedUnits(said.append, passes.KICKS))
    assert not said


def test_what_is_neither_an_answer_nor_a_no_is_not_believed() -> None:
    no = passmsg.refused(Refusal(rule="a-rule", text="no", remedy="do"))
    with pytest.raises(BadValue):
        passmsg.open_answer(no[1:])
