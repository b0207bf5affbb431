"""What this machine's kernel can do, and what the lab uses accordingly."""

from __future__ import annotations

import platform
import subprocess
from dataclasses import dataclass
from enum import StrEnum


class Backend(StrEnum):
    """How the link is made."""

    NETEM = "netem"
    USERSPACE = "userspace"


class WireGuard(StrEnum):
    """Which WireGuard appliances will find; keel chooses for itself, the lab only reports."""

    KERNEL = "kernel"
    WIREGUARD_GO = "wireguard-go"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What was tried, in a namespace of its own."""

    kernel: str
    veth: bool
    bridge: bool
    netem: bool
    flower: bool
    wireguard: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What the lab uses."""

    link: Backend
    wireguard: WireGuard


class BackendMissing(Exception):
    def __init__(self, wanted: str) -> None:
        super().__init__(
            f"this kernel can't make a {wanted!r} link\n"
            "hint: unset KEEL_LINK, or set it to userspace"
        )


def decide(facts: Facts, wanted: str = "") -> Choice:
    """The kernel's link where it has every part of it; `wanted` insists on a backend. Raises
    BackendMissing.
    """
    capable = facts.veth and facts.bridge and facts.netem and facts.flower
    if wanted not in ("", *Backend) or (wanted == Backend.NETEM and not capable):
        raise BackendMissing(wanted)
    link = Backend(wanted) if wanted else Backend.NETEM if capable else Backend.USERSPACE
    wireguard = WireGuard.KERNEL if facts.wireguard else WireGuard.WIREGUARD_GO
    return Choice(link=link, wireguard=wireguard)


def observe() -> Facts:
    """Try everything, leaving nothing behind."""
    port = "ip link add v0 type veth peer name v1 && "
    prio = port + "tc qdisc add dev v0 root handle 1: prio && "
    return Facts(
        kernel=platform.release(),
        veth=_works(port + "true"),
        bridge=_works("ip link add b0 type bridge"),
        netem=_works(port + "tc qdisc add dev v0 root netem delay 1ms loss 1% seed 1"),
        flower=_works(prio + "tc filter add dev v0 parent 1: flower src_mac 02:00:00:00:00:01"),
        wireguard=_works("ip link add w0 type wireguard"),
    )


def _works(script: str) -> bool:
    argv = ["unshare", "--net", "sh", "-c", script]
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0
