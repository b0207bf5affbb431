"""The guard that runs before every start of etcd: observe, judge, write (ExecStartPre).

Owns the order of its writes: the marker is durable before etcd's first start
(keel.mesh.etcdguard, G4), and what the start loads is told in etcd-loaded.json. Decides nothing
itself: keel.mesh.etcdguard does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from ipaddress import IPv6Address
from typing import Protocol

from cryptography import x509

from keel import codec
from keel.errors import BadValue, EtcdError, PkiRejected, Refused, StateCorrupt
from keel.etcdport import DataState, EtcdAt
from keel.mesh import etcdbeside, etcdsettings
from keel.mesh.etcdcheck import read_record
from keel.mesh.etcdconf import (
    CRL_FILE,
    ENV_FILE,
    MEMBER_FILE,
    TRUST_FILE,
    address_of_env,
    with_state,
)
from keel.mesh.etcdguard import (
    Allowed,
    Laid,
    StartView,
    asks_for_leaders,
    asks_for_lived,
    asks_if_served,
    judge_start,
    waits_for_address,
)
from keel.mesh.etcdids import address_of_url
from keel.mesh.etcdmsg import ClusterRecord
from keel.mesh.etcdstate import Cluster, Lived, matches
from keel.mesh.etcdtrust import fingerprints, parse_bundle
from keel.ports import Deadline, Host, UnitState
from keel.types import Fingerprint
from keel.unitnames import ETCD_UNIT

ADDRESS_SECONDS = 60.0
POLL_SECONDS = 0.25
SERVED_SECONDS = 6.0
"""As long as a first connection may take over a bad link."""
MAX_LOADED_BYTES = 64 * 1024


class Questions(Protocol):
    """What has to be asked of the other members before a start."""

    def leaders(self, members: Sequence[IPv6Address]) -> tuple[IPv6Address, ...]:
        """Which of these (this node left out) have an etcd that ever saw a leader."""

    def awaits(
        self, leaders: Sequence[IPv6Address], record: ClusterRecord, me: IPv6Address
    ) -> bool:
        """Whether one of these serves the record's cluster, with exactly the record's members, and
        lists this node as one that never started."""

    def served(self, record: ClusterRecord, me: IPv6Address) -> bool:
        """Whether a member of the record's cluster lists this node as one that has started."""

    def removed(self) -> bool:
        """Whether this node's own roster says that it was removed."""

    def highest_lived(self) -> int | None:
        """The highest `lived` of this node that a peer holds, asked for up to 60 s; None when
        nobody said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """/run/keel/etcd-loaded.json: which roots and settings the running etcd loaded, and in which
    life."""

    roots: tuple[Fingerprint, ...]
    settings: str
    invocation: str
    boot: str
    time: datetime


def guard(
    host: Host,
    questions: Questions,
    *,
    invocation: str,
    boot: str,
    environment: Mapping[str, str] | None = None,
    address_seconds: float = ADDRESS_SECONDS,
) -> Allowed:
    """Let etcd start, or raise Refused. Waits up to a minute for the address; run again after a
    kill anywhere it comes to the same end. `environment`: what systemd starts it with."""
    view = _observe(host)
    foreign = etcdsettings.foreign(environment or {}, view.laid.env)
    unit = host.units.state(ETCD_UNIT) if foreign is None else None
    view = replace(view, foreign=foreign if unit is None else etcdsettings.foreign_runs(unit.runs))
    if waits_for_address(view):
        _wait_for_address(host, view.address, address_seconds)
    view = replace(view, address_present=host.overlay.address_usable(view.address))
    allowed = judge_start(_asked(view, questions), host.clock.now())
    if allowed.marker is not None:
        host.files.make_dir(host.paths.etcd_marker.parent, mode=0o700, owner="etcd")
        host.files.write(host.paths.etcd_marker, codec.dumps(allowed.marker))
    if view.data is not DataState.PRESENT and allowed.state is not view.laid.state:
        # systemd reads etcd.env after this guard has ended
        env = with_state(view.laid.env, allowed.state)
        host.files.write(host.paths.laid / ENV_FILE, env, owner="etcd")
    if not invocation or (unit is not None and unit.main_pid):
        return allowed  # ahead, or by hand: what runs loaded what the guard of its own life told
    host.files.make_dir(host.paths.run)
    host.files.write(host.paths.etcd_loaded, loading(host, allowed, invocation, boot))
    return allowed


def loading(host: Host, allowed: Allowed, invocation: str, boot: str) -> bytes:
    """What etcd loads that is let start now: etcd-loaded.json, which its own guard alone writes."""
    loaded = Loaded(
        roots=tuple(sorted(allowed.loaded)),
        settings=_settings(host),
        invocation=invocation,
        boot=boot,
        time=host.clock.now(),
    )
    return codec.dumps(loaded)


def awaits(
    at: EtcdAt, leaders: Sequence[IPv6Address], record: ClusterRecord, me: IPv6Address
) -> bool:
    """Questions.awaits by etcd's own list, asked linearizably of one after another."""
    for leader in leaders:
        try:
            if at(leader).status().cluster_id != record.cluster_id:
                continue
            listed = {address_of_url(one.peer_urls[0]): one for one in at(leader).members()}
        except EtcdError:
            continue
        mine = listed.get(me)
        # the parties of a birth have their names in the list from the first; only a start adds URLs
        never_started = mine is not None and not mine.client_urls
        return never_started and set(listed) == set(record.members)
    return False


