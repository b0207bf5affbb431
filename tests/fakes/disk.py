"""A real directory whose every primitive is counted and recorded, and can be replayed as a disk.

`DiskModel` replays a recorded trace as POSIX allows a disk to look after a power cut: bytes are
there once their file was synced, names once their directory was. What was not synced may be there
or not; the two ends of that range are images to test against (`Unsynced`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from keel.system.disk import Disk
from tests.fakes.effects import Effects


@dataclass(frozen=True, kw_only=True)  # no slots: copies of worlds hold hundreds, see arranged
class Primitive:
    """One call of keel.system.disk, with paths below the node's root. As text it is the same in
    every run: without the pid and the number in temporary names."""

    name: str
    path: str
    target: str = ""
    data: bytes = b""
    size: int = 0
    mode: int = 0
    owner: str | None = None

    def __str__(self) -> str:
        arrow = f" -> {self.target}" if self.target else ""
        return re.sub(r"\.\d+-\d+\.keel-tmp", ".keel-tmp", f"disk {self.name} {self.path}{arrow}")


class RecordingDisk:
    """keel.system.disk.DiskOps below `root`; owners are noted and not applied.

    `fail` maps a primitive's name to an OSError number that its next call gives instead;
    `refuse` gives one for each primitive that it does not let happen.
    """

    def __init__(self, root: Path, effects: Effects) -> None:
        self._root = root
        self._disk = Disk()
        self.effects = effects
        self.trace: list[Primitive] = []
        self.owners: dict[str, str] = {}
        self.fail: dict[str, int] = {}
        self.refuse: Callable[[Primitive], int | None] = _nothing

    def create(self, path: Path, data: bytes, *, mode: int, owner: str | None) -> None:
        self._happen("create", path, data=data, mode=mode, owner=owner)
        self._disk.create(path, data, mode=mode, owner=None)
        if owner is not None:
            self.owners[self._below(path)] = owner

    def append(self, path: Path, data: bytes, *, mode: int) -> None:
        self._happen("append", path, data=data, mode=mode)
        self._disk.append(path, data, mode=mode)

    def truncate(self, path: Path, size: int) -> None:
        self._happen("truncate", path, size=size)
        self._disk.truncate(path, size)

    def sync_file(self, path: Path) -> None:
        self._happen("sync_file", path)

    def link(self, source: Path, target: Path) -> None:
        self._happen("link", source, target=self._below(target))
        self._disk.link(source, target)

    def rename(self, source: Path, target: Path) -> None:
        self._happen("rename", source, target=self._below(target))
        self._disk.rename(source, target)
        owner = self.owners.pop(self._below(source), None)
        if owner is not None:
            self.owners[self._below(target)] = owner

    def unlink(self, path: Path) -> None:
        self._happen("unlink", path)
        self._disk.unlink(path)

    def mkdir(self, path: Path, *, mode: int) -> None:
        self._happen("mkdir", path, mode=mode)
        self._disk.mkdir(path, mode=mode)

    def rmdir(self, path: Path) -> None:
        self._happen("rmdir", path)
        self._disk.rmdir(path)

    def set_access(self, path: Path, *, mode: int, owner: str | None) -> None:
        self._happen("set_access", path, mode=mode, owner=owner)
        self._disk.set_access(path, mode=mode, owner=None)
        if owner is not None:
            self.owners[self._below(path)] = owner

    def access(self, path: Path) -> tuple[int, str]:
        mode, _ = self._disk.access(path)
        return mode, self.owners.get(self._below(path), "root")

    def sync_dir(self, path: Path) -> None:
        self._happen("sync_dir", path)

    def _below(self, path: Path) -> str:
        return str(path.relative_to(self._root))

    def _happen(
        self,
        name: str,
        path: Path,
        *,
        target: str = "",
        data: bytes = b"",
        size: int = 0,
        mode: int = 0,
        owner: str | None = None,
    ) -> None:
        step = Primitive(
            name=name,
            path=self._below(path),
            target=target,
            data=data,
            size=size,
            mode=mode,
            owner=owner,
        )
        if name in self.fail:
            number = self.fail.pop(name)
            raise OSError(number, "as the test wants it", str(path))
        refused = self.refuse(step)
        if refused is not None:
            raise OSError(refused, "as the test wants it", str(path))
        self.effects.happen(str(step))
        self.trace.append(step)


class Unsynced(Enum):
    """What became of the things that were not synced when the power went."""

    DROPPED = "no name and no byte that was not synced"
    NAMES_KEPT = "every name, but no byte that was not synced"
    TORN = "every name, and the first half of the bytes that were not synced"
    KEPT = "everything"


@dataclass(eq=False)
class _File:
    data: bytes
    mode: int
    synced: bytes = b""

    def content(self, unsynced: Unsynced) -> bytes:
        match unsynced:
            case Unsynced.KEPT:
                return self.data
            case Unsynced.TORN if self.data.startswith(self.synced):
                added = self.data[len(self.synced) :]
                return self.synced + added[: len(added) // 2]
            case _:
                return self.synced


@dataclass(eq=False)
class _Directory:
    mode: int
    entries: dict[str, _File | _Directory] = field(default_factory=dict)
    synced: dict[str, _File | _Directory] = field(default_factory=dict)

    def there(self, unsynced: Unsynced) -> dict[str, _File | _Directory]:
        return self.synced if unsynced is Unsynced.DROPPED else self.entries


class DiskModel:
    """A disk that remembers what was made durable. Starts as `root` is now, all of it durable."""

    def __init__(self, root: Path | None = None) -> None:
        self._root = _Directory(0o755)
        if root is not None:
            self._root = _load(root)

    def apply(self, step: Primitive) -> None:
        parent, name = self._place(step.path)
        match step.name:
            case "create":
                parent.entries[name] = _File(step.data, step.mode)
            case "append":
                found = parent.entries.setdefault(name, _File(b"", step.mode))
                assert isinstance(found, _File)
                found.data += step.data
            case "truncate":
                found = self._file(step.path)
                found.data = found.data[: step.size]
            case "sync_file":
                found = self._file(step.path)
                found.synced = found.data
            case "link":
                target, target_name = self._place(step.target)
                target.entries[target_name] = parent.entries[name]
            case "rename":
                target, target_name = self._place(step.target)
                target.entries[target_name] = parent.entries.pop(name)
            case "unlink" | "rmdir":
                del parent.entries[name]
            case "mkdir":
                parent.entries[name] = _Directory(step.mode)
            case "set_access":
                self._directory(step.path).mode = step.mode
            case "sync_dir":
                directory = self._directory(step.path)
                directory.synced = dict(directory.entries)
            case _:
                raise AssertionError(step.name)

    def write_image(self, target: Path, unsynced: Unsynced) -> Path:
        """Make the disk as it may look after a power cut now, as a fresh directory."""
        _save(self._root, target, unsynced)
        return target

    def image(self, unsynced: Unsynced) -> dict[str, bytes | None]:
        """The same as a value: each path with its bytes, or None for a directory."""
        return dict(_flat(self._root, "", unsynced))

    def _place(self, path: str) -> tuple[_Directory, str]:
        place = Path(path)
        return self._directory(str(place.parent)), place.name

    def _directory(self, path: str) -> _Directory:
        found: _File | _Directory = self._root
        for part in Path(path).parts:
            assert isinstance(found, _Directory)
            found = found.entries[part]
        assert isinstance(found, _Directory)
        return found

    def _file(self, path: str) -> _File:
        parent, name = self._place(path)
        found = parent.entries[name]
        assert isinstance(found, _File)
        return found


def power_cuts(before: DiskModel, trace: list[Primitive]) -> Iterator[tuple[int, DiskModel]]:
    """Every prefix of a trace: how many primitives were done, and the disk then (one object)."""
    yield 0, before
    for number, step in enumerate(trace, start=1):
        before.apply(step)
        yield number, before


def _load(path: Path) -> _Directory:
    directory = _Directory(path.stat().st_mode & 0o7777)
    for child in sorted(path.iterdir()):
        mode = child.stat().st_mode & 0o7777
        if child.is_dir():
            directory.entries[child.name] = _load(child)
        else:
            data = child.read_bytes()
            directory.entries[child.name] = _File(data, mode, data)
    directory.synced = dict(directory.entries)
    return directory


def _flat(
    directory: _Directory, below: str, unsynced: Unsynced
) -> Iterator[tuple[str, bytes | None]]:
    for name, node in directory.there(unsynced).items():
        if isinstance(node, _Directory):
            yield f"{below}{name}", None
            yield from _flat(node, f"{below}{name}/", unsynced)
        else:
            yield f"{below}{name}", node.content(unsynced)


def _save(directory: _Directory, target: Path, unsynced: Unsynced) -> None:
    target.mkdir(parents=True)
    for name, node in directory.there(unsynced).items():
        if isinstance(node, _Directory):
            _save(node, target / name, unsynced)
        else:
            (target / name).write_bytes(node.content(unsynced))
            (target / name).chmod(node.mode)
    target.chmod(directory.mode)


def _nothing(primitive: Primitive) -> int | None:
    """What a disk refuses that refuses nothing."""
    return None
