"""keel as the lab types it: the only place that knows the commands and the fields of `keel mesh
status --json`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from netns.image import say
from netns.lab import Lab
from netns.topology import Mode, Name

JOIN_SECONDS = 180
WHOLE_SECONDS = 180
BIRTH_SECONDS = 180

Status = dict[str, Any]


def version(lab: Lab, name: Name) -> str:
    return lab.exec(name, ["keel", "--version"]).stdout.strip()


def create(lab: Lab, name: Name) -> None:
    """Make the mesh."""
    lab.exec(name, ["keel", "mesh", "create"], timeout=JOIN_SECONDS)


def invite(lab: Lab, name: Name) -> str:
    """A token, made by a member."""
    return lab.exec(name, ["keel", "mesh", "invite"], timeout=JOIN_SECONDS).stdout.strip()


def join(lab: Lab, name: Name, token: str) -> None:
    """Join with a token, which goes in by stdin."""
    argv = ["keel", "mesh", "join", "--token-file", "/dev/stdin"]
    lab.exec(name, argv, input=f"{token}\n", timeout=JOIN_SECONDS)


def status(lab: Lab, name: Name) -> Status:
    """What `keel mesh status --json` says."""
    found: Status = json.loads(lab.exec(name, ["keel", "mesh", "status", "--json"]).stdout)
    return found


def is_whole(found: Status, names: Sequence[Name]) -> bool:
    """Whether a member sees exactly these members, itself among them, and each other one up."""
    others = {member["name"]: member["state"] for member in found["members"]}
    wanted = dict.fromkeys(names, "up")
    return others | {found["self"]["name"]: "up"} == wanted


def has_registry(found: Status) -> bool:
    """Whether a member is a voter of a cluster with a leader."""
    return found["etcd"]["phase"] == "voter" and bool(found["etcd"]["leader"])


def join_all(lab: Lab, names: Sequence[Name]) -> None:
    """Create on the first, invite and join the others, and wait until all see all.

    Where a registry is due, wait as well until every one of them is a voter.
    """
    first, *others = names
    say(f"{first}: keel mesh create")
    create(lab, first)
    for name in others:
        say(f"{first}: keel mesh invite; {name}: keel mesh join")
        join(lab, name, invite(lab, first))
    wait_until_whole(lab, names)
    if len(names) >= 3 and lab.state().mode == Mode.CLOUD_ADVANCED:
        wait_for_registry(lab, names)


def wait_until_whole(lab: Lab, names: Sequence[Name]) -> None:
    """Wait until each of them sees all of them up."""
    for name in names:
        whole = partial(_sees, lab, name, lambda found: is_whole(found, names))
        lab.wait(whole, WHOLE_SECONDS, f"{name} to see {', '.join(names)} up")


def wait_for_registry(lab: Lab, names: Sequence[Name]) -> None:
    """Wait until each of them is a voter of a cluster with a leader."""
    for name in names:
        lab.wait(partial(_sees, lab, name, has_registry), BIRTH_SECONDS, f"{name} to be a voter")


def _sees(lab: Lab, name: Name, judge: Callable[[Status], bool]) -> bool:
    return judge(status(lab, name))
