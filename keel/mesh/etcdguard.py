"""May etcd start? The guard's pure judgement, made before every start (ExecStartPre).

Pure: what the machine and the peers say comes in as a view, an Allowed comes out, or Refused by a
rule of its own with its remedy. keel.system.etcd observes and writes; keel.cli.guard runs it.
(G1) keel never starts etcd over data that is not its own (E16).
(G2) `new` only over absent or empty data and while no member answers with a leader.
(G3) Over an empty or missing directory never once the cluster was formed.
(G4) The marker is durable before the first start.
(G5) What is laid is what the record and the state directory say.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv6Address

from keel.mesh.etcdmsg import ClusterRecord, RecordState
from keel.mesh.etcdstate import Cluster, Marker
from keel.ports import DataState
from keel.types import Fingerprint


@dataclass(frozen=True, slots=True, kw_only=True)
class StartView:
    """All that the judgement hangs on.

    `laid_problem`: what is wrong with the laid trust, CRL or chain, as (rule, text), found by
    check_laid. `leaders`: members of the record that answered with a leader. `lived_elsewhere`:
    the highest own `lived` that a peer holds; None when nobody said.
    """

    address: IPv6Address
    address_present: bool
    cluster: Cluster
    record: ClusterRecord | None
    laid_state: RecordState | None
    loaded: tuple[Fingerprint, ...]
    laid_problem: tuple[str, str] | None
    data: DataState
    marker: Marker | None
    leaders: tuple[IPv6Address, ...]
    lived: int
    lived_elsewhere: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """Start with this state; write the marker first when there is one here."""

    state: RecordState
    marker: Marker | None
    why: str


def judge_start(view: StartView) -> Allowed:
    """Whether and how etcd may start now; Refused by the first rule that says no."""
    raise NotImplementedError
