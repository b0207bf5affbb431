"""Kill tests: one arrangement, then a process of its own for every point at which a node may die.

A `Story` is arranged once. For each point of its clean run the test process is forked, the fork
lets the victim die exactly there, brings it back, lets operators and timers go on, and looks at the
end; the disks are put back before the next. So every point starts from the same bytes, keys and
clocks. A point that was not hit is a failure.
"""

from __future__ import annotations

import os
import pickle
import re
import shutil
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import NamedTuple, TypeVar

from keel.errors import KeelError
from tests.fakes import CrashPoint, DiskModel, Effects, FakeNode, Unsynced, crash_points
from tests.fakes.effects import Crash
from tests.fakes.host import VOLATILE
from tests.flow.world import World

T = TypeVar("T")


class Revival(Enum):
    """How the victim comes back."""

    PROCESS = "a new process"
    """kill -9 of keel alone: interface, units and /run are as they were."""
    POWER = "a power cycle"
    CUT = "a power cut"
    """As a power cycle, and no name and no byte is there that had not been synced."""


@dataclass(frozen=True)
class Story:
    """`act` is what the victim dies in; `finish` is the same command again and what timers do;
    `holds` demands the end, which is the same as without a death."""

    arrange: Callable[[Path], World]
    act: Callable[[World], object]
    finish: Callable[[World], object]
    holds: Callable[[World], object]
    victim: str
    at_least: int
    """How many points there are at the least: the test cannot shrink unnoticed."""


class Tally(NamedTuple):
    """How many points of how many the victim died at, and how it came back."""

    revival: str
    died_at: int
    points: int


def kill_everywhere(
    story: Story, scratch: Path, revivals: Sequence[Revival], *, sample: int | None
) -> list[Tally]:
    """Let the victim die at every point, or at about so many, evenly spread, and come back in each
    of these ways. AssertionError with every point that did not come to the same end."""
    world = story.arrange(scratch / "disks")
    shutil.copytree(scratch / "disks", scratch / "pristine", symlinks=True)
    points = forked(lambda: list(crash_points(_clean(story, world))))
    assert len(points) >= story.at_least, f"{len(points)} points, {story.at_least} were expected"
    failures = []
    tallies = []
    for revival in revivals:
        chosen = (near_disk if revival is Revival.CUT else distinct)(points)
        if sample is not None:
            step = max(1, len(chosen) // sample)
            chosen = chosen[step // 2 :: step]
        for point in chosen:
            shutil.rmtree(scratch / "disks")
            shutil.copytree(scratch / "pristine", scratch / "disks", symlinks=True)
            found = forked(lambda at=point, how=revival: _die_and_go_on(story, world, at, how))
            failures += [f"{revival.value} at {text}" for text in found]
        tallies.append(Tally(revival.value, len(chosen), len(points)))
    assert not failures, f"{len(failures)}:\n" + "\n".join(failures)
    return tallies


def distinct(points: list[CrashPoint]) -> list[CrashPoint]:
    """Without those at which the world is as it was one point before: what came in between was a
    lock, which dies with its process, or an fsync, which only a power cut shows."""
    before = [None, *points]
    return [
        point
        for point, last in zip(points, before, strict=False)
        if last is None or not last.text.startswith(("lock ", "disk sync_"))
    ]


def near_disk(points: list[CrashPoint]) -> list[CrashPoint]:
    """Those just before or just after the disk was written to."""
    before = [CrashPoint(-1, ""), *points]
    return [
        point
        for point, last in zip(points, before, strict=False)
        if point.text.startswith("disk ") or last.text.startswith("disk ")
    ]


def _clean(story: Story, world: World) -> Effects:
    victim = world.net.nodes[story.victim]
    victim.new_life()
    story.act(world)
    effects = Effects(done=list(victim.effects.done))
    story.finish(world)
    story.holds(world)
    return effects


def _die_and_go_on(story: Story, world: World, point: CrashPoint, revival: Revival) -> list[str]:
    victim = world.net.nodes[story.victim]
    victim.new_life()
    victim.effects.crash_at = point.number
    durable, traced = DiskModel(victim.root), len(victim.disk.trace)
    try:
        tolerate(lambda: story.act(world))
        if _shape(victim.effects.crashed_before or "") != _shape(point.text):
            return [f"{point}: not hit, but {victim.effects.crashed_before}"]
        if revival is Revival.CUT:
            for step in victim.disk.trace[traced:]:
                durable.apply(step)
            _put_back(victim, durable)
        _revive(world, victim, revival)
        story.finish(world)
        story.holds(world)
    except (Exception, Crash):
        return [f"{point}:\n{traceback.format_exc(limit=-6)}"]
    return []


def _shape(text: str) -> str:
    """The point without hashes: a record of the etcd root is named by one that ECDSA makes
    another each time."""
    return re.sub(r"[0-9a-f]{64}", "#", text)


def _revive(world: World, victim: FakeNode, revival: Revival) -> None:
    match revival:
        case Revival.PROCESS:
            victim.new_life()
        case Revival.POWER | Revival.CUT:
            world.boot(victim.name)


def _put_back(victim: FakeNode, durable: DiskModel) -> None:
    """The victim's disk without what was not synced. Etcd's data is etcd's own matter."""
    image = durable.write_image(victim.root.with_name("image"), Unsynced.DROPPED)
    data = victim.paths.etcd_data
    if data.exists():
        kept = image / data.relative_to(victim.root)
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(data, kept)
    victim.power_off()
    shutil.rmtree(victim.root)
    image.rename(victim.root)
    shutil.rmtree(victim.root / VOLATILE)


def tolerate(run: Callable[[], object]) -> KeelError | None:
    """Run a command that may meet a dead node, or be the one who dies."""
    try:
        run()
    except KeelError as error:
        return error
    except Crash:
        return None
    return None


def forked(run: Callable[[], T]) -> T:
    """What `run` returns, in a process of its own: no object of this one changes."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        sys.settrace(None)  # what runs in here is too chancy a sample to count as covered
        status = 1
        try:
            answer = pickle.dumps(run())
            status = 0
        except BaseException:  # noqa: BLE001  # the one way out of a fork is its exit status
            answer = traceback.format_exc().encode()
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(answer)
        os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    assert status == 0, answer.decode()
    return pickle.loads(answer)
