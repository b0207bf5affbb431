"""A member is removed, and changes that nobody confirms are undone: after a cut SSH session, a kill
and a reboot alike.
"""

from __future__ import annotations

import json
import subprocess
import time
from functools import partial
from typing import Any

from netns import mesh
from netns.lab import Lab
from netns.scenario import Report
from netns.topology import Mode, Name, names

NAME = "mesh_remove"
ROWS = ("M9", "M10", "Q3")
LINK = "125ms,12.5ms,1%"
MEMBERS = 4
MODE = Mode.CLOUD
JOINED = True

A, B, C, D = EVERYONE = names(4)
GONE_SECONDS = 15.0
SHORT_SECONDS = 40
"""What two appliances' windows last here, by a drop-in for the timer; on the third the timer that
keel arms is looked at."""
POLL_SECONDS = 0.005
KEY = "/root/.ssh/id_ed25519"
SSH = ["ssh", "-o", "StrictHostKeyChecking=no", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20"]


def run(lab: Lab, report: Report) -> None:
    mesh.wait_until_whole(lab, EVERYONE)
    keys = {name: key_of(lab, name) for name in EVERYONE}
    removed(lab, report, keys[D])
    armed = (cut_ssh(lab, report, keys), killed(lab, report, keys))
    rebooted(lab, report, keys)
    for name, subject, begun in armed:
        lab.wait(partial(has_peer, lab, name, keys[subject]), 60, f"{name} to have its peer again")
        lab.wait(partial(timer_said, lab, name, subject), 20, f"{name}'s timer to have done it")
        seconds = time.monotonic() - begun
        report.note(f"{name}: undone by its timer, seen {seconds:.0f} s after it was armed")
    mesh.wait_until_whole(lab, (A, B, C))
    left = [name for name in (A, B, C) if window(lab, name)]
    report.expect(not left, "no window is left, and the three see each other up")


def removed(lab: Lab, report: Report, key: str) -> None:
    """a removes d while c is off: gone from b at once, from c before it has a word with d."""
    lab.kill(C)
    lab.wait(lambda: D in seen(lab, A), 30, "a to see d")
    command = lab.popen(A, ["keel", "mesh", "remove", D, "--json"])
    reach(lab, A)
    begun = time.monotonic()
    for name in (A, B):
        lab.wait(partial(has_no_peer, lab, name, key), 30, f"{name} to drop d's peer")
        took = time.monotonic() - begun
        report.expect(
            took <= GONE_SECONDS, f"{name} has no such peer {took:.1f} s after the change"
        )
    done = json.loads(command.communicate(timeout=120)[0])
    told = (done["mesh_wide"], done["told"], done["not_told"]) == (True, [B], [C])
    report.expect(told, f"a removed d for all, told {done['told']}, not {done['not_told']}")
    lab.start(C)
    took = lab.wait(partial(has_no_peer, lab, C, key), 90, "c to learn it")
    report.expect(
        D not in seen(lab, C), f"c, which was off, learned it {took:.0f} s after its boot"
    )


def cut_ssh(lab: Lab, report: Report, keys: dict[Name, str]) -> tuple[Name, Name, float]:
    """An operator on a, over SSH on b, has b drop a's peer: the session is dead, b is not lost."""
    shorten(lab, B)
    address = mesh.status(lab, B)["self"]["address"]
    lab.exec(A, ["bash", "-c", f"mkdir -p /root/.ssh && ssh-keygen -q -t ed25519 -N '' -f {KEY}"])
    public = lab.exec(A, ["cat", f"{KEY}.pub"]).stdout
    lab.put(B, "/root/.ssh/authorized_keys", public, mode=0o600)
    whole = partial(ssh_works, lab, address)
    lab.wait(whole, 60, "a to have an SSH session on b")
    session = lab.popen(A, [*SSH, f"root@{address}", "keel", "mesh", "remove", A])
    reach(lab, B)
    begun = time.monotonic()
    found = window(lab, B)
    report.expect(found["confirmer"] == "operator", f"b: only the operator: {found['why']}")
    lab.wait(partial(has_no_peer, lab, B, keys[A]), 20, "b to drop a's peer")
    report.expect(not ssh_works(lab, address, 3), "the SSH session's path is cut")
    session.kill()
    return B, A, begun


def killed(lab: Lab, report: Report, keys: dict[Name, str]) -> tuple[Name, Name, float]:
    """c's command is killed with SIGKILL while it waits for the others' answers."""
    shorten(lab, C)
    begun = armed_and_cut(lab, C, B)
    lab.wait(partial(has_no_peer, lab, C, keys[B]), 20, "c to drop b's peer")
    lab.exec(C, ["pkill", "-KILL", "-f", "keel mesh remove"])
    lab.heal(C)
    report.expect(has_no_peer(lab, C, keys[B]), "c's command is dead, b's peer is gone as armed")
    for argv in (["mesh", "invite"], ["mesh", "remove", A], ["mesh", "leave"]):
        done = lab.exec(C, ["keel", *argv, "--json"], check=False)
        rule = json.loads(done.stdout).get("rule")
        refused = (done.returncode, rule) == (3, "window-open")
        report.expect(refused, f"c: keel {' '.join(argv)} is refused: {rule}")
    shown = mesh.status(lab, C)["window"] or {}
    report.expect(shown.get("member") == B, f"c's status shows it: {shown}")
    return C, B, begun


def rebooted(lab: Lab, report: Report, keys: dict[Name, str]) -> None:
    """a loses its power while it waits; its next boot raises c's peer as if nothing had been."""
    before = records(lab, A)
    armed_and_cut(lab, A, C)
    argv = ["systemctl", "show", "keel-window.timer", "--property=TimersMonotonic,AccuracyUSec"]
    timer = lab.exec(A, argv).stdout
    exact = "OnActiveUSec=2min" in timer and "AccuracyUSec=1s" in timer
    report.expect(exact, f"a: the timer that keel armed: {timer.split()}")
    lab.kill(A)
    report.expect(bool(window(lab, A)), "a's power is cut while its window is armed")
    lab.start(A)
    lab.heal(A)
    took = lab.wait(partial(has_peer, lab, A, keys[C]), 60, "a to have c's peer again")
    same = records(lab, A) == before and not window(lab, A)
    report.expect(same, f"a: undone {took:.0f} s after its boot, and nothing was signed")


def armed_and_cut(lab: Lab, name: Name, subject: Name) -> float:
    """`keel mesh remove`, with the node cut off as soon as its window is armed; when that was."""
    lab.popen(name, ["keel", "mesh", "remove", subject])
    reach(lab, name)
    lab.cut(name)
    return time.monotonic()


def reach(lab: Lab, name: Name) -> None:
    """Wait for an armed window, close enough to act on it."""
    deadline = time.monotonic() + 60
    while not window(lab, name):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{name} armed no window")
        time.sleep(POLL_SECONDS)


def shorten(lab: Lab, name: Name) -> None:
    text = f"[Timer]\nOnActiveSec=\nOnActiveSec={SHORT_SECONDS}s\n"
    lab.put(name, "/etc/systemd/system/keel-window.timer.d/short.conf", text)
    lab.exec(name, ["systemctl", "daemon-reload"])


def window(lab: Lab, name: Name) -> dict[str, Any]:
    return mesh.record(lab, name, "window.json")


def timer_said(lab: Lab, name: Name, subject: Name) -> bool:
    return f"the removal of {subject} undone" in lab.journal(name, "--unit", "keel-window.service")


def records(lab: Lab, name: Name) -> set[str]:
    """The names of the roster's records, but self records, which are made anew now and then."""
    place = lab.machine(name).disk / "root" / mesh.STATE / "roster"
    return {path.name for path in place.iterdir() if b"keel.self" not in path.read_bytes()}


def seen(lab: Lab, name: Name) -> list[str]:
    return [member["name"] for member in mesh.status(lab, name)["members"]]


def key_of(lab: Lab, name: Name) -> str:
    return lab.exec(name, ["wg", "show", "keel0", "public-key"]).stdout.strip()


def has_peer(lab: Lab, name: Name, key: str) -> bool:
    return key in lab.exec(name, ["wg", "show", "keel0", "peers"], check=False).stdout


def has_no_peer(lab: Lab, name: Name, key: str) -> bool:
    """The interface is there, and the peer is not."""
    done = lab.exec(name, ["wg", "show", "keel0", "peers"], check=False)
    return done.returncode == 0 and key not in done.stdout


def ssh_works(lab: Lab, address: str, seconds: int = 20) -> bool:
    try:
        return (
            lab.exec(A, [*SSH, f"root@{address}", "true"], check=False, timeout=seconds).returncode
            == 0
        )
    except subprocess.TimeoutExpired:
        return False
