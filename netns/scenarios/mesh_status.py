"""Status says what packets say: a cut, a heal, a roamed member, an interface that somebody meddled
with, one that left.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from netns import mesh
from netns.lab import Lab
from netns.process import PATIENCE_SECONDS
from netns.scenario import Report
from netns.topology import Mode, Name, names, node

NAME = "mesh_status"
ROWS = ("M5", "M9", "M11")
LINK = "125ms,12.5ms,1%"
MODE = Mode.CLOUD
JOINED = True

A, B, C = EVERYONE = names(3)
ROAMED = 33
SUSPECT_BY = 25.0
DOWN_AFTER, DOWN_BY = 35.0, 75.0  # 45 s after the last packet, which came some seconds sooner
"""Of looks that begin later, or that end sooner: on a busy machine one takes twenty seconds."""
SQUATTER = """
import socket, time
taken = socket.create_server(("::", 4780), family=socket.AF_INET6)
time.sleep(600)
"""
GONE_SECONDS = 15.0  # of M9: within which a peer is gone; no guard against waiting


def run(lab: Lab, report: Report) -> None:
    mesh.wait_until_whole(lab, EVERYONE)
    cut(lab, report)
    healed(lab, report)
    roamed(lab, report)
    by_hand(lab, report)
    left(lab, report)


def seen(lab: Lab, watcher: Name, name: Name) -> dict[str, Any]:
    """A member as another one's status shows it; empty when it does not."""
    members = mesh.status(lab, watcher)["members"]
    return next((member for member in members if member["name"] == name), {})


def cut(lab: Lab, report: Report) -> None:
    """b is cut: no longer up as soon as it does not answer, down when nothing came for 45 s."""
    lab.cut(B)
    cut_at = time.monotonic()
    seen_as: list[str] = []
    while "down" not in seen_as:
        begun = time.monotonic() - cut_at
        found = mesh.status(lab, A)
        ended = time.monotonic() - cut_at
        states = {member["name"]: member["state"] for member in found["members"]}
        seen_as.append(states[B])
        told = {
            "up": begun < SUSPECT_BY,
            "suspect": begun < DOWN_BY,
            "down": "suspect" in seen_as and ended > DOWN_AFTER,
        }
        what = f"{begun:.0f} to {ended:.0f} s after the cut: {states[B]}"
        report.expect(told[states[B]], what)
    report.expect(states[C] == "up", f"c, which was not cut, is {states[C]}")
    codes = [warning["code"] for warning in found["warnings"]]
    report.expect("member-down" in codes, "and it is a warning")


def healed(lab: Lab, report: Report) -> None:
    lab.heal(B)
    seconds = lab.wait(
        lambda: seen(lab, A, B)["state"] == "up", PATIENCE_SECONDS, "a to see b up again"
    )
    report.note(f"up again {seconds:.1f} s after the heal")


def roamed(lab: Lab, report: Report) -> None:
    """c's provider gives it another address: it is found there and stays there."""
    lab.readdress(C, ROAMED)
    new = f"{node(C, host=ROAMED).hosts[0]}:51820"
    seconds = lab.wait(
        lambda: seen(lab, A, C)["endpoint"] == new, PATIENCE_SECONDS, "a to learn c's new endpoint"
    )
    up_there = partial(is_up_at, lab, new)
    lab.wait(up_there, PATIENCE_SECONDS, "c to be up at the endpoint that was learned")
    report.expect(True, f"c roamed to {new} in {seconds:.1f} s")
    lab.exec(A, ["keel", "mesh", "up"])
    lab.exec(A, ["keel", "mesh", "sync"], check=False)
    stays = seen(lab, A, C)["endpoint"]
    report.expect(stays == new, f"it is still at {stays} after an up and a sync")
    lab.wait(up_there, PATIENCE_SECONDS, "c to be up there still")


def is_up_at(lab: Lab, endpoint: str) -> bool:
    """Whether c is; the packet that a look asks with may be lost."""
    found = seen(lab, A, C)
    told = (found["endpoint"], found["endpoint_source"], found["state"])
    return told == (endpoint, "learned", "up")


def by_hand(lab: Lab, report: Report) -> None:
    """b's interface loses its address, a peer its own, and another program has the channel's port:
    b says so itself, and the timer's next pass puts all of it right.
    """
    lab.exec(B, ["systemctl", "stop", "keel-mesh-sync.timer"])
    lab.exec(B, ["systemctl", "start", "keel-mesh-sync.service"])  # no pass is at work after it
    lab.exec(B, ["systemctl", "stop", "keel-channel.socket"])
    lab.exec(B, ["systemd-run", "-q", "--collect", "--unit=squat", "python3", "-c", SQUATTER])
    taken = partial(port_is_taken, lab)
    lab.wait(taken, PATIENCE_SECONDS, "the port to be taken")
    own = mesh.status(lab, B)["self"]["address"]
    peer = lab.exec(A, ["wg", "show", "keel0", "public-key"]).stdout.strip()
    lab.exec(B, ["wg", "set", "keel0", "peer", peer, "allowed-ips", "192.0.2.0/24"])
    lab.exec(B, ["ip", "-6", "address", "delete", f"{own}/128", "dev", "keel0"])
    codes = {warning["code"] for warning in mesh.status(lab, B)["warnings"]}
    meddled = {"interface-changed", "channel-down"}
    report.expect(meddled <= codes, f"b was meddled with by hand: {', '.join(sorted(codes))}")
    lab.exec(B, ["systemctl", "stop", "squat"])
    lab.exec(B, ["systemctl", "start", "keel-mesh-sync.timer", "keel-mesh-sync.service"])
    righted = partial(warns_of_none, lab, meddled)
    lab.wait(righted, PATIENCE_SECONDS, "the timer's passes to put it right")
    report.expect(True, "after a pass of the timer's nothing of it is left")
    lab.wait(lambda: not mesh.status(lab, B)["warnings"], PATIENCE_SECONDS, "b to warn of nothing")
    mesh.wait_until_whole(lab, EVERYONE)


def warns_of_none(lab: Lab, codes: set[str]) -> bool:
    return not codes & {warning["code"] for warning in mesh.status(lab, B)["warnings"]}


def port_is_taken(lab: Lab) -> bool:
    return ":4780 " in lab.exec(B, ["ss", "-Hltn"]).stdout


def left(lab: Lab, report: Report) -> None:
    """c leaves: no peer of the others within 15 s, and it says so itself."""
    key = lab.exec(C, ["wg", "show", "keel0", "public-key"]).stdout.strip()
    lab.exec(C, ["keel", "mesh", "leave", "--yes"])
    begun = time.monotonic()
    for name in (A, B):
        lab.wait(partial(has_no_peer, lab, name, key), PATIENCE_SECONDS, f"{name} to drop c's peer")
        seconds = time.monotonic() - begun
        report.expect(seconds <= GONE_SECONDS, f"{name} has no such peer {seconds:.1f} s later")
    for name in (A, B):
        report.expect(not seen(lab, name, C), f"{name}'s status does not list c")
    tables = lab.exec(C, ["nft", "list", "tables"]).stdout
    links = lab.exec(C, ["ip", "-o", "link"]).stdout
    report.expect("keel" not in tables + links, "c has neither interface nor rules of keel's")
    refused = lab.exec(C, ["keel", "mesh", "status"], check=False)
    report.expect(refused.returncode == 3, f"c: {refused.stderr.splitlines()}")


def has_no_peer(lab: Lab, name: Name, key: str) -> bool:
    return key not in lab.exec(name, ["wg", "show", "keel0", "peers"]).stdout
