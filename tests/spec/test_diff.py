from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import IPv6Address

import pytest

from keel.mesh import etcdplan
from keel.outcome import Plan, Step
from keel.ports import UnitState, WgBackend, WgDevice, WgPeerState
from keel.spec import diff
from keel.spec.diff import Action, NodeView, decide, differences, etcd_differences
from keel.spec.model import Network, Spec, TcpBound
from keel.types import Capability, WgKey
from keel.unitnames import CHANNEL_SOCKET, MESH_UNIT, TIMERS

ADDRESS = IPv6Address("fd12:3456:789a::1")
RUNS = UnitState(active="active", sub="running", main_pid=1, invocation_id="", enabled="enabled")
SPEC = Spec()


def make_peer(*, keepalive: int = 10, preshared: bool = False) -> WgPeerState:
    return WgPeerState(
        key=WgKey("k" * 44),
        endpoint=None,
        allowed=(),
        latest_handshake=None,
        received_bytes=0,
        sent_bytes=0,
        keepalive_seconds=keepalive,
        has_preshared=preshared,
    )


DEVICE = WgDevice(
    name="keel0",
    key=WgKey("k" * 44),
    port=51820,
    backend=WgBackend.KERNEL,
    mtu=1280,
    addresses=(ADDRESS,),
    peers=(make_peer(),),
)
AS_WANTED = NodeView(
    address=ADDRESS,
    device=DEVICE,
    tcp_bound="tcp_retries2=5",
    capability=Capability.ETCD,
    units=dict.fromkeys(diff.UNITS, RUNS),
    channel_drop_in=f"[Socket]\nListenStream=\nListenStream=[{ADDRESS}]:4780\n".encode(),
)
OFF = replace(SPEC, network=replace(Network(), tcp_bound=TcpBound.OFF))


def test_a_node_as_wanted_differs_in_nothing() -> None:
    assert differences(SPEC, AS_WANTED) == ()
    assert not decide(SPEC, AS_WANTED)


def test_a_node_in_no_mesh_has_nothing_to_be() -> None:
    bare = NodeView(
        address=None,
        device=None,
        tcp_bound="off",
        capability=Capability.NONE,
        units={},
        channel_drop_in=None,
    )
    assert differences(SPEC, bare) == ()


CASES: dict[str, tuple[Spec, NodeView, str, tuple[str, str], Action]] = {
    "mtu": (
        SPEC,
        replace(AS_WANTED, device=replace(DEVICE, mtu=1420)),
        "wireguard.mtu",
        ("1420", "1280"),
        Action.RAISE,
    ),
    "port": (
        SPEC,
        replace(AS_WANTED, device=replace(DEVICE, port=1)),
        "wireguard.port",
        ("1", "51820"),
        Action.RAISE,
    ),
    "no-address": (
        SPEC,
        replace(AS_WANTED, device=replace(DEVICE, addresses=())),
        "wireguard.address",
        ("-", ADDRESS.compressed),
        Action.RAISE,
    ),
    "keepalive-of-one-peer": (
        SPEC,
        replace(AS_WANTED, device=replace(DEVICE, peers=(make_peer(), make_peer(keepalive=25)))),
        "wireguard.keepalive",
        ("10 25", "10"),
        Action.RAISE,
    ),
    "tcp-not-bound": (
        SPEC,
        replace(AS_WANTED, tcp_bound="off"),
        "tcp_bound",
        ("off", "on"),
        Action.BOUND_TCP,
    ),
    "tcp-bound-against-the-spec": (OFF, AS_WANTED, "tcp_bound", ("on", "off"), Action.UNBOUND_TCP),
    "channel-elsewhere": (
        SPEC,
        replace(AS_WANTED, channel_drop_in=b"[Socket]\nListenStream=4780\n"),
        "channel.listen",
        ("4780", f"[{ADDRESS}]:4780"),
        Action.WRITE_CHANNEL,
    ),
    "channel-nowhere": (
        SPEC,
        replace(AS_WANTED, channel_drop_in=None),
        "channel.listen",
        ("-", f"[{ADDRESS}]:4780"),
        Action.WRITE_CHANNEL,
    ),
    "unit-stopped": (
        SPEC,
        replace(
            AS_WANTED,
            units={**AS_WANTED.units, "keel-mesh-sync.timer": replace(RUNS, active="inactive")},
        ),
        "unit.keel-mesh-sync.timer",
        ("enabled, inactive", "enabled, active"),
        Action.ENABLE,
    ),
}


@pytest.mark.parametrize(("spec", "view", "name", "texts", "action"), CASES.values(), ids=CASES)
def test_one_difference_is_one_step(
    spec: Spec, view: NodeView, name: str, texts: tuple[str, str], action: Action
) -> None:
    (found,) = differences(spec, view)
    assert (found.name, (found.now, found.wanted)) == (name, texts)
    (step,) = decide(spec, view).steps
    assert step.action == action


def test_without_an_interface_all_of_it_is_to_be_raised() -> None:
    found = decide(SPEC, replace(AS_WANTED, device=None))
    assert {step.action for step in found.steps} == {Action.RAISE}
    assert {step.subject for step in found.steps} == {
        "wireguard.interface",
        "wireguard.port",
        "wireguard.mtu",
        "wireguard.address",
    }


def test_an_invites_temporary_peer_needs_no_keepalive() -> None:
    peers = (make_peer(), make_peer(keepalive=0, preshared=True))
    assert not differences(SPEC, replace(AS_WANTED, device=replace(DEVICE, peers=peers)))


def test_a_node_that_cannot_run_etcd_leaves_tcp_alone() -> None:
    view = replace(AS_WANTED, capability=Capability.NONE)
    assert not differences(SPEC, view)
    assert not differences(SPEC, replace(view, tcp_bound="off"))


def test_the_channel_is_laid_before_the_units_that_need_it() -> None:
    nothing = replace(AS_WANTED, device=None, tcp_bound="off", units={}, channel_drop_in=None)
    order = list(dict.fromkeys(step.action for step in decide(SPEC, nothing).steps))
    assert order == [Action.WRITE_CHANNEL, Action.RAISE, Action.BOUND_TCP, Action.ENABLE]


def test_the_units_are_those_that_a_member_starts() -> None:
    assert set(diff.UNITS) == {MESH_UNIT, CHANNEL_SOCKET, *TIMERS}


NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("failures", "left", "drift"),
    [
        pytest.param((), timedelta(days=7), None, id="a week is left"),
        pytest.param((), timedelta(days=7, seconds=-1), "the member certificate", id="less"),
        pytest.param(("it failed",), timedelta(days=20), "it failed", id="a failure"),
    ],
)
def test_certificates_drift_when_they_end_soon_or_fail(
    failures: tuple[str, ...], left: timedelta, drift: str | None
) -> None:
    found = diff.certificate_differences(failures, {"member": NOW + left}, NOW)
    assert [one.name for one in found] == ([] if drift is None else ["etcd.certificates"])
    assert all(str(drift) in one.now for one in found)


def test_every_step_of_etcds_own_plan_is_told_as_a_thing_that_differs() -> None:
    steps = tuple(Step(action=one, subject="there", why="so it is") for one in etcdplan.Action)
    found = etcd_differences(Plan(steps=steps))
    assert all(one.now == "so it is" for one in found)
    assert sorted(one.name for one in found) == [
        "etcd.cluster",
        "etcd.data",
        "etcd.files",
        "etcd.leaves",
        "etcd.service",
        "etcd.stray",
        "etcd.unit",
        "overlays.etcd",
    ]
