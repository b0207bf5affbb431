"""keel's settings, certificates, computed IDs and client against Debian 13's own etcd."""

from __future__ import annotations

import shutil
import ssl
from collections.abc import Callable
from dataclasses import replace
from ipaddress import IPv6Address
from pathlib import Path

import pytest

from keel.errors import EtcdError
from keel.etcdport import DataState
from keel.mesh.birth import Formation, Party
from keel.mesh.etcdcert import fingerprint, serial_of
from keel.mesh.etcdclient import GatewayClient, those_with_leader
from keel.mesh.etcdconf import EtcdSettings, render_env
from keel.mesh.etcdcrl import Reason, Revoked
from keel.mesh.etcdids import birth_id, member_id, member_name, peer_url
from keel.mesh.etcdmsg import RecordState, new_record
from keel.mesh.etcdpki import Credential, encode_credential
from keel.mesh.etcdstart import awaits
from keel.mesh.etcdwords import Cause, cause_of
from keel.paths import Paths
from keel.system.etcd import EtcdUnit
from keel.system.fs import DurableFiles
from keel.types import LOCALHOST, Nonce, SigningKey
from netns.etcd.cluster import (
    FORMATION,
    NOW,
    TOKEN,
    Member,
    Network,
    RealClock,
    address,
    binary,
    credential,
    from_inside,
    lay,
    run,
    until,
)
from netns.process import SHORT_PATIENCE_SECONDS
from tests.fakes.effects import Effects
from tests.fakes.machine import FakeProc, FakeUnits
from tests.pki import make as pki

ABC = [address(name) for name in "abc"]


def cause(act: Callable[[], object]) -> Cause:
    with pytest.raises(EtcdError) as caught:
        act()
    return cause_of(caught.value)


def test_every_variable_is_one_that_this_etcd_knows() -> None:
    known = run(str(binary()), "--help")
    settings = EtcdSettings(address=ABC[0], members=tuple(ABC), state=RecordState.NEW, token=TOKEN)
    for line in render_env(settings).decode().splitlines()[1:]:
        name = line.partition("=")[0].removeprefix("ETCD_").lower().replace("_", "-")
        assert f"--{name} " in known or f"--{name}\n" in known, name


def test_a_birth_has_the_ids_that_keel_computed(born: Network) -> None:
    status = born.client("b").status()
    assert status.cluster_id == birth_id(ABC, TOKEN)
    assert status.member_id == member_id(address("b"), TOKEN)
    assert status.version == "3.5.16"
    assert not status.learner
    assert {one.id for one in born.client("a").members()} == {
        member_id(each, TOKEN) for each in ABC
    }
    assert {one.name for one in born.client("c").members()} == {member_name(each) for each in ABC}


def test_what_is_written_through_one_member_is_read_through_another(born: Network) -> None:
    born.client("a").put(b"key", b"\x00\xff")
    assert born.client("c").get(b"key") == b"\x00\xff"
    assert born.client("c").get(b"other") is None


def test_it_listens_on_its_overlay_address_and_loopback_only(born: Network) -> None:
    a = born.members["a"]
    lines = run(*a.inside("ss", "-Hltn")).splitlines()
    assert {line.split()[3] for line in lines} == {
        f"[{a.address}]:2379",
        f"[{a.address}]:2380",
        "[::1]:2379",
        "[::1]:2381",
    }
    local = from_inside(a, lambda: born.client("a", local=True).status())
    assert local.cluster_id == birth_id(ABC, TOKEN)


def test_the_peer_port_tells_of_a_leader_before_the_client_port_serves(
    network: Network,
) -> None:
    for name in "abc":
        network.member(name)
    network.members["a"].start("abc")
    ask = network.client("a", of="b")
    until(lambda: not from_inside(network.members["b"], ask.had_leader))
    assert cause(lambda: ask.status(timeout_seconds=2)) is Cause.NO_ANSWER
    network.members["c"].start("abc")
    until(lambda: from_inside(network.members["b"], ask.had_leader))


