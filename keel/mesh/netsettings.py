"""The network settings in force: port, MTU and endpoints, as they were last applied (M10).

Owns network.json. An edit of the spec takes effect when it is applied, under a network window; the
timers that raise the interface meanwhile go by what is in force, not by what they read.
"""

from __future__ import annotations

from dataclasses import replace

from keel import codec
from keel.mesh import store, window
from keel.mesh.window import Settings, settings_of
from keel.ports import Host
from keel.spec.model import Spec


def load(host: Host) -> Settings | None:
    """Those that were applied last; None before this node's interface was first raised."""
    path = host.paths.settings
    return codec.read_state(Settings, path, host.files.read(path))


def save(host: Host, settings: Settings) -> None:
    """These hold from here on; nothing is written when they do already."""
    if load(host) != settings:
        host.files.write(host.paths.settings, codec.dumps(settings))


def keep_first(host: Host, spec: Spec) -> None:
    """The spec's settings hold from here on, when none were ever applied."""
    if not host.files.exists(host.paths.settings):
        save(host, settings_of(spec))


def in_force(host: Host, spec: Spec) -> Spec:
    """The spec with the settings that hold now in place of its own: those of an open window, or
    those applied last."""
    return with_settings(
        spec, window.in_force(store.load_window(host), load(host) or settings_of(spec))
    )


def with_settings(spec: Spec, held: Settings) -> Spec:
    """The spec with these settings in place of its own."""
    wireguard = replace(
        spec.network.wireguard,
        port=held.port,
        mtu=held.mtu,
        endpoints=held.endpoints,
        interface=held.interface or spec.network.wireguard.interface,
    )
    return replace(spec, network=replace(spec.network, wireguard=wireguard))
