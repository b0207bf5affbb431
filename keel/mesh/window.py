"""The network window: a change to the network that undoes itself unless it is confirmed (M10).

Owns window.json and its rules; keel.mesh.netwindow arms, applies, confirms and undoes.

(W1) The record stands before the effect, and holds in place of the state below it while it is armed
     or confirmed: its subject is no peer, its settings are in force. So undoing is to end the
     record, wherever a process died.
(W2) Witnesses are the members that answered a signed ping in full packets just before, the subject
     not counted; a signed refusal is an answer. More than half of them have to answer again.
(W3) Only the operator confirms when nobody answered before, or when the change touches the path of
     an SSH session: one with the subject, or, as ports and endpoints are everybody's, with any
     address of the mesh.
(W4) Armed, then confirmed and carried out; or armed, then undoing. Nothing leads back, so of a
     confirmation and an undoing at one moment the first to be on disk is the end.
(W5) One at a time: while a record stands, other changes are refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, IPv6Network

from keel import codec
from keel.errors import Refused
from keel.spec.model import Spec
from keel.types import Endpoint, Nonce, SigningKey

WINDOW_SECONDS = 120.0
"""Long enough for a new SSH session over a bad link and one command typed into it."""


Sessions = Collection[IPv4Address | IPv6Address]
"""The far ends of sshd's established connections."""


class Stage(StrEnum):
    ARMED = "armed"
    CONFIRMED = "confirmed"
    """It holds for good; what follows from it may not be done yet."""
    UNDOING = "undoing"
    """It holds no more; the machine may not be put back yet."""


class Confirmer(StrEnum):
    """Whose word confirms a change."""

    MEMBERS = "members"
    OPERATOR = "operator"


class Means(StrEnum):
    """What a confirmed removal becomes."""

    REMOVAL = "removal"
    """Signed by right, for all members."""
    VOTE = "vote"
    """A block here, and one vote of those that it takes."""
    BLOCK = "block"
    """A block here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the others see of this node's WireGuard; no endpoints: this host's own addresses."""

    port: int
    mtu: int
    endpoints: tuple[Endpoint, ...] = ()
    interface: str | None = None
    """The one that is raised; it never changes on a member."""
    extra: Mapping[str, object] = field(default_factory=dict)


def settings_of(spec: Spec) -> Settings:
    """What a spec wants of the settings that a window guards."""
    wanted = spec.network.wireguard
    return Settings(
        port=wanted.port,
        mtu=wanted.mtu,
        endpoints=wanted.endpoints,
        interface=wanted.interface,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Removing:
    """A member that is to go, as it was shown when the command was given."""

    subject: SigningKey
    name: str
    address: IPv6Address
    means: Means
    extra: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resetting:
    """Settings that are to change."""

    before: Settings
    after: Settings
    extra: Mapping[str, object] = field(default_factory=dict)


Change = Removing | Resetting


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """window.json. Exactly one of `removing` and `resetting` is there; `why` says why only the
    operator confirms, and is empty when the members do."""

    id: Nonce
    stage: Stage
    opened: datetime
    ends: datetime
    confirmer: Confirmer
    why: str
    witnesses: tuple[SigningKey, ...]
    removing: Removing | None = None
    resetting: Resetting | None = None
    extra: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.removing is None) == (self.resetting is None):
            raise ValueError("a window is for one change")

    @property
    def change(self) -> Change:
        found = self.removing or self.resetting
        assert found is not None  # noqa: S101  # its own rule
        return found

    @property
    def holds(self) -> bool:
        """Whether the change is in effect (W1)."""
        return self.stage is not Stage.UNDOING


def arm(
    change: Change,
    *,
    id: Nonce,
    now: datetime,
    witnesses: Collection[SigningKey],
    sessions: Sessions,
    prefix: IPv6Network,
) -> Window:
    """The window for a change, with the members that answered just before (W2, W3)."""
    counted = sorted(key for key in witnesses if may_witness(change, key))
    why = _only_the_operator(change, counted, sessions, prefix)
    return Window(
        id=id,
        stage=Stage.ARMED,
        opened=now,
        ends=now + timedelta(seconds=WINDOW_SECONDS),
        confirmer=Confirmer.OPERATOR if why else Confirmer.MEMBERS,
        why=why,
        witnesses=tuple(counted),
        removing=change if isinstance(change, Removing) else None,
        resetting=None if isinstance(change, Removing) else change,
    )


def may_witness(change: Change, key: SigningKey) -> bool:
    """Whether this member's answer counts (W2); whose does not, nobody waits for."""
    return not (isinstance(change, Removing) and key == change.subject)


def suffices(window: Window, answered: Collection[SigningKey]) -> bool:
    """Whether these members' answers confirm it (W2, W3)."""
    if window.confirmer is Confirmer.OPERATOR:
        return False
    return 2 * len(set(window.witnesses) & set(answered)) > len(window.witnesses)


def confirm(window: Window) -> Window:
    """The window, confirmed; Refused once it is being undone (W4)."""
    if window.stage is Stage.UNDOING:
        raise Refused(
            "window-undone",
            f"{describe(window)} was not confirmed in time and is being undone",
            "see that `keel mesh status` shows all as before, then give the command again",
        )
    return replace(window, stage=Stage.CONFIRMED)


def undo(window: Window) -> Window:
    """The window, to be undone; Refused once it is confirmed (W4)."""
    if window.stage is Stage.CONFIRMED:
        raise Refused(
            "window-confirmed",
            f"{describe(window)} is confirmed, and what follows from it is under way",
            "let it end, `keel network confirm` goes on with it; then change it back",
        )
    return replace(window, stage=Stage.UNDOING)


def suspended(window: Window | None) -> frozenset[SigningKey]:
    """The key that is no peer while the window holds (W1)."""
    if window is None or window.removing is None or not window.holds:
        return frozenset()
    return frozenset((window.removing.subject,))


def in_force(window: Window | None, settled: Settings) -> Settings:
    """The settings that hold: the window's, or those below it (W1)."""
    if window is None or window.resetting is None or not window.holds:
        return settled
    return window.resetting.after


def open_error(window: Window) -> Refused:
    """Why another change has to wait (W5)."""
    return Refused(
        "window-open",
        f"{describe(window)} waits for its confirmation until"
        f" {codec.format_time(window.ends.replace(microsecond=0))}",
        "confirm it with `keel network confirm` or take it back with `keel network undo`, then run"
        " this again",
    )


def describe(window: Window) -> str:
    """The change in a few words."""
    match window.change:
        case Removing(name=name):
            return f"the removal of {name}"
        case Resetting() as found:
            return f"the change of {' and '.join(differences(found.before, found.after))}"


def differences(before: Settings, after: Settings) -> tuple[str, ...]:
    """Which of the settings differ, by their names in the spec."""
    pairs = (
        ("port", before.port, after.port),
        ("mtu", before.mtu, after.mtu),
        ("endpoints", before.endpoints, after.endpoints),
    )
    return tuple(name for name, one, other in pairs if one != other)


def _only_the_operator(
    change: Change, witnesses: Collection[SigningKey], sessions: Sessions, prefix: IPv6Network
) -> str:
    match change:
        case Removing():
            touched = change.address in sessions
        case Resetting():
            touched = any(one in prefix for one in sessions)
    if touched:
        return "an SSH session to this node goes over what it changes"
    return "" if witnesses else "no member answered just before"
