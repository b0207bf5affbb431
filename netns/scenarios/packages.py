"""The packages on booted servers: installed, upgraded, removed, purged and installed again; and the
member that etcd-server starts by itself is stopped only where it holds nothing."""

import json
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from netns import build
from netns.lab import Lab
from netns.repository import APT_SECONDS, install, offer
from netns.scenario import Report
from netns.topology import Name, names

NAME = "packages"
ROWS = ("P1", "P2", "E16")
LINK = "0ms,0ms,0%"
IMAGE = "bare"

A, B, C = names(3)
STRAY = "/var/lib/keel-etcd/stray.json"
MASK = "/etc/systemd/system/etcd.service"
SHIPPED = (
    *(f"/usr/share/man/man8/{name}.8.gz" for name in ("keel", "keel-mesh", "keel-mesh-etcd")),
    "/usr/share/man/man5/keel.spec.5.gz",
    "/usr/share/bash-completion/completions/keel",
    "/usr/share/zsh/vendor-completions/_keel",
    "/usr/share/fish/vendor_completions.d/keel.fish",
    "/usr/share/keel/overlays/etcd",
)
HIGHER = "9:1"
TUNNEL = "keel-wireguard@keel7.service"


def run(lab: Lab, report: Report) -> None:
    for name in (A, B, C):
        offer(lab, name)
    with ThreadPoolExecutor() as pool:
        for begun in [
            pool.submit(part, lab, report) for part in (empty_stray, written_stray, at_once)
        ]:
            begun.result()
    upgrade(lab, report)
    remove_a_member(lab, report)
    purge_an_outsider(lab, report)


def empty_stray(lab: Lab, report: Report) -> None:
    install(lab, A, "etcd-server", "etcd-client")
    report.expect(active(lab, A, "etcd"), "etcd-server started a member by itself")
    said = apt(lab, A, "install", "keel-overlay-etcd")
    report.expect("stopped the empty member" in said, "the package says that it stopped it")
    report.expect(not active(lab, A, "etcd"), "it is stopped")
    marker = json.loads(lab.exec(A, ["cat", STRAY]).stdout)
    report.expect(
        marker["path"] == "/var/lib/etcd/default" and int(marker["member"]) > 0, f"marked: {marker}"
    )
    lab.reboot(A)
    report.expect(not active(lab, A, "etcd"), "it is not started at boot")
    asked = ["systemctl", "is-system-running", "--wait"]
    verdict = lab.exec(A, asked, check=False).stdout.strip()
    report.expect(verdict == "running", "and no unit failed")
    said = apt(lab, A, "install", "--reinstall", "keel-overlay-etcd")
    report.expect("member" not in said, "a second installation has nothing to say")


def written_stray(lab: Lab, report: Report) -> None:
    install(lab, B, "etcd-server", "etcd-client")
    lab.exec(B, ["etcdctl", "put", "theirs", "kept"])
    lab.exec(B, ["etcdctl", "del", "theirs"])
    said = apt(lab, B, "install", "keel-overlay-etcd")
    report.expect(
        "/var/lib/etcd/default: keys were written" in said, "a member that was used is named"
    )
    report.expect(active(lab, B, "etcd"), "and goes on running, though its keys are gone again")
    report.expect(not there(lab, B, STRAY), "unmarked")


def at_once(lab: Lab, report: Report) -> None:
    apt(lab, C, "install", "keel-overlay-etcd")
    report.expect(not active(lab, C, "etcd"), "installed at once: no member runs")
    marked, data = there(lab, C, STRAY), there(lab, C, "/var/lib/etcd/default/member")
    report.expect(marked or not data, "and none is left unmarked")
    lab.exec(C, ["keel", "spec", "check"])
    report.expect(there(lab, C, "/etc/keel/spec.yaml"), "a valid spec is there to be filled in")
    for path in SHIPPED:
        report.expect(there(lab, C, path), f"shipped: {path}")


def upgrade(lab: Lab, report: Report) -> None:
    """To a higher version with another drop-in for etcd; with a tunnel and an etcd running."""
    pretend_membership(lab, A)
    lab.exec(A, ["systemctl", "start", "etcd", TUNNEL])
    before = {unit: pid(lab, A, unit) for unit in ("etcd", TUNNEL)}
    with tempfile.TemporaryDirectory() as scratch:
        for deb in raised(Path(scratch)):
            lab.put(A, f"/srv/{deb.name}", deb.read_bytes())
    apt(lab, A, "install", "/srv/keel.deb", "/srv/keel-overlay-etcd.deb")
    version = lab.exec(A, ["dpkg-query", "-Wf", "${Version}", "keel"]).stdout
    report.expect(version == HIGHER, f"keel is {version}")
    after = {unit: pid(lab, A, unit) for unit in before}
    report.expect(0 not in after.values() and after == before, f"neither was restarted: {after}")
    reload = lab.exec(A, ["systemctl", "show", "-P", "NeedDaemonReload", "etcd"]).stdout.strip()
    report.expect(reload == "no", "systemd has read the new drop-in")


