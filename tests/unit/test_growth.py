"""The growth planner: its rules L1 to L6 as a table, and the book and line it works over."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import IPv6Address

import pytest

from keel.mesh import growth
from keel.mesh.birth import Party
from keel.mesh.etcdstate import Queue, Queued, Wanted
from keel.mesh.growth import (
    AddLearner,
    Former,
    Grown,
    Growth,
    GrowthBook,
    GrowthView,
    Listed,
    LookAgain,
    Open,
    Promote,
    TakeOut,
    Waiter,
    Word,
)
from keel.outcome import Waiting
from keel.types import EtcdMemberId, SigningKey

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
HOUR = timedelta(hours=1)
LEADER = "a"


def key(name: str) -> SigningKey:
    return SigningKey(f"{ord(name):02x}" * 32)


def number(name: str) -> EtcdMemberId:
    return EtcdMemberId(ord(name))


def party(name: str) -> Party:
    return Party(address=IPv6Address(f"fd00::{ord(name):x}"), key=key(name))


def listed(name: str, *, learner: bool = False, started: bool = True) -> Listed:
    return Listed(
        id=number(name),
        address=party(name).address,
        name=name,
        key=key(name),
        learner=learner,
        started=started,
    )


def word(name: str, *, applied: int = 1000, commit: int = 1000, leader: str = LEADER) -> Word:
    return Word(
        member_id=number(name),
        leader=number(leader) if leader else EtcdMemberId(0),
        commit=commit,
        applied=applied,
        learner=False,
    )


@pytest.mark.parametrize("beyond", [-1, 2**64])
@pytest.mark.parametrize("number_of", ["member_id", "leader", "commit", "applied"])
def test_a_word_with_a_number_that_etcd_has_not_is_none(number_of: str, beyond: int) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        replace(word("b"), **{number_of: beyond})  # type: ignore[arg-type]


def waiter(name: str, *, answers: bool = True) -> Waiter:
    return Waiter(name=name, party=party(name), answers=answers)


def opened(name: str, *, ago: timedelta = timedelta(), heard: timedelta | None = None) -> Open:
    return Open(
        address=party(name).address,
        since=NOW - ago,
        key=key(name),
        heard=None if heard is None else NOW - heard,
    )


def view(
    *members: Listed,
    words: tuple[Word, ...] | None = None,
    line: tuple[Waiter, ...] = (),
    opens: Open | None = None,
    near: str = "",
    replacing: str = "",
) -> GrowthView:
    """Of three voters that all hear a, and whoever is given besides."""
    everybody = (*(listed(name) for name in "abc"), *members)
    said = tuple(word(name) for name in "abc") if words is None else words
    return GrowthView(
        members=everybody,
        words={one.member_id: one for one in said},
        line=line,
        book=GrowthBook(open=opens),
        near=number(near) if near else None,
        replacing=frozenset(key(name) for name in replacing),
    )


VOTERS = tuple(word(name) for name in "abc")
LEARNS = listed("d", learner=True)
UNSTARTED = listed("d", learner=True, started=False)


def brief(found: Growth) -> str:
    """What was decided, in a word or two."""
    match found:
        case AddLearner(name=name):
            return f"add {name}"
        case Promote(member=member):
            return f"promote {member.name}"
        case LookAgain(member=member):
            return f"look at {member.name}"
        case TakeOut(member=member, again=again):
            return f"take {member.name} out{', to come again' if again else ''}"
        case Waiting(waiting_for=whom, why=why):
            return f"wait for {whom}: {why}"
        case Grown():
            return "nothing"


TABLE = {
    "all are in": (view(), "nothing"),
    "the next that answers is added": (
        view(line=(waiter("d", answers=False), waiter("e"))),
        "add e",
    ),
    "nobody in the line answers": (
        view(line=(waiter("d", answers=False), waiter("e", answers=False))),
        "wait for d, e: a place goes to those who answer now",
    ),
    "a voter is silent": (
        view(line=(waiter("d"),), words=VOTERS[:2]),
        f"wait for c: {growth.VOTER_DOWN}",
    ),
    "a voter hears no leader": (
        view(line=(waiter("d"),), words=(*VOTERS[:2], word("c", leader=""))),
        f"wait for c: {growth.VOTER_DOWN}",
    ),
    "who was about to be added goes first": (
        view(line=(waiter("d"), waiter("e")), opens=opened("e")),
        "add e",
    ),
    "a learner that has not started": (
        view(UNSTARTED, line=(waiter("e"),), opens=opened("d", ago=0.9 * HOUR)),
        "wait for d: its etcd has not started yet",
    ),
    "one that the book does not know has its hour": (
        view(UNSTARTED, opens=opened("e", ago=5 * HOUR)),
        "wait for d: its etcd has not started yet",
    ),
    "one that never started": (view(UNSTARTED, opens=opened("d", ago=HOUR)), "take d out"),
    "nobody's, and never started": (
        view(replace(UNSTARTED, key=None), opens=replace(opened("d", ago=HOUR), key=None)),
        "take d out",
    ),
    "nobody's, and started": (
        view(replace(LEARNS, key=None)),
        "wait for its removal: etcd lists it, and it is no node of the mesh",
    ),
    "a dead learner": (view(LEARNS), "wait for d: its etcd does not answer"),
    "a learner that hears no leader": (
        view(LEARNS, words=(*VOTERS, word("d", leader=""))),
        "wait for d: its etcd hears no leader",
    ),
    "a slow learner, a day later": (
        view(
            LEARNS,
            words=(*VOTERS, word("d", applied=899)),
            opens=opened("d", ago=24 * HOUR),
            line=(waiter("e"),),
        ),
        "wait for d: it catches up: applied 899 of 1000",
    ),
    "near once": (view(LEARNS, words=(*VOTERS, word("d", applied=900))), "look at d"),
    "near twice": (view(LEARNS, words=(*VOTERS, word("d")), near="d"), "promote d"),
    "near, and another was near before": (
        view(LEARNS, words=(*VOTERS, word("d")), near="e"),
        "look at d",
    ),
    "near twice, a voter silent": (
        view(LEARNS, words=(*VOTERS[:2], word("d")), near="d"),
        "wait for c: every voter has to answer first",
    ),
    "it hears another leader than that one itself": (
        view(LEARNS, words=(*VOTERS, word("d", leader="c")), near="d"),
        "wait for the next pass: the leader changed just now",
    ),
    "it hears a leader that nobody is": (
        view(LEARNS, words=(*VOTERS, word("d", leader="z")), near="d"),
        "wait for the next pass: the leader changed just now",
    ),
    "a voter lost its data": (
        view(words=VOTERS[:2], replacing="c", line=(waiter("d"),)),
        "take c out, to come again",
    ),
    "a voter lost its data, and serves all the same": (
        view(replacing="c", line=(waiter("d"),)),
        "add d",
    ),
    "a voter lost its data, and another is down": (
        view(words=VOTERS[:1], replacing="c"),
        "wait for b: the others are no quorum without it",
    ),
    "a learner lost its data": (view(LEARNS, replacing="d"), "take d out, to come again"),
    "a learner is in before a voter that lost its data": (
        view(LEARNS, words=(*VOTERS[:2], word("d")), replacing="c"),
        "wait for c: every voter has to answer first",
    ),
}


@pytest.mark.parametrize("case", TABLE)
def test_the_planner_takes_one_step(case: str) -> None:
    seen, wanted = TABLE[case]
    assert brief(growth.plan_growth(seen, NOW)) == wanted


def test_the_numbers_of_the_gate_are_told() -> None:
    found = growth.plan_growth(view(LEARNS, words=(*VOTERS, word("d", applied=950)), near="d"), NOW)
    assert isinstance(found, Promote)
    assert found.numbers == "applied 950 of 1000"
    assert found.plan.steps[0].why == "near the leader twice: applied 950 of 1000"


def test_a_new_place_replaces_the_old_id() -> None:
    seen = view(line=(waiter("d"),))
    seen = replace(seen, book=growth.note_former(seen.book, key("d"), EtcdMemberId(7)))
    found = growth.plan_growth(seen, NOW)
    assert isinstance(found, AddLearner)
    assert found.replaces == 7
    assert [step.action for step in found.plan.steps] == ["add-learner", "send-record"]


@pytest.mark.parametrize(
    ("voters", "healthy", "missing"),
    [
        pytest.param("abc", "ab", (), id="two of three"),
        pytest.param("abc", "a", ("b",), id="one of three"),
        pytest.param("abcd", "abc", (), id="three of four"),
        pytest.param("abcd", "ab", ("c",), id="two of four"),
        pytest.param("abcde", "abc", (), id="three of five"),
        pytest.param("ab", "a", ("b",), id="one of two: nobody else could come back"),
    ],
)
def test_without_a_lost_voter_the_others_have_to_be_a_quorum(
    voters: str, healthy: str, missing: tuple[str, ...]
) -> None:
    seen = GrowthView(
        members=tuple(listed(name) for name in voters),
        words={number(name): word(name) for name in healthy},
        line=(),
        book=GrowthBook(),
    )
    assert growth.lost_quorum(seen, listed(voters[-1])) == missing


@pytest.mark.parametrize(
    ("heard", "line", "answers", "reported"),
    [
        pytest.param(25, "e", "", True, id="a day"),
        pytest.param(23, "e", "", False, id="less than a day"),
        pytest.param(25, "", "", False, id="nobody waits"),
        pytest.param(25, "e", "d", False, id="it answers"),
    ],
)
def test_a_silent_learner_is_reported(heard: int, line: str, answers: str, reported: bool) -> None:
    seen = view(
        LEARNS,
        words=(*VOTERS, *(word(name) for name in answers)),
        line=tuple(waiter(name) for name in line),
        opens=opened("d", ago=30 * HOUR, heard=heard * HOUR),
    )
    assert (growth.silent_learner(seen, NOW) is not None) is reported


def test_one_that_was_never_heard_is_silent_since_it_was_added() -> None:
    seen = view(LEARNS, line=(waiter("e"),), opens=opened("d", ago=24 * HOUR))
    assert growth.silent_learner(seen, NOW) == LEARNS
    assert growth.silent_learner(replace(seen, book=GrowthBook()), NOW) is None
    assert growth.silent_learner(replace(seen, replacing=frozenset({key("d")})), NOW) is None
    unstarted = replace(seen, members=(*seen.members[:-1], replace(LEARNS, started=False)))
    assert growth.silent_learner(unstarted, NOW) is None


def test_the_line_keeps_its_order_and_forgets_who_is_not_ready() -> None:
    line = growth.line_up(Queue(), (key("d"), key("e")), NOW)
    line = growth.line_up(line, (key("f"), key("e"), key("d")), NOW + HOUR)
    assert growth.in_line(line) == (key("d"), key("e"), key("f"))
    assert [entry.since for entry in line.entries] == [NOW, NOW, NOW + HOUR]
    line = growth.line_up(line, (key("f"), key("d")), NOW)
    assert growth.in_line(line) == (key("d"), key("f"))


def test_other_wishes_are_not_of_the_line() -> None:
    other = Queued(what=Wanted.RELAY, subject=key("x"), since=NOW, why="-")
    line = growth.line_up(Queue(entries=(other,)), (), NOW)
    assert line.entries == (other,)
    assert growth.in_line(line) == ()


def test_the_book_opens_adopts_hears_and_settles() -> None:
    book = growth.begin(GrowthBook(), party("d"), None, NOW)
    assert book.open == opened("d")
    assert growth.begin(book, party("d"), None, NOW + HOUR).open == replace(
        opened("d"), since=NOW + HOUR
    )
    assert growth.adopt(book, LEARNS, NOW + HOUR) == book
    elsewhere = replace(LEARNS, address=party("e").address, key=key("e"))
    assert growth.adopt(book, elsewhere, NOW + HOUR).open == replace(opened("e"), since=NOW + HOUR)
    assert growth.heard(book, NOW + HOUR).open == opened("d", heard=-HOUR)
    assert growth.heard(GrowthBook(), NOW) == GrowthBook()
    assert growth.settled(book, [key("e")]) == book
    assert growth.settled(book, [key("d")]).open is None
    assert growth.closed(book).open is None


def test_a_clock_that_ran_ahead_gives_a_learner_no_more_than_its_hour() -> None:
    year = timedelta(days=365)
    book = replace(GrowthBook(), open=replace(opened("d"), since=NOW + year, heard=NOW + year))
    found = growth.adopt(book, LEARNS, NOW)
    assert found.open == replace(opened("d"), since=NOW, heard=NOW)
    never = replace(book, open=replace(opened("d"), since=NOW + year))
    assert growth.adopt(never, LEARNS, NOW).open == replace(opened("d"), since=NOW)
    assert growth.adopt(found, LEARNS, NOW + HOUR) == found


def test_a_learner_that_came_from_elsewhere_is_adopted_with_the_id_it_had() -> None:
    book = GrowthBook(former=(Former(key=key("d"), id=EtcdMemberId(7)),))
    assert growth.adopt(book, LEARNS, NOW).open == replace(opened("d"), replaces=EtcdMemberId(7))
    stranger = replace(LEARNS, key=None)
    assert growth.adopt(book, stranger, NOW).open == replace(opened("d"), key=None)


def test_of_a_former_id_the_newest_counts_until_its_node_votes() -> None:
    book = growth.note_former(GrowthBook(), key("d"), EtcdMemberId(7))
    book = growth.note_former(book, key("e"), EtcdMemberId(8))
    book = growth.note_former(book, key("d"), EtcdMemberId(9))
    assert (growth.former_id(book, key("d")), growth.former_id(book, key("x"))) == (9, None)
    assert growth.settled(book, [key("d")]).former == (Former(key=key("e"), id=EtcdMemberId(8)),)
