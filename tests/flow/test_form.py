"""`keel mesh etcd form` on whole nodes: formed by hand, each refusal, two at once (E13)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from ipaddress import IPv6Address
from pathlib import Path

import pytest

from keel.errors import Exit, LockHeld, PeerError, Refused
from keel.mesh import etcd, etcdreserve, etcdstore, store, talk
from keel.mesh.etcdformdoors import ENROLLED, ENROLMENT, RESERVE
from keel.mesh.etcdholder import holder_of
from keel.mesh.etcdids import peer_url
from keel.mesh.etcdstate import Stage, Wanted
from keel.mesh.exchange import ETCD_PATH
from keel.mesh.forming import Action
from keel.mesh.formmsg import (
    AskEnrolment,
    Enrolled,
    EnrolledAnswer,
    EnrolmentAnswer,
    Reserve,
    ReserveAnswer,
)
from keel.mesh.server import HttpReply
from keel.outcome import Done, Incomplete, Plan
from tests.fakes.host import Handler
from tests.fakes.machine import CountedLocks
from tests.flow.arranged import arranged
from tests.flow.world import World

pytestmark = pytest.mark.lives


@arranged
def without_root(scratch: Path, names: str = "abc") -> World:
    world = World(scratch)
    mesh_without_root(world, names)
    return world


def mesh_without_root(world: World, names: str) -> None:
    """A mesh that was made on nodes that could not run etcd, and can now; a invited everybody."""
    for name in names:
        world.node(name, mode="cloud")
    world.create(names[0])
    for name in names[1:]:
        world.join(name, world.invite(names[0]))
        world.settle()
    for name in names:
        world.make_capable(name)
    world.timers()


def all_trust(world: World, names: str) -> None:
    for name in names:
        for whom in names:
            if whom != name:
                world.trust(name, whom)


def one_cluster(world: World, names: str) -> None:
    (cluster,) = world.etcd.births()
    assert {one.name for one in cluster.members.values()} == {
        f"keel-{world.loaded(name).address.packed.hex()}" for name in names
    }
    assert world.formed(names)


def files(world: World, name: str) -> dict[str, bytes]:
    """The whole disk of a node, but for what every message that comes leaves behind."""
    root = world.net.nodes[name].root
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and root / "run" not in path.parents and path.name != "nonces"
    }


def refuses(world: World, name: str, *without: str) -> Refused:
    """Both the dry run and the real one, with the same words, and no file is another anywhere."""
    before = {each: files(world, each) for each in world.net.nodes}
    with pytest.raises(Refused) as planned:
        world.plan_form(name, *without)
    with pytest.raises(Refused) as refused:
        world.form(name, *without)
    assert (planned.value.rule, planned.value.text) == (refused.value.rule, refused.value.text)
    assert refused.value.exit is Exit.REFUSED
    assert {each: files(world, each) for each in world.net.nodes} == before
    return refused.value


# --- forming


def test_a_mesh_without_a_root_gets_none_by_itself(tmp_path: Path) -> None:
    world = without_root(tmp_path)
    world.create("a")
    world.timers()
    for name in "abc":
        assert etcdstore.load_roots(world.host(name)) == ()
        assert holder_of(world.host(name), world.loaded(name)) is None


def test_it_forms_on_a_mesh_without_a_root(tmp_path: Path) -> None:
    world = without_root(tmp_path)
    outcome = world.form("a")
    assert isinstance(outcome, Done)
    assert "etcd/root g1 created" in outcome.changed
    world.settle()
    world.rest("a", "b", "c")
    one_cluster(world, "abc")
    for name in "abc":
        assert etcdreserve.load(world.host(name)) is None
    again = world.form("a")
    assert isinstance(again, Done)
    assert again.changed == ()


def test_the_dry_run_shows_what_the_real_run_does_and_writes_nothing(tmp_path: Path) -> None:
    world = without_root(tmp_path)
    before = {name: files(world, name) for name in "abc"}
    plan = world.plan_form("a")
    assert {name: files(world, name) for name in "abc"} == before
    assert [step.action for step in plan.steps] == [
        *[Action.RESERVE] * 3,
        Action.MAKE_ROOT,
        Action.GRANT_SELF,
        *[Action.ENROL] * 2,
        Action.GIVE_BIRTH,
    ]


def test_a_capable_founder_makes_its_root_although_create_was_cut_off_before(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.node("a")
    world.net.nodes["a"].effects.crash_on = lambda text: "roots" in text
    world.net.nodes["a"].dies(lambda: world.create("a"))
    world.net.nodes["a"].new_life()
    world.node("b")
    world.join("b", world.invite("a"))
    world.settle()
    assert etcdstore.load_authority(world.host("a")) is None
    world.create("a")
    assert etcdstore.load_authority(world.host("a")) is not None


def test_whoever_became_capable_later_is_enrolled_by_the_holder(tmp_path: Path) -> None:
    """A root since the beginning; the members could not run etcd when they joined."""
    world = World(tmp_path)
    world.node("a")
    world.create("a")
    for name in "bc":
        world.node(name, mode="cloud")
        world.join(name, world.invite("a"))
        world.settle()
        world.make_capable(name)
    plan = world.plan_form("a")
    assert [step.action for step in plan.steps] == [*[Action.ENROL] * 2, Action.GIVE_BIRTH]
    assert isinstance(world.form("a"), Done)
    world.settle()
    world.rest("a", "b", "c")
    one_cluster(world, "abc")


def test_the_fourth_waits_in_line_and_a_later_form_puts_it_there(tmp_path: Path) -> None:
    world = without_root(tmp_path, "abcd")
    plan = world.plan_form("a")
    assert [item.what for item in plan.waiting] == [f"the place of {_last_of(world, 'bcd')}"]
    world.form("a")
    world.settle()
    later = _last_of(world, "bcd")
    born = "".join(name for name in "abcd" if name != later)
    world.rest(*born)
    assert world.formed(born)
    outcome = world.form("a")
    assert isinstance(outcome, Done)
    listed = {member.peer_url for member in world.etcd.births()[0].members.values()}
    assert peer_url(world.loaded(later).address) in listed


def _last_of(world: World, names: str) -> str:
    """Whom the order of address leaves over for the line."""
    return max(names, key=lambda name: world.loaded(name).address)


def test_one_that_cannot_run_etcd_is_left_alone(tmp_path: Path) -> None:
    world = without_root(tmp_path)
    world.node("d", mode="cloud")
    world.join("d", world.invite("a"))
    world.settle()
    assert isinstance(world.form("a"), Done)
    world.settle()
    world.rest("a", "b", "c")
    one_cluster(world, "abc")
    assert etcdstore.load_roots(world.host("d")) == ()


def test_a_silent_one_is_left_out_by_name_and_comes_later(tmp_path: Path) -> None:
    world = without_root(tmp_path, "abcd")
    world.net.nodes["d"].power_off()
    assert refuses(world, "a").rule == "form-silent"
    assert isinstance(world.form("a", "d"), Done)
    world.settle()
    world.rest("a", "b", "c")
    one_cluster(world, "abc")
    world.boot("d")
    world.settle()
    world.timers(seconds=30)
    world.timers(seconds=30)
    assert holder_of(world.host("d"), world.loaded("d")) == world.loaded("a").key
    assert etcdstore.load_intermediate(world.host("d")) is not None


def test_who_is_left_out_is_waited_for_once(tmp_path: Path) -> None:
    """Each round would cost the whole time of its silence."""
    world = without_root(tmp_path, "abcd")
    world.net.nodes["d"].power_off()
    world.form("a", "d")
    said = world.net.nodes["a"].console.waited
    asked = [line for line in said if line.startswith("asking")]
    assert asked == ["asking b, c, d", *["asking b, c"] * 4]


def test_formed_again_before_a_pass_noted_the_leader_it_waits_for_nobody_who_is_silent(
    tmp_path: Path,
) -> None:
    """As after the birth: it was formed without d, and is a cluster now."""
    world = without_root(tmp_path, "abcd")
    world.net.nodes["d"].power_off()
    world.form("a", "d")
    world.settle()
    world.rest("a", "b", "c")
    host = world.host("a")
    starting = replace(etcdstore.load_cluster(host), stage=Stage.STARTING)
    etcdstore.save_cluster(host, starting)
    noted = "etcd runs here as a member of the cluster"
    assert world.form("a") == Done(value=Plan(), changed=(noted,))
    assert world.form("a") == Done(value=Plan(), changed=())


# --- refusals, each by its own reason


def not_capable(world: World) -> str:
    world.net.nodes["a"].overlay_etcd_installed = False
    return "a"


def window_here(world: World) -> str:
    world.open_window("a", "c")
    return "a"


def window_there(world: World) -> str:
    world.open_window("b", "c")
    return "a"


def not_trusted(world: World) -> str:
    """b is no trust root of a and c: a invited them."""
    return "b"


def silent(world: World) -> str:
    world.net.nodes["c"].power_off()
    return "a"


def too_few(world: World) -> str:
    world.net.nodes["c"].overlay_etcd_installed = False
    return "a"


def reserved_for_b(world: World) -> str:
    all_trust(world, "abc")
    with store.locked(world.host("a"), "the mesh"):
        etcdreserve.reserve(
            world.host("a"), world.spec("a"), world.loaded("a"), world.loaded("b").key
        )
    return "a"


def c_is_reserved_for_b(world: World) -> str:
    all_trust(world, "abc")
    with store.locked(world.host("c"), "the mesh"):
        etcdreserve.reserve(
            world.host("c"), world.spec("c"), world.loaded("c"), world.loaded("b").key
        )
    return "a"


def clock_wrong(world: World) -> str:
    world.net.nodes["a"].clock.wrong_by = timedelta(seconds=2000)
    world.sync("a")
    return "a"


STATES: dict[str, tuple[Callable[[World], str], str]] = {
    "not capable": (not_capable, "form-not-capable"),
    "a window here": (window_here, "form-window"),
    "a window there": (window_there, "form-window"),
    "not a trust root": (not_trusted, "form-not-trusted"),
    "silent": (silent, "form-silent"),
    "too few": (too_few, "form-too-few"),
    "reserved for another": (reserved_for_b, "form-reserved"),
    "the clock": (clock_wrong, "clock-off"),
}


@pytest.mark.parametrize("state", STATES)
def test_it_refuses_by_its_own_reason_and_changes_nothing(state: str, tmp_path: Path) -> None:
    arrange, rule = STATES[state]
    world = without_root(tmp_path)
    name = arrange(world)
    assert refuses(world, name).rule == rule


def test_not_trusted_says_the_command_for_each_node(tmp_path: Path) -> None:
    world = without_root(tmp_path)
    remedy = refuses(world, "b").remedy()
    for name in "ac":
        assert f"{name}: `keel mesh trust add --root b`" in remedy
    for name in "ac":
        world.trust(name, "b")
    assert isinstance(world.form("b"), Done)
    world.settle()
    world.rest("a", "b", "c")
    one_cluster(world, "abc")


def test_on_another_than_the_holder_it_names_the_holder(tmp_path: Path) -> None:
    world = without_root(tmp_path)
    world.form("a")
    world.settle()
    world.timers()
    refused = refuses(world, "b")
    assert refused.rule == "form-not-the-holder"
    assert "on a" in refused.remedy()


def test_another_root_and_another_identity(tmp_path: Path) -> None:
    """A member with a root that nobody here holds, and one with a grant that the ledger lacks."""
    world = World(tmp_path)
    for name in "abc":
        world.node(name)
    world.create("a")
    for name in "bc":
        world.join(name, world.invite("a"))
    ledger = world.host("a").paths.grants
    kept = ledger.read_bytes()
    ledger.write_bytes(kept.splitlines(keepends=True)[0])
    assert refuses(world, "a").rule == "form-other-identity"
    ledger.write_bytes(kept)
    other = World(tmp_path / "other")
    other.node("x")
    other.create("x")
    trust = world.host("b").paths.etcd_trust
    trust.write_bytes(other.host("x").paths.etcd_trust.read_bytes())
    world.host("b").paths.etcd_crl.unlink()
    assert refuses(world, "a").rule == "form-other-root"


def test_a_refused_reservation_releases_all_and_names_who_refused(tmp_path: Path) -> None:
    world = without_root(tmp_path)
    name = c_is_reserved_for_b(world)
    with pytest.raises(Refused) as refused:
        world.form(name)
    assert refused.value.rule == "reserve-taken"
    assert refused.value.text.startswith("c: it is reserved for b")
    assert etcdreserve.load(world.host("a")) is None
    assert etcdreserve.load(world.host("b")) is None
    assert etcdstore.load_authority(world.host("a")) is None


def its_clock(world: World) -> None:
    world.net.nodes["c"].clock.wrong_by = timedelta(seconds=2000)
    world.sync("c")


def its_network(world: World) -> None:
    """It was changed since the probe."""
    world.open_window("c", "b")


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        pytest.param(its_clock, "clock-off", id="its clock is wrong"),
        pytest.param(its_network, "reserve-window", id="its network is being changed"),
    ],
)
def test_a_member_that_may_do_nothing_now_reserves_itself_for_nobody(
    tmp_path: Path, change: Callable[[World], None], rule: str
) -> None:
    world = without_root(tmp_path)
    host, node = world.host("c"), world.loaded("c")
    change(world)
    with store.locked(host, "the mesh"), pytest.raises(Refused) as caught:
        etcdreserve.reserve(host, world.spec("c"), node, world.loaded("a").key)
    assert caught.value.rule == rule
    assert etcdreserve.load(host) is None


def test_a_reservation_lapses_after_ten_minutes(tmp_path: Path) -> None:
    world = without_root(tmp_path)
    name = c_is_reserved_for_b(world)
    world.net.clock.sleep(601)
    assert isinstance(world.form(name), Done)


def test_one_that_falls_silent_while_it_reserves_refuses_by_name(tmp_path: Path) -> None:
    world = without_root(tmp_path)
    last = _last_of(world, "bc")
    world.net.nodes["a"].effects.crash_on = None
    probes = {"left": 2}

    def lose_after_the_probe() -> None:
        world.net.lose("reply", source="a", target=last, path=ETCD_PATH, count=1)

    # the probe of every member comes first: let it through, and lose the reservation's answer
    original = world.net.nodes[last].handler

    def handler(path: str, source: object, body: bytes) -> object:
        answer = original(path, source, body)  # type: ignore[arg-type]
        if probes["left"] and path == ETCD_PATH:
            probes["left"] -= 1
            if probes["left"] == 1:
                return answer
            lose_after_the_probe()
        return answer

    world.net.nodes[last].handler = handler  # type: ignore[assignment]
    with pytest.raises(Refused) as refused:
        world.form("a")
    assert refused.value.rule == "form-silent"
    assert f"--without {last}" in refused.value.remedy()
    for each in "abc":
        assert etcdreserve.load(world.host(each)) is None


# --- two at once


def test_of_two_at_once_one_wins_and_the_other_leaves_nothing(tmp_path: Path) -> None:
    """b begins while a has just reserved itself and the first of the others."""
    world = without_root(tmp_path)
    all_trust(world, "abc")
    world.timers()
    fought: list[Refused] = []
    meets = {"on": True}
    console = world.net.nodes["a"].console
    said = console.waiting

    def b_forms(text: str) -> None:
        said(text)
        if text.startswith("reserving") and meets["on"]:
            meets["on"] = False
            try:
                world.form("b")
            except Refused as refused:
                fought.append(refused)

    console.waiting = b_forms  # type: ignore[method-assign]
    try:
        world.form("a")
    except Refused as refused:
        fought.append(refused)
    world.settle()
    world.rest("a", "b", "c")
    assert len(fought) == 1
    one_cluster(world, "abc")
    holders = {holder_of(world.host(name), world.loaded(name)) for name in "abc"}
    assert len(holders) == 1


@pytest.mark.parametrize("first", ["a", "b"])
def test_without_the_link_between_them_neither_forms_a_second(first: str, tmp_path: Path) -> None:
    world = without_root(tmp_path)
    all_trust(world, "abc")
    world.timers()
    second = "b" if first == "a" else "a"
    world.net.cut("a", "b")
    assert refuses(world, first).rule == "form-silent"
    assert refuses(world, first, second).rule == "form-too-few"
    world.net.heal()
    assert isinstance(world.form(first), Done)


def test_in_two_halves_that_share_a_member_one_wins(tmp_path: Path) -> None:
    """Four members, no link between a and b: each leaves the other out, c and d belong to one."""
    world = without_root(tmp_path, "abcd")
    all_trust(world, "abcd")
    world.timers()
    world.net.cut("a", "b")
    fought: list[str] = []
    meets = {"left": 3}
    console = world.net.nodes["a"].console
    said = console.waiting

    def b_forms(text: str) -> None:
        said(text)
        meets["left"] -= text.startswith("reserving")
        if meets["left"] == 0:
            meets["left"] = -99
            try:
                world.form("b", "a")
            except Refused as refused:
                fought.append(refused.rule)

    console.waiting = b_forms  # type: ignore[method-assign]
    try:
        world.form("a", "b")
    except Refused as refused:
        fought.append(refused.rule)
    assert fought == ["reserve-taken"]
    world.net.heal()
    world.settle()
    world.timers(seconds=30)
    world.timers(seconds=30)
    assert len(world.etcd.births()) <= 1
    holders = {holder_of(world.host(name), world.loaded(name)) for name in "abcd"}
    assert len(holders) == 1


def test_a_root_that_nobody_took_yields_to_the_one_that_won(tmp_path: Path) -> None:
    """a was cut off with its root made and not told; b, left alone with c and d, formed."""
    world = without_root(tmp_path, "abcd")
    all_trust(world, "abcd")
    world.timers()
    node = world.net.nodes["a"]
    node.effects.crash_on = lambda text: text.startswith("start keel-mesh-sync")
    assert node.dies(lambda: world.form("a"))
    node.power_off()
    world.net.clock.sleep(700)
    assert isinstance(world.form("b", "a"), Done)
    world.settle()
    world.rest("b", "c", "d")
    world.boot("a")
    world.kicks.clear()
    with pytest.raises(Refused) as refused:
        world.form("a")
    assert refused.value.rule == "form-lost"
    assert etcdstore.load_authority(world.host("a")) is None
    assert etcdreserve.load(world.host("a")) is None
    (aside,) = world.host("a").files.names(world.host("a").paths.left)
    assert "roots" in world.host("a").files.names(world.host("a").paths.left / aside)
    world.timers(seconds=30)
    world.timers(seconds=30)
    assert holder_of(world.host("a"), world.loaded("a")) == world.loaded("b").key
    assert etcdstore.load_intermediate(world.host("a")) is not None


# --- interruptions


@pytest.mark.parametrize(
    ("answers", "failing"),
    [
        pytest.param(4, "c", id="asked again after the root"),
        pytest.param(5, "c", id="asked for its request"),
        pytest.param(6, "c", id="given its grant"),
        pytest.param(6, "bc", id="every one given its grant"),
    ],
)
def test_an_enrolment_that_fails_is_named_and_no_record_leaves(
    answers: int, failing: str, tmp_path: Path
) -> None:
    world = without_root(tmp_path)
    originals = {name: world.net.nodes[name].handler for name in failing}
    for name in failing:
        world.net.nodes[name].handler = silent_after(answers, originals[name])
    outcome = world.form("a")
    assert isinstance(outcome, Incomplete)
    assert sorted(text.partition(":")[0] for text in outcome.missing) == [*failing]
    world.tend("a")
    assert world.etcd.births() == []
    assert etcdstore.load_book(world.host("a")).formations == ()
    for name in failing:
        world.net.nodes[name].handler = originals[name]
    assert isinstance(world.form("a"), Done)
    world.settle()
    world.rest("a", "b", "c")
    one_cluster(world, "abc")


def silent_after(answers: int, original: Handler) -> Handler:
    """A node that answers so many messages of the registry's, and then no more."""
    answered = 0

    def handler(path: str, source: IPv6Address, body: bytes) -> HttpReply | tuple[int, bytes]:
        nonlocal answered
        answered += path == ETCD_PATH
        if answered > answers and path == ETCD_PATH:
            raise PeerError("it", "timeout", "gone")
        return original(path, source, body)

    return handler


