"""What goes wrong is told by keel-mesh-alert.service as systemd runs it: to a web server across the
underlay, by a mail server to a mailbox, and to a program; once, again after a day, and once more
when it is over; a reboot makes nothing of it anew. Who takes nothing is told later.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from netns import clock, image, inside, registry
from netns.lab import Lab
from netns.process import PATIENCE_SECONDS
from netns.scenario import Report
from netns.topology import Name, names, node

NAME = "etcd_alerts"
ROWS = ("E15",)
LINK = "125ms,12.5ms,1%"
JOINED = True

A, B, C = EVERYONE = names(3)
PORT = 8080
HOOKED, PAGED, MAILBOX = "/root/hooked", "/var/lib/pages", "/var/mail/root"
PAGER = "/usr/local/sbin/page"
PAGE = f"""\
#!/bin/sh
set -eu
ip -j address show dev wan0 >/dev/null  # as little allowed as a pager may be used to
cat >>{PAGED}
echo >>{PAGED}
"""
CHANNELS = f"""\
monitor:
  channels:
    - {{type: webhook, url: "http://{node(C).hosts[0]}:{PORT}/hook?key=s3cret"}}
    - {{type: mail, to: root@localhost}}
    - {{type: command, argv: [{PAGER}, oncall]}}
"""
HOOK = Path(inside.__file__).parent / "webhook.py"
UNITS = ("keel-mesh-etcd.service", "keel-mesh-alert.service")
DATA, AWAY = "/var/lib/keel-etcd/data", "/var/lib/keel-etcd.away"
CODE = "etcd-failed"
TOLD_SECONDS = PATIENCE_SECONDS
REMINDED = ["raised", "reminder", "reminder"]


def run(lab: Lab, report: Report) -> None:
    prepare(lab, report)
    trial(lab, report)
    raised(lab, report)
    reminded(lab, report)
    rebooted(lab, report)
    closed(lab, report)


def prepare(lab: Lab, report: Report) -> None:
    """A mail server and a pager on a, a web server on c."""
    registry.wait_for_voters(lab, EVERYONE)
    lab.put_tree(A, image.layer("mail") / "repo", "/srv/mail")
    install = "DEBIAN_FRONTEND=noninteractive dpkg -i /srv/mail/*.deb"
    lab.exec(A, ["sh", "-euc", install])
    lab.put(A, PAGER, PAGE, mode=0o755)
    spec = lab.exec(A, ["cat", "/etc/keel/spec.yaml"]).stdout
    lab.put(A, "/etc/keel/spec.yaml", spec + CHANNELS)
    hook(lab, "start")
    report.note("a has a mail server and a pager, c a web server")


def hook(lab: Lab, verb: str) -> None:
    lab.put(C, "/root/webhook.py", HOOK.read_text())
    if verb == "stop":
        lab.exec(C, ["systemctl", "stop", "webhook.service"])
        return
    argv = ["python3", "/root/webhook.py", str(PORT), HOOKED]
    lab.exec(C, ["systemd-run", "--quiet", "--collect", "--unit=webhook.service", *argv])
    lab.wait(partial(listens, lab), TOLD_SECONDS, "c's web server")


def listens(lab: Lab) -> bool:
    return f":{PORT} " in lab.exec(C, ["ss", "-Hltn"]).stdout


def trial(lab: Lab, report: Report) -> None:
    lab.exec(A, ["keel", "mesh", "etcd", "alert", "--test"])
    found = told(lab, "trial")
    report.expect(found == both(["raised"]), f"`keel mesh etcd alert --test`: {found}")
    lab.wait(partial(mailed, lab, "this is a trial"), TOLD_SECONDS, "the trial's mail")
    report.note("and its mail is in the mailbox")


def raised(lab: Lab, report: Report) -> None:
    """a's data is away, its guard refuses: told at once, and once only."""
    registry.restart_around(lab, A, f"mv {DATA} {AWAY}")
    tend(lab)
    events(lab, report, ["raised"], "told once")
    lab.wait(partial(mailed, lab, f"({CODE})"), TOLD_SECONDS, "the mail")
    said = lab.journal(A, "-u", "keel-*", "-o", "cat")  # whichever unit's pass looked first
    report.expect(said.count("alert: critical: etcd: etcd failed") == 1, "and in the journal once")
    tend(lab)
    events(lab, report, ["raised"], "another pass tells nothing more")
    for unit in UNITS:
        result = lab.exec(A, ["systemctl", "show", "-P", "Result", unit]).stdout.strip()
        report.expect(result == "success", f"a: {unit}: {result}")


