"""All commands there are; a flow's command is listed here once the flow exists."""

from __future__ import annotations

from keel.cli.doctor import DOCTOR
from keel.cli.etcd import ETCD
from keel.cli.invite import INVITE
from keel.cli.mesh import CREATE, JOIN, LEAVE, SYNC, UP
from keel.cli.network import NETWORK
from keel.cli.remove import REMOVE
from keel.cli.spec import DIFF, SPEC
from keel.cli.status import STATUS
from keel.cli.trust import TRUST
from keel.cli.verb import Group

MESH = Group(
    name="mesh",
    summary="this node's mesh: create, join, look, leave",
    description="A mesh of servers over WireGuard with one signed roster, and the registry on it.",
    children=(CREATE, INVITE, JOIN, LEAVE, REMOVE, STATUS, SYNC, UP, DOCTOR, TRUST, ETCD),
)

TREE = Group(
    name="keel",
    summary="a private mesh of Debian servers with an etcd registry",
    description="keel runs a private mesh of Debian servers over WireGuard and, from the third "
    "capable server on, a highly available etcd registry over it.",
    children=(MESH, NETWORK, SPEC, DIFF),
)
