"""Which settings etcd is not started with, whoever added them to keel's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from keel.mesh.etcdconf import EtcdSettings, render_env
from keel.mesh.etcdmsg import RecordState
from keel.mesh.etcdsettings import HARM, foreign, foreign_runs, harmful
from keel.ports import UnitRuns
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


PROGRAM = "{ path=/usr/bin/etcd ; argv[]=/usr/bin/etcd $DAEMON_ARGS ; ignore_errors=no ; pid=0 }"
GUARDED = (
    "{ path=/usr/libexec/keel/etcd-guard ; argv[]=/usr/libexec/keel/etcd-guard ;"
    " ignore_errors=no ; pid=0 }"
)
BY_KEEL = UnitRuns(start=PROGRAM, before=GUARDED, user="etcd")


@pytest.mark.parametrize(
    "runs",
    [
        BY_KEEL,
        UnitRuns(),
        replace(BY_KEEL, before="{ path=/bin/true ; argv[]=/bin/true }\n" + GUARDED),
        replace(BY_KEEL, before="{ path=/usr/bin/env ; argv[]=env A=b " + GUARDED),
        replace(BY_KEEL, start=PROGRAM.replace("$DAEMON_ARGS", "--log-level=debug")),
    ],
    ids=["keel's", "no unit", "one more before it", "a guard by way of env", "a harmless flag"],
)
def test_what_a_start_runs_beside_keel_s_own_is_the_operator_s(runs: UnitRuns) -> None:
    assert foreign_runs(runs) is None


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        (replace(BY_KEEL, start="{ path=/opt/etcd ; argv[]=/opt/etcd ; }"), "program, /opt/etcd"),
        (replace(BY_KEEL, start="{ of another shape }"), "another program"),
        (
            replace(BY_KEEL, start=PROGRAM.replace("$DAEMON_ARGS", "--wal-dir /w")),
            "ETCD_WAL_DIR, which",
        ),
        (replace(BY_KEEL, user="root"), "the user root"),
        (replace(BY_KEEL, user=""), "the user root"),
        (replace(BY_KEEL, before=""), "no guard of keel's"),
        (replace(BY_KEEL, before="{ path=/bin/true ; argv[]=/bin/true }"), "no guard of keel's"),
        (
            replace(BY_KEEL, before=GUARDED.replace("errors=no", "errors=yes")),
            "no guard of keel's",
        ),
    ],
    ids=[
        "a program",
        "not to be read",
        "a flag",
        "a user",
        "no user",
        "no guard",
        "another guard",
        "a guard that nobody heeds",
    ],
)
def test_another_program_user_or_no_guard_is_named(runs: UnitRuns, words: str) -> None:
    found = foreign_runs(runs)
    assert found is not None
    assert words in found
