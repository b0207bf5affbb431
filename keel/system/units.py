"""systemd's units, through systemctl."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from keel.ports import Proc, UnitRuns, UnitState

BLOCK_SECONDS = 90.0
"""systemd's own default for a start or a stop; keel's blocking units take far less."""
ASK_SECONDS = 20.0

_PROPERTIES = (
    "ActiveState",
    "SubState",
    "MainPID",
    "InvocationID",
    "UnitFileState",
    "NeedDaemonReload",
    "NRestarts",
    "Job",
    "ExecStart",
    "ExecStartPre",
    "User",
)
_STARTS = frozenset({"condition", "start-pre", "start", "start-post"})
"""What an activating unit is at before it runs; else it waits to be started once more."""


class Systemd:
    """keel.ports.Units. A unit that does not exist is inactive and has an empty `enabled`."""

    def __init__(self, proc: Proc, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._proc = proc
        self._monotonic = monotonic

    def state(self, unit: str) -> UnitState:
        asked = [f"--property={name}" for name in _PROPERTIES]
        done = self._proc.run(
            ["systemctl", "show", *asked, "--", unit], timeout_seconds=ASK_SECONDS
        )
        found: dict[str, str] = {}
        for line in done.stdout.decode("utf-8", "replace").splitlines():
            name, is_one, value = line.partition("=")
            if is_one:  # what may be several has a line for each
                found[name] = f"{found[name]}\n{value}" if name in found else value
        main_pid = found.get("MainPID", "")
        return UnitState(
            active=found.get("ActiveState", "inactive"),
            sub=found.get("SubState", "dead"),
            main_pid=int(main_pid) if main_pid.isdigit() else 0,
            invocation_id=found.get("InvocationID", ""),
            enabled=found.get("UnitFileState", ""),
            stale=found.get("NeedDaemonReload") == "yes",
            runs=UnitRuns(
                start=found.get("ExecStart", ""),
                before=found.get("ExecStartPre", ""),
                user=found.get("User", ""),
            ),
            comes_up=_comes_up(found),
        )

    def start(self, *units: str, block: bool = True) -> None:
        self._change("start", *units, block=block)

    def stop(self, unit: str) -> None:
        self._change("stop", unit, block=True)

    def restart(self, unit: str, *, block: bool = True) -> None:
        self._change("restart", unit, block=block)

    def enable(self, *units: str) -> None:
        # Loading all units anew takes a second on a small machine, and nothing answers meanwhile.
        argv = ["systemctl", "enable", "--quiet", "--no-reload", "--", *units]
        self._proc.run(argv, timeout_seconds=ASK_SECONDS)

    def disable(self, unit: str) -> None:
        self._proc.run(["systemctl", "disable", "--quiet", "--", unit], timeout_seconds=ASK_SECONDS)

    def reload_configuration(self) -> None:
        self._proc.run(["systemctl", "daemon-reload"], timeout_seconds=BLOCK_SECONDS)

    def schedule(self, unit: str, *, seconds: float) -> None:
        argv = ["systemd-run", "--quiet", f"--unit={unit}", self._at(seconds)]
        # Without it a timer of seconds may come a minute late.
        accurate = "--timer-property=AccuracySec=1s"
        self._proc.run([*argv, accurate], timeout_seconds=ASK_SECONDS)

    def unschedule(self, unit: str) -> None:
        # A timer that is over or never was is not loaded, and systemctl says so with status 5.
        argv = ["systemctl", "stop", "--", _timer_of(unit)]
        self._proc.run(argv, timeout_seconds=ASK_SECONDS, check=False)

    def scheduled(self, unit: str) -> bool:
        return self.state(_timer_of(unit)).active == "active"

    def _at(self, seconds: float) -> str:
        """From systemd's own start: what is counted from the timer's begins anew with each
        daemon-reload, as packages and people make them."""
        name = "UserspaceTimestampMonotonic"
        done = self._proc.run(
            ["systemctl", "show", "--value", f"--property={name}"], timeout_seconds=ASK_SECONDS
        )
        started = done.stdout.decode("ascii", "replace").strip()
        if not started.isdecimal():
            return f"--on-active={seconds:.0f}s"
        return f"--on-startup={self._monotonic() - int(started) / 1e6 + seconds:.3f}s"

    def _change(self, verb: str, *units: str, block: bool) -> None:
        how = [] if block else ["--no-block"]
        self._proc.run(["systemctl", verb, *how, "--", *units], timeout_seconds=BLOCK_SECONDS)


def _comes_up(found: Mapping[str, str]) -> bool:
    if found.get("NRestarts", "0") != "0":
        return False
    if found.get("ActiveState") == "activating":
        return found.get("SubState") in _STARTS
    return found.get("ActiveState") == "inactive" and found.get("Job", "") not in ("", "0")


def _timer_of(unit: str) -> str:
    """The name that systemd-run gives the timer of a service."""
    return f"{unit.removesuffix('.service')}.timer"