def test_an_enrolment_that_does_not_last_ends_after_some_rounds(tmp_path: Path) -> None:
    """c loses its certificate as soon as it has it."""
    world = without_root(tmp_path)
    original = world.net.nodes["c"].handler

    def handler(path: str, source: object, body: bytes) -> object:
        answer = original(path, source, body)  # type: ignore[arg-type]
        (world.host("c").paths.intermediate(1) / "cert.pem").unlink(missing_ok=True)
        return answer

    world.net.nodes["c"].handler = handler  # type: ignore[assignment]
    outcome = world.form("a")
    assert isinstance(outcome, Incomplete)
    assert "enrol c" in outcome.missing


class Busy:
    """The locks of a node on which another pass takes the tend's lock right after the form."""

    def __init__(self, locks: CountedLocks) -> None:
        self._locks = locks
        self._asked = 0

    def hold(
        self, path: Path, *, what: str, wait_seconds: float = 0.0
    ) -> AbstractContextManager[None]:
        self._asked += path.name == "tend.lock"
        if self._asked == 2:
            raise LockHeld(1, "the tend")
        return self._locks.hold(path, what=what, wait_seconds=wait_seconds)


def test_a_pass_of_the_tend_that_runs_already_gives_the_birth(tmp_path: Path) -> None:
    world = without_root(tmp_path)
    node = world.net.nodes["a"]
    locks = node.locks
    node.locks = Busy(locks)  # type: ignore[assignment]
    outcome = world.form("a")
    assert isinstance(outcome, Done)
    node.locks = locks
    world.settle()
    world.rest("a", "b", "c")
    one_cluster(world, "abc")


