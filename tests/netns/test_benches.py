"""What the bench says of its figures; the figures themselves are the lab's."""

import json

import pytest

from netns.bench import Part, wanted
from netns.benches import alone, bare, birth, cuts, writes
from netns.benches.cuts import Side, common_follower, says_it_leads
from netns.benches.rows import Row, at_most, ratios, table
from netns.benches.writes import Written
from netns.lab import Lab
from netns.topology import names

A, B, C = THREE = names(3)


def test_a_table_is_as_the_evidence_has_it() -> None:
    assert table([Row(what="join", keel="2 s", goal="met")]) == (
        "| what | keel | beside it | goal |\n|---|---|---|---|\n| join | 2 s |  | met |"
    )


@pytest.mark.parametrize(
    ("values", "said"),
    [
        pytest.param([5.9, 6.0], "6 s, every run: met", id="all within"),
        pytest.param([5.9, 6.1], "6 s, every run: **not met** (1 of 2)", id="one beyond"),
        pytest.param([], "6 s, every run: **not met** (0 of 0)", id="nothing measured"),
    ],
)
def test_a_goal_for_every_run(values: list[float], said: str) -> None:
    assert at_most(values, 6.0, " s") == said


def test_a_goal_beside_what_ran_in_the_same_round() -> None:
    assert ratios([5.2, 7.8], [5.0, 5.0], 1.3) == (
        "1.3 x, every round: 1.04, 1.56: **not met** (1 of 2)"
    )
    assert ratios([5.2], [5.0], 1.3) == "1.3 x, every round: 1.04: met"


@pytest.mark.parametrize(
    ("argv", "parts"),
    [
        pytest.param([], tuple(Part), id="all"),
        pytest.param(["rejoin", "birth"], (Part.BIRTH, Part.REJOIN), id="some, in their order"),
    ],
)
def test_parts_are_chosen_by_name(argv: list[str], parts: tuple[Part, ...]) -> None:
    assert wanted(argv).parts == parts


def test_rounds_and_seconds_are_chosen() -> None:
    asked = wanted(["writes", "--rounds", "1", "--stable", "60"])
    assert (asked.rounds, asked.stable) == (1, 60.0)


def test_an_unknown_part_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        wanted(["birht"])
    assert "no such part: birht; there are certs" in capsys.readouterr().err


def test_bare_etcd_has_keels_settings_but_for_its_data_and_its_cluster() -> None:
    said = bare.settings("# keel\nETCD_DATA_DIR=/var/lib/keel-etcd\nETCD_NAME=keel-a\n", "bare-0")
    assert said.splitlines() == [
        "ETCD_DATA_DIR=/var/lib/bare-etcd",
        "ETCD_NAME=keel-a",
        "ETCD_INITIAL_CLUSTER_STATE=new",
        "ETCD_INITIAL_CLUSTER_TOKEN=bare-0",
    ]


@pytest.mark.parametrize(
    ("leaders", "follower"),
    [
        pytest.param([A, B], C, id="two"),
        pytest.param([C, C], B, id="the same"),
        pytest.param([C, B], A, id="the last two"),
    ],
)
def test_who_follows_in_both_clusters_is_cut(leaders: list[str], follower: str) -> None:
    assert common_follower(leaders, THREE) == follower  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("leader", "leads"),
    [pytest.param(7, True, id="itself"), pytest.param(8, False, id="another")],
)
def test_a_leader_is_known_by_its_own_word(leader: int, leads: bool) -> None:
    said = json.dumps([{"Status": {"header": {"member_id": 7}, "leader": leader}}])
    assert says_it_leads(said) is leads


def test_nobody_leads_without_a_leader() -> None:
    assert not says_it_leads(json.dumps([{"Status": {"header": {"member_id": 7}}}]))


def make_side(label: str, rejoin: list[float]) -> Side:
    return Side(
        label=label,
        lab=Lab(label),
        unit="etcd.service",
        rejoin=rejoin,
        leader=[9.0],
        leader_again=[12.5],
    )


