"""Shifts the clock of keel on one appliance; etcd and wireguard-go keep the machine's."""

from __future__ import annotations

from netns.lab import Lab
from netns.topology import Name

LIBRARY = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"
DROP_IN = "/etc/systemd/system/keel-.service.d/clock.conf"  # for every unit that begins with keel-
GUARDS_DROP_IN = "/etc/systemd/system/etcd.service.d/90-clock.conf"
GUARD = "/usr/libexec/keel/etcd-guard"


def environment(offset: str) -> dict[str, str]:
    """What libfaketime wants to be told; timers and time-outs go on as they are."""
    return {
        "LD_PRELOAD": LIBRARY,
        "FAKETIME": offset,
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_NO_CACHE": "1",
    }


def shift(lab: Lab, name: Name, offset: str) -> None:
    """Shift keel's units by an offset such as `+10m`, also of an appliance that is off; commands go
    through `shifted`.
    """
    lines = [f'Environment="{key}={value}"\n' for key, value in environment(offset).items()]
    lab.put(name, DROP_IN, "[Service]\n" + "".join(lines))
    _reload(lab, name)


def shift_guard(lab: Lab, name: Name, offset: str) -> None:
    """Shift what keel runs before each start of etcd; etcd itself is not moved by libfaketime."""
    argv = " ".join(shifted([GUARD], offset))
    lab.put(name, GUARDS_DROP_IN, f"[Service]\nExecStartPre=\nExecStartPre=+/usr/bin/{argv}\n")
    _reload(lab, name)


def _reload(lab: Lab, name: Name) -> None:
    """An appliance that is off reads it when it boots."""
    if lab.running(name):
        lab.exec(name, ["systemctl", "daemon-reload"])


def restore(lab: Lab, name: Name) -> None:
    """Undo `shift` and `shift_guard`."""
    lab.exec(name, ["rm", "-f", DROP_IN, GUARDS_DROP_IN])
    lab.exec(name, ["systemctl", "daemon-reload"])


def shifted(argv: list[str], offset: str) -> list[str]:
    """A command whose clock is shifted."""
    return ["env", *(f"{key}={value}" for key, value in environment(offset).items()), *argv]
