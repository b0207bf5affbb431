"""Proxy variables everywhere, of a dead port: nothing of keel's nor of etcd's heeds them."""

from functools import partial

from netns import mesh, registry
from netns.lab import Lab
from netns.process import PATIENCE_SECONDS
from netns.scenario import Report
from netns.topology import Name, names

NAME = "etcd_proxy"
ROWS = ("E17",)
LINK = "2ms,0ms,0%"

EVERYONE = names(3)
A, B, C = EVERYONE
DEAD = "http://127.0.0.1:9"
VARIABLES = tuple(
    f"{case(name)}={DEAD}"
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    for case in (str.upper, str.lower)
)
RESTARTS = 20
RESTARTS_SECONDS = 600  # 76 of them beside three other scenarios
STEPS = """\
set -eu
for number in $(seq 1 @RESTARTS@); do
    systemctl restart etcd.service
    # b may have led: a write that meets the election is refused
    until etcdctl --command-timeout=60s put restarted "$number" >/dev/null 2>&1; do sleep 1; done
    curl --silent --fail --noproxy '*' --max-time 60 --cacert "$ETCDCTL_CACERT" \\
        --cert "$ETCDCTL_CERT" --key "$ETCDCTL_KEY" --data '{}' \\
        "$ETCDCTL_ENDPOINTS/v3/maintenance/status" >/dev/null
done
"""


def run(lab: Lab, report: Report) -> None:
    for name in EVERYONE:
        poison(lab, report, name)
    said = lab.exec(A, ["env", *VARIABLES, "keel", "mesh", "create"])
    report.expect(said.returncode == 0, "create")
    for name in (B, C):
        token = mesh.invite(lab, A)
        argv = ["env", *VARIABLES, "keel", "mesh", "join", "--token-file", "-"]
        lab.exec(name, argv, input=f"{token}\n")
        report.note(f"{name} has joined")
    registry.wait_for_voters(lab, EVERYONE)
    for name in EVERYONE:
        fine = partial(finds_nothing, lab, name)
        lab.wait(fine, PATIENCE_SECONDS, f"{name}'s status to find nothing wrong")
    report.expect(True, "status finds nothing wrong, on each")
    restarts(lab, report)
    registry.judge_one_cluster(lab, report, EVERYONE, "proxy")


def finds_nothing(lab: Lab, name: Name) -> bool:
    """Whether status finds nothing wrong, as it is once a pass has seen all to its end."""
    argv = ["env", *VARIABLES, "keel", "mesh", "status", "--check"]
    return lab.exec(name, argv, check=False).returncode == 0


def poison(lab: Lab, report: Report, name: Name) -> None:
    """Where an administrator sets a proxy: for logins, and for all of systemd's services."""
    text = "".join(f"{one}\n" for one in VARIABLES)
    words = " ".join(VARIABLES)
    lab.put(name, "/etc/environment", text)
    lab.put(
        name,
        "/etc/systemd/system.conf.d/proxy.conf",
        f"[Manager]\nDefaultEnvironment={words}\nManagerEnvironment={words}\n",
    )
    lab.exec(name, ["systemctl", "daemon-reexec"])
    lab.exec(name, ["systemctl", "set-environment", *VARIABLES])
    probe = ["systemd-run", "--quiet", "--pipe", "--wait", "env"]
    seen = lab.exec(name, probe).stdout
    report.expect(all(one in seen for one in VARIABLES), f"{name}: a service is given them")


def restarts(lab: Lab, report: Report) -> None:
    """Each time the gateway dials itself anew, and the peers do."""
    script = 'eval "$(keel mesh etcd env)"\n' + STEPS.replace("@RESTARTS@", str(RESTARTS))
    lab.exec(B, ["env", *VARIABLES, "sh", "-c", script], timeout=RESTARTS_SECONDS)
    last = registry.get(lab, A, "restarted")
    report.expect(last == str(RESTARTS), f"{RESTARTS} restarts on b, a write and the gateway each")
