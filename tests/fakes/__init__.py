"""Fakes of every port, and N whole nodes in one process.

    net = FakeNet(tmp_path)
    a = net.node("a")
    a.handler = lambda path, source, body: (200, b"...")
    flow(a.host)

Kill tests: run cleanly once on a fresh net, then for every `crash_points(clean.effects)` build the
same net anew, set `node.effects.crash_at = point.number`, demand `node.dies(lambda: flow(...))` and
`node.effects.crashed_before == point.text`, then `node.new_life()` and run again to the same end.
"""

from tests.fakes.clock import NodeClock, SeededChance, VirtualClock
from tests.fakes.disk import DiskModel, Primitive, RecordingDisk, Unsynced, power_cuts
from tests.fakes.effects import Crash, CrashPoint, Effects, crash_points
from tests.fakes.etcd import FakeEtcd
from tests.fakes.host import FakeNode
from tests.fakes.machine import Call, FakeProc, FakeUnits, RecordingConsole
from tests.fakes.net import Exchange, FakeNet
from tests.fakes.wireguard import FakeWireGuard, public_of

__all__ = [
    "Call",
    "Crash",
    "CrashPoint",
    "DiskModel",
    "Effects",
    "Exchange",
    "FakeEtcd",
    "FakeNet",
    "FakeNode",
    "FakeProc",
    "FakeUnits",
    "FakeWireGuard",
    "NodeClock",
    "Primitive",
    "RecordingConsole",
    "RecordingDisk",
    "SeededChance",
    "Unsynced",
    "VirtualClock",
    "crash_points",
    "power_cuts",
    "public_of",
]
