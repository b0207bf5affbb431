"""The spec's file: read by every command, and the one change that keel makes to it by itself (E6).

Owns /etc/keel/spec.yaml. Apart from keel.spec.apply, which needs most of keel: no command is to
load all that to know its own spec.
"""

from __future__ import annotations

from pathlib import Path

from keel.errors import SpecError, StateCorrupt
from keel.mesh import netsettings, store
from keel.ports import Host
from keel.spec import model, parse
from keel.spec.model import Installation, Network, Overlay, Overlays, Spec, TcpBound
from keel.types import Capability, Mode

NEW_SPEC = b"# This node's spec; keel.spec(5) describes it. Check it with `keel spec check`.\n"
SPEC_MODE = 0o640
"""It may name a webhook with a secret in its URL."""


def load(host: Host) -> Spec:
    """What holds on this node: the operator's spec, but port, MTU and endpoints as they were last
    applied."""
    return netsettings.in_force(host, held(host))


def held(host: Host) -> Spec:
    """As `wanted`. A file that does not parse is to be mended before anything is changed by it;
    meanwhile a member stays one: by what it knows of itself, and `unread` says why."""
    try:
        return wanted(host)
    except SpecError as error:
        return remembered(host, error)


def remembered(host: Host, error: SpecError) -> Spec:
    """What a member knows of its spec without the file; raises the error on any other node."""
    from keel.mesh import etcdstore, lastchannels  # here: with a spec that parses nobody needs them
    from keel.mesh.etcdstate import Stage

    node = store.load(host)
    me = node.view.by_key(node.key) if node else None
    settled = netsettings.load(host)
    if me is None or settled is None:
        raise error
    in_cluster = etcdstore.load_cluster(host).stage is not Stage.IDLE
    spec = Spec(
        installation=Installation(
            mode=Mode.CLOUD_ADVANCED if me.capability is Capability.ETCD else Mode.CLOUD
        ),
        node=model.Node(name=me.name),
        network=Network(tcp_bound=TcpBound.OFF),  # the host's as it is
        overlays=Overlays(etcd=Overlay.ENABLED if in_cluster else Overlay.DISABLED),
        unread=error.summary(),
    )
    return lastchannels.with_channels(host, netsettings.with_settings(spec, settled))


def wanted(host: Host, path: Path | None = None, *, needed: bool = False) -> Spec:
    """The operator's spec; every default when there is no file, unless it is `needed`. A member
    that is capable by its spec has lost what the spec said when no mode stands there any more: that
    is damage as any other, and not what the operator wants."""
    place = path or host.paths.spec
    raw = _read(host, place)
    if raw is None and needed:
        raise SpecError("", "no such file", file=place)
    spec = parse.parse_spec(raw or b"", file=place)
    if path is None:
        _refuse_emptied(host, spec)
    return spec


def set_etcd(host: Host, state: Overlay) -> bool:
    """Write overlays.etcd into the spec, all else unchanged; False when it says so already."""
    raw = _read(host, host.paths.spec)
    before = NEW_SPEC if raw is None else raw
    spec = parse.parse_spec(before)
    _refuse_emptied(host, spec)
    if spec.overlays.etcd is state:
        return False
    after = parse.set_etcd_overlay(before, state)
    host.files.make_dir(host.paths.spec.parent, mode=0o755)
    host.files.write(host.paths.spec, after, mode=SPEC_MODE)
    return True


def enable_etcd(host: Host) -> None:
    """overlays.etcd: enabled, once this node is to be a member of the cluster."""
    set_etcd(host, Overlay.ENABLED)


def _refuse_emptied(host: Host, spec: Spec) -> None:
    if spec.installation.stated:
        return
    node = store.load(host)
    me = node.view.by_key(node.key) if node else None
    if me is not None and me.capability is Capability.ETCD:
        raise SpecError(
            "installation.mode",
            "it is not there any more, though this node is a capable member by it: put the spec"
            " back, or set the mode that you want",
            file=host.paths.spec,
        )


def _read(host: Host, place: Path) -> bytes | None:
    """A directory, or a file far too large, is the operator's to mend: no state was lost."""
    try:
        return host.files.read(place)
    except StateCorrupt as error:
        raise SpecError("", error.problem, file=place) from error
