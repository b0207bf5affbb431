"""keel.system.wireguard: the exact commands, against wg and ip that are played."""

from __future__ import annotations

import base64
import json
from ipaddress import IPv6Address, IPv6Network

import pytest

from keel.errors import DeadlinePassed, Exit, PortTaken, ProcFailed, Refused
from keel.ports import Completed, WgBackend, WgPeer
from keel.system.wireguard import WireGuardTools
from keel.types import Endpoint, Secret, WgKey
from tests.fakes import Call, Effects, FakeProc, FakeUnits, VirtualClock

PRIVATE = Secret(bytes(range(32)))
PRIVATE_TEXT = base64.b64encode(bytes(range(32))) + b"\n"
KEY = WgKey(base64.b64encode(b"\x01" * 32).decode())
OTHER = WgKey(base64.b64encode(b"\x02" * 32).decode())
ADDRESS = IPv6Address("fd00:1:2::1")
PREFIX = IPv6Network("fd00:1:2::/64")
UNIT = "keel-wireguard@keel0.service"
SHOW_LINK = ("ip", "-j", "-d", "address", "show", "dev", "keel0")
SHOW_DEVICE = ("wg", "show", "keel0", "dump")
ADD_LINK = ("ip", "link", "add", "dev", "keel0", "type", "wireguard")


def _failed(text: str, returncode: int = 1) -> Completed:
    return Completed(returncode=returncode, stdout=b"", stderr=text.encode())


ABSENT = _failed('Device "keel0" does not exist.\n')


def _link(
    *, kind: str = "wireguard", mtu: int = 1280, up: bool = True, addresses: tuple[str, ...] = ()
) -> bytes:
    pairs = [each.split("/") for each in addresses]
    link = {
        "flags": ["UP"] if up else [],
        "mtu": mtu,
        "linkinfo": {"info_kind": kind},
        "addr_info": [
            {"family": "inet6", "local": host, "prefixlen": int(length), "scope": "global"}
            for host, length in pairs
        ],
    }
    return json.dumps([link]).encode()


def _dump(*peers: str, port: int = 51820) -> bytes:
    lines = [f"{OTHER}\t{OTHER}\t{port}\toff", *peers]
    return "".join(f"{line}\n" for line in lines).encode()


class Played:
    """A machine with one interface, as far as these commands go."""

    def __init__(self) -> None:
        self.proc = FakeProc()
        self.units = FakeUnits(Effects())
        self.clock = VirtualClock()
        self.tools = WireGuardTools(self.proc, self.units, self.clock)
        self.proc.answers[SHOW_LINK] = _link()
        self.proc.answers[SHOW_DEVICE] = _dump()

    def changes(self) -> list[tuple[str, bytes]]:
        """Every command but those that only look, with its stdin."""
        looking = (SHOW_LINK, SHOW_DEVICE)
        return [(" ".join(c.argv), c.stdin) for c in self.proc.calls if c.argv not in looking]


@pytest.fixture
def played() -> Played:
    return Played()


def test_an_interface_that_is_not_there_is_none(played: Played) -> None:
    played.proc.answers[SHOW_LINK] = ABSENT
    assert played.tools.show("keel0") is None


def test_an_interface_that_cannot_be_looked_at_is_a_failure(played: Played) -> None:
    played.proc.answers[SHOW_LINK] = _failed("Cannot open netlink socket")
    with pytest.raises(ProcFailed):
        played.tools.show("keel0")


def test_an_interface_of_another_kind_is_refused(played: Played) -> None:
    played.proc.answers[SHOW_LINK] = _link(kind="bridge")
    with pytest.raises(Refused) as caught:
        played.tools.show("keel0")
    assert caught.value.rule == "interface-taken"


