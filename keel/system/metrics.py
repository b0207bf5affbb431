"""The textfile that Prometheus' node exporter reads: whole, or the one before (O3).

Owns the file's form. Where there is no such directory nobody reads it, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Sequence

from keel.monitor import Sample
from keel.paths import Paths
from keel.ports import Files

MODE = 0o644


class Textfile:
    """keel.monitor.MetricsOut."""

    def __init__(self, paths: Paths, files: Files) -> None:
        self._paths = paths
        self._files = files

    def write(self, samples: Sequence[Sample]) -> None:
        if self._files.exists(self._paths.textfile.parent):
            self._files.write(self._paths.textfile, render(samples), mode=MODE)


def render(samples: Sequence[Sample]) -> bytes:
    """The samples as the exporter wants them, families in their order."""
    from prometheus_client import CollectorRegistry, Gauge, generate_latest

    registry = CollectorRegistry()
    families: dict[str, Gauge] = {}
    for one in samples:
        gauge = families.get(one.name)
        if gauge is None:
            gauge = Gauge(one.name, one.help, sorted(one.labels), registry=registry)
            families[one.name] = gauge
        (gauge.labels(**one.labels) if one.labels else gauge).set(one.value)
    text: bytes = generate_latest(registry)
    return text
