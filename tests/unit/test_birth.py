"""The birth planner: its rules B1 to B7, from every interrupted state."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import IPv6Address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keel import codec
from keel.errors import Internal, Refused
from keel.mesh.birth import (
    RECORD_LIFE,
    AskToGiveUp,
    BirthView,
    Candidate,
    Formation,
    GiveBirth,
    HolderBook,
    NoBirth,
    Party,
    SameBirth,
    cancel,
    confirm,
    confirm_live,
    formation_of,
    next_epoch,
    note_given_up,
    note_leader,
    plan_birth,
    reserve,
    standing,
)
from keel.mesh.etcdids import birth_id, cluster_token
from keel.outcome import Waiting
from keel.types import FormationId, MeshId, Nonce, SigningKey

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
MESH = MeshId("00112233445566778899aabbccddeeff")
NONCE = Nonce("ab" * 16)
F1, F2 = FormationId("01" * 8), FormationId("02" * 8)


def party(letter: str) -> Party:
    number = ord(letter)
    return Party(address=IPv6Address(f"fd00::{letter}:1"), key=SigningKey(f"{number:02x}" * 32))


H, B, C, D, E = (party(letter) for letter in "abcde")


def candidate(
    who: Party, *, granted: int = 0, ready: bool = True, answers: bool = True, leader: bool = False
) -> Candidate:
    return Candidate(
        name=f"node-{who.address.packed[13]:x}",
        party=who,
        granted=NOW + timedelta(seconds=granted),
        ready=ready,
        answers=answers,
        sees_leader=leader,
    )


def view(
    *candidates: Candidate,
    book: HolderBook | None = None,
    joiner: Party | None = None,
    removed: Iterable[Party] = (),
) -> BirthView:
    return BirthView(
        mesh=MESH,
        holder=H,
        book=book or HolderBook(),
        candidates=candidates,
        joiner=joiner,
        removed=frozenset(one.key for one in removed),
    )


def reserved(at: BirthView, *, formation: FormationId = F1, now: datetime = NOW) -> HolderBook:
    birth = plan_birth(at, now)
    assert isinstance(birth, GiveBirth)
    return reserve(at, birth, formation=formation, nonce=NONCE, now=now)


def with_joiner() -> BirthView:
    return view(candidate(B), joiner=C)


def test_the_third_gives_birth_at_its_admission() -> None:
    birth = plan_birth(with_joiner(), NOW)
    assert isinstance(birth, GiveBirth)
    assert birth.members == (H, B, C)
    assert [(step.action, step.subject) for step in birth.plan.steps] == [
        ("reserve-formation", "fd00::a:1, fd00::b:1, fd00::c:1"),
        ("send-record", "fd00::a:1"),
        ("send-record", "fd00::b:1"),
        ("send-record", "fd00::c:1"),
    ]


def test_the_two_earliest_granted_that_answer_are_chosen() -> None:
    found = plan_birth(
        view(
            candidate(B, granted=3),
            candidate(C, granted=1, answers=False),
            candidate(D, granted=2),
            candidate(E, granted=4),
        ),
        NOW,
    )
    assert isinstance(found, GiveBirth)
    assert found.members == (H, D, B)


def test_who_joins_comes_after_two_that_are_ready_already() -> None:
    book = reserved(view(candidate(B), candidate(C), joiner=D))
    assert book.formations[0].members == (H, B, C)
    assert book.formations[0].joiner is None
    assert book.formations[0].confirmed


def test_who_joins_again_is_counted_once() -> None:
    assert isinstance(plan_birth(view(candidate(C), joiner=C), NOW), NoBirth)


def test_equal_grants_are_ordered_by_address() -> None:
    found = plan_birth(view(candidate(D), candidate(C), candidate(B)), NOW)
    assert isinstance(found, GiveBirth)
    assert found.members == (H, B, C)


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (view(), NoBirth(why="1 of 3 members are ready for a cluster")),
        (
            view(candidate(B), candidate(C, ready=False)),
            NoBirth(why="2 of 3 members are ready for a cluster"),
        ),
        (
            view(candidate(B), joiner=C, book=HolderBook(formed=F1)),
            NoBirth(why="the cluster is there"),
        ),
        (view(candidate(B, leader=True), joiner=C), NoBirth(why="a leader was seen")),
        (replace(with_joiner(), holder_sees_leader=True), NoBirth(why="a leader was seen")),
    ],
    ids=["alone", "two", "formed", "another sees a leader", "the holder sees a leader"],
)
def test_no_birth_without_need(at: BirthView, expected: NoBirth) -> None:
    assert plan_birth(at, NOW) == expected


@pytest.mark.parametrize(
    ("at", "waiting_for"),
    [
        (view(candidate(B), candidate(C, answers=False)), "node-c"),
        (replace(with_joiner(), window_open=True), "its network change"),
        (replace(with_joiner(), holder_ready=False), "the holder's own grant"),
    ],
    ids=["a silent member", "an open window", "no grant of its own"],
)
def test_a_birth_waits_and_says_for_whom(at: BirthView, waiting_for: str) -> None:
    found = plan_birth(at, NOW)
    assert isinstance(found, Waiting)
    assert found.waiting_for == waiting_for


def test_a_reservation_has_token_id_epoch_and_an_hour() -> None:
    book = reserved(replace(with_joiner(), book=HolderBook(epoch=7)))
    assert book == HolderBook(
        epoch=8,
        formations=(
            Formation(
                formation=F1,
                nonce=NONCE,
                members=(H, B, C),
                cluster_id=birth_id((H.address, B.address, C.address), cluster_token(MESH, F1)),
                reserved=NOW,
                expires=NOW + timedelta(hours=1),
                joiner=C.key,
            ),
        ),
    )


def test_the_book_reads_back_as_it_was_written() -> None:
    book = note_given_up(reserved(with_joiner()), F1, B.key)
    assert codec.loads(HolderBook, codec.dumps(book), max_bytes=9999, strict=False) == book


def test_the_second_of_two_invites_waits_while_the_first_is_open() -> None:
    book = reserved(with_joiner())
    found = plan_birth(view(candidate(B), joiner=D, book=book), NOW)
    assert isinstance(found, Waiting)
    assert found.waiting_for == f"formation {F1}"


def test_the_same_joiner_gets_the_same_reservation() -> None:
    book = reserved(with_joiner())
    found = plan_birth(view(candidate(B), joiner=C, book=book), NOW)
    assert found == SameBirth(formation=book.formations[0])


def test_an_unconfirmed_reservation_ends_with_its_record() -> None:
    book = reserved(with_joiner())
    late = NOW + RECORD_LIFE
    assert standing(book, late - timedelta(seconds=1)) == book.formations[0]
    assert standing(book, late) is None
    again = reserved(view(candidate(B), joiner=D, book=book), formation=F2, now=late)
    assert [(one.formation, one.over) for one in again.formations] == [(F1, True), (F2, False)]
    assert again.epoch == 2


def test_a_confirmed_formation_stands_after_its_record_expired() -> None:
    book = confirm(reserved(with_joiner()), C.key)
    found = plan_birth(view(candidate(B), candidate(C), book=book), NOW + 3 * RECORD_LIFE)
    assert isinstance(found, Waiting)
    assert found.waiting_for == f"a leader of formation {F1}"


def test_a_standing_formation_names_who_is_silent() -> None:
    book = confirm(reserved(with_joiner()), C.key)
    found = plan_birth(view(candidate(B), candidate(C, answers=False), book=book), NOW)
    assert isinstance(found, Waiting)
    assert found.waiting_for == "node-c"


def test_a_late_confirmation_counts_until_another_formation_was_begun() -> None:
    book = reserved(with_joiner())
    assert confirm(book, C.key).formations[0].confirmed
    late = reserved(view(candidate(B), joiner=D, book=book), formation=F2, now=NOW + RECORD_LIFE)
    assert not confirm(late, C.key).formations[0].confirmed


def test_who_is_in_the_roster_has_confirmed() -> None:
    book = reserved(with_joiner())
    assert confirm_live(book, [B.key, D.key]) == book
    assert confirm_live(book, [B.key, C.key]) == confirm(book, C.key)


def test_a_cancelled_claim_frees_the_reservation_but_a_confirmed_one_stays() -> None:
    book = reserved(with_joiner())
    assert standing(cancel(book, C.key), NOW) is None
    assert standing(cancel(confirm(book, C.key), C.key), NOW) is not None
    assert cancel(book, D.key) == book


def confirmed_and_halved() -> BirthView:
    """Two of the three were removed before a leader was seen."""
    book = confirm(reserved(with_joiner()), C.key)
    return view(candidate(D), candidate(E), book=book, removed=(B, C))


def test_a_formation_without_a_quorum_is_given_up_before_another_is_begun() -> None:
    at = confirmed_and_halved()
    found = plan_birth(at, NOW)
    assert isinstance(found, AskToGiveUp)
    assert (found.formation, found.members) == (F1, (H,))
    assert [(step.action, step.subject) for step in found.plan.steps] == [
        ("ask-to-give-up", "fd00::a:1")
    ]
    given_up = replace(at, book=note_given_up(at.book, F1, H.key))
    new = reserved(given_up, formation=F2)
    assert new.formations[1].members == (H, D, E)
    assert new.formations[0].over


def test_only_those_are_asked_that_have_not_given_up() -> None:
    at = confirmed_and_halved()
    one_left = replace(at, removed=frozenset({B.key}), book=note_given_up(at.book, F1, H.key))
    found = plan_birth(one_left, NOW)
    assert isinstance(found, Waiting)  # H and C are two of three: they could still elect


def test_a_reservation_checks_again_what_stands_under_the_lock() -> None:
    first, second = with_joiner(), view(candidate(B), joiner=D)
    birth = plan_birth(second, NOW)
    assert isinstance(birth, GiveBirth)
    for book in (reserved(first), HolderBook(formed=F1)):
        with pytest.raises(Refused) as caught:
            reserve(replace(second, book=book), birth, formation=F2, nonce=NONCE, now=NOW)
        assert caught.value.rule == "birth-taken"


def test_a_leader_ends_all_births() -> None:
    begun = confirm(reserved(with_joiner()), C.key)
    book = note_leader(begun, formation_of(begun, F1))
    assert (book.formed, book.formations) == (F1, begun.formations)
    assert isinstance(plan_birth(view(candidate(D), candidate(E), book=book), NOW), NoBirth)


def test_an_older_book_knows_a_formation_again_whose_leader_was_seen() -> None:
    born = replace(reserved(with_joiner()).formations[0], confirmed=True)
    older = reserved(view(candidate(B), joiner=D), formation=F2)
    book = note_leader(older, born)
    assert (book.formed, formation_of(book, F1)) == (F1, born)
    assert formation_of(book, F2).over
    assert book.epoch == older.epoch


def test_a_book_that_lacks_what_was_started_here_gives_no_birth() -> None:
    at = replace(view(candidate(B), candidate(C)), started_here=frozenset({F2}))
    waits = plan_birth(at, NOW)
    assert isinstance(waits, Waiting)
    assert F2 in waits.why
    known = replace(at, book=reserved(with_joiner(), formation=F2), started_here=frozenset({F2}))
    assert isinstance(plan_birth(known, NOW + 2 * RECORD_LIFE), GiveBirth)


def test_every_record_has_an_epoch_of_its_own() -> None:
    assert next_epoch(HolderBook(epoch=4)).epoch == 5


def test_formations_are_found_by_name() -> None:
    book = reserved(with_joiner())
    assert formation_of(book, F1) == book.formations[0]
    with pytest.raises(Internal):
        formation_of(book, F2)


Event = tuple[str, int]
events = st.lists(
    st.tuples(
        st.sampled_from(["admit", "tend", "confirm", "cancel", "give-up", "remove", "later"]),
        st.integers(min_value=0, max_value=3),
    ),
    max_size=14,
)


@settings(max_examples=300, deadline=None)
@given(story=events)
def test_never_two_formations_that_could_both_elect_a_leader(story: list[Event]) -> None:
    """Members start a formation once it is confirmed, and a quorum of one elects a leader unless
    it gave it up: whatever happens, at most one formation ever has such a quorum (B1, B5)."""
    others, book, now = (B, C, D, E), HolderBook(), NOW
    removed: set[SigningKey] = set()
    for number, (what, which) in enumerate(story):
        who = others[which]
        joiner = who if what == "admit" and who.key not in removed else None
        at = view(
            *(candidate(one) for one in others if one.key not in removed),
            book=book,
            joiner=joiner,
            removed=[one for one in others if one.key in removed],
        )
        match what:
            case "admit" | "tend":
                birth = plan_birth(at, now)
                if isinstance(birth, GiveBirth):
                    name = FormationId(f"{number + 1:016x}")
                    book = reserve(at, birth, formation=name, nonce=NONCE, now=now)
            case "confirm":
                book = confirm(book, who.key)
            case "cancel":
                book = cancel(book, who.key)
            case "give-up":
                birth = plan_birth(at, now)
                if isinstance(birth, AskToGiveUp):
                    book = note_given_up(book, birth.formation, birth.members[0].key)
            case "remove":
                removed.add(who.key)
            case _:
                now += RECORD_LIFE
        startable = [
            {one.key for one in each.members} - set(each.given_up) - removed
            for each in book.formations
            if each.confirmed
        ]
        assert sum(len(willing) > 1 for willing in startable) <= 1
        for one, other in itertools.combinations(book.formations, 2):
            assert one.formation != other.formation
