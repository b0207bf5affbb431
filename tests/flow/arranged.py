"""Arrangements that run once per process, whoever asks for them.

Bringing up a cluster takes a hundred times as long as copying one. So the first call keeps what it
got: the disks as they are, and all objects pickled. Every caller, the first one too, gets a copy of
its own, below its own scratch directory.
"""

from __future__ import annotations

import io
import pickle
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Concatenate, Generic, ParamSpec, TypeVar

from tests.fakes.net import CARRIED

P = ParamSpec("P")
T = TypeVar("T")


def arranged(arrange: Callable[Concatenate[Path, P], T]) -> Callable[Concatenate[Path, P], T]:
    """Give `arrange(scratch, ...)` a memory: equal further arguments get equal worlds.

    What it gives has to follow from its arguments alone, as nobody runs it again; and no lambda may
    be left in it, as none can be pickled.
    """
    kept: dict[tuple[object, ...], _Kept[T]] = {}

    @wraps(arrange)
    def copy(scratch: Path, *args: P.args, **kwargs: P.kwargs) -> T:
        asked = (args, tuple(sorted(kwargs.items())))
        if asked not in kept:
            carried = CARRIED.copy()
            kept[asked] = _keep(lambda home: arrange(home, *args, **kwargs))
            CARRIED.clear()  # whoever happens to ask first does not pay for it
            CARRIED.update(carried)
        return kept[asked].below(scratch)

    return copy


@dataclass(frozen=True)
class _Kept(Generic[T]):
    disks: tempfile.TemporaryDirectory[str]
    objects: bytes

    def below(self, scratch: Path) -> T:
        shutil.copytree(self.disks.name, scratch, symlinks=True, dirs_exist_ok=True)
        copy: T = _Moved(self.objects, scratch).load()
        return copy


def _keep(arrange: Callable[[Path], T]) -> _Kept[T]:
    disks = tempfile.TemporaryDirectory(prefix="keel-arranged-")
    home = Path(disks.name)
    objects = io.BytesIO()
    _Moving(objects, home).dump(arrange(home))
    return _Kept(disks, objects.getvalue())


class _Moving(pickle.Pickler):
    """Paths below `home` are written as what they are below it."""

    def __init__(self, file: io.BytesIO, home: Path) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._home = home

    def persistent_id(self, obj: object) -> str | None:
        if isinstance(obj, Path) and obj.is_relative_to(self._home):
            return str(obj.relative_to(self._home))
        return None


class _Moved(pickle.Unpickler):
    def __init__(self, objects: bytes, home: Path) -> None:
        super().__init__(io.BytesIO(objects))
        self._home = home

    def persistent_load(self, pid: str) -> Path:
        return self._home / pid
