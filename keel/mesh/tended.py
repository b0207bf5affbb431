"""When this node's registry was last tended, and whether that was too long ago (E14).

Owns the stamp in /run: it forgets with the boot, and then `keel mesh up`, which every boot begins
with, stands for a pass: a container's clock goes on from its machine's boot, which may be long ago.
The textfile, status, and what a member says of itself when it is greeted follow it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from keel import codec
from keel.errors import BadValue
from keel.mesh import store
from keel.mesh.warnings import KINDS, Warning, warn
from keel.monitor import Sample
from keel.ports import Host

PERIOD_SECONDS = 300.0
SILENT_SECONDS = 3 * PERIOD_SECONDS
MAX_BYTES = 1024
TENDED = "keel_tend_last_success_timestamp_seconds"
WARNING = "keel_warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tended:
    """The end of a pass, by both clocks."""

    time: datetime
    monotonic: float


def note(host: Host) -> None:
    """A pass ended, the timer was started, or this node comes into its mesh: just now."""
    stamp = Tended(time=host.clock.now(), monotonic=host.clock.monotonic())
    store.keep_hint(host, host.paths.tended, codec.dumps(stamp))


def note_boot(host: Host) -> None:
    """This node was booted: nothing could tend it before."""
    if _stamp(host) is None:
        note(host)


def last(host: Host) -> datetime:
    """When the last pass ended, or else the boot. By this node's clock of now."""
    return host.clock.now() - timedelta(seconds=_age(host))


def silent_seconds(host: Host) -> int | None:
    """For how long nothing tended this node's registry; None while that is as it should be."""
    age = _age(host)
    return int(age) if age >= SILENT_SECONDS else None


def silence(tended: datetime, found: Iterable[Warning]) -> tuple[Sample, ...]:
    """When the registry was last tended, and every warning as 0 or 1."""
    counts = Counter(one.code for one in found)
    return (
        sample(TENDED, "When a pass of the tend last ended.", tended.timestamp()),
        *(
            sample(
                WARNING,
                "Whether a warning holds; docs/mesh.md has each.",
                counts[code] > 0,
                code=code,
                severity=kind.severity.value,
            )
            for code, kind in KINDS.items()
        ),
    )


def sample(name: str, text: str, value: float, **labels: str) -> Sample:
    return Sample(name=name, help=text, value=float(value), labels=labels)


def tell_silence(host: Host, name: str) -> None:
    """When nothing tends any more, the textfile says that much; others write it then."""
    if silent_seconds(host) is not None:
        host.metrics.write(silence(last(host), (warning(name, last(host)),)))


def warning(name: str, since: datetime) -> Warning:
    """That nothing tends the registry of the node of that name."""
    detail = codec.format_time(since.replace(microsecond=0))
    return warn("tend-silent", subject=name, detail=detail)


def _age(host: Host) -> float:
    now, stamp = host.clock.monotonic(), _stamp(host)
    return now if stamp is None else now - stamp.monotonic


def _stamp(host: Host) -> Tended | None:
    """That of this boot, if there is one."""
    raw = host.files.read(host.paths.tended)
    try:
        stamp = None if raw is None else codec.loads(Tended, raw, max_bytes=MAX_BYTES)
    except BadValue:
        return None  # a hint: as good as none
    return None if stamp is None or stamp.monotonic > host.clock.monotonic() else stamp
