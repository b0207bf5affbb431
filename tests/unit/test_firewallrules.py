"""keel.mesh.firewallrules: the whole text, and what it refuses to render."""

from __future__ import annotations

from ipaddress import IPv6Address, IPv6Network

import pytest

from keel.errors import Internal
from keel.mesh.firewallrules import invite_range, ruleset

PREFIX = IPv6Network("fd01:2345:6789::/64")

GOLDEN = """\
table inet keel
delete table inet keel
table inet keel {
  chain input {
    type filter hook input priority filter - 10; policy accept;
    iifname != { "keel0", "lo" } ip6 saddr fd01:2345:6789::/64 counter drop
    iifname != { "keel0", "lo" } ip6 daddr fd01:2345:6789::/64 counter drop
    iifname "keel0" ip6 saddr fd01:2345:6789:0:ffff::/80 ip6 daddr fd01:2345:6789::a \
tcp dport 4780 accept
    iifname "keel0" ip6 saddr fd01:2345:6789:0:ffff::/80 counter drop
  }
  chain forward {
    type filter hook forward priority filter - 10; policy accept;
    iifname != "keel0" ip6 saddr fd01:2345:6789::/64 counter drop
    oifname != "keel0" ip6 daddr fd01:2345:6789::/64 counter drop
    ip6 saddr fd01:2345:6789:0:ffff::/80 counter drop
    ip6 daddr fd01:2345:6789:0:ffff::/80 counter drop
  }
  chain output {
    type filter hook output priority filter - 10; policy accept;
    oifname != { "keel0", "lo" } ip6 daddr fd01:2345:6789::/64 counter drop
    oifname "keel0" ip6 daddr fd01:2345:6789:0:ffff::/80 tcp sport 4780 accept
    oifname "keel0" ip6 daddr fd01:2345:6789:0:ffff::/80 counter drop
  }
}
"""


def test_the_text_is_exactly_this() -> None:
    assert (
        ruleset(interface="keel0", prefix=PREFIX, address=IPv6Address("fd01:2345:6789::a"))
        == GOLDEN
    )


def test_the_range_of_invites_is_the_ffff_part_of_the_prefix() -> None:
    invites = invite_range(PREFIX)
    assert IPv6Address("fd01:2345:6789:0:ffff:1:2:3") in invites
    assert IPv6Address("fd01:2345:6789:0:fffe:1:2:3") not in invites
    assert invites.subnet_of(PREFIX)


@pytest.mark.parametrize("name", ["", "keel0; flush ruleset", 'a"b', "x" * 16, "-a"])
def test_a_name_that_is_no_interface_is_not_rendered(name: str) -> None:
    with pytest.raises(Internal):
        ruleset(interface=name, prefix=PREFIX, address=IPv6Address("fd01:2345:6789::a"))
