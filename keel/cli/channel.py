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
from ipaddress import IPv6Address

from keel.cli.compose import compose
from keel.cli.errands import warmed
from keel.errors import KeelError
from keel.mesh import etcd, receive, store
from keel.mesh.firewallrules import invite_range
from keel.mesh.server import ChannelServer, HttpReply, inherited_sockets
from keel.spec import specfile


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
    serving.join()
    return 0


def _load_the_rest() -> None:
    """What answers don't need and a pass does: loaded while nobody waits for it."""
    importlib.import_module("keel.mesh.client")
    importlib.import_module("keel.mesh.etcdclient")
    importlib.import_module("ruamel.yaml")