@pytest.mark.parametrize(
    ("kind", "backend"),
    [
        pytest.param("wireguard", WgBackend.KERNEL, id="kernel"),
        pytest.param("tun", WgBackend.USERSPACE, id="wireguard-go"),
    ],
)
def test_the_backend_is_seen_at_the_kind_of_link(
    played: Played, kind: str, backend: WgBackend
) -> None:
    played.proc.answers[SHOW_LINK] = _link(kind=kind, addresses=("fd00:1:2::1/128",))
    device = played.tools.show("keel0")
    assert device is not None
    assert (device.backend, device.addresses, device.port) == (backend, (ADDRESS,), 51820)


def test_the_kernels_interface_is_made_with_its_key_by_stdin(played: Played) -> None:
    made = iter([ABSENT, _link(up=False, mtu=1420), _link(up=False, mtu=1420)])
    played.proc.answers[SHOW_LINK] = lambda _: next(made)
    played.proc.answers[SHOW_DEVICE] = _dump(port=0)
    backend = played.tools.raise_interface("keel0", port=51820, mtu=1280, private=PRIVATE)
    assert backend is WgBackend.KERNEL
    assert played.changes() == [
        (" ".join(ADD_LINK), b""),
        ("wg set keel0 listen-port 51820 private-key /dev/stdin", PRIVATE_TEXT),
        ("ip link set dev keel0 mtu 1280 up", b""),
    ]
    assert played.units.effects.done == []


def test_one_that_is_up_keeps_its_socket_and_gets_only_its_key(played: Played) -> None:
    played.tools.raise_interface("keel0", port=51820, mtu=1280, private=PRIVATE)
    assert played.changes() == [("wg set keel0 private-key /dev/stdin", PRIVATE_TEXT)]


def test_raising_looks_once(played: Played) -> None:
    """A join waits for every look: each is a program's start."""
    played.tools.raise_interface("keel0", port=51820, mtu=1280, private=PRIVATE)
    looks = [call.argv for call in played.proc.calls if call.argv in (SHOW_LINK, SHOW_DEVICE)]
    assert looks == [SHOW_LINK, SHOW_DEVICE]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        pytest.param(
            ["wg", "set", "keel0", "listen-port", "51820", "private-key", "/dev/stdin"],
            "Unable to modify interface: Address already in use",
            id="wireguard-go",
        ),
        pytest.param(
            ["ip", "link", "set", "dev", "keel0", "mtu", "1280", "up"],
            "RTNETLINK answers: Address already in use",
            id="kernel",
        ),
    ],
)
def test_a_port_that_another_program_has_is_named_and_the_same_command_goes_on(
    played: Played, command: list[str], words: str
) -> None:
    played.proc.answers[SHOW_LINK] = _link(up=False)
    played.proc.answers[SHOW_DEVICE] = _dump(port=0)
    played.proc.answers[tuple(command)] = _failed(words)
    with pytest.raises(PortTaken) as caught:
        played.tools.raise_interface("keel0", port=51820, mtu=1280, private=PRIVATE)
    assert caught.value.exit is Exit.INCOMPLETE
    assert "has UDP port 51820" in caught.value.summary()
    assert "sport = :51820" in caught.value.remedy()


def test_an_interface_that_cannot_be_set_for_another_reason_is_a_failure(played: Played) -> None:
    played.proc.answers[("wg", "set", "keel0", "private-key", "/dev/stdin")] = _failed("Permission")
    with pytest.raises(ProcFailed):
        played.tools.raise_interface("keel0", port=51820, mtu=1280, private=PRIVATE)


def test_the_mtu_is_never_under_1280(played: Played) -> None:
    played.proc.answers[SHOW_LINK] = _link(mtu=1500)
    played.tools.raise_interface("keel0", port=51820, mtu=1000, private=PRIVATE)
    assert played.changes()[-1] == ("ip link set dev keel0 mtu 1280 up", b"")


