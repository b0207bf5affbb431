"""The status document: `keel.status/1`, which may gain fields and never changes one.

Pure: what was seen comes in, plain JSON values go out. Which warnings hold is decided here and in
keel.mesh.etcdwarnings, for status, `--check` and the metrics alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from keel import codec
from keel.mesh import etcdlook, etcdwarnings, removal, roster, tended, window
from keel.mesh.etcdids import id_text
from keel.mesh.etcdlist import Listed
from keel.mesh.etcdlook import EtcdSeen, Role
from keel.mesh.firewallrules import CHANNEL_PORT
from keel.mesh.liveness import SUSPECT_SECONDS, Liveness
from keel.mesh.rights import Exposed
from keel.mesh.status import MemberSeen, MeshSeen
from keel.mesh.warnings import Warning, warn
from keel.mesh.window import Stage, Window
from keel.spec.model import Spec
from keel.types import Capability, SigningKey

CLOCK_LIMIT = timedelta(seconds=60)
"""The channel refuses at 300 s; a person should know long before."""
LONG_SILENCE = timedelta(minutes=10)
"""Of all members at once; links are mended in less, and the timers have tried ten times."""
SHAKEN = timedelta(seconds=180)
"""WireGuard makes a new handshake every two minutes and trusts none for longer than three."""
ALONE = (
    "no member answers: see this node's own network first; then whether they run and their UDP"
    " ports can be reached"
)
OWN_FIRST = "mend this node's own WireGuard interface first: `keel mesh up`; then look again"
UNANSWERED = (
    "look again in half a minute: `keel mesh status`, also there; if it stays so, a firewall on"
    f" one of the two shuts TCP port {CHANNEL_PORT} on the overlay"
)
"""Its packets arrive; only its answers do not."""
ONE_WAY = (
    "its packets arrive here, and none of this node's there: see whether its UDP port can be"
    " reached from here, and what its firewall and the one before it let in"
)
"""It begins one handshake after the other, and none ends."""

Document = dict[str, object]


def document(
    spec: Spec, seen: MeshSeen, etcd: EtcdSeen, able: Capability, now: datetime
) -> Document:
    """The whole document."""
    found = shown(warnings(spec, seen, etcd, now))
    node = seen.node
    me = node.view.by_key(node.key)
    return {
        "schema": "keel.status/1",
        "mesh": {
            "id": node.mesh,
            "prefix": node.prefix.compressed,
            "digest": roster.digest(node.roster),
        },
        "self": {
            "name": me.display if me else None,
            "address": node.address.compressed,
            "mode": spec.installation.mode.value,
            "capable": able is Capability.ETCD,
            "backend": seen.device.backend.value if seen.device else None,
            "mtu": seen.device.mtu if seen.device else None,
            "tcp_bound": seen.tcp_bound,
        },
        "members": _by_name(_member(one, now) for one in seen.members),
        "window": _window(seen.open_window),
        "etcd": _etcd(seen, etcd),
        "rotation": None,
        "warnings": [
            {"code": w.code, "severity": w.severity.value, "text": w.text, "remedy": w.remedy}
            for w in found
        ],
    }


def warnings(spec: Spec, seen: MeshSeen, etcd: EtcdSeen, now: datetime) -> tuple[Warning, ...]:
    """Every warning that holds now, the mesh's first."""
    return etcdwarnings.warnings(spec, seen, etcd, now, mesh_warnings(spec, seen, now))


def shown(found: tuple[Warning, ...]) -> tuple[Warning, ...]:
    """What a person is told: the silence of all is one cause, and says of each member that it is
    down. Alerts and metrics keep those, lest that be told to be over."""
    all_silent = any(one.code == "all-silent" for one in found)
    return tuple(one for one in found if not (all_silent and one.code == "member-down"))


def _by_name(rows: Iterable[Document]) -> list[Document]:
    """In the order in which a person looks for them."""
    return sorted(rows, key=lambda row: str(row["name"]))


def _member(one: MemberSeen, now: datetime) -> Document:
    handshake = one.peer.latest_handshake if one.peer else None
    endpoint = one.peer.endpoint if one.peer else None
    offset = one.clock_offset
    return {
        "name": one.member.display,
        "address": one.member.address.compressed,
        "state": one.state.value,
        "endpoint": str(endpoint) if endpoint else None,
        "endpoint_source": "static" if endpoint in one.member.endpoints else "learned",
        "rx_age_seconds": None if one.silent_seconds is None else round(one.silent_seconds, 1),
        "rx_age_at_most_seconds": (
            None if one.silent_at_most is None else round(one.silent_at_most, 1)
        ),
        "handshake_age_seconds": (
            None if handshake is None else round((now - handshake).total_seconds(), 1)
        ),
        "clock_offset_seconds": None if offset is None else round(offset.total_seconds(), 3),
        "capable": one.member.capability is Capability.ETCD,
    }


