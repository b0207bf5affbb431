"""The primitives a disk is changed with: the layer below keel.system.fs.

Each call is one step that a power cut can fall between. Nothing here is durable by itself: bytes
are after `sync_file`, names are after `sync_dir`. keel.system.fs orders these so that a write is
whole or not at all; tests record the order, cut it short anywhere, and replay it as a disk that
dropped what was not synced.
"""

from __future__ import annotations

import errno
import os
import pwd
import stat
from pathlib import Path
from typing import Protocol

NO_FOLLOW = os.O_NOFOLLOW | os.O_CLOEXEC


class DiskOps(Protocol):
    """OSError as the kernel gives it; FileNotFoundError also for an owner that does not exist."""

    def create(self, path: Path, data: bytes, *, mode: int, owner: str | None) -> None:
        """A new file with these bytes, mode and owner; FileExistsError when the name is taken."""

    def append(self, path: Path, data: bytes, *, mode: int) -> None:
        """Add bytes at the end; a new file gets `mode`."""

    def truncate(self, path: Path, size: int) -> None: ...

    def sync_file(self, path: Path) -> None: ...

    def link(self, source: Path, target: Path) -> None:
        """A second name for a file; FileExistsError when the name is taken."""

    def rename(self, source: Path, target: Path) -> None: ...

    def unlink(self, path: Path) -> None: ...

    def mkdir(self, path: Path, *, mode: int) -> None: ...

    def rmdir(self, path: Path) -> None: ...

    def set_access(self, path: Path, *, mode: int, owner: str | None) -> None:
        """Mode and owner of a directory; an owner of None is left as it is."""

    def access(self, path: Path) -> tuple[int, str]:
        """Mode bits and the owner's name; a symbolic link's own."""

    def sync_dir(self, path: Path) -> None: ...


class Disk:
    """DiskOps on the real file system."""

    def create(self, path: Path, data: bytes, *, mode: int, owner: str | None) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW, 0o600)
        try:
            if owner is not None:
                os.fchown(descriptor, *_ids(owner))
            os.fchmod(descriptor, mode)
            _write_all(descriptor, data)
        finally:
            os.close(descriptor)

    def append(self, path: Path, data: bytes, *, mode: int) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | NO_FOLLOW, mode)
        try:
            _write_all(descriptor, data)
        finally:
            os.close(descriptor)

    def truncate(self, path: Path, size: int) -> None:
        descriptor = os.open(path, os.O_WRONLY | NO_FOLLOW)
        try:
            os.ftruncate(descriptor, size)
        finally:
            os.close(descriptor)

    def sync_file(self, path: Path) -> None:
        _sync(path, os.O_RDONLY)

    def link(self, source: Path, target: Path) -> None:
        os.link(source, target, follow_symlinks=False)

    def rename(self, source: Path, target: Path) -> None:
        os.rename(source, target)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def mkdir(self, path: Path, *, mode: int) -> None:
        os.mkdir(path, mode)

    def rmdir(self, path: Path) -> None:
        os.rmdir(path)

    def set_access(self, path: Path, *, mode: int, owner: str | None) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | NO_FOLLOW)
        try:
            if owner is not None:
                os.fchown(descriptor, *_ids(owner))
            os.fchmod(descriptor, mode)
        finally:
            os.close(descriptor)

    def access(self, path: Path) -> tuple[int, str]:
        found = path.lstat()
        try:
            owner = pwd.getpwuid(found.st_uid).pw_name
        except KeyError:
            owner = str(found.st_uid)
        return stat.S_IMODE(found.st_mode), owner

    def sync_dir(self, path: Path) -> None:
        _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def _ids(owner: str) -> tuple[int, int]:
    try:
        entry = pwd.getpwnam(owner)
    except KeyError as error:
        raise FileNotFoundError(errno.ENOENT, f"no user {owner}") from error
    return entry.pw_uid, entry.pw_gid


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | NO_FOLLOW)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
