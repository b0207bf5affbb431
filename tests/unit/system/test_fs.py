"""keel.system.fs: rules F1 to F4, on a real directory and on replayed disks."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from keel.errors import DiskTrouble, Internal, StateCorrupt
from keel.system import fs
from keel.system.fs import DurableFiles
from tests.fakes import Crash, DiskModel, Effects, RecordingDisk, Unsynced, power_cuts


@pytest.fixture
def files() -> DurableFiles:
    return DurableFiles()


def test_what_was_written_is_read_with_its_mode(tmp_path: Path, files: DurableFiles) -> None:
    os.umask(0o077)
    files.write(tmp_path / "a", b"one", mode=0o644)
    files.write(tmp_path / "a", b"two", mode=0o640)
    assert files.read(tmp_path / "a") == b"two"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640
    assert files.names(tmp_path) == ("a",)


def test_a_missing_file_is_none_and_a_missing_directory_has_no_names(
    tmp_path: Path, files: DurableFiles
) -> None:
    assert files.read(tmp_path / "no") is None
    assert files.names(tmp_path / "no") == ()
    assert not files.exists(tmp_path / "no")
    files.remove(tmp_path / "no")


def _link(path: Path) -> None:
    (path.parent / "real").write_bytes(b"x")
    path.symlink_to(path.parent / "real")


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        pytest.param(_link, "symbolic link", id="symbolic link"),
        pytest.param(lambda path: path.mkdir(), "not a regular file", id="directory"),
        pytest.param(os.mkfifo, "not a regular file", id="fifo"),
        pytest.param(lambda path: path.write_bytes(b"x" * 11), "larger", id="too large"),
    ],
)
def test_reading_refuses_what_is_not_a_bounded_regular_file(
    tmp_path: Path, files: DurableFiles, make: Callable[[Path], object], problem: str
) -> None:
    make(tmp_path / "f")
    with pytest.raises(StateCorrupt, match=problem):
        files.read(tmp_path / "f", max_bytes=10)


def test_a_path_through_a_file_is_trouble_and_not_absence(
    tmp_path: Path, files: DurableFiles
) -> None:
    (tmp_path / "f").write_bytes(b"")
    with pytest.raises(DiskTrouble):
        files.read(tmp_path / "f/g")


def test_exactly_the_bound_may_be_read(tmp_path: Path, files: DurableFiles) -> None:
    (tmp_path / "f").write_bytes(b"x" * 10)
    assert files.read(tmp_path / "f", max_bytes=10) == b"x" * 10


def test_a_file_that_hides_its_size_is_read_whole(files: DurableFiles) -> None:
    path = Path("/proc/self/mounts")
    assert path.stat().st_size == 0
    assert files.read(path) == path.read_bytes() != b""


@pytest.mark.parametrize("likely", [1, 4, 9, 10, 11, 50])
@pytest.mark.parametrize(("limit", "given"), [(4, 4), (10, 10), (11, 10), (99, 10)])
def test_a_file_that_grows_or_shrinks_while_it_is_read_is_read_whole(
    tmp_path: Path, likely: int, limit: int, given: int
) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    descriptor = os.open(tmp_path / "f", os.O_RDONLY)
    assert fs._read_all(descriptor, limit, likely=likely) == b"0123456789"[:given]
    os.close(descriptor)


def test_a_write_replaces_a_link_and_leaves_its_target_alone(
    tmp_path: Path, files: DurableFiles
) -> None:
    _link(tmp_path / "f")
    files.write(tmp_path / "f", b"new")
    assert (tmp_path / "real").read_bytes() == b"x"
    assert not (tmp_path / "f").is_symlink()


def test_create_makes_a_file_once(tmp_path: Path, files: DurableFiles) -> None:
    assert files.create(tmp_path / "f", b"first")
    assert not files.create(tmp_path / "f", b"second")
    assert files.read(tmp_path / "f") == b"first"
    assert os.listdir(tmp_path) == ["f"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(None, b"new\n", id="no file yet"),
        pytest.param(b"", b"new\n", id="empty"),
        pytest.param(b"old\n", b"old\nnew\n", id="whole"),
        pytest.param(b"old\ntorn", b"old\nnew\n", id="torn last line"),
        pytest.param(b"torn", b"new\n", id="only a torn line"),
        pytest.param(b"old\n" + b"t" * 9000, b"old\nnew\n", id="a long torn line"),
        pytest.param(b"t" * 9000, b"new\n", id="only a long torn line"),
    ],
)
def test_append_cuts_a_torn_line_and_adds_a_whole_one(
    tmp_path: Path, files: DurableFiles, before: bytes | None, after: bytes
) -> None:
    if before is not None:
        (tmp_path / "f").write_bytes(before)
    files.append(tmp_path / "f", b"new")
    assert files.read(tmp_path / "f") == after


def test_a_line_to_append_holds_no_line_break(tmp_path: Path, files: DurableFiles) -> None:
    with pytest.raises(Internal):
        files.append(tmp_path / "f", b"a\nb")


def test_make_dir_makes_parents_and_mends_the_mode(tmp_path: Path, files: DurableFiles) -> None:
    files.make_dir(tmp_path / "a/b/c")
    for made in ("a", "a/b", "a/b/c"):
        assert (tmp_path / made).stat().st_mode & 0o777 == 0o700
    files.make_dir(tmp_path / "a/b/c", mode=0o750)
    assert (tmp_path / "a/b/c").stat().st_mode & 0o777 == 0o750


def test_make_dir_does_nothing_when_all_is_so(tmp_path: Path) -> None:
    disk = RecordingDisk(tmp_path, Effects())
    files = DurableFiles(disk)
    files.make_dir(tmp_path / "a")
    disk.trace.clear()
    files.make_dir(tmp_path / "a")
    assert disk.trace == []


def test_temporary_files_are_hidden_and_swept_when_their_writer_is_gone(
    tmp_path: Path, files: DurableFiles
) -> None:
    gone = os.fork()
    if gone == 0:
        os._exit(0)
    os.waitpid(gone, 0)
    (tmp_path / f".f.{gone}-1.keel-tmp").write_bytes(b"left")
    (tmp_path / f".d.{gone}-2.keel-tmp").mkdir()
    (tmp_path / f".d.{gone}-2.keel-tmp/inner").mkdir()
    (tmp_path / f".g.{os.getpid()}-0.keel-tmp").write_bytes(b"being written")
    (tmp_path / ".g.1-0.keel-tmp").write_bytes(b"of process 1")
    assert files.names(tmp_path) == ()
    files.make_dir(tmp_path)
    assert sorted(os.listdir(tmp_path)) == sorted(
        [f".g.{os.getpid()}-0.keel-tmp", ".g.1-0.keel-tmp"]
    )


def test_remove_takes_files_links_and_trees_but_not_what_a_link_leads_to(
    tmp_path: Path, files: DurableFiles
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "f").write_bytes(b"x")
    tree = tmp_path / "tree"
    (tree / "deep").mkdir(parents=True)
    (tree / "deep/f").write_bytes(b"x")
    (tree / "link").symlink_to(kept)
    (tmp_path / "link").symlink_to(kept)
    files.remove(tree)
    files.remove(tmp_path / "link")
    assert os.listdir(tmp_path) == ["kept"]
    assert (kept / "f").exists()


def test_rename_moves_a_tree_and_never_over_another(tmp_path: Path, files: DurableFiles) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/f").write_bytes(b"x")
    (tmp_path / "to").mkdir()
    files.rename(tmp_path / "a", tmp_path / "to/b")
    assert files.read(tmp_path / "to/b/f") == b"x"
    (tmp_path / "c").mkdir()
    with pytest.raises(DiskTrouble):
        files.rename(tmp_path / "c", tmp_path / "to/b")


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        pytest.param(errno.ENOSPC, "make room", id="full"),
        pytest.param(errno.EROFS, "read-only", id="read-only"),
        pytest.param(errno.EACCES, "rights", id="not permitted"),
        pytest.param(errno.EIO, "dmesg", id="broken"),
    ],
)
@pytest.mark.parametrize("primitive", ["create", "sync_file", "rename", "sync_dir"])
def test_trouble_with_the_disk_has_a_remedy_and_leaves_the_old_file(
    tmp_path: Path, primitive: str, number: int, remedy: str
) -> None:
    disk = RecordingDisk(tmp_path, Effects())
    files = DurableFiles(disk)
    files.write(tmp_path / "f", b"old")
    disk.fail[primitive] = number
    with pytest.raises(DiskTrouble) as caught:
        files.write(tmp_path / "f", b"new")
    assert remedy in caught.value.remedy()
    assert str(tmp_path / "f") in caught.value.summary()
    assert os.listdir(tmp_path) == ["f"]
    if primitive != "sync_dir":
        assert files.read(tmp_path / "f") == b"old"


def test_an_owner_that_does_not_exist_is_trouble_and_leaves_nothing(
    tmp_path: Path, files: DurableFiles
) -> None:
    with pytest.raises(DiskTrouble):
        files.write(tmp_path / "f", b"x", owner="no-such-user-here")
    assert os.listdir(tmp_path) == []


def _write(files: DurableFiles, root: Path) -> None:
    files.write(root / "f", b"new bytes")


def _create(files: DurableFiles, root: Path) -> None:
    files.create(root / "g", b"new bytes")


def _append(files: DurableFiles, root: Path) -> None:
    files.append(root / "log", b"second")


def _remove(files: DurableFiles, root: Path) -> None:
    files.remove(root / "tree")


def _rename(files: DurableFiles, root: Path) -> None:
    files.rename(root / "tree", root / "to/tree")


OPERATIONS = [
    pytest.param(_write, {"f": [b"old", b"new bytes"]}, id="write"),
    pytest.param(_create, {"g": [None, b"new bytes"]}, id="create"),
    pytest.param(_append, {"log": [b"first\n", b"first\nsecond\n"]}, id="append"),
    pytest.param(_remove, {"tree/f": [b"x", None]}, id="remove"),
    pytest.param(_rename, {"tree/f": [b"x", None], "to/tree/f": [None, b"x"]}, id="rename"),
]


def _furnish(root: Path) -> None:
    (root / "tree").mkdir(parents=True)
    (root / "to").mkdir()
    (root / "f").write_bytes(b"old")
    (root / "log").write_bytes(b"first\n")
    (root / "tree/f").write_bytes(b"x")


@pytest.mark.parametrize("unsynced", Unsynced)
@pytest.mark.parametrize(("operate", "allowed"), OPERATIONS)
def test_a_power_cut_anywhere_leaves_the_old_or_the_new_and_the_new_once_returned(
    tmp_path: Path,
    operate: Callable[[DurableFiles, Path], None],
    allowed: dict[str, list[bytes | None]],
    unsynced: Unsynced,
) -> None:
    live = tmp_path / "live"
    _furnish(live)
    before = DiskModel(live)
    disk = RecordingDisk(live, Effects())
    operate(DurableFiles(disk), live)
    for done, model in power_cuts(before, disk.trace):
        image = model.write_image(tmp_path / f"image{done}", unsynced)
        files = DurableFiles()
        for name, (old, new) in allowed.items():
            found = files.read(image / name)
            last = done == len(disk.trace)
            is_torn_log = name == "log" and found is not None and found.startswith(b"first\n")
            assert found == new if last else (found in (old, new) or is_torn_log)
        if "log" in allowed:
            files.append(image / "log", b"third")
            assert b"first\n" in (files.read(image / "log") or b"")
            assert (files.read(image / "log") or b"").splitlines()[1:] in (
                [b"third"],
                [b"second", b"third"],
            )


def test_a_rename_is_never_lost_under_both_names(tmp_path: Path) -> None:
    live = tmp_path / "live"
    _furnish(live)
    before = DiskModel(live)
    disk = RecordingDisk(live, Effects())
    _rename(DurableFiles(disk), live)
    for done, model in power_cuts(before, disk.trace):
        image = model.write_image(tmp_path / f"image{done}", Unsynced.DROPPED)
        assert (image / "tree/f").exists() or (image / "to/tree/f").exists()


def _unsafe(files: DurableFiles, disk: RecordingDisk, root: Path) -> None:
    disk.create(root / "t", b"new bytes", mode=0o600, owner=None)
    disk.rename(root / "t", root / "f")
    disk.sync_dir(root)


def test_the_replay_finds_a_write_that_forgot_to_sync(tmp_path: Path) -> None:
    live = tmp_path / "live"
    _furnish(live)
    before = DiskModel(live)
    disk = RecordingDisk(live, Effects())
    _unsafe(DurableFiles(disk), disk, live)
    seen = set()
    for done, model in power_cuts(before, disk.trace):
        image = model.write_image(tmp_path / f"image{done}", Unsynced.NAMES_KEPT)
        seen.add((image / "f").read_bytes())
    assert b"" in seen


@pytest.mark.parametrize(("operate", "allowed"), OPERATIONS)
def test_a_kill_before_every_primitive_is_hit_and_the_next_run_ends_the_same(
    tmp_path: Path,
    operate: Callable[[DurableFiles, Path], None],
    allowed: dict[str, list[bytes | None]],
) -> None:
    clean = Effects()
    _furnish(tmp_path / "clean")
    operate(DurableFiles(RecordingDisk(tmp_path / "clean", clean)), tmp_path / "clean")
    for number in range(len(clean.done)):
        root = tmp_path / f"killed{number}"
        _furnish(root)
        effects = Effects(crash_at=number)
        with pytest.raises(Crash):
            operate(DurableFiles(RecordingDisk(root, effects)), root)
        assert effects.dead
        for name, (old, new) in allowed.items():
            found = DurableFiles().read(root / name)
            assert found in (old, new) or (name == "log" and b"first\n" in (found or b""))
        if operate is not _rename or (root / "tree").exists():
            operate(DurableFiles(), root)
        for name, (_, new) in allowed.items():
            found = DurableFiles().read(root / name)
            assert found == new or (name == "log" and b"second\n" in (found or b""))