def _window(found: Window | None) -> Document | None:
    if found is None:
        return None
    return {
        "change": "settings" if found.removing is None else "removal",
        "member": None if found.removing is None else found.removing.name,
        "stage": found.stage.value,
        "opened": codec.format_time(found.opened),
        "undone_at": codec.format_time(found.ends),
        "confirmed_by": found.confirmer.value,
        "why": found.why or None,
    }


def _window_warning(found: Window) -> Warning:
    said = window.describe(found)
    if found.stage is not Stage.ARMED:
        return warn("window-open", detail=f"{said} is {found.stage.value}, and goes on")
    who = f"only your word confirms it: {found.why}" if found.why else "most members have to answer"
    ends = codec.format_time(found.ends.replace(microsecond=0))
    return warn("window-open", detail=f"{said} is undone at {ends}; {who}")


def _etcd(seen: MeshSeen, etcd: EtcdSeen) -> Document:
    voters, quorum, tolerance = etcdwarnings.fault_tolerance(seen, etcd)
    holder = seen.node.view.by_key(etcd.holder) if etcd.holder else None
    listed = etcd.known.members
    return {
        "phase": etcd.phase.value,
        "cluster_id": None if etcd.cluster_id is None else id_text(etcd.cluster_id),
        "formation": etcd.formation,
        "source": etcd.known.source.value,
        "leader": etcdlook.leader_text(etcd),
        "voters": voters if listed else None,
        "learners": len(listed) - voters if listed else None,
        "quorum": quorum if listed else None,
        "fault_tolerance": max(0, tolerance) if listed else None,
        "holder": holder.display if holder else None,
        "members": _by_name(_etcd_member(seen, etcd, member) for member in listed),
        "certificates": [
            {
                "kind": one.kind,
                "member": seen.node.address.compressed if one.kind != "root" else None,
                "serial": one.serial,
                "not_after": codec.format_time(one.not_after),
            }
            for one in etcd.certificates
        ],
        "crl": {
            "number": etcd.crl_number,
            "next_update": (
                None if etcd.crl_next_update is None else codec.format_time(etcd.crl_next_update)
            ),
        },
        "waiting": [
            {
                "what": item.what,
                "for": item.waiting_for,
                "since": None if item.since is None else codec.format_time(item.since),
                "why": item.why,
            }
            for item in etcd.waiting
        ],
        "failures": [
            {"code": item.code, "text": item.text, "since": codec.format_time(item.since)}
            for item in etcd.failures
        ],
    }


def _etcd_member(seen: MeshSeen, etcd: EtcdSeen, member: Listed) -> Document:
    role = etcdlook.role_at(etcd, seen.node, member)
    return {
        "name": etcdwarnings.name_of(seen, member),
        "id": None if member.id is None else id_text(member.id),
        "role": "learner" if member.learner else "voter",
        "healthy": role in (Role.VOTER, Role.LEARNER),
        "address": member.address.compressed if member.address else None,
    }


def _machine_warnings(spec: Spec, seen: MeshSeen) -> list[Warning]:
    """What is wrong here makes all others look silent."""
    interface, node = spec.network.wireguard.interface, seen.node
    if seen.device is None:
        return [warn("interface-missing", subject=interface)]
    changed = []
    if node.address not in seen.device.addresses:
        changed.append(f"its address {node.address} is gone")
    if seen.device.key != node.identity.wireguard.public:
        changed.append("its key is not this node's")
    if seen.device.port != seen.port:
        changed.append(f"it listens on UDP port {seen.device.port}, not on {seen.port}")
    found = []
    if changed:
        found.append(warn("interface-changed", subject=interface, detail=", ".join(changed)))
    if not seen.listens:
        found.append(warn("channel-down"))
    return found


def mesh_warnings(spec: Spec, seen: MeshSeen, now: datetime) -> list[Warning]:
    """What is wrong here first, then with members in their names' order, then what waits here."""
    found = _machine_warnings(spec, seen)
    first = OWN_FIRST if any(one.code.startswith("interface-") for one in found) else ""
    found += _all_silent(seen)
    for one in sorted(seen.members, key=lambda each: each.member.display):
        found += [*_link(one, seen, now, first=first), *_clock(one)]
    found += _blocks(seen)
    found += [
        warn(told.code, subject=_shown(seen, told.subject), detail=told.text)
        for told in seen.node.view.warnings
    ]
    found += [tended.warning(_shown(seen, key), since) for key, since in seen.tend_silent.items()]
    return [*found, *_own_warnings(spec, seen)]


