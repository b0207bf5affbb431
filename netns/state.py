"""What a running lab remembers between two verbs: one JSON file per instance, on the machine's
/run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from netns.link import Pair
from netns.topology import Family, Mode, Name, Quality

BASE = Path("/run/keel-lab")


@dataclass(slots=True, kw_only=True)
class State:
    """One lab instance. `anchor_started` tells the anchor from a later process of the same PID."""

    anchor_pid: int
    anchor_started: str
    members: list[Name]
    layers: list[Path]
    backend: str
    seed: int
    mode: Mode
    family: Family
    hosts: dict[Name, int] = field(default_factory=dict)
    qualities: dict[Pair, Quality] = field(default_factory=dict)


def directory(instance: str) -> Path:
    return BASE / instance


def encode(state: State) -> str:
    """The file's text."""
    record = dataclasses.asdict(state)
    record["layers"] = [str(layer) for layer in state.layers]
    record["qualities"] = [[*pair, dataclasses.asdict(q)] for pair, q in state.qualities.items()]
    return json.dumps(record, indent=1) + "\n"


def decode(text: str) -> State:
    """The state of a file's text; the opposite of `encode`."""
    record = json.loads(text)
    record["layers"] = [Path(layer) for layer in record["layers"]]
    record["qualities"] = {(a, b): Quality(**quality) for a, b, quality in record["qualities"]}
    record["mode"] = Mode(record["mode"])
    record["family"] = Family(record["family"])
    return State(**record)


def read(instance: str) -> State | None:
    """The instance's state, None when there is none, whether or not its anchor lives."""
    try:
        return decode((directory(instance) / "state.json").read_text())
    except FileNotFoundError:
        return None


def write(instance: str, state: State) -> None:
    target = directory(instance) / "state.json"
    temporary = target.with_suffix(".new")
    temporary.write_text(encode(state))
    temporary.rename(target)


def started(pid: int) -> str:
    """When a process began, in the kernel's ticks; empty when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except (FileNotFoundError, ProcessLookupError):  # the latter when it ends in this moment
        return ""


def alive(state: State) -> bool:
    return bool(started(state.anchor_pid)) and started(state.anchor_pid) == state.anchor_started


@contextlib.contextmanager
def locked(instance: str) -> Iterator[None]:
    """One verb at a time per instance."""
    descriptor = _lock(instance)
    try:
        yield
    finally:
        os.close(descriptor)


def forget(instance: str) -> None:
    """Remove everything of the instance but what runs; the last act of who holds its lock."""
    shutil.rmtree(directory(instance), ignore_errors=True)
    _lock_path(instance).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # another lab is there
        BASE.rmdir()


def _lock(instance: str) -> int:
    """A descriptor that holds the lock; tries again when `forget` has removed the file."""
    path = _lock_path(instance)
    while True:
        with contextlib.suppress(FileNotFoundError, FileExistsError):  # `forget` at this moment
            BASE.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_file(descriptor, path):
                return descriptor
            os.close(descriptor)


def _is_file(descriptor: int, path: Path) -> bool:
    """Never raises: a descriptor that is lost here would hold its lock for ever."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _lock_path(instance: str) -> Path:
    return BASE / f".{instance}.lock"
