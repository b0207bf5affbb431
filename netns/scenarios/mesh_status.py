"""Status says what packets say: a cut, a heal, a roamed member, an interface that somebody meddled
with, one that left.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from netns import mesh
from netns.lab import Lab
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
SQUATTER = """
import socket, time
taken = socket.create_server(("::", 4780), family=socket.AF_INET6)
time.sleep(600)
"""
BACK_SECONDS, GONE_SECONDS, ROAMED_SECONDS = 15.0, 15.0, 30.0


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
    begun = time.monotonic()
    first: dict[str, float] = {}
    while "down" not in first and time.monotonic() - begun < DOWN_BY:
        found = mesh.status(lab, A)
        seconds = time.monotonic() - begun
        states = {member["name"]: member["state"] for member in found["members"]}
        first.setdefault(states[B], seconds)
        told = states[B] != "up" or seconds < SUSPECT_BY
        report.expect(told, f"{seconds:.0f} s after the cut: {states[B]}")
    report.expect(states[C] == "up", f"c, which was not cut, is {states[C]}")
    suspect, down = first.get("suspect", -1), first.get("down", -1)
    in_time = 0 <= suspect < down and DOWN_AFTER < down < DOWN_BY
    report.expect(in_time, f"suspect from {suspect:.0f} s on, down from {down:.0f} s on")
    codes = [warning["code"] for warning in found["warnings"]]
    report.expect("member-down" in codes, "and it is a warning")


def healed(lab: Lab, report: Report) -> None:
    lab.heal(B)
    seconds = lab.wait(lambda: seen(lab, A, B)["state"] == "up", 60, "a to see b up again")
    report.expect(seconds <= BACK_SECONDS, f"up again {seconds:.1f} s after the heal")


def roamed(lab: Lab, report: Report) -> None:
    """c's provider gives it another address: it is found there and stays there."""
    lab.readdress(C, ROAMED)
    new = f"{node(C, host=ROAMED).hosts[0]}:51820"
    seconds = lab.wait(
        lambda: seen(lab, A, C)["endpoint"] == new, ROAMED_SECONDS, "a to learn c's new endpoint"
    )
    found = seen(lab, A, C)
    learned = found["endpoint_source"] == "learned" and found["state"] == "up"
    report.expect(learned, f"c roamed to {found['endpoint']} in {seconds:.1f} s")
    lab.exec(A, ["keel", "mesh", "up"])
    lab.exec(A, ["keel", "mesh", "sync"], check=False)
    found = seen(lab, A, C)
    kept = (found["endpoint"], found["state"]) == (new, "up")
    report.expect(kept, f"it is still {found['state']} there after an up and a sync")


def by_hand(lab: Lab, report: Report) -> None:
    """b's interface loses its address, a peer its own, and another program has the channel's port:
    b says so itself, and the timer's next pass puts all of it right.
    """
    lab.exec(B, ["systemctl", "stop", "keel-mesh-sync.timer", "keel-channel.socket"])
    lab.exec(B, ["systemd-run", "-q", "--collect", "--unit=squat", "python3", "-c", SQUATTER])
    lab.wait(lambda: ":4780 " in lab.exec(B, ["ss", "-Hltn"]).stdout, 20, "the port to be taken")
    own = mesh.status(lab, B)["self"]["address"]
    peer = lab.exec(A, ["wg", "show", "keel0", "public-key"]).stdout.strip()
    lab.exec(B, ["wg", "set", "keel0", "peer", peer, "allowed-ips", "192.0.2.0/24"])
    lab.exec(B, ["ip", "-6", "address", "delete", f"{own}/128", "dev", "keel0"])
    codes = {warning["code"] for warning in mesh.status(lab, B)["warnings"]}
    told = {"interface-changed", "channel-down"} <= codes
    report.expect(told, f"b was meddled with by hand: {', '.join(sorted(codes))}")
    lab.exec(B, ["systemctl", "stop", "squat"])
    lab.exec(B, ["systemctl", "start", "keel-mesh-sync.timer", "keel-mesh-sync.service"])
    codes = {warning["code"] for warning in mesh.status(lab, B)["warnings"]}
    report.expect(not codes, f"after a pass of the timer's: {', '.join(codes) or 'no warning'}")
    mesh.wait_until_whole(lab, EVERYONE)


def left(lab: Lab, report: Report) -> None:
    """c leaves: no peer of the others within 15 s, and it says so itself."""
    key = lab.exec(C, ["wg", "show", "keel0", "public-key"]).stdout.strip()
    begun = time.monotonic()
    lab.exec(C, ["keel", "mesh", "leave", "--yes"], timeout=120)
    took = time.monotonic() - begun
    for name in (A, B):
        lab.wait(partial(has_no_peer, lab, name, key), 60, f"{name} to drop c's peer")
        seconds = time.monotonic() - begun - took
        report.expect(seconds <= GONE_SECONDS, f"{name} has no such peer {seconds:.1f} s later")
        report.expect(not seen(lab, name, C), f"{name}'s status does not list c")
    tables = lab.exec(C, ["nft", "list", "tables"]).stdout
    links = lab.exec(C, ["ip", "-o", "link"]).stdout
    report.expect("keel" not in tables + links, "c has neither interface nor rules of keel's")
    refused = lab.exec(C, ["keel", "mesh", "status"], check=False)
    report.expect(refused.returncode == 3, f"c: {refused.stderr.splitlines()}")


def has_no_peer(lab: Lab, name: Name, key: str) -> bool:
    return key not in lab.exec(name, ["wg", "show", "keel0", "peers"]).stdout
