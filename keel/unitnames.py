"""The names of systemd's units that keel speaks of."""

from __future__ import annotations

MESH_UNIT = "keel-mesh.service"
CHANNEL_SOCKET = "keel-channel.socket"
CHANNEL_UNIT = "keel-channel.service"
PASSES_SOCKET = "keel-passes.socket"
PASSES_UNIT = "keel-passes.service"
SYNC_TIMER = "keel-mesh-sync.timer"
SYNC_UNIT = "keel-mesh-sync.service"
TEND_TIMER = "keel-mesh-etcd.timer"
TEND_UNIT = "keel-mesh-etcd.service"
FAST_TIMER = "keel-mesh-etcd-fast.timer"
FAST_UNIT = "keel-mesh-etcd-fast.service"
ALERT_UNIT = "keel-mesh-alert.service"
ETCD_UNIT = "etcd.service"
"""Debian's own, with keel's drop-in."""

TIMERS = (SYNC_TIMER, TEND_TIMER)
PASSES = (SYNC_UNIT, TEND_UNIT, FAST_UNIT)
"""What timers start."""
PULLED_IN = (CHANNEL_UNIT, PASSES_SOCKET, PASSES_UNIT)
"""By the channel's socket, one after the other; never enabled."""
