"""The running etcd refuses strangers: by certificate, by TLS version, by the address they come
from; and a process on a member that may not read root's files can neither read nor write.
"""

import json
from pathlib import Path

from netns import inside, mesh, registry
from netns.lab import Lab
from netns.scenario import Report
from netns.topology import names

NAME = "etcd_refusals"
ROWS = ("E3", "E4", "E7")
LINK = "125ms,12.5ms,1%"
JOINED = True

EVERYONE = names(3)
A, B, C = EVERYONE
STRANGERS = Path(inside.__file__).parent / "strangers.py"
SERVED = ("client port: its own client certificate", "peer port: its own member certificate")
NOBODY = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "env", "-i", "sh", "-c"]
LOCAL = "https://[::1]:2379"


def run(lab: Lab, report: Report) -> None:
    registry.wait_for_voters(lab, EVERYONE)
    strangers(lab, report)
    nobody(lab, report)
    registry.judge_one_cluster(lab, report, EVERYONE, "refusals")


def strangers(lab: Lab, report: Report) -> None:
    address = {name: mesh.status(lab, name)["self"]["address"] for name in EVERYONE}
    argv = ["python3", "-", address[C], address[B]]
    found = json.loads(lab.exec(A, argv, input=STRANGERS.read_text(), timeout=240).stdout)
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
