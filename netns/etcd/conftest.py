"""A birth of three, shared by the tests that leave it healthy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from netns.etcd.cluster import NOW, Network, enter_own_network, until
from tests.pki import make as pki


@pytest.fixture(scope="session")
def _own_network() -> None:
    enter_own_network()


@pytest.fixture
def network(_own_network: None, tmp_path: Path) -> Iterator[Network]:
    made = Network(scratch=tmp_path, root=pki.root(now=NOW))
    yield made
    made.close()


@pytest.fixture
def born(network: Network) -> Network:
    for name in "abc":
        network.member(name)
    for name in "abc":
        network.members[name].start("abc")
    until(lambda: all(network.client(name).status().leader for name in "abc"))
    return network
