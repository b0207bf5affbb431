"""The running etcd refuses strangers: by certificate, by TLS version, by the address they come
from; and a process on a member that may not read root's files can neither read nor write. keel
starts none by a unit that somebody changed, and names one that was started without its guard.
"""

import json
from pathlib import Path

from netns import inside, mesh, registry
from netns.lab import Lab
from netns.scenario import Report
from netns.topology import names

NAME = "etcd_refusals"
ROWS = ("E3", "E4", "E7", "E16")
LINK = "125ms,12.5ms,1%"
JOINED = True

EVERYONE = names(3)
A, B, C = EVERYONE
STRANGERS = Path(inside.__file__).parent / "strangers.py"
SERVED = ("client port: its own client certificate", "peer port: its own member certificate")
NOBODY = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "env", "-i", "sh", "-c"]
LOCAL = "https://[::1]:2379"
WRAPPED = "/etc/systemd/system/etcd.service.d/90-wrapped.conf"


def run(lab: Lab, report: Report) -> None:
    registry.wait_for_voters(lab, EVERYONE)
    strangers(lab, report)
    nobody(lab, report)
    another_program(lab, report)
    without_its_guard(lab, report)
    registry.judge_one_cluster(lab, report, EVERYONE, "refusals")


def strangers(lab: Lab, report: Report) -> None:
    address = {name: mesh.status(lab, name)["self"]["address"] for name in EVERYONE}
    argv = ["python3", "-", address[C], address[B]]
    found = json.loads(lab.exec(A, argv, input=STRANGERS.read_text()).stdout)
    for what, outcome in found.items():
        if what in SERVED:
            report.expect(" 200 " in outcome, f"served: {what}: {outcome}")
        else:
            report.expect(outcome.startswith("refused"), f"{what}: {outcome}")


def nobody(lab: Lab, report: Report) -> None:
    """A process of another user on a member: no key to read, nothing to be had without one (E7)."""
    registry.put(lab, C, "secret", "for root alone")
    for path in ("/var/lib/keel/etcd", "/var/lib/keel/mesh", "/etc/etcd/keel"):
        done = lab.exec(C, [*NOBODY, f"ls {path}"], check=False)
        report.expect(done.returncode != 0, f"c: nobody can't look into {path}")
    address = mesh.status(lab, C)["self"]["address"]
    for endpoint in (LOCAL, f"https://[{address}]:2379"):
        for words in ("get secret", "put secret stolen"):
            ask = f"etcdctl --endpoints={endpoint} --insecure-skip-tls-verify"
            done = lab.exec(C, [*NOBODY, f"{ask} --command-timeout=2s {words}"], check=False)
            refused = done.returncode != 0 and "root alone" not in done.stdout
            report.expect(refused, f"c: nobody asks {endpoint} to {words}: refused")
    plain = "curl -s -o /dev/null -w '%{http_code}' -d '{}' http://[::1]:2381/v3/kv/range"
    code = lab.exec(C, [*NOBODY, plain], check=False).stdout
    report.expect(code == "404", f"c: the metrics' port serves no keys: {code}")
    report.expect(registry.get(lab, A, "secret") == "for root alone", "nothing was changed")


def another_program(lab: Lab, report: Report) -> None:
    """Somebody's drop-in starts etcd by way of another program: told, and refused at a start."""
    report.expect(not_as_keel_s(lab) == [], "b: nothing is said of etcd.service")
    lab.put(B, WRAPPED, "[Service]\nExecStart=\nExecStart=/usr/bin/env /usr/bin/etcd\n")
    lab.exec(B, ["systemctl", "daemon-reload"])
    report.expect(not_as_keel_s(lab) == ["etcd-unit-changed"], "b: its unit was changed: told")
    started = lab.exec(B, ["systemctl", "restart", "etcd.service"], check=False)
    report.expect(started.returncode != 0, "b: the guard lets no such start happen")
    lab.exec(B, ["systemctl", "reset-failed", "etcd.service"])
    lab.exec(B, ["systemctl", "stop", "etcd.service"])
    tend(lab)
    state = lab.exec(B, ["systemctl", "is-active", "etcd.service"], check=False).stdout.strip()
    report.expect(state == "inactive", "b: neither does the tend")
    lab.exec(B, ["rm", WRAPPED])
    lab.exec(B, ["systemctl", "daemon-reload"])
    tend(lab)
    registry.wait_for_voters(lab, (B,))
    report.expect(not_as_keel_s(lab) == [], "b: with Debian's own program it is a voter again")


def without_its_guard(lab: Lab, report: Report) -> None:
    """`systemctl revert` and a start: Debian's stray runs until a restart by keel's settings."""
    again = "systemctl revert etcd.service; systemctl restart etcd.service"
    lab.exec(B, registry.without_passes("sh", "-euc", again))  # a tend would lay the drop-in anew
    report.expect(not_as_keel_s(lab) == ["etcd-unguarded"], "b: it runs without its guard: told")
    said = tend(lab)
    report.expect("systemctl restart etcd" in said, "b: the tend names the one next command")
    report.expect(not_as_keel_s(lab) == ["etcd-unguarded"], "b: and restarts nothing by itself")
    lab.exec(B, ["systemctl", "restart", "etcd.service"])
    registry.wait_for_voters(lab, (B,))
    report.expect(not_as_keel_s(lab) == [], "b: it is a voter again, and nothing is said")


def tend(lab: Lab) -> str:
    """A pass on b; the timer's own may be at work."""
    wait = "while keel mesh etcd tend; [ $? = 5 ]; do sleep 1; done"
    done = lab.exec(B, ["sh", "-c", wait], check=False)
    return done.stdout + done.stderr


def not_as_keel_s(lab: Lab) -> list[str]:
    """What b's status says of who starts its etcd, and how."""
    found = [str(one["code"]) for one in mesh.status(lab, B)["warnings"]]
    return [code for code in found if code in ("etcd-unguarded", "etcd-unit-changed")]
