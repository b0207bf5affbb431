"""All commands there are; a flow's command is listed here once the flow exists."""

from __future__ import annotations

from keel.cli.spec import SPEC
from keel.cli.verb import Group

TREE = Group(
    name="keel",
    summary="a private mesh of Debian servers with an etcd registry",
    description="keel runs a private mesh of Debian servers over WireGuard and, from the third "
    "capable server on, a highly available etcd registry over it.",
    children=(SPEC,),
)
