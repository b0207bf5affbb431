"""The members' channel as systemd runs it: /usr/libexec/keel/channel, on the sockets it is given.

With keel.cli.compose one of the places that join adapters and flows. It answers strangers, so it
may do little: what a message sets off is done by keel-passes.service, which is told a word.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from ipaddress import IPv6Address

from keel.cli.compose import compose, load_the_rest
from keel.errors import KeelError
from keel.gauge import Passes
from keel.mesh import etcd, passes, passmsg, receive, store
from keel.mesh.etcdids import PEER_PORT
from keel.mesh.firewallrules import invite_range
from keel.mesh.passmsg import Ask
from keel.mesh.server import ChannelServer, HttpReply, inherited_sockets
from keel.ports import Host
from keel.spec import specfile
from keel.system import deadtcp
from keel.system.deadtcp import Connection
from keel.system.passes import KickedUnits, PassesSocket

log = logging.getLogger(__name__)

WATCH_SECONDS = 2.0
"""Between two looks at the kernel's table, which cost next to nothing."""


def run() -> int:
    """Serve until SIGTERM; the exit status."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    host = compose(verbose=False, stderr=sys.stderr)
    try:
        node = store.require(host)
    except KeelError as error:
        sys.stderr.write(f"keel: error: {error.summary()}\nkeel: hint: {error.remedy()}\n")
        return int(error.exit)
    host = narrowed(host, PassesSocket(host.paths.passes_socket))
    doors = etcd.doors()

    def handle(path: str, source: IPv6Address, body: bytes) -> HttpReply:
        status, answer = receive.receive(host, specfile.load(host), doors, path, source, body)
        return HttpReply(status=status, body=answer)

    server = ChannelServer(
        inherited_sockets(os.environ), handle, clock=host.clock, temporary=invite_range(node.prefix)
    )
    serving = threading.Thread(target=server.run, name="channel")
    signal.signal(signal.SIGTERM, lambda *_: server.stop())
    serving.start()
    host.passes(Ask.READY)
    load_the_rest()
    watch(serving, lambda: deadtcp.end_dead(host.proc, node.prefix, PEER_PORT))
    return 0


def watch(
    serving: threading.Thread,
    end_dead: Callable[[], Iterable[Connection]],
    *,
    every: float = WATCH_SECONDS,
) -> None:
    """Until it serves no more: etcd's dead connections are ended, so that it dials again before
    the path is back and not after. What keeps it from looking is said once, until it can again."""
    told = False
    while serving.is_alive():
        serving.join(every)
        try:
            ended = tuple(end_dead())
        except KeelError as error:
            if not told:
                log.warning("etcd's dead connections are not looked for: %s", error.summary())
            told = True
            continue
        told = False
        for one in ended:
            log.info("etcd's connection with %s was dead: ended, it dials again", one.remote)


def narrowed(host: Host, say: Passes) -> Host:
    """The same host as the channel's process has it: it asks another one for what needs systemd,
    or a look into etcd's directories. `say` gives the raw answer of a word that has one."""

    def ask(word: str) -> bytes:
        raw = say(word)
        return passmsg.open_answer(raw) if word in passmsg.ANSWERED else raw

    return replace(host, units=KickedUnits(ask, passes.KICKS), passes=ask)