def remove_a_member(lab: Lab, report: Report) -> None:
    said = apt(lab, A, "remove", "keel-overlay-etcd")
    report.expect("stopped and masked" in said, "removal says that this was a member")
    report.expect(not active(lab, A, "etcd"), "its etcd is stopped")
    report.expect(lab.exec(A, ["readlink", MASK]).stdout.strip() == "/dev/null", "and masked")
    apt(lab, A, "install", "--reinstall", "etcd-server")
    report.expect(not active(lab, A, "etcd"), "an upgrade of etcd-server does not start it")
    apt(lab, A, "install", "/srv/keel-overlay-etcd.deb")
    report.expect(not there(lab, A, MASK), "installed again: no mask")
    report.expect(there(lab, A, "/var/lib/keel-etcd/data/member"), "and the data is where it was")
    said = apt(lab, A, "purge", "keel-overlay-etcd", "keel")
    report.expect("still list this node as a voter" in said, "purge says that others count on it")
    for kept in ("/var/lib/keel-etcd/data/member", "/var/lib/keel/etcd/cluster.json"):
        report.expect(there(lab, A, kept), f"kept: {kept}")
    for gone in (MASK, f"{MASK}.d", "/etc/etcd/keel", STRAY):
        report.expect(not there(lab, A, gone), f"gone: {gone}")


def purge_an_outsider(lab: Lab, report: Report) -> None:
    apt(lab, C, "purge", "keel-overlay-etcd", "keel")
    found = lab.exec(
        C, ["find", "/etc", "/usr", "/var", "-iname", "*keel*", "-not", "-path", "/var/log/*"]
    ).stdout.split()
    left = [path for path in found if not path.startswith(("/var/lib/apt/", "/var/cache/"))]
    report.expect(not left, f"purged from a node in no mesh: nothing is left {left}")
    apt(lab, C, "install", "keel-overlay-etcd")
    report.expect(lab.exec(C, ["keel", "--version"]).returncode == 0, "installed again")


def pretend_membership(lab: Lab, name: Name) -> None:
    """As the packages see a member: a certificate laid, a cluster on record, data, a drop-in."""
    lab.exec(
        name,
        [
            "sh",
            "-euc",
            "mkdir -p -m 700 /var/lib/keel/etcd; echo '{}' > /var/lib/keel/etcd/cluster.json;"
            " : > /etc/etcd/keel/member.pem; chown etcd: /etc/etcd/keel/member.pem;"
            " install -d -m 700 -o etcd -g etcd /var/lib/keel-etcd/data;"
            f" mkdir -p {MASK}.d;"
            f" printf '[Service]\\nEnvironment=ETCD_DATA_DIR=/var/lib/keel-etcd/data\\n'"
            f" > {MASK}.d/50-keel.conf; systemctl daemon-reload",
        ],
    )


def raised(scratch: Path) -> list[Path]:
    """The checkout's packages as a higher version, with another drop-in."""
    made = []
    debs = build.packages()
    for package in ("keel", "keel-overlay-etcd"):
        (deb,) = (debs or scratch).glob(f"{package}_*.deb")
        tree, target = scratch / package, scratch / f"{package}.deb"
        subprocess.run(["dpkg-deb", "-R", deb, tree], check=True)
        control = tree / "DEBIAN" / "control"
        version = deb.name.split("_")[1]
        control.write_text(control.read_text().replace(version, HIGHER))
        drop_in = tree / "usr/lib/systemd/system/etcd.service.d/10-keel.conf"
        if drop_in.exists():
            drop_in.write_text(drop_in.read_text() + "# higher\n")
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "-b", tree, target], check=True, capture_output=True
        )
        made.append(target)
    return made


def apt(lab: Lab, name: Name, verb: str, *packages: str) -> str:
    """What apt and the maintainer scripts said."""
    argv = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", verb, "-q", "-y"]
    done = lab.exec(name, [*argv, "--no-install-recommends", *packages], timeout=APT_SECONDS)
    return done.stdout + done.stderr


def active(lab: Lab, name: Name, unit: str) -> bool:
    return lab.exec(name, ["systemctl", "is-active", "-q", unit], check=False).returncode == 0


def pid(lab: Lab, name: Name, unit: str) -> int:
    return int(lab.exec(name, ["systemctl", "show", "-P", "MainPID", unit]).stdout)


def there(lab: Lab, name: Name, path: str) -> bool:
    return lab.exec(name, ["test", "-e", path], check=False).returncode == 0
