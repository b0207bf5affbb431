"""The process that a lab instance lives in: it holds the mount and PID namespaces, and reaps.
Killing it ends all.

As PID 1 of its PID namespace it takes every process of the lab with it; with the last of them go
the mounts, the network namespaces (named in a /run of their own) and the appliances' disks (a
tmpfs). Only control groups stay behind, since they belong to the whole machine:
`sweep_control_groups` removes them.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

CLONE_NEWNS = 0x00020000
CLONE_NEWPID = 0x20000000
DISKS = Path("/run/lab")  # inside: one directory per appliance
CONTROL_GROUPS = Path("/sys/fs/cgroup")

# $1 is the state directory, which stays visible under the fresh /run (systemd-nspawn refuses a /run
# on disk, and systemd 257 the old layout of control groups).
SETUP = """
set -eu
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs /mnt
mkdir -p "/mnt/${1#/run/}" /mnt/lab
mount --bind "$1" "/mnt/${1#/run/}"
mount --no-mtab --move /mnt /run
mount -t cgroup2 cgroup2 /mnt
umount --recursive /sys/fs/cgroup
mount --no-mtab --move /mnt /sys/fs/cgroup
mkdir -p "/sys/fs/cgroup/$2"
"""

# Deepest first. The groups are empty once their processes are gone, which may take a moment.
SWEEP = """
set -eu
mount -t cgroup2 cgroup2 /mnt
[ -d "/mnt/$1" ] || exit 0
echo 1 > "/mnt/$1/cgroup.kill"
tries=0
while [ -d "/mnt/$1" ] && [ $tries -lt 100 ]; do
    find "/mnt/$1" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.1
    tries=$((tries + 1))
done
[ ! -d "/mnt/$1" ]
"""


def start(state: Path, group: str) -> int:
    """Start an anchor and return its PID once its namespaces are ready."""
    argv = [sys.executable, "-m", "netns.anchor", str(state), group]
    with (state / "anchor.log").open("wb") as log:
        done = subprocess.run(
            argv,
            cwd=Path(__file__).parent.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            check=False,
        )
    if done.returncode != 0 or not done.stdout:
        raise OSError(
            f"the lab's namespaces can't be made: {(state / 'anchor.log').read_text().strip()}"
        )
    return int(done.stdout)


def sweep_control_groups(group: str) -> None:
    """Kill what is left in a lab's control groups and remove them, if there are any."""
    subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", SWEEP, "sweep", group],
        check=True,
    )


def main(state: str, group: str) -> None:
    """Make the namespaces, print the PID that holds them, and stay."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS | CLONE_NEWPID) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    ready, told = os.pipe()
    child = os.fork()
    if child:
        os.close(told)
        if os.read(ready, 1) != b"+":
            raise SystemExit(1)
        sys.stdout.write(f"{child}\n")
        return
    os.setsid()
    subprocess.run(["sh", "-c", SETUP, "anchor", state, group], check=True)
    os.write(told, b"+")
    null = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.closerange(3, 64)
    os.chdir("/")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps
    while True:
        signal.pause()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
