"""Prints every secret that this member holds, as JSON: what it is -> its bytes in hex."""

from __future__ import annotations

import json
import sys

from keel.cli.compose import compose
from keel.mesh import etcdcert, etcdstore, store


def main() -> None:
    host = compose(verbose=False, stderr=sys.stderr)
    node = store.require(host)
    found = {
        "signing key": node.identity.signing.seed.reveal(),
        "WireGuard key": node.identity.wireguard.private.reveal(),
    }
    for state in store.load_invites(host):
        keys = state.keys(node.mesh, node.prefix)
        found |= {
            f"invite {state.invite}: secret": state.secret,
            f"invite {state.invite}: preshared key": keys.preshared.reveal(),
            f"invite {state.invite}: temporary key": keys.pair.private.reveal(),
        }
    granted, leaves = etcdstore.load_intermediate(host), etcdstore.load_leaves(host)
    authority = etcdstore.load_authority(host)
    pems = {}
    if authority is not None:
        pems["root key"] = authority[1].key
    if granted is not None:
        pems["intermediate's key"] = granted[1].key
    if leaves is not None:
        pems |= {"member leaf's key": leaves.member.key, "client leaf's key": leaves.client.key}
    for what, pem in pems.items():
        number = etcdcert.load_key(pem).private_numbers().private_value
        found[what] = number.to_bytes(32, "big")
    json.dump({what: raw.hex() for what, raw in found.items()}, sys.stdout)


main()