def test_a_leader_is_remembered_by_one_that_starts_again_alone(born: Network) -> None:
    until(lambda: from_inside(born.members["b"], born.client("a", of="b").had_leader))
    born.client("a").put(b"key", b"value")
    for name in "abc":
        born.members[name].kill()
    born.members["a"].start("abc")
    b = born.members["b"]

    def at(where: IPv6Address) -> GatewayClient:
        return GatewayClient(where, b.files, RealClock())

    until(
        lambda: from_inside(b, lambda: those_with_leader(at, [ABC[0], ABC[2]], timeout_seconds=5))
        == (ABC[0],)
    )


def test_without_its_log_etcd_begins_anew_over_the_rest_and_keel_tells_the_two_apart(
    born: Network, tmp_path: Path
) -> None:
    c, paths = born.members["c"], Paths(root=tmp_path / "root")
    paths.etcd_data.parent.mkdir(parents=True)
    paths.etcd_data.symlink_to(c.scratch / "data")
    unit = EtcdUnit(paths, files=DurableFiles(), units=FakeUnits(Effects()), proc=FakeProc())
    assert unit.data_state() is DataState.PRESENT
    c.kill()
    before = c.log.stat().st_size
    shutil.rmtree(paths.etcd_log)
    assert unit.data_state() is DataState.NO_LOG
    c.start("abc", RecordState.EXISTING)
    until(lambda: list(paths.etcd_log.glob("*.wal")))
    until(lambda: b'"starting local member"' in c.log.read_bytes()[before:])


def test_the_late_third_is_awaited_and_joins_the_cluster_as_existing(network: Network) -> None:
    record = new_record(
        birth_of_three(),
        mesh=pki.MESH,
        epoch=1,
        nonce=Nonce("ab" * 16),
        state=RecordState.NEW,
        members=ABC,
        root=fingerprint(network.root.certificate),
        crl_number=1,
        holder=b"",
        now=NOW,
    )
    for name in "abc":
        network.member(name)
    network.members["a"].start("abc")
    network.members["c"].start("abc")
    until(lambda: network.client("a").status().leader)
    network.client("a").put(b"early", b"kept")

    def at(where: IPv6Address) -> GatewayClient:
        return GatewayClient(where, network.members["b"].files, RealClock())

    def awaited() -> bool:
        return awaits(at, [ABC[0], ABC[2]], record, ABC[1])

    assert awaited()
    network.members["b"].start("abc", RecordState.EXISTING)
    until(lambda: network.client("b").get(b"early") == b"kept")
    assert network.client("b").status().member_id == member_id(ABC[1], TOKEN)
    assert not awaited()


def birth_of_three() -> Formation:
    return Formation(
        formation=FORMATION,
        nonce=Nonce("ab" * 16),
        members=tuple(Party(address=each, key=SigningKey("00" * 32)) for each in ABC),
        cluster_id=birth_id(ABC, TOKEN),
        reserved=NOW,
        expires=NOW,
    )


def test_a_learner_is_added_refused_promoted_and_removed(born: Network) -> None:
    d = born.member("d")
    client = born.client("a")
    until(lambda: client.add_learner(peer_url(d.address)))  # refused for 5 s after a birth
    [added] = [one for one in client.members() if one.learner]
    assert (added.name, added.client_urls) == ("", ())
    assert cause(lambda: client.add_learner(peer_url(address("e")))) is Cause.TOO_MANY_LEARNERS
    assert cause(lambda: client.add_learner(peer_url(d.address))) in (
        Cause.ALREADY_THERE,
        Cause.TOO_MANY_LEARNERS,
    )
    assert cause(lambda: client.promote(added.id)) is Cause.NOT_IN_SYNC
    d.start("abcd", RecordState.EXISTING)
    until(lambda: born.client("d").status().learner)
    assert cause(lambda: born.client("d").members()) is Cause.LEARNER_CANNOT

    def promoted() -> bool:
        try:
            client.promote(added.id)
        except EtcdError as error:
            return cause_of(error) is Cause.NOT_A_LEARNER
        return True

    until(promoted)
    until(lambda: not born.client("d").status().learner)

    def removed() -> bool:
        client.remove(added.id)
        return True

    until(removed)
    assert cause(lambda: client.remove(added.id)) is Cause.GONE


