"""The power goes at every point of the recorded trace of a create, a join and a birth.

What each flow does to its node's disk is recorded once; every prefix of it is made into the disk
that a power cut leaves, and asked what node it is. It never knows less than it knew a moment
before, so it can never act as a fresh one; and it can always be read. That the next run then goes
on from there to the same end is shown by the kill tests, which cut the power too.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, fields, replace
from pathlib import Path

import pytest

from keel.mesh import etcdcert, etcdstore, etcdtaken, store
from keel.mesh.etcdstate import Stage
from keel.mesh.invite import Phase
from keel.paths import Paths
from keel.ports import Host
from keel.system.fs import DurableFiles
from keel.types import Secret
from tests.fakes import DiskModel, Unsynced, power_cuts
from tests.flow.kill import tolerate
from tests.flow.test_kill import STORIES

pytestmark = pytest.mark.lives

ADVANCE = {
    Phase.UNUSED: 0,
    Phase.CLAIMED: 1,
    Phase.SPENT: 2,
    Phase.EXPIRED: 2,
    Phase.CANCELLED: 2,
}
BIRTH = {Stage.IDLE: 0, Stage.STARTING: 1, Stage.FORMED: 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Knows:
    """What a disk says of its node; every field only ever grows."""

    keys: frozenset[bytes]
    member: bool
    records: frozenset[tuple[str, str]]
    invites: int
    birth: int
    formation: frozenset[str]
    epoch: int
    roots: frozenset[bytes]
    granted: int
    leaves: int
    grants: int
    holder: bool
    lived: int

    def lost(self, later: Knows) -> list[str]:
        """What a later look no longer knows."""
        return [one.name for one in fields(self) if not _grew(self, later, one.name)]


def _grew(before: Knows, after: Knows, name: str) -> bool:
    was, now = getattr(before, name), getattr(after, name)
    return was <= now


def knows(host: Host) -> Knows:
    """Read as the commands read it: StateCorrupt for what they would stop at."""
    node = store.load(host)
    records = node.roster.entries if node else {}
    invites = store.load_invites(host)
    cluster = etcdstore.load_cluster(host)
    record = etcdtaken.current_record(host)
    etcdstore.load_queue(host)
    etcdstore.load_failures(host)
    etcdstore.load_crl(host)
    etcdstore.load_holder(host)
    etcdstore.load_book(host)
    store.load_nonces(host)
    leaves = etcdstore.load_leaves(host)
    granted = etcdstore.load_intermediate(host)
    return Knows(
        keys=frozenset(_keys(host)),
        member=node is not None,
        records=frozenset((one.kind, one.signer) for one in records.values()),
        invites=sum(ADVANCE[one.phase] for one in invites),
        birth=BIRTH[cluster.stage],
        formation=frozenset({str(cluster.formation)} if cluster.formation else ()),
        epoch=record.epoch if record else 0,
        roots=frozenset(etcdcert.der(one) for one in etcdstore.load_roots(host)),
        granted=granted[0] if granted else 0,
        leaves=leaves.number if leaves else 0,
        grants=len(etcdstore.load_ledger(host).lines),
        holder=etcdstore.load_authority(host) is not None,
        lived=etcdstore.load_lived(host).counter,
    )


def _keys(host: Host) -> list[bytes]:
    """The node's signing key, also while its join is under way."""
    places = [host.paths.mesh]
    places += [host.paths.pending_joins / n for n in host.files.names(host.paths.pending_joins)]
    found = [host.files.read(place / "signing.key") for place in places]
    return [Secret(base64.b64decode(raw)).reveal() for raw in found if raw]


@pytest.mark.parametrize("unsynced", [Unsynced.DROPPED, Unsynced.NAMES_KEPT], ids=lambda u: u.name)
@pytest.mark.parametrize(
    "name",
    [
        "create",
        "join, the joiner",
        "join, the inviter",
        "birth, the joiner",
        "birth, the holder",
        "birth, the other",
    ],
)
def test_a_power_cut_anywhere_leaves_a_disk_that_knows_all_it_knew(
    tmp_path: Path, name: str, unsynced: Unsynced
) -> None:
    story = STORIES[name]
    world = story.arrange(tmp_path / "disks")
    victim = world.net.nodes[story.victim]
    before, began = DiskModel(victim.root), len(victim.disk.trace)
    tolerate(lambda: story.act(world))
    trace = victim.disk.trace[began:]
    last: dict[str, bytes | None] = {}
    known: Knows | None = None
    images = 0
    for done, model in power_cuts(before, trace):
        image = model.image(unsynced)
        if image == last:
            continue
        last, images = image, images + 1
        place = model.write_image(tmp_path / f"image{done}", unsynced)
        now = knows(replace(victim.host, paths=Paths(place), files=DurableFiles()))
        assert known is None or known.lost(now) == [], f"{done}: after {trace[done - 1]}"
        known = now
    assert known == knows(victim.host)
    assert images >= 8
