"""Why an inviter kept silent, as far as it can be told from here. Pure."""

from __future__ import annotations

from datetime import datetime

from keel.errors import PeerError
from keel.mesh.firewallrules import CHANNEL_PORT
from keel.mesh.token import Token
from keel.mesh.wgconf import FULL_PACKET, find_peer
from keel.ports import WgDevice

NOTHING_CAME = (
    "one of three: its UDP port cannot be reached from here, this token is not its (a wrong secret"
    " or key is met with silence, and so is one that was used or ended a day ago), or keel is not"
    " running there; look at `keel mesh invite --list` and `keel mesh status` there, then run this"
    " again"
)
ONLY_WIREGUARD = (
    "WireGuard there answered, so port and token are right: its channel does not listen (`keel mesh"
    f" status` there), a firewall there shuts TCP port {CHANNEL_PORT}, or the network between"
    f" carries no full packets ({FULL_PACKET} bytes); then run this again"
)


def of_inviter(
    token: Token, device: WgDevice | None, *, since: datetime, seconds: float
) -> PeerError:
    """`no-answer`. A handshake with it since `since` means that a small packet came back; an older
    one is that of a command that was cut off, and says nothing of now."""
    peer = None if device is None else find_peer(device, token.wireguard)
    last = None if peer is None else peer.latest_handshake
    met = last is not None and last >= since.replace(microsecond=0)  # WireGuard tells seconds
    return PeerError(
        "the inviter",
        "no-answer",
        f"no answer from {' or '.join(map(str, token.endpoints))} in {seconds:.0f} s",
        remedy=ONLY_WIREGUARD if met else NOTHING_CAME,
    )
