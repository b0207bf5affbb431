"""The third join gives birth to one cluster over the bad link; what then listens, who owns what;
and every unit as systemd runs it: nothing in the journal, and what it calls works in its sandbox.
"""

import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from netns import mesh, registry
from netns.lab import Lab
from netns.scenario import Report
from netns.topology import Name, names

NAME = "etcd_birth"
ROWS = ("E1", "E2", "E3", "E4", "E7", "E8", "E9", "E17", "E21", "E22")
LINK = "125ms,12.5ms,1%"

EVERYONE = names(3)
A, B, C = EVERYONE
COMMENT = "# ours: ask the network team before changing the port"
WIREGUARD = ("udp", "51820")
SSH = ("tcp", "22")
KEEL_UNITS = (
    "keel-mesh.service",
    "keel-channel.service",
    "keel-passes.service",
    "keel-mesh-sync.service",
    "keel-mesh-etcd.service",
    "keel-mesh-etcd-fast.service",
    "keel-mesh-alert.service",
    "keel-window.service",
    "keel-wireguard@keel0.service",
)
DOOR = "keel-channel.service"
SANDBOXED = tuple(unit for unit in KEEL_UNITS if "wireguard" not in unit and unit != DOOR)
ONCE = ("keel-mesh-alert", "keel-window", "keel-mesh-etcd-fast", "keel-mesh-etcd", "keel-mesh-sync")
# What units call of others, one a line; below, what those call that have to do with the network.
PROGRAMS = """\
systemctl show --property=ActiveState -- etcd.service
systemctl start --no-block -- keel-mesh-sync.service
systemd-run --quiet --collect --pipe --wait -- true
"""
NETWORK_PROGRAMS = """\
timedatectl show --property=NTPSynchronized --value
wg show interfaces
wg show keel0 dump
ip -j -d address show up
ip -6 route replace fd00:4::/64 dev lo
ip -6 route delete fd00:4::/64 dev lo
ss -H -t -n -p state established
nft list table inet keel
etcd --version
systemctl daemon-reload
"""
# What the channel calls, and what whoever took its process over would try.
DOORS_PROGRAMS = """\
wg show interfaces
wg show keel0 dump
ip -j -d address show up
etcd --version
touch /var/lib/keel/probed /run/keel/probed
rm /var/lib/keel/probed /run/keel/probed
test -S /run/keel/passes.sock
"""
FORBIDDEN = """\
touch /etc/systemd/system/planted.service
touch /etc/keel/planted
touch /etc/etcd/keel/planted
touch /var/lib/keel-etcd/planted
touch /usr/local/sbin/planted
cat /etc/etcd/keel/member.pem
ls /var/lib/keel-etcd/data
chown etcd /var/lib/keel
tee /proc/sys/kernel/core_pattern
test -e /run/dbus/system_bus_socket
test -e /run/systemd/private
systemctl show --property=Version
systemctl start --no-block -- keel-mesh-sync.service
systemctl daemon-reload
systemd-run --quiet --collect --pipe --wait -- true
timedatectl show --property=NTPSynchronized --value
"""
LAX = "[Service]\nReadWritePaths=/etc/systemd/system\nTemporaryFileSystem=\n"
LAX_PATH = f"/etc/systemd/system/{DOOR}.d/lax.conf"
PROBE = """\
#!/bin/sh
while read -r line; do
    $line </dev/null >/dev/null 2>&1 || echo "failed: $line"
done </etc/probe
echo probed
"""
PROBE_PATH = "/usr/local/sbin/probe"
CHANGED = ("ExecStart=", "Type=", "Restart", "Requires=", "SuccessExitStatus=", "RemainAfterExit=")
BUSY = re.compile(" is held by process |another command is at work on it")
"""Two timers met, here or at a member that was asked: exit 5, and the next pass comes."""
LAID = {"crl.der", "etcd.env", "member.pem", "trust.pem"}


def run(lab: Lab, report: Report) -> None:
    for name in EVERYONE:
        lab.exec(name, ["sed", "-i", f"1i {COMMENT}", "/etc/keel/spec.yaml"])
    birth(lab, report)
    quiet(lab, report)
    with ThreadPoolExecutor(3) as pool:
        for part in [pool.submit(each, lab, report) for each in (units, sandboxes, two_tends)]:
            part.result()
    with ThreadPoolExecutor(len(EVERYONE)) as pool:
        list(pool.map(partial(as_it_stands, lab, report), EVERYONE))


def as_it_stands(lab: Lab, report: Report, name: Name) -> None:
    listeners(lab, report, name)
    modes(lab, report, name)
    exposure(lab, report, name)
    spec = lab.exec(name, ["cat", "/etc/keel/spec.yaml"]).stdout
    kept = spec.startswith(COMMENT) and "  etcd: enabled\n" in spec
    report.expect(kept, f"{name}: overlays.etcd is enabled and the comment is kept")


