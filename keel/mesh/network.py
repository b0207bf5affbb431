"""`keel network confirm|undo`, and going on with a change that was confirmed (M10).

Owns which flow a confirmed window belongs to.
"""

from __future__ import annotations

from keel.mesh import behind, netsettings, netwindow, remove, selfrecord, store, tended, up, window
from keel.mesh.remove import Removed
from keel.mesh.window import Removing, Resetting, Stage, Window
from keel.outcome import Done, Plan
from keel.ports import Host
from keel.spec.model import Spec


def confirm(host: Host, spec: Spec) -> Done[Removed | None]:
    """The change that waits holds for good, and what follows from it is done; the removal, when it
    is one. Refused (window-none, window-undone)."""
    return go_on(host, spec, netwindow.confirm(host))


def plan_confirm(host: Host) -> Plan:
    """What `confirm` would do now; Refused as it would be."""
    found = netwindow.standing(host)
    armed, what = window.confirm(found) != found, window.describe(found)
    confirms = Plan.of((armed, "confirm", what, "no timer undoes it any more"))
    return confirms.then(plan_going_on(host, found))


def plan_going_on(host: Host, found: Window) -> Plan:
    """What `go_on` would do now."""
    match found.change:
        case Removing() as change:
            return remove.plan_confirmed(host, change)
        case Resetting() as change:
            names = ", ".join(window.differences(change.before, change.after))
            return Plan.of((True, "keep-settings", names, "they hold from here on"))


def undo(host: Host, spec: Spec) -> Done[None]:
    """All as before the change that waits. Refused (window-confirmed)."""
    said = netwindow.undo(host, spec)
    return Done(value=None, changed=() if said is None else (f"{said} undone",))


def go_on(host: Host, spec: Spec, found: Window) -> Done[Removed | None]:
    """What follows from a confirmed window; run again it does what is left."""
    match found.change:
        case Removing() as change:
            done = remove.carry_out(host, spec, change)
            return Done(value=done.value, changed=done.changed)
        case Resetting() as change:
            return Done(value=None, changed=netwindow.carry_out_reset(host, spec, change))


def raise_all(host: Host, spec: Spec) -> None:
    """`keel mesh up`: the machine as its state says. A window whose timer a reboot forgot is undone
    before any peer is raised; after one this node asks the others before it obeys anybody."""
    undone = netwindow.undo_abandoned(host, spec)
    if undone is not None:
        host.console.say(f"{undone} was undone")
    with store.locked(host, "the mesh"):
        if host.wireguard.show(spec.network.wireguard.interface) is None:
            behind.mark(host)
        netwindow.put_right(host, spec)
        tended.note_boot(host)


def plan_raise(host: Host, spec: Spec) -> Plan:
    """What `raise_all` would do now. Behind a change that is undone first nothing else is shown: it
    may be one that cannot be read."""
    undone = netwindow.plan_undo_abandoned(host)
    if undone:
        return undone
    node = store.require(host)
    rises = host.wireguard.show(spec.network.wireguard.interface) is None
    signs = not rises and selfrecord.due(host, netsettings.in_force(host, spec), node)
    return Plan.of(
        (
            rises,
            "ask-first",
            "this node",
            "it was away: it obeys nobody before it heard the others",
        ),
    ).then(
        up.plan(host, spec, node, store.load_invites(host)),
        Plan.of((signs, "sign-self", "this node", "its own record says how it is now")),
    )


def plan_tend(host: Host) -> Plan:
    """What `tend` would do now."""
    undone = netwindow.plan_undo_abandoned(host)
    if undone:
        return undone
    found = store.load_window(host)
    if found is None or found.stage is not Stage.CONFIRMED:
        return Plan()
    return plan_going_on(host, found)


def tend(host: Host, spec: Spec) -> tuple[str, ...]:
    """What a timer does about a window: one whose command died armed is undone, one whose command
    died confirmed is gone on with; one sentence for each."""
    undone = netwindow.undo_abandoned(host, spec)
    found = store.load_window(host)
    if found is None or found.stage is not Stage.CONFIRMED:
        return (
            () if undone is None else (f"{undone} was undone: its command and its timer are gone",)
        )
    return (f"{window.describe(found)} was confirmed: went on", *go_on(host, spec, found).changed)
