"""keel.mesh.wgconf: rules W1 to W4, and the forms of wg and ip."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from ipaddress import IPv6Address, IPv6Interface

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keel.errors import BadValue, Refused
from keel.mesh.wgconf import (
    Change,
    Dump,
    LinkFacts,
    RemovePeer,
    SetPeer,
    check_peer,
    parse_dump,
    parse_link,
    plan_peers,
)
from keel.ports import WgBackend, WgDevice, WgPeer, WgPeerState
from keel.types import Endpoint, Secret, WgKey

PUBLIC = Endpoint.parse("203.0.113.1:51820")
ROAMED = Endpoint.parse("198.51.100.9:4000")
MOVED = Endpoint.parse("203.0.113.99:51820")


def make_key(number: int) -> WgKey:
    return WgKey(base64.b64encode(bytes([number]) * 32).decode())


def make_address(number: int) -> IPv6Address:
    return IPv6Address(f"fd00:1:2::{number:x}")


def make_peer(number: int, **over: object) -> WgPeer:
    fields: dict[str, object] = {"key": make_key(number), "allowed": make_address(number)}
    return WgPeer(**(fields | over))  # type: ignore[arg-type]


def make_state(number: int, **over: object) -> WgPeerState:
    fields: dict[str, object] = {
        "key": make_key(number),
        "endpoint": PUBLIC,
        "allowed": (f"{make_address(number)}/128",),
        "latest_handshake": None,
        "received_bytes": 0,
        "sent_bytes": 0,
        "keepalive_seconds": 10,
        "has_preshared": False,
    }
    return WgPeerState(**(fields | over))  # type: ignore[arg-type]


def make_device(*peers: WgPeerState) -> WgDevice:
    return WgDevice(
        name="keel0",
        key=make_key(200),
        port=51820,
        backend=WgBackend.KERNEL,
        mtu=1280,
        addresses=(make_address(200),),
        peers=peers,
    )


# what wg and ip print


def test_a_dump_is_parsed_and_the_private_key_is_not_in_it() -> None:
    private = make_key(77)
    text = (
        f"{private}\t{make_key(200)}\t51820\toff\n"
        f"{make_key(1)}\t(none)\t203.0.113.1:51820\tfd00:1:2::1/128\t1767225600\t10\t20\t10\n"
        f"{make_key(2)}\t(hidden)\t[2001:db8::1]:7\tfd00:1:2::2/128,10.0.0.0/8\t0\t0\t0\toff\n"
        f"{make_key(3)}\t(none)\t(none)\t(none)\t0\t0\t0\t25\n"
        f"{make_key(4)}\t(none)\t[fe80::1%eth0]:7\t(none)\t0\t0\t0\toff\n"
    )
    dump = parse_dump(text)
    assert dump == Dump(
        key=make_key(200),
        port=51820,
        peers=(
            make_state(
                1,
                latest_handshake=datetime(2026, 1, 1, tzinfo=UTC),
                received_bytes=10,
                sent_bytes=20,
            ),
            make_state(
                2,
                endpoint=Endpoint.parse("[2001:db8::1]:7"),
                allowed=("fd00:1:2::2/128", "10.0.0.0/8"),
                keepalive_seconds=0,
                has_preshared=True,
            ),
            make_state(3, endpoint=None, allowed=(), keepalive_seconds=25),
            make_state(4, endpoint=None, allowed=(), keepalive_seconds=0),
        ),
    )
    assert private not in repr(dump)


def test_an_interface_without_a_key_has_none() -> None:
    assert parse_dump("(none)\t(none)\t0\toff\n") == Dump(key=None, port=0, peers=())


@pytest.mark.parametrize(
    ("text", "where"),
    [
        pytest.param("", "line 1", id="nothing"),
        pytest.param("a\tb\n", "line 1", id="too few fields"),
        pytest.param("(none)\tshort\t0\toff\n", "line 1", id="not a key"),
        pytest.param("(none)\t(none)\tx\toff\n", "line 1", id="not a port"),
        pytest.param("(none)\t(none)\t0\toff\nx\n", "line 2", id="peer of one field"),
        pytest.param(
            f"(none)\t(none)\t0\toff\n{make_key(1)}\t(none)\thost:1\t(none)\t0\t0\t0\toff\n",
            "line 2",
            id="endpoint that is a name",
        ),
        pytest.param(
            f"(none)\t(none)\t0\toff\n{make_key(1)}\t(none)\t(none)\t(none)\t-1\t0\t0\toff\n",
            "line 2",
            id="negative handshake",
        ),
    ],
)
def test_what_wg_does_not_print_is_refused_with_its_line(text: str, where: str) -> None:
    with pytest.raises(BadValue) as caught:
        parse_dump(text)
    assert caught.value.path == where


def _link(**over: object) -> Mapping[str, object]:
    return {
        "ifname": "keel0",
        "flags": ["POINTOPOINT", "NOARP", "UP", "LOWER_UP"],
        "mtu": 1280,
        "linkinfo": {"info_kind": "wireguard"},
        "addr_info": [
            {"family": "inet", "local": "10.0.0.1", "prefixlen": 8, "scope": "global"},
            {"family": "inet6", "local": "fd00:1:2::1", "prefixlen": 128, "scope": "global"},
            {"family": "inet6", "local": "fe80::1", "prefixlen": 64, "scope": "link"},
        ],
    } | over


def test_a_link_is_parsed_with_its_global_addresses_only() -> None:
    assert parse_link(json.dumps([_link()])) == LinkFacts(
        mtu=1280, up=True, kind="wireguard", addresses=(IPv6Interface("fd00:1:2::1/128"),)
    )


def test_a_link_without_a_kind_or_addresses_is_parsed() -> None:
    link = {"mtu": 1500, "flags": []}
    assert parse_link(json.dumps([link])) == LinkFacts(mtu=1500, up=False, kind="", addresses=())


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("{", id="not JSON"),
        pytest.param("[]", id="no link"),
        pytest.param(json.dumps([_link(), _link()]), id="two links"),
        pytest.param(json.dumps([_link(mtu=None)]), id="no MTU"),
        pytest.param(json.dumps([{"mtu": 1}]), id="no flags"),
        pytest.param(json.dumps(["keel0"]), id="a string"),
        pytest.param(json.dumps([_link(linkinfo=[])]), id="link info is a list"),
    ],
)
def test_what_ip_does_not_print_is_refused(text: str) -> None:
    with pytest.raises(BadValue):
        parse_link(text)


# one peer


def test_an_address_of_another_key_is_refused() -> None:
    with pytest.raises(Refused) as caught:
        check_peer(make_device(make_state(1)), make_peer(2, allowed=make_address(1)))
    assert caught.value.rule == "allowed-address-taken"


def test_its_own_address_and_a_free_one_are_not() -> None:
    check_peer(make_device(make_state(1)), make_peer(1, endpoint=PUBLIC))
    check_peer(make_device(make_state(1)), make_peer(2))


INSIDE = Endpoint.parse("[fd00:1:2::7]:51820")


def test_an_endpoint_inside_the_mesh_is_refused_and_a_plan_does_without_it() -> None:
    with pytest.raises(Refused) as caught:
        check_peer(make_device(), make_peer(1, endpoint=INSIDE))
    assert caught.value.rule == "endpoint-inside-mesh"
    assert plan_peers([make_peer(1, endpoint=INSIDE)], make_device()) == (_set(1),)


# all peers


def _set(number: int, **over: object) -> SetPeer:
    return SetPeer(peer=make_peer(number, **over))


@pytest.mark.parametrize(
    ("wanted", "there", "changes"),
    [
        pytest.param([], [], (), id="nothing"),
        pytest.param([make_peer(1)], [], (_set(1),), id="a new peer"),
        pytest.param(
            [make_peer(1, endpoint=PUBLIC)], [], (_set(1, endpoint=PUBLIC),), id="with an endpoint"
        ),
        pytest.param([], [make_state(1)], (RemovePeer(key=make_key(1)),), id="one too many"),
        pytest.param([make_peer(1)], [make_state(1)], (), id="as wanted, endpoint learned"),
        pytest.param(
            [make_peer(1, endpoint=PUBLIC)], [make_state(1, endpoint=ROAMED)], (), id="roamed"
        ),
        pytest.param(
            [make_peer(1, endpoint=PUBLIC)],
            [make_state(1, endpoint=None)],
            (_set(1, endpoint=PUBLIC),),
            id="endpoint not known yet",
        ),
        pytest.param(
            [make_peer(1, endpoint=PUBLIC, keepalive_seconds=25)],
            [make_state(1, endpoint=ROAMED)],
            (_set(1, keepalive_seconds=25),),
            id="another keepalive, roamed endpoint left alone",
        ),
        pytest.param(
            [make_peer(1, preshared=Secret(b"p" * 32))],
            [make_state(1)],
            (_set(1, preshared=Secret(b"p" * 32)),),
            id="a preshared key",
        ),
        pytest.param(
            [make_peer(1)], [make_state(1, has_preshared=True)], (_set(1),), id="no preshared key"
        ),
        pytest.param(
            [make_peer(2, allowed=make_address(1))],
            [make_state(1)],
            (RemovePeer(key=make_key(1)), _set(2, allowed=make_address(1))),
            id="another key takes the address over",
        ),
        pytest.param(
            [make_peer(2, allowed=make_address(1)), make_peer(1, allowed=make_address(3))],
            [make_state(1)],
            (_set(1, allowed=make_address(3)), _set(2, allowed=make_address(1))),
            id="an address moves on after it was left",
        ),
        pytest.param(
            [make_peer(1)],
            [make_state(1, allowed=("fd00:1:2::1/128", "10.0.0.0/8"))],
            (_set(1),),
            id="allowed too much",
        ),
        pytest.param(
            [make_peer(1, allowed=make_address(2)), make_peer(2, allowed=make_address(1))],
            [make_state(1), make_state(2, endpoint=ROAMED)],
            (
                RemovePeer(key=make_key(2)),
                _set(1, allowed=make_address(2)),
                _set(2, allowed=make_address(1), endpoint=ROAMED),
            ),
            id="two exchange addresses, and the one removed keeps its endpoint",
        ),
    ],
)
def test_peers_become_as_wanted_one_by_one(
    wanted: list[WgPeer], there: list[WgPeerState], changes: tuple[Change, ...]
) -> None:
    assert plan_peers(wanted, make_device(*there)) == changes


def test_a_new_endpoint_of_a_member_is_set_over_a_roamed_one() -> None:
    device = make_device(make_state(1, endpoint=ROAMED))
    wanted = [make_peer(1, endpoint=MOVED)]
    assert plan_peers(wanted, device, wanted_before={make_key(1): PUBLIC}) == (
        _set(1, endpoint=MOVED),
    )
    assert plan_peers(wanted, device, wanted_before={make_key(1): MOVED}) == ()


def test_a_peer_to_keep_is_left_alone_and_its_address_is_not_taken() -> None:
    device = make_device(make_state(1))
    keep = [make_key(1)]
    assert plan_peers([], device, keep=keep) == ()
    assert plan_peers([make_peer(1, keepalive_seconds=3)], device, keep=keep) == ()
    with pytest.raises(Refused) as caught:
        plan_peers([make_peer(2, allowed=make_address(1))], device, keep=keep)
    assert caught.value.rule == "allowed-address-taken"


@pytest.mark.parametrize(
    "second",
    [
        pytest.param(make_peer(1, allowed=make_address(9)), id="one key"),
        pytest.param(make_peer(9, allowed=make_address(1)), id="one address"),
    ],
)
def test_two_wanted_peers_share_neither_key_nor_address(second: WgPeer) -> None:
    with pytest.raises(Refused) as caught:
        plan_peers([make_peer(1), second], make_device())
    assert caught.value.rule == "peer-twice"


NUMBERS = st.integers(min_value=1, max_value=6)
ENDPOINTS = st.sampled_from([None, PUBLIC, ROAMED])


@st.composite
def matchings(draw: st.DrawFn) -> dict[int, int]:
    """Keys to addresses, no two alike."""
    keys = draw(st.lists(NUMBERS, unique=True))
    addresses = draw(st.permutations(range(1, 7)))
    return dict(zip(keys, addresses, strict=False))


def _apply(change: Change, device: WgDevice) -> WgDevice:
    """What `wg set` does, and refuses to be asked for a theft."""
    peers = {peer.key: peer for peer in device.peers}
    match change:
        case RemovePeer(key=key):
            del peers[key]
        case SetPeer(peer=peer):
            check_peer(device, peer)
            there = peers.get(peer.key)
            learned = there.endpoint if there is not None else None
            peers[peer.key] = make_state(
                1,
                key=peer.key,
                endpoint=peer.endpoint or learned,
                allowed=(f"{peer.allowed}/128",),
                keepalive_seconds=peer.keepalive_seconds,
                has_preshared=peer.preshared is not None,
            )
    return make_device(*peers.values())


@given(wanted=matchings(), there=matchings(), endpoint=ENDPOINTS, known=ENDPOINTS)
def test_from_any_peers_to_any_others_no_step_steals_and_a_rerun_from_any_step_ends_the_same(
    wanted: dict[int, int],
    there: dict[int, int],
    endpoint: Endpoint | None,
    known: Endpoint | None,
) -> None:
    peers = [
        make_peer(key, allowed=make_address(address), endpoint=endpoint)
        for key, address in wanted.items()
    ]
    device = make_device(
        *(
            make_state(key, allowed=(f"{make_address(address)}/128",), endpoint=known)
            for key, address in there.items()
        )
    )
    started = device
    plan = plan_peers(peers, device)
    assert len(plan) <= len(wanted) * 2 + len(there)
    for change in plan:
        assert plan_peers(peers, device) != ()
        device = _apply(change, device)
        rerun = device
        for again in plan_peers(peers, device):
            rerun = _apply(again, rerun)
        assert _allowed(rerun) == {
            make_key(k): (f"{make_address(a)}/128",) for k, a in wanted.items()
        }
    assert plan_peers(peers, device) == ()
    untouched = {k for k, a in wanted.items() if there.get(k) == a}
    touched = {change.peer.key if isinstance(change, SetPeer) else change.key for change in plan}
    if not (known is None and endpoint is not None):
        assert not {make_key(k) for k in untouched} & touched
    for peer in device.peers:
        before = next((each for each in started.peers if each.key == peer.key), None)
        if before is not None and before.endpoint is not None:
            assert peer.endpoint == before.endpoint


def _allowed(device: WgDevice) -> dict[WgKey, tuple[str, ...]]:
    return {peer.key: peer.allowed for peer in device.peers}
