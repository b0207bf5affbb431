import dataclasses
import json
import struct

import pytest

from netns.link import Counters
from netns.netem import attach_commands, parse_counters, shape_commands
from netns.probe import Backend, BackendMissing, Choice, Facts, WireGuard, decide
from netns.topology import Quality, names, node, parse_quality
from netns.userspace import destination

A, B = names(2)
FULL = Facts(kernel="6.12", veth=True, bridge=True, netem=True, flower=True, wireguard=True)


def test_a_kernel_with_everything_gets_the_kernels_link_and_wireguard() -> None:
    assert decide(FULL) == Choice(link=Backend.NETEM, wireguard=WireGuard.KERNEL)


@pytest.mark.parametrize("missing", ["veth", "bridge", "netem", "flower"])
def test_a_kernel_that_lacks_a_part_of_the_link_gets_the_user_space_link(missing: str) -> None:
    facts = dataclasses.replace(FULL, **{missing: False})
    assert decide(facts) == Choice(link=Backend.USERSPACE, wireguard=WireGuard.KERNEL)


def test_a_kernel_without_wireguard_leaves_it_to_wireguard_go() -> None:
    facts = dataclasses.replace(FULL, wireguard=False)
    assert decide(facts) == Choice(link=Backend.NETEM, wireguard=WireGuard.WIREGUARD_GO)


def test_a_wanted_backend_is_taken() -> None:
    assert decide(FULL, "userspace").link == Backend.USERSPACE


@pytest.mark.parametrize(
    ("facts", "wanted"),
    [
        pytest.param(dataclasses.replace(FULL, netem=False), "netem", id="the kernel can't"),
        pytest.param(FULL, "carrier-pigeon", id="there is no such thing"),
    ],
)
def test_a_wanted_backend_that_is_not_there_is_refused(facts: Facts, wanted: str) -> None:
    with pytest.raises(BackendMissing, match="hint: unset KEEL_LINK"):
        decide(facts, wanted)


@pytest.mark.parametrize(
    ("packet", "expected"),
    [
        pytest.param(
            struct.pack(">B15x4s", 0x45, bytes([198, 51, 100, 2])),
            bytes([198, 51, 100, 2]),
            id="ipv4",
        ),
        pytest.param(struct.pack(">B23x16s", 0x60, b"y" * 16), b"y" * 16, id="ipv6"),
        pytest.param(bytes([0x45]) + bytes(18), b"", id="ipv4 cut short"),
        pytest.param(bytes([0x60]) + bytes(38), b"", id="ipv6 cut short"),
        pytest.param(bytes(60), b"", id="neither"),
        pytest.param(b"", b"", id="nothing"),
    ],
)
def test_the_destination_of_a_packet(packet: bytes, expected: bytes) -> None:
    assert destination(packet) == expected


def test_netem_is_told_what_was_asked() -> None:
    queue, match, size = shape_commands((A, B), parse_quality("125ms,12.5ms,1%"), 1)
    assert " ".join(queue) == (
        "tc -n hub qdisc replace dev port-b parent 1:2 handle 11: netem limit 100000 "
        "delay 125ms 12.5ms loss 1% seed 274"
    )
    assert " ".join(match) == (
        "tc -n hub filter replace dev port-b parent 1: protocol all prio 1 handle 1 "
        "flower src_mac 02:00:00:00:00:01 classid 1:2"
    )
    assert " ".join(size) == "ip -n hub link set port-b mtu 1500"


def test_netem_cuts_by_losing_everything() -> None:
    queue, *_ = shape_commands((A, B), Quality(cut=True), 1)
    assert "loss 100%" in " ".join(queue)


def test_netem_attaches_an_appliance_by_a_pair_with_its_addresses() -> None:
    lines = [" ".join(command) for command in attach_commands(node(B))]
    assert lines[0] == (
        "ip link add wan0 netns b address 02:00:00:00:00:02 type veth peer name port-b netns hub"
    )
    assert "ip -n b address add 198.51.100.2/24 dev wan0" in lines
    assert "ip -n b address add 2001:db8:64::2/64 dev wan0 nodad" in lines
    assert "ip -n b link set wan0 up" in lines


def test_netems_counters_are_read_per_sender() -> None:
    text = json.dumps(
        [
            {"kind": "prio", "parent": "", "packets": 9, "bytes": 900, "drops": 1},
            {"kind": "netem", "parent": "1:2", "packets": 8, "bytes": 800, "drops": 1},
        ]
    )
    assert parse_counters("b", text) == {(A, B): Counters(carried=8, carried_bytes=800, lost=1)}
