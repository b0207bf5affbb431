"""The tree of errors: each has a stable code, an exit code, and a remedy that a person can type.

An error is raised when a flow cannot go on; what is merely not there yet is an outcome (see
keel.outcome). `summary()` says what is wrong in one lower-case sentence without a final period;
`remedy()` says what to do, naming the command. The command line prints both and exits with
`exit`; the channel answers with `http` and `code`. A test walks the tree: codes are unique,
remedies are not empty, and docs/mesh.md has an anchor for every code.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from datetime import datetime
from enum import IntEnum
from pathlib import Path
from typing import ClassVar


class Exit(IntEnum):
    """What a command's exit status means (design section 6)."""

    DONE = 0
    DIFFERS = 1
    USAGE = 2
    REFUSED = 3
    INCOMPLETE = 4
    LOCKED = 5
    INTERNAL = 70
    NOT_ROOT = 77


class KeelError(Exception):
    """The root of the tree; never raised itself."""

    code: ClassVar[str] = "keel"
    exit: ClassVar[Exit] = Exit.INTERNAL
    http: ClassVar[int] = 500
    for_others: ClassVar[str | None] = "it failed, for a reason that is its own"
    """What another node is told of it: paths and other programs' words are this node's own
    business. None where the summary says nothing of these."""
    for_others_remedy: ClassVar[str | None] = None
    """What another node may do about it, where it is more than to look into this one's journal."""

    def summary(self) -> str:
        return self.code

    def remedy(self) -> str:
        return "look at `keel mesh status`"

    def __str__(self) -> str:
        return f"{self.summary()} ({self.code})"


