"""The network window on this node: armed before it is applied, confirmed or undone (M10).

Owns the order of effects around window.json; what may confirm it is keel.mesh.window's to say.
"""

from __future__ import annotations

from keel.mesh import store, window
from keel.ports import Host


def is_open(host: Host) -> bool:
    """Whether a change to the network waits here, or what follows from one is not done yet."""
    return host.files.exists(host.paths.window)


def refuse_open(host: Host) -> None:
    """Refused (window-open) while one waits: for every flow that changes something. Hold the
    lock."""
    found = store.load_window(host)
    if found is not None:
        raise window.open_error(found)
