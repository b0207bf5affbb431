"""The tend's count of `lived`: how many hours and starts this disk has seen (design section 3).

Owns the counting. What a restored disk is refused by is keel.mesh.etcdguard's.
"""

from __future__ import annotations

from dataclasses import replace

from keel.mesh import etcdmember, etcdstore, selfrecord, store
from keel.mesh.duty import Duty, nothing
from keel.mesh.store import Node
from keel.ports import Host
from keel.spec.model import Spec

LIVED_SECONDS = 3600.0


def duty(host: Host, spec: Spec) -> Duty:
    """Count the hours that this disk lives through, and its starts: a restored one knows fewer
    than its peers were told. Only while etcd runs: its guard asks the peers first."""
    name = "lived"
    if not etcdmember.sees_leader(host) or _counted_lately(host):
        return nothing(name, "counted within the hour")
    with store.locked(host, "the mesh"):
        before = etcdstore.load_lived(host)
        after = replace(before, counter=before.counter + 1)
        etcdstore.save_lived(host, after)
        selfrecord.refresh(host, spec, store.require(host), lived=after.counter)
        host.files.make_dir(host.paths.run, mode=0o755)
        stamp = f"{host.clock.monotonic():.0f}".encode()
        host.files.write(host.paths.lived_counted, stamp)
    return nothing(name, f"counted {after.counter}")


def is_restored(host: Host, node: Node) -> bool:
    """Whether this disk knows less of its own life than it told its peers once: the roster brings
    its own newer word back to it."""
    me = node.view.by_key(node.key)
    return me is not None and me.lived > etcdstore.load_lived(host).counter


def _counted_lately(host: Host) -> bool:
    """Whether this boot counted within the hour; /run forgets with the boot."""
    raw = host.files.read(host.paths.lived_counted)
    age = host.clock.monotonic() - float(raw) if raw and raw.isdigit() else -1.0
    return 0 <= age < LIVED_SECONDS
