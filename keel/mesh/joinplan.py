"""What a join will do from here, and what forbids it before anybody is asked (M2).

Owns the checks that need this node and the token alone, and the steps of a dry run. Sends nothing
to anybody: to the inviter a request would be the use of its invite.
"""

from __future__ import annotations

from datetime import datetime

from keel import codec
from keel.errors import Refused
from keel.mesh import create, netwindow, pendingjoin, selfrecord, store
from keel.mesh.invite import LIFE
from keel.mesh.redeem import MAX_CLOCK_SKEW
from keel.mesh.store import Node
from keel.mesh.token import Token
from keel.outcome import Plan
from keel.ports import Host
from keel.spec.model import Spec
from keel.types import Capability


def allow(host: Host, node: Node | None, token: Token, *, discard: bool) -> tuple[str, ...]:
    """The joins of other meshes that are given up for this one. Refused (other-mesh, pending-join,
    window-open, join-own-invite) with nothing changed."""
    if node is not None and node.mesh != token.mesh:
        raise Refused(
            "other-mesh",
            f"this node is in mesh {node.mesh} and the token is for mesh {token.mesh}",
            "`keel mesh leave` first, if this node is to change meshes",
        )
    others = tuple(one for one in host.files.names(host.paths.pending_joins) if one != token.mesh)
    if others and not discard:
        create.refuse_pending(host)
    if node is None:
        return others
    netwindow.refuse_open(host)
    if token.inviter == node.key:
        raise Refused(
            "join-own-invite",
            "this node made that invite; it lets another one in",
            "type `keel mesh join` on the new node; `keel mesh invite --cancel"
            f" {token.invite}` here ends the invite",
        )
    return others


def plan(host: Host, spec: Spec, token: Token, *, discard: bool) -> Plan:
    """What a join with this token would do now. Refused as it would be, as far as that is known
    here."""
    node = store.load(host)
    given_up = allow(host, node, token, discard=discard)
    inviter = node.view.by_key(token.inviter) if node else None
    whom = inviter.display if inviter else "the inviter"
    pending = pendingjoin.load(host, token.mesh)
    begun = pending is not None and pending.invite == token.invite
    raising = (True, "raise", "interface", "the overlay address and the channel")
    if node is not None and begun:
        return Plan.of(
            raising, (True, "confirm", whom, "the join that was begun here ends with it")
        )
    if inviter is not None and pending is None:
        why = "this node is a member; only if it knows nothing of that is the invite used"
        return Plan.of(raising, (True, "say-hello", whom, why))
    granted = pendingjoin.granted(host, token.mesh, token.invite) is not None
    redeems = node is not None or not granted
    if redeems:
        _refuse_by_clock(token, host.clock.now())
        host.wireguard.show(spec.network.wireguard.interface)  # Refused when it is another's
    place = host.paths.pending_join(token.mesh)
    has_keys = node is not None or host.files.exists(place / "wireguard.key")
    name, ends = create.own_name(host, spec), codec.format_time(token.expires)
    able = selfrecord.own_capability(host, spec) is Capability.ETCD
    where = ", ".join(map(str, token.endpoints)) or "the inviter"
    return Plan.of(
        *((True, "discard-pending", one, "its keys go with it") for one in given_up),
        (not has_keys, "make-keys", "this node", "a signing and a WireGuard key"),
        (able and redeems, "make-request", "etcd", "a capable node asks for its certificate"),
        (redeems, "first-contact", where, "inside WireGuard, by a key and address of the token's"),
        (redeems, "redeem", f"invite {token.invite}", f"good until {ends} by the inviter's clock"),
        (True, "become-member", f"mesh {token.mesh}", f"as {name}, with what the answer brings"),
        raising,
        (True, "confirm", whom, "from then on the others know this node"),
        (able, "settle", "etcd", "what the answer brings for it; the timer goes on"),
    )


def plan_discard(host: Host, spec: Spec) -> Plan:
    """What giving up every join that was begun would do now."""
    names = host.files.names(host.paths.pending_joins)
    interface = spec.network.wireguard.interface
    lowers = bool(names) and store.load(host) is None
    return Plan.of(
        (lowers, "lower", interface, "the temporary one of a join that was cut off"),
        *((True, "discard-pending", one, "its keys go with it") for one in names),
    )


def _refuse_by_clock(token: Token, now: datetime) -> None:
    """Refused (join-expired, join-clock) where the inviter refuses whatever its clock says: it
    takes no request whose time is not its own, so it says either this or that the clocks differ.
    Its clock alone decides in all other cases."""
    ours, ends = (codec.format_time(one.replace(microsecond=0)) for one in (now, token.expires))
    if now - token.expires > MAX_CLOCK_SKEW:
        raise Refused(
            "join-expired",
            f"the invite expired at {ends}, and this node's clock says {ours}",
            "make a new invite with `keel mesh invite` on a member and join with its token; if it"
            " is this clock that is wrong: `timedatectl set-ntp true`",
        )
    if token.expires - LIFE - now > MAX_CLOCK_SKEW:
        raise Refused(
            "join-clock",
            f"this node's clock says {ours}: an invite that is good until {ends} was made later",
            "set the wrong clock right (`timedatectl set-ntp true`), then run the same command"
            " again; the invite is still open",
        )