def test_a_return_that_nobody_waited_for_to_the_end_is_said_to_be_more() -> None:
    found = cuts.table(make_side("keel", [3.0]), make_side("bare", [4.0, cuts.PATIENCE]))
    assert [row.beside for row in found] == [
        "bare etcd 4.00, > 30",
        "bare etcd 9.00",
        "bare etcd 12.50",
    ]
    assert found[2].goal == "12 s, every run: **not met** (0 of 1)"


@pytest.mark.parametrize(
    ("ours", "failures", "goal"),
    [
        pytest.param(0.30, (), "1.05 x, none failed: 1.000: met", id="as fast"),
        pytest.param(0.33, (), "1.05 x, none failed: 1.100: **not met**", id="slower"),
        pytest.param(0.30, ("x",), "1.05 x, none failed: 1.000: **not met**", id="one failed"),
    ],
)
def test_writes_are_judged_by_their_median_and_failures(
    ours: float, failures: tuple[str, ...], goal: str
) -> None:
    theirs = Written(took=(0.1, 0.3, 0.5), failures=())
    row = writes.row(Written(took=(ours,), failures=failures), theirs, 300.0)
    assert row.goal == goal
    assert row.beside == ("bare etcd 300.0 ms median, 300.0 mean, 500 p99; 0 of 3 failed")


JOURNAL = """\
-- Boot 1 --
90.5 a systemd[1]: Starting etcd.service - an old start
100.31 a systemd[1]: Starting etcd.service - etcd
101.02 a etcd[9]: {"msg":"starting an etcd server"}
104.9 a etcd[9]: {"msg":"raft.node: 1 elected leader 2 at term 2"}
105.0 a etcd[9]: {"msg":"raft.node: 1 elected leader 3 at term 3"}
"""


def test_a_birth_is_told_mark_by_mark_from_its_confirmation() -> None:
    assert birth.timeline(JOURNAL, 100.0) == "unit 0.31, etcd 1.02, leader 4.90"


def test_short_commands_are_judged_by_their_medians() -> None:
    assert birth.middle([(1.0, 0.1), (3.0, 0.2), (2.0, 0.6)]) == (2.0, 0.2)
    found = birth.command_rows(
        {
            "keel --version": (0.03, 0.03),
            "etcdctl version": (0.02, 0.02),
            "keel mesh etcd tend": (0.5, 0.39),
            "etcdctl endpoint status --cluster": (2.6, 0.1),
            "keel mesh status": (0.94, 0.44),
        },
        0.25,
    )
    assert [row.keel for row in found] == [
        "0.03",
        "0.50 s, 0.39 s CPU",
        "0.94 s, 0.44 s CPU, the rest 2.0 round trips",
    ]
    assert found[2].goal.endswith("0.4 s CPU, every run: **not met** (0 of 1)")


def test_certificates_are_judged_in_milliseconds() -> None:
    found = alone.certificate_rows({"a leaf": (1.2, 9.9), "a CRL of 10000": (201.0, 300.0)})
    assert [(row.keel, row.beside) for row in found] == [
        ("1.2", "openssl 9.9"),
        ("201.0", "openssl 300.0"),
    ]
    assert found[0].goal == "5 ms, every run: met"
    assert found[1].goal == "200 ms, every run: **not met** (0 of 1)"


def test_a_large_mesh_is_judged_beside_a_smaller_one() -> None:
    flat = {"nothing": 10, "told": 20, "learned": 30, "status": 0.5, "cpu": 0.0}
    found = alone.simulation_rows({"3": flat, "30": flat, "200": {**flat, "told": 31}})
    assert [row.goal for row in found] == [
        "flat from 30 on: 1.00 x: met",
        "flat from 30 on: 1.55 x: **not met**",
        "flat from 30 on: 1.00 x: met",
        "flat from 30 on: 1.00 x: met",
        "",
    ]
    assert found[1].what == ("mesh of 3, 30, 200 (simulated): the same, one record told")
    assert found[1].keel == "20, 20, 31"
