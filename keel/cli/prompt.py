"""The name that an operator types before what cannot be taken back."""

from __future__ import annotations

import sys
from typing import TextIO

from keel.errors import Refused


def ask_name(
    name: str,
    given: str | None,
    *,
    yes: bool,
    stdin: TextIO | None = None,
    stderr: TextIO | None = None,
) -> str | None:
    """The name as it was typed, on the command line or at the prompt; None when --yes stands for
    it. Refused (name-not-typed) when another was typed, or nobody can be asked."""
    stdin, stderr = stdin or sys.stdin, stderr or sys.stderr
    if given is None and yes:
        return None
    if given is None and not stdin.isatty():
        raise Refused(
            "name-not-typed",
            f"this takes {name} out of its mesh for good, and there is no terminal to ask on",
            f"`keel mesh leave --yes` in a script, or `keel mesh leave --confirm {name}`",
        )
    if given is None:
        stderr.write(
            f"keel: {name} leaves its mesh, for good: a node that joins again has new keys and a"
            " new address\nkeel: type its name to go on: "
        )
        stderr.flush()
        given = stdin.readline().strip()
    if given != name:
        raise Refused(
            "name-not-typed",
            f"this node is {name}, not {given}" if given else "no name was typed; nothing changed",
            f"type {name} if it is this node that goes; else give the command on the one that does",
        )
    return given
