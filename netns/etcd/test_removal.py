"""The hazards of removal and revocation, each against Debian 13's own etcd (E5, E18).

What etcd does wrong by itself is shown beside what keel does about it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from typing import cast

import pytest

from keel.errors import EtcdError, PkiRejected
from keel.mesh import etcdchange, expulsion
from keel.mesh.etcdcert import serial_of
from keel.mesh.etcdchange import AlreadySo, Changed, MemberList, NoQuorum, VoterDown
from keel.mesh.etcdclient import GatewayClient
from keel.mesh.etcdcrl import Reason, Revoked, new_crl, read_crl
from keel.mesh.etcdids import member_id
from keel.mesh.etcdtrust import encode_bundle, parse_bundle
from keel.mesh.etcdwords import Cause, GrpcCode, cause_of
from keel.mesh.expulsion import Gate, Seat
from keel.ports import Host
from keel.types import LOCALHOST, EtcdMemberId
from netns.etcd.cluster import (
    ELECTIONS,
    NOW,
    TOKEN,
    Network,
    RealClock,
    address,
    credential,
    lay,
    panics,
    until,
)
from netns.process import SHORT_PATIENCE_SECONDS
from tests.pki import make as pki


class Deaf(GatewayClient):
    """A member whose answer to the next removal is lost on the way."""

    lost = 0

    def remove(self, member_id: int, *, timeout_seconds: float = 20.0) -> None:
        super().remove(member_id, timeout_seconds=timeout_seconds)
        Deaf.lost -= 1
        if Deaf.lost >= 0:
            raise EtcdError(GrpcCode.DEADLINE, "context deadline exceeded")


@dataclass(frozen=True)
class At:
    """As much of a Host as a change of the list needs: the gateways, seen from one member."""

    network: Network
    me: str
    kind: type[GatewayClient] = GatewayClient
    names: Mapping[IPv6Address, str] = field(
        default_factory=lambda: {address(name): name for name in "abcde"}
    )

    def etcd_at(self, where: IPv6Address) -> GatewayClient:
        name = self.me if where == LOCALHOST else self.names[where]
        return self.kind(address(name), self.network.members[self.me].files, RealClock())

    @property
    def host(self) -> Host:
        return cast(Host, self)


def ident(name: str) -> EtcdMemberId:
    return EtcdMemberId(member_id(address(name), TOKEN))


def taken_out(
    network: Network, by: str, name: str, kind: type[GatewayClient] = GatewayClient
) -> bool:
    """One try; with the leader gone the list can't be read before the others elected one."""
    change = etcdchange.remove(At(network, by, kind).host, ident(name))
    return isinstance(change, Changed | AlreadySo)


def refused(act: Callable[[], object]) -> bool:
    try:
        act()
    except EtcdError as error:
        return cause_of(error) is Cause.NO_ANSWER
    return False


def revocation_of(network: Network, name: str) -> Revoked:
    mine = credential(name, network.root, kind="client").chain[0]
    return Revoked(serial=serial_of(mine), reason=Reason.CESSATION, at=NOW)


def leader(network: Network, *names: str) -> str:
    """Who leads, by the word of each of these; empty while they do not agree on one."""
    said = {network.client(name).status().leader for name in names}
    return next((name for name in "abcde" if said == {ident(name)}), "")


def seats(network: Network, *silent: str) -> tuple[Seat, ...]:
    at = next(name for name in "abc" if name not in silent)
    found = etcdchange.read_list(At(network, at).host)
    assert isinstance(found, MemberList)
    return tuple(
        Seat(
            id=EtcdMemberId(one.id),
            name=name,
            address=address(name),
            learner=one.learner,
            healthy=name not in silent,
        )
        for one in found.members
        for name in "abc"
        if one.id == ident(name)
    )


# --- the CRL


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(None, id="missing"),
        pytest.param(b"", id="empty"),
        pytest.param(b"\0" * 40, id="garbage"),
        pytest.param(b"# a comment\n-----BEGIN X509 CRL-----\n", id="a comment before a PEM"),
    ],
)
def test_without_a_crl_every_handshake_is_refused_until_it_is_laid_again(
    born: Network, damage: bytes | None
) -> None:
    crl = born.members["b"].scratch / "crl.der"
    good = crl.read_bytes()
    crl.unlink() if damage is None else crl.write_bytes(damage)
    assert refused(born.client("b", of="a").status)
    with pytest.raises(PkiRejected):
        read_crl(damage or b"", [born.root.certificate])
    crl.write_bytes(good)
    until(lambda: born.client("b", of="a").status().leader)


def test_an_older_crl_lets_a_revoked_member_in_again_so_keel_takes_none(born: Network) -> None:
    entry = revocation_of(born, "a")
    older = (born.members["b"].scratch / "crl.der").read_bytes()
    lay(born.members["b"], born.root, entry, number=2)
    assert refused(born.client("b", of="a").status)
    (born.members["b"].scratch / "crl.der").write_bytes(older)
    until(lambda: born.client("b", of="a").status().leader)
    roots = [born.root.certificate]
    newer = read_crl(new_crl(born.root, [entry], number=2, now=NOW), roots)
    assert read_crl(older, roots).number < newer.number


def test_a_stranger_s_crl_revokes_so_keel_lays_only_the_root_s(born: Network) -> None:
    stranger = pki.root(generation=2, now=NOW)
    forged = new_crl(stranger, [revocation_of(born, "a")], number=9, now=NOW)
    (born.members["b"].scratch / "crl.der").write_bytes(forged)
    assert refused(born.client("b", of="a").status)
    with pytest.raises(PkiRejected):
        read_crl(forged, [born.root.certificate])


