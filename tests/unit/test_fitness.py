"""Go or no-go for machines and paths before a cluster is formed: one row a limit."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv6Address

import pytest

from keel.mesh.fitness import Examined, Verdict, against, checks
from keel.mesh.formmsg import ForeignEtcd, Link, Measure, Measured
from keel.types import Capability, Mode

A, B = IPv6Address("fd00::a"), IPv6Address("fd00::b")
GOOD = Measured(
    mode=Mode.CLOUD_ADVANCED,
    capability=Capability.ETCD,
    keel="0.1.0",
    etcd="3.5.16",
    free_bytes=1 << 30,
    mtu=1280,
    foreign=ForeignEtcd.NONE,
    sync_seconds=0.1,
)
LINK = Link(peer=B, tried=8, answered=8, held_up=2, seconds=0.5)


def one(measured: Measured | None = GOOD, **changes: object) -> Examined:
    base = Examined(name="a", address=A, measured=measured)
    return replace(base, **changes)  # type: ignore[arg-type]  # names are checked at run time


def two(link: Link) -> tuple[Examined, ...]:
    return one(replace(GOOD, links=(link,))), Examined(name="b", address=B, measured=GOOD)


def said(members: tuple[Examined, ...]) -> dict[tuple[str, str], tuple[str, Verdict]]:
    return {(check.what, check.where): (check.value, check.verdict) for check in checks(members)}


def test_at_its_limits_everything_is_fit() -> None:
    found = checks(two(LINK))
    assert not against(found)
    assert {check.verdict for check in found} == {Verdict.GO}
    assert all(check.remedy == "" for check in found)
    assert said(two(LINK)) == {
        ("clock", "a"): ("this one", Verdict.GO),
        ("mtu", "a"): ("1280", Verdict.GO),
        ("disk-free", "a"): ("1024 MiB", Verdict.GO),
        ("disk-sync", "a"): ("100.0 ms", Verdict.GO),
        ("etcd-version", "a"): ("3.5.16", Verdict.GO),
        ("foreign-etcd", "a"): ("none", Verdict.GO),
        ("clock", "b"): ("this one", Verdict.GO),
        ("mtu", "b"): ("1280", Verdict.GO),
        ("disk-free", "b"): ("1024 MiB", Verdict.GO),
        ("disk-sync", "b"): ("100.0 ms", Verdict.GO),
        ("etcd-version", "b"): ("3.5.16", Verdict.GO),
        ("foreign-etcd", "b"): ("none", Verdict.GO),
        ("keel-version", "a"): ("0.1.0", Verdict.GO),
        ("keel-version", "b"): ("0.1.0", Verdict.GO),
        ("round-trip", "a -> b"): ("500 ms", Verdict.GO),
        ("loss", "a -> b"): ("2 of 8 held up", Verdict.GO),
    }


BAD = {
    "no answer to a large message": ((one(None, why="no answer"),), "answer", "no answer"),
    "clock ahead": ((one(ahead_seconds=60.0),), "clock", "+60 s"),
    "clock behind": ((one(ahead_seconds=-60.0),), "clock", "-60 s"),
    "small packets": ((one(replace(GOOD, mtu=1279)),), "mtu", "1279"),
    "no interface": ((one(replace(GOOD, mtu=None)),), "mtu", "<none>"),
    "full disk": ((one(replace(GOOD, free_bytes=(1 << 30) - 1)),), "disk-free", "1023 MiB"),
    "slow disk": ((one(replace(GOOD, sync_seconds=0.1001)),), "disk-sync", "100.1 ms"),
    "no etcd": ((one(replace(GOOD, etcd=None)),), "etcd-version", "<none>"),
    "old etcd": ((one(replace(GOOD, etcd="3.4.23")),), "etcd-version", "3.4.23"),
    "older etcd of the series": ((one(replace(GOOD, etcd="3.5.15")),), "etcd-version", "3.5.15"),
    "another series of etcd": ((one(replace(GOOD, etcd="3.6.1")),), "etcd-version", "3.6.1"),
    "a stray etcd": (
        (one(replace(GOOD, foreign=ForeignEtcd.STRAY)),),
        "foreign-etcd",
        "stray",
    ),
    "foreign data": ((one(replace(GOOD, foreign=ForeignEtcd.DATA)),), "foreign-etcd", "data"),
    "another etcd runs": (
        (one(replace(GOOD, foreign=ForeignEtcd.RUNNING)),),
        "foreign-etcd",
        "running",
    ),
    "an older keel": (
        (one(), one(replace(GOOD, keel="0.0.9"), name="b", address=B)),
        "keel-version",
        "0.0.9",
    ),
    "a long path": (two(replace(LINK, seconds=0.501)), "round-trip", "501 ms"),
    "a lossy path": (two(replace(LINK, held_up=3)), "loss", "3 of 8 held up"),
    "tries that failed count as lost": (
        two(replace(LINK, answered=5, held_up=0)),
        "loss",
        "3 of 8 held up",
    ),
    "no path": (two(replace(LINK, answered=0, held_up=0, seconds=None)), "round-trip", "no answer"),
}


@pytest.mark.parametrize("row", BAD)
def test_beyond_a_limit_one_check_says_no_and_what_to_do(row: str) -> None:
    members, what, value = BAD[row]
    found = checks(members)
    (bad,) = [check for check in found if check.verdict is Verdict.NO_GO]
    assert (bad.what, bad.value) == (what, value)
    assert bad.remedy
    assert against(found)


def test_ten_is_newer_than_nine() -> None:
    members = (
        one(replace(GOOD, keel="0.9.0")),
        one(replace(GOOD, keel="0.10.0"), name="b", address=B),
    )
    assert said(members)["keel-version", "a"][1] is Verdict.NO_GO
    assert said(members)["keel-version", "b"][1] is Verdict.GO


def test_a_disk_that_cannot_be_measured_stops_nobody() -> None:
    members = (one(replace(GOOD, sync_seconds=None)),)
    assert said(members)["disk-sync", "a"] == ("<unknown>", Verdict.UNKNOWN)
    assert not against(checks(members))


def test_a_path_to_whoever_was_not_asked_is_left_out() -> None:
    members = (one(replace(GOOD, links=(LINK,))),)
    assert not [check for check in checks(members) if check.what == "round-trip"]


def test_nobody_has_more_measured_than_is_bounded() -> None:
    with pytest.raises(ValueError, match="too much"):
        Measure(peers=(A,) * 33)
    with pytest.raises(ValueError, match="too much"):
        Measure(peers=(), padding=bytes(4097))
