"""The composition root: what it wires, and what it leaves for later."""

from __future__ import annotations

import io
import subprocess
import sys
from ipaddress import IPv6Address
from pathlib import Path

import keel
from keel.cli.compose import Gateways, compose
from keel.mesh.etcdclient import GatewayClient
from keel.paths import Paths
from keel.system.clock import SystemClock
from keel.system.fs import DurableFiles

REPOSITORY = Path(keel.__file__).parent.parent


def test_an_overlay_that_comes_or_goes_is_seen_by_a_host_that_is_there(
    tmp_path: Path,
) -> None:
    host = compose(verbose=False, stderr=io.StringIO(), paths=Paths(tmp_path))
    assert host.paths.spec == tmp_path / "etc/keel/spec.yaml"
    assert not host.overlay_etcd_installed
    host.paths.capability_marker.parent.mkdir(parents=True)
    host.paths.capability_marker.touch()
    assert host.overlay_etcd_installed
    host.paths.capability_marker.unlink()
    assert not host.overlay_etcd_installed


def test_composing_loads_neither_http_nor_certificates() -> None:
    heavy = ("requests", "cryptography", "nacl", "pyroute2", "jinja2", "rich")
    code = (
        "import io, sys; from keel.cli.compose import compose;"
        "compose(verbose=False, stderr=io.StringIO());"
        f"print(sorted(set({heavy!r}) & {{n.partition('.')[0] for n in sys.modules}}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_what_a_join_needs_of_the_mesh_loads_nothing_of_the_registry() -> None:
    """Imports are most of what a short command takes."""
    code = (
        "import sys; import keel.mesh.join, keel.spec.specfile;"
        "print(sorted(n for n in sys.modules if n.startswith('keel.mesh.etcd')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_the_gateway_gets_the_newest_leaves_that_are_whole(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    for number, names in ((1, ("client.pem", "member.pem")), (2, ("member.pem",))):
        paths.leaf(number).mkdir(parents=True)
        for name in names:
            (paths.leaf(number) / name).touch()
    gateway = Gateways(paths, DurableFiles(), SystemClock())(IPv6Address("::1"))
    assert isinstance(gateway, GatewayClient)
    assert gateway._files.client == paths.client_credential(1)
    assert gateway._files.member == paths.member_credential(1)
