"""What keel does, on three real machines over a bad link; `make demo` runs it.

It prints what an operator would type and what comes back, and leaves the lab up to look around in.
"""

from __future__ import annotations

import os
import sys
import time

from netns import build, mesh
from netns.cli import EXPECTED
from netns.lab import Lab
from netns.scenario import STANDARD, ping
from netns.topology import Name, names, node

MEMBERS = 3


def main() -> int:
    """Run the demo; 0 when all of it worked."""
    if os.geteuid() != 0:
        sys.stderr.write("netns/demo: error: needs root\n")
        return 77
    try:
        demo(Lab())
    except EXPECTED as error:
        sys.stderr.write(f"netns/demo: error: {error}\n")
        return 1
    return 0


def demo(lab: Lab) -> None:
    """Everything from the build to the last look."""
    begun = time.monotonic()
    everyone = names(MEMBERS)
    title(f"{MEMBERS} Debian appliances, each direction between them {STANDARD}")
    build.package_layer()
    lab.down()
    lab.up(members=MEMBERS, link=STANDARD)
    sys.stdout.write(f"{lab.describe()}\n")
    if build.installed_version(lab.state().layers, "keel"):
        for name in everyone:
            show(lab, name, "keel --version")
    target = node(everyone[-1]).hosts[0]
    title("the link")
    sys.stdout.write(f"a pings {target}: {ping(lab, everyone[0], target, 50)}\n")
    form(lab, everyone)
    title(f"done in {time.monotonic() - begun:.0f} s")
    sys.stdout.write("look around: netns/lab exec a -- bash;  the end: netns/lab down\n")


def form(lab: Lab, everyone: tuple[Name, ...]) -> None:
    """A mesh, and at the third join its registry."""
    first, *others = everyone
    last = everyone[-1]
    title("a mesh")
    show(lab, first, "keel mesh create")
    for name in others:
        sys.stdout.write(f"{first}# keel mesh invite\n")
        token = mesh.invite(lab, first)
        sys.stdout.write(f"{token}\n")
        show(lab, name, "keel mesh join --token-file /dev/stdin", token)
    mesh.wait_until_whole(lab, everyone)
    title("a registry")
    mesh.wait_for_registry(lab, everyone)
    show(lab, first, "keel mesh status")
    etcdctl = 'eval "$(keel mesh etcd env)"; etcdctl'
    show(lab, first, f"{etcdctl} put greeting 'hello from {first}'")
    show(lab, last, f"{etcdctl} get greeting")


def show(lab: Lab, name: Name, command: str, stdin: str = "") -> None:
    """Print a command as typed on an appliance, run it, print what it says in its own order: its
    remarks are not all said after its answer."""
    sys.stdout.write(f"{name}# {command}\n")
    done = lab.exec(name, ["sh", "-c", f"exec 2>&1; {command}"], input=stdin)
    sys.stdout.write(done.stdout)
    sys.stdout.flush()


def title(text: str) -> None:
    sys.stdout.write(f"\n== {text}\n")
    sys.stdout.flush()
