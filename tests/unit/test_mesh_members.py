"""What members claim: rules N1 to N4, and how a person names one."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv6Address

import pytest

from keel.errors import Refused
from keel.mesh.members import Member, View, chain, find, view
from keel.types import Capability, NodeName, WgKey
from tests.factories_mesh import Mesh, at, key, seal, wg

MESH = Mesh()
A, B, C = (MESH.admission("f", name) for name in "abc")
NAMES = {key(name): name for name in "fabcxy"}


def seen(*raws: bytes) -> View:
    return view(MESH.roster(*raws))


def member(name: str, *raws: bytes) -> Member:
    found = seen(*raws).by_key(key(name))
    assert found is not None
    return found


def keys_of(*raws: bytes) -> dict[str, WgKey | None]:
    return {NAMES[one.key]: one.wireguard for one in seen(*raws).members}


def codes(*raws: bytes) -> list[tuple[str, str]]:
    return [(one.code, NAMES[one.subject]) for one in seen(*raws).warnings]


def test_before_its_first_self_record_a_member_is_as_admitted() -> None:
    found = member("a", A)
    assert (found.name, found.display, found.key) == ("a", "a", key("a"))
    assert (found.address, found.wireguard) == (MESH.address("a"), wg("a"))
    assert (found.capability, found.self_counter, found.said_at) == (Capability.NONE, None, None)
    assert (found.admitted_by, found.admitted_at, found.distance) == (key("f"), at(1), 1)
    assert (found.admission,) == MESH.hashes(A)


def test_the_founder_is_as_its_genesis_says() -> None:
    found = member("f")
    assert (found.name, found.admitted_by, found.distance) == ("f", key("f"), 0)
    assert found.admission == MESH.empty.founding.record


def test_then_its_newest_self_record_speaks() -> None:
    newest = MESH.said("a", counter=3, roots=["b"], next_wireguard=wg("a2"))
    found = member("a", A, MESH.said("a", counter=2), newest)
    assert (found.self_counter, found.lived, found.said_at) == (3, 3, at(3))
    assert (found.capability, found.roots) == (Capability.ETCD, (key("b"),))
    assert found.next_wireguard == wg("a2")
    assert "self.v1" in found.versions


def test_two_self_records_of_one_counter_are_a_clone() -> None:
    raws = [MESH.said("a", roots=["b"]), MESH.said("a", roots=["c"])]
    lower = min(raws, key=lambda raw: MESH.hashes(raw))
    assert member("a", A, *raws).roots == member("a", A, lower).roots
    assert codes(A, *raws) == [("clone", "a")]
    assert codes(A, *raws, MESH.said("a", counter=2)) == []


K = wg("contested")
RAWS = {
    "a-admitted-with-it": MESH.admission("f", "a", minutes=5, wireguard=K),
    "b-admitted-with-it-later": MESH.admission("f", "b", minutes=6, wireguard=K),
    "a-takes-it": MESH.said("a", counter=4, wireguard=K, since=20),
    "b-takes-it-later": MESH.said("b", counter=2, wireguard=K, since=30),
    "b-says-it-always-had-it": MESH.said("b", counter=2, wireguard=K, since=-9999),
}


@pytest.mark.parametrize(
    ("raws", "owner"),
    [
        pytest.param(
            [RAWS["a-admitted-with-it"], RAWS["b-admitted-with-it-later"]], "a", id="admitted-first"
        ),
        pytest.param(
            [RAWS["a-admitted-with-it"], B, RAWS["b-says-it-always-had-it"]],
            "a",
            id="an-admission-before-ones-own-word",
        ),
        pytest.param(
            [A, RAWS["a-takes-it"], B, RAWS["b-takes-it-later"]], "a", id="who-has-it-longer"
        ),
        pytest.param(
            [
                A,
                RAWS["a-takes-it"],
                MESH.admission("f", "b", minutes=25),
                RAWS["b-says-it-always-had-it"],
            ],
            "a",
            id="nobody-had-it-before-being-admitted",
        ),
        pytest.param(
            [A, RAWS["a-takes-it"], B, MESH.said("a", counter=5), RAWS["b-takes-it-later"]],
            "b",
            id="who-has-another-by-now-claims-it-no-more",
        ),
        pytest.param(
            [
                RAWS["a-admitted-with-it"],
                RAWS["b-admitted-with-it-later"],
                MESH.removal("f", "a"),
            ],
            "b",
            id="only-the-living-claim",
        ),
        pytest.param(
            [A, MESH.admission("a", "x", wireguard=K), MESH.admission("f", "b", wireguard=K)],
            "b",
            id="equal-times-the-nearer",
        ),
    ],
)
def test_a_wireguard_key_stays_with_the_one_that_had_it(raws: list[bytes], owner: str) -> None:
    for order in (raws, raws[::-1]):
        holders = [name for name, held in keys_of(*order).items() if held == K]
        assert holders == [owner]


def test_who_claims_anothers_key_is_a_member_without_one_and_named() -> None:
    raws = [A, B, MESH.said("b", wireguard=wg("a"))]
    assert keys_of(*raws) == {"f": wg("f"), "a": wg("a"), "b": None}
    assert member("b", *raws).claimed == wg("a")
    (warning,) = seen(*raws).warnings
    assert (warning.code, warning.subject) == ("wireguard-key-twice", key("b"))
    assert warning.text == "b claims the WireGuard key of a"


def test_nobodys_next_key_is_anothers_present_or_next_one() -> None:
    takes_present = MESH.said("b", next_wireguard=wg("a"))
    assert member("b", A, B, takes_present).next_wireguard is None
    both = [MESH.said(name, next_wireguard=K) for name in "ab"]
    assert [member(name, A, B, *both).next_wireguard for name in "ab"].count(K) == 1


def named(by: str, who: str, name: str) -> bytes:
    body = MESH.admission_body(by, who)
    return seal("admission", replace(body, name=NodeName(name)), by)


def later(by: str, who: str, name: str) -> bytes:
    body = MESH.admission_body(by, who, minutes=9)
    return seal("admission", replace(body, name=NodeName(name)), by)


TWINS = (named("f", "a", "web"), named("f", "b", "web"))
MARKS = {name: f"web~{key(name)[:4]}" for name in "ab"}


def test_equal_names_both_stay_and_are_told_apart() -> None:
    twins = seen(*TWINS)
    assert sorted(one.display for one in twins.members) == sorted(["f", *MARKS.values()])
    assert sorted(codes(*TWINS)) == [("name-twice", "a"), ("name-twice", "b")]
    assert {one.key for one in twins.named(NodeName("web"))} == {key("a"), key("b")}


def test_a_mark_is_as_long_as_it_takes() -> None:
    by_mark: dict[str, str] = {}
    for n in range(5000):
        other = by_mark.setdefault(key(f"n{n}")[:4], f"n{n}")
        if other != f"n{n}":
            break
    twins = seen(named("f", other, "web"), named("f", f"n{n}", "web"))
    displays = {one.display for one in twins.members if one.name == "web"}
    assert len(displays) == 2
    assert min(len(display) for display in displays) > len("web~1234")


def test_names_of_removed_members_are_free() -> None:
    left = seen(*TWINS, MESH.removal("f", "a"))
    assert [one.display for one in left.named(NodeName("web"))] == ["web"]


def test_who_renames_a_member_by_admitting_it_anew_frees_its_name_for_no_puppet() -> None:
    """b is nearer to the founder than x, whose admission of y called it web."""
    mine = (A, B, MESH.admission("a", "x"), named("x", "y", "web"))
    hostile = (named("b", "y", "other"), named("b", "puppet", "web"))
    found = seen(*mine, *hostile)
    with pytest.raises(Refused) as refused:
        find(found, "web")
    assert refused.value.rule == "member-ambiguous"
    by_name = {one.display: one.key for one in found.members}
    assert by_name[f"web~{key('puppet')[:4]}"] == key("puppet")
    assert find(found, "other").key == find(found, f"web~{key('y')[:8]}").key == key("y")
    assert find(seen(*mine, hostile[0]), "web").key == key("y")


def test_an_admitters_newer_word_takes_its_older_name_away() -> None:
    renamed = seen(A, MESH.admission("f", "b"), later("f", "b", "other"))
    assert find(renamed, "other").called == {"other"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("f", "f", id="name"),
        pytest.param(MARKS["b"], "b", id="name-and-mark"),
        pytest.param(f"web~{key('b')}", "b", id="longer-mark"),
        pytest.param(MESH.address("a").compressed, "a", id="address"),
        pytest.param(key("a"), "a", id="signing-key"),
    ],
)
def test_a_member_is_found_by_what_a_person_may_type(text: str, expected: str) -> None:
    assert NAMES[find(seen(*TWINS), text).key] == expected


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        pytest.param("web", "member-ambiguous", id="two-of-that-name"),
        pytest.param("web~", "member-unknown", id="no-mark"),
        pytest.param("nobody", "member-unknown", id="unknown"),
        pytest.param(f"f~{key('a')[:4]}", "member-unknown", id="anothers-mark"),
        pytest.param("", "member-unknown", id="empty"),
    ],
)
def test_what_names_no_one_member_is_refused(text: str, rule: str) -> None:
    with pytest.raises(Refused) as refused:
        find(seen(*TWINS), text)
    assert refused.value.rule == rule
    assert refused.value.remedy()


def test_an_ambiguous_name_is_refused_with_both_addresses() -> None:
    with pytest.raises(Refused) as refused:
        find(seen(*TWINS), "web")
    for name in "ab":
        assert MESH.address(name).compressed in refused.value.summary()


def test_a_view_finds_by_key_and_address() -> None:
    found = seen(A)
    assert found.by_address(MESH.address("a")) == found.by_key(key("a")) == member("a", A)
    assert (found.by_key(key("b")), found.by_address(IPv6Address("::1"))) == (None, None)


def test_of_two_admissions_the_nearest_signers_newest_speaks() -> None:
    raws = [
        A,
        MESH.admission("f", "b", minutes=1, wireguard=wg("old")),
        MESH.admission("f", "b", minutes=2, wireguard=wg("new")),
        MESH.admission("a", "b", minutes=9, wireguard=wg("far")),
    ]
    assert keys_of(*raws)["b"] == keys_of(*raws[::-1])["b"] == wg("new")


def test_a_chain_is_for_live_members_only() -> None:
    with pytest.raises(Refused) as refused:
        chain(MESH.roster(A, MESH.removal("f", "a")), key("a"))
    assert refused.value.rule == "member-unknown"


def test_a_removed_member_is_shown_with_what_removed_it() -> None:
    removal = MESH.removal("f", "a")
    assert seen(A, removal).removed == {key("a"): MESH.hashes(removal)}


def test_a_member_cannot_take_a_key_by_admitting_a_puppet_with_an_old_date() -> None:
    victim = MESH.admission("f", "b", minutes=6, wireguard=K)
    puppet = MESH.admission("a", "x", minutes=-9999, wireguard=K)
    assert keys_of(A, victim, puppet)["b"] == K


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("b", "a")])
def test_by_a_puppet_only_who_could_remove_a_member_takes_its_key(first: str, second: str) -> None:
    """However old a date the second one writes."""
    victim = MESH.admission(first, "x", minutes=6, wireguard=K)
    puppet = MESH.admission(second, "y", minutes=-9999, wireguard=K)
    again = MESH.admission(second, "x", minutes=-9999, wireguard=K)
    could_remove = member("x", A, B, victim, again).remover == key(second)
    for order in ((A, B, victim, puppet), (puppet, victim, B, A)):
        assert keys_of(*order) == {
            "f": wg("f"),
            "a": wg("a"),
            "b": wg("b"),
            "x": None if could_remove else K,
            "y": K if could_remove else None,
        }
