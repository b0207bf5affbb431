"""`keel mesh doctor`."""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import dataclass
from typing import TYPE_CHECKING

from keel.cli import render
from keel.cli.parser import flag
from keel.cli.verb import Report, Verb
from keel.ports import Host

if TYPE_CHECKING:
    from keel.mesh.doctor import ClockFound


@dataclass(frozen=True, slots=True, kw_only=True)
class Doctor:
    accept_clock: bool
    dry_run: bool

    def run(self, host: Host) -> Report:
        from keel.mesh import doctor

        if not self.accept_clock:
            return _report(doctor.look_at_clock(host), ())
        if self.dry_run:
            return render.plan_report(doctor.plan_accept_clock(host))
        done = doctor.accept_clock(host)
        return _report(done.value, done.changed)


def _report(found: ClockFound, changed: tuple[str, ...]) -> Report:
    from keel import codec

    def text(moment: object) -> str:
        return codec.format_time(moment.replace(microsecond=0))  # type: ignore[attr-defined]

    judged = found.judged
    highest = None if found.highest is None else text(found.highest)
    return Report(
        text="\n".join(
            (
                *changed,
                f"clock: {found.why or 'nothing contradicts it'}",
                f"it says {text(found.now)}; the highest time seen is {highest or '<none>'}",
                f"members heard since boot: {judged.heard}, {judged.differ} of them differ",
                f"synchronized by NTP: {'yes' if found.synchronized else 'no'}",
            )
        ),
        document={
            "schema": "keel.doctor/1",
            "clock": {
                "right": not judged.off,
                "now": text(found.now),
                "highest": highest,
                "heard": judged.heard,
                "differ": judged.differ,
                "synchronized": found.synchronized,
                "why": found.why or None,
                "remedy": found.remedy or None,
            },
            "changed": list(changed),
        },
        notes=(f"keel: hint: {found.remedy}",) if found.remedy else (),
    )


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--accept-clock",
        action="store_true",
        help="take this node's clock as right although it is before a time that was seen",
    )


DOCTOR = Verb(
    name="doctor",
    summary="say whether this node's clock lets it sign",
    description="Looks at this node's clock: what the members said of the time, the highest time "
    "that this node has seen, and NTP. While they contradict it nothing is issued, renewed, "
    "formed or revoked here.",
    example="keel mesh doctor",
    add_arguments=_arguments,
    options=lambda found: Doctor(
        accept_clock=flag(found, "accept_clock"), dry_run=flag(found, "dry_run")
    ),
    changes=True,
)