def birth(lab: Lab, report: Report) -> None:
    mesh.create(lab, A)
    mesh.join(lab, B, mesh.invite(lab, A))
    before = mesh.status(lab, B)["etcd"]["phase"]
    report.expect(before != "voter", f"two members and no cluster: b is {before}")
    mesh.join(lab, C, mesh.invite(lab, A))
    report.note("the third has joined")
    took = registry.wait_for_write(lab, C, "first", "by c", registry.BIRTH_SECONDS)
    report.note(f"first write committed {took:.1f} s after the join command ended")
    registry.wait_for_voters(lab, EVERYONE)
    found = registry.judge_one_cluster(lab, report, EVERYONE, "birth")
    for name in EVERYONE:
        lab.wait(
            partial(computes, lab, name, found.identity),
            registry.BIRTH_SECONDS,
            f"{name} to say so",
        )
    report.expect(True, f"the ID that keel computed is etcd's: {found.identity}")
    lab.wait(partial(lists_voters, lab), registry.BIRTH_SECONDS, "a's status to list three voters")
    report.expect(True, "status --json lists three voters")


def lists_voters(lab: Lab) -> bool:
    return [one["role"] for one in mesh.status(lab, A)["etcd"]["members"]] == ["voter"] * 3


def computes(lab: Lab, name: Name, identity: str) -> bool:
    return bool(mesh.status(lab, name)["etcd"]["cluster_id"] == identity)


def quiet(lab: Lab, report: Report) -> None:
    """Nothing that an operator would have to look into."""
    for name in EVERYONE:
        loud = lab.journal(name, "--priority", "warning", "--quiet", "-o", "cat").splitlines()
        keels = lab.journal(name, "-u", "keel-*", "-o", "cat").splitlines()
        errors = [
            line for line in keels if line.startswith("keel: error") and not BUSY.search(line)
        ]
        failed = lab.exec(name, ["systemctl", "--failed", "--plain", "--no-legend"]).stdout
        fine = not (loud or errors or failed)
        report.expect(
            fine, f"{name}'s journal: nothing at warning or worse {loud} {errors}{failed}"
        )


def units(lab: Lab, report: Report) -> None:
    """Each that a timer or another unit starts, once more on a."""
    for unit in ONCE:
        done = lab.exec(A, ["systemctl", "start", unit], check=False)
        result = lab.exec(A, ["systemctl", "show", "-P", "Result", unit]).stdout.strip()
        report.expect((done.returncode, result) == (0, "success"), f"a: {unit} ran: {result}")


def two_tends(lab: Lab, report: Report) -> None:
    """A pass on c while another one is at work there: it says so, and ends."""
    argv = ["flock", "/run/keel/tend.lock", "keel", "mesh", "etcd", "tend"]
    done = lab.exec(C, argv, check=False)
    said = done.stderr.strip()
    report.expect(done.returncode == 5, f"c: two tends at once: exit 5: {said}")


def sandboxes(lab: Lab, report: Report) -> None:
    """What the units call of other programs does work where they call it, on b; and what the
    channel may not do is refused to whoever runs in its place."""
    lab.put(B, PROBE_PATH, PROBE, mode=0o755)
    for unit in SANDBOXED:
        programs = PROGRAMS + ("" if "alert" in unit else NETWORK_PROGRAMS)
        failed = inside(lab, unit, programs)
        count = len(programs.splitlines())
        report.expect(not failed, f"b: {count} programs work inside {unit} {failed or ''}")
    tunnel = lab.exec(B, ["systemctl", "show", "-P", "MainPID", KEEL_UNITS[-1]]).stdout.strip()
    forbidden = FORBIDDEN + (f"ls /proc/{tunnel}/root/run/dbus\n" if tunnel != "0" else "")
    failed = inside(lab, DOOR, DOORS_PROGRAMS)
    count = len(DOORS_PROGRAMS.splitlines())
    report.expect(not failed, f"b: {count} programs work inside {DOOR} {failed or ''}")
    allowed = set(forbidden.splitlines()) - set(inside(lab, DOOR, forbidden))
    count = len(forbidden.splitlines())
    report.expect(not allowed, f"b: {count} others are refused inside {DOOR} {allowed or ''}")
    lab.exec(B, ["mkdir", "-p", LAX_PATH.removesuffix("/lax.conf")])
    lab.put(B, LAX_PATH, LAX)
    allowed = set(FORBIDDEN.splitlines()) - set(inside(lab, DOOR, FORBIDDEN))
    lab.exec(B, ["rm", "-f", LAX_PATH, "/etc/systemd/system/planted.service"])
    lab.exec(B, ["systemctl", "daemon-reload"])
    seen = "touch /etc/systemd/system/planted.service" in allowed
    report.expect(seen, f"and a drop-in that gives a way back is seen: {sorted(allowed)}")


