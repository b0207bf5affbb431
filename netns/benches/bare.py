"""Bare etcd on appliances that are a keel mesh: the same overlay, binary, certificates and
settings, started as it is by hand.
"""

from __future__ import annotations

from collections.abc import Sequence

from netns import registry
from netns.lab import Lab
from netns.topology import Name

DIR = "/var/lib/bare-etcd"
ENV = "/etc/etcd/bare.env"
UNIT = "bare-etcd"
START = (
    *("systemd-run", "--no-block", "--collect", f"--unit={UNIT}", "--property=User=etcd"),
    *(f"--property=EnvironmentFile={ENV}", "/usr/bin/etcd"),
)
KEEL_TIMERS = (
    "keel-mesh-etcd.timer",
    "keel-mesh-etcd-fast.timer",
    "keel-mesh-etcd.service",
    "keel-mesh-etcd-fast.service",
)
KEEL_SYNC = (
    *("keel-mesh-sync.timer", "keel-mesh-sync.service"),
    *("keel-channel.socket", "keel-channel.service"),  # it ends etcd's dead connections
)
KERNELS_OWN = ("net.ipv4.tcp_rto_max_ms=120000", "net.ipv4.tcp_retries2=15")


def lay(lab: Lab, names: Sequence[Name], token: str) -> str:
    """Stop keel's etcd for good and lay a bare one's settings; what they are on the first.

    keel's cluster must be whole: its tends are stopped before any etcd, or they start it again.
    """
    registry.wait_for_voters(lab, names)
    for name in names:
        lab.exec(name, ["systemctl", "stop", *KEEL_TIMERS])
    for name in names:
        lab.exec(name, ["systemctl", "stop", "etcd.service"])
    shown = ""
    for name in names:
        text = settings(lab.exec(name, ["cat", "/etc/etcd/keel/etcd.env"]).stdout, token)
        lab.put(name, ENV, text)
        shown = shown or text
        lab.exec(name, ["install", "-d", "-o", "etcd", "-m", "0700", DIR])
    return shown


def settings(env: str, token: str) -> str:
    """keel's environment file with what makes it a static bootstrap of its own."""
    found = dict(line.split("=", 1) for line in env.splitlines() if not line.startswith("#"))
    found |= {
        "ETCD_DATA_DIR": DIR,
        "ETCD_INITIAL_CLUSTER_STATE": "new",
        "ETCD_INITIAL_CLUSTER_TOKEN": token,
    }
    return "".join(f"{key}={value}\n" for key, value in found.items())


def without_keel(lab: Lab, names: Sequence[Name]) -> None:
    """The kernel's own TCP, and nothing that sets keel's again or ends connections."""
    for name in names:
        lab.exec(name, ["systemctl", "stop", *KEEL_SYNC])
        for setting in KERNELS_OWN:
            lab.exec(name, ["sysctl", "-q", "-w", setting], check=False)  # kernels have one of them
