"""Members who hold all that they may keep nobody else from the channel (L1, L2): the real server,
the real checks, and every kind with its own bounds, over a real socket."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import IPv6Address

import pytest

from keel import codec
from keel.errors import PeerError
from keel.mesh import envelope, etcd, receive, roster
from keel.mesh.asked import Asked
from keel.mesh.envelope import Message
from keel.mesh.etcdmsg import AskPlace, PlaceAnswer
from keel.mesh.exchange import ETCD_PATH, HELLO, HELLO_PATH, Hello, HelloAnswer
from keel.mesh.limits import ADMITS, KICKS, QUICK, Limits
from keel.mesh.receive import Doors
from keel.mesh.server import HttpReply
from keel.system.clock import SystemClock
from keel.system.locks import Flocks
from keel.types import Nonce
from tests.desk import NO_RATE, Asker, serving
from tests.fakes import RecordingConsole
from tests.flow.world import World

HONEST_SECONDS = 5.0
PATIENCE = 20.0
KINDS = etcd.doors().etcd
LASTING = {name: kind for name, kind in KINDS.items() if kind.bound.at_once is not None}
NAMES = "abcdefg"
SERVER, HONEST, OTHERS = "a", "g", "bcdef"
SOURCES = {name: f"127.0.0.{number}" for number, name in enumerate(NAMES, start=2)}
NUMBERS = itertools.count()
ANSWER = PlaceAnswer(cluster=False, of=0, why="it is over")


class Held:
    """What a kind does here: begin, and not end before the test lets it."""

    def __init__(self) -> None:
        self.settled = threading.Semaphore(0)
        """Once for each question that is being answered, or was refused."""
        self.over = threading.Event()

    def __call__(self, asked: Asked) -> PlaceAnswer:
        self.settled.release()
        assert self.over.wait(2 * PATIENCE)
        return ANSWER


class Door:
    """a's channel on a loopback port; whatever is asked under /v1/etcd does one thing."""

    def __init__(self, world: World, port: int, held: Held) -> None:
        self._nodes = {name: world.loaded(name) for name in NAMES}
        self._digest = roster.digest(self._nodes[SERVER].roster)
        self._now = world.net.clock.now()
        self._port = port
        self._held = held
        self.pool = ThreadPoolExecutor(2 * len(OTHERS) + 1)

    def hold(self, questions: Iterable[tuple[str, str]]) -> list[Future[str]]:
        """Ask all that at once, each on a connection of its own, until every one is being answered
        or was refused."""
        asked = [self.pool.submit(self.ask, sender, kind) for sender, kind in questions]
        for _ in asked:
            assert self._held.settled.acquire(timeout=PATIENCE)
        return asked

    def serves_others(self) -> bool:
        """Whether the honest member hears its answer in time."""
        heard = self.pool.submit(self.hello, HONEST).result(HONEST_SECONDS)
        return heard.digest == self._digest

    def ask(self, sender: str, kind: str) -> str:
        """How the question ends: `answered`, or the reason of a refusal."""
        request = self._sealed(sender, kind, AskPlace())
        try:
            said = self._post(sender, ETCD_PATH, request)
            envelope.open_reply(said, PlaceAnswer, request=request, member=SERVER)
        except PeerError as error:
            self._held.settled.release()
            return error.reason
        return "answered"

    def hello(self, sender: str) -> HelloAnswer:
        request = self._sealed(sender, HELLO, Hello(digest=self._digest))
        said = self._post(sender, HELLO_PATH, request)
        return envelope.open_reply(said, HelloAnswer, request=request, member=SERVER).body

    def _post(self, sender: str, path: str, request: bytes) -> bytes:
        asker = Asker(self._port, SOURCES[sender])
        try:
            return asker.post(path, request)[1]
        finally:
            asker.close()

    def _sealed(self, sender: str, kind: str, body: object) -> bytes:
        message = Message(
            mesh=self._nodes[sender].mesh,
            sender=self._nodes[sender].key,
            receiver=self._nodes[SERVER].key,
            kind=kind,
            time=self._now,
            nonce=Nonce(f"{next(NUMBERS):032x}"),
            body=codec.to_json(body),
        )
        return envelope.seal_message(message, self._nodes[sender].identity.signing)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    made = World(tmp_path_factory.mktemp("turns"))
    made.mesh(NAMES, mode="cloud")
    return made