def begun(host: Host, cluster: Cluster) -> bool:
    """Whether etcd was let start in this place before: by the marker beside its data, or, when that
    is gone as well, in this boot."""
    marker = etcdbeside.read_marker(host)
    return matches(marker, cluster) or host.files.exists(host.paths.etcd_loaded)


def served(at: EtcdAt, record: ClusterRecord, me: IPv6Address) -> bool:
    """Questions.served by the first other member that answers; nobody is nobody's word."""
    for other in record.members:
        if other == me:
            continue
        try:
            if at(other).status(timeout_seconds=SERVED_SECONDS).cluster_id != record.cluster_id:
                continue
            listed = at(other).members(timeout_seconds=SERVED_SECONDS)
        except EtcdError:
            continue
        mine = [one for one in listed if address_of_url(one.peer_urls[0]) == me]
        return any(one.client_urls for one in mine)
    return False


def let_start(host: Host, seen: UnitState) -> bool:
    """Whether the etcd that runs, as it was seen just now, was let start by keel's guard: what it
    told is of this life of the unit. True as well while none runs."""
    if not seen.main_pid:
        return True
    loaded = _loaded(host)
    if isinstance(loaded, BadValue):
        return True  # restart_due says what is to be done about it
    if loaded is not None and loaded.invocation == seen.invocation_id:
        return True
    # between the look and the reading another life may have begun
    return host.units.state(ETCD_UNIT).invocation_id != seen.invocation_id


def restart_due(host: Host) -> bool:
    """Whether etcd runs with other settings than it would be started with now. Nothing of keel's
    restarts it for that: one member at a time is the operator's to do."""
    loaded = _loaded(host)
    if loaded is None or host.units.state(ETCD_UNIT).active != "active":
        return False
    if isinstance(loaded, BadValue):
        return True  # an older keel wrote it, so an older keel's settings were loaded
    return loaded.settings != _settings(host)


def allowed_start(host: Host) -> str:
    """The invocation of etcd.service that was let start last in this boot; "" when nobody knows."""
    loaded = _loaded(host)
    return loaded.invocation if isinstance(loaded, Loaded) else ""


def _loaded(host: Host) -> Loaded | BadValue | None:
    """What the last guard of this boot told; why it cannot be read, as an older keel's; None when
    none told anything."""
    raw = host.files.read(host.paths.etcd_loaded)
    try:
        return None if raw is None else codec.loads(Loaded, raw, max_bytes=MAX_LOADED_BYTES)
    except BadValue as error:
        return error


