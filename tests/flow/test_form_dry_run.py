"""`keel mesh etcd form --dry-run` on whole nodes: plan or refusal, and every number (E13)."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from keel.cli.form import Form
from keel.errors import Exit
from keel.mesh import etcdmeasure, talk
from keel.mesh.exchange import ETCD_PATH
from keel.mesh.formmsg import ForeignEtcd, Measure, Measured
from tests.flow.test_form import one_cluster, without_root
from tests.flow.world import World

GOLDEN = Path(__file__).parent / "golden"


def dry_run(world: World, name: str, *without: str) -> tuple[Exit, dict[str, Any], str]:
    found = Form(without=without, dry_run=True).run(world.host(name))
    assert isinstance(found.document, dict)
    return found.exit, found.document, "\n".join((found.text, *found.notes))


def bad(document: dict[str, Any]) -> list[tuple[str, str]]:
    return [(c["what"], c["where"]) for c in document["checks"] if c["verdict"] == "no-go"]


def golden(name: str, document: dict[str, Any], text: str) -> None:
    wanted = json.dumps(document, indent=2, sort_keys=True) + "\n\n" + text + "\n"
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("KEEL_GOLDEN") == "write":
        path.write_text(wanted)
    assert wanted == path.read_text()


def test_fit_members_and_the_plan(tmp_path: Path) -> None:
    world = without_root(tmp_path)
    world.trust("b", "a")
    code, document, text = dry_run(world, "a")
    assert code is Exit.DONE
    assert document["go"] is True
    assert bad(document) == []
    golden("form-dry-run", document, text)
    assert any(text.startswith("measuring") for text in world.net.nodes["a"].console.waited)


def test_a_refusal_is_shown_beside_the_numbers(tmp_path: Path) -> None:
    world = without_root(tmp_path)
    world.net.nodes["c"].power_off()
    code, document, text = dry_run(world, "a")
    assert code is Exit.REFUSED
    assert document["refused"]["rule"] == "form-silent"
    assert document["steps"] == []
    assert document["go"] is False
    assert bad(document) == [("answer", "c")]
    golden("form-dry-run-refused", document, text)


def test_every_member_s_own_numbers_come_by_the_channel(tmp_path: Path) -> None:
    world = without_root(tmp_path)
    addresses = {name: world.loaded(name).address for name in "abc"}
    b, c = world.net.nodes["b"], world.net.nodes["c"]
    b.gauge.sync = 0.5
    b.gauge.free = 1 << 20
    c.gauge.etcd = None
    c.gauge.links[addresses["b"]] = (0.2, 1.3, None, 1.2, 0.25, 0.2, 0.2, 0.2)
    c.clock.wrong_by = timedelta(seconds=100)
    (b.root / "var/lib/etcd/default").mkdir(parents=True)
    _, document, _ = dry_run(world, "a")
    assert sorted(bad(document)) == [
        ("clock", "c"),
        ("disk-free", "b"),
        ("disk-sync", "b"),
        ("etcd-version", "c"),
        ("foreign-etcd", "b"),
        ("loss", "c -> b"),
    ]
    values = {(check["what"], check["where"]): check["value"] for check in document["checks"]}
    assert values["loss", "c -> b"] == "3 of 8 held up"
    assert values["round-trip", "c -> b"] == "200 ms"


def test_one_that_answers_small_messages_only_is_a_no_go(tmp_path: Path) -> None:
    """Full packets do not pass: the probe is answered, the padded question is not."""
    world = without_root(tmp_path)
    original = world.net.nodes["c"].handler

    def handler(path: str, source: object, body: bytes) -> object:
        if len(body) > 4096:
            world.net.lose("reply", source="a", target="c", path=ETCD_PATH)
        return original(path, source, body)  # type: ignore[arg-type]

    world.net.nodes["c"].handler = handler  # type: ignore[assignment]
    _, document, _ = dry_run(world, "a")
    assert ("answer", "c") in bad(document)


def test_a_clock_that_is_too_far_off_is_told_by_its_refusal(tmp_path: Path) -> None:
    world = without_root(tmp_path)
    world.net.nodes["c"].clock.wrong_by = timedelta(seconds=4000)
    code, document, _ = dry_run(world, "a")
    assert code is Exit.REFUSED
    assert document["refused"]["rule"] == "form-silent"


@pytest.mark.parametrize(
    ("arrange", "found"),
    [
        pytest.param("nothing", ForeignEtcd.NONE, id="none"),
        pytest.param("stray", ForeignEtcd.STRAY, id="stray"),
        pytest.param("data", ForeignEtcd.DATA, id="data"),
        pytest.param("runs", ForeignEtcd.RUNNING, id="runs"),
    ],
)
def test_an_etcd_that_is_not_keel_s_is_named(
    arrange: str, found: ForeignEtcd, tmp_path: Path
) -> None:
    world = without_root(tmp_path)
    node = world.net.nodes["a"]
    if arrange == "stray":
        (node.root / "var/lib/etcd/default").mkdir(parents=True)
    if arrange == "data":
        (node.paths.etcd_data / "member").mkdir(parents=True)
    if arrange == "runs":
        node.units.unit("etcd.service").active = True
    assert etcdmeasure.measure(node.host, world.spec("a"), ()).foreign is found


def test_a_member_of_a_cluster_has_no_foreign_etcd(tmp_path: Path) -> None:
    world = without_root(tmp_path)
    world.form("a")
    world.settle()
    world.rest("a", "b", "c")
    one_cluster(world, "abc")
    found = etcdmeasure.measure(world.host("b"), world.spec("b"), ())
    assert found.foreign is ForeignEtcd.NONE


def test_paths_are_measured_for_a_trust_root_only(tmp_path: Path) -> None:
    """c's root is a; b asks, too."""
    world = without_root(tmp_path)

    def links(asker: str) -> int:
        node = world.loaded(asker)
        member = node.view.by_key(world.loaded("c").key)
        assert member is not None
        question = Measure(peers=tuple(world.loaded(name).address for name in "ab"))
        answer = talk.ask(
            world.host(asker), node, member, "report", question, Measured, path=ETCD_PATH
        )
        return len(answer.body.links)

    assert links("a") == 2
    assert links("b") == 0
