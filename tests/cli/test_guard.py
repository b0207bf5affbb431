"""The guard's process: its exit status, and what the journal gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from keel.cli import guard
from keel.errors import Exit
from keel.paths import Paths


def test_a_refusal_is_told_with_its_remedy_and_etcd_does_not_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert guard.run(Paths(tmp_path)) == Exit.REFUSED
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "keel: error: there is no etcd.env of keel's under /etc/etcd/keel",
        "keel: hint: run `keel spec apply`; etcd is started again by itself",
    ]