class UsageError(KeelError):
    """The command line does not make sense."""

    code = "usage"
    exit = Exit.USAGE
    http = 400

    def __init__(self, problem: str, *, command: str = "keel", meant: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.command = command
        self.meant = meant

    def summary(self) -> str:
        return self.problem

    def remedy(self) -> str:
        guess = f"did you mean `{self.meant}`? otherwise " if self.meant else ""
        return f"{guess}see `{self.command} --help`"


class OutputLost(KeelError):
    """What the command had to say could not be written: a full disk, a closed file."""

    code = "output-lost"
    exit = Exit.INCOMPLETE

    def __init__(self, error_number: int) -> None:
        super().__init__(error_number)
        self.error_number = error_number

    def summary(self) -> str:
        return f"standard output takes nothing: {os.strerror(self.error_number).lower()}"

    def remedy(self) -> str:
        return "what was done stays done; run the same command again with an output that works"


class NotRoot(KeelError):
    """A command that touches the machine was started without being root."""

    code = "not-root"
    exit = Exit.NOT_ROOT
    http = 403

    def summary(self) -> str:
        return "this command needs root"

    def remedy(self) -> str:
        return "run it again as root, for instance with sudo"


class SpecError(KeelError):
    """The operator's spec is not valid; `where` is the dotted path of the bad value."""

    code = "spec-invalid"
    exit = Exit.USAGE
    http = 400
    for_others = "its spec cannot be read"

    def __init__(self, where: str, problem: str, *, file: Path | None = None) -> None:
        super().__init__(where, problem)
        self.where = where
        self.problem = problem
        self.file = file

    def summary(self) -> str:
        place = f"{self.file}: " if self.file else ""
        return f"{place}{self.where}: {self.problem}" if self.where else f"{place}{self.problem}"

    def remedy(self) -> str:
        return "mend the spec, then run `keel spec check`"


class Refused(KeelError):
    """A rule forbids it and nothing was changed; `rule` is the stable reason within this code."""

    code = "refused"
    exit = Exit.REFUSED
    http = 409
    for_others = None

    def __init__(self, rule: str, text: str, remedy: str) -> None:
        super().__init__(rule, text)
        self.rule = rule
        self.text = text
        self._remedy = remedy

    def summary(self) -> str:
        return self.text

    def remedy(self) -> str:
        return self._remedy


class BadValue(KeelError):
    """A value that came from outside does not parse; `path` leads to it inside its document."""

    code = "bad-value"
    exit = Exit.REFUSED
    http = 400
    for_others = None

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path = ascii(path)[1:-1]  # a stranger's keys stand in it
        self.problem = problem

    def summary(self) -> str:
        return f"{self.path or 'value'}: {self.problem}"

    def remedy(self) -> str:
        return "ask its sender for it again; both sides should run the same version of keel"


class BadSignature(KeelError):
    """A signature, a MAC or an envelope does not verify."""

    code = "bad-signature"
    exit = Exit.REFUSED
    http = 403
    for_others = None

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def summary(self) -> str:
        return f"{self.what} does not verify"

    def remedy(self) -> str:
        return "do not use it; get it again from the node that made it"


class PkiRejected(KeelError):
    """A certificate, request or CRL breaks the profile: the check, what it got, what it wanted."""

    code = "pki-rejected"
    exit = Exit.REFUSED
    http = 403
    for_others = None

    def __init__(self, check: str, *, got: str, expected: str) -> None:
        super().__init__(check, got, expected)
        self.check = check
        self.got = got
        self.expected = expected

    def summary(self) -> str:
        return f"certificate check {self.check}: got {self.got}, expected {self.expected}"

    def remedy(self) -> str:
        return "keep the old one in use and look at `keel mesh status`; it names the holder to ask"


class PeerError(KeelError):
    """A member answered wrongly, refused, or did not answer. `said_at`: its own clock, when it
    signed the refusal: it lives."""

    code = "peer"
    exit = Exit.INCOMPLETE
    http = 502
    for_others = None

    def __init__(
        self,
        member: str,
        reason: str,
        text: str,
        *,
        remedy: str = "",
        said_at: datetime | None = None,
    ) -> None:
        super().__init__(member, reason, text)
        self.said_at = said_at
        self.member = member
        self.reason = reason
        self.text = text
        self._remedy = remedy

    def summary(self) -> str:
        return f"{self.member}: {self.text}"

    def remedy(self) -> str:
        return self._remedy or f"look at `keel mesh status` on {self.member}, then run this again"


class EtcdError(KeelError):
    """etcd's gateway answered with an error, or not at all (grpc status code, etcd's own words)."""

    code = "etcd"
    exit = Exit.INCOMPLETE
    http = 502
    for_others = None

    def __init__(self, grpc_code: int, message: str) -> None:
        super().__init__(grpc_code, message)
        self.grpc_code = grpc_code
        self.message = "".join(char if char.isprintable() else "?" for char in message)

    def summary(self) -> str:
        return f"etcd says: {self.message}"

    def remedy(self) -> str:
        return "look at `keel mesh etcd status` and `journalctl -u etcd`; the timer tries again"


class AlertFailed(KeelError):
    """A channel of the monitor did not take a message."""

    code = "alert-failed"
    exit = Exit.INCOMPLETE

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    def summary(self) -> str:
        return f"an alert was not taken: {self.problem}"

    def remedy(self) -> str:
        return "see monitor.channels in the spec; `keel mesh etcd alert --test` tries each"


class ProcFailed(KeelError):
    """Another program failed; its last words are kept."""

    code = "program-failed"
    for_others = "a program on it failed"

    def __init__(self, argv: Sequence[str], returncode: int, stderr_tail: str) -> None:
        super().__init__(tuple(argv), returncode)
        self.argv = tuple(argv)
        self.returncode = returncode
        self.stderr_tail = stderr_tail

    def summary(self) -> str:
        said = self.stderr_tail.strip().splitlines()
        how = f"signal {-self.returncode}" if self.returncode < 0 else f"status {self.returncode}"
        return f"{self.argv[0]} ended with {how}" + (f": {said[-1]}" if said else "")

    def remedy(self) -> str:
        return f"try it by hand: `{' '.join(self.argv)}`"


class PortTaken(KeelError):
    """Another program has WireGuard's UDP port. What was begun is on disk, and is gone on with."""

    code = "port-taken"
    exit = Exit.INCOMPLETE

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.port = port

    def summary(self) -> str:
        return f"another program has UDP port {self.port}"

    def remedy(self) -> str:
        return (
            f"`ss -lunp 'sport = :{self.port}'` names it: stop it, or choose another port in the"
            " spec: network.wireguard.port; then run the same command again"
        )


class StateCorrupt(KeelError):
    """A file of keel's own state cannot be read; keel never takes it for an empty one."""

    code = "state-corrupt"
    exit = Exit.REFUSED
    for_others = "a file of its state cannot be read"

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(path, problem)
        self.path = path
        self.problem = problem

    def summary(self) -> str:
        return f"{self.path}: {self.problem}"

    def remedy(self) -> str:
        return (
            f"put {self.path} back from a backup; if there is none, move /var/lib/keel/mesh and"
            " /var/lib/keel/etcd away and `keel mesh join` again with a new invite"
        )


class DiskTrouble(KeelError):
    """The file system would not do what keel asked: full, read-only, not permitted, broken."""

    code = "disk-trouble"
    exit = Exit.INCOMPLETE
    for_others = "its disk does not do what keel asked"

    def __init__(self, path: Path, error_number: int) -> None:
        super().__init__(path, error_number)
        self.path = path
        self.error_number = error_number

    def summary(self) -> str:
        return f"{self.path}: {os.strerror(self.error_number).lower()}"

    def remedy(self) -> str:
        match self.error_number:
            case errno.ENOSPC | errno.EDQUOT:
                return f"make room (`df -h {self.path.parent}`), then run the same command again"
            case errno.EROFS:
                return (
                    f"see why it is read-only (`findmnt -T {self.path.parent}`), then run it again"
                )
            case errno.EACCES | errno.EPERM:
                return f"look at the rights (`namei -l {self.path}`); keel's state belongs to root"
            case _:
                return (
                    f"look at `namei -l {self.path}` and `dmesg`, then run the same command again"
                )


class LockHeld(KeelError):
    """Another keel is changing this node."""

    code = "locked"
    exit = Exit.LOCKED
    http = 503
    for_others = "another command is at work on it"
    """A process's number means nothing elsewhere."""
    for_others_remedy = "try again in a moment"

    def __init__(self, pid: int | None, what: str) -> None:
        super().__init__(pid, what)
        self.pid = pid
        self.what = what

    def summary(self) -> str:
        by = f"process {self.pid}" if self.pid else "another process"
        return f"{self.what} is held by {by}"

    def remedy(self) -> str:
        return "wait until it is done, then run this again"


class DeadlinePassed(KeelError):
    """The time that was given to an operation is over."""

    code = "deadline"
    exit = Exit.INCOMPLETE
    http = 504
    for_others = None

    def __init__(self, what: str, waiting_for: str) -> None:
        super().__init__(what, waiting_for)
        self.what = what
        self.waiting_for = waiting_for

    def summary(self) -> str:
        return f"{self.what} took too long; still waiting for {self.waiting_for}"

    def remedy(self) -> str:
        return "run the same command again; it goes on where it stopped"


class Internal(KeelError):
    """A promise inside keel was broken: a bug."""

    code = "internal"
    for_others = "a bug in keel"

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    def summary(self) -> str:
        return f"a bug in keel: {self.problem}"

    def remedy(self) -> str:
        return "report it with the output of the same command and -v"
