"""The members' channel as systemd runs it: /usr/libexec/keel/channel, on the sockets it is given.

With keel.cli.compose the one place that joins adapters and flows.
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from ipaddress import IPv6Address

from keel.cli.compose import compose
from keel.cli.errands import warmed
from keel.errors import KeelError
from keel.mesh import etcd, receive, store
from keel.mesh.etcdids import PEER_PORT
from keel.mesh.firewallrules import invite_range
from keel.mesh.server import ChannelServer, HttpReply, inherited_sockets
from keel.spec import specfile
from keel.system import deadtcp
from keel.system.deadtcp import Connection

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
    host = warmed(host)
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
    _load_the_rest()
    watch(serving, lambda: deadtcp.end_dead(host.proc, node.prefix, PEER_PORT))
    return 0


def watch(
    serving: threading.Thread,
    end_dead: Callable[[], Iterable[Connection]],
    *,
    every: float = WATCH_SECONDS,
) -> None:
    """Until it serves no more: etcd's dead connections are ended, so that it dials again before
    the path is back and not after."""
    while serving.is_alive():
        serving.join(every)
        try:
            ended = tuple(end_dead())
        except KeelError as error:
            log.warning("etcd's dead connections are not looked for: %s", error.summary())
            continue
        for one in ended:
            log.info("etcd's connection with %s was dead: ended, it dials again", one.remote)


def _load_the_rest() -> None:
    """What answers don't need and a pass does: loaded while nobody waits for it."""
    importlib.import_module("keel.mesh.client")
    importlib.import_module("keel.mesh.etcdclient")
    importlib.import_module("ruamel.yaml")
