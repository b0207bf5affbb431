"""`keel mesh etcd env`: what etcdctl needs to speak to this node's own etcd (E22)."""

from __future__ import annotations

from collections.abc import Mapping

from keel.errors import Refused
from keel.mesh import etcdstore, store
from keel.mesh.etcdids import CLIENT_PORT
from keel.ports import Host
from keel.types import LOCALHOST


def environment(host: Host) -> Mapping[str, str]:
    """etcdctl's variables. The client certificate and its key stand in one file, named twice.
    Refused while this node is in no mesh, or has no certificate."""
    store.require(host)
    leaves = etcdstore.load_leaves(host)
    if leaves is None:
        raise Refused(
            "no-certificate",
            "this node has no certificate for etcd yet",
            "`keel mesh etcd tend` issues it, or says what it waits for; then run this again",
        )
    credential = str(host.paths.client_credential(leaves.number))
    return {
        "ETCDCTL_API": "3",
        "ETCDCTL_ENDPOINTS": f"https://[{LOCALHOST.compressed}]:{CLIENT_PORT}",
        "ETCDCTL_CACERT": str(host.paths.etcd_trust),
        "ETCDCTL_CERT": credential,
        "ETCDCTL_KEY": credential,
    }