def test_on_a_formed_cluster_the_ready_get_in_line_while_a_voter_is_down(tmp_path: Path) -> None:
    world = without_root(tmp_path, "abcd")
    later = _last_of(world, "bcd")
    born = "".join(name for name in "abcd" if name != later)
    world.etcd.guards[later] = lambda: False
    world.form("a")
    world.settle()
    for _ in range(6):
        if world.formed(born):
            break
        for name in born:
            world.tend(name)
        world.net.clock.sleep(5)
    host = world.host("a")
    (cluster,) = world.etcd.births()
    for number, member in list(cluster.members.items()):
        if member.learner:
            del cluster.members[number]
    world.net.nodes[born[1]].units.stop("etcd.service")
    host.files.remove(host.paths.etcd_queue)
    outcome = world.form("a")
    assert isinstance(outcome, Done)
    assert f"{later} waits in line for the cluster" in outcome.changed
    line = [q.subject for q in etcdstore.load_queue(host).entries if q.what is Wanted.LEARNER]
    assert line == [world.loaded(later).key]
    host.files.remove(host.paths.etcd_queue)
    world.net.nodes["a"].units.stop("etcd.service")
    planned = world.plan_form("a")  # etcd is silent: the record says who is in it
    assert [step.subject for step in planned.steps] == [later]


