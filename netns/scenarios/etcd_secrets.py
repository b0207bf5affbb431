"""No private key and no invite's secret stands anywhere but in the few files made for it: not in
another file, a log, a process's arguments or environment, an output. The finder is tried first on
secrets that were planted.
"""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from netns import inside, mesh, registry
from netns.lab import Lab
from netns.process import PATIENCE_SECONDS
from netns.scenario import Report
from netns.secrets import Found, files_below, search
from netns.topology import Name, names

NAME = "etcd_secrets"
ROWS = ("E6", "M2")
LINK = "5ms,0ms,0%"

EVERYONE = names(3)
A, B, C = EVERYONE
INSIDE = Path(inside.__file__).parent
OUTPUTS = (
    "keel mesh status --json",
    "keel mesh status",
    "keel mesh invite --list --json",
    "keel mesh etcd status --json",
    "keel mesh etcd env --json",
    "keel mesh trust list --json",
    "keel mesh etcd tend",
    "keel mesh sync",
    "keel spec show",
    "keel diff",
    "keel --verbose mesh up",
)
MAY_HOLD = {
    "signing key": ("var/lib/keel/mesh/signing.key",),
    "WireGuard key": ("var/lib/keel/mesh/wireguard.key",),
    "root key": ("var/lib/keel/etcd/roots/g1/root.key",),
    "intermediate's key": ("var/lib/keel/etcd/intermediate/1/key.pem",),
    "member leaf's key": ("var/lib/keel/etcd/leaf/1/member.pem", "etc/etcd/keel/member.pem"),
    "client leaf's key": ("var/lib/keel/etcd/leaf/1/client.pem",),
}
TRACEBACK = """\
import sys
def redeem(secret):
    raise ValueError(f"no such invite: {secret!r}")
redeem(bytes.fromhex(sys.stdin.read()))
"""


def run(lab: Lab, report: Report) -> None:
    said = {}
    with watching(lab) as seen:
        said["create"] = output(lab, A, "keel mesh create")
        for name in (B, C):
            token = mesh.invite(lab, A)
            said[f"join on {name}"] = output(
                lab, name, "keel mesh join --token-file -", f"{token}\n"
            )
        registry.wait_for_voters(lab, EVERYONE)
        for name in EVERYONE:
            for command in OUTPUTS:
                said[f"`{command}` on {name}"] = output(lab, name, command)
    secrets = {name: held_by(lab, name) for name in EVERYONE}
    everything = {
        f"{name}'s {what}": raw for name in EVERYONE for what, raw in secrets[name].items()
    }
    report.expect(len(everything) >= 3 * 5 + 1 + 6, f"{len(everything)} secrets are sought")
    places = [(f"the output of {what}", text.encode()) for what, text in said.items()]
    places += [(f"processes of {name}", text) for name, text in seen.items()]
    places += list(written(lab))
    found = [one for one in search(everything, places) if not may_stand(one)]
    report.expect(not found, f"in {len(places)} places none{': '.join(['', *map(str, found)])}")
    homes(report, everything, places)
    planted(lab, report, secrets[A])


def output(lab: Lab, name: Name, command: str, stdin: str = "") -> str:
    done = lab.exec(name, ["sh", "-c", command], input=stdin, check=False)
    return done.stdout + done.stderr


@contextlib.contextmanager
def watching(lab: Lab) -> Iterator[dict[Name, bytes]]:
    """What was seen of the processes of each appliance, once this is over."""
    program = (INSIDE / "watch_processes.py").read_text()
    seen: dict[Name, bytes] = {}
    running = {name: lab.popen(name, ["python3", "-c", program]) for name in EVERYONE}
    for process in running.values():
        assert process.stdout
        process.stdout.readline()
    try:
        yield seen
    finally:
        for name, process in running.items():
            seen[name] = process.communicate(timeout=PATIENCE_SECONDS)[0].encode("latin-1")


def held_by(lab: Lab, name: Name) -> dict[str, bytes]:
    program = (INSIDE / "secrets_here.py").read_text()
    found = json.loads(lab.exec(name, ["python3", "-"], input=program).stdout)
    return {what: bytes.fromhex(text) for what, text in found.items()}


def written(lab: Lab) -> Iterator[tuple[str, bytes]]:
    """Every file that an appliance changed, its console, and its journal as text."""
    for name in EVERYONE:
        disk = lab.machine(name).disk
        for path, data in files_below(disk / "upper"):
            yield f"{name}:{path}", data
        yield f"{name}'s console", (disk / "console").read_bytes()
        yield f"{name}'s journal", lab.journal(name, "--output", "verbose", "--all").encode()


def may_stand(found: Found) -> bool:
    """Whether it is a file that was made for this secret, on the member whose secret it is."""
    owner, _, what = found.secret.partition("'s ")
    kept: tuple[str, ...] = MAY_HOLD.get(what, ())
    if what.startswith("invite ") and what.endswith(": secret"):
        kept = (f"var/lib/keel/mesh/invites/{what.split()[1].rstrip(':')}.json",)
    return found.where in {f"{owner}:{home}" for home in kept}


def homes(report: Report, everything: dict[str, bytes], places: list[tuple[str, bytes]]) -> None:
    """Each secret is found where it should be: the search does see what is there. What is derived
    from an invite's secret is never written."""
    found = {one.secret for one in search(everything, places)}
    derived = {what for what in everything if what.endswith(("preshared key", "temporary key"))}
    missed = set(everything) - derived - found
    report.expect(
        not missed, f"each is found in its own file{': but ' if missed else ''}{missed or ''}"
    )


def planted(lab: Lab, report: Report, secrets: dict[str, bytes]) -> None:
    """A secret in a log, in an argument list and in a traceback turns the same search red."""
    what, secret = next((k, v) for k, v in secrets.items() if k.endswith(": secret"))
    lab.exec(A, ["logger", f"redeeming {secret.hex()}"])
    with watching(lab) as seen:
        lab.exec(A, ["sh", "-c", "sleep 1; true", "keel", secret.hex()])
    traceback = output(lab, A, f"python3 -c '{TRACEBACK}'", secret.hex())
    for where, data, form in (
        ("journal", lab.journal(A, "--output", "verbose", "--all").encode(), "hex"),
        ("processes", seen[A], "hex"),
        ("traceback", traceback.encode(), "a repr"),
    ):
        hits = list(search({what: secret}, [(where, data)]))
        report.expect(
            [one.form for one in hits] == [form], f"planted and found: {hits[0] if hits else where}"
        )
