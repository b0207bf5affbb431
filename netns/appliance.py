"""One appliance: a systemd-nspawn machine over an overlay of its own; boots it, cuts its power,
runs commands in it.

Everything is reached through the anchor: its mount namespace by nsenter, its files through
/proc/PID/root.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from netns import anchor
from netns.process import SHORT_PATIENCE_SECONDS, run
from netns.topology import Mode, Name, Node, spec

WAITS_FOR_OTHERS = "etcd.service"
PASSES = frozenset(
    f"keel-mesh-{name}.service" for name in ("sync", "etcd", "etcd-fast", "alert")
)  # which timers start again and again, most of all while etcd waits
ENVIRONMENT = (
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME=/root",
    "LANG=C.UTF-8",
    "TERM=dumb",
)

# $1 name, $2 lower directories. The upper directory survives a power cut and is the appliance's
# disk.
MOUNT = """
set -eu
disk=/run/lab/$1
mkdir -p "$disk/upper" "$disk/work" "$disk/root"
mount -t overlay overlay "$disk/root" \
    -o "lowerdir=$2,upperdir=$disk/upper,workdir=$disk/work,index=off,metacopy=off,redirect_dir=off"
"""

# $1 name, $2 machine name, $3 control group. A given network namespace does not bring CAP_NET_ADMIN
# along, as a private one does. Leaves systemd-nspawn behind, a child of the anchor.
BOOT = """
set -eu
group=/sys/fs/cgroup/$3
mkdir -p "$group"
echo $$ > "$group/cgroup.procs"
export SYSTEMD_NSPAWN_API_VFS_WRITABLE=network
setsid systemd-nspawn -q -D "/run/lab/$1/root" --machine="$2" --hostname="$1" --boot \
    --register=no --keep-unit --network-namespace-path="/run/netns/$1" \
    --capability=CAP_NET_ADMIN --bind=/dev/net/tun \
    --console=pipe --link-journal=no --resolv-conf=off --timezone=off \
    </dev/null >>"/run/lab/$1/console" 2>&1 &
