"""A full or a read-only disk, or a used-up quota, at every write of every story of the kill tests
(Q4): a typed error or a note of what is missing, state that can be read, and the same command
finishes later."""

from __future__ import annotations

from pathlib import Path

import pytest

from keel.mesh.duty import Result
from keel.mesh.status import look
from keel.outcome import Done
from tests.fakes.disk import Primitive
from tests.fakes.host import VOLATILE
from tests.flow.full import GROWS, Trouble, refuse_everywhere
from tests.flow.test_kill import STORIES
from tests.flow.world import World

HERE_AND_THERE = [
    *((story, Trouble.FULL) for story in ("create", "join, the joiner", "birth, the holder")),
    *((story, Trouble.READ_ONLY) for story in ("join, the inviter", "birth, the other")),
    *((story, Trouble.FULL) for story in ("learner, the holder", "form, the holder")),
    *((story, Trouble.READ_ONLY) for story in ("learner, the joiner", "revocation")),
    *((story, Trouble.QUOTA) for story in ("replacement, the member", "renewal, a member")),
    ("removal of a voter, the holder", Trouble.QUOTA),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("story", "trouble"), HERE_AND_THERE, ids=[f"{s}: {t.name}" for s, t in HERE_AND_THERE]
)
def test_a_disk_that_refuses_loses_nothing(tmp_path: Path, story: str, trouble: Trouble) -> None:
    tried, _ = refuse_everywhere(STORIES[story], tmp_path, trouble, sample=2)
    assert tried >= 2


@pytest.mark.parametrize(
    "sample",
    [
        pytest.param(16, id="many", marks=pytest.mark.long),
        pytest.param(None, id="all", marks=pytest.mark.exhaustive),
    ],
)
@pytest.mark.parametrize("trouble", list(Trouble), ids=lambda it: it.name.lower())
@pytest.mark.parametrize("story", STORIES)
def test_a_disk_that_refuses_anywhere_loses_nothing(
    tmp_path: Path, story: str, trouble: Trouble, sample: int | None
) -> None:
    tried, count = refuse_everywhere(STORIES[story], tmp_path, trouble, sample=sample)
    assert tried == count or sample is not None


def test_a_full_run_directory_costs_its_hints_and_no_pass(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.cluster("abc")
    world.sync("b")
    victim = world.net.nodes["a"]
    volatile = victim.root / VOLATILE

    def full(step: Primitive) -> int | None:
        below = Path(step.path).is_relative_to(VOLATILE) or Path(step.path).is_relative_to(volatile)
        return Trouble.FULL.value if below and step.name in GROWS else None

    for path in victim.host.paths.run.iterdir():
        path.unlink()  # so that each pass has to write them all
    victim.disk.refuse = full
    assert isinstance(world.sync("a"), Done)
    assert {one.state for one in look(world.host("a"), world.spec("a")).members} == {"up"}
    failed = [duty for duty in world.tend("a") if duty.result is Result.FAILED]
    assert failed == []
    assert any(text.startswith("not kept: ") for text in victim.console.said)