def _link(one: MemberSeen, seen: MeshSeen, now: datetime, *, first: str) -> list[Warning]:
    """Why a member is not up, if it is not; `first`: what has to be mended here before."""
    name = one.member.display
    if one.state is Liveness.DOWN:
        remedy = first or (ALONE if seen.alone else "")
        return [warn("member-down", subject=name, detail=_silence(one), remedy=remedy)]
    if one.narrow:
        return [warn("path-mtu", subject=name)]
    if one.state is Liveness.SUSPECT:
        remedy = first or (_unanswered(one, now) if _is_heard(one) else "")
        return [warn("member-suspect", subject=name, detail=_silence(one), remedy=remedy)]
    return []


def _clock(one: MemberSeen) -> list[Warning]:
    offset = one.clock_offset
    if offset is None or abs(offset) < CLOCK_LIMIT:
        return []
    detail = f"{abs(offset).total_seconds():.0f} s"
    return [warn("clock-off", subject=one.member.display, detail=detail)]


def _blocks(seen: MeshSeen) -> list[Warning]:
    view = seen.node.view
    found = []
    for block in seen.node.trust.blocks:
        blocked = view.by_key(block.key)
        if blocked is not None:
            remover = view.by_key(blocked.remover) if blocked.remover else None
            found.append(
                warn(
                    "member-blocked",
                    subject=blocked.display,
                    detail=removal.count_text(view.tallies.get(block.key)),
                    remedy=_unblock(blocked.display, remover.display) if remover else "",
                )
            )
    return found


def _shown(seen: MeshSeen, key: SigningKey) -> str:
    """A member's name, or so much of its key as tells it apart."""
    member = seen.node.view.by_key(key)
    return member.display if member else key[:8]


def _all_silent(seen: MeshSeen) -> list[Warning]:
    """A node that was removed while it was away cannot hear of it: nobody answers it."""
    long = LONG_SILENCE.total_seconds()
    ages = [one.silent_seconds for one in seen.members if one.silent_seconds is not None]
    up = any(one.state is not Liveness.DOWN for one in seen.members)
    since = min(ages, default=None)
    if seen.device is None or not seen.members or up or (since is not None and since < long):
        return []
    detail = "as long as it runs" if since is None else f"{since / 60:.0f} minutes"
    me = seen.node.view.by_key(seen.node.key)
    return [warn("all-silent", subject=me.display if me else "NAME", detail=detail)]


def _unblock(name: str, admitter: str) -> str:
    return (
        f"`keel mesh remove {name}` on {admitter}, which admitted it, or `keel mesh remove --vote"
        f" {name}` on more than half of the members removes it for all; `keel mesh trust add --root"
        f" {name}` lets it in again"
    )


def _own_warnings(spec: Spec, seen: MeshSeen) -> list[Warning]:
    """What waits on this node, or is wrong with its files."""
    found = [_exposed(path) for path in seen.exposed]
    if spec.unread:
        found.append(warn("spec-invalid", detail=spec.unread))
    if seen.pending is not None:
        found.append(warn("join-unconfirmed", subject=seen.pending))
    if seen.open_window is not None:
        found.append(_window_warning(seen.open_window))
    return found


def _exposed(one: Exposed) -> Warning:
    return warn("file-exposed", subject=str(one.path), detail=one.why, remedy=one.remedy)


def _is_heard(one: MemberSeen) -> bool:
    return one.silent_seconds is not None and one.silent_seconds < SUSPECT_SECONDS


def _unanswered(one: MemberSeen, now: datetime) -> str:
    shaken = one.peer.latest_handshake if one.peer else None
    return UNANSWERED if shaken is not None and abs(now - shaken) < SHAKEN else ONE_WAY


def _silence(one: MemberSeen) -> str:
    if one.silent_seconds is None:
        return "nothing was ever received from it"
    if one.silent_seconds < SUSPECT_SECONDS:
        return f"no answer, though something was received {_when(one.silent_seconds, one)}"
    return f"no answer, and nothing received for {one.silent_seconds:.0f} s"


def _when(at_least: float, one: MemberSeen) -> str:
    """Between two looks at the counters nobody knows when they grew."""
    if one.silent_at_most is None:
        return "at a time that is not known"
    if round(one.silent_at_most) == round(at_least):
        return f"{at_least:.0f} s ago"
    return f"between {at_least:.0f} and {one.silent_at_most:.0f} s ago"
