"""nftables' table `inet keel`, loaded whole; its text is keel.mesh.firewallrules'."""

from __future__ import annotations

from keel.errors import ProcFailed
from keel.mesh.firewallrules import TABLE
from keel.ports import Proc


class Nftables:
    """keel.ports.Firewall."""

    def __init__(self, proc: Proc) -> None:
        self._proc = proc

    def load(self, ruleset: str) -> None:
        self._proc.run(["nft", "-f", "-"], stdin=ruleset.encode())

    def drop(self) -> None:
        argv = ["nft", "delete", "table", *TABLE.split()]
        done = self._proc.run(argv, check=False)
        stderr = done.stderr.decode("utf-8", "replace")
        if done.returncode != 0 and "No such file or directory" not in stderr:
            raise ProcFailed(argv, done.returncode, stderr)