def test_without_a_quorum_nothing_is_read_or_written_and_it_says_so(born: Network) -> None:
    born.members["b"].kill()
    born.members["c"].kill()
    client = born.client("a")
    until(lambda: client.status().leader == 0)
    assert "etcdserver: no leader" in client.status().errors
    assert cause(lambda: client.get(b"k", timeout_seconds=4)) is Cause.NO_ANSWER
    assert cause(lambda: client.remove(1, timeout_seconds=4)) is Cause.NO_ANSWER


# who is refused


def with_files(born: Network, made: Credential, tmp_path: Path, **changes: Path) -> GatewayClient:
    (tmp_path / "other.pem").write_bytes(encode_credential(made).reveal())
    other = tmp_path / "other.pem"
    files = replace(born.members["a"].files, client=other, member=other, **changes)
    return GatewayClient(address("b"), files, RealClock())


def test_no_certificate_another_root_and_tls_1_2_are_refused(born: Network, tmp_path: Path) -> None:
    stranger = pki.root(generation=2, now=NOW)
    foreign = with_files(born, credential("a", stranger, kind="client"), tmp_path)
    assert cause(foreign.status) is Cause.NO_ANSWER
    trust = born.members["a"].files.trust
    for settings in ({}, {"maximum_version": ssl.TLSVersion.TLSv1_2}):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(trust)
        for name, value in settings.items():
            context.load_cert_chain(born.members["a"].files.client)
            setattr(context, name, value)
        with pytest.raises(OSError, match=r"(?i)ssl|alert|reset|certificate"):
            _speak(context)


def _speak(context: ssl.SSLContext) -> bytes:
    import socket

    with (
        socket.create_connection(
            (address("b").compressed, 2379), timeout=SHORT_PATIENCE_SECONDS
        ) as plain,
        context.wrap_socket(plain, server_hostname=address("b").compressed) as tls,
    ):
        tls.sendall(
            b"POST /v3/maintenance/status HTTP/1.1\r\nHost: b\r\nContent-Length: 2\r\n\r\n{}"
        )
        return tls.recv(100)


def test_the_peer_port_is_shut_to_keel_s_client_leaf_and_to_another_member_s_address(
    born: Network, tmp_path: Path
) -> None:
    a = born.members["a"]
    good = GatewayClient(address("b"), a.files, RealClock())
    assert from_inside(a, good.had_leader)
    no_address = GatewayClient(address("b"), replace(a.files, member=a.files.client), RealClock())
    assert cause(lambda: from_inside(a, no_address.had_leader)) is Cause.NO_ANSWER
    another = with_files(born, credential("c", born.root, kind="member"), tmp_path)
    assert cause(lambda: from_inside(a, another.had_leader)) is Cause.NO_ANSWER


def test_a_revoked_intermediate_is_refused_at_once(born: Network) -> None:
    mine = credential("a", born.root, kind="client").chain[0]
    revoked = Revoked(serial=serial_of(mine), reason=Reason.CESSATION, at=NOW)
    client = born.client("b", of="a")
    until(lambda: client.status().leader)
    lay(born.members["b"], born.root, revoked, number=2)
    assert cause(client.status) is Cause.NO_ANSWER
    until(lambda: born.client("c", of="a").status().leader)


def test_users_that_somebody_enabled_bar_keel_until_its_line_is_typed(born: Network) -> None:
    a, client = born.members["a"], born.client("a")
    for words in ("user add root:x", "role add root", "user grant-role root root", "auth enable"):
        run(*a.inside(*etcdctl(a), *words.split()))
    until(lambda: cause(client.status) is Cause.BARRED)
    assert cause(lambda: client.remove(1)) is Cause.BARRED
    run(*a.inside(*etcdctl(a), "--user=root:x", "auth", "disable"))
    until(lambda: client.status().leader)


def etcdctl(of: Member) -> list[str]:
    """As `keel mesh etcd env` has it."""
    files = of.files
    return [
        str(binary().with_name("etcdctl")),
        f"--endpoints=https://[{LOCALHOST}]:2379",
        f"--cacert={files.trust}",
        f"--cert={files.client}",
        f"--key={files.client}",
    ]
