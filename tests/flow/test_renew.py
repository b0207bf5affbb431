"""Renewal on whole nodes: new keys, no restart, and what etcd really shows (E4, E14)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509

from keel.cli import status
from keel.errors import Refused
from keel.mesh import (
    doctor,
    etcdcert,
    etcdcredentials,
    etcdissue,
    etcdpki,
    etcdrenew,
    etcdstore,
    renewal,
    store,
)
from keel.mesh.duty import Duty, Result
from keel.mesh.records import HOLDER
from keel.spec import apply
from keel.types import Secret
from tests.flow.arranged import arranged
from tests.flow.held import crl, failed
from tests.flow.world import World

DAY = 86400.0


@arranged
def three_in_a_cluster(scratch: Path) -> World:
    made = World(scratch)
    made.cluster("abc")
    assert made.formed("abc")
    return made


@pytest.fixture
def world(tmp_path: Path) -> World:
    return three_in_a_cluster(tmp_path)


def tend(world: World, name: str) -> dict[str, Duty]:
    world.sync(name)
    return {one.name: one for one in world.tend(name)}


def days(world: World, count: float) -> None:
    """Time passes, and nobody does anything."""
    world.net.clock.leap(count * DAY)
    world.net.clock.sleep(30)


def until_due(world: World, name: str, certificate: x509.Certificate) -> None:
    due = renewal.due_at(certificate, None, address=world.loaded(name).address)
    assert due is not None
    days(world, (due - world.host(name).clock.now()) / timedelta(days=1))


def leaf(world: World, name: str) -> etcdstore.Leaves:
    found = etcdstore.load_leaves(world.host(name))
    assert found is not None
    return found


def number(world: World, name: str) -> int:
    found = etcdstore.load_intermediate(world.host(name))
    assert found is not None
    return found[0]


def test_a_leaf_is_renewed_with_a_new_key_and_etcd_shows_it_without_a_restart(
    world: World,
) -> None:
    before, running = leaf(world, "b"), world.etcd.processes["b"]
    days(world, 19)
    assert tend(world, "b")["renewal"].result is Result.NOTHING
    days(world, 3)
    found = tend(world, "b")
    assert found["renewal"].result is Result.DONE
    assert found["served"].result is Result.NOTHING
    after = leaf(world, "b")
    assert after.number == before.number + 1
    assert after.member.key != before.member.key
    assert after.client.key != before.client.key
    assert world.etcd.processes["b"] is running
    host = world.host("b")
    assert host.etcd_at(world.loaded("b").address).served()[0] == etcdcert.der(after.member.leaf)
    assert host.overlay.laid("member.pem") == etcdpki.encode_credential(after.member)


def test_what_is_renewed_on_disk_but_not_served_is_a_failure_until_it_is(world: World) -> None:
    world.etcd.stuck["b"] = etcdcert.der(leaf(world, "b").member.leaf)
    days(world, 22)
    assert tend(world, "b")["served"].result is Result.FAILED
    assert failed(world, "b") == ["renewal-not-served"]
    world.etcd.stuck.clear()
    assert tend(world, "b")["served"].result is Result.NOTHING
    assert failed(world, "b") == []


def test_old_keys_go_once_the_new_ones_were_seen(world: World) -> None:
    host = world.host("b")
    for _ in range(3):
        days(world, 22)
        tend(world, "b")
    names = host.files.names(host.paths.etcd / "leaf")
    newest = leaf(world, "b").number
    assert names == (str(newest - 1), str(newest))


def test_a_cluster_that_is_off_says_nothing_of_what_it_shows(world: World) -> None:
    world.host("b").units.stop("etcd.service")
    world.net.nodes["b"].units.on_start["etcd.service"] = lambda: None
    assert "no handshake" in tend(world, "b")["served"].text


def test_an_intermediate_is_renewed_by_the_holder_under_a_new_key(world: World) -> None:
    before = etcdstore.load_intermediate(world.host("b"))
    days(world, 270)
    found = tend(world, "b")
    assert found["renewal"].result is Result.DONE
    after = etcdstore.load_intermediate(world.host("b"))
    assert before is not None
    assert after is not None
    assert after[0] == before[0] + 1
    assert after[1].key != before[1].key
    assert leaf(world, "b").member.chain[0] == after[1].certificate
    assert found["served"].result is Result.NOTHING


def test_the_holder_renews_its_own(world: World) -> None:
    days(world, 270)
    assert tend(world, "a")["renewal"].result is Result.DONE
    assert number(world, "a") == 2


def test_a_holder_that_is_away_is_waited_for_a_day_and_told_after_it(world: World) -> None:
    world.net.cut("a", "b")
    held = etcdstore.load_intermediate(world.host("b"))
    assert held is not None
    until_due(world, "b", held[1].certificate)
    found = tend(world, "b")["renewal"]
    assert found.waiting[0].waiting_for == "a"
    assert failed(world, "b") == []
    days(world, 1.6)
    assert tend(world, "b")["renewal"].result is Result.FAILED
    assert failed(world, "b") == ["renewal-late"]
    world.net.heal()
    assert tend(world, "b")["renewal"].result is Result.DONE
    assert failed(world, "b") == []


def test_leaves_are_renewed_while_the_holder_is_away(world: World) -> None:
    world.net.cut("a", "b")
    days(world, 270)
    tend(world, "b")
    left = leaf(world, "b").member.leaf.not_valid_after_utc - world.host("b").clock.now()
    assert left > timedelta(days=29)


def test_a_key_that_waits_for_its_grant_is_asked_for_again(world: World) -> None:
    world.net.cut("a", "b")
    days(world, 270)
    tend(world, "b")
    host = world.host("b")
    waiting = (host.paths.intermediate(2) / "key.pem").read_bytes()
    world.net.heal()
    tend(world, "b")
    found = etcdstore.load_intermediate(host)
    assert found is not None
    assert found[1].key == Secret(waiting)


def test_nothing_is_renewed_by_a_clock_that_differs(world: World) -> None:
    before = leaf(world, "b").number
    until_due(world, "b", leaf(world, "b").member.leaf)
    world.net.nodes["b"].clock.wrong_by = timedelta(minutes=10)
    found = tend(world, "b")["renewal"]
    assert (found.result, found.waiting[0].waiting_for) == (Result.WAITING, "the clock")
    assert leaf(world, "b").number == before


AHEAD = timedelta(days=300)


def boots_unheard(world: World, wrong_by: timedelta) -> None:
    """The holder, of whose leaf a third is left, comes back where nobody hears it."""
    until_due(world, "a", leaf(world, "a").member.leaf)
    world.net.nodes["a"].power_off()
    world.net.cut("a", "b")
    world.net.cut("a", "c")
    world.net.nodes["a"].clock.wrong_by = wrong_by
    world.boot("a")
    world.net.clock.sleep(60)


@pytest.mark.lives
def test_a_holder_that_hears_nobody_renews_nothing_by_the_clock_it_booted_with(
    world: World,
) -> None:
    before, crl = leaf(world, "a").number, etcdstore.load_crl(world.host("a"))
    boots_unheard(world, AHEAD)
    world.sync("a")
    for _ in range(2):
        duties = tend(world, "a")
        assert "no member was heard" in duties["renewal"].text
        assert "no member was heard" in duties["crl"].text
    assert leaf(world, "a").number == before
    assert etcdstore.load_crl(world.host("a")) == crl
    found = doctor.look_at_clock(world.host("a"))
    assert "no member was heard" in found.why
    assert "--accept-clock" in found.remedy
    world.net.heal()
    world.net.nodes["a"].clock.wrong_by = timedelta()
    world.sync("a")
    assert tend(world, "a")["renewal"].result is Result.DONE
    assert leaf(world, "a").number > before


VOUCHED = {
    "NTP": lambda world: setattr(world.net.nodes["a"].machine, "ntp", True),
    "the operator": lambda world: doctor.accept_clock(world.host("a")),
    "a member": lambda world: (world.net.heal(), world.sync("a")),
}


@pytest.mark.parametrize("who", VOUCHED)
def test_a_clock_that_somebody_vouched_for_since_the_boot_renews(world: World, who: str) -> None:
    boots_unheard(world, timedelta())
    assert tend(world, "a")["renewal"].result is Result.WAITING
    VOUCHED[who](world)
    assert tend(world, "a")["renewal"].result is Result.DONE


@pytest.mark.lives
def test_no_certificate_outlives_its_issuer(world: World) -> None:
    """The holder never comes back: at the end the leaf ends with its intermediate, and is not
    renewed over and over for that."""
    world.net.cut("a", "b")
    for _ in range(26):
        days(world, 14)
        tend(world, "b")
    found = etcdstore.load_intermediate(world.host("b"))
    assert found is not None
    ends = found[1].certificate.not_valid_after_utc
    assert leaf(world, "b").member.leaf.not_valid_after_utc == ends
    before = leaf(world, "b").number
    tend(world, "b")
    assert leaf(world, "b").number == before


def test_members_that_were_granted_together_do_not_renew_together(world: World) -> None:
    due = {
        renewal.due_at(
            leaf(world, name).member.leaf,
            leaf(world, name).member.chain[0],
            address=world.loaded(name).address,
        )
        for name in "abc"
    }
    assert len(due) == 3
    assert None not in due


def test_the_old_intermediate_is_revoked_once_the_new_one_was_seen_in_use(world: World) -> None:
    old = etcdstore.load_intermediate(world.host("b"))
    assert old is not None
    days(world, 270)
    world.etcd.stuck["b"] = etcdcert.der(leaf(world, "b").member.leaf)
    tend(world, "b")
    found = tend(world, "a")["superseded"]
    assert [one.waiting_for for one in found.waiting] == ["b"]
    assert not crl(world, "a").revokes(old[1].certificate)
    world.etcd.stuck.clear()
    assert tend(world, "a")["superseded"].result is Result.DONE
    assert crl(world, "a").revokes(old[1].certificate)
    new = etcdstore.load_intermediate(world.host("b"))
    assert new is not None
    assert not crl(world, "a").revokes(new[1].certificate)
    assert tend(world, "a")["superseded"].result is Result.NOTHING


def test_a_new_intermediate_of_a_member_that_is_silent_is_not_seen_in_use(world: World) -> None:
    days(world, 270)
    tend(world, "b")
    world.etcd.processes.pop("b")
    assert tend(world, "a")["superseded"].result is Result.WAITING
    world.net.cut("a", "b")
    assert tend(world, "a")["superseded"].result is Result.WAITING


def test_the_holders_own_old_intermediate_is_revoked_as_well(world: World) -> None:
    old = etcdstore.load_intermediate(world.host("a"))
    assert old is not None
    days(world, 270)
    tend(world, "a")
    tend(world, "a")
    assert crl(world, "a").revokes(old[1].certificate)


def test_a_holder_of_a_wrong_clock_revokes_nothing(world: World) -> None:
    days(world, 270)
    tend(world, "b")
    world.net.nodes["a"].clock.wrong_by = timedelta(minutes=10)
    assert tend(world, "a")["superseded"].waiting[0].waiting_for == "the clock"


def certificates(world: World, name: str) -> list[str]:
    found = apply.differences(world.host(name))
    return [one.now for one in found if one.name == "etcd.certificates"]


def test_diff_shows_a_certificate_that_ends_within_a_week(world: World) -> None:
    assert certificates(world, "b") == []
    days(world, 23.5)
    (drift,) = certificates(world, "b")
    assert "the member certificate ends 2026-01-31" in drift
    tend(world, "b")
    assert certificates(world, "b") == []


def test_diff_shows_a_renewal_that_failed(world: World) -> None:
    world.etcd.stuck["b"] = etcdcert.der(leaf(world, "b").member.leaf)
    days(world, 22)
    tend(world, "b")
    (drift,) = certificates(world, "b")
    assert "etcd still shows another certificate" in drift


def test_without_a_holder_an_intermediate_waits(world: World) -> None:
    days(world, 270)
    host, node = world.host("b"), world.loaded("b")
    host.paths.holder_statement.unlink()
    entries = {h: e for h, e in node.roster.entries.items() if e.kind != HOLDER}
    alone = replace(node, roster=replace(node.roster, entries=entries))
    with pytest.raises(Refused) as caught:
        etcdrenew.duty(host, alone)
    assert "none is a member now" in caught.value.summary()


def grant_anew(world: World, name: str) -> None:
    """The holder a signed it, and its member has not heard of it."""
    there, here = world.host(name), world.host("a")
    etcdstore.begin_intermediate(there)
    asked = etcdcredentials.enrolment(there, world.loaded(name))
    admitted = {one.key: one.address for one in world.loaded("a").view.members}
    with store.locked(here, "the mesh"):
        etcdissue.grant(here, world.loaded("a"), asked, admitted=admitted)


@pytest.mark.parametrize("formed", [True, False], ids=["in a cluster", "without one"])
def test_a_grant_that_its_member_did_not_take_yet_replaces_nothing(
    tmp_path: Path, formed: bool
) -> None:
    made = three_in_a_cluster(tmp_path) if formed else World(tmp_path)
    if not formed:
        made.mesh("ab")
        made.timers("a", "b")
    grant_anew(made, "b")
    found = tend(made, "a")["superseded"]
    assert [one.waiting_for for one in found.waiting] == ["b"]
    assert crl(made, "a").revoked == ()


def test_of_members_without_a_cluster_their_signed_word_is_enough(tmp_path: Path) -> None:
    made = World(tmp_path)
    made.mesh("ab")
    made.timers("a", "b")
    days(made, 270)
    assert tend(made, "b")["renewal"].result is Result.DONE
    assert tend(made, "a")["superseded"].result is Result.DONE
    assert len(crl(made, "a").revoked) == 2


ROOTS = {
    "made by a clock that ran ahead": (-400, "root-not-valid", "begins", "keel mesh doctor"),
    "valid": (100, None, "", ""),
    "near its end": (3600, "root-ends", "ends", "nothing renews a root"),
    "ended": (3700, "root-not-valid", "ended", "nothing renews a root"),
}


@pytest.mark.parametrize("when", ROOTS)
def test_a_root_at_a_time_at_which_it_is_not_valid_is_no_renewal_s_to_mend(
    world: World, when: str
) -> None:
    days_on, code, words, remedy = ROOTS[when]
    world.net.nodes["b"].clock.wrong_by = timedelta(days=days_on)
    found = status.look(world.host("b"))["warnings"]
    assert isinstance(found, list)
    said = [one for one in found if one["code"].startswith("root-")]
    assert [one["code"] for one in said] == ([code] if code else [])
    for one in said:
        assert words in one["text"]
        assert remedy in one["remedy"]
        assert "tend" not in one["remedy"]
    assert "root" not in [one["text"].split()[1] for one in found if "certificate-" in one["code"]]
    assert not any("root certificate" in text for text in certificates(world, "b"))
