"""What needs no appliances: certificates beside the openssl command, and simulated meshes, with
Debian 13's own Python and packages.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from netns import image
from netns.benches import rows
from netns.benches.rows import Row
from netns.imagetest import copy_source
from netns.sandbox import run_in_layers

SCRIPT = "cp -a /run/source /tmp/source; cd /tmp/source; python3 -m {module}"
CERTIFICATES, SIMULATION = "tests.pki.bench", "tests.scale"
GOALS_MS = {"a leaf": 5.0, "an intermediate": 5.0, "a CRL of 10000": 200.0}
FLAT = 1.5
"""Bytes or seconds of the largest mesh beside those of a mesh of 30."""


def certificates() -> list[Row]:
    return certificate_rows(_said_by(CERTIFICATES))


def simulation() -> list[Row]:
    return simulation_rows(_said_by(SIMULATION))


def certificate_rows(found: Mapping[str, tuple[float, float]]) -> list[Row]:
    """Milliseconds, keel's and openssl's."""
    return [
        Row(
            what=f"{name}, ms of CPU",
            keel=f"{ours:.1f}",
            beside=f"openssl {theirs:.1f}",
            goal=rows.at_most([ours], GOALS_MS[name], " ms"),
        )
        for name, (ours, theirs) in found.items()
    ]


def simulation_rows(found: Mapping[str, Mapping[str, float]]) -> list[Row]:
    """By how many members there are."""
    return [
        _growth(found, "nothing", "bytes of a sync between two, nothing changed", 0),
        _growth(found, "told", "the same, one record told", 0),
        _growth(found, "learned", "the same, one record learned", 0),
        _growth(found, "status", "status asks all, s (two round trips: 0.5)", 2),
        _growth(found, "cpu", "of it CPU, s", 2, goal=False),
    ]


def _growth(
    found: Mapping[str, Mapping[str, float]], key: str, what: str, digits: int, *, goal: bool = True
) -> Row:
    values = [one[key] for one in found.values()]
    ratio = values[-1] / values[-2] if values[-2] else 1.0
    met = "met" if ratio <= FLAT else "**not met**"
    return Row(
        what=f"mesh of {', '.join(found)} (simulated): {what}",
        keel=rows.listed(values, digits),
        beside="itself",
        goal=f"flat from 30 on: {ratio:.2f} x: {met}" if goal else "",
    )


def _said_by(module: str) -> Any:
    """The JSON that it printed last."""
    with tempfile.TemporaryDirectory() as scratch:
        source, log = Path(scratch) / "source", Path(scratch) / "log"
        copy_source(source)
        run_in_layers(
            image.roots("test"),
            SCRIPT.format(module=module),
            what=module,
            binds={source: "/run/source"},
            log=log,
        )
        return json.loads(log.read_text().splitlines()[-1])
