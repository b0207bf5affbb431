"""A year in fast motion: five members and their timers (E4, E14, E15).

The holder is away for two months and one member for forty days. What has to be renewed is, nothing
expires that should not, what can't be renewed is told in time, and who comes back heals by itself.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from pathlib import Path

import pytest

from keel.mesh import etcdcrl, etcdrevoke, etcdstore, store
from keel.mesh.etcdcert import der, serial_of
from keel.mesh.etcdgrants import granted_to
from tests.flow.growing import grow, three_voters
from tests.flow.world import World

EVERY = 21.5
"""Days from one round of the timers to the next: every leaf and the CRL are due by then, and none
has ended. More often would only take longer."""
DAY = 86400.0
NAMES = "abcde"


def five_voters(scratch: Path) -> World:
    world = three_voters(scratch)
    for name in "de":
        world.join(name, world.invite("a"))
        world.settle()
        grow(world, *NAMES[: NAMES.index(name) + 1])
    return world


def rounds(world: World, count: int, *, away: Collection[str] = ()) -> None:
    """So many rounds; those that are here are tended, and are as they should be after each."""
    here = [name for name in NAMES if name not in away]
    for _ in range(count):
        world.net.clock.leap(EVERY * DAY)
        world.timers(*here, seconds=20.0)
        for name in here:
            nothing_expired(world, name)


def nothing_expired(world: World, name: str) -> None:
    host = world.host(name)
    now, leaves = host.clock.now(), etcdstore.load_leaves(host)
    held = etcdstore.load_intermediate(host)
    assert leaves is not None
    assert held is not None
    for leaf in (leaves.member.leaf, leaves.client.leaf):
        assert leaf.not_valid_after_utc <= held[1].certificate.not_valid_after_utc
        assert leaf.not_valid_after_utc - now > timedelta(days=8)
    assert held[1].certificate.not_valid_after_utc - now > timedelta(days=60)
    (shown, _) = host.etcd_at(world.loaded(name).address).served()
    assert shown == der(leaves.member.leaf)


def told(world: World, name: str) -> list[str]:
    """What the journal of that node said, but for what heals by itself."""
    said = world.net.nodes[name].console.said
    return [line for line in said if line.startswith("alert: ") and "renew" in line]


def leave_the_net(world: World, name: str) -> None:
    world.net.nodes[name].power_off()


@pytest.mark.slow
def test_a_year_of_five_members(tmp_path: Path) -> None:
    world = five_voters(tmp_path)
    rounds(world, 1)

    leave_the_net(world, "e")
    rounds(world, 2, away="e")
    assert all(told(world, name) == [] for name in "abcd")
    world.boot("e")
    for _ in range(4):
        world.timers(*NAMES, seconds=20.0)
    nothing_expired(world, "e")
    assert etcdstore.load_failures(world.host("e")).entries == ()

    rounds(world, 8)
    leave_the_net(world, "a")
    rounds(world, 3, away="a")
    late = [name for name in "bcde" if told(world, name)]
    assert late, "an intermediate that is due was told of"
    world.boot("a")
    for _ in range(6):
        world.timers(*NAMES, seconds=20.0)
    rounds(world, 3)

    ledger = etcdstore.load_ledger(world.host("a"))
    old = set()
    for name in NAMES:
        host, node = world.host(name), world.loaded(name)
        grants = granted_to(ledger, node.address, node.key)
        held = etcdstore.load_intermediate(host)
        assert held is not None
        assert serial_of(held[1].certificate) == grants[-1].serial
        assert len(grants) == 2
        old |= {one.serial for one in grants[:-1]}
        assert etcdstore.load_failures(host).entries == ()
    found = etcdrevoke.newest_known(world.host("a"), store.require(world.host("a")))
    assert found is not None
    assert {one.serial for one in found.revoked} == old
    for name in NAMES:
        raw = etcdstore.load_crl(world.host(name)) or b""
        assert etcdcrl.read_crl(raw, etcdstore.load_roots(world.host(name))).der == found.der
    assert world.host("b").etcd_at(world.loaded("b").address).get(b"early") == b"kept"
