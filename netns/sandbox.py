"""Runs a shell script as root inside a stack of image layers; owns the overlay mount, nothing else.

Everything happens in mount and PID namespaces of its own: when the script ends, or is killed, no
mount and no process of it is left.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

SHOWN_LOG = 8000  # characters of a log that a failure prints

# $1 lower directories, $2 scratch directory, $3 upper directory or nothing, $4 script; then pairs
# of (directory here, directory inside). The overlay's features are named, because defaults differ
# by kernel and an upper directory becomes a lower one later.
ENTER = r"""
set -eu
lower=$1 scratch=$2 upper=$3 script=$4
shift 4
if [ -z "$upper" ]; then
    mount -t tmpfs tmpfs "$scratch"
    upper=$scratch/upper
    mkdir "$upper"
fi
mkdir -p "$scratch/work" "$scratch/merged"
root=$scratch/merged
mount -t overlay overlay "$root" \
    -o "lowerdir=$lower,upperdir=$upper,workdir=$scratch/work" \
    -o index=off,metacopy=off,redirect_dir=off
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
if [ -e "$root/etc/resolv.conf" ]; then
    mount --bind "$(realpath /etc/resolv.conf)" "$root/etc/resolv.conf"
fi
while [ $# -ge 2 ]; do
    mkdir -p "$root$2"
    mount --bind "$1" "$root$2"
    shift 2
done
ip link set lo up
exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
    DEBIAN_FRONTEND=noninteractive sh -euc "$script"
"""


class SandboxFailed(Exception):
    """The script ended with a failure; its output stands on stderr."""

    def __init__(self, what: str, returncode: int) -> None:
        super().__init__(f"{what} failed with exit code {returncode}")


def run_in_layers(
    layers: Sequence[Path],
    script: str,
    *,
    what: str,
    upper: Path | None = None,
    binds: Mapping[Path, str] | None = None,
    network: bool = False,
    log: Path | None = None,
) -> None:
    """Run `script` in the layers (topmost first), without a network unless asked.

    Changes go to `upper`, which must be on a real file system, or are forgotten. Output goes to
    `log`, else to stderr. Raises SandboxFailed.
    """
    pairs = [text for here, inside in (binds or {}).items() for text in (str(here), inside)]
    parent = upper.parent if upper else None
    with tempfile.TemporaryDirectory(prefix="sandbox.", dir=parent) as scratch, _output(log) as out:
        argv = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"]
        argv += [] if network else ["--net"]
        argv += ["sh", "-c", ENTER, "sandbox", ":".join(map(str, layers)), scratch]
        argv += [str(upper or ""), script, *pairs]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False)
    if done.returncode != 0:
        if log:
            sys.stderr.write(log.read_text(errors="replace")[-SHOWN_LOG:])
        raise SandboxFailed(what, done.returncode)


@contextlib.contextmanager
def _output(log: Path | None) -> Iterator[IO[bytes] | int]:
    if log is None:
        yield 2
    else:
        with log.open("ab") as stream:
            yield stream
