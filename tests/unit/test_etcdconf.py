"""What etcd is started with, byte for byte (C1 to C4)."""

from __future__ import annotations

import re
from ipaddress import IPv6Address, IPv6Network
from pathlib import Path

import pytest

from keel.mesh.etcdconf import (
    PROXY_VARIABLES,
    EtcdSettings,
    render_drop_in,
    render_env,
    state_of_env,
)
from keel.mesh.etcdids import cluster_token
from keel.mesh.etcdmsg import RecordState
from keel.types import FormationId, MeshId

GOLDEN = Path(__file__).parent / "golden" / "etcd"
A, B, C = (IPv6Address(f"fd12:3456:789a::{n}:1") for n in ("a", "b", "c"))
TOKEN = cluster_token(MeshId("00112233445566778899aabbccddeeff"), FormationId("0123456789abcdef"))


def settings(
    *, address: IPv6Address = A, state: RecordState = RecordState.NEW, quota: int | None = None
) -> EtcdSettings:
    plain = EtcdSettings(address=address, members=(C, A, B), state=state, token=TOKEN)
    if quota is None:
        return plain
    return EtcdSettings(
        address=address, members=(C, A, B), state=state, token=TOKEN, quota_bytes=quota
    )


def variables(env: bytes) -> dict[str, str]:
    lines = [line for line in env.decode().splitlines() if not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)  # type: ignore[misc]  # two items each


def test_the_environment_of_a_birth_is_the_golden_one() -> None:
    assert render_env(settings()) == (GOLDEN / "etcd.env").read_bytes()


def test_the_drop_in_is_the_golden_one() -> None:
    made = render_drop_in(IPv6Network("fd12:3456:789a::/64"))
    assert made == (GOLDEN / "50-keel.conf").read_bytes()


def test_members_differ_only_in_their_own_name_and_address() -> None:
    mine, other = variables(render_env(settings())), variables(render_env(settings(address=B)))
    assert {name for name in mine if mine[name] != other[name]} == {
        "ETCD_NAME",
        "ETCD_LISTEN_PEER_URLS",
        "ETCD_LISTEN_CLIENT_URLS",
        "ETCD_INITIAL_ADVERTISE_PEER_URLS",
        "ETCD_ADVERTISE_CLIENT_URLS",
    }


def test_the_spec_may_ask_for_a_larger_quota() -> None:
    assert (
        variables(render_env(settings(quota=1 << 30)))["ETCD_QUOTA_BACKEND_BYTES"] == "1073741824"
    )


@pytest.mark.parametrize(
    "never",
    [
        "ETCD_LISTEN_CLIENT_HTTP_URLS",
        "ETCD_CLIENT_CERT_ALLOWED_HOSTNAME",
        "ETCD_CIPHER_SUITES",
        "ETCD_PEER_CERT_ALLOWED_CN",
        "ETCD_FORCE_NEW_CLUSTER",
    ],
)
def test_settings_that_break_a_promise_are_never_written(never: str) -> None:
    assert never not in variables(render_env(settings()))


def test_nothing_listens_on_a_wildcard_or_on_plain_text_but_for_metrics_on_loopback() -> None:
    env = variables(render_env(settings()))
    urls = ",".join(env[f"ETCD_LISTEN_{kind}_URLS"] for kind in ("PEER", "CLIENT", "METRICS"))
    assert urls.split(",") == [
        f"https://[{A}]:2380",
        f"https://[{A}]:2379",
        "https://[::1]:2379",
        "http://[::1]:2381",
    ]


def test_no_value_needs_quoting_by_systemd() -> None:
    for name, value in variables(render_env(settings())).items():
        assert re.fullmatch(r"ETCD_[A-Z_]+", name)
        assert not set(value) & set("\"'\\ \t$#;"), name


def test_proxies_are_unset_in_both_spellings() -> None:
    line = next(
        line
        for line in render_drop_in(IPv6Network("fd12::/64")).decode().splitlines()
        if line.startswith("UnsetEnvironment=")
    )
    assert set(line.removeprefix("UnsetEnvironment=").split()) == set(PROXY_VARIABLES)
    assert {"https_proxy", "HTTPS_PROXY"} <= set(PROXY_VARIABLES)


@pytest.mark.parametrize("state", list(RecordState))
def test_the_state_is_read_back_from_what_was_written(state: RecordState) -> None:
    assert state_of_env(render_env(settings(state=state))) is state


@pytest.mark.parametrize(
    "env",
    [b"", b"ETCD_INITIAL_CLUSTER_STATE=other\n", b"\xff\xfe", b"X=new\n"],
    ids=["empty", "unknown state", "not text", "another variable"],
)
def test_an_environment_without_a_state_has_none(env: bytes) -> None:
    assert state_of_env(env) is None
