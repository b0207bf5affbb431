"""A cluster that keel's clock made three weeks ago: the first pass at today's renews each member's
leaf and the CRL, and etcd, which was never told nor restarted, serves the new ones; all the while
fresh connections come in, and none is refused. One whose etcd runs with other files is told so.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from netns import clock, inside, mesh, registry
from netns.lab import Lab
from netns.process import PATIENCE_SECONDS
from netns.scenario import Report
from netns.topology import Name, names

NAME = "etcd_renew"
ROWS = ("E4", "E14", "E5")
LINK = "5ms,0ms,0%"

EVERYONE = names(3)
A, B, C = EVERYONE
AGO = "-22d"
"""A leaf is due with ten days of its thirty left, or up to thirty hours later."""
HANDSHAKES = (Path(inside.__file__).parent / "handshakes.py").read_text()
TRUST, STOP = "/etc/etcd/keel/trust.pem", "/run/handshakes-stop"
CLIENT = "/var/lib/keel/etcd/leaf/1/client.pem"
SOME = 100
OTHER = "/etc/etcd/other.pem"
OTHER_ENV, OTHER_DROP_IN = "/etc/etcd/other.env", "/etc/systemd/system/etcd.service.d/90-other.conf"
PASS_SECONDS = PATIENCE_SECONDS


def run(lab: Lab, report: Report) -> None:
    born_long_ago(lab, report)
    run_elsewhere(lab)
    before = {name: served(lab, name, 2379) for name in EVERYONE}
    crl = crl_number(lab, A)
    pids = {name: main_pid(lab, name) for name in (A, C)}
    argv = ["python3", "-c", HANDSHAKES, TRUST, CLIENT, STOP]
    running = lab.popen(A, argv)
    assert running.stdout
    running.stdout.readline()
    for name in EVERYONE:
        clock.restore(lab, name)
        lab.exec(name, ["systemctl", "restart", "keel-channel.service"])
    report.note("keel's clock is today's")
    for name in (A, C):
        renewed(lab, report, name, before[name])
    not_served(lab, report, before[B])
    lab.wait(lambda: crl_number(lab, C) > crl, PASS_SECONDS, "c to have a newer CRL")
    report.expect(True, f"the holder signed CRL {crl_number(lab, C)}, and c has it; it was {crl}")
    lab.exec(A, ["touch", STOP])
    said = json.loads(running.communicate(timeout=PATIENCE_SECONDS)[0])
    fine = not said["failures"] and said["made"] > SOME
    report.expect(fine, f"a's etcd meanwhile: {said}")
    after = {name: main_pid(lab, name) for name in (A, C)}
    report.expect(after == pids, f"no etcd was restarted: {after}")
    registry.judge_one_cluster(lab, report, EVERYONE, "renewed")
    registry.wait_for_write(lab, B, "restarted", "1", PATIENCE_SECONDS)
    report.expect(True, "b's starts with its new leaf as well")


def run_elsewhere(lab: Lab) -> None:
    """b's etcd is made to read a copy of its certificate, by somebody's own drop-in."""
    lab.exec(B, ["cp", "--preserve=all", "/etc/etcd/keel/member.pem", OTHER])
    files = [f"ETCD_{side}{what}_FILE" for side in ("", "PEER_") for what in ("CERT", "KEY")]
    lab.put(B, OTHER_ENV, "".join(f"{name}={OTHER}\n" for name in files))
    lab.put(B, OTHER_DROP_IN, f"[Service]\nEnvironmentFile={OTHER_ENV}\n")
    clock.shift_guard(lab, B, AGO)
    restart(lab)


def restart(lab: Lab) -> None:
    lab.exec(B, ["systemctl", "daemon-reload"])
    lab.exec(B, ["systemctl", "restart", "etcd.service"])
    registry.wait_for_voters(lab, (B,))


def not_served(lab: Lab, report: Report, before: tuple[str, str]) -> None:
    """Renewed on disk, and not what etcd shows: a failure, until etcd runs with keel's files."""
    shows = partial(after_a_pass, lab, B, lambda: "renewal-not-served" in failures(lab))
    lab.wait(shows, PASS_SECONDS, "b's failure to show")
    report.expect(served(lab, B, 2379) == before, "b's etcd reads other files: its status says so")
    lab.exec(B, ["rm", OTHER_DROP_IN])
    restart(lab)
    renewed(lab, report, B, before)
    over = partial(after_a_pass, lab, B, lambda: "renewal-not-served" not in failures(lab))
    lab.wait(over, PASS_SECONDS, "b's failure to be over")
    report.expect(True, "b's failure is over")


def failures(lab: Lab) -> list[str]:
    return [str(one["code"]) for one in mesh.status(lab, B)["etcd"]["failures"]]


def born_long_ago(lab: Lab, report: Report) -> None:
    """By all of keel's units and commands; etcd itself and WireGuard have the machine's clock."""
    for name in EVERYONE:
        clock.shift(lab, name, AGO)
    lab.exec(A, clock.shifted(["keel", "mesh", "create"], AGO), timeout=mesh.JOIN_SECONDS)
    for name in (B, C):
        token = lab.exec(A, clock.shifted(["keel", "mesh", "invite"], AGO)).stdout.strip()
        done = mesh.try_join(lab, name, token, clock=AGO)
        report.expect(done.exit == 0, f"{name}: {done}")
    registry.wait_for_voters(lab, EVERYONE)


def renewed(lab: Lab, report: Report, name: Name, before: tuple[str, str]) -> None:
    """By the pass that its timer starts every five minutes."""
    another = partial(after_a_pass, lab, name, lambda: served(lab, name, 2379) != before)
    lab.wait(another, PASS_SECONDS, f"{name}'s etcd to serve a new leaf")
    client, peer = served(lab, name, 2379), served(lab, name, 2380)
    fresh = client == peer and client[0] != before[0] and client[1] != before[1]
    report.expect(fresh, f"{name}'s etcd serves a leaf with another serial and key: {client[0]}")
    held = mesh.status(lab, name)["etcd"]["certificates"]
    (serial,) = (one["serial"] for one in held if one["kind"] == "member")
    same = int(serial, 16) == int(client[0], 16)
    report.expect(same, f"{name}: it is the one that status shows")


def after_a_pass(lab: Lab, name: Name, holds: Callable[[], bool]) -> bool:
    """Whether it holds once a pass has ended: one that had begun sooner, by a timer, is joined, and
    then it is the next one that shows it."""
    lab.exec(name, ["systemctl", "start", "keel-mesh-etcd.service"])
    return holds()


def served(lab: Lab, name: Name, port: int) -> tuple[str, str]:
    """Serial and public key of the certificate that etcd shows on a port."""
    where = registry.address(lab, name)
    script = (
        f"openssl s_client -connect '[{where}]:{port}' -cert {CLIENT} </dev/null 2>/dev/null"
        " | openssl x509 -noout -serial -pubkey"
    )
    serial, _, key = lab.exec(name, ["sh", "-c", script]).stdout.partition("\n")
    return serial.removeprefix("serial="), key


def crl_number(lab: Lab, name: Name) -> int:
    return int(mesh.status(lab, name)["etcd"]["crl"]["number"])


def main_pid(lab: Lab, name: Name) -> str:
    return lab.exec(name, ["systemctl", "show", "-P", "MainPID", "etcd.service"]).stdout.strip()
