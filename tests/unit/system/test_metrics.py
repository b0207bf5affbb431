"""The textfile: what the node exporter takes, whole, and only where somebody reads it."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from keel.monitor import Sample
from keel.paths import Paths
from keel.system.fs import DurableFiles
from keel.system.metrics import Textfile, render

SAMPLES = (
    Sample(name="keel_tend", help="When.", value=1767225600.0, labels={}),
    Sample(name="keel_warning", help="Whether.", value=1.0, labels={"code": "a", "severity": "w"}),
    Sample(name="keel_warning", help="Whether.", value=0.0, labels={"code": "b", "severity": "w"}),
)


def test_it_says_every_sample_with_its_help_and_type() -> None:
    text = render(SAMPLES).decode()
    families = {one.name: one for one in text_string_to_metric_families(text)}
    assert families["keel_tend"].samples[0].value == 1767225600.0
    assert {s.labels["code"]: s.value for s in families["keel_warning"].samples} == {
        "a": 1.0,
        "b": 0.0,
    }
    assert [one.type for one in families.values()] == ["gauge", "gauge"]


def test_nothing_is_written_where_no_exporter_reads(tmp_path: Path) -> None:
    Textfile(Paths(tmp_path), DurableFiles()).write(SAMPLES)
    assert list(tmp_path.iterdir()) == []


def test_it_is_readable_and_alone_in_its_directory(tmp_path: Path) -> None:
    path = Paths(tmp_path).textfile
    path.parent.mkdir(parents=True)
    Textfile(Paths(tmp_path), DurableFiles()).write(SAMPLES)
    assert path.read_bytes() == render(SAMPLES)
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(path.parent.iterdir()) == [path]
