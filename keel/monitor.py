"""Protocols for what watches this machine: the operator's channels and the metrics' textfile.

Ports like those of keel.ports, which has the Host that carries them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


class AlertsOut(Protocol):
    """The monitor's channels; each call is AlertFailed unless the message was taken."""

    def webhook(self, url: str, document: bytes, *, timeout_seconds: float) -> None:
        """POST this JSON; any answer of 200 to 299 takes it."""

    def mail(self, to: str, subject: str, text: str, *, timeout_seconds: float) -> None: ...

    def command(self, argv: Sequence[str], document: bytes, *, timeout_seconds: float) -> None:
        """Run it with the document as its input; status 0 takes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One gauge's value."""

    name: str
    help: str
    value: float
    labels: Mapping[str, str]


class MetricsOut(Protocol):
    def write(self, samples: Sequence[Sample]) -> None:
        """Replace the textfile, if this machine has a place for one."""
