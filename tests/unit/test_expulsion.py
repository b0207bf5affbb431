"""Who may be taken out of etcd's list, and what is said when somebody must not (E18)."""

from __future__ import annotations

from ipaddress import IPv6Address

import pytest

from keel.errors import Exit, Refused
from keel.mesh.expulsion import Consent, Gate, Seat, gate, plan, quorum, refuse, warnings
from keel.types import EtcdMemberId


def at(name: str) -> IPv6Address:
    return IPv6Address(f"fd00::{ord(name):x}")


def seats(text: str) -> list[Seat]:
    """`a b- c! d?`: a healthy voter, one that is down, a removed one, a learner."""
    return [
        Seat(
            id=EtcdMemberId(ord(word[0])),
            name=word[0],
            address=at(word[0]),
            learner="?" in word,
            healthy="-" not in word,
            removed="!" in word,
        )
        for word in text.split()
    ]


@pytest.mark.parametrize(
    ("cluster", "subject", "wanted"),
    [
        pytest.param("a b c", "d", Gate.NOT_LISTED, id="not in the cluster"),
        pytest.param("a b c", "c", Gate.OPEN, id="one of three healthy"),
        pytest.param("a b c-", "c", Gate.OPEN, id="the dead one of three"),
        pytest.param("a b c-", "b", Gate.NO_QUORUM, id="a healthy one beside a dead one"),
        pytest.param("a b c d-", "c", Gate.NO_QUORUM, id="four, one is dead, another goes"),
        pytest.param("a b c d-", "d", Gate.OPEN, id="four, the dead one goes"),
        pytest.param("a b c d- e-", "e", Gate.OPEN, id="five, two are dead, one of them goes"),
        pytest.param("a b c d e-", "d", Gate.OPEN, id="five, one is dead, another goes"),
        pytest.param("a b c d- e-", "c", Gate.NO_QUORUM, id="five, two are dead, another goes"),
        pytest.param("a b c d! e-", "c", Gate.NO_QUORUM, id="a removed voter is no help"),
        pytest.param("a b! c", "c", Gate.NO_QUORUM, id="of three, one is removed already"),
        pytest.param("a b", "b", Gate.ONE_VOTER, id="one of two"),
        pytest.param("a b-", "b", Gate.NO_QUORUM, id="the dead one of two"),
        pytest.param("a b- c?", "c", Gate.OPEN, id="a learner of two without a quorum"),
        pytest.param("a b c d?", "d", Gate.OPEN, id="a learner"),
        pytest.param("a b c-? d", "d", Gate.OPEN, id="a learner counts toward no quorum"),
    ],
)
def test_what_it_means_when_a_member_goes(cluster: str, subject: str, wanted: Gate) -> None:
    assert gate(seats(cluster), at(subject)) is wanted


@pytest.mark.parametrize(
    ("found", "consent", "rule"),
    [
        (Gate.NO_QUORUM, Consent(), "removal-no-quorum"),
        (Gate.NO_QUORUM, Consent(one_voter=True), "removal-no-quorum"),
        (Gate.ONE_VOTER, Consent(), "removal-one-voter"),
        (Gate.ONE_VOTER, Consent(without_quorum=True), "removal-one-voter"),
    ],
)
@pytest.mark.parametrize("command", ["keel mesh leave", "keel mesh remove web-3"])
def test_a_shut_gate_is_refused_by_its_own_rule(
    found: Gate, consent: Consent, rule: str, command: str
) -> None:
    with pytest.raises(Refused) as caught:
        refuse(found, "web-3", consent, command=command)
    assert (caught.value.rule, caught.value.exit) == (rule, Exit.REFUSED)
    assert "web-3" in caught.value.summary()
    option = {"removal-no-quorum": "--without-quorum", "removal-one-voter": "--one-voter"}[rule]
    assert f"`{command} {option} --confirm web-3`" in caught.value.remedy()


@pytest.mark.parametrize(
    ("found", "consent"),
    [
        (Gate.OPEN, Consent()),
        (Gate.NOT_LISTED, Consent()),
        (Gate.NO_QUORUM, Consent(without_quorum=True)),
        (Gate.ONE_VOTER, Consent(one_voter=True)),
    ],
)
def test_an_open_gate_or_consent_lets_it_go(found: Gate, consent: Consent) -> None:
    refuse(found, "web-3", consent, command="keel mesh leave")


@pytest.mark.parametrize(
    ("cluster", "wanted"),
    [
        ("a b c d e", ()),
        ("a b c d", ()),
        ("a b e", ("2 voters are left",)),
        ("a e", ("1 voter is left",)),
        ("a b c e?", ()),
        ("a b", ()),
    ],
)
def test_the_end_of_fault_tolerance_is_said_before(cluster: str, wanted: tuple[str, ...]) -> None:
    found = warnings(seats(cluster), at("e"))
    assert len(found) == len(wanted)
    for text, part in zip(found, wanted, strict=True):
        assert part in text
        assert "no fault tolerance" in text


@pytest.mark.parametrize(
    ("cluster", "steps", "waits"),
    [
        pytest.param("a b c", "", "", id="nobody was removed"),
        pytest.param("a b c!-", "c", "", id="of three"),
        pytest.param("a b c d!", "d", "", id="of four, while it runs still"),
        pytest.param("a b! c-", "", "b", id="no quorum without it"),
        pytest.param("a b c d!- e!-", "de", "", id="two of five"),
        pytest.param("a b c d! e!-", "ed", "", id="the dead one goes first"),
        pytest.param("a b c d! e!?", "ed", "", id="the learner goes first"),
        pytest.param("a b- c- d!? e!", "d", "e", id="a learner needs no quorum of voters"),
        pytest.param("a b!", "b", "", id="of two, while both serve"),
        pytest.param("a- b!", "", "b", id="of two, when the one that stays is silent"),
    ],
)
def test_the_removed_go_one_by_one_while_the_others_are_a_quorum(
    cluster: str, steps: str, waits: str
) -> None:
    found = plan(seats(cluster))
    assert [chr(int(step.subject, 16)) for step in found.steps] == list(steps)
    assert [one.what for one in found.waiting] == [f"the end of {x}'s place in etcd" for x in waits]


def test_it_is_said_which_voters_a_removal_waits_for() -> None:
    (waiting,) = plan(seats("a b! c- d-")).waiting
    assert waiting.waiting_for == "c, d"
    both = plan(seats("a b!- c!- d-")).waiting
    assert {one.waiting_for for one in both} == {"d"}
    alone = plan(seats("a! b! c!")).waiting[0]
    assert alone.waiting_for == "a quorum"


def test_the_quorum_is_of_the_voters() -> None:
    assert [quorum(seats(text)) for text in ("a", "a b", "a b c d?", "a b c d", "a b c d e")] == [
        1,
        2,
        2,
        3,
        3,
    ]
