"""etcd's IDs, computed as etcd does."""

from __future__ import annotations

import itertools
from ipaddress import IPv6Address

import pytest

from keel.mesh.etcdids import (
    address_of_url,
    birth_id,
    client_url,
    cluster_id,
    cluster_token,
    id_text,
    member_id,
    member_name,
    peer_url,
)
from keel.types import FormationId, MeshId

A, B, C = (IPv6Address(f"fd00:1::{n}") for n in ("a", "b", "c"))
TOKEN = cluster_token(MeshId("00112233445566778899aabbccddeeff"), FormationId("0123456789abcdef"))

# what etcd 3.5.16-4 answered to `member list` after a birth with these URLs and this token
RECORDED_MEMBERS = ["31faaaa332293f33", "90a06699d09defe4", "628f7bfb9d9cc338"]
RECORDED_CLUSTER = "8817406062fafabe"


def test_urls_and_names_have_one_spelling() -> None:
    long = IPv6Address("fd00:0001:0000:0000:0000:0000:0000:000A")
    assert peer_url(long) == "https://[fd00:1::a]:2380"
    assert client_url(long) == "https://[fd00:1::a]:2379"
    assert member_name(long) == "keel-fd00000100000000000000000000000a"


def test_the_token_names_mesh_and_formation() -> None:
    assert TOKEN == "keel-00112233445566778899aabbccddeeff-0123456789abcdef"


def test_ids_are_those_that_etcd_3_5_16_printed_for_these_urls_and_this_token() -> None:
    assert [id_text(member_id(member, TOKEN)) for member in (A, B, C)] == RECORDED_MEMBERS
    assert id_text(birth_id((A, B, C), TOKEN)) == RECORDED_CLUSTER


def test_the_cluster_id_does_not_hang_on_the_order_of_members() -> None:
    ids = [member_id(member, TOKEN) for member in (A, B, C)]
    assert len({cluster_id(order) for order in itertools.permutations(ids)}) == 1


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("https://[fd00:1::a]:2380", A),
        ("https://[fd00:1:0::A]:2380", A),
        ("https://web-1:2380", None),
        ("nonsense", None),
        ("https://[fd00", None),
    ],
)
def test_urls_are_compared_as_addresses(url: str, address: IPv6Address | None) -> None:
    assert address_of_url(url) == address
