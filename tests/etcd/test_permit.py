"""The permit for a birth's start: good once, for this boot, for seconds, for what was judged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from keel.cli import guard as guard_process
from keel.cli import judgement
from keel.errors import Exit
from keel.mesh import etcdpermit
from tests.etcd import make
from tests.etcd.test_start import Answers, at_its_address, begun, install, marker_of
from tests.fakes import FakeNet, FakeNode

BOOT = "0c1f"
NOW = 100.0


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    found = install(at_its_address(FakeNet(tmp_path).node("c")))
    found.paths.boot_id.parent.mkdir(parents=True, exist_ok=True)
    found.paths.boot_id.write_text(f"{BOOT}\n")
    return found


@pytest.fixture
def permitted(node: FakeNode) -> FakeNode:
    judgement.permit(node.host, Answers())
    return node


def redeem(node: FakeNode, *, boot: str = BOOT, later: float = 1.0) -> bool:
    now = node.clock.monotonic() + later
    return etcdpermit.redeem(node.files, node.paths, boot=boot, now=now, invocation="abc")


def test_a_birth_that_was_judged_may_start_once(permitted: FakeNode) -> None:
    assert marker_of(permitted) is not None
    assert redeem(permitted)
    assert json.loads(permitted.paths.etcd_loaded.read_bytes())["invocation"] == "abc"
    assert not redeem(permitted)


def test_there_is_no_permit_for_what_is_refused(node: FakeNode) -> None:
    judgement.permit(node.host, Answers(led=(make.address("a"),)))
    assert not redeem(node)
    assert marker_of(node) is None


def test_an_address_that_is_not_there_is_not_waited_for(tmp_path: Path) -> None:
    node = install(FakeNet(tmp_path).node("c"))
    before = node.clock.monotonic()
    judgement.permit(node.host, Answers())
    assert not redeem(node)
    assert node.clock.monotonic() == before


def touch(name: str) -> Callable[[FakeNode], object]:
    def change(node: FakeNode) -> None:
        path = getattr(node.paths, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"other")

    return change


CHANGES = {
    name: touch(name)
    for name in (
        *("etcd_cluster", "etcd_record", "etcd_trust", "etcd_marker", "lived"),
        *("etcd_drop_in", "etcd_condition", "etcd_permit"),
    )
} | {
    "laid": lambda node: (node.paths.laid / "member.pem").write_bytes(b"other"),
    "laid-gone": lambda node: (node.paths.laid / "crl.der").unlink(),
    "laid-more": lambda node: (node.paths.laid / "more").touch(),
    "data": begun,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_permit_is_good_for_nothing_else_than_was_judged(
    permitted: FakeNode, change: Callable[[FakeNode], object]
) -> None:
    change(permitted)
    assert not redeem(permitted)


@pytest.mark.parametrize(
    ("boot", "later"),
    [("other", 1.0), (BOOT, etcdpermit.GOOD_SECONDS + 1.0), (BOOT, -1.0)],
    ids=["another-boot", "late", "of-the-future"],
)
def test_a_permit_of_another_time_is_none(permitted: FakeNode, boot: str, later: float) -> None:
    assert not redeem(permitted, boot=boot, later=later)
    assert not redeem(permitted)  # used up by the attempt


@pytest.mark.parametrize("part", [{"time": "now"}, {"loads": None}], ids=["time", "loads"])
def test_a_permit_without_a_part_is_none(permitted: FakeNode, part: dict[str, object]) -> None:
    permit = json.loads(permitted.paths.etcd_permit.read_bytes())
    permitted.paths.etcd_permit.write_text(json.dumps({**permit, **part}))
    assert not redeem(permitted)


def test_a_second_start_judged_while_etcd_begins_takes_nothing_from_its_life(
    permitted: FakeNode,
) -> None:
    """Its start waits in systemd's queue, so that whoever looks sees none and starts it again."""
    assert redeem(permitted)
    told = permitted.paths.etcd_loaded.read_bytes()
    judgement.permit(permitted.host, Answers())
    assert permitted.paths.etcd_permit.exists()
    assert permitted.paths.etcd_loaded.read_bytes() == told


def permitted_now(node: FakeNode) -> None:
    judgement.permit(node.host, Answers())
    permit = json.loads(node.paths.etcd_permit.read_bytes())
    permit["time"] = guard_process.SystemClock().monotonic()
    node.paths.etcd_permit.write_text(json.dumps(permit))


def test_a_permit_is_none_for_a_unit_with_a_setting_that_does_harm(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    permitted_now(node)
    monkeypatch.setenv("ETCD_FORCE_NEW_CLUSTER", "true")
    assert guard_process.run(node.paths) == Exit.REFUSED
    assert "ETCD_FORCE_NEW_CLUSTER" in capsys.readouterr().err


def test_the_guard_lets_a_permitted_birth_start(
    node: FakeNode, capsys: pytest.CaptureFixture[str]
) -> None:
    permitted_now(node)
    assert guard_process.run(node.paths) == Exit.DONE
    assert "judged a moment ago" in capsys.readouterr().err
    assert not node.paths.etcd_permit.exists()  # nothing permits the second start