def test_after_ten_minutes_the_timers_go_on_with_a_form_that_was_cut_off(tmp_path: Path) -> None:
    world = without_root(tmp_path)
    node = world.net.nodes["a"]
    node.effects.crash_on = lambda text: text.startswith("start keel-mesh-sync")
    assert node.dies(lambda: world.form("a"))
    node.new_life()
    for _ in range(4):
        world.timers(seconds=60)
    assert world.etcd.births() == []
    for _ in range(9):
        world.timers(seconds=60)
    world.rest("a", "b", "c")
    one_cluster(world, "abc")


# --- the doors


def ask(world: World, kind: str, body: object, answer: type) -> object:
    """b asks c, of which it is no trust root."""
    node = world.loaded("b")
    member = node.view.by_key(world.loaded("c").key)
    assert member is not None
    return talk.ask(world.host("b"), node, member, kind, body, answer, path=ETCD_PATH).body


def test_no_member_is_enrolled_by_a_node_that_is_no_trust_root(tmp_path: Path) -> None:
    world = without_root(tmp_path)
    for kind, body, answer in (
        (RESERVE, Reserve(), ReserveAnswer),
        (ENROLMENT, AskEnrolment(), EnrolmentAnswer),
    ):
        with pytest.raises(PeerError) as refused:
            ask(world, kind, body, answer)
        assert refused.value.reason in ("reserve-not-trusted", "form-not-obeyed")
    world.trust("c", "b")
    with pytest.raises(PeerError) as refused:
        ask(world, ENROLMENT, AskEnrolment(), EnrolmentAnswer)
    assert refused.value.reason == "form-not-reserved"
    assert ask(world, RESERVE, Reserve(), ReserveAnswer) == ReserveAnswer(
        until=etcdreserve.load(world.host("c")).until  # type: ignore[union-attr]
    )
    assert isinstance(ask(world, ENROLMENT, AskEnrolment(), EnrolmentAnswer), EnrolmentAnswer)
    ask(world, RESERVE, Reserve(release=True), ReserveAnswer)
    assert etcdreserve.load(world.host("c")) is None