def _asked(view: StartView, questions: Questions) -> StartView:
    """The same with what the peers, and this node's roster, say where the judgement hangs on it."""
    if view.record is not None and asks_for_leaders(view):
        others = [one for one in view.record.members if one != view.address]
        leaders = questions.leaders(others)
        awaited = bool(leaders) and questions.awaits(leaders, view.record, view.address)
        view = replace(view, leaders=leaders, awaited=awaited)
    if view.record is not None and asks_if_served(view):
        view = replace(view, served=questions.served(view.record, view.address))
    if asks_for_lived(view):
        removed = questions.removed()
        lived = None if removed else questions.highest_lived()
        view = replace(view, lived_elsewhere=lived, removed=removed)
    return view


def _settings(host: Host) -> str:
    """A hash of the unit's drop-ins and the environment, without what only a first start reads."""
    env = host.overlay.laid(ENV_FILE)
    lines = b"" if env is None else env.reveal()
    parts = (
        host.files.read(host.paths.etcd_condition) or b"",
        host.files.read(host.paths.etcd_drop_in) or b"",
        *(line for line in lines.splitlines() if not line.startswith(b"ETCD_INITIAL_")),
    )
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()


def _wait_for_address(host: Host, address: IPv6Address, seconds: float) -> None:
    deadline = Deadline.after(host.clock, seconds)
    while not host.overlay.address_usable(address) and not deadline.passed(host.clock):
        host.clock.sleep(POLL_SECONDS)


def _observe(host: Host) -> StartView:
    """All but what the peers say. An etcd.env that names no address is as good as none."""
    files, paths = host.files, host.paths
    env = host.overlay.laid(ENV_FILE)
    address = address_of_env(env.reveal()) if env is not None else None
    if env is None or address is None:
        raise Refused(
            "start-not-laid",
            "there is no etcd.env of keel's under /etc/etcd/keel",
            "run `keel spec apply`; etcd is started again by itself",
        )
    cluster = codec.read_state(Cluster, paths.etcd_cluster, files.read(paths.etcd_cluster))
    cluster = cluster or Cluster()
    lived = codec.read_state(Lived, paths.lived, files.read(paths.lived)) or Lived()
    trust, crl = host.overlay.laid(TRUST_FILE), host.overlay.laid(CRL_FILE)
    roots = _pinned(host)
    return StartView(
        address=address,
        address_present=False,
        cluster=cluster,
        record=_record(host, cluster, roots),
        pinned=frozenset(fingerprints(roots)),
        laid=Laid(
            trust=None if trust is None else trust.reveal(),
            crl=None if crl is None else crl.reveal(),
            member=host.overlay.laid(MEMBER_FILE),
            env=env.reveal(),
        ),
        data=host.overlay.data_state(),
        marker=etcdbeside.read_marker(host),
        begun=begun(host, cluster),
        lived=lived.counter,
    )


def _pinned(host: Host) -> tuple[x509.Certificate, ...]:
    raw = host.files.read(host.paths.etcd_trust)
    if raw is None:
        raise Refused(
            "start-no-trust",
            "this node holds no root of a cluster's",
            "run `keel mesh etcd tend`; the holder grants this node its certificate",
        )
    try:
        return parse_bundle(raw)
    except PkiRejected as error:
        raise StateCorrupt(host.paths.etcd_trust, error.summary()) from error


def _record(
    host: Host, cluster: Cluster, roots: tuple[x509.Certificate, ...]
) -> ClusterRecord | None:
    """The record of the cluster's formation; one of another formation is as good as none."""
    raw = host.files.read(host.paths.etcd_record)
    if raw is None:
        return None
    try:
        record = read_record(raw, roots)
    except Refused as error:
        raise StateCorrupt(host.paths.etcd_record, error.summary()) from error
    return record if record.formation == cluster.formation else None
