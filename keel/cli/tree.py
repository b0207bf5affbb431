"""All commands there are; a flow's command is listed here once the flow exists."""

from __future__ import annotations

from dataclasses import replace

from keel.cli import branch
from keel.cli.doctor import DOCTOR
from keel.cli.etcd import ETCD
from keel.cli.invite import INVITE
from keel.cli.mesh import CREATE, JOIN, LEAVE, SYNC, UP
from keel.cli.network import NETWORK
from keel.cli.remove import REMOVE
from keel.cli.spec import DIFF, SPEC
from keel.cli.status import STATUS
from keel.cli.trust import TRUST

MESH = replace(
    branch.MESH,
    children=(CREATE, INVITE, JOIN, LEAVE, REMOVE, STATUS, SYNC, UP, DOCTOR, TRUST, ETCD),
)

TREE = replace(branch.KEEL, children=(MESH, NETWORK, SPEC, DIFF))
