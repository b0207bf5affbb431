"""Which of etcd's connections are dead, by the kernel's own table, and how they are ended."""

from __future__ import annotations

from ipaddress import IPv6Network
from pathlib import Path

import pytest

from keel.errors import DiskTrouble
from keel.system.deadtcp import Connection, dead, end_dead
from tests.fakes import FakeProc

HEAD = (
    "  sl  local_address                         remote_address                        st"
    " tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
)
MESH = IPv6Network("fdfa:e1b9:e037::/64")
HERE = "B9E1FAFD000037E00000000001000000"  # fdfa:e1b9:e037::1, as a little-endian machine writes it
THERE = "B9E1FAFD000037E00000000002000000"
STRANGER = "0D0001FD000000000000000002000000"
LEFT_5_S = "000001F4"
LEFT_12_S = "000004B0"


def line(
    *,
    near: str = f"{HERE}:8AF0",
    far: str = f"{THERE}:094C",
    state: str = "01",
    timer: str = f"02:{LEFT_5_S}",
    unanswered: int = 1,
) -> str:
    return (
        f"   3: {near} {far} {state} 00000000:00000000 {timer} 00000000   104        "
        f"{unanswered} 48693 2 00000000a7a8cd6e 47 4 24 10 -1\n"
    )


OURS = Connection(local="[fdfa:e1b9:e037::1]:35568", remote="[fdfa:e1b9:e037::2]:2380")
TAKEN = Connection(local="[fdfa:e1b9:e037::1]:2380", remote="[fdfa:e1b9:e037::2]:35568")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param(line(), (OURS,), id="one that this etcd dialled"),
        pytest.param(
            line(near=f"{HERE}:094C", far=f"{THERE}:8AF0"), (TAKEN,), id="one that it accepted"
        ),
        pytest.param(line(unanswered=0), (), id="answered"),
        pytest.param(line(timer=f"02:{LEFT_12_S}"), (), id="a probe that is on its way"),
        pytest.param(
            line(timer=f"02:{LEFT_12_S}", unanswered=2), (), id="another, on its way as well"
        ),
        pytest.param(line(timer=f"01:{LEFT_5_S}"), (), id="data that is sent again"),
        pytest.param(line(state="06"), (), id="one that has ended"),
        pytest.param(line(far=f"{THERE}:094B"), (), id="a client's"),
        pytest.param(line(far=f"{STRANGER}:094C"), (), id="outside the mesh"),
        pytest.param("", (), id="none at all"),
    ],
)
def test_dead_is_what_did_not_answer_a_probe(text: str, found: tuple[Connection, ...]) -> None:
    assert dead(HEAD + text, MESH, 2380) == found


def test_each_dead_connection_is_ended_by_itself(tmp_path: Path) -> None:
    table = tmp_path / "proc/net/tcp6"
    table.parent.mkdir(parents=True)
    table.write_text(HEAD + line() + line(unanswered=0) + line(near=f"{HERE}:8AF1"))
    proc = FakeProc()
    kill = ["ss", "-K", "-H", "-n", "-t", "src"]
    ended = (*kill, "[fdfa:e1b9:e037::1]:35569")
    proc.answers[ended] = b"ESTAB 0 0 [fdfa:e1b9:e037::1]:35569 [fdfa:e1b9:e037::2]:2380\n"
    found = end_dead(proc, MESH, 2380, root=tmp_path)
    assert [one.local for one in found] == ["[fdfa:e1b9:e037::1]:35569"]  # the kernel kept one
    assert [list(call.argv) for call in proc.calls] == [
        [*kill, "[fdfa:e1b9:e037::1]:35568", "dst", "[fdfa:e1b9:e037::2]:2380"],
        [*kill, "[fdfa:e1b9:e037::1]:35569", "dst", "[fdfa:e1b9:e037::2]:2380"],
    ]


def test_without_the_kernels_table_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(DiskTrouble, match="tcp6"):
        end_dead(FakeProc(), MESH, 2380, root=tmp_path)
