"""A member is removed, and changes that nobody confirms are undone: after a cut SSH session, a kill
and a reboot alike. Port, endpoint and MTU change by `keel spec apply`: confirmed by the members, by
the operator in a new SSH session, undone behind a firewall that knows only the old port.
"""

from __future__ import annotations

import json
import subprocess
import time
from datetime import datetime
from functools import partial
from typing import Any

from netns import mesh
from netns.lab import Lab
from netns.process import PATIENCE_SECONDS
from netns.scenario import Report
from netns.topology import WIREGUARD_PORT, Mode, Name, names, node

NAME = "mesh_remove"
ROWS = ("M9", "M10", "Q3")
LINK = "125ms,12.5ms,1%"
MEMBERS = 4
MODE = Mode.CLOUD
JOINED = True

A, B, C, D = EVERYONE = names(4)
REFUSED, INCOMPLETE = 3, 4
GONE_SECONDS = 15.0  # of M9: within which a peer is gone; no guard against waiting
SHORT_SECONDS, LONGER_SECONDS = 40, 90
"""What two appliances' windows last here, by a drop-in for the timer; on the third the timer that
keel arms is looked at. The longer: what has to be seen while it waits took 22 s on a busy machine.
"""
SHORT = "/etc/systemd/system/keel-window.timer.d/short.conf"
POLL_SECONDS = 0.005
LATE_SECONDS = 15.0  # between the timer's arming and the record's, on a busy machine
AWHILE_SECONDS = 4.0
MOVED, SHUT = 51999, 52000
"""Ports: one that is changed to, one that the firewall drops."""
LARGER_MTU = 1400
SHUT_RULES = f"""\
table inet shut {{
  chain input {{ type filter hook input priority filter; udp dport {SHUT} drop; }}
  chain output {{ type filter hook output priority filter; udp sport {SHUT} drop; }}
}}
"""
KEY = "/root/.ssh/id_ed25519"
SSH = ["ssh", "-o", "StrictHostKeyChecking=no", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20"]


def run(lab: Lab, report: Report) -> None:
    mesh.wait_until_whole(lab, EVERYONE)
    keys = {name: key_of(lab, name) for name in EVERYONE}
    removed(lab, report, keys[D])
    armed = (cut_ssh(lab, report, keys), killed(lab, report, keys))
    rebooted(lab, report, keys)
    for name, subject, begun in armed:
        lab.wait(
            partial(has_peer, lab, name, keys[subject]),
            PATIENCE_SECONDS,
            f"{name} to have its peer again",
        )
        lab.wait(
            partial(timer_said, lab, name, subject),
            PATIENCE_SECONDS,
            f"{name}'s timer to have done it",
        )
        seconds = time.monotonic() - begun
        report.note(f"{name}: undone by its timer, seen {seconds:.0f} s after it was armed")
    mesh.wait_until_whole(lab, (A, B, C))
    left = [name for name in (A, B, C) if window(lab, name)]
    report.expect(not left, "no window is left, and the three see each other up")
    lab.exec(B, ["keel", "mesh", "sync"])  # it was alone: it signs nothing until heard
    end_sessions(lab, B)
    lengthen(lab, B)
    shorten(lab, C, SHORT_SECONDS)
    begun, command = port_that_is_shut(lab, C)
    confirmed_by_members(lab, report)
    confirmed_by_the_operator(lab, report)
    undone(lab, report, begun, command)
    mesh.wait_until_whole(lab, (A, B, C))


def end_sessions(lab: Lab, name: Name) -> None:
    """Those whose path was cut linger until TCP gives up; keel would wait for a word over them."""
    lab.exec(name, ["pkill", "-x", "sshd-session"], check=False)
    lab.wait(
        lambda: not lab.exec(name, ["pgrep", "-x", "sshd-session"], check=False).stdout,
        PATIENCE_SECONDS,
        f"{name}'s SSH sessions to end",
    )


def port_that_is_shut(lab: Lab, name: Name) -> tuple[float, subprocess.Popen[str]]:
    """It applies a port that its own firewall drops: nobody answers, and its timer will undo it."""
    lab.exec(name, ["nft", "-f", "-"], input=SHUT_RULES)
    edit(lab, name, "port", WIREGUARD_PORT, SHUT)
    command = lab.popen(name, ["keel", "spec", "apply", "--json"])
    reach(lab, name)
    return time.monotonic(), command


def confirmed_by_members(lab: Lab, report: Report) -> None:
    """b's port, and with it its endpoint: most of the members answer there, and it holds."""
    edit(lab, B, "port", WIREGUARD_PORT, MOVED)
    edit(lab, B, "endpoints", WIREGUARD_PORT, MOVED)
    done = lab.exec(B, ["keel", "spec", "apply"])
    said = done.stdout.splitlines()
    report.expect(len(said) == 2 and not window(lab, B), f"b: confirmed by a: {said}")
    new = f"{node(B).hosts[0]}:{MOVED}"
    took = lab.wait(
        lambda: endpoint_of(lab, A, B) == (new, "static"),
        PATIENCE_SECONDS,
        "a to have b's new endpoint",
    )
    report.expect(True, f"a has b at {new} {took:.1f} s later")
    timer = lab.exec(B, ["systemctl", "is-active", "keel-window.timer"], check=False).stdout
    report.expect(timer == "inactive\n", "b's timer is gone")
    same = lab.exec(B, ["keel", "diff"], check=False)
    report.expect(same.returncode == 0, "and b differs from its spec in nothing")


def confirmed_by_the_operator(lab: Lab, report: Report) -> None:
    """Over SSH, from a: the command waits for no member; a new session is the word that counts."""
    there = [*SSH, f"root@{mesh.status(lab, B)['self']['address']}"]
    edit(lab, B, "mtu", 1280, LARGER_MTU)
    done = lab.exec(A, [*there, "keel", "spec", "apply"], check=False)
    asked = done.returncode == INCOMPLETE and "keel network confirm" in done.stderr
    report.expect(asked, f"b's MTU over SSH: exit {done.returncode}: {done.stderr.splitlines()}")
    report.expect(mtu_of(lab, B) == LARGER_MTU, f"b's MTU is {LARGER_MTU} for now")
    lab.exec(A, [*there, "keel", "network", "confirm"])
    report.expect(not window(lab, B), "confirmed in a session opened after it: no window is left")
    again = lab.exec(A, [*there, "keel", "network", "undo"], check=False)
    kept = (again.returncode, mtu_of(lab, B)) == (0, LARGER_MTU)
    report.expect(kept, f"and there is nothing to undo: {again.stdout.strip()}")
    edit(lab, B, "mtu", LARGER_MTU, 1280)
    lab.exec(A, [*there, "keel", "spec", "apply"], check=False)
    lab.exec(A, [*there, "keel", "network", "undo"])
    report.expect(mtu_of(lab, B) == LARGER_MTU, "applied and taken back by `keel network undo`")


def undone(lab: Lab, report: Report, begun: float, command: subprocess.Popen[str]) -> None:
    """By its timer; what the spec wants and is not so shows."""
    out, _ = command.communicate(timeout=PATIENCE_SECONDS)
    said = json.loads(out)
    rule = said.get("rule")
    report.expect(
        command.returncode == REFUSED and rule in ("window-unconfirmed", "window-none"),
        f"c: {said.get('summary')}, {time.monotonic() - begun:.0f} s after it was armed",
    )
    port = lab.exec(C, ["wg", "show", "keel0", "listen-port"]).stdout.strip()
    report.expect(port == str(WIREGUARD_PORT), f"c listens on {port} as before")
    differs = lab.exec(C, ["keel", "diff"], check=False)
    shown = differs.returncode == 1 and str(SHUT) in differs.stdout
    report.expect(shown, f"c's diff: {differs.stdout.strip()}")


def edit(lab: Lab, name: Name, key: str, old: int, new: int) -> None:
    """A number in one line of the node's spec."""
    lab.exec(name, ["sed", "-i", f"/ {key}:/s/{old}/{new}/", "/etc/keel/spec.yaml"])


def endpoint_of(lab: Lab, watcher: Name, name: Name) -> tuple[str, str]:
    found = next(one for one in mesh.status(lab, watcher)["members"] if one["name"] == name)
    return found["endpoint"], found["endpoint_source"]


def mtu_of(lab: Lab, name: Name) -> int:
    return int(lab.exec(name, ["cat", "/sys/class/net/keel0/mtu"]).stdout)


def removed(lab: Lab, report: Report, key: str) -> None:
    """a removes d while c is off: gone from b at once, from c before it has a word with d."""
    lab.kill(C)
    lab.wait(lambda: D in seen(lab, A), PATIENCE_SECONDS, "a to see d")
    command = lab.popen(A, ["keel", "mesh", "remove", D, "--json"])
    reach(lab, A)
    begun = time.monotonic()
    for name in (A, B):
        lab.wait(partial(has_no_peer, lab, name, key), PATIENCE_SECONDS, f"{name} to drop d's peer")
        took = time.monotonic() - begun
        report.expect(
            took <= GONE_SECONDS, f"{name} has no such peer {took:.1f} s after the change"
        )
    done = json.loads(command.communicate(timeout=PATIENCE_SECONDS)[0])
    told = (done["mesh_wide"], done["told"], done["not_told"]) == (True, [B], [C])
    report.expect(told, f"a removed d for all, told {done['told']}, not {done['not_told']}")
    lab.start(C)
    took = lab.wait(partial(has_no_peer, lab, C, key), PATIENCE_SECONDS, "c to learn it")
    report.expect(
        D not in seen(lab, C), f"c, which was off, learned it {took:.0f} s after its boot"
    )


def cut_ssh(lab: Lab, report: Report, keys: dict[Name, str]) -> tuple[Name, Name, float]:
    """An operator on a, over SSH on b, has b drop a's peer: the session is dead, b is not lost."""
    shorten(lab, B, SHORT_SECONDS)
    address = mesh.status(lab, B)["self"]["address"]
    lab.exec(A, ["bash", "-c", f"mkdir -p /root/.ssh && ssh-keygen -q -t ed25519 -N '' -f {KEY}"])
    public = lab.exec(A, ["cat", f"{KEY}.pub"]).stdout
    lab.put(B, "/root/.ssh/authorized_keys", public, mode=0o600)
    whole = partial(ssh_works, lab, address)
    lab.wait(whole, PATIENCE_SECONDS, "a to have an SSH session on b")
    session = lab.popen(A, [*SSH, f"root@{address}", "keel", "mesh", "remove", A])
    reach(lab, B)
    begun = time.monotonic()
    found = window(lab, B)
    report.expect(found["confirmer"] == "operator", f"b: only the operator: {found['why']}")
    lab.wait(partial(has_no_peer, lab, B, keys[A]), PATIENCE_SECONDS, "b to drop a's peer")
    report.expect(not ssh_works(lab, address, 3), "the SSH session's path is cut")
    session.kill()
    return B, A, begun


def killed(lab: Lab, report: Report, keys: dict[Name, str]) -> tuple[Name, Name, float]:
    """c's command is killed with SIGKILL while it waits for the others' answers."""
    shorten(lab, C, LONGER_SECONDS)
    begun = armed_and_cut(lab, C, B)
    lab.wait(partial(has_no_peer, lab, C, keys[B]), PATIENCE_SECONDS, "c to drop b's peer")
    lab.exec(C, ["pkill", "-KILL", "-f", "keel mesh remove"])
    lab.heal(C)
    report.expect(has_no_peer(lab, C, keys[B]), "c's command is dead, b's peer is gone as armed")
    for argv in (["mesh", "invite"], ["mesh", "remove", A], ["mesh", "leave", "--yes"]):
        done = lab.exec(C, ["keel", *argv, "--json"], check=False)
        rule = json.loads(done.stdout).get("rule")
        refused = (done.returncode, rule) == (3, "window-open")
        report.expect(refused, f"c: keel {' '.join(argv)} is refused: {rule}")
    shown = mesh.status(lab, C)["window"] or {}
    report.expect(shown.get("member") == B, f"c's status shows it: {shown}")
    return C, B, begun


def due(lab: Lab) -> float:
    """When the timer of a's window runs, as a Unix time."""
    argv = ["systemctl", "list-timers", "--output=json", "keel-window.timer"]
    (timer,) = json.loads(lab.exec(A, argv).stdout)
    return float(timer["next"]) / 1e6


def rebooted(lab: Lab, report: Report, keys: dict[Name, str]) -> None:
    """a loses its power while it waits; its next boot raises c's peer as if nothing had been."""
    before = records(lab, A)
    armed_and_cut(lab, A, C)
    armed = due(lab)
    time.sleep(AWHILE_SECONDS)
    lab.exec(A, ["systemctl", "daemon-reload"])  # as a package would
    late = due(lab) - datetime.fromisoformat(window(lab, A)["ends"]).timestamp()
    put_off = due(lab) - armed
    argv = ["systemctl", "show", "keel-window.timer", "--property=AccuracyUSec"]
    exact = abs(late) < LATE_SECONDS and "=1s" in lab.exec(A, argv).stdout
    report.expect(exact, f"a: the timer that keel armed runs {late:+.1f} s after the window's end")
    kept = abs(put_off) < AWHILE_SECONDS / 2
    report.expect(kept, f"a daemon-reload put it off by {put_off:+.1f} s")
    lab.kill(A)
    report.expect(bool(window(lab, A)), "a's power is cut while its window is armed")
    lab.start(A)
    lab.heal(A)
    took = lab.wait(
        partial(has_peer, lab, A, keys[C]), PATIENCE_SECONDS, "a to have c's peer again"
    )
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
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not window(lab, name):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{name} armed no window")
        time.sleep(POLL_SECONDS)


def shorten(lab: Lab, name: Name, seconds: int) -> None:
    text = f"[Timer]\nOnActiveSec=\nOnActiveSec={seconds}s\n"
    lab.put(name, SHORT, text)
    lab.exec(name, ["systemctl", "daemon-reload"])


def lengthen(lab: Lab, name: Name) -> None:
    """As keel has it again: what comes is confirmed in time, however busy the machine is."""
    lab.exec(name, ["rm", SHORT])
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
