"""Arrangements that run once per process, whoever asks for them.

Bringing up a cluster takes a hundred times as long as copying one. So the first call keeps what it
got: the disks as they are, and all objects pickled. Every caller, the first one too, gets a copy of
its own, below its own scratch directory. `arranged` is for functions that make a world, `begun` for
a method with which a world begins.
"""

from __future__ import annotations

import inspect
import io
import os
import pickle
import stat
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Concatenate, Generic, ParamSpec, Protocol, TypeVar

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
            kept[asked] = _keep(lambda home: arrange(home, *args, **kwargs))
        return kept[asked].below(scratch)

    return copy


class Beginning(Protocol):
    """What `begun` needs to know of a world."""

    def scratch(self) -> Path:
        """Below it lies all that the world has on disk."""

    def begins(self) -> tuple[object, ...]:
        """While nothing has happened in it: all that may be held by whoever holds the world, which
        comes first. Later nothing."""


W = TypeVar("W", bound=Beginning)


def begun(arrange: Callable[Concatenate[W, P], None]) -> Callable[Concatenate[W, P], None]:
    """Give a method of a world a memory: a world that begins with it takes a copy of what one that
    began alike came to, with equal arguments. Later it is a method like any other; so it is where
    somebody has hung into the world what cannot be pickled."""
    kept: dict[tuple[object, ...], _Kept[list[dict[str, object]]]] = {}
    form = inspect.signature(arrange)

    @wraps(arrange)
    def begin(world: W, *args: P.args, **kwargs: P.kwargs) -> None:
        held = world.begins()
        start = _start(held, world.scratch()) if held else None
        if start is None:
            arrange(world, *args, **kwargs)
            return
        whole = form.bind(world, *args, **kwargs)
        whole.apply_defaults()
        asked = (start, *whole.args[1:], *whole.kwargs.items())
        if asked not in kept:
            twins = tuple(object.__new__(type(one)) for one in held)

            def play(home: Path) -> list[dict[str, object]]:
                _fill(twins, _Moved(start, home, twins).load())
                arrange(twins[0], *args, **kwargs)
                return _states(twins)

            kept[asked] = _keep(play, twins)
        _fill(held, kept[asked].below(world.scratch(), held))

    return begin


def _start(held: tuple[object, ...], home: Path) -> bytes | None:
    """How a world begins; None when it cannot be pickled."""
    objects = io.BytesIO()
    try:
        _Moving(objects, home, held).dump(_states(held))
    except (AttributeError, TypeError, pickle.PicklingError):
        return None
    return objects.getvalue()


def _states(held: tuple[object, ...]) -> list[dict[str, object]]:
    return [one.__getstate__() for one in held]


def _fill(held: tuple[object, ...], states: list[dict[str, object]]) -> None:
    for one, state in zip(held, states, strict=True):
        one.__dict__.clear()
        one.__dict__.update({sys.intern(name): value for name, value in state.items()})


@dataclass(frozen=True)
class _Kept(Generic[T]):
    disks: tuple[_Entry, ...]
    objects: bytes

    def below(self, scratch: Path, held: tuple[object, ...] = ()) -> T:
        scratch.mkdir(parents=True, exist_ok=True)
        for entry in self.disks:
            entry.write(f"{scratch}/{entry.path}")
        copy: T = _Moved(self.objects, scratch, held).load()
        return copy


def _keep(arrange: Callable[[Path], T], held: tuple[object, ...] = ()) -> _Kept[T]:
    objects = io.BytesIO()
    carried = CARRIED.copy()
    with tempfile.TemporaryDirectory(prefix="keel-arranged-") as disks:
        home = Path(disks)
        _Moving(objects, home, held).dump(arrange(home))
        entries = tuple(_entry(home, path) for path in sorted(home.rglob("*")))
    CARRIED.clear()  # whoever happens to ask first does not pay for it
    CARRIED.update(carried)
    return _Kept(entries, objects.getvalue())


@dataclass(frozen=True)
class _Entry:
    """A directory, a file or a symbolic link on a disk, whole. shutil.copytree asks the kernel four
    times as often."""

    path: str
    mode: int
    content: bytes | str | None
    """Of a file; a link's target; None for a directory."""

    def write(self, place: str) -> None:
        match self.content:
            case None:
                os.mkdir(place)
                os.chmod(place, self.mode)
            case str(target):
                os.symlink(target, place)
            case data:
                descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
                os.write(descriptor, data)
                os.fchmod(descriptor, self.mode)
                os.close(descriptor)


def _entry(home: Path, path: Path) -> _Entry:
    found = path.lstat()
    content: bytes | str | None = None
    if path.is_symlink():
        content = str(path.readlink())
    elif not path.is_dir():
        assert path.is_file(), path
        content = path.read_bytes()
    return _Entry(str(path.relative_to(home)), stat.S_IMODE(found.st_mode), content)


class _Moving(pickle.Pickler):
    """Paths below `home` are written as what they are below it, what is held by its place."""

    def __init__(self, file: io.BytesIO, home: Path, held: tuple[object, ...]) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._home = home
        self._places = {id(one): place for place, one in enumerate(held)}

    def persistent_id(self, obj: object) -> str | int | None:
        if isinstance(obj, Path) and obj.is_relative_to(self._home):
            return str(obj.relative_to(self._home))
        return self._places.get(id(obj))


class _Moved(pickle.Unpickler):
    def __init__(self, objects: bytes, home: Path, held: tuple[object, ...]) -> None:
        super().__init__(io.BytesIO(objects))
        self._home = home
        self._held = held

    def persistent_load(self, pid: str | int) -> object:
        return self._home / pid if isinstance(pid, str) else self._held[pid]