"""


class NotRunning(Exception):
    def __init__(self, name: Name) -> None:
        super().__init__(f"appliance {name} is not running\nhint: netns/lab start {name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """An appliance of a running lab."""

    node: Node
    instance: str
    anchor_pid: int

    @property
    def name(self) -> Name:
        return self.node.name

    @property
    def disk(self) -> Path:
        """Seen from outside: `root` is the tree, `upper` what it changed, `console` the boots."""
        return Path(f"/proc/{self.anchor_pid}/root{anchor.DISKS}/{self.name}")

    @property
    def _group(self) -> str:
        return f"{group_of(self.instance)}/{self.name}"

    @property
    def _group_directory(self) -> Path:
        return Path(f"/proc/{self.anchor_pid}/root{anchor.CONTROL_GROUPS}/{self._group}")

    def create(self, lower: Sequence[Path], mode: Mode) -> None:
        """Make the disk and what an installer would have written on it."""
        self.mount(lower)
        machine_id = hashlib.sha256(f"{self.instance} {self.name}".encode()).hexdigest()[:32]
        hosts = f"127.0.0.1 localhost\n::1 localhost ip6-localhost\n127.0.1.1 {self.name}\n"
        files = {
            "etc/hostname": f"{self.name}\n",
            "etc/hosts": hosts,
            "etc/machine-id": f"{machine_id}\n",
            "etc/keel/spec.yaml": spec(self.node, mode),
        }
        for path, text in files.items():
            target = self.disk / "root" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)

    def mount(self, lower: Sequence[Path]) -> None:
        """Mount the disk; an upper directory that is there already is taken as it is."""
        self._within("sh", "-c", MOUNT, "mount", self.name, ":".join(map(str, lower)))

    def unmount(self) -> None:
        self._within("umount", "--lazy", f"{anchor.DISKS}/{self.name}/root")

    def add_namespace(self) -> None:
        self._within("ip", "netns", "add", self.name)

    def delete_namespace(self) -> None:
        """What a power cut takes along: interfaces, addresses, routes, rules, sysctls."""
        if Path(f"/proc/{self.anchor_pid}/root/run/netns/{self.name}").exists():
            self._within("ip", "netns", "delete", self.name)

    def boot(self) -> None:
        """Start systemd; returns at once."""
        self._within(
            "sh", "-c", BOOT, "boot", self.name, f"{self.instance}-{self.name}", self._group
        )

    def cut_power(self) -> None:
        """SIGKILL everything in it and wait until it is gone.

        Its control groups go too: Linux 6.18 kills what is later started into a group once killed.
        """
        group = self._group_directory
        if not group.exists():
            return
        (group / "cgroup.kill").write_text("1")
        deadline = time.monotonic() + SHORT_PATIENCE_SECONDS
        while "populated 1" in (group / "cgroup.events").read_text():
            if time.monotonic() > deadline:
                raise TimeoutError(f"appliance {self.name} does not die")
            time.sleep(0.02)
        for directory, _, _ in os.walk(group, topdown=False):
            Path(directory).rmdir()

    def freeze(self, *, frozen: bool) -> None:
        """Stop every process where it stands, or let them go on."""
        (self._group_directory / "cgroup.freeze").write_text("1" if frozen else "0")

    def leader(self) -> int | None:
        """The PID of its systemd, as this machine sees it; None while there is none."""
        for group in ("payload/init.scope", "payload", "init.scope", ""):
            with contextlib.suppress(OSError):
                for pid in (self._group_directory / group / "cgroup.procs").read_text().split():
                    status = Path(f"/proc/{pid}/status").read_text()
                    nested = next(
                        line for line in status.splitlines() if line.startswith("NSpid:")
                    ).split()[1:]
                    if nested[-1] == "1":
                        return int(pid)
        return None

    def command(self, argv: Sequence[str]) -> list[str]:
        """What to run on this machine so that `argv` runs in the appliance. Raises NotRunning."""
        leader = self.leader()
        if leader is None:
            raise NotRunning(self.name)
        enter = ["nsenter", "-t", str(leader), "-m", "-u", "-i", "-n", "-p", "--"]
        return [*enter, "env", "-i", *ENVIRONMENT, *argv]

    def network_command(self, argv: Sequence[str]) -> list[str]:
        """The same with this machine's files and programs: only the network is the appliance's."""
        return within(self.anchor_pid, ["ip", "netns", "exec", self.name, *argv])

    def booted(self) -> bool:
        """Whether systemd has started everything, or failed to, but for what may wait for other
        appliances: an etcd waits for its quorum.
        """
        try:
            command = self.command(["systemctl", "is-system-running"])
        except NotRunning:
            return False
        verdict = run(command, timeout=SHORT_PATIENCE_SECONDS).stdout.strip()
        if verdict == "starting":
            jobs = self.command(["systemctl", "list-jobs", "--no-legend", "--plain"])
            return only_waits(run(jobs, timeout=SHORT_PATIENCE_SECONDS).stdout)
        return verdict in ("running", "degraded")

    def failed_units(self) -> list[str]:
        """The units that failed."""
        argv = ["systemctl", "--failed", "--plain", "--no-legend"]
        return run(self.command(argv), timeout=SHORT_PATIENCE_SECONDS).stdout.splitlines()

    def _within(self, *argv: str) -> None:
        subprocess.run(within(self.anchor_pid, argv), check=True, stdin=subprocess.DEVNULL)


def only_waits(jobs: str) -> bool:
    """Whether what `systemctl list-jobs` shows at work is only what may take for ever."""
    rows = [line.split() for line in jobs.splitlines()]
    running = {unit for _, unit, _, state in rows if state == "running"}
    return running - PASSES == {WAITS_FOR_OTHERS}


def within(anchor_pid: int, argv: Sequence[str]) -> list[str]:
    """What to run so that `argv` runs in the lab's own namespaces."""
    return ["nsenter", "-t", str(anchor_pid), "-m", "-p", "--", *argv]


def group_of(instance: str) -> str:
    """The control group that holds all of one lab."""
    return f"keel-lab.{instance}"
