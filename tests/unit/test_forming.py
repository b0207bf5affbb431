"""The planner of `keel mesh etcd form`, and who may reserve a member: one row a rule."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import IPv6Address

import pytest

from keel.errors import Refused
from keel.mesh.etcdcert import Serial
from keel.mesh.etcdmsg import ProbeAnswer
from keel.mesh.etcdstate import Stage
from keel.mesh.forming import FormView, Peer, decide, leading
from keel.mesh.reservation import RESERVED_FOR, Reservation, ReserveView, live, reserve
from keel.outcome import Plan
from keel.types import Capability, Fingerprint, FormationId, SigningKey

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ROOT, OTHER_ROOT = Fingerprint("aa" * 32), Fingerprint("bb" * 32)
F1, F2 = FormationId("01" * 8), FormationId("02" * 8)


def key(letter: str) -> SigningKey:
    return SigningKey(f"{ord(letter):02x}" * 32)


def address(letter: str) -> IPv6Address:
    return IPv6Address(f"fd00::{letter}")


def says(**changes: object) -> ProbeAnswer:
    base = ProbeAnswer(
        capability=Capability.ETCD,
        confirmed=True,
        window_open=False,
        stage=Stage.IDLE,
        epoch=0,
        holder_epoch=0,
        crl_number=0,
        sees_leader=False,
        trusts_you=True,
    )
    return replace(base, **changes)  # type: ignore[arg-type]  # names are checked at run time


def peer(letter: str, answer: ProbeAnswer | None = None, **changes: object) -> Peer:
    base = Peer(
        name=letter, key=key(letter), address=address(letter), capable=True, answer=answer or says()
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def enrolled(letter: str, *, since: int = 0, **changes: object) -> Peer:
    serial = Serial(f"{ord(letter):02x}")
    answer = says(root=ROOT, intermediate=serial, **changes)
    granted = NOW + timedelta(seconds=since)
    return peer(letter, answer, granted=frozenset({serial}), granted_since=granted)


def view(*peers: Peer, **changes: object) -> FormView:
    base = FormView(
        name="m",
        key=key("m"),
        address=address("c"),
        capable=True,
        window_open=False,
        holder=None,
        holder_name="a node that is gone",
        root=None,
        pinned=None,
        established=False,
        granted=False,
        formations=frozenset(),
        begun=False,
        formed=False,
        peers=peers or (peer("b"), peer("d")),
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def holder(*peers: Peer, **changes: object) -> FormView:
    """The same on the node that holds the root, with its own certificate."""
    base: dict[str, object] = {
        "holder": key("m"),
        "root": ROOT,
        "pinned": ROOT,
        "established": True,
        "granted": True,
    }
    return view(*peers, **(base | changes))


def steps(plan: Plan) -> list[str]:
    return [f"{step.action} {step.subject}" for step in plan.steps]


def waits(plan: Plan) -> list[str]:
    return [item.what for item in plan.waiting]


FROM_NOTHING = [
    "reserve b",
    "reserve m",
    "reserve d",
    "make-root etcd root g1",
    "grant-self m",
    "enrol b",
    "enrol d",
    "give-birth m, b, d",
]
RESERVED = frozenset({key("b"), key("m"), key("d")})

PLANS: dict[str, tuple[FormView, list[str], list[str]]] = {
    "from nothing": (view(), FROM_NOTHING, []),
    "one is reserved": (view(reserved=frozenset({key("b")})), FROM_NOTHING[1:], []),
    "all are reserved": (view(reserved=RESERVED), FROM_NOTHING[3:], []),
    "the root is there, nobody has it": (
        holder(peer("b"), peer("d"), established=False, granted=False),
        [*FROM_NOTHING[:3], *FROM_NOTHING[4:]],
        [],
    ),
    "the root is there, one has it": (
        holder(enrolled("b"), peer("d")),
        ["enrol d", "give-birth m, b, d"],
        [],
    ),
    "all are enrolled": (holder(enrolled("b"), enrolled("d")), ["give-birth m, b, d"], []),
    "the first granted go first": (
        holder(enrolled("b", since=3), enrolled("d", since=2), enrolled("e", since=1)),
        ["give-birth m, d, e"],
        ["the place of b"],
    ),
    "who is enrolled goes before who is not": (
        holder(peer("b"), enrolled("d"), enrolled("e")),
        ["enrol b", "give-birth m, d, e"],
        ["the place of b"],
    ),
    "a grant was revoked": (
        holder(replace(enrolled("b"), granted_since=None), enrolled("d")),
        ["enrol b", "give-birth m, b, d"],
        [],
    ),
    "the birth is under way": (
        holder(enrolled("b"), enrolled("d"), begun=True),
        [],
        ["the birth of the cluster"],
    ),
    "one who cannot is left alone": (
        view(peer("b"), peer("d"), peer("e", says(capability=Capability.NONE, trusts_you=False))),
        FROM_NOTHING,
        [],
    ),
    "a silent one who cannot does not count": (
        view(peer("b"), peer("d"), replace(peer("e"), capable=False, answer=None)),
        FROM_NOTHING,
        [],
    ),
    "a silent one is left out by name": (
        view(
            peer("b"),
            peer("d"),
            replace(peer("e"), answer=None),
            without=frozenset({key("e")}),
        ),
        FROM_NOTHING,
        [],
    ),
    "a window of one who cannot keeps nobody": (
        view(peer("b"), peer("d"), peer("e", says(capability=Capability.NONE, window_open=True))),
        FROM_NOTHING,
        [],
    ),
    "its own reservation is no other's": (
        view(held=Reservation(by=key("m"), since=NOW, until=NOW + RESERVED_FOR)),
        FROM_NOTHING,
        [],
    ),
    "formed, all are in it": (
        holder(
            enrolled("b", stage=Stage.FORMED, formation=F1),
            begun=True,
            formed=True,
            formations=frozenset({F1}),
            listed=frozenset({address("b"), address("c")}),
        ),
        [],
        [],
    ),
    "formed, a ready one is not in it, and another has no certificate": (
        holder(enrolled("b"), peer("d"), begun=True, formed=True),
        ["enrol d", "queue-learner b", "queue-learner d"],
        [],
    ),
    "formed, one who cannot is left alone": (
        holder(
            enrolled("b"),
            peer("d", says(capability=Capability.NONE)),
            begun=True,
            formed=True,
            listed=frozenset({address("b")}),
        ),
        [],
        [],
    ),
    "formed, it waits in line": (
        holder(enrolled("b"), begun=True, formed=True, queued=frozenset({key("b")})),
        [],
        ["the place of b"],
    ),
    "formed, a silent one stops nobody": (
        holder(enrolled("b"), replace(peer("d"), answer=None), begun=True, formed=True),
        ["queue-learner b"],
        [],
    ),
    "formed, no trust is needed of whoever has its certificate": (
        holder(enrolled("b", trusts_you=False), begun=True, formed=True),
        ["queue-learner b"],
        [],
    ),
}


@pytest.mark.parametrize("row", PLANS)
def test_what_is_next(row: str) -> None:
    seen, wanted, waiting = PLANS[row]
    found = decide(seen)
    assert steps(found) == wanted
    assert waits(found) == waiting


def silent(letter: str, **changes: object) -> Peer:
    return replace(peer(letter), answer=None, why="no answer in time", **changes)  # type: ignore[arg-type]


THIRD = peer("d")
REFUSALS: dict[str, tuple[FormView, str, tuple[str, ...]]] = {
    "this node cannot": (view(capable=False), "form-not-capable", ("keel-overlay-etcd",)),
    "a window here": (view(window_open=True), "form-window", ("this node",)),
    "a window there": (
        view(peer("b", says(window_open=True)), THIRD),
        "form-window",
        ("b:",),
    ),
    "another holds the root": (
        view(holder=key("b"), holder_name="b"),
        "form-not-the-holder",
        ("`keel mesh etcd form` on b",),
    ),
    "without itself": (view(without=frozenset({key("m")})), "form-without-self", ()),
    "without one who answers": (
        view(without=frozenset({key("d")})),
        "form-without-answers",
        ("d was to be left out",),
    ),
    "a silent one": (view(peer("b"), silent("d")), "form-silent", ("d: no answer", "--without d")),
    "a silent one that never said": (
        view(peer("b"), THIRD, silent("e", capable=False, said=False)),
        "form-silent",
        ("--without e",),
    ),
    "another cluster": (
        view(peer("b", says(stage=Stage.FORMED, formation=F2)), THIRD, formations=frozenset({F1})),
        "form-other-cluster",
        ("b is in a cluster",),
    ),
    "another root there": (
        holder(peer("b", says(root=OTHER_ROOT)), enrolled("d")),
        "form-other-root",
        ("b trusts",),
    ),
    "another root there, none here": (
        view(peer("b", says(root=ROOT)), THIRD),
        "form-other-root",
        ("b trusts",),
    ),
    "a root here that it does not hold": (
        view(pinned=ROOT),
        "form-other-root",
        ("this node trusts",),
    ),
    "another root won": (
        holder(peer("b", says(root=OTHER_ROOT)), THIRD, established=False),
        "form-lost",
        ("b trusts another",),
    ),
    "another identity": (
        holder(peer("b", says(root=ROOT, intermediate=Serial("ff"))), THIRD),
        "form-other-identity",
        ("b has a certificate",),
    ),
    "not a trust root": (
        view(peer("b", says(trusts_you=False)), peer("d", says(trusts_you=False))),
        "form-not-trusted",
        ("b: `keel mesh trust add --root m`; d: `keel mesh trust add --root m`",),
    ),
    "not a trust root of one that was enrolled before there is a cluster": (
        holder(enrolled("b", trusts_you=False), enrolled("d")),
        "form-not-trusted",
        ("b:",),
    ),
    "not a trust root of a ready one outside": (
        holder(peer("b", says(trusts_you=False)), formed=True),
        "form-not-trusted",
        ("b:",),
    ),
    "reserved for another": (
        view(
            held=Reservation(by=key("b"), since=NOW, until=NOW + RESERVED_FOR),
            held_name="b",
        ),
        "form-reserved",
        ("reserved for b",),
    ),
    "too few": (view(peer("b")), "form-too-few", ("2 of 3", "m, b")),
    "too few because one cannot": (
        view(peer("b"), peer("d", says(capability=Capability.NONE))),
        "form-too-few",
        ("not ready: d",),
    ),
    "too few without the silent one": (
        view(peer("b"), silent("d"), without=frozenset({key("d")})),
        "form-too-few",
        ("not ready: d",),
    ),
}


@pytest.mark.parametrize("row", REFUSALS)
def test_each_refusal_has_its_own_reason(row: str) -> None:
    seen, rule, words = REFUSALS[row]
    with pytest.raises(Refused) as refused:
        decide(seen)
    assert refused.value.rule == rule
    said = f"{refused.value.summary()} {refused.value.remedy()}"
    assert [word for word in words if word not in said] == []


def test_steps_of_one_action_go_together() -> None:
    assert [step.subject for step in leading(decide(view()))] == ["b", "m", "d"]
    assert leading(Plan()) == ()


def asked(**changes: object) -> ReserveView:
    base = ReserveView(
        me=key("b"),
        capable=True,
        trusts_asker=True,
        authority=False,
        holder=None,
        stage=Stage.IDLE,
        window_open=False,
        held=None,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def by(letter: str, *, minutes: int = 1) -> Reservation:
    since = NOW - timedelta(minutes=minutes)
    return Reservation(by=key(letter), since=since, until=since + RESERVED_FOR)


@pytest.mark.parametrize(
    ("seen", "asker"),
    [
        pytest.param(asked(), "m", id="a trust root"),
        pytest.param(asked(capable=False, trusts_asker=False), "m", id="cannot run etcd"),
        pytest.param(asked(trusts_asker=False), "b", id="itself"),
        pytest.param(asked(held=by("m")), "m", id="the same again"),
        pytest.param(asked(held=by("d", minutes=10)), "m", id="another's has lapsed"),
        pytest.param(asked(holder=key("m")), "m", id="the holder itself"),
        pytest.param(asked(holder=key("b"), authority=True), "b", id="itself with its root"),
    ],
)
def test_a_member_reserves_itself_for_ten_minutes(seen: ReserveView, asker: str) -> None:
    found = reserve(seen, key(asker), NOW)
    assert found == Reservation(by=key(asker), since=NOW, until=NOW + timedelta(minutes=10))


@pytest.mark.parametrize(
    ("seen", "rule"),
    [
        pytest.param(asked(trusts_asker=False), "reserve-not-trusted", id="no trust root"),
        pytest.param(asked(window_open=True), "reserve-window", id="a window"),
        pytest.param(asked(stage=Stage.STARTING), "reserve-in-cluster", id="in a cluster"),
        pytest.param(asked(authority=True), "reserve-root-known", id="it has a root itself"),
        pytest.param(asked(holder=key("d")), "reserve-root-known", id="another holds the root"),
        pytest.param(asked(held=by("d", minutes=9)), "reserve-taken", id="another's holds"),
    ],
)
def test_a_member_does_not_reserve_itself(seen: ReserveView, rule: str) -> None:
    with pytest.raises(Refused) as refused:
        reserve(seen, key("m"), NOW)
    assert refused.value.rule == rule


def test_a_reservation_ends_to_the_second() -> None:
    held = by("m", minutes=0)
    assert live(held, held.until - timedelta(seconds=1)) is held
    assert live(held, held.until) is None
    assert live(held, held.since - timedelta(days=365)) is None  # by a clock that ran ahead
    assert live(None, NOW) is None
