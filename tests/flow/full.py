"""Tests of disks that say no: from each write of a story on, until there is room again.

As in tests.flow.kill a story is arranged once, and each point runs in a fork from the same bytes.
The victim's disk refuses from that write on; what was asked for ends with a typed error or goes on
without it; everything on disk can be read meanwhile; then the disk is well, the same is done again,
and the end is the same as ever. A point that was not hit is a failure.
"""

from __future__ import annotations

import errno
import shutil
import traceback
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from keel.errors import DiskTrouble
from keel.mesh import etcdstore, pendingjoin, store
from keel.ports import Host
from tests.fakes import FakeNode
from tests.fakes.disk import Primitive
from tests.fakes.effects import Crash
from tests.fakes.host import VOLATILE
from tests.flow.kill import Story, forked, tolerate
from tests.flow.world import World

GROWS = frozenset({"create", "append", "mkdir"})
CHANGES = GROWS | {"truncate", "link", "rename", "unlink", "rmdir", "set_access"}


class Trouble(Enum):
    """How a disk says no."""

    FULL = errno.ENOSPC
    QUOTA = errno.EDQUOT
    READ_ONLY = errno.EROFS

    @property
    def refused(self) -> frozenset[str]:
        return CHANGES if self is Trouble.READ_ONLY else GROWS


@dataclass
class Refusing:
    """A disk that takes so many more writes; memory, which /run is, is another matter."""

    trouble: Trouble
    left: int
    hit: list[Primitive] = field(default_factory=list)

    def __call__(self, step: Primitive) -> int | None:
        if not is_write(step, self.trouble):
            return None
        if self.left:
            self.left -= 1
            return None
        self.hit.append(step)
        return self.trouble.value


def is_write(step: Primitive, trouble: Trouble) -> bool:
    return step.name in trouble.refused and not Path(step.path).is_relative_to(VOLATILE)


def refuse_everywhere(
    story: Story, scratch: Path, trouble: Trouble, *, sample: int | None
) -> tuple[int, int]:
    """Refuse from every write on, or from about so many, evenly spread; how many of how many.
    AssertionError with every point that did not come to the same end."""
    world = story.arrange(scratch / "disks")
    shutil.copytree(scratch / "disks", scratch / "pristine", symlinks=True)
    count = forked(lambda: _writes(story, world, trouble))
    assert count > 0
    step = max(1, count // sample) if sample is not None else 1
    chosen = range(count)[step // 2 :: step]
    failures = []
    for number in chosen:
        shutil.rmtree(scratch / "disks")
        shutil.copytree(scratch / "pristine", scratch / "disks", symlinks=True)
        failures += forked(lambda at=number: _refuse_and_go_on(story, world, at, trouble))
    assert not failures, f"{len(failures)}:\n" + "\n".join(failures)
    return len(chosen), count


def _writes(story: Story, world: World, trouble: Trouble) -> int:
    victim = world.net.nodes[story.victim]
    victim.new_life()
    before = len(victim.disk.trace)
    story.act(world)
    return sum(is_write(step, trouble) for step in victim.disk.trace[before:])


def _refuse_and_go_on(story: Story, world: World, number: int, trouble: Trouble) -> list[str]:
    victim = world.net.nodes[story.victim]
    victim.new_life()
    disk = Refusing(trouble, number)
    victim.disk.refuse = disk
    try:
        error = tolerate(lambda: story.act(world))
        assert disk.hit, "not hit"
        if isinstance(error, DiskTrouble):
            assert error.error_number == trouble.value
            assert str(error.path.parent) in error.remedy()
        elif error is not None:
            assert error.remedy()
        _read_all(victim)
        victim.disk.refuse = lambda _: None
        victim.new_life()
        story.finish(world)
        story.holds(world)
    except (Exception, Crash):
        where = f"{trouble.name} at write {number}: {disk.hit[0] if disk.hit else 'not hit'}"
        return [f"{where}\n{traceback.format_exc(limit=-6)}"]
    return []


def _read_all(victim: FakeNode) -> None:
    """Whatever there is of keel's state can be read, and reading changes nothing."""
    host: Host = victim.host
    node = store.load(host)
    store.load_invites(host)
    for mesh in host.files.names(host.paths.pending_joins):
        pendingjoin.load(host, mesh)
    if node is not None:
        store.load_nonces(host)
    for load in (
        *(etcdstore.load_cluster, etcdstore.load_book, etcdstore.load_ledger, etcdstore.load_crl),
        *(etcdstore.load_roots, etcdstore.load_authority, etcdstore.load_intermediate),
        *(etcdstore.load_leaves, etcdstore.load_record, etcdstore.load_failures),
        *(etcdstore.load_queue, etcdstore.load_lived),
    ):
        load(host)
