import os
import re
import signal
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from netns.check import (
    REQUIRED,
    Result,
    Work,
    complete,
    heard_from,
    in_order,
    reason,
    required_names,
    run_all,
    snapshot_name,
    table,
)
from netns.scenario import Failed, Pings, Report, discover, is_void, parse_pings

ANSWERS = """\
PING 198.51.100.2 (198.51.100.2) 56(84) bytes of data.
64 bytes from 198.51.100.2: icmp_seq=1 ttl=64 time=244 ms
64 bytes from 198.51.100.2: icmp_seq=3 ttl=64 time=250.5 ms
64 bytes from 198.51.100.2: icmp_seq=3 ttl=64 time=251 ms (DUP!)
"""

ROWS_TABLE = Path(__file__).parents[2] / "docs" / "evidence" / "rows.md"
# M4, M12 to M14, R and most of O are not built yet.
BUILT = (
    *(f"M{number}" for number in (1, 2, 3, 5, 6, 7, 8, 9, 10, 11)),
    *(f"E{number}" for number in range(1, 23)),
    *("O4", "P1", "P2", "Q2", "Q3", "Q4"),
)


def make_result(name: str, verdict: str = "passed") -> Result:
    return Result(name=name, rows=("M1", "M2"), seconds=61.2, verdict=verdict)


def make_pings(*, lost: int = 8, outside: int = 0, sent: int = 400) -> Pings:
    times = (250.0,) * (sent - lost - outside) + (300.0,) * outside
    return Pings(sent=sent, times_ms=times)


def test_pings_are_read_and_an_answer_that_came_twice_counts_once() -> None:
    pings = parse_pings(ANSWERS, 4)
    assert pings == Pings(sent=4, times_ms=(244.0, 251.0))
    assert str(pings) == "244/248/251 ms, 50.0 % of 4 lost"


def test_no_answer_at_all_is_said() -> None:
    assert str(parse_pings("", 4)) == "no answer to 4 pings"


@pytest.mark.parametrize(
    ("pings", "void"),
    [
        pytest.param(make_pings(), False, id="the bad link"),
        pytest.param(make_pings(lost=0), True, id="nothing lost"),
        pytest.param(make_pings(lost=33), True, id="too much lost"),
        pytest.param(make_pings(outside=4), False, id="one in a hundred late"),
        pytest.param(make_pings(outside=5), True, id="more than one in a hundred late"),
        pytest.param(make_pings(lost=400), True, id="dead"),
    ],
)
def test_a_link_is_void_when_it_is_not_the_standard_bad_one(pings: Pings, void: bool) -> None:
    assert is_void(pings) is void


def test_a_required_scenario_that_did_not_run_fails() -> None:
    results = complete([make_result("one")], ["one", "two"])
    assert [(result.name, result.verdict) for result in results] == [
        ("one", "passed"),
        ("two", "missing"),
    ]


def test_a_scenario_that_is_not_required_fails() -> None:
    results = complete([make_result("one"), make_result("two")], ["one"])
    assert results[-1].verdict == "not-required"


def test_scenarios_begin_in_the_order_in_which_they_are_required() -> None:
    first, second, *rest = discover()
    order = [one.name for one in in_order([first, second, *rest], [second.name, first.name])]
    assert order[:2] == [second.name, first.name]
    assert order[2:] == [one.name for one in rest]


def test_scenarios_share_the_joined_lab_of_their_kind_and_of_their_run_alone() -> None:
    one, *_ = discover()
    same, other = replace(one, name="same"), replace(one, members=one.members + 1)
    assert snapshot_name(one, 7) == snapshot_name(same, 7)
    assert len({snapshot_name(one, 7), snapshot_name(one, 8), snapshot_name(other, 7)}) == 3


def test_what_a_scenario_notes_stands_beside_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    Report("mesh_join").note("joined")
    assert capsys.readouterr().out.startswith("mesh_join         0.0 s  joined")


def test_the_table_ends_with_the_count_and_why_each_failed() -> None:
    void = replace(make_result("three", "void"), why="two void links")
    text = table([make_result("one"), void])
    assert text.splitlines() == [
        "SCENARIO  ROWS   SECONDS  RESULT  LINK  WIREGUARD  SEED",
        "one       M1,M2  61       passed  -     -          -",
        "three     M1,M2  61       void    -     -          -",
        "1 passed, 1 failed",
        "three: two void links",
    ]


def test_why_a_scenario_failed_names_its_own_line_and_stays_short() -> None:
    try:
        Report("mesh_join").expect(False, "a and b see each other " + 1000 * ".")
    except Failed as error:
        why = reason(error)
    assert re.match(r"scenario\.py:\d+: Failed: a and b see each other \.", why)
    assert len(why) == 600


def passes(name: str, _: int, tell: Connection) -> None:
    tell.send(make_result(name))


def dies_or_passes(name: str, run: int, tell: Connection) -> None:
    if name == discover()[0].name:
        os.kill(os.getpid(), signal.SIGKILL)
    passes(name, run, tell)


def exits(*_: object) -> None:
    raise SystemExit(3)


def never_ends(*_: object) -> None:
    time.sleep(600)


@pytest.mark.parametrize(
    ("work", "seconds", "told"),
    [
        pytest.param(passes, 60, (make_result("one"), ""), id="passed"),
        pytest.param(exits, 60, (None, "ended with 3"), id="exit"),
        pytest.param(never_ends, 0.1, (None, "did not end in 0.1 s"), id="hangs"),
    ],
)
def test_what_became_of_a_scenarios_process_is_told(
    work: Work, seconds: float, told: tuple[Result | None, str]
) -> None:
    assert heard_from(work, "one", 1, seconds) == told


def test_a_scenario_whose_process_dies_is_red_and_the_others_have_their_results() -> None:
    first, second, *_ = discover()
    cleaned = []
    results = run_all(
        [first, second],
        at_once=2,
        work=dies_or_passes,
        clean=lambda scenario, _: cleaned.append(scenario.name),
    )
    assert [(one.name, one.verdict) for one in results] == [
        (first.name, "crashed"),
        (second.name, "passed"),
    ]
    assert cleaned == [first.name]
    told = f"1 passed, 1 failed\n{first.name}: its process ended with -9\n"
    assert table(results).endswith(told)


def claims() -> dict[str, tuple[list[str], list[str]]]:
    """Of docs/evidence/rows.md: a row's files of tests, and its scenarios."""
    found = {}
    for line in ROWS_TABLE.read_text().splitlines():
        row, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        if line.startswith("| ") and row in BUILT:
            files = re.findall(r"[\w/]+\.py", " ".join(cells))
            words = re.split(r"[,;] ", cells[-1])
            found[row] = (files, sorted(word for word in words if word.replace("_", "").isalpha()))
    return found


def test_every_row_that_is_built_is_claimed_and_its_scenarios_say_so_themselves() -> None:
    shown = {
        row: sorted(scenario.name for scenario in discover() if row in scenario.rows)
        for row in BUILT
    }
    assert {row: scenarios for row, (_, scenarios) in claims().items()} == shown
    assert [row for row, scenarios in shown.items() if not scenarios] == []


@pytest.mark.parametrize("row", BUILT)
def test_every_file_that_is_claimed_has_tests(row: str) -> None:
    files = [ROWS_TABLE.parent.parent.parent / name for name in claims()[row][0]]
    assert files
    assert [file for file in files if "\ndef test_" not in file.read_text()] == []


def test_every_scenario_is_required_by_name() -> None:
    names = [scenario.name for scenario in discover()]
    assert len(names) == len(set(names))
    assert sorted(required_names(REQUIRED.read_text())) == sorted(names)
