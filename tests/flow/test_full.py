"""A full or a read-only disk at every write of create, invite, join, sync and birth (Q4): a typed
error or a note of what is missing, state that can be read, and the same command finishes later."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flow.full import Trouble, refuse_everywhere
from tests.flow.test_kill import STORIES

HERE_AND_THERE = [
    *((story, Trouble.FULL) for story in ("create", "join, the joiner", "birth, the holder")),
    *((story, Trouble.READ_ONLY) for story in ("join, the inviter", "birth, the other")),
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