@contextmanager
def door(world: World, held: Held, limits: Limits | None = None) -> Iterator[Door]:
    """A channel's process of its own each time; what is held ends with it."""
    host = replace(world.host(SERVER), locks=Flocks(SystemClock(), RecordingConsole()))
    kinds = {name: replace(kind, body=AskPlace, act=held) for name, kind in KINDS.items()}
    doors: Doors = replace(etcd.doors(), etcd=kinds)
    addresses: Mapping[IPv6Address, IPv6Address] = {
        IPv6Address(f"::ffff:{source}"): world.loaded(name).address
        for name, source in SOURCES.items()
    }

    def handle(path: str, source: IPv6Address, body: bytes) -> HttpReply:
        spec = world.spec(SERVER)
        status, said = receive.receive(host, spec, doors, path, addresses[source], body)
        return HttpReply(status=status, body=said)

    with serving(handle, limits or Limits()) as port:
        made = Door(world, port, held)
        try:
            yield made
        finally:
            held.over.set()
            made.pool.shutdown()


@pytest.mark.parametrize("kind", KINDS)
def test_two_who_hold_all_they_may_of_any_kind_keep_nobody_else_waiting(
    kind: str, world: World
) -> None:
    held = Held()
    with door(world, held) as a:
        asked = a.hold([(name, kind) for name in "bc" for _ in range(2)])
        assert a.serves_others()
        held.over.set()
        ends = Counter(one.result() for one in asked)
    most = KINDS[kind].bound.at_once or 4
    assert ends == +Counter({"answered": most, "channel-busy": 4 - most})


def test_whoever_colludes_in_all_that_lasts_there_is_room_for_others(world: World) -> None:
    held = Held()
    lasting = tuple(LASTING)
    sent = [(name, lasting[n % len(lasting)]) for n, name in enumerate(OTHERS + OTHERS)]
    with door(world, held) as a:
        a.hold(sent)
        assert a.serves_others()
        held.over.set()


def test_all_that_lasts_leaves_a_third_of_the_threads() -> None:
    threads = Limits().threads
    lasting = [kind.bound.at_once or 0 for kind in LASTING.values()]
    assert sum(lasting) + (ADMITS.at_once or 0) <= threads - threads // 3
    assert set(LASTING) == {"replace", "report", "give-up"}


def test_what_has_a_pass_run_is_asked_for_no_oftener_than_passes_run() -> None:
    kicking = {name for name, kind in KINDS.items() if kind.bound is KICKS}
    assert kicking == {"cluster", "enroll", "grant", "revoke", "enrolled", "place"}


def test_one_member_alone_does_not_use_up_what_lasts(world: World) -> None:
    held = Held()
    with door(world, held) as a:
        asked = a.hold([("b", "replace"), ("b", "replace"), ("c", "replace")])
        held.over.set()
        assert [one.result() for one in asked][2] == "answered"
        assert sorted(one.result() for one in asked[:2]) == ["answered", "channel-busy"]


def test_who_asks_for_passes_without_end_is_told_to_wait_and_others_are_not(world: World) -> None:
    held = Held()
    held.over.set()
    with door(world, held) as a:
        ends = [a.ask("b", "place") for _ in range(KICKS.rate.burst + 1)]
        assert (ends.pop(), set(ends)) == ("channel-often", {"answered"})
        assert a.ask("b", "probe") == a.ask("c", "place") == "answered"


def test_who_says_hello_without_end_is_told_to_wait_and_others_are_not(world: World) -> None:
    with door(world, Held(), NO_RATE) as a:
        for _ in range(QUICK.rate.burst):
            a.hello("b")
        with pytest.raises(PeerError) as caught:
            a.hello("b")
        assert caught.value.reason == "channel-often"
        assert a.serves_others()
