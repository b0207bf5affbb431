"""Files replaced under a real etcd that serves handshakes all the while: none is refused (E4, E5).

Whoever replaces is killed in the middle of it, again and again, by the way keel writes; the leaf is
renewed in between, with a new key, and etcd shows it without a restart.
"""

from __future__ import annotations

import http.client
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from keel.mesh.etcdcert import der
from keel.mesh.etcdcrl import new_crl
from keel.mesh.etcdpki import Credential, encode_credential, member_leaf
from keel.system.fs import DurableFiles
from netns.etcd.cluster import NOW, Member, Network, address, from_inside, until
from netns.process import SHORT_PATIENCE_SECONDS
from tests.pki import make as pki

REPLACEMENTS = int(os.environ.get("KEEL_REPLACEMENTS", "20"))
A_SECOND = 50
AT_ONCE = 4
"""Clients that share the pace, so that a slow answer does not lower it."""
EACH = A_SECOND
"""Handshakes between two replacements: a second's worth of them, however long they take on a busy
machine. It is a count, so that no clock decides; the pace that was kept is printed."""
KILLED_AFTER = (0.0, 0.001, 0.002, 0.004, 0.008, 0.016)
"""Seconds into the writing, one after another: between any two of its system calls."""

WRITER = """
import sys
from pathlib import Path
from keel.system.fs import DurableFiles
files, path, data = DurableFiles(), Path(sys.argv[1]), Path(sys.argv[2]).read_bytes()
print("ready", flush=True)
while True:
    files.write(path, data)
"""


@dataclass
class Handshakes:
    """Fresh connections to one member's client port, each with a request and its answer."""

    answers: list[str] = field(default_factory=list)
    """Each one's, empty when it was as it should be."""

    @property
    def made(self) -> int:
        return len(self.answers)

    @property
    def refused(self) -> list[str]:
        return [said for said in self.answers if said]


@contextmanager
def handshakes(member: Member) -> Iterator[Handshakes]:
    counted, stopped = Handshakes(), threading.Event()
    context = ssl.create_default_context(cafile=member.files.trust)
    context.load_cert_chain(member.files.client)

    def once() -> str:
        connection = http.client.HTTPSConnection(
            member.address.compressed, 2379, timeout=SHORT_PATIENCE_SECONDS, context=context
        )
        try:
            connection.request("GET", "/version")
            answer = connection.getresponse()
            return "" if answer.status == http.client.OK else f"status {answer.status}"
        except (OSError, http.client.HTTPException) as error:
            return f"{type(error).__name__}: {error}"
        finally:
            connection.close()

    def run() -> None:
        due = time.monotonic()
        while not stopped.is_set():
            counted.answers.append(once())
            due = max(due + AT_ONCE / A_SECOND, time.monotonic() - 1)
            stopped.wait(max(0.0, due - time.monotonic()))

    threads = [
        threading.Thread(target=from_inside, args=(member, run), daemon=True)
        for _ in range(AT_ONCE)
    ]
    for thread in threads:
        thread.start()
    yield counted
    stopped.set()
    for thread in threads:
        thread.join(SHORT_PATIENCE_SECONDS)


def replace_with_kill(path: Path, data: bytes, after_seconds: float) -> None:
    """A process writes the file over and over and is killed; then the next pass writes it."""
    wanted = path.with_name("wanted")
    wanted.write_bytes(data)
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(wanted)], stdout=subprocess.PIPE
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == b"ready\n"
    time.sleep(after_seconds)
    writer.send_signal(signal.SIGKILL)
    assert writer.wait(SHORT_PATIENCE_SECONDS) == -signal.SIGKILL
    writer.stdout.close()
    DurableFiles().write(path, data)


def renewed(number: int) -> Credential:
    under = pki.intermediate(pki.root(now=NOW), address=address("a"), now=NOW)
    key = pki.key(f"renewed {number}")
    serial = pki.serial(f"renewed {number}")
    leaf = member_leaf(under, key=key, address=address("a"), serial=serial, now=NOW)
    return Credential(leaf=leaf, chain=(under.certificate,), key=key)


def made(counted: Handshakes, number: int) -> bool:
    return counted.made >= number


def test_no_handshake_is_refused_while_crl_and_leaf_are_replaced_with_kills(born: Network) -> None:
    a = born.members["a"]
    process = a.process
    born.client("a").put(b"key", b"value")
    begun = time.monotonic()
    with handshakes(a) as counted:
        for number in range(REPLACEMENTS):
            crl = new_crl(born.root, (), number=number + 2, now=NOW)
            replace_with_kill(a.scratch / "crl.der", crl, KILLED_AFTER[number % 6])
            until(partial(made, counted, EACH * (number + 1)))
            if number % 5 == 0:
                credential = renewed(number)
                data = encode_credential(credential).reveal()
                replace_with_kill(a.files.member, data, KILLED_AFTER[(number // 5) % 6])
                shown = from_inside(a, born.client("a").served)
                assert set(shown) == {der(credential.leaf)}
    pace = counted.made / (time.monotonic() - begun)
    print(f"{counted.made} handshakes, {pace:.0f} a second, {REPLACEMENTS} CRLs and")
    print(f"{-(-REPLACEMENTS // 5)} leaves replaced, {len(counted.refused)} refused")
    assert counted.refused == []
    assert a.process is process
    assert process is not None
    assert process.poll() is None
    assert born.client("b").get(b"key") == b"value"
