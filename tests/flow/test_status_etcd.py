"""What status, `--check` and `keel diff` say of the registry in every state (E19, E20, E21): golden
documents and texts of whole nodes, also with etcd down.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from keel.cli import etcd as cli_etcd
from keel.cli import status as cli
from keel.cli.spec import Diff
from keel.errors import KeelError
from keel.mesh import etcdlist, etcdstate, etcdstore, report, status
from keel.mesh.etcdlist import Known, Source
from keel.mesh.etcdlook import EtcdSeen
from keel.mesh.etcdstate import Failure
from keel.mesh.status import MeshSeen
from keel.outcome import Waiting
from keel.spec.model import Spec
from keel.types import LOCALHOST
from tests.fakes.etcd import Member
from tests.flow.steady import steady, steady_text
from tests.flow.test_form import mesh_without_root
from tests.flow.test_status import down, formed
from tests.flow.world import World

pytestmark = pytest.mark.lives

GOLDEN = Path(__file__).parent / "golden"
SPARE = "without it the cluster has no fault tolerance"
LISTED = "while it is listed the cluster has no fault tolerance"


def leader(world: World) -> str:
    (cluster,) = world.etcd.births()
    return next(n for n, one in world.etcd.processes.items() if one.member == cluster.leader)


def take_out(world: World, name: str) -> None:
    """etcd's list without it, as after a `member remove`."""
    (cluster,) = world.etcd.births()
    address = world.loaded(name).address.compressed
    gone = next(number for number, one in cluster.members.items() if address in one.peer_url)
    del cluster.members[gone]
    world.etcd.settle()


def two_ready(world: World) -> str:
    """Two capable members: never formed by two."""
    world.mesh("ab")
    world.timers()
    return "b"


def no_root(world: World) -> str:
    """Three capable members of a mesh without an etcd root."""
    mesh_without_root(world, "abc")
    return "b"


def forming(world: World) -> str:
    """Confirmed, told to start, and no leader yet: the other two do not start."""
    world.mesh("ab", spare="c")
    for name in "ab":
        world.etcd.guards[name] = lambda: False
    world.join("c", world.invite("a"))
    world.settle()
    return "c"


def follower_cut(world: World) -> str:
    formed(world)
    cut = next(name for name in "cba" if name != leader(world))
    for other in set("abc") - {cut}:
        world.net.cut(cut, other)
    world.net.clock.sleep(60)
    world.etcd.settle()
    return cut


def follower_cut_by_the_others(world: World) -> str:
    cut = follower_cut(world)
    return next(name for name in "abc" if name != cut)


def leader_cut(world: World) -> str:
    formed(world)
    cut = leader(world)
    for other in set("abc") - {cut}:
        world.net.cut(cut, other)
    world.net.clock.sleep(60)
    world.etcd.settle()
    return cut


def leader_cut_by_the_others(world: World) -> str:
    cut = leader_cut(world)
    return next(name for name in "abc" if name != cut)


def quorum_lost(world: World) -> str:
    formed(world)
    for name in "bc":
        world.net.nodes[name].power_off()
    world.net.clock.sleep(60)
    world.etcd.settle()
    return "a"


def quorum_lost_and_etcd_down(world: World) -> str:
    quorum_lost(world)
    world.net.nodes["a"].units.stop("etcd.service")
    return "a"


def etcd_of_another_down(world: World) -> str:
    formed(world)
    world.net.nodes["c"].units.stop("etcd.service")
    world.etcd.settle()
    return "a"


def cut_off_from_raft(world: World) -> str:
    """Its node is heard, and a firewall shuts etcd's own port."""
    formed(world)
    cut = next(name for name in "cba" if name != leader(world))
    world.etcd.shut.add(cut)
    world.etcd.settle()
    return cut


def others_etcd_down(world: World) -> str:
    """Every node is up, and only one etcd."""
    formed(world)
    for name in "bc":
        world.net.nodes[name].units.stop("etcd.service")
    world.etcd.settle()
    return "a"


def full(world: World) -> str:
    """c's database reached its quota, by a's word."""
    formed(world)
    world.etcd.full.add("c")
    return "a"


def corrupt(world: World) -> str:
    formed(world)
    world.etcd.corrupt.add("c")
    return "c"


