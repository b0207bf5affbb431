"""Making this node what its spec says (O4, E6).

Owns the order of apply: first the mesh's ground, then what etcd needs. Decides nothing:
keel.spec.diff and keel.mesh.etcdplan do. It never restarts a running etcd, and says when that is
due.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from keel.errors import Refused
from keel.mesh import (
    etcdlook,
    etcdmember,
    etcdrenew,
    etcdstart,
    etcdstore,
    lastchannels,
    netsettings,
    netwindow,
    selfrecord,
    store,
    talk,
    up,
)
from keel.mesh.etcdstate import Stage
from keel.mesh.store import Node
from keel.mesh.window import Window, settings_of
from keel.outcome import Done, Incomplete, Plan, Step
from keel.ports import Host
from keel.spec import diff
from keel.spec.diff import Action, Difference, Fixed, NodeView
from keel.spec.model import Spec
from keel.spec.specfile import enable_etcd, load, wanted

INTERFACE = "network.wireguard.interface"
_RAISED = (Action.RESET, Action.WRITE_CHANNEL, Action.RAISE)
"""What raising the interface does in one."""
TEND_WAIT_SECONDS = 60.0
"""A pass of the tend with nothing unusual takes far less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """`left`: what waits for others. `restart_due`: etcd runs with older settings. `waiting`: a
    change to the network that only the operator confirms; the rest of apply comes after it."""

    left: Plan
    restart_due: bool
    waiting: Incomplete[Window] | None = None


def differences(host: Host) -> tuple[Difference, ...]:
    """Where this node differs from its spec; changes nothing."""
    spec, node = wanted(host), store.load(host)
    if node is None:
        return ()
    held = replace(spec.network.wireguard, interface=load(host).network.wireguard.interface)
    spec = replace(spec, network=replace(spec.network, wireguard=held))
    return (
        *diff.differences(spec, _observe(host, spec, node)),
        *diff.etcd_differences(_etcd_plan(host, spec, node)),
        *_certificates(host),
    )


def _certificates(host: Host) -> tuple[Difference, ...]:
    failures = [
        one.text
        for one in etcdstore.load_failures(host).entries
        if one.subject in (etcdrenew.RENEWAL, etcdrenew.SERVED)
    ]
    ends = {  # a root's is a warning: nothing makes it so
        one.kind: one.not_after for one in etcdlook.certificates(host) if one.kind != etcdlook.ROOT
    }
    return diff.certificate_differences(failures, ends, host.clock.now())


def fixed(host: Host, spec: Spec) -> tuple[Difference, ...]:
    """Where the spec wants what this member cannot become any more."""
    node = store.load(host)
    me = node.view.by_key(node.key) if node else None
    if me is None:
        return ()
    settled = netsettings.load(host)
    member = Fixed(
        name=me.name,
        interface=settled.interface if settled else None,
        in_cluster=etcdstore.load_cluster(host).stage is not Stage.IDLE,
    )
    return diff.fixed_differences(spec, member)


def refuse_interface(host: Host, spec: Spec) -> None:
    """Refused `interface-fixed` when a member's spec names another interface than the one it has:
    half of it would change."""
    for item in fixed(host, spec):
        if item.name == INTERFACE:
            raise Refused(
                "interface-fixed",
                f"{INTERFACE}: this node is a member over {item.now}, and a member keeps its"
                " interface",
                f"set it back to {item.now}; for another one `keel mesh leave`, then join again",
            )


def plan(host: Host) -> Plan:
    """What apply would do now; Refused as apply."""
    spec, node = wanted(host), store.load(host)
    refuse_interface(host, spec)
    if node is None:
        return Plan()
    etcd = _etcd_plan(host, spec, node)
    ground = diff.decide(spec, _observe(host, spec, node))
    return Plan(steps=(*ground.steps, *etcd.steps), waiting=etcd.waiting)


