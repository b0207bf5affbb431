"""What the textfile says: one list of samples from one look (O3, E15).

Pure. Names follow Prometheus' rules; ends are told as times, never as days left; labels are
bounded: no serials, no addresses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from keel.mesh.etcdlook import EtcdSeen, Phase
from keel.mesh.liveness import Liveness
from keel.mesh.status import MeshSeen
from keel.mesh.tended import sample, silence
from keel.mesh.warnings import Warning
from keel.monitor import Sample


def samples(
    seen: MeshSeen,
    etcd: EtcdSeen,
    found: Iterable[Warning],
    *,
    tended: datetime,
    quorum: tuple[int, int, int],
    version: str,
) -> tuple[Sample, ...]:
    """Everything of one look. `quorum`: voters, quorum, fault tolerance, as status has them."""
    states = Counter(one.state for one in seen.members)
    return (
        sample("keel_build_info", "The version of keel.", 1, version=version),
        *silence(tended, found),
        *(
            sample("keel_mesh_members", "Other members by state.", states[one], state=one.value)
            for one in Liveness
        ),
        *(
            sample(
                "keel_etcd_phase",
                "How far this node is with etcd.",
                etcd.phase is one,
                phase=one.value,
            )
            for one in Phase
        ),
        *(_cluster(etcd, quorum) if etcd.known.members else ()),
        *(
            sample(
                "keel_etcd_certificate_not_after_timestamp_seconds",
                "When a certificate of this node ends.",
                one.not_after.timestamp(),
                kind=one.kind,
            )
            for one in {each.kind: each for each in etcd.certificates}.values()
        ),
        *_crl(etcd),
    )


def _cluster(etcd: EtcdSeen, quorum: tuple[int, int, int]) -> tuple[Sample, ...]:
    voters, needed, tolerance = quorum
    text = "Members that etcd lists."
    return (
        sample("keel_etcd_members", text, voters, role="voter"),
        sample("keel_etcd_members", text, len(etcd.known.members) - voters, role="learner"),
        sample("keel_etcd_quorum", "Voters that writes need.", needed),
        sample("keel_etcd_fault_tolerance", "Voters that may fail still.", max(0, tolerance)),
    )


def _crl(etcd: EtcdSeen) -> tuple[Sample, ...]:
    if etcd.crl_next_update is None:
        return ()
    return (
        sample("keel_crl_number", "The number of the CRL in use.", etcd.crl_number),
        sample(
            "keel_crl_next_update_timestamp_seconds",
            "By when the CRL should be replaced.",
            etcd.crl_next_update.timestamp(),
        ),
    )
