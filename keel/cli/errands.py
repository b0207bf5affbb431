"""The passes that a message kicks, in a process that has all of it loaded (keel.cli.passes).

A process of its own for each of them costs Python's start and every import, which on a small
machine is most of what a birth takes. Owns when a pass runs, never what it does: a pass that is cut
off, or fails, is the timer's to do again. What a pass reckoned from secrets is forgotten when it
ends.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace

from keel import secretcache
from keel.cli import render
from keel.errors import KeelError
from keel.mesh import etcdtend, sync
from keel.ports import Host, Units, UnitState
from keel.spec import specfile
from keel.unitnames import SYNC_UNIT, TEND_UNIT

PATIENCE_SECONDS = 60.0
"""A pass waits for one that the timer started: that may have looked before the message came."""

Pass = Callable[[], object]


class Errand:
    """One kind of pass: never two at once; asked for while one runs, one more follows it."""

    def __init__(self, name: str, run: Pass) -> None:
        self._name = name
        self._run = run
        self._turn = threading.Lock()
        self._lock = threading.Lock()
        self._waiting = False

    def busy(self) -> bool:
        """Whether it runs, or is about to."""
        with self._lock:
            return self._waiting or self._turn.locked()

    def ask(self) -> None:
        """Have it run soon; returns at once."""
        with self._lock:
            if self._waiting:
                return
            self._waiting = True
        threading.Thread(target=self._work, name=self._name, daemon=True).start()

    def _work(self) -> None:
        with self._turn:
            with self._lock:
                self._waiting = False
            try:
                self._run()
            except KeelError as error:
                sys.stderr.write(render.error_text(error, color=False) + "\n")
            finally:
                secretcache.forget()


class WarmUnits:
    """keel.ports.Units; a unit that has an errand is not started by systemd but runs here."""

    def __init__(self, units: Units, errands: Mapping[str, Errand]) -> None:
        self._units = units
        self._errands = errands

    def start(self, *units: str, block: bool = True) -> None:
        here = () if block else tuple(unit for unit in units if unit in self._errands)
        for unit in here:
            self._errands[unit].ask()
        if others := tuple(unit for unit in units if unit not in here):
            self._units.start(*others, block=block)

    def busy(self) -> bool:
        """Whether any errand runs."""
        return any(errand.busy() for errand in self._errands.values())

    def state(self, unit: str) -> UnitState:
        return self._units.state(unit)

    def stop(self, unit: str) -> None:
        self._units.stop(unit)

    def restart(self, unit: str, *, block: bool = True) -> None:
        self._units.restart(unit, block=block)

    def enable(self, *units: str) -> None:
        self._units.enable(*units)

    def disable(self, unit: str) -> None:
        self._units.disable(unit)

    def reload_configuration(self) -> None:
        self._units.reload_configuration()

    def schedule(self, unit: str, *, seconds: float) -> None:
        self._units.schedule(unit, seconds=seconds)

    def unschedule(self, unit: str) -> None:
        self._units.unschedule(unit)

    def scheduled(self, unit: str) -> bool:
        return self._units.scheduled(unit)


def warmed(host: Host) -> tuple[Host, WarmUnits]:
    """The same host, where the passes that are kicked run in this process; and its units."""
    found: dict[str, Errand] = {}
    units = WarmUnits(host.units, found)
    host = replace(host, units=units)

    def tend() -> None:
        duties = etcdtend.tend(
            host, lambda: specfile.load(host), specfile.enable_etcd, wait_seconds=PATIENCE_SECONDS
        )
        for duty in duties:
            sys.stderr.write(f"{duty.name}: {duty.result}: {duty.text}\n")

    def exchange() -> None:
        reached = ", ".join(sync.sync(host, specfile.held(host)).value.reached)
        sys.stderr.write(f"exchanged rosters with {reached or 'nobody'}\n")

    found[TEND_UNIT] = Errand("tend", tend)
    found[SYNC_UNIT] = Errand("sync", exchange)
    return host, units
