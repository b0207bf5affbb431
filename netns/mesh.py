"""keel as the lab types it: the only place that knows the commands and the fields of `keel mesh
status --json`.
"""

from __future__ import annotations

import base64
import contextlib
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from netns import clock as shift
from netns.image import say
from netns.lab import Lab
from netns.process import PATIENCE_SECONDS
from netns.topology import Mode, Name

JOIN_SECONDS = WHOLE_SECONDS = BIRTH_SECONDS = PATIENCE_SECONDS
LOOK_SECONDS = 1.0  # between two looks by `keel mesh status`, which takes half a second of work
JOIN = ["keel", "mesh", "join", "--token-file", "-"]
STATE = "var/lib/keel/mesh"

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
    lab.exec(name, JOIN, input=f"{token}\n", timeout=JOIN_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What a command came to, with the JSON document that it printed; empty when it was killed."""

    exit: int
    document: dict[str, Any]
    seconds: float

    @property
    def rule(self) -> str:
        """Why it was refused."""
        return str(self.document.get("rule", ""))

    def __str__(self) -> str:
        said = self.document.get("summary") or self.document.get("address") or "nothing said"
        return f"exit {self.exit}, {self.rule or 'no refusal'}: {said} ({self.seconds:.0f} s)"


def try_join(lab: Lab, name: Name, token: str, *, clock: str = "") -> Tried:
    """`keel mesh join`, whatever comes of it; `clock` shifts the command's clock."""
    argv = [*JOIN, "--json"]
    begun = time.monotonic()
    done = lab.exec(
        name,
        shift.shifted(argv, clock) if clock else argv,
        input=f"{token}\n",
        timeout=JOIN_SECONDS,
        check=False,
    )
    document = json.loads(done.stdout) if done.stdout else {}
    return Tried(exit=done.returncode, document=document, seconds=time.monotonic() - begun)


def invite_of(token: str) -> str:
    """The id of a token's invite: it stands behind the version and the mesh's id."""
    text = token.partition(".")[2]
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))[17:33].hex()


def invites(lab: Lab, name: Name) -> list[dict[str, str]]:
    """What `keel mesh invite --list` knows, in no order."""
    argv = ["keel", "mesh", "invite", "--list", "--json"]
    found: list[dict[str, str]] = json.loads(lab.exec(name, argv).stdout)["invites"]
    return found


def record(lab: Lab, name: Name, pattern: str) -> dict[str, Any]:
    """The JSON file of keel's mesh state that matches, read from outside: also of an appliance that
    is off. Empty when there is none.
    """
    directory = lab.machine(name).disk / "root" / STATE
    for path in sorted(directory.glob(pattern)):
        with contextlib.suppress(FileNotFoundError):
            found: dict[str, Any] = json.loads(path.read_text())
            return found
    return {}


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

    def wait(name: Name) -> None:
        whole = partial(_sees, lab, name, lambda found: is_whole(found, names))
        what = f"{name} to see {', '.join(names)} up"
        lab.wait(whole, WHOLE_SECONDS, what, every=LOOK_SECONDS)

    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(wait, names))


def wait_for_registry(lab: Lab, names: Sequence[Name]) -> None:
    """Wait until each of them is a voter of a cluster with a leader."""
    for name in names:
        voter = partial(_sees, lab, name, has_registry)
        lab.wait(voter, BIRTH_SECONDS, f"{name} to be a voter", every=LOOK_SECONDS)


def _sees(lab: Lab, name: Name, judge: Callable[[Status], bool]) -> bool:
    return judge(status(lab, name))