def inside(lab: Lab, unit: str, programs: str) -> list[str]:
    """Those of these that fail where that unit's process would run them, on b."""
    lab.exec(B, ["systemctl", "daemon-reload"])
    lab.put(B, "/etc/probe", programs)
    text = lab.exec(B, ["systemctl", "cat", unit]).stdout
    lab.put(B, f"/etc/systemd/system/probe-{unit}", probing(text))
    lab.exec(B, ["systemctl", "daemon-reload"])
    begun = lab.exec(B, ["date", "+%s.%N"]).stdout.strip()
    lab.exec(B, ["systemctl", "start", f"probe-{unit}"], check=False)
    said = lab.journal(B, "-u", f"probe-{unit}", "-o", "cat", "--since", f"@{begun}").splitlines()
    if "probed" not in said:
        return ["the probe itself"]
    return [line.removeprefix("failed: ") for line in said if line.startswith("failed: ")]


def probing(unit: str) -> str:
    """The unit with its sandbox, running the probe once."""
    kept = [line for line in unit.splitlines() if not line.startswith(CHANGED)]
    at = kept.index("[Service]") + 1
    return "\n".join([*kept[:at], "Type=oneshot", f"ExecStart={PROBE_PATH}", *kept[at:], ""])


def listeners(lab: Lab, report: Report, name: Name) -> None:
    own = mesh.status(lab, name)["self"]["address"]
    sockets = []
    for line in lab.exec(name, ["ss", "-Htulnp"]).stdout.splitlines():
        kind, _, _, _, local, _, users = line.split(maxsplit=6)
        address, _, port = local.rpartition(":")
        process = re.search(r'\(\("([^"]+)"', users)
        sockets.append((kind, address.strip("[]"), port, process[1] if process else "?"))
    etcd = {(address, port) for _, address, port, process in sockets if process == "etcd"}
    wanted = {(own, "2379"), ("::1", "2379"), (own, "2380"), ("::1", "2381")}
    report.expect(etcd == wanted, f"{name}: etcd listens on its /128 and ::1 and nowhere else")
    other = {
        (kind, address, port)
        for kind, address, port, process in sockets
        if process != "etcd" and (kind, port) not in (WIREGUARD, SSH)
    }
    report.expect(
        other == {("tcp", own, "4780")}, f"{name}: besides WireGuard only the channel, on its /128"
    )


def modes(lab: Lab, report: Report, name: Name) -> None:
    """While no tend is at work, which gives a file its owner a moment after it made it."""
    places = ["/var/lib/keel", "/etc/etcd/keel", "/var/lib/keel-etcd"]
    find = registry.without_passes("find", *places, "-printf", "%y %m %u %p\n")
    wrong, seen = [], set()
    for line in lab.exec(name, find, check=False).stdout.splitlines():  # 1: a file went meanwhile
        kind, mode, owner, path = line.split(maxsplit=3)
        seen.add(path)
        etcds = path.startswith(("/etc/etcd/keel", "/var/lib/keel-etcd"))
        if path == "/var/lib/keel-etcd/marker.json":
            etcds = False
        private = "700" if kind == "d" else "600"
        if (mode, owner) != (private, "etcd" if etcds else "root"):
            wrong.append(line)
    fine = not wrong and seen.issuperset(places)
    report.expect(fine, f"{name}: modes and owners{': ' if wrong else ''}{wrong or ''}")
    listing = registry.without_passes("ls", "-A", "/etc/etcd/keel")
    laid = set(lab.exec(name, listing).stdout.split())
    report.expect(laid == LAID, f"{name}: under /etc/etcd/keel stand {', '.join(sorted(laid))}")


def exposure(lab: Lab, report: Report, name: Name) -> None:
    etcd = sum_of(lab, name, "etcd.service")
    report.expect(etcd <= 2.0, f"{name}: exposure of etcd.service: {etcd}")
    worst = max((sum_of(lab, name, unit), unit) for unit in KEEL_UNITS)
    report.expect(worst[0] <= 3.0, f"{name}: exposure of keel's units at most {worst}")


def sum_of(lab: Lab, name: Name, unit: str) -> float:
    text = lab.exec(name, ["systemd-analyze", "security", "--no-pager", unit]).stdout
    found = re.search(r"Overall exposure level for .*: ([\d.]+)", text)
    return float(found[1]) if found else 10.0
