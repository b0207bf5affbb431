"""A node as its channel's process has it: the sandbox of keel-channel.service, for the flows.

The real one is shown in the lab (netns/scenarios/etcd_birth.py); here every message of every test
passes by the same bounds, so that no handler comes to need more.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

from keel.cli import channel
from keel.errors import DiskTrouble, KeelError
from keel.mesh import passes, passmsg
from keel.mesh.refusal import refusal_of
from keel.ports import Access, Host
from keel.system.fs import DurableFiles
from tests.fakes.host import FakeNode, NodeOverlay

WRITABLE = ("var/lib/keel", "run/keel")
HIDDEN = ("etc/etcd", "var/lib/keel-etcd", "var/lib/etcd")


class FencedFiles(DurableFiles):
    """keel.ports.Files within the channel's sandbox."""

    def __init__(self, node: FakeNode) -> None:
        super().__init__(node.disk)
        self._hidden = _below(node, HIDDEN)
        self._writable = _below(node, WRITABLE)

    def read(self, path: Path, *, max_bytes: int = 1 << 20) -> bytes | None:
        self._look(path)
        return super().read(path, max_bytes=max_bytes)

    def write(
        self, path: Path, data: bytes, *, mode: int = 0o600, owner: str | None = None
    ) -> None:
        self._change(path)
        super().write(path, data, mode=mode, owner=owner)

    def create(self, path: Path, data: bytes, *, mode: int = 0o600) -> bool:
        self._change(path)
        return super().create(path, data, mode=mode)

    def append(self, path: Path, line: bytes, *, mode: int = 0o600) -> None:
        self._change(path)
        super().append(path, line, mode=mode)

    def make_dir(self, path: Path, *, mode: int = 0o700, owner: str | None = None) -> None:
        self._change(path)
        super().make_dir(path, mode=mode, owner=owner)

    def rename(self, source: Path, target: Path) -> None:
        self._change(source)
        self._change(target)
        super().rename(source, target)

    def names(self, path: Path) -> tuple[str, ...]:
        self._look(path)
        return super().names(path)

    def exists(self, path: Path) -> bool:
        self._look(path)
        return super().exists(path)

    def access(self, path: Path) -> Access | None:
        self._look(path)
        return super().access(path)

    def remove(self, path: Path) -> None:
        self._change(path)
        super().remove(path)

    def _look(self, path: Path) -> None:
        if f"{path}/".startswith(self._hidden):
            raise DiskTrouble(path, errno.EACCES)

    def _change(self, path: Path) -> None:
        if not f"{path}/".startswith(self._writable):
            raise DiskTrouble(path, errno.EROFS)


class FencedOverlay(NodeOverlay):
    """keel.etcdport.EtcdOverlay within the channel's sandbox."""

    def __init__(self, node: FakeNode, files: FencedFiles) -> None:
        super().__init__(node)
        self._files = files


def _below(node: FakeNode, places: Iterable[str]) -> tuple[str, ...]:
    """What the paths in these places begin with: every read of every message is compared."""
    return tuple(f"{node.root}/{place}/" for place in places)


def narrowed(node: FakeNode) -> Host:
    """The host of its channel's process; what that asks for is done at once, with all rights."""
    files = FencedFiles(node)
    fenced = replace(node.host, files=files, overlay=FencedOverlay(node, files))
    return channel.narrowed(fenced, partial(_say, node))


def _say(node: FakeNode, word: str) -> bytes:
    """What keel.system.counter makes of a word."""
    node.overheard.append(word)
    try:
        return passmsg.done(passes.answer(node.host, word))
    except KeelError as error:
        return passmsg.refused(refusal_of(error))
