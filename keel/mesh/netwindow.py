"""The network window on this node: armed, applied, confirmed or undone (M10).

Owns the order of effects around window.json; what may confirm a change is keel.mesh.window's to
say, what follows from a confirmed one its flow's (keel.mesh.network joins them).

(D1) The timer stands before the record, the record before the effect: whenever this process dies,
     the change is undone after 120 s. A reboot forgets the timer; a record that is armed without
     one is undone by the next `keel mesh up`, which raises no peer before, or by the next sync.
(D2) A record that cannot be read is undone like an armed one: what it said does not hold.
(D3) Nothing is asked of others under the lock: members are pinged first, and again after.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from keel.errors import KeelError, Refused, StateCorrupt
from keel.mesh import netsettings, selfrecord, spread, store, talk, up, window
from keel.mesh.members import Member
from keel.mesh.store import Node
from keel.mesh.window import Change, Confirmer, Resetting, Stage, Window, settings_of
from keel.outcome import Incomplete, Plan
from keel.ports import Deadline, Host
from keel.spec.model import Spec
from keel.types import Nonce

UNDO_UNIT = "keel-window.service"
UNREADABLE = "a change whose record cannot be read"
POLL_SECONDS = 1.0
LAST_PING_SECONDS = window.WINDOW_SECONDS - talk.PING_SECONDS
"""A ping that began later might be answered after the timer has undone the change."""


def refuse_open(host: Host) -> None:
    """Refused (window-open) while one waits: for every flow that changes something. Hold the
    lock."""
    found = store.load_window(host)
    if found is not None:
        raise window.open_error(found)


def open_window(host: Host, spec: Spec, change: Callable[[Node], Change]) -> Window:
    """Arm and apply a change (keel.mesh.window, W1). `change` is asked twice, before the ping and
    under the lock; it raises Refused when the node forbids it. Refused (window-open) while another
    waits. What the machine does not take, as a port that is taken, is undone at once."""
    with store.locked(host, "the mesh"):
        refuse_open(host)
        node = store.require(host)
        wanted = change(node)
    others = [one for one in talk.others(node) if window.may_witness(wanted, one.key)]
    if others:
        host.console.waiting(f"asking {_names(others)} for an answer before the change")
    witnesses = [
        member.key for member in spread.answered(spread.ping(host, node, others, full=True))
    ]
    with store.locked(host, "the mesh"):
        refuse_open(host)
        node = store.require(host)
        found = window.arm(
            change(node),
            id=Nonce(host.chance.bytes(16).hex()),
            now=host.clock.now(),
            witnesses=witnesses,
            sessions=host.machine.ssh_sessions(),
            prefix=node.prefix,
        )
        if found.resetting is not None:
            netsettings.save(host, found.resetting.before)
        host.units.unschedule(UNDO_UNIT)
        host.units.schedule(UNDO_UNIT, seconds=window.WINDOW_SECONDS)
        store.save_window(host, found)
        try:
            put_right(host, spec)
        except KeelError:
            with contextlib.suppress(KeelError):  # the timer tries until it can
                _undo(host, spec)
            raise
    return found


def await_members(host: Host, spec: Spec, found: Window) -> Window:
    """The window once the members, or the operator meanwhile, confirmed it; Refused
    (window-unconfirmed) when nobody did, and all is as before."""
    deadline = Deadline.after(host.clock, LAST_PING_SECONDS)
    silent: list[Member] = []
    while not deadline.passed(host.clock):
        node = store.require(host)
        asked = [member for member in node.view.members if member.key in found.witnesses]
        answers = spread.answered(spread.ping(host, node, asked, with_self=True))
        enough = window.suffices(found, [member.key for member in answers])
        if enough or standing(host, found).stage is not Stage.ARMED:
            return confirm(host, found)
        silent = [member for member in asked if member not in answers]
        host.console.waiting(
            f"waiting for {_names(silent)} to answer: {len(answers)} of {len(asked)} did,"
            f" {deadline.remaining(host.clock):.0f} s left"
        )
        host.clock.sleep(POLL_SECONDS)
    undo(host, spec)
    raise Refused(
        "window-unconfirmed",
        f"{window.describe(found)} was undone: {_names(silent)} did not answer after it",
        "see in `keel mesh status` that all is as before, and why they did not answer",
    )


def confirm(host: Host, expected: Window | None = None) -> Window:
    """The window that stands (only the `expected` one), confirmed on disk. Refused (window-none,
    window-undone; not-in-mesh)."""
    with store.locked(host, "the mesh"):
        found = standing(host, expected)
        confirmed = window.confirm(found)
        if confirmed != found:
            store.save_window(host, confirmed)
        host.units.unschedule(UNDO_UNIT)
    return confirmed


def standing(host: Host, expected: Window | None = None) -> Window:
    """The window that stands (only the `expected` one). Refused (window-none; not-in-mesh)."""
    found = store.load_window(host)
    if found is None or (expected is not None and found.id != expected.id):
        store.require(host)  # where no mesh is, it was never there
        raise Refused(
            "window-none",
            "no change to the network waits: it was undone, or confirmed already",
            "`keel mesh status` shows what holds now",
        )
    return found


def undo(host: Host, spec: Spec) -> str | None:
    """All as before the change; what it was, None when nothing waits. Refused
    (window-confirmed)."""
    with store.locked(host, "the mesh"):
        return _undo(host, spec)


def plan_undo(host: Host) -> Plan:
    """What `undo` would do now; Refused as it would be."""
    try:
        found = store.load_window(host)
        said = "" if found is None else window.describe(window.undo(found))
    except StateCorrupt:
        said = UNREADABLE
    return Plan.of((bool(said), "undo-change", said, "all as it was before"))


def plan_undo_abandoned(host: Host) -> Plan:
    """What `undo_abandoned` would do now."""
    if not _is_abandoned(host):
        return Plan()
    why = "interface, peers and firewall by the state below it"
    return plan_undo(host).then(Plan.of((True, "raise", "interface", why)))


def undo_abandoned(host: Host, spec: Spec) -> str | None:
    """As `undo`, but only of a window whose timer is gone, or that was being undone (D1, D2)."""
    with store.locked(host, "the mesh"):
        return _undo(host, spec) if _is_abandoned(host) else None


def waits_for_operator(found: Window) -> Incomplete[Window]:
    """What a command says of a window that only the operator may confirm."""
    return Incomplete(
        value=found,
        missing=(f"{window.describe(found)} waits for your word: {found.why}",),
        remedy=f"`keel network confirm` within {window.WINDOW_SECONDS:.0f} s, or it is undone;"
        " open a new session first to see that you can still get in",
    )


def put_right(host: Host, spec: Spec) -> Node:
    """The machine as state and window say, and the self record with it; idempotent. Hold the
    lock."""
    node = store.require(host)
    up.bring_up(host, spec, node, store.load_invites(host))
    return selfrecord.refresh(host, netsettings.in_force(host, spec), node)


def reset(host: Host, spec: Spec) -> tuple[str, ...] | Incomplete[Window]:
    """The settings that the spec wants, under a window: what changed, or a window that only the
    operator may confirm."""
    change = Resetting(
        before=settings_of(netsettings.in_force(host, spec)), after=settings_of(spec)
    )
    found = open_window(host, spec, lambda _: change)
    if found.confirmer is Confirmer.OPERATOR:
        return waits_for_operator(found)
    await_members(host, spec, found)
    return carry_out_reset(host, spec, change)


def carry_out_reset(host: Host, spec: Spec, found: Resetting) -> tuple[str, ...]:
    """What follows from a confirmed change of settings: it is what holds from here on."""
    with store.locked(host, "the mesh"):
        put_right(host, spec)
        netsettings.save(host, found.after)
        store.end_window(host)
    names = window.differences(found.before, found.after)
    return tuple(f"network/{name} changed" for name in names)


def _undo(host: Host, spec: Spec) -> str | None:
    try:
        found = store.load_window(host)
    except StateCorrupt:
        store.end_window(host)
        put_right(host, spec)
        return UNREADABLE
    if found is None:
        return None
    undoing = window.undo(found)
    if undoing != found:
        store.save_window(host, undoing)
    put_right(host, spec)
    store.end_window(host)
    host.units.unschedule(UNDO_UNIT)
    return window.describe(found)


def _is_abandoned(host: Host) -> bool:
    try:
        found = store.load_window(host)
    except StateCorrupt:
        return True
    if found is None or found.stage is Stage.CONFIRMED:
        return False
    return found.stage is Stage.UNDOING or not host.units.scheduled(UNDO_UNIT)


def _names(members: Sequence[Member]) -> str:
    return ", ".join(sorted(member.display for member in members)) or "nobody"
