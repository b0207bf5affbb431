"""The one door to other programs.

Argument lists only; a clean environment; stdin is /dev/null unless given; output and time are
bounded; when a program ends, or its time is over, all that it started in its process group is
killed with it. Secrets go by stdin: an argv is logged, and anyone can read it with `ps`.
"""

from __future__ import annotations

import logging
import os
import selectors
import shlex
import signal
import subprocess
import time
from collections.abc import Sequence
from io import IOBase

from keel.errors import DeadlinePassed, Internal, ProcFailed
from keel.ports import Completed

MAX_OUTPUT_BYTES = 4 << 20
"""More than `ip -j` says of a thousand links; what comes after it is thrown away."""
TAIL_BYTES = 2000
NOT_EXECUTABLE = 126
NOT_FOUND = 127

ENVIRONMENT = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    # Debian's etcd has an init script, too; its tool would load systemd's units anew four times.
    "SYSTEMCTL_SKIP_SYSV": "1",
}

log = logging.getLogger(__name__)


class Programs:
    """keel.ports.Proc. A program that ran out of time is DeadlinePassed, whatever `check` says."""

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout_seconds: float = 30.0,
        check: bool = True,
    ) -> Completed:
        if isinstance(argv, str) or not argv:
            raise Internal("a program is started from a list of arguments")
        log.debug("+ %s%s", shlex.join(argv), " < (hidden)" if stdin else "")
        done = _run(argv, stdin, timeout_seconds)
        if check and done.returncode != 0:
            tail = done.stderr[-TAIL_BYTES:].decode("utf-8", "replace").strip()
            raise ProcFailed(argv, done.returncode, tail)
        return done


def _run(argv: Sequence[str], stdin: bytes, timeout_seconds: float) -> Completed:
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
            cwd="/",
            start_new_session=True,
        )
    except FileNotFoundError:
        return Completed(returncode=NOT_FOUND, stdout=b"", stderr=b"not found")
    except OSError as error:
        return Completed(returncode=NOT_EXECUTABLE, stdout=b"", stderr=str(error.strerror).encode())
    with process:
        talk = _Talk(process, stdin)
        try:
            ended = talk.until(time.monotonic() + timeout_seconds)
        finally:
            # Not waited for yet, so the number still names this group and no other.
            os.killpg(process.pid, signal.SIGKILL)
            talk.close()
            process.wait()
    if not ended:
        raise DeadlinePassed(shlex.join(argv), "its end")
    return Completed(
        returncode=process.returncode, stdout=bytes(talk.stdout), stderr=bytes(talk.stderr)
    )


class _Talk:
    """Feeds stdin and reads both outputs until the program itself ends, however long something it
    left behind keeps the pipes open."""

    def __init__(self, process: subprocess.Popen[bytes], stdin: bytes) -> None:
        self.stdout = bytearray()
        self.stderr = bytearray()
        self._left = memoryview(stdin)
        self._ended = os.pidfd_open(process.pid)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._ended, selectors.EVENT_READ)
        self._outputs: dict[int, bytearray] = {}
        for output, kept in ((process.stdout, self.stdout), (process.stderr, self.stderr)):
            if output is not None:
                os.set_blocking(output.fileno(), False)
                self._selector.register(output.fileno(), selectors.EVENT_READ)
                self._outputs[output.fileno()] = kept
        if process.stdin is not None:
            os.set_blocking(process.stdin.fileno(), False)
            self._selector.register(process.stdin, selectors.EVENT_WRITE)

    def until(self, deadline: float) -> bool:
        """Whether the program ended by itself before that moment."""
        while (left := deadline - time.monotonic()) > 0:
            for key, _ in self._selector.select(left):
                if key.fd == self._ended:
                    for descriptor in self._outputs:
                        while self._read(descriptor):
                            pass
                    return True
                if isinstance(key.fileobj, IOBase):
                    self._feed(key.fileobj)
                elif not self._read(key.fd):
                    self._selector.unregister(key.fd)
        return False

    def close(self) -> None:
        self._selector.close()
        os.close(self._ended)

    def _read(self, descriptor: int) -> bool:
        """Take what is there; False at the end or when there is nothing now."""
        try:
            data = os.read(descriptor, 65536)
        except BlockingIOError:
            return False
        kept = self._outputs[descriptor]
        kept += data[: MAX_OUTPUT_BYTES - len(kept)]
        return bool(data)

    def _feed(self, stdin: IOBase) -> None:
        try:
            self._left = self._left[os.write(stdin.fileno(), self._left[:4096]) :]
        except BrokenPipeError:
            self._left = self._left[:0]
        if not self._left:
            self._selector.unregister(stdin)
            stdin.close()
