"""What on an underlay is WireGuard and what isn't."""

import struct
from pathlib import Path

import pytest

from netns.underlay import BadCapture, Found, inspect, kind_of

RAW, ETHERNET = 101, 1
PORT = 51820


def udp(message: bytes, *, source: int = PORT, target: int = PORT) -> bytes:
    return struct.pack("!HHHH", source, target, 8 + len(message), 0) + message


def ipv4(segment: bytes, *, protocol: int = 17, fragment: int = 0) -> bytes:
    size = 20 + len(segment)
    head = struct.pack("!BBHHHBBH", 0x45, 0, size, 7, fragment, 64, protocol, 0)
    return head + bytes(8) + segment


def ipv6(segment: bytes, *, protocol: int = 17) -> bytes:
    return struct.pack("!IHBB", 6 << 28, len(segment), protocol, 64) + bytes(32) + segment


def message(kind: int, size: int) -> bytes:
    return bytes((kind, 0, 0, 0)) + b"x" * (size - 4)


def pcap(*packets: bytes, link: int = RAW, order: str = "<") -> bytes:
    head = struct.pack(f"{order}IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 2048, link)
    records = (struct.pack(f"{order}IIII", 1, 2, len(p), len(p)) + p for p in packets)
    return head + b"".join(records)


@pytest.mark.parametrize(
    ("link", "packet", "kind"),
    [
        pytest.param(RAW, ipv4(udp(message(1, 148))), "initiation", id="initiation"),
        pytest.param(RAW, ipv4(udp(message(2, 92))), "response", id="response"),
        pytest.param(RAW, ipv6(udp(message(3, 64))), "cookie", id="cookie over IPv6"),
        pytest.param(RAW, ipv6(udp(message(4, 32))), "data", id="keepalive"),
        pytest.param(RAW, ipv4(udp(message(4, 1312))), "data", id="data"),
        pytest.param(
            ETHERNET, bytes(12) + b"\x08\x00" + ipv4(udp(message(4, 96))), "data", id="frame"
        ),
        pytest.param(ETHERNET, bytes(12) + b"\x08\x06" + bytes(28), "arp", id="arp"),
        pytest.param(RAW, ipv6(b"\x87" + bytes(23), protocol=58), "neighbours", id="solicitation"),
        pytest.param(RAW, ipv6(b"\x80" + bytes(7), protocol=58), "", id="ping"),
        pytest.param(RAW, ipv4(bytes(20), protocol=6), "", id="tcp"),
        pytest.param(RAW, ipv4(udp(b"GET / HTTP/1.1\r\n\r\n")), "", id="plain words"),
        pytest.param(RAW, ipv4(udp(message(5, 96))), "", id="another type"),
        pytest.param(RAW, ipv4(udp(b"\x04\x00\x01\x00" + bytes(92))), "", id="not reserved zeros"),
        pytest.param(RAW, ipv4(udp(message(1, 149))), "", id="a size no initiation has"),
        pytest.param(RAW, ipv4(udp(message(4, 100))), "", id="a size no data has"),
        pytest.param(RAW, ipv4(udp(message(4, 96), source=9)), "", id="another source port"),
        pytest.param(RAW, ipv4(udp(message(4, 96), target=53)), "", id="another target port"),
        pytest.param(RAW, ipv4(udp(message(4, 96)), fragment=0x2000), "", id="fragment"),
        pytest.param(RAW, b"", "", id="nothing"),
    ],
)
def test_only_wireguard_between_its_ports_and_neighbour_discovery_may_be_there(
    link: int, packet: bytes, kind: str
) -> None:
    assert kind_of(link, packet) == kind


@pytest.mark.parametrize("order", ["<", ">"], ids=["little", "big"])
def test_a_planted_packet_is_found_among_the_others(tmp_path: Path, order: str) -> None:
    file = tmp_path / "x.pcap"
    good = ipv4(udp(message(4, 96)))
    file.write_bytes(pcap(good, ipv4(bytes(20), protocol=6), good, order=order))
    found = inspect(file)
    assert found.packets == 3
    assert found.kinds == {"data": 2}
    assert len(found.foreign) == 1
    assert found.foreign[0].startswith("packet 2: 45")


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\x0a\x0d\x0d\x0a" + bytes(40), id="pcapng"),
        pytest.param(pcap(link=113), id="another link type"),
        pytest.param(pcap(b"x" * 40)[:-1], id="cut"),
    ],
)
def test_what_is_no_capture_is_not_taken_for_a_clean_one(tmp_path: Path, raw: bytes) -> None:
    file = tmp_path / "x.pcap"
    file.write_bytes(raw)
    with pytest.raises(BadCapture):
        inspect(file)


def test_the_summary_counts_kinds_and_foreign_packets() -> None:
    found = Found(kinds={"data": 2, "arp": 1}, foreign=("packet 3: 45",))
    assert str(found) == "4 packets: 1 arp, 2 data; 1 foreign"
