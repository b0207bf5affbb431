"""The monitor's channels by the last spec that could be read: who is told that it no longer can.

Owns channels.json, which is the spec's own form of them. Everything else of the spec waits until it
is mended; a member that cannot read it has all the more to say.
"""

from __future__ import annotations

import json
from dataclasses import replace

from keel.errors import SpecError
from keel.ports import Host
from keel.spec import parse
from keel.spec.model import Monitor, Spec


def differ(host: Host, spec: Spec) -> bool:
    """Whether others are kept than the spec has."""
    held = host.files.read(host.paths.channels)
    return not spec.unread and held != _raw(spec) and bool(held or spec.monitor.channels)


def keep(host: Host, spec: Spec) -> None:
    """The channels of a spec that was read; nothing is written when they are kept already."""
    if differ(host, spec):
        host.files.write(host.paths.channels, _raw(spec))


def with_channels(host: Host, spec: Spec) -> Spec:
    """The spec with those in place of its own; with none when the file is damaged, too."""
    try:
        held = parse.parse_spec(host.files.read(host.paths.channels) or b"").monitor
    except SpecError:
        held = Monitor()
    return replace(spec, monitor=held)


def _raw(spec: Spec) -> bytes:
    return json.dumps({"monitor": parse.as_document(spec)["monitor"]}).encode()