def test_a_grant_of_a_node_without_a_reservation_is_not_taken(tmp_path: Path) -> None:
    world = without_root(tmp_path)
    other = World(tmp_path / "other")
    other.node("x")
    other.create("x")
    world.trust("c", "b")
    from keel.mesh.etcdmsg import Grant

    c = world.loaded("c")
    grant = Grant(
        mesh=c.mesh,
        address=c.address,
        ed25519=c.key,
        intermediate=b"",
        roots=(),
        crl=b"",
        holder=b"",
    )
    with pytest.raises(PeerError) as refused:
        ask(world, ENROLLED, Enrolled(grant=grant), EnrolledAnswer)
    assert refused.value.reason == "form-not-reserved"


@pytest.mark.parametrize(
    "at",
    [
        pytest.param("etcd/.crl.der", id="no CRL"),
        pytest.param("etcd/.holder", id="no statement"),
        pytest.param("mesh/roster/.", id="not told"),
    ],
)
def test_a_root_that_was_cut_off_before_it_was_told_waits_for_the_command(
    tmp_path: Path, at: str
) -> None:
    world = without_root(tmp_path)
    node = world.net.nodes["a"]
    node.effects.crash_on = lambda text: text.startswith(f"disk create var/lib/keel/{at}")
    assert node.dies(lambda: world.form("a"))
    node.effects.crash_on = None
    host = world.host("a")
    assert etcdstore.load_authority(host) is not None
    world.boot("a")
    world.settle()
    signed = host.files.read(host.paths.etcd_crl)
    world.timers("a")
    world.settle()
    (duty,) = [one for one in world.tend("a") if one.name == "credentials"]
    assert "`keel mesh etcd form` was cut off" in duty.text
    assert host.files.read(host.paths.etcd_crl) == signed
    assert etcdstore.load_intermediate(host) is None
    assert isinstance(world.form("a"), Done)
    world.settle()
    world.rest("a", "b", "c")
    one_cluster(world, "abc")


def test_a_founder_makes_no_root_while_another_s_forming_holds_its_word(tmp_path: Path) -> None:
    world = without_root(tmp_path)
    reserved_for_b(world)
    host = world.host("a")
    assert etcd.after_create(host, world.spec("a"), world.loaded("a")) == ()
    assert etcdstore.load_holder(host) is None


def one_came_back(scratch: Path) -> World:
    """c booted, and its first sync has not run."""
    world = without_root(scratch)
    all_trust(world, "abc")
    world.timers()
    world.net.nodes["c"].power_off()
    world.boot("c")
    world.kicks.clear()
    return world


def test_a_member_that_came_back_just_now_is_waited_for(tmp_path: Path) -> None:
    world = one_came_back(tmp_path)
    world.net.clock.after(5.0, world.settle)
    assert isinstance(world.form("a"), Done)
    said = world.net.nodes["a"].console.waited
    assert "c was away and asks the others first who still is a member" in said
    world.settle()
    world.rest("a", "b", "c")
    one_cluster(world, "abc")


def test_one_that_stays_behind_is_named_after_a_minute(tmp_path: Path) -> None:
    world = one_came_back(tmp_path)
    with pytest.raises(Refused) as caught:
        world.form("a")
    assert "c" in caught.value.summary()
