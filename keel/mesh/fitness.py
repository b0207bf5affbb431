"""Whether machines and paths are fit for a cluster: go or no-go for each number, with its remedy.

Pure: what the members measured comes in, checks go out; `keel mesh etcd form --dry-run` shows them.
The limits are those of etcd's timers here (heartbeat 300 ms, election 5 s; E17) and of its quota.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv6Address

from keel.mesh.formmsg import ForeignEtcd, Link, Measured
from keel.mesh.wgconf import FULL_PACKET
from keel.spec.model import MIN_MTU

ROUND_TRIP_SECONDS = 0.5
"""An election takes some round trips: ten of them fit into its time-out."""
HELD_UP_SHARE = 0.25
"""Of the connections; every one of them needs two packets, so about an eighth of all is lost."""
CLOCK_SECONDS = 60.0
"""keel itself stops at 300."""
SYNC_SECONDS = 0.1
"""A third of a heartbeat; every write waits for a majority's disks."""
FREE_BYTES = 1 << 30
"""The quota of 256 MiB four times: data, log, a snapshot on its way in, and room to defragment."""
LEAST_ETCD = (3, 5, 16)
SILENT = (
    "`keel mesh status` here says why {name} gives no answer; where full packets do not pass,"
    f" network.wireguard.mtu: {MIN_MTU} on both sides, and the network between has to carry"
    f" {FULL_PACKET} bytes"
)


class Verdict(StrEnum):
    GO = "go"
    NO_GO = "no-go"
    UNKNOWN = "unknown"
    """It could not be measured there; it stops nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One number of one member or of one path; `remedy` is empty unless it is a no-go."""

    what: str
    where: str
    value: str
    verdict: Verdict
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """A member's numbers, or why there are none; `ahead_seconds`: of its clock."""

    name: str
    address: IPv6Address
    measured: Measured | None
    why: str = ""
    ahead_seconds: float | None = None


def checks(members: tuple[Examined, ...]) -> tuple[Check, ...]:
    """Every check, member by member, then path by path."""
    found = [check for one in members for check in _member(one)]
    found += _versions(members)
    names = {one.address: one.name for one in members}
    found += [
        check
        for one in members
        if one.measured is not None
        for link in one.measured.links
        if link.peer in names
        for check in _path(one.name, names[link.peer], link)
    ]
    return tuple(found)


def unheard(silent: Iterable[tuple[str, str]]) -> tuple[Check, ...]:
    """What is known of those, by name and reason, that gave no answer to measure."""
    return tuple(_no("answer", name, why, SILENT.format(name=name)) for name, why in silent)


def against(found: tuple[Check, ...]) -> tuple[Check, ...]:
    """What speaks against it."""
    return tuple(check for check in found if check.verdict is Verdict.NO_GO)


def _member(one: Examined) -> list[Check]:
    seen = one.measured
    if seen is None:
        return [
            _no(
                "answer",
                one.name,
                one.why,
                SILENT.format(name=one.name),
            )
        ]
    return [
        _clock(one),
        _mtu(one.name, seen),
        _judge(
            "disk-free",
            one.name,
            f"{seen.free_bytes >> 20} MiB",
            good=seen.free_bytes >= FREE_BYTES,
            remedy=f"make room below /var/lib on {one.name}: at least {FREE_BYTES >> 20} MiB",
        ),
        _sync(one.name, seen),
        _etcd(one.name, seen),
        _foreign(one.name, seen),
    ]


def _clock(one: Examined) -> Check:
    ahead = one.ahead_seconds
    if ahead is None:
        return Check(what="clock", where=one.name, value="this one", verdict=Verdict.GO)
    return _judge(
        "clock",
        one.name,
        f"{ahead:+.0f} s",
        good=abs(ahead) < CLOCK_SECONDS,
        remedy=f"set the wrong clock right: `timedatectl set-ntp true` on {one.name}, or here",
    )


def _mtu(name: str, seen: Measured) -> Check:
    value = "<none>" if seen.mtu is None else str(seen.mtu)
    good = seen.mtu is not None and seen.mtu >= MIN_MTU
    return _judge(
        "mtu",
        name,
        value,
        good=good,
        remedy=f"set network.wireguard.mtu to {MIN_MTU} at least on {name}, `keel spec apply`",
    )


def _sync(name: str, seen: Measured) -> Check:
    if seen.sync_seconds is None:
        return Check(what="disk-sync", where=name, value="<unknown>", verdict=Verdict.UNKNOWN)
    return _judge(
        "disk-sync",
        name,
        f"{seen.sync_seconds * 1000:.1f} ms",
        good=seen.sync_seconds <= SYNC_SECONDS,
        remedy=f"give {name} a faster disk for /var/lib/keel-etcd, or take load off it",
    )


def _etcd(name: str, seen: Measured) -> Check:
    said = seen.etcd
    numbers = () if said is None else tuple(int(n) for n in said.split(".") if n.isdigit())
    good = numbers >= LEAST_ETCD and numbers[:2] == LEAST_ETCD[:2]
    wanted = ".".join(str(number) for number in LEAST_ETCD)
    return _judge(
        "etcd-version",
        name,
        said or "<none>",
        good=good,
        remedy=f"install etcd-server {wanted} or a later one of its series on {name}",
    )


def _foreign(name: str, seen: Measured) -> Check:
    remedies = {
        ForeignEtcd.NONE: "",
        ForeignEtcd.STRAY: "move /var/lib/etcd/default away",
        ForeignEtcd.DATA: "move /var/lib/keel-etcd away",
        ForeignEtcd.RUNNING: "`systemctl stop etcd`, and see who started it",
    }
    return _judge(
        "foreign-etcd",
        name,
        seen.foreign.value,
        good=seen.foreign is ForeignEtcd.NONE,
        remedy=f"on {name}, if it is not needed: {remedies[seen.foreign]}",
    )


def _versions(members: tuple[Examined, ...]) -> list[Check]:
    """One version of keel everywhere."""
    said = {one.name: one.measured.keel for one in members if one.measured is not None}
    newest = max(said.values(), default="", key=_numbers)
    return [
        _judge(
            "keel-version",
            name,
            version,
            good=version == newest,
            remedy=f"upgrade keel on {name} to {newest}",
        )
        for name, version in said.items()
    ]


def _path(source: str, target: str, link: Link) -> list[Check]:
    where = f"{source} -> {target}"
    if link.answered == 0:
        remedy = f"open UDP between {source} and {target}: `keel mesh status` on both"
        return [_no("round-trip", where, "no answer", remedy)]
    seconds = link.seconds if link.seconds is not None else float("inf")
    lost = link.tried - link.answered + link.held_up
    return [
        _judge(
            "round-trip",
            where,
            f"{seconds * 1000:.0f} ms",
            good=seconds <= ROUND_TRIP_SECONDS,
            remedy=f"a registry over {ROUND_TRIP_SECONDS * 1000:.0f} ms loses its leader again"
            f" and again: bring {source} and {target} nearer to each other",
        ),
        _judge(
            "loss",
            where,
            f"{lost} of {link.tried} held up",
            good=lost <= HELD_UP_SHARE * link.tried,
            remedy=f"mend the path between {source} and {target}: `ping` shows what is lost",
        ),
    ]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _judge(what: str, where: str, value: str, *, good: bool, remedy: str) -> Check:
    if good:
        return Check(what=what, where=where, value=value, verdict=Verdict.GO)
    return _no(what, where, value, remedy)


def _no(what: str, where: str, value: str, remedy: str) -> Check:
    return Check(what=what, where=where, value=value, verdict=Verdict.NO_GO, remedy=remedy)