@pytest.mark.parametrize(
    "words", ["Error: Unknown device type.", "RTNETLINK answers: Operation not supported"]
)
def test_without_the_kernels_wireguard_goes_unit_is_started_and_waited_for(
    played: Played, words: str
) -> None:
    links = iter([ABSENT, ABSENT, *[_link(kind="tun")] * 9])
    dumps = iter([_failed("Unable to access interface"), *[_dump()] * 9])
    played.proc.answers[SHOW_LINK] = lambda _: next(links)
    played.proc.answers[SHOW_DEVICE] = lambda _: next(dumps)
    played.proc.answers[ADD_LINK] = _failed(words, 2)
    backend = played.tools.raise_interface("keel0", port=51820, mtu=1280, private=PRIVATE)
    assert backend is WgBackend.USERSPACE
    assert played.units.effects.done == [f"start {UNIT}"]
    assert played.clock.monotonic() == pytest.approx(0.2)


def test_a_wireguard_go_that_makes_nothing_is_given_up_by_name(played: Played) -> None:
    played.proc.answers[SHOW_LINK] = ABSENT
    played.proc.answers[ADD_LINK] = _failed("Error: Unknown device type.", 2)
    with pytest.raises(DeadlinePassed, match=UNIT):
        played.tools.raise_interface("keel0", port=51820, mtu=1280, private=PRIVATE)
    assert played.clock.monotonic() == pytest.approx(10, abs=0.2)


def test_an_interface_that_wg_cannot_reach_is_a_failure_in_the_end(played: Played) -> None:
    played.proc.answers[SHOW_DEVICE] = _failed("Unable to access interface")
    with pytest.raises(ProcFailed):
        played.tools.raise_interface("keel0", port=51820, mtu=1280, private=PRIVATE)


def test_another_failure_to_make_it_is_not_taken_for_a_missing_module(played: Played) -> None:
    played.proc.answers[SHOW_LINK] = ABSENT
    played.proc.answers[ADD_LINK] = _failed("RTNETLINK answers: Operation not permitted", 2)
    with pytest.raises(ProcFailed):
        played.tools.raise_interface("keel0", port=51820, mtu=1280, private=PRIVATE)
    assert played.units.effects.done == []


ROUTE = "ip -6 route replace fd00:1:2::/64 dev keel0"
ADD = "ip -6 address add fd00:1:2::1/128 dev keel0 nodad"


@pytest.mark.parametrize(
    ("there", "commands"),
    [
        pytest.param((), [ADD, ROUTE], id="none"),
        pytest.param(("fd00:1:2::1/128",), [ROUTE], id="the right one"),
        pytest.param(
            ("fd00:1:2:0:ffff::9/128",),
            [ADD, ROUTE, "ip -6 address del fd00:1:2:0:ffff::9/128 dev keel0"],
            id="the temporary one goes after its own is there",
        ),
        pytest.param(
            ("fd00:1:2::1/64",),
            ["ip -6 address del fd00:1:2::1/64 dev keel0", ADD, ROUTE],
            id="with another prefix length",
        ),
    ],
)
def test_exactly_one_address_stays(
    played: Played, there: tuple[str, ...], commands: list[str]
) -> None:
    played.proc.answers[SHOW_LINK] = _link(addresses=there)
    played.tools.set_address("keel0", ADDRESS, PREFIX)
    assert [command for command, _ in played.changes()] == commands


def test_an_address_for_no_interface_fails_as_ip_does(played: Played) -> None:
    played.proc.answers[SHOW_LINK] = ABSENT
    played.proc.answers["ip", "-6", "address", "add"] = ABSENT
    with pytest.raises(ProcFailed):
        played.tools.set_address("keel0", ADDRESS, PREFIX)


PEER = WgPeer(key=KEY, allowed=IPv6Address("fd00:1:2::7"))
THERE = f"{KEY}\t(none)\t203.0.113.1:5\tfd00:1:2::7/128\t0\t0\t0\toff"
THERE_WITH_PSK = THERE.replace("(none)", OTHER)