def reminded(lab: Lab, report: Report) -> None:
    """A day later, by the clock of keel's units."""
    clock.shift(lab, A, "+25h")
    tend(lab)
    events(lab, report, ["raised", "reminder"], "a day later: reminded")
    clock.restore(lab, A)
    tend(lab)
    events(lab, report, REMINDED, "the clock is right again, and nobody waits for its future")


def rebooted(lab: Lab, report: Report) -> None:
    lab.reboot(A)
    tend(lab)
    events(lab, report, REMINDED, "after a reboot nothing is told anew")
    silent = told(lab, "tend-silent")
    report.expect(silent == both([]), "nor that nothing tended it while it was off")


def closed(lab: Lab, report: Report) -> None:
    """Its data is back. c's web server is down meanwhile: it is told later."""
    hook(lab, "stop")
    registry.restart_around(lab, A, f"rm -rf {DATA}; mv {AWAY} {DATA}")
    registry.wait_for_voters(lab, (A,))
    tend(lab)
    whole = [*REMINDED, "closed"]
    paged = partial(tends_until, lab, lambda: told(lab, CODE)["command"] == whole)
    lab.wait(paged, TOLD_SECONDS, "the pager to be told")
    report.expect(told(lab, CODE)["webhook"] == REMINDED, "over: the pager is told, the web not")
    lab.wait(partial(failing, lab), TOLD_SECONDS, "the web server's silence to be a failure")
    hook(lab, "start")
    tend(lab)
    events(lab, report, whole, "the web server is back: told that it is over")
    mail = lab.exec(A, ["cat", MAILBOX]).stdout
    subjects = [one for one in mail.splitlines() if one.startswith("Subject: keel on a: ")]
    report.note(f"a's mailbox: {subjects}")
    report.expect("Subject: keel on a: over: " in mail, "the mailbox has it as well")


def tend(lab: Lab) -> None:
    """A pass as its timer starts it, with a look at once, and what it had the alert's unit tell."""
    lab.exec(A, ["rm", "-f", "/run/keel/looked"])
    lab.exec(A, ["systemctl", "start", "keel-mesh-etcd.service"])
    lab.wait(lambda: not told_now(lab), TOLD_SECONDS, "the alert's unit to end")


def tends_until(lab: Lab, holds: Callable[[], bool]) -> bool:
    """Whether it holds, else after one more pass: one that a timer began sooner may have been at
    work instead, with the clock or the look of before."""
    if not holds():
        tend(lab)
    return holds()


def told_now(lab: Lab) -> bool:
    """Whether alerts are on their way, or will be by what was started."""
    argv = ["systemctl", "show", "-P", "ActiveState", "keel-mesh-alert.service"]
    return lab.exec(A, argv).stdout.strip() in {"activating", "active"}


def events(lab: Lab, report: Report, wanted: list[str], what: str) -> None:
    told_so = partial(tends_until, lab, lambda: told(lab, CODE) == both(wanted))
    lab.wait(told_so, TOLD_SECONDS, f"{what}: {wanted}")
    report.expect(True, f"{what}: {', '.join(wanted)}")


def both(wanted: list[str]) -> dict[str, list[str]]:
    return {"webhook": wanted, "command": wanted}


def told(lab: Lab, code: str) -> dict[str, list[str]]:
    """The events of one code that web server and pager were told of, in order."""
    return {
        "webhook": events_in(lab, C, HOOKED, code),
        "command": events_in(lab, A, PAGED, code),
    }


def events_in(lab: Lab, name: Name, path: str, code: str) -> list[str]:
    lines = lab.exec(name, ["cat", path], check=False).stdout.splitlines()
    messages: list[dict[str, Any]] = [json.loads(line) for line in lines if line]
    return [
        alert["event"]
        for message in messages
        for alert in message["alerts"]
        if alert["code"] == code and alert["subject"] != "alerts"  # who takes none is told of, too
    ]


def mailed(lab: Lab, text: str) -> bool:
    return text in lab.exec(A, ["cat", MAILBOX], check=False).stdout


def failing(lab: Lab) -> bool:
    """Whether a pass says that a channel takes nothing; it does not say where the channel is."""
    tend(lab)
    said = lab.journal(A, "-u", "keel-*", "-o", "cat")
    return "takes no alerts since" in said and "s3cret" not in said