def corrupt_and_gone(world: World) -> str:
    """The alarm of a member that has been replaced or taken out since."""
    formed(world)
    (cluster,) = world.etcd.births()
    cluster.alarms.add(81985529216486895)
    return "a"


def two_voters(world: World) -> str:
    formed(world)
    world.net.nodes["c"].units.stop("etcd.service")
    take_out(world, "c")
    return "a"


def one_voter(world: World) -> str:
    two_voters(world)
    world.net.nodes["b"].units.stop("etcd.service")
    take_out(world, "b")
    return "a"


def out_of_the_list(world: World) -> str:
    """c's etcd was taken out of the list; c is a member of the mesh still."""
    two_voters(world)
    return "c"


def fourth(world: World) -> None:
    formed(world)
    world.node("d")
    world.join("d", world.invite("a"))
    for name in "abcd":
        world.sync(name)


def learner(world: World) -> str:
    fourth(world)
    return "d"


def learner_by_another(world: World) -> str:
    fourth(world)
    return "a"


def learner_cut(world: World) -> str:
    """It does not say its list without a leader; the holder's record does."""
    fourth(world)
    for other in "abc":
        world.net.cut("d", other)
    world.net.clock.sleep(60)
    world.etcd.settle()
    return "d"


def in_line(world: World) -> str:
    """A fifth while the fourth is a learner."""
    fourth(world)
    world.node("e")
    world.join("e", world.invite("a"))
    for name in "abcde":
        world.sync(name)
    world.tend("e")
    return "e"


def holder_gone_and_in_line(world: World) -> str:
    in_line(world)
    world.net.nodes["a"].power_off()
    world.net.clock.sleep(60)
    world.etcd.settle()
    return "e"


def failed(world: World) -> str:
    """Something that the tend cannot do, kept until it is gone."""
    formed(world)
    host = world.host("a")
    etcdstore.save_failures(
        host,
        etcdstate.fail(
            etcdstore.load_failures(host),
            code="etcd-stray-foreign",
            subject="etcd",
            text="/var/lib/etcd/default has a member that keel did not make",
            remedy="move it away by hand",
            now=host.clock.now(),
        ),
    )
    return "a"


def data_lost(world: World) -> str:
    """Stopped, and its data directory gone."""
    formed(world)
    node = world.net.nodes["c"]
    node.units.stop("etcd.service")
    node.host.files.remove(node.paths.etcd_data)
    return "c"


def data_lost_and_tended(world: World) -> str:
    """Its tend has failed of that, too."""
    data_lost(world)
    world.tend("c")
    return "c"


def starting(world: World) -> str:
    """Just booted: systemd has started it, and it does not serve yet."""
    formed(world)
    world.net.nodes["c"].units.stop("etcd.service")
    comes_up(world, "c")
    return "c"


def starting_without_quorum(world: World) -> str:
    quorum_lost_and_etcd_down(world)
    comes_up(world, "a")
    return "a"


def comes_up(world: World, name: str) -> None:
    unit = world.net.nodes[name].units.unit("etcd.service")
    unit.active = unit.comes_up = True


STATES: dict[str, Callable[[World], str]] = {
    "two-ready": two_ready,
    "no-root": no_root,
    "forming": forming,
    "follower-cut": follower_cut,
    "follower-cut-by-the-others": follower_cut_by_the_others,
    "leader-cut": leader_cut,
    "leader-cut-by-the-others": leader_cut_by_the_others,
    "quorum-lost": quorum_lost,
    "quorum-lost-etcd-down": quorum_lost_and_etcd_down,
    "other-etcd-down": etcd_of_another_down,
    "cut-off-from-raft": cut_off_from_raft,
    "others-etcd-down": others_etcd_down,
    "two-voters": two_voters,
    "one-voter": one_voter,
    "out-of-the-list": out_of_the_list,
    "learner": learner,
    "learner-by-another": learner_by_another,
    "learner-cut": learner_cut,
    "in-line": in_line,
    "in-line-holder-gone": holder_gone_and_in_line,
    "failed": failed,
    "full": full,
    "corrupt": corrupt,
    "corrupt-and-gone": corrupt_and_gone,
    "data-lost": data_lost,
    "starting": starting,
    "starting-without-quorum": starting_without_quorum,
    "data-lost-and-tended": data_lost_and_tended,
}


