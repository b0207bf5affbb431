"""Durable files: keel.ports.Files on the primitives of keel.system.disk.

(F1) A file is replaced whole: temporary file beside it with its final mode and owner, fsync,
     rename, fsync the directory. Whoever reads sees the old bytes or the new ones.
(F2) When a call has returned, what it did survives a power cut.
(F3) Temporary names carry the writer's pid, are never listed, and are swept once it is gone.
(F4) A symbolic link in the last component is never followed, reads are bounded, and only regular
     files are read.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from keel.errors import DiskTrouble, Internal, StateCorrupt
from keel.system.disk import NO_FOLLOW, Disk, DiskOps

if TYPE_CHECKING:
    from keel.ports import Access

_TEMPORARY = re.compile(r"\..+\.(\d+)-\d+\.keel-tmp")
_serial = itertools.count(1)


class DurableFiles:
    """keel.ports.Files; OSError never leaves it, DiskTrouble and StateCorrupt do."""

    def __init__(self, disk: DiskOps | None = None) -> None:
        self._disk = disk if disk is not None else Disk()

    def read(self, path: Path, *, max_bytes: int = 1 << 20) -> bytes | None:
        with _Trouble(path):
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | NO_FOLLOW)
            except FileNotFoundError:
                return None
            except OSError as error:
                if error.errno == errno.ELOOP:
                    raise StateCorrupt(path, "is a symbolic link") from error
                raise
            try:
                found = os.fstat(descriptor)
                if not stat.S_ISREG(found.st_mode):
                    raise StateCorrupt(path, "is not a regular file")
                data = _read_all(descriptor, max_bytes + 1, likely=found.st_size)
            finally:
                os.close(descriptor)
        if len(data) > max_bytes:
            raise StateCorrupt(path, f"is larger than the {max_bytes} bytes allowed here")
        return data

    def write(
        self, path: Path, data: bytes, *, mode: int = 0o600, owner: str | None = None
    ) -> None:
        with _Trouble(path):
            temporary = self._temporary(path, data, mode=mode, owner=owner)
            try:
                self._disk.rename(temporary, path)
            except OSError:
                self._disk.unlink(temporary)
                raise
            self._disk.sync_dir(path.parent)

    def create(self, path: Path, data: bytes, *, mode: int = 0o600) -> bool:
        with _Trouble(path):
            if os.path.lexists(path):
                return False
            temporary = self._temporary(path, data, mode=mode, owner=None)
            try:
                self._disk.link(temporary, path)
            except FileExistsError:
                return False
            finally:
                self._disk.unlink(temporary)
            self._disk.sync_dir(path.parent)
            return True

    def append(self, path: Path, line: bytes, *, mode: int = 0o600) -> None:
        if b"\n" in line:
            raise Internal("a line to append holds a line break")
        with _Trouble(path):
            torn_at = _torn_at(path)
            if torn_at is not None:
                self._disk.truncate(path, torn_at)
            self._disk.append(path, line + b"\n", mode=mode)
            self._disk.sync_file(path)
            self._disk.sync_dir(path.parent)

    def make_dir(self, path: Path, *, mode: int = 0o700, owner: str | None = None) -> None:
        with _Trouble(path):
            for missing in _missing(path):
                self._disk.mkdir(missing, mode=mode)
                self._disk.sync_dir(missing.parent)
            if owner is not None or stat.S_IMODE(path.lstat().st_mode) != mode:
                self._disk.set_access(path, mode=mode, owner=owner)
                self._disk.sync_dir(path)
            self._sweep(path)

    def names(self, path: Path) -> tuple[str, ...]:
        with _Trouble(path):
            try:
                found = os.listdir(path)
            except FileNotFoundError:
                return ()
        return tuple(sorted(name for name in found if not _TEMPORARY.fullmatch(name)))

    def exists(self, path: Path) -> bool:
        with _Trouble(path):
            return os.path.lexists(path)

    def access(self, path: Path) -> Access | None:
        with _Trouble(path):
            try:
                mode, owner = self._disk.access(path)
            except FileNotFoundError:
                return None
        from keel.ports import Access  # here: the guard of a birth asks nobody's mode, and hurries

        return Access(mode=mode, owner=owner)

    def remove(self, path: Path) -> None:
        """A tree goes in one step: it is renamed to a temporary name first."""
        with _Trouble(path):
            if not os.path.lexists(path):
                return
            if path.is_symlink() or not path.is_dir():
                self._disk.unlink(path)
            else:
                doomed = _temporary_name(path)
                self._disk.rename(path, doomed)
                self._disk.sync_dir(path.parent)
                self._remove_tree(doomed)
            self._disk.sync_dir(path.parent)

    def rename(self, source: Path, target: Path) -> None:
        with _Trouble(target):
            if os.path.lexists(target):
                raise FileExistsError(errno.EEXIST, "exists")
            self._disk.rename(source, target)
            # The new name first: a cut between the two leaves the thing under both, not under none.
            self._disk.sync_dir(target.parent)
            if source.parent != target.parent:
                self._disk.sync_dir(source.parent)

    def _temporary(self, path: Path, data: bytes, *, mode: int, owner: str | None) -> Path:
        temporary = _temporary_name(path)
        try:
            self._disk.create(temporary, data, mode=mode, owner=owner)
            self._disk.sync_file(temporary)
        except OSError:
            if os.path.lexists(temporary):
                self._disk.unlink(temporary)
            raise
        return temporary

    def _sweep(self, path: Path) -> None:
        for name in sorted(os.listdir(path)):
            found = _TEMPORARY.fullmatch(name)
            if found is None or _is_alive(int(found[1])):
                continue
            left = path / name
            if left.is_dir() and not left.is_symlink():
                self._remove_tree(left)
            else:
                self._disk.unlink(left)

    def _remove_tree(self, path: Path) -> None:
        for entry in sorted(os.scandir(path), key=lambda item: item.name):
            child = Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                self._remove_tree(child)
            else:
                self._disk.unlink(child)
        self._disk.rmdir(path)


class _Trouble:
    """An OSError becomes a DiskTrouble. Not a generator, which costs more than a small read."""

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise DiskTrouble(self._path, error.errno or errno.EIO) from error


def _temporary_name(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}-{next(_serial)}.keel-tmp")


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _missing(path: Path) -> list[Path]:
    """The directories to make, outermost first."""
    chain = [path, *path.parents]
    missing = list(itertools.takewhile(lambda each: not os.path.lexists(each), chain))
    return missing[::-1]


def _read_all(descriptor: int, limit: int, *, likely: int) -> bytes:
    """Up to `limit` bytes. Asking for one more than there are likely to be tells the end at once,
    and costs no buffer of the size of the limit; in /proc the likely size is 0 and says nothing."""
    parts: list[bytes] = []
    left = limit
    asked = min(left, likely + 1) if likely else left
    while left > 0:
        part = os.read(descriptor, asked)
        if likely and len(part) < asked:
            return b"".join([*parts, part])
        if not part:
            break
        parts.append(part)
        left -= len(part)
        asked = left
    return b"".join(parts)


def _torn_at(path: Path) -> int | None:
    """Where to cut a file whose last line has no newline; None when there is nothing to cut."""
    try:
        descriptor = os.open(path, os.O_RDONLY | NO_FOLLOW)
    except FileNotFoundError:
        return None
    try:
        end = os.lseek(descriptor, 0, os.SEEK_END)
        kept = end
        while kept > 0:
            start = max(0, kept - 4096)
            block = os.pread(descriptor, kept - start, start)
            if kept == end and block.endswith(b"\n"):
                return None
            cut = block.rfind(b"\n")
            if cut >= 0:
                return start + cut + 1
            kept = start
        return 0 if end > 0 else None
    finally:
        os.close(descriptor)
