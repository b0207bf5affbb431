"""etcd as a unit and files of this machine: keel.etcdport.EtcdOverlay.

Owns what is laid under /etc/etcd/keel, keel's drop-in, the start and the stop, and what is done
with Debian's own member (E16). Decides nothing: keel.mesh.etcdplan and keel.mesh.etcdguard do.
(U1) A start never blocks: etcd is ready only with a quorum. One without data may be a birth:
     `before_birth` is called before it.
(U2) etcd's data is moved aside and never deleted; the marker follows its data, never before it.
(U3) Only a stray member that keel-overlay-etcd marked is removed.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from ipaddress import IPv6Address
from pathlib import Path

from keel.errors import Refused
from keel.etcdport import DataState, StrayMember
from keel.mesh.etcdsettings import foreign_runs
from keel.paths import Paths
from keel.ports import Files, Proc, Units
from keel.types import Secret
from keel.unitnames import ETCD_UNIT

OWNER = "etcd"
MASK_SECONDS = 20.0
MAX_LAID_BYTES = 1 << 20


class EtcdUnit:
    """keel.etcdport.EtcdOverlay on systemd and the file system."""

    def __init__(
        self,
        paths: Paths,
        *,
        files: Files,
        units: Units,
        proc: Proc,
        before_birth: Callable[[], None] = lambda: None,
    ) -> None:
        self._paths = paths
        self._files = files
        self._units = units
        self._proc = proc
        self._before_birth = before_birth

    def installed(self) -> bool:
        return self._files.exists(self._paths.capability_marker)

    def lay(self, files: Mapping[str, Secret]) -> tuple[str, ...]:
        laid = self._paths.laid
        self._files.make_dir(laid, mode=0o700, owner=OWNER)
        changed = [name for name in self._files.names(laid) if name not in files]
        for name in changed:
            self._files.remove(laid / name)
        for name, data in files.items():
            if self.laid(name) != data:
                self._files.write(laid / name, data.reveal(), mode=0o600, owner=OWNER)
                changed.append(name)
        return tuple(sorted(changed))

    def laid(self, name: str) -> Secret | None:
        data = self._files.read(self._paths.laid / name, max_bytes=MAX_LAID_BYTES)
        return None if data is None else Secret(data)

    def write_drop_in(self, text: bytes) -> bool:
        path = self._paths.etcd_drop_in
        if self._files.read(path) == text:
            return False
        self._files.make_dir(path.parent, mode=0o755)
        self._files.write(path, text, mode=0o644)
        self._units.reload_configuration()
        return True

    def start(self) -> None:
        found = self._units.state(ETCD_UNIT)
        if found.enabled in ("masked", "masked-runtime"):
            runtime = ["--runtime"] if found.enabled == "masked-runtime" else []
            argv = ["systemctl", "unmask", "--quiet", "--no-reload", *runtime, "--", ETCD_UNIT]
            self._proc.run(argv, timeout_seconds=MASK_SECONDS)
        if found.enabled != "enabled":
            self._units.enable(ETCD_UNIT)
        # `stale`: a kill after the drop-in's write and before its reload is made good here
        if found.enabled != "enabled" or found.stale:
            self._units.reload_configuration()
            changed = foreign_runs(self._units.state(ETCD_UNIT).runs)
            if changed is not None:  # nobody's plan could know before
                raise Refused(
                    "etcd-unit-changed",
                    f"etcd.service would start etcd with {changed}",
                    "`systemctl cat etcd` shows where it stands; take it out, then"
                    " `systemctl daemon-reload`",
                )
        if self.data_state() is not DataState.PRESENT:
            self._before_birth()
        self._units.start(ETCD_UNIT, block=False)

    def stop(self) -> None:
        self._units.stop(ETCD_UNIT)
        self._units.disable(ETCD_UNIT)
        self._proc.run(
            ["systemctl", "mask", "--quiet", "--", ETCD_UNIT], timeout_seconds=MASK_SECONDS
        )

    def data_state(self) -> DataState:
        if not self._files.exists(self._paths.etcd_data):
            return DataState.ABSENT
        # by this and nothing else etcd itself tells a member that goes on from one that begins
        if any(name.endswith(".wal") for name in self._files.names(self._paths.etcd_log)):
            return DataState.PRESENT
        return DataState.NO_LOG if self._files.names(self._paths.etcd_data) else DataState.EMPTY

    def set_data_aside(self, label: str) -> Path | None:
        moved = None
        for path in (self._paths.etcd_data, self._paths.etcd_marker):
            if self._files.exists(path):
                aside = path.with_name(f"{path.name}.{label}")
                self._files.rename(path, aside)
                moved = moved or aside
        return moved

    def address_usable(self, address: IPv6Address) -> bool:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            try:
                probe.bind((address.compressed, 0))
            except OSError:
                return False
        return True

    def stray(self) -> StrayMember:
        if not self._files.exists(self._paths.stray_data):
            return StrayMember.NONE
        marked = self._files.exists(self._paths.stray_marker)
        return StrayMember.MARKED if marked else StrayMember.FOREIGN

    def remove_stray(self) -> None:
        if self.stray() is StrayMember.FOREIGN:
            raise Refused(
                "etcd-stray-foreign",
                f"{self._paths.stray_data} has a member that keel did not make",
                "move it away by hand if it is not needed, then run `keel spec apply`",
            )
        self._units.stop(ETCD_UNIT)
        self._files.remove(self._paths.stray_data)
        self._files.remove(self._paths.stray_marker)