def diff(world: World, name: str) -> str:
    """`keel diff`: its exit status and what it prints, or why it says nothing."""
    try:
        found = Diff().run(world.host(name))
    except KeelError as error:
        return f"exit {int(error.exit)}: {error.summary()}"
    return f"exit {int(found.exit)}\n{found.text}".rstrip()


@pytest.mark.parametrize("state", STATES)
def test_status_tells_the_truth_about_the_registry(state: str, tmp_path: Path) -> None:
    world = World(tmp_path)
    name = STATES[state](world)
    found: dict[str, Any] = steady(cli.look(world.host(name)))
    check = cli.Status(check=True).run(world.host(name)).exit
    about = {key: found[key] for key in ("etcd", "warnings")}
    text = "\n".join(
        (
            json.dumps(about, indent=2, sort_keys=True),
            "",
            cli.text(found),
            "",
            f"status --check: exit {int(check)}",
            f"diff: {diff(world, name)}",
            "",
        )
    )
    text = steady_text(text)
    golden = GOLDEN / f"etcd-{state}.txt"
    if os.environ.get("KEEL_GOLDEN") == "write":
        golden.write_text(text)
    assert text == golden.read_text()


def test_the_list_is_asked_of_a_voter_that_answers(tmp_path: Path) -> None:
    """The first one's keel answered and its etcd has stopped since."""
    world = World(tmp_path)
    formed(world)
    world.net.nodes["b"].units.stop("etcd.service")
    voters = [world.loaded(name).address for name in "bc"]
    found = etcdlist.known(world.host("a"), None, voters)
    assert found.source is Source.ETCD
    assert len(found.members) == 3
    assert etcdlist.known(world.host("a"), None, voters[:1]).source is Source.RECORD
    said = world.host("a").etcd_at(LOCALHOST).status()
    world.net.nodes["a"].units.stop("etcd.service")
    assert etcdlist.known(world.host("a"), said, ()).source is Source.RECORD


def test_a_member_that_the_mesh_does_not_know_is_shown_by_its_address(tmp_path: Path) -> None:
    world = World(tmp_path)
    formed(world)
    (cluster,) = world.etcd.births()
    cluster.members[7] = Member(7, "https://[fd00::7]:2380")
    names = [one["name"] for one in cli.look(world.host("a"))["etcd"]["members"]]  # type: ignore[index]
    assert names == ["a", "b", "c", "fd00::7"]