def apply(host: Host) -> Done[Applied]:
    """This node as its spec wants it; `changed` names what this run changed. Refused (window-open,
    window-unconfirmed, interface-fixed); what a window guards goes first, and the rest only once it
    is confirmed."""
    spec = wanted(host)
    refuse_interface(host, spec)
    reset = _apply_reset(host, spec)
    if isinstance(reset, Incomplete):
        return Done(value=Applied(left=Plan(), restart_due=False, waiting=reset))
    changed = list(dict.fromkeys((*reset, *_apply_ground(host, spec))))
    node = store.load(host)
    if node is None or not spec.etcd_enabled:
        return Done(value=Applied(left=Plan(), restart_due=False), changed=tuple(changed))
    with host.locks.hold(
        host.paths.tend_lock, what="the registry's state", wait_seconds=TEND_WAIT_SECONDS
    ):
        before = _etcd_plan(host, spec, node)
        left = etcdmember.settle(host, lambda: load(host), enable_etcd, node)
    changed += [_said(step) for step in before.steps]
    due = etcdstart.restart_due(host)
    return Done(value=Applied(left=left, restart_due=due), changed=tuple(changed))


def _apply_reset(host: Host, spec: Spec) -> tuple[str, ...] | Incomplete[Window]:
    """The settings that the others see of this node, under a window, and with them the rest of the
    interface; where there are no others, nobody can be cut off. What was done, in words."""
    with store.locked(host, "the mesh"):
        node = store.load(host)
        if node is None:
            return ()
        netwindow.refuse_open(host)
        steps = diff.decide(spec, _observe(host, spec, node)).steps
        said = tuple(_said(step) for step in steps if step.action in _RAISED)
        if not any(step.action == Action.RESET for step in steps):
            return ()
        if not talk.others(node):
            netsettings.save(host, settings_of(spec))
            netwindow.put_right(host, spec)
            return said
    found = netwindow.reset(host, spec)
    return found if isinstance(found, Incomplete) else said


def _apply_ground(host: Host, spec: Spec) -> tuple[str, ...]:
    with store.locked(host, "the mesh"):
        node = store.load(host)
        if node is None:
            return ()
        steps = diff.decide(spec, _observe(host, spec, node)).steps
        for action in dict.fromkeys(Action(step.action) for step in steps):
            _execute(host, spec, node, action)
    if any(step.action == Action.ENABLE for step in steps):
        up.start_units(host)
    return tuple(_said(step) for step in steps)


def _execute(host: Host, spec: Spec, node: Node, action: Action) -> None:
    """One kind of step; each is idempotent."""
    match action:
        case Action.WRITE_CHANNEL:
            up.lay_channel(host, node.address)
        case Action.RESET:
            pass  # what a window guards was done before
        case Action.RAISE:
            up.bring_up(host, spec, node, store.load_invites(host))
        case Action.BOUND_TCP:
            host.machine.bound_tcp()
        case Action.UNBOUND_TCP:
            host.machine.unbound_tcp()
        case Action.ENABLE:
            pass  # after the lock is gone: the units that it starts take it themselves
        case Action.KEEP_CHANNELS:
            lastchannels.keep(host, spec)


def _observe(host: Host, spec: Spec, node: Node) -> NodeView:
    return NodeView(
        address=node.address,
        device=host.wireguard.show(spec.network.wireguard.interface),
        tcp_bound=host.machine.tcp_bound_now(),
        capability=selfrecord.own_capability(host, spec),
        units={unit: host.units.state(unit) for unit in diff.UNITS},
        channel_drop_in=host.files.read(host.paths.channel_drop_in),
        settled=netsettings.load(host),
        channels_kept=not lastchannels.differ(host, spec),
    )


def _etcd_plan(host: Host, spec: Spec, node: Node) -> Plan:
    """What etcd's own Plan comes to once the spec enables it; until then the tend sees to it."""
    return etcdmember.plan(host, spec, node) if spec.etcd_enabled else Plan()


def _said(step: Step) -> str:
    return f"{step.action} {step.subject}: {step.why}"
