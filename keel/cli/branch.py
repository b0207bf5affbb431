"""The part of the tree of commands that a command line needs.

All modules and parsers of the tree cost a tenth of what a pass of the tend with nothing to do may
take, so what the timers run, and the commands that people wait for, do without the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from keel.cli.verb import Group, Verb

MESH = Group(
    name="mesh",
    summary="this node's mesh: create, join, look, leave",
    description="A mesh of servers over WireGuard with one signed roster, and the registry on it.",
    children=(),
)
KEEL = Group(
    name="keel",
    summary="a private mesh of Debian servers with an etcd registry",
    description="keel runs a private mesh of Debian servers over WireGuard and, from the third "
    "capable server on, a highly available etcd registry over it.",
    children=(),
)


def branch(argv: Sequence[str]) -> Group:
    """The tree without the commands beside the one that `argv` begins with; the whole tree where
    its first two words do not say which."""
    match argv[:2]:
        case ["mesh", "etcd"]:
            from keel.cli.etcd import ETCD

            return _with(ETCD)
        case ["mesh", "status"]:
            from keel.cli.status import STATUS

            return _with(STATUS)
        case ["mesh", "join" | "sync" | "up"]:
            from keel.cli.mesh import JOIN, SYNC, UP

            return _with(JOIN, SYNC, UP)
        case _:
            from keel.cli.tree import TREE

            return TREE


def _with(*children: Group | Verb) -> Group:
    return replace(KEEL, children=(replace(MESH, children=children),))
