"""The gateway's client: rules J1 to J5, against bytes that were recorded from the real one."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator
from dataclasses import replace
from ipaddress import IPv6Address
from pathlib import Path

import pytest

from keel.errors import EtcdError, Internal
from keel.etcdport import EtcdMember, EtcdStatus
from keel.mesh import etcdclient
from keel.mesh.etcdcert import der
from keel.mesh.etcdclient import GatewayClient, Ports, those_with_leader
from keel.mesh.etcdpki import parse_credential
from keel.mesh.etcdwords import Alarm, Cause, GrpcCode, alarm_in, cause_of, corrupt_members
from keel.types import LOCALHOST, Secret
from tests.etcd.gateway import Gateway, serve, write_files
from tests.fakes import VirtualClock

HEADER = '"header":{"cluster_id":"12433456198711374685", "member_id":"10774284985251642079"}'
STATUS = (
    '{"header":{"cluster_id":"12433456198711374685", "member_id":"10774284985251642079",'
    ' "revision":"1", "raft_term":"2"}, "version":"3.5.16", "dbSize":"20480",'
    ' "leader":"18202867056464259622", "raftIndex":"8", "raftTerm":"2",'
    ' "raftAppliedIndex":"7", "dbSizeInUse":"16384"}'
)
STATUS_NO_LEADER = (
    '{"header":{"cluster_id":"12433456198711374685","member_id":"10774284985251642079",'
    '"revision":"2","raft_term":"2"},"version":"3.5.16","dbSize":"20480","raftIndex":"15",'
    '"raftTerm":"2","raftAppliedIndex":"15","errors":["etcdserver: no leader"],'
    '"isLearner":true,"dbSizeInUse":"16384"}'
)
UNSTARTED = (
    '{"ID":"17391024687927146502", "peerURLs":["https://[fd0a:1b2c:3d4e::64:1]:2380"],'
    ' "isLearner":true}'
)
STARTED = (
    '{"ID":"10774284985251642079", "name":"keel-fd0a1b2c3d4e00000000000000610001",'
    ' "peerURLs":["https://[fd0a:1b2c:3d4e::61:1]:2380"],'
    ' "clientURLs":["https://[fd0a:1b2c:3d4e::61:1]:2379"]}'
)
LEARNER = EtcdMember(
    id=17391024687927146502,
    name="",
    peer_urls=("https://[fd0a:1b2c:3d4e::64:1]:2380",),
    client_urls=(),
    learner=True,
)


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    with serve(tmp_path) as found:
        yield found


def asked(gateway: Gateway) -> tuple[str, dict[str, str], object]:
    """First line, headers in lower case, and the JSON of the last request."""
    head, _, body = gateway.requests[-1].decode().partition("\r\n\r\n")
    first, *lines = head.split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return first, headers, json.loads(body) if body else None


def error_of(act: Callable[[], object]) -> EtcdError:
    with pytest.raises(EtcdError) as caught:
        act()
    return caught.value


def test_a_status_is_read_with_its_64_bit_numbers(gateway: Gateway) -> None:
    gateway.says(STATUS.encode())
    assert gateway.client.status() == EtcdStatus(
        member_id=10774284985251642079,
        cluster_id=12433456198711374685,
        leader=18202867056464259622,
        raft_term=2,
        raft_index=8,
        applied_index=7,
        learner=False,
        db_size_bytes=20480,
        version="3.5.16",
        errors=(),
    )


MEMBERS = f'{{{HEADER}, "members":[{STARTED}]}}'


@pytest.mark.parametrize(
    ("each", "headers", "connections"),
    [
        pytest.param(2, "", 1, id="on one connection"),
        pytest.param(1, "Connection: close\r\n", 2, id="on two, when etcd closes the first"),
    ],
)
def test_a_look_asks_for_status_and_linearizable_list(
    gateway: Gateway, each: int, headers: str, connections: int
) -> None:
    gateway.each = each
    gateway.says(STATUS.encode(), headers=headers)
    gateway.says(MEMBERS.encode(), headers=headers)
    found = gateway.client.look()
    assert found.leader == 18202867056464259622
    assert found.members is not None
    assert [one.learner for one in found.members] == [False]
    assert gateway.connections == connections
    first, asked_with, body = asked(gateway)
    assert first == "POST /v3/cluster/member/list HTTP/1.1"
    assert asked_with["grpc-timeout"] == "15000m"
    assert body == {"linearizable": True}


def test_a_look_asks_no_list_of_one_without_a_leader(gateway: Gateway) -> None:
    gateway.says(STATUS_NO_LEADER.encode())
    assert gateway.client.look().members is None
    assert len(gateway.requests) == 1


def test_a_look_without_its_list_has_the_status(gateway: Gateway) -> None:
    gateway.each = 2
    gateway.says(STATUS.encode())
    gateway.says(b'{"code":4,"message":"etcdserver: request timed out"}', status=504)
    found = gateway.client.look()
    assert found.raft_index == 8
    assert found.members is None


def test_a_look_at_one_that_says_nothing_fails(gateway: Gateway) -> None:
    gateway.says(b"", status=503)
    assert error_of(gateway.client.look).grpc_code == GrpcCode.UNKNOWN


def test_what_is_zero_is_left_out(gateway: Gateway) -> None:
    gateway.says(STATUS_NO_LEADER.encode())
    found = gateway.client.status()
    assert (found.leader, found.learner, found.errors) == (0, True, ("etcdserver: no leader",))


def test_every_call_carries_a_time_below_the_client_s_own(gateway: Gateway) -> None:
    gateway.says(STATUS.encode())
    gateway.client.status()
    first, headers, body = asked(gateway)
    assert first == "POST /v3/maintenance/status HTTP/1.1"
    assert headers["grpc-timeout"] == "15000m"
    assert body == {}


def test_members_are_asked_for_linearizably(gateway: Gateway) -> None:
    gateway.says(f'{{{HEADER},\n "members":[{STARTED},  {UNSTARTED}]}}'.encode())
    started, unstarted = gateway.client.members()
    assert started.name == "keel-fd0a1b2c3d4e00000000000000610001"
    assert not started.learner
    assert unstarted == LEARNER
    assert asked(gateway)[2] == {"linearizable": True}


def test_a_member_s_own_copy_of_the_list_needs_no_quorum(gateway: Gateway) -> None:
    gateway.says(f'{{{HEADER}, "members":[{STARTED}]}}'.encode())
    (only,) = gateway.client.listed()
    assert only.name == "keel-fd0a1b2c3d4e00000000000000610001"
    assert asked(gateway)[2] == {"linearizable": False}


def test_a_learner_is_added_as_one_or_it_is_a_bug(gateway: Gateway) -> None:
    gateway.says(f'{{{HEADER}, "member":{UNSTARTED}, "members":[]}}'.encode())
    gateway.says(f'{{{HEADER}, "member":{STARTED}}}'.encode())
    url = LEARNER.peer_urls[0]
    assert gateway.client.add_learner(url) == LEARNER
    assert asked(gateway)[2] == {"peerURLs": [url], "isLearner": True}
    with pytest.raises(Internal, match="as a voter"):
        gateway.client.add_learner(url)


@pytest.mark.parametrize("verb", ["promote", "remove"])
def test_ids_are_sent_as_strings(gateway: Gateway, verb: str) -> None:
    gateway.says(f"{{{HEADER}}}".encode())
    getattr(gateway.client, verb)(LEARNER.id, timeout_seconds=4)
    first, headers, body = asked(gateway)
    assert first == f"POST /v3/cluster/member/{verb} HTTP/1.1"
    assert headers["grpc-timeout"] == "3000m"
    assert body == {"ID": "17391024687927146502"}


def test_an_alarm_is_taken_back_of_one_member_alone(gateway: Gateway) -> None:
    gateway.says(f"{{{HEADER}}}".encode())
    gateway.client.disarm(LEARNER.id)
    first, _, body = asked(gateway)
    assert first == "POST /v3/maintenance/alarm HTTP/1.1"
    assert body == {
        "action": "DEACTIVATE",
        "memberID": "17391024687927146502",
        "alarm": "CORRUPT",
    }


@pytest.mark.parametrize(
    ("errors", "found"),
    [
        ((), set()),
        (("etcdserver: no leader", "memberID:7 alarm:NOSPACE "), set()),
        (
            ("memberID:7 alarm:CORRUPT ", "memberID:18446744073709551615 alarm:CORRUPT "),
            {7, 2**64 - 1},
        ),
        (("memberID:x alarm:CORRUPT ", "alarm:CORRUPT"), set()),
    ],
    ids=["none", "others", "two", "no ID"],
)  # fmt: skip
def test_whose_data_etcd_calls_corrupt(errors: tuple[str, ...], found: set[int]) -> None:
    assert corrupt_members(errors) == found


def test_keys_and_values_are_bytes(gateway: Gateway) -> None:
    gateway.says(f"{{{HEADER}}}".encode())
    gateway.says(f'{{{HEADER}, "kvs":[{{"key":"a2V5", "value":"AP8="}}], "count":"1"}}'.encode())
    gateway.says(f'{{{HEADER}, "kvs":[{{"key":"a2V5"}}], "count":"1"}}'.encode())
    gateway.says(f"{{{HEADER}}}".encode())
    client = gateway.client
    client.put(b"key", b"\x00\xff")
    assert asked(gateway)[2] == {"key": "a2V5", "value": "AP8="}
    assert client.get(b"key") == b"\x00\xff"
    assert client.get(b"key") == b""
    assert client.get(b"other") is None


@pytest.mark.parametrize(
    ("version", "led"),
    [("not_decided", False), ("3.5.0", True), ("", False)],
)
def test_a_cluster_version_says_that_there_was_a_leader(
    gateway: Gateway, version: str, led: bool
) -> None:
    gateway.says(f'{{"etcdserver":"3.5.16","etcdcluster":"{version}"}}'.encode())
    assert gateway.client.had_leader() is led
    assert asked(gateway)[0] == "GET /version HTTP/1.1"


@pytest.mark.parametrize(
    ("said", "alarm"),
    [
        ("memberID:10501334649042878790 alarm:NOSPACE ", (10501334649042878790, Alarm.FULL)),
        ("memberID:7 alarm:CORRUPT ", (7, Alarm.CORRUPT)),
        ("memberID:7 alarm:NONE ", None),
        ("etcdserver: no leader", None),
    ],
)
def test_alarms_are_told_from_other_errors(said: str, alarm: tuple[int, Alarm] | None) -> None:
    assert alarm_in(said) == alarm


@pytest.mark.parametrize(
    ("status", "body", "cause"),
    [
        (503, '{"code":14, "message":"etcdserver: unhealthy cluster"}', Cause.UNHEALTHY),
        (503, '{"code":14, "message":"etcdserver: no leader"}', Cause.NO_LEADER),
        (503, '{"code":14, "message":"etcdserver: request timed out"}', Cause.NO_ANSWER),
        (504, '{"code":4, "message":"context deadline exceeded"}', Cause.NO_ANSWER),
        (
            400,
            '{"code":9, "message":"etcdserver: too many learner members in cluster"}',
            Cause.TOO_MANY_LEARNERS,
        ),
        (
            400,
            '{"code":9,  "message":"etcdserver: can only promote a learner member'
            ' which is in sync with leader"}',
            Cause.NOT_IN_SYNC,
        ),
        (
            400,
            '{"code":9, "message":"etcdserver: can only promote a learner member"}',
            Cause.NOT_A_LEARNER,
        ),
        (400, '{"code":9, "message":"etcdserver: Peer URLs already exists"}', Cause.ALREADY_THERE),
        (400, '{"code":9, "message":"etcdserver: member ID already exist"}', Cause.ALREADY_THERE),
        (404, '{"code":5, "message":"etcdserver: member not found"}', Cause.GONE),
        (
            503,
            '{"code":14,"message":"etcdserver: rpc not supported for learner"}',
            Cause.LEARNER_CANNOT,
        ),
        (
            429,
            '{"error":"x","code":8,"message":"etcdserver: mvcc: database space exceeded"}',
            Cause.FULL,
        ),
        (500, '{"error":{"grpc_code":13,"message":"boom"}}', Cause.OTHER),
        (400, "CommonName of client sending a request will be ignored", Cause.BARRED),
        (500, '{"code":"14","message":7}', Cause.OTHER),
        (500, "[]", Cause.OTHER),
    ],
    ids=[
        "unhealthy", "no leader", "timed out", "deadline", "learners", "not in sync",
        "no learner", "URL exists", "ID exists", "gone", "a learner", "full, upstream's form",
        "a stream's form", "plain text", "odd types", "no object",
    ],
)  # fmt: skip
def test_refusals_of_both_gateways_have_their_cause(
    gateway: Gateway, status: int, body: str, cause: Cause
) -> None:
    gateway.says(body.encode(), status=status)
    error = error_of(gateway.client.status)
    assert cause_of(error) is cause
    assert error.summary()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"header":[]}',
        STATUS.replace('"8"', "8").encode(),
        STATUS.replace('"8"', '"-8"').encode(),
        STATUS.replace('"8"', '"123456789012345678901"').encode(),
        STATUS.replace('"version":"3.5.16"', '"version":3').encode(),
        STATUS_NO_LEADER.replace("true", '"true"').encode(),
        STATUS_NO_LEADER.replace('["etcdserver: no leader"]', "[1]").encode(),
        STATUS_NO_LEADER.replace('["etcdserver: no leader"]', '"x"').encode(),
        b"[" * 100_000,
    ],
    ids=[
        "empty", "torn", "a list", "no header", "header is a list", "a bare number", "negative",
        "too long", "version is a number", "text for a flag", "errors of numbers",
        "errors are a text", "deep",
    ],
)  # fmt: skip
def test_an_answer_that_is_not_etcd_s_is_an_error(gateway: Gateway, body: bytes) -> None:
    gateway.says(body)
    assert error_of(gateway.client.status).grpc_code == GrpcCode.INTERNAL


@pytest.mark.parametrize(
    "body",
    ['{"kvs":{}}', '{"kvs":[1]}', '{"kvs":[{"value":"%"}]}'],
    ids=["no list", "no object", "no base64"],
)
def test_an_odd_value_is_an_error(gateway: Gateway, body: str) -> None:
    gateway.says(body.encode())
    assert error_of(lambda: gateway.client.get(b"k")).grpc_code == GrpcCode.INTERNAL


def test_an_answer_without_end_is_cut(gateway: Gateway) -> None:
    gateway.says(b" " * (etcdclient.MAX_ANSWER_BYTES + 1))
    assert error_of(gateway.client.status).grpc_code == GrpcCode.EXHAUSTED


def test_an_answer_until_the_connection_closes_is_read_whole(gateway: Gateway) -> None:
    gateway.answers.append(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + STATUS.encode())
    assert gateway.client.status().raft_index == 8


def test_silence_is_no_answer(gateway: Gateway) -> None:
    gateway.answers.append(b"")
    assert error_of(gateway.client.status).grpc_code == GrpcCode.UNAVAILABLE


def test_nobody_there_is_no_answer(tmp_path: Path) -> None:
    files = write_files(tmp_path)
    with serve(tmp_path) as gone:
        port = gone.port
    client = GatewayClient(
        LOCALHOST, files, VirtualClock(), ports=etcdclient.Ports(client=port, peer=port)
    )
    assert error_of(client.status).grpc_code == GrpcCode.UNAVAILABLE
    assert cause_of(error_of(client.status)) is Cause.NO_ANSWER


class Hurried(VirtualClock):
    """A clock on which every look costs ten seconds."""

    def monotonic(self) -> float:
        self.sleep(10)
        return super().monotonic()


def test_the_deadline_covers_the_whole_exchange(gateway: Gateway) -> None:
    gateway.says(STATUS.encode())
    gateway.clock = Hurried()
    assert error_of(lambda: gateway.client.status(timeout_seconds=5)).grpc_code == GrpcCode.DEADLINE


def test_tls_1_2_is_never_spoken(tmp_path: Path) -> None:
    with serve(tmp_path, latest=ssl.TLSVersion.TLSv1_2) as old:
        old.says(STATUS.encode())
        assert error_of(old.client.status).grpc_code == GrpcCode.UNAVAILABLE
        assert old.requests == []


def test_a_server_of_another_root_is_told_nothing(gateway: Gateway, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    gateway.says(STATUS.encode())
    gateway.files = write_files(other, generation=2)
    assert error_of(gateway.client.status).grpc_code == GrpcCode.UNAVAILABLE
    assert gateway.requests == []


@pytest.mark.parametrize("name", ["client", "trust"])
def test_without_certificates_of_its_own_nothing_is_sent(gateway: Gateway, name: str) -> None:
    getattr(gateway.files, name).unlink()
    assert error_of(gateway.client.status).grpc_code == GrpcCode.UNAUTHENTICATED
    assert gateway.requests == []


def test_the_peer_port_is_asked_with_the_member_s_certificate(gateway: Gateway) -> None:
    gateway.says(b'{"etcdcluster":"3.5.0"}')
    gateway.files = replace(gateway.files, client=gateway.files.client.with_name("none.pem"))
    assert gateway.client.had_leader()


def test_members_are_asked_at_once_and_silence_is_no_leader(gateway: Gateway) -> None:
    gateway.says(b'{"etcdcluster":"3.5.0"}')
    silent, led = IPv6Address("fd00::1"), IPv6Address("fd00::2")

    def at(member: IPv6Address) -> GatewayClient:
        if member == silent:
            raise EtcdError(GrpcCode.UNAVAILABLE, "nobody")
        return gateway.client

    assert those_with_leader(at, [silent, led], timeout_seconds=5) == (led,)
    assert those_with_leader(at, [], timeout_seconds=5) == ()


def test_the_leaf_that_is_shown_is_read_without_being_trusted(
    gateway: Gateway, tmp_path: Path
) -> None:
    shown = pem_leaf(gateway.files.member)
    stranger = write_files(tmp_path, generation=2)
    client = GatewayClient(
        LOCALHOST,
        replace(gateway.files, trust=stranger.trust),
        gateway.clock,
        ports=Ports(client=gateway.port, peer=gateway.port),
    )
    assert client.served() == (shown, shown)


def test_no_handshake_is_an_error_of_etcd(gateway: Gateway) -> None:
    client = GatewayClient(
        LOCALHOST, gateway.files, gateway.clock, ports=Ports(client=1, peer=gateway.port)
    )
    with pytest.raises(EtcdError) as caught:
        client.served()
    assert caught.value.grpc_code == GrpcCode.UNAVAILABLE


def test_a_handshake_has_a_deadline(gateway: Gateway) -> None:
    with pytest.raises(EtcdError) as caught:
        gateway.client.served(timeout_seconds=0.0)
    assert caught.value.grpc_code == GrpcCode.DEADLINE


def pem_leaf(path: Path) -> bytes:
    return der(parse_credential(Secret(path.read_bytes())).leaf)
