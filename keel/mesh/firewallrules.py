"""The text of nftables' table `inet keel`: pure.

(N1) Packets from or to the mesh's prefix use its own interface only: an address of the mesh that
     is claimed elsewhere is a lie, and one that would leave elsewhere would be readable.
(N2) A source in prefix:ffff::/80, the range of open invites, reaches TCP 4780 of this node's own
     address and nothing else, gets nothing but the answers, and is never forwarded.
(N3) Everything else is the machine's own firewall's affair: these chains come before the usual
     ones, and what they let pass may still be dropped there.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address, IPv6Network

from keel.errors import Internal

TABLE = "inet keel"
CHANNEL_PORT = 4780
INVITES_LENGTH = 80

_INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")

_RULES = """\
table inet keel
delete table inet keel
table inet keel {{
  chain input {{
    type filter hook input priority filter - 10; policy accept;
    iifname != {{ "{interface}", "lo" }} ip6 saddr {prefix} counter drop
    iifname != {{ "{interface}", "lo" }} ip6 daddr {prefix} counter drop
    iifname "{interface}" ip6 saddr {invites} ip6 daddr {address} tcp dport {port} accept
    iifname "{interface}" ip6 saddr {invites} counter drop
  }}
  chain forward {{
    type filter hook forward priority filter - 10; policy accept;
    iifname != "{interface}" ip6 saddr {prefix} counter drop
    oifname != "{interface}" ip6 daddr {prefix} counter drop
    ip6 saddr {invites} counter drop
    ip6 daddr {invites} counter drop
  }}
  chain output {{
    type filter hook output priority filter - 10; policy accept;
    oifname != {{ "{interface}", "lo" }} ip6 daddr {prefix} counter drop
    oifname "{interface}" ip6 daddr {invites} tcp sport {port} accept
    oifname "{interface}" ip6 daddr {invites} counter drop
  }}
}}
"""


def invite_range(prefix: IPv6Network) -> IPv6Network:
    """prefix:ffff::/80, where the temporary addresses of open invites lie."""
    return IPv6Network((int(prefix.network_address) | (0xFFFF << 48), INVITES_LENGTH))


def ruleset(*, interface: str, prefix: IPv6Network, address: IPv6Address) -> str:
    """What `nft -f -` loads in one transaction: the table as it should be, whatever it was."""
    if not _INTERFACE.fullmatch(interface):
        raise Internal(f"{interface!r} is no interface's name")
    return _RULES.format(
        interface=interface,
        prefix=prefix.compressed,
        invites=invite_range(prefix).compressed,
        address=address.compressed,
        port=CHANNEL_PORT,
    )
