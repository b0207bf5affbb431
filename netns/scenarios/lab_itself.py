"""The lab keeps its word: delays, loss, cuts, power cuts, and two labs side by side."""

import statistics

from netns.lab import Lab
from netns.scenario import STANDARD, Report, is_void, measure_link, ping
from netns.topology import Quality, names, node

NAME = "lab_itself"
ROWS = ()
LINK = "125ms,12.5ms,1%"

A, B, C = names(3)
TO_B = node(B).hosts


def run(lab: Lab, report: Report) -> None:
    for name in (A, B, C):
        verdict = lab.exec(
            name, ["systemctl", "is-system-running", "--wait"], check=False
        ).stdout.strip()
        report.expect(verdict == "running", f"{name} is {verdict}")
    cuts(lab, report)
    qualities(lab, report)
    power(lab, report)
    neighbours(lab, report)


def cuts(lab: Lab, report: Report) -> None:
    lab.cut(B)
    for address in TO_B:
        report.expect(not ping(lab, A, address, 10).times_ms, f"cut: nothing reaches {address}")
    report.expect(bool(ping(lab, A, node(C).hosts[0], 10).times_ms), "cut: others talk")
    lab.heal(B)
    for address in TO_B:
        pings = ping(lab, A, address, 100)
        report.expect(len(pings.times_ms) > 80, f"healed: {address}: {pings}")
    lab.set_direction(A, B, Quality(cut=True))
    report.expect(not ping(lab, B, node(A).hosts[0], 5).times_ms, "one direction cut: no answer")
    lab.set_direction(A, B, STANDARD)


def qualities(lab: Lab, report: Report) -> None:
    lab.set_link(B, Quality(loss_percent=20))
    pings = ping(lab, A, TO_B[0], 500, interval=0.005)
    report.expect(28 < pings.loss_percent < 44, f"20 % each way, 36 % both: {pings}")
    lab.set_link(B, Quality(mtu=1280))
    large = ["ping", "-c", "3", "-i", "0.1", "-W", "1", "-s", "1400", TO_B[0]]
    report.expect(lab.exec(A, large, check=False).returncode == 1, "what is too large is dropped")
    report.expect(bool(ping(lab, A, TO_B[0], 3).times_ms), "what is small enough passes")
    lab.set_link(B, STANDARD)
    lab.readdress(B, 77)
    moved = node(B, host=77).hosts[0]
    report.expect(bool(ping(lab, A, moved, 10).times_ms), f"b moved to {moved}")
    report.expect(not ping(lab, A, TO_B[0], 10).times_ms, "and is gone from where it was")
    lab.readdress(B, 0)
    pings = measure_link(lab, (A, B, C))
    if is_void(pings):  # as before any scenario: once more, for a machine that is busy for a moment
        pings = measure_link(lab, (A, B, C))
    report.expect(not is_void(pings), f"125 ms is 125 ms again: {pings}")


def power(lab: Lab, report: Report) -> None:
    lab.exec(C, ["sh", "-c", "echo kept > /root/file; nft add table inet gone"])
    lab.kill(C)
    report.expect(not lab.running(C), "killed: off")
    report.expect(not ping(lab, A, node(C).hosts[0], 5).times_ms, "killed: no answer")
    lab.start(C)
    report.expect(lab.exec(C, ["cat", "/root/file"]).stdout == "kept\n", "started: same disk")
    report.expect(lab.exec(C, ["nft", "list", "tables"]).stdout == "", "started: nothing else")
    boots = lab.exec(C, ["journalctl", "--list-boots"]).stdout
    report.expect("\n -1 " in boots and " -2 " not in boots, "two boots in the journal")


def neighbours(lab: Lab, report: Report) -> None:
    with Lab(f"{lab.instance}-2") as other:
        other.up(members=2)
        pings = ping(other, A, TO_B[0], 100, interval=0.01)
        near = statistics.median(pings.times_ms) < 50 and not pings.loss_percent
        report.expect(near, f"another lab: {pings}")
        other.cut(B)
        report.expect(bool(ping(lab, A, TO_B[0], 10).times_ms), "a cut there is none here")
    report.expect(bool(ping(lab, A, TO_B[0], 10).times_ms), "its end is not ours")
