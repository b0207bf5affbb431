"""Meshes of many members, simulated: what a sync sends, and how long a status waits.

    python -m tests.scale

Prints both for meshes of 3, 30 and 200, as JSON. Rosters merge by the real code; the members that a
status asks are one process on loopback that answers after two round trips of 250 ms, as over a
fresh connection, with answers that are really signed.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import socket
import statistics
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import IPv6Address
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

from keel import codec
from keel.mesh import envelope, exchange, roster, spread
from keel.mesh.client import HttpChannel
from keel.mesh.envelope import Answered, Message, Reply
from keel.mesh.exchange import HelloAnswer, RosterAnswer, RosterAsk
from keel.mesh.roster import Roster
from keel.system.chance import SystemChance
from keel.system.clock import SystemClock
from keel.types import Nonce, SigningKey
from tests.factories_mesh import Mesh, key, pair

MEMBERS = (3, 30, 200)
TRIP_SECONDS = 0.25
TIMES = 3
FOUNDER = "f"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanged:
    """Two rosters after one exchange, and what it cost on the wire, both ways."""

    mine: Roster
    theirs: Roster
    sent: int
    trips: int


def names(count: int) -> list[str]:
    return [FOUNDER, *(f"m{number}" for number in range(1, count))]


def roster_of(mesh: Mesh, count: int) -> Roster:
    """The founder and whom it admitted, each with its self record."""
    members = names(count)
    admissions = [mesh.admission(FOUNDER, name) for name in members[1:]]
    return mesh.roster(*admissions, *(mesh.said(name) for name in members))


def exchanged(mine: Roster, theirs: Roster) -> Exchanged:
    """One member's sync with another, by messages as they are sealed for the channel."""
    sent, trips = 0, 0
    ask: RosterAsk | None = exchange.opening(mine)
    while ask is not None:
        theirs = roster.merge(theirs, ask.records).roster
        answer = exchange.reply_to(theirs, ask)
        sent += len(sealed_ask(mine, ask)) + len(sealed_answer(mine, answer))
        trips += 1
        mine = roster.merge(mine, answer.records).roster
        ask = exchange.next_ask(mine, answer)
    return Exchanged(mine=mine, theirs=theirs, sent=sent, trips=trips)


def sealed_ask(mine: Roster, ask: RosterAsk) -> bytes:
    message = Message(
        mesh=mine.mesh,
        sender=key(FOUNDER),
        receiver=key("m1"),
        kind=exchange.ROSTER,
        time=datetime.now(UTC),
        nonce=Nonce("ab" * 16),
        body=codec.to_json(ask),
    )
    return envelope.seal_message(message, pair(FOUNDER))


def sealed_answer(mine: Roster, answer: RosterAnswer) -> bytes:
    reply = Reply(
        mesh=mine.mesh,
        sender=key("m1"),
        receiver=key(FOUNDER),
        kind=exchange.ROSTER,
        time=datetime.now(UTC),
        request="ab" * 32,
        body=codec.to_json(answer),
    )
    return envelope.seal_reply(reply, pair("m1"))


def sync_sizes(count: int) -> dict[str, int]:
    """Bytes between two members: when nothing changed, when one of them knows one more record, and
    when it is the other that knows it."""
    mesh = Mesh()
    held = roster_of(mesh, count)
    newer = roster.merge(held, [mesh.said("m1", counter=2)]).roster
    return {
        "nothing": exchanged(held, held).sent,
        "told": exchanged(newer, held).sent,
        "learned": exchanged(held, newer).sent,
    }


def status_seconds(count: int) -> tuple[float, float]:
    """Wall and CPU seconds of asking every other member for a signed answer, as status does."""
    ready, child = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_answer_all, args=(count, child), daemon=True)
    process.start()
    port = ready.recv()
    try:
        taken = [_ask_all(count, port) for _ in range(TIMES)]
    finally:
        process.terminate()
        process.join()
    wall, cpu = (statistics.median(column) for column in zip(*taken, strict=True))
    return wall, cpu


def _ask_all(count: int, port: int) -> tuple[float, float]:
    mesh = Mesh()
    channel = HttpChannel(SystemClock(), port=port)
    host: Any = SimpleNamespace(channel=channel, clock=SystemClock(), chance=SystemChance())
    node: Any = SimpleNamespace(
        mesh=mesh.id,
        key=key(FOUNDER),
        identity=SimpleNamespace(signing=pair(FOUNDER)),
        roster=mesh.empty,
    )
    asked = [_member(name, number) for number, name in enumerate(names(count)[1:])]
    begun, cpu = time.monotonic(), time.process_time()
    answers = spread.ping(host, node, asked)
    took = time.monotonic() - begun, time.process_time() - cpu
    silent = [one for one in answers.values() if not isinstance(one, Answered)]
    if silent:
        raise AssertionError(f"{len(silent)} did not answer: {silent[0]}")
    channel.close()
    return took


@dataclass(frozen=True)
class _Asked:
    """All that asking needs of a member."""

    key: SigningKey
    address: IPv6Address
    display: str


def _member(name: str, number: int) -> Any:
    return _Asked(key=key(name), address=_address(number), display=name)


def _address(number: int) -> IPv6Address:
    return IPv6Address(f"::ffff:127.0.{1 + number // 250}.{1 + number % 250}")


def _answer_all(count: int, told: Connection) -> None:
    """Every member but the asking one, told apart by the address that was asked."""
    mesh = Mesh()
    named = {_address(number): name for number, name in enumerate(names(count)[1:])}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        request = await reader.readexactly(size)
        await asyncio.sleep(2 * TRIP_SECONDS)
        name = named[IPv6Address(writer.get_extra_info("sockname")[0])]
        body = codec.to_json(HelloAnswer(digest="ab" * 16))
        reply = Reply(
            mesh=mesh.id,
            sender=key(name),
            receiver=key(FOUNDER),
            kind=exchange.HELLO,
            time=datetime.now(UTC),
            request=envelope.message_hash(request),
            body=body,
        )
        raw = envelope.seal_reply(reply, pair(name))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(raw) + raw)
        await writer.drain()
        writer.close()

    async def run() -> None:
        listener = socket.create_server(
            ("::", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=512
        )
        server = await asyncio.start_server(serve, sock=listener)
        told.send(listener.getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


def main() -> None:
    found = {}
    for count in MEMBERS:
        wall, cpu = status_seconds(count)
        found[count] = {**sync_sizes(count), "status": round(wall, 2), "cpu": round(cpu, 2)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
