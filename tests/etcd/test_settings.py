"""Which settings etcd is not started with, whoever added them to keel's."""

from __future__ import annotations

import pytest

from keel.mesh.etcdconf import EtcdSettings, render_env
from keel.mesh.etcdmsg import RecordState
from keel.mesh.etcdsettings import HARM, foreign, harmful
from tests.etcd import make

ENV = render_env(
    EtcdSettings(
        address=make.address("c"),
        members=(make.address("c"),),
        state=RecordState.EXISTING,
        token="t",
    )
)
OWN = dict(line.split("=", 1) for line in ENV.decode().splitlines()[1:])


@pytest.mark.parametrize(
    "added",
    [
        {},
        {"ETCD_LOG_LEVEL": "debug", "GOGC": "50"},
        {"ETCD_FORCE_NEW_CLUSTER": "false", "ETCD_WAL_DIR": ""},
        {"ETCD_INITIAL_CLUSTER_STATE": "new"},
        {"ETCD_QUOTA_BACKEND_BYTES": "4194304"},
        {"ETCD_CERT_FILE": "/elsewhere", "ETCD_PEER_KEY_FILE": "/elsewhere"},
        {"DAEMON_ARGS": ""},
        {"DAEMON_ARGS": "--log-level=debug --force-new-cluster=false"},
    ],
    ids=[
        "nothing",
        "a log level",
        "off",
        "a birth's state",
        "a quota",
        "certificates",
        "no arguments",
        "harmless arguments",
    ],
)
def test_what_does_no_harm_is_the_operator_s_own(added: dict[str, str]) -> None:
    assert foreign({**OWN, **added}, ENV) is None


def test_a_guard_that_is_run_by_hand_sees_nothing_of_etcd_s() -> None:
    assert foreign({"PATH": "/usr/bin"}, ENV) is None


@pytest.mark.parametrize("name", HARM)
def test_a_harmful_setting_is_named_with_what_it_does(name: str) -> None:
    assert harmful({**OWN, name: "true"}) == f"{name}, which {HARM[name]}"


@pytest.mark.parametrize("words", ["--force-new-cluster", "-x --force-new-cluster=true"])
def test_a_flag_is_as_good_as_its_variable(words: str) -> None:
    found = foreign({**OWN, "DAEMON_ARGS": words}, ENV)
    assert found is not None
    assert found.startswith("ETCD_FORCE_NEW_CLUSTER")


@pytest.mark.parametrize(
    "name", ["ETCD_DATA_DIR", "ETCD_INITIAL_CLUSTER", "ETCD_HEARTBEAT_INTERVAL"]
)
def test_another_value_for_one_of_keel_s_is_named(name: str) -> None:
    assert foreign({**OWN, name: "/elsewhere"}, ENV) == f"another {name} than keel's"