def test_a_truncated_trust_file_starts_with_fewer_roots_so_the_guard_looks_first(
    born: Network,
) -> None:
    other = pki.root(generation=2, now=NOW)
    both = encode_bundle([born.root.certificate, other.certificate])
    cut = both[: both.rindex(b"-----END") - 20]
    c = born.members["c"]
    c.kill()
    (c.scratch / "trust.pem").write_bytes(cut)
    c.start("abc")
    assert c.process is not None
    until(lambda: b"serving client traffic" in c.log.read_bytes())
    assert c.process.poll() is None  # it says nothing about the block that it left out
    with pytest.raises(PkiRejected):
        parse_bundle(cut)


# --- the list


def test_a_removal_whose_answer_is_lost_is_seen_to_be_done(born: Network) -> None:
    Deaf.lost = 1
    until(lambda: taken_out(born, "a", "c", Deaf))
    assert Deaf.lost == 0
    assert {one.id for one in born.client("b").members()} == {ident("a"), ident("b")}


def test_the_peer_that_would_cost_the_quorum_is_not_taken_out(born: Network) -> None:
    until(lambda: leader(born, "a", "b", "c"))
    born.members["b"].kill()
    until(lambda: leader(born, "a", "c") in ("a", "c"))  # it may have been b
    found = seats(born, "b")
    assert expulsion.gate(found, address("c")) is Gate.NO_QUORUM
    assert expulsion.gate(found, address("b")) is Gate.OPEN
    # and etcd itself, once it has noticed
    until(
        lambda: isinstance(etcdchange.remove(At(born, "a").host, ident("c")), VoterDown | NoQuorum)
    )
    until(lambda: taken_out(born, "a", "b"))
    born.client("a").put(b"after", b"1")


def test_of_two_voters_one_is_taken_out_while_both_serve_and_never_afterwards(
    born: Network,
) -> None:
    until(lambda: taken_out(born, "a", "c"))
    until(lambda: leader(born, "a", "b") in ("a", "b"))
    until(lambda: taken_out(born, "a", "b"))
    until(lambda: born.client("a").status().leader)
    born.client("a").put(b"alone", b"1")
    b = born.members["b"]
    assert b.process is not None
    # a removed member ends well: the unit is not `failed`
    assert b.process.wait(SHORT_PATIENCE_SECONDS) == 0


def test_a_revoked_leader_leads_on_until_it_is_taken_out_of_the_list(born: Network) -> None:
    for elected in ELECTIONS:
        until(lambda: leader(born, "a", "b", "c"))
        leads, term = leader(born, "a", "b", "c"), born.client("a").status().raft_term
        one, other = (name for name in "abc" if name != leads)
        for name in (one, other):
            crl = revocation_of(born, leads)
            lay(born.members[name], born.root, crl, number=2 + 2 * elected)
        assert refused(born.client(one, of=leads).status)
        for number in range(20):
            born.client(one).put(b"committed", str(number).encode())
        if born.client(one).status().raft_term == term:
            break
        # on a busy machine they elected anew by themselves, which says nothing: once more
        for name in (one, other):
            lay(born.members[name], born.root, number=3 + 2 * elected)
    assert leader(born, one, other) == leads
    until(lambda: taken_out(born, one, leads))
    until(lambda: leader(born, one, other) in (one, other))
    assert born.client(other).get(b"committed") == b"19"
    gone = born.members[leads]
    assert gone.process is not None
    assert gone.process.wait(SHORT_PATIENCE_SECONDS) == 0


def test_a_removed_member_that_comes_back_with_its_old_data_ends_at_once(born: Network) -> None:
    c = born.members["c"]
    c.kill()
    until(lambda: taken_out(born, "a", "c"))
    c.start("abc")
    assert c.process is not None
    assert c.process.wait(SHORT_PATIENCE_SECONDS) == 0
    assert {one.id for one in born.client("b").members()} == {ident("a"), ident("b")}


def put_back_an_old_disk(born: Network) -> None:
    """Last week's data for c, which has acknowledged fifty writes since."""
    c = born.members["c"]
    born.client("a").put(b"week", b"last")
    until(lambda: born.client("c").get(b"week") == b"last")
    c.kill()
    until(lambda: leader(born, "a", "b") in ("a", "b"))  # c itself may have led, and would again
    shutil.rmtree(c.scratch / "old", ignore_errors=True)
    shutil.copytree(c.scratch / "data", c.scratch / "old")
    c.start("abc")
    until(lambda: born.client("c").status().leader)
    for number in range(50):
        born.client("c").put(b"week", str(number).encode())
    c.kill()
    until(lambda: leader(born, "a", "b") in ("a", "b"))
    c.wipe()
    (c.scratch / "old").rename(c.scratch / "data")


def test_an_old_disk_makes_etcd_panic_while_the_leader_remembers(born: Network) -> None:
    """Last week's data has the same IDs; the leader knows what this member acknowledged since."""
    c = born.members["c"]
    for _ in ELECTIONS:
        put_back_an_old_disk(born)
        if panics(c, born.client("a"), lambda: c.start("abc")):
            break
        until(lambda: born.client("c").get(b"week") == b"49")
    else:
        raise AssertionError("never a panic")
    assert b"Was the raft log corrupted, truncated, or lost?" in c.log.read_bytes()


def test_an_old_disk_is_taken_without_a_word_by_a_leader_that_never_heard_it(born: Network) -> None:
    """What it promised since is forgotten: that is for keel's guard to find."""
    put_back_an_old_disk(born)
    for name in "ab":
        born.members[name].kill()
        born.members[name].start("abc")
    until(lambda: leader(born, "a", "b") in ("a", "b"))
    born.members["c"].start("abc")
    until(lambda: born.client("c").get(b"week") == b"49")
