"""The registry as its clients see it: etcdctl in the appliances, never keel's own word for it."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from netns.lab import Lab
from netns.process import PATIENCE_SECONDS
from netns.scenario import Failed, Report
from netns.topology import Name

ETCDCTL = """\
env=/run/etcdctl.env
[ $env -nt /var/lib/keel/etcd/leaf ] || { keel mesh etcd env >$env.$$ && mv $env.$$ $env; } || exit
. $env
exec etcdctl "$@"
"""
"""What an operator types, keel asked once for each certificate: it is asked every fifth of a
second, on two processors that others want."""
BIRTH_SECONDS = PATIENCE_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What one member says of its cluster. Members: (ID, peer URL, learner), in order."""

    identity: str
    members: tuple[tuple[str, str, bool], ...]


def etcdctl(
    lab: Lab, name: Name, *words: str, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """etcdctl on a member, through its own [::1]:2379. Raises ExecFailed if `check`."""
    argv = ["sh", "-c", ETCDCTL, "etcdctl", "--command-timeout=15s", *words]
    return lab.exec(name, argv, check=check)


def asked(lab: Lab, name: Name, *words: str) -> Any:
    """The same, its JSON read; asked again for as long as it takes them to elect a leader."""
    heard: list[str] = []

    def answers() -> bool:
        done = etcdctl(lab, name, *words, "-w", "json", check=False)
        heard[:] = [done.stdout.strip()]
        return done.returncode == 0 and heard != [""]

    lab.wait(answers, PATIENCE_SECONDS, f"{name}'s etcd to answer `{' '.join(words)}`")
    return json.loads(heard[0])


def cluster(lab: Lab, name: Name) -> Cluster:
    """The member list, as this member has it."""
    found = asked(lab, name, "member", "list")
    members = (
        (f"{one['ID']:x}", one["peerURLs"][0], one.get("isLearner", False))
        for one in found["members"]
    )
    return Cluster(identity=f"{found['header']['cluster_id']:x}", members=tuple(sorted(members)))


def address(lab: Lab, name: Name) -> str:
    """Its /128, by the interface."""
    said = lab.exec(name, ["ip", "-j", "-6", "address", "show", "dev", "keel0", "scope", "global"])
    (own,) = (one["local"] for one in json.loads(said.stdout)[0]["addr_info"] if one)
    return str(own)


def put(lab: Lab, name: Name, key: str, value: str) -> bool:
    """Whether the write was committed."""
    return etcdctl(lab, name, "put", key, value, check=False).stdout.strip() == "OK"


def get(lab: Lab, name: Name, key: str) -> str | None:
    """A linearizable read; None when there is no such key. It waits for a leader."""
    found = asked(lab, name, "get", key).get("kvs", [])
    return base64.b64decode(found[0]["value"]).decode() if found else None


def wait_for_write(lab: Lab, name: Name, key: str, value: str, seconds: float) -> float:
    """Write until it is committed; the seconds it took."""
    return lab.wait(lambda: put(lab, name, key, value), seconds, f"a write through {name}")


def is_voter(lab: Lab, name: Name) -> bool:
    """Whether the member itself says so, and knows a leader."""
    done = etcdctl(lab, name, "endpoint", "status", "-w", "json", check=False)
    if done.returncode != 0 or not done.stdout.strip():
        return False
    status = json.loads(done.stdout)[0]["Status"]
    return bool(status.get("leader")) and not status.get("isLearner", False)


def restart_around(lab: Lab, name: Name, script: str) -> None:
    """What is done while a member's etcd is stopped. No pass of keel's is at work meanwhile: it
    would start etcd again, over what is half done."""
    steps = f"systemctl stop etcd.service; {script}; systemctl start --no-block etcd.service"
    lab.exec(name, without_passes("sh", "-euc", steps))


def without_passes(*argv: str) -> list[str]:
    """A command that runs while no tend does: it waits for the one at work, and the next ones see
    that another is."""
    return ["flock", "/run/keel/tend.lock", *argv]


def wait_for_voters(lab: Lab, names: Sequence[Name], seconds: float = BIRTH_SECONDS) -> None:
    """Wait until each of them serves as a voter."""
    for name in names:
        lab.wait(partial(is_voter, lab, name), seconds, f"{name} to be a voter")


def judge_one_cluster(lab: Lab, report: Report, names: Sequence[Name], key: str) -> Cluster:
    """One cluster with exactly these members as voters, the same to each of them; what is written
    through the first is read through the last. Raises Failed."""
    with ThreadPoolExecutor(len(names)) as pool:
        seen = dict(zip(names, pool.map(partial(cluster, lab), names), strict=True))
        own = list(pool.map(partial(address, lab), names))
    first = seen[names[0]]
    if any(other != first for other in seen.values()):
        raise Failed(f"the members do not agree on one cluster: {seen}")
    wanted = sorted(f"https://[{one}]:2380" for one in own)
    urls = sorted(url for _, url, learner in first.members if not learner)
    report.expect(urls == wanted, f"one cluster {first.identity}, voters {', '.join(names)}")
    wait_for_write(lab, names[0], key, f"by {names[0]}", PATIENCE_SECONDS)
    read = get(lab, names[-1], key)
    report.expect(read == f"by {names[0]}", f"written through {names[0]}, read through {names[-1]}")
    return first
