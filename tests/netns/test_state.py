import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from netns import state


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(state, "BASE", tmp_path / "run")
    return tmp_path / "run"


def test_verbs_on_one_lab_follow_each_other_also_when_one_forgets_it(base: Path) -> None:
    inside: list[int] = []
    most: list[int] = []
    together = threading.Barrier(8)

    def verb(number: int) -> None:
        together.wait()
        for _ in range(50):
            with state.locked("x"):
                inside.append(number)
                most.append(len(inside))
                inside.remove(number)
                if number % 2:
                    state.forget("x")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(verb, range(8)))
    assert max(most) == 1
    with state.locked("x"):
        state.forget("x")
    assert not base.exists()


def test_forgetting_one_lab_leaves_another(base: Path) -> None:
    state.directory("other").mkdir(parents=True)
    with state.locked("x"):
        state.forget("x")
    assert [path.name for path in base.iterdir()] == ["other"]


def test_a_lab_that_never_was_has_no_state(base: Path) -> None:
    assert state.read("x") is None
    assert not base.exists()


def test_a_process_is_known_by_its_start_not_by_its_number_alone() -> None:
    assert state.started(1)
    assert state.started(2**22 + 1) == ""


def test_a_process_that_ends_while_it_is_looked_at_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_: Path) -> str:
        raise ProcessLookupError  # /proc/PID/stat was open by then

    monkeypatch.setattr(Path, "read_text", gone)
    assert state.started(1) == ""
