"""Whether this node was away and has not heard since what the others know (M9).

A removed member reaches those that have not heard of its removal. So a node that comes back, from a
boot or from a cut that took all members from it, obeys nobody until it has exchanged rosters with
one: what it is asked meanwhile is refused, and the exchange begins at once. Records and pings go
through: the first prove themselves, the second prove only that somebody lives.
"""

from __future__ import annotations

from keel.errors import Refused
from keel.ports import Host
from keel.unitnames import SYNC_UNIT

BEHIND = "channel-behind"


def mark(host: Host) -> None:
    """From here on it is behind."""
    if not host.files.exists(host.paths.behind):
        host.files.make_dir(host.paths.run)
        host.files.write(host.paths.behind, b"")


def heard(host: Host, *, answered: int, asked: int) -> None:
    """Rosters were exchanged with so many of the members that were asked. Where there are no
    others nobody can know more."""
    if answered or not asked:
        host.files.remove(host.paths.behind)
    else:
        mark(host)


def refuse(host: Host, member: str) -> None:
    """Refused (channel-behind) while it is; the exchange is on its way then."""
    if not host.files.exists(host.paths.behind):
        return
    host.units.start(SYNC_UNIT, block=False)
    raise Refused(
        "channel-behind",
        f"it was away and asks the others first whether {member} is still a member",
        "run the same command again in a moment; the timer does it by itself",
    )