@pytest.mark.parametrize(
    ("peer", "there", "command", "stdin"),
    [
        pytest.param(
            PEER, [], "persistent-keepalive 10 allowed-ips fd00:1:2::7/128", b"", id="plain"
        ),
        pytest.param(
            PEER,
            [THERE],
            "persistent-keepalive 10 allowed-ips fd00:1:2::7/128",
            b"",
            id="the learned endpoint is left alone",
        ),
        pytest.param(
            WgPeer(key=KEY, allowed=PEER.allowed, endpoint=Endpoint.parse("[2001:db8::1]:7")),
            [],
            "endpoint [2001:db8::1]:7 persistent-keepalive 10 allowed-ips fd00:1:2::7/128",
            b"",
            id="endpoint",
        ),
        pytest.param(
            WgPeer(key=KEY, allowed=PEER.allowed, preshared=PRIVATE, keepalive_seconds=25),
            [THERE_WITH_PSK],
            "preshared-key /dev/stdin persistent-keepalive 25 allowed-ips fd00:1:2::7/128",
            PRIVATE_TEXT,
            id="preshared key",
        ),
        pytest.param(
            PEER,
            [THERE_WITH_PSK],
            "preshared-key /dev/null persistent-keepalive 10 allowed-ips fd00:1:2::7/128",
            b"",
            id="preshared key taken away",
        ),
    ],
)
def test_a_peer_is_set_in_one_command(
    played: Played, peer: WgPeer, there: list[str], command: str, stdin: bytes
) -> None:
    played.proc.answers[SHOW_DEVICE] = _dump(*there)
    played.tools.set_peer("keel0", peer)
    assert played.changes() == [(f"wg set keel0 peer {KEY} {command}", stdin)]


@pytest.mark.parametrize(
    ("peer", "rule"),
    [
        pytest.param(
            WgPeer(key=OTHER, allowed=PEER.allowed), "allowed-address-taken", id="a theft"
        ),
        pytest.param(
            WgPeer(key=KEY, allowed=PEER.allowed, endpoint=Endpoint.parse("[fd00:1:2::9]:5")),
            "endpoint-inside-mesh",
            id="a tunnel in itself",
        ),
    ],
)
def test_a_peer_that_breaks_a_rule_is_refused_and_nothing_runs(
    played: Played, peer: WgPeer, rule: str
) -> None:
    played.proc.answers[SHOW_LINK] = _link(addresses=("fd00:1:2::1/128",))
    played.proc.answers[SHOW_DEVICE] = _dump(THERE)
    with pytest.raises(Refused) as caught:
        played.tools.set_peer("keel0", peer)
    assert caught.value.rule == rule
    assert played.changes() == []


def test_a_peer_for_no_interface_fails_as_wg_does(played: Played) -> None:
    played.proc.answers[SHOW_LINK] = ABSENT
    played.proc.answers["wg", "set"] = _failed("Unable to modify interface: No such device")
    with pytest.raises(ProcFailed):
        played.tools.set_peer("keel0", PEER)


def test_a_peer_is_removed_by_key(played: Played) -> None:
    played.tools.remove_peer("keel0", KEY)
    assert played.changes() == [(f"wg set keel0 peer {KEY} remove", b"")]


def test_dropping_the_kernels_interface_deletes_it(played: Played) -> None:
    played.tools.drop_interface("keel0")
    assert played.changes() == [("ip link delete dev keel0", b"")]
    assert played.units.effects.done == []


def test_dropping_wireguard_goes_stops_its_unit(played: Played) -> None:
    played.units.unit(UNIT).active = True
    played.proc.answers[SHOW_LINK] = _link(kind="tun")
    played.tools.drop_interface("keel0")
    assert played.changes() == []
    assert played.units.effects.done == [f"stop {UNIT}"]


def test_dropping_what_is_not_there_is_done_already(played: Played) -> None:
    played.proc.answers[SHOW_LINK] = ABSENT
    played.tools.drop_interface("keel0")
    assert played.changes() == []


def test_no_secret_is_ever_in_an_argument(played: Played) -> None:
    played.tools.raise_interface("keel0", port=1, mtu=1280, private=PRIVATE)
    played.tools.set_peer("keel0", WgPeer(key=KEY, allowed=PEER.allowed, preshared=PRIVATE))
    text = PRIVATE_TEXT.decode().strip()

    def shows(call: Call) -> bool:
        return any(text in word for word in call.argv)

    assert not any(shows(call) for call in played.proc.calls)