def test_a_member_whose_etcd_follows_a_leader_forms_no_more_before_a_pass_notes_it(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    formed(world)
    host = world.host("b")
    starting = replace(etcdstore.load_cluster(host), stage=etcdstate.Stage.STARTING)
    etcdstore.save_cluster(host, starting)
    assert cli.look(host)["etcd"]["phase"] == "voter"  # type: ignore[index]
    world.net.nodes["b"].units.stop("etcd.service")
    assert cli.look(host)["etcd"]["phase"] == "forming"  # type: ignore[index]


def test_a_node_that_never_took_a_record_knows_no_list(tmp_path: Path) -> None:
    world = World(tmp_path)
    two_ready(world)
    assert etcdlist.known(world.host("b"), None, ()) == Known()


def test_the_registry_s_own_status_shows_what_failed(tmp_path: Path) -> None:
    world = World(tmp_path)
    failed(world)
    said = cli_etcd.Status().run(world.host("a")).text
    assert "failed since" in said
    assert "(etcd-stray-foreign)" in said


def seen_from_a(world: World) -> tuple[Spec, MeshSeen, EtcdSeen]:
    spec = world.spec("a")
    return spec, *status.whole(world.host("a"), spec)


def told(world: World, spec: Spec, seen: MeshSeen, etcd: EtcdSeen) -> list[tuple[str, str]]:
    found = report.warnings(spec, seen, etcd, world.host("a").clock.now())
    return [(one.code, one.text.partition("; ")[2]) for one in found]


def test_a_voter_that_is_down_is_no_word_of_fault_tolerance_while_others_are_to_spare(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    down(world)
    spec, seen, etcd = seen_from_a(world)
    assert told(world, spec, seen, etcd) == [("member-down", SPARE)]
    serving = [one for one in etcd.known.members if one.address != world.loaded("c").address]
    five = replace(etcd, known=replace(etcd.known, members=(*etcd.known.members, *serving)))
    assert told(world, spec, seen, five) == [("member-down", "")]


def test_who_waits_for_a_voter_that_is_down_says_only_that_it_is(tmp_path: Path) -> None:
    world = World(tmp_path)
    formed(world)
    waiting = (Waiting(what="a renewal", waiting_for="c", why="it does not answer"),)
    spec, seen, etcd = seen_from_a(world)
    assert told(world, spec, seen, replace(etcd, waiting=waiting)) == [("etcd-waits", "")]
    for name in "ab":
        world.net.cut(name, "c")
    world.net.clock.sleep(60)
    spec, seen, etcd = seen_from_a(world)
    assert told(world, spec, seen, replace(etcd, waiting=waiting)) == [("member-down", SPARE)]


@pytest.mark.parametrize(
    ("arrange", "codes"),
    [
        pytest.param(starting, ["etcd-starting"], id="others serve"),
        pytest.param(
            starting_without_quorum,
            ["member-suspect", "member-suspect", "etcd-starting", "etcd-no-quorum"],
            id="no quorum",
        ),
    ],
)
def test_an_etcd_that_starts_is_not_said_to_be_down(
    arrange: Callable[[World], str], codes: list[str], tmp_path: Path
) -> None:
    world = World(tmp_path)
    name = arrange(world)
    found = cli.look(world.host(name))["warnings"]
    assert [one["code"] for one in found] == codes
    (told,) = (one for one in found if one["code"] == "etcd-starting")
    assert told["severity"] == "warning"
    world.net.nodes[name].units.unit("etcd.service").comes_up = False
    assert "etcd-down" in [one["code"] for one in cli.look(world.host(name))["warnings"]]


def test_an_etcd_that_starts_over_lost_data_is_told_by_that(tmp_path: Path) -> None:
    world = World(tmp_path)
    data_lost(world)
    comes_up(world, "c")
    (told,) = cli.look(world.host("c"))["warnings"]
    assert (told["code"], "data is gone" in told["text"]) == ("etcd-down", True)


def test_what_keeps_etcd_down_is_told_once_though_its_tend_fails_of_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    data_lost_and_tended(world)
    spec = world.spec("c")
    seen, etcd = status.whole(world.host("c"), spec)
    assert told(world, spec, seen, etcd) == [("etcd-down", SPARE)]
    (failure,) = etcd.failures
    other = replace(failure, code="odd", text="it is odd")
    found = told(world, spec, seen, replace(etcd, failures=(failure, other)))
    assert found == [("etcd-down", SPARE), ("etcd-failed", "")]


def test_what_keeps_etcd_down_is_alerted_at_once_as_what_its_tend_fails_of(tmp_path: Path) -> None:
    world = World(tmp_path)
    data_lost_and_tended(world)
    world.net.clock.sleep(61)
    world.tend("c")
    said = [one for one in world.net.nodes["c"].console.said if one.startswith("alert: ")]
    assert [one.partition(": the cluster was")[0] for one in said] == [
        "alert: critical: etcd: etcd failed"
    ]


def test_a_voter_that_is_no_node_of_the_mesh_is_told_as_such_alone(tmp_path: Path) -> None:
    world = World(tmp_path)
    formed(world)
    (cluster,) = world.etcd.births()
    cluster.members[7] = Member(7, "https://[fd00::7]:2380")
    assert told(world, *seen_from_a(world)) == [("etcd-stranger", LISTED)]


def test_a_silent_voter_behind_a_path_that_is_too_narrow_is_told_by_that_alone(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    formed(world)
    cli.look(world.host("a"))
    world.net.narrow("a", "c")
    world.net.nodes["c"].units.stop("etcd.service")
    world.etcd.settle()
    assert told(world, *seen_from_a(world)) == [("path-mtu", SPARE)]


def test_what_waits_for_the_operator_says_why_and_what_to_type_and_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    formed(world)
    spec, seen, etcd = seen_from_a(world)
    waiting = Waiting(what="etcd here", waiting_for="the operator", why="it is odd", remedy="mend")
    waits = replace(etcd, waiting=(waiting,))
    (one,) = report.warnings(spec, seen, waits, world.net.clock.now())
    assert one.text == "etcd: etcd here waits for the operator: it is odd"
    assert one.remedy == "mend"
    now = world.net.clock.now()
    failure = Failure(
        code="odd", subject="etcd", text="it is odd", remedy="mend", since=now, last=now
    )
    assert told(world, spec, seen, replace(waits, failures=(failure,))) == [("etcd-failed", "")]
