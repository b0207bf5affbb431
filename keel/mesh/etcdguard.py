"""May etcd start? The guard's pure judgement, made before every start (ExecStartPre).

Pure: what the machine and the peers say comes in as a view; Allowed comes out, or Refused by a
rule of its own with its remedy. keel.mesh.etcdstart observes and writes.
(G1) keel never starts etcd over data that is not its own (E16).
(G2) `new` only over absent or empty data and while no member ever saw a leader. When one did, and
     the running cluster itself lists this member as one that never started, it starts `existing`:
     that can join the cluster and can't give birth to another.
(G3) Over an empty or missing directory never once the cluster was formed: two of three wiped and
     started again would be a healthy empty cluster. A directory without a write-ahead log is as
     good as empty, whatever else is in it.
(G4) The marker is durable before the first start.
(G5) What is laid is what the record and the state directory say; a late CRL stops nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from ipaddress import IPv6Address

from cryptography import x509

from keel.errors import PkiRejected, Refused
from keel.etcdport import DataState
from keel.mesh.etcdchain import check_credential
from keel.mesh.etcdconf import state_of_env
from keel.mesh.etcdcrl import read_crl
from keel.mesh.etcdmsg import ClusterRecord, RecordState
from keel.mesh.etcdpki import parse_credential
from keel.mesh.etcdplan import DATA_LOST
from keel.mesh.etcdprofile import Kind
from keel.mesh.etcdstate import Cluster, Marker, Stage, marker_for, matches
from keel.mesh.etcdtrust import fingerprints, parse_bundle
from keel.types import Fingerprint, Secret

APPLY = "run `keel spec apply`; etcd is started again by itself"
RESTORED = (
    "put the newest disk back and `keel mesh etcd tend`; if there is none,"
    " `keel mesh etcd recover --replace`"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Laid:
    """What stands under /etc/etcd/keel; None where there is nothing."""

    trust: bytes | None
    crl: bytes | None
    member: Secret | None
    env: bytes

    @property
    def state(self) -> RecordState | None:
        """The initial cluster state that etcd.env asks for."""
        return state_of_env(self.env)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartView:
    """All that the judgement hangs on. `pinned`: the roots of the state directory's trust.pem;
    `record`: of the cluster's formation. `leaders`: members whose etcd ever saw a leader (asked
    when asks_for_leaders); `awaited`: the cluster that they are in is the record's, has exactly its
    members, and lists this one as never started (asked when there are leaders); `served`: that
    cluster lists this one as started, so data there was (asked when asks_if_served); `begun`: it
    was let start in this place before; `lived_elsewhere`: the highest own `lived` that a peer
    holds, None when nobody said (asked when asks_for_lived); `removed`: this node knows of its own
    removal from the mesh (looked at then as well)."""

    address: IPv6Address
    address_present: bool
    cluster: Cluster
    record: ClusterRecord | None
    pinned: frozenset[Fingerprint]
    laid: Laid
    data: DataState
    marker: Marker | None
    leaders: tuple[IPv6Address, ...] = ()
    awaited: bool = False
    begun: bool = False
    served: bool = False
    foreign: str | None = None
    lived: int = 0
    lived_elsewhere: int | None = None
    removed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """Start in this state; write the marker first when there is one here. `loaded`: the roots that
    this start loads."""

    state: RecordState
    marker: Marker | None
    loaded: frozenset[Fingerprint]
    why: str


def waits_for_address(view: StartView) -> bool:
    """Whether the answer hangs on the address: what says no before it says so at once."""
    return view.cluster.stage is not Stage.IDLE and view.foreign is None


def asks_for_leaders(view: StartView) -> bool:
    """A birth over no data: the members have to be asked first (G2)."""
    return (
        view.cluster.stage is Stage.STARTING
        and view.data is not DataState.PRESENT
        and view.record is not None
        and view.record.state is RecordState.NEW
    )


def asks_if_served(view: StartView) -> bool:
    """A place in a cluster that lives, over no data, and not for the first time: it may have been
    taken before, and the data lost since. Over an empty directory etcd would panic, again and
    again. The first start waits for nobody."""
    return (
        view.begun
        and view.cluster.stage is Stage.STARTING
        and view.data is not DataState.PRESENT
        and view.record is not None
        and view.record.state is RecordState.EXISTING
    )


def asks_for_lived(view: StartView) -> bool:
    """There is data, and it may be an old copy: the peers have to be asked first."""
    return view.data is DataState.PRESENT


def judge_start(view: StartView, now: datetime) -> Allowed:
    """Whether and how etcd may start now; Refused by the first rule that says no."""
    if view.cluster.stage is Stage.IDLE:
        raise Refused(
            "start-no-cluster",
            "this node is in no cluster, so keel starts no etcd here",
            "nothing, unless etcd is wanted beside keel: it needs a unit of its own then",
        )
    if view.removed:
        raise Refused(
            "start-removed",
            "this node was removed from the mesh, and its etcd from the cluster",
            "`keel mesh leave` here moves its keys and state aside; then join with a new invite",
        )
    if view.foreign is not None:
        raise Refused(
            "start-settings-foreign",
            f"etcd.service would start etcd with {view.foreign}",
            "`systemctl cat etcd` shows where it stands; take it out, then"
            " `systemctl daemon-reload`: etcd is started again by itself",
        )
    if not view.address_present:
        raise Refused(
            "start-no-address",
            f"{view.address} is not on this machine",
            "run `keel mesh up` and see what it says; etcd is started again by itself",
        )
    loaded = frozenset(fingerprints(_check_laid(view, now)))
    if view.lived_elsewhere is not None and view.lived_elsewhere > view.lived:
        raise Refused(
            "start-restored",
            "peers remember a later state of this disk: it was restored or copied",
            RESTORED,
        )
    whole, other = view.data is DataState.PRESENT, not matches(view.marker, view.cluster)
    if whole or (view.data is DataState.NO_LOG and other):
        return _over_data(view, loaded)
    return _over_nothing(view, loaded)


def _over_data(view: StartView, loaded: frozenset[Fingerprint]) -> Allowed:
    if view.marker is None:
        raise Refused(
            "start-data-unmarked",
            "there is etcd data here that keel did not begin",
            "move /var/lib/keel-etcd/data away, then `keel mesh etcd tend`",
        )
    if not matches(view.marker, view.cluster):
        raise Refused(
            "start-data-foreign",
            f"the etcd data here belongs to formation {view.marker.formation},"
            f" attempt {view.marker.attempt}",
            "run `keel mesh etcd tend`; it moves data of a formation that was given up aside",
        )
    return Allowed(
        state=RecordState.EXISTING,  # etcd does not look at it when it has data
        marker=None,
        loaded=loaded,
        why="its own data of this formation",
    )


def _over_nothing(view: StartView, loaded: frozenset[Fingerprint]) -> Allowed:
    record = view.record
    if view.cluster.stage is Stage.FORMED:
        raise Refused(
            "start-data-missing", "the cluster was formed, and its data is gone", DATA_LOST
        )
    if record is None:
        raise Refused(
            "start-no-record",
            "there is no cluster record of this formation",
            "run `keel mesh etcd tend`; the holder signs it again",
        )
    if view.served:
        raise Refused(
            "start-data-missing", "this member served before, and its data is gone", DATA_LOST
        )
    if view.laid.state is not record.state:
        raise Refused("start-env-stale", "etcd.env is not of the newest cluster record", APPLY)
    state = record.state
    if state is RecordState.NEW and view.leaders:
        if not view.awaited:
            raise _born_already(view)
        state = RecordState.EXISTING
    wanted = marker_for(view.cluster)
    return Allowed(
        state=state,
        marker=None if matches(view.marker, view.cluster) else wanted,
        loaded=loaded,
        why="a birth" if state is RecordState.NEW else "a new member of the cluster",
    )


def _born_already(view: StartView) -> Refused:
    seen = ", ".join(one.compressed for one in view.leaders)
    return Refused(
        "start-cluster-exists",
        f"the cluster was born already, as {seen} says, and does not wait for this member",
        "nothing: the holder's timer signs the record to join it; `keel mesh etcd tend` there",
    )


def _check_laid(view: StartView, now: datetime) -> tuple[x509.Certificate, ...]:
    laid = view.laid
    if laid.trust is None or laid.crl is None or laid.member is None:
        raise Refused("start-not-laid", "files under /etc/etcd/keel are missing", APPLY)
    try:
        roots = parse_bundle(laid.trust)
    except PkiRejected as error:
        raise Refused("start-trust", f"trust.pem: {error.summary()}", APPLY) from error
    named = frozenset(fingerprints(roots))
    if named != view.pinned or (view.record is not None and view.record.root not in named):
        raise Refused("start-trust-differs", "trust.pem has other roots than keel pinned", APPLY)
    try:
        read_crl(laid.crl, roots)
    except PkiRejected as error:
        # etcd itself would start and refuse every handshake
        raise Refused("start-crl", f"crl.der: {error.summary()}", APPLY) from error
    try:
        credential = parse_credential(laid.member)
        check_credential(credential, roots, kind=Kind.MEMBER, now=now, address=view.address)
    except PkiRejected as error:
        raise Refused(
            "start-chain",
            f"member.pem: {error.summary()}",
            "run `keel mesh etcd tend`, which renews it; a wrong clock looks like this as well",
        ) from error
    return roots
