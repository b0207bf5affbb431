"""Renders what etcd is started with: etcd.env and the drop-in 50-keel.conf. Text in, text out.

(C1) Environment only: a variable and a flag of one name are fatal together, and 10-keel.conf and
     Debian's unit pass no flags.
(C2) Never: --listen-client-http-urls (gRPC would skip the CRL), --client-cert-allowed-hostname
     (breaks the gateway), cipher suites (fatal with TLS 1.3), a wildcard address.
(C3) The same settings on every member but for its own name and address.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network

from keel.mesh.etcdmsg import RecordState

QUOTA_DEFAULT_BYTES = 256 * 1024 * 1024
"""A snapshot travels at 43 KB/s to 0.75 MB/s on a bad link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdSettings:
    """What differs between members and starts. `members`: exactly the record's."""

    address: IPv6Address
    members: tuple[IPv6Address, ...]
    state: RecordState
    token: str
    quota_bytes: int = QUOTA_DEFAULT_BYTES


def render_env(settings: EtcdSettings) -> bytes:
    """etcd.env, an EnvironmentFile of systemd's; the same settings give the same bytes."""
    raise NotImplementedError


def render_drop_in(prefix: IPv6Network) -> bytes:
    """etcd.service.d/50-keel.conf; `prefix` is the mesh's /64."""
    raise NotImplementedError


def state_of_env(env: bytes) -> RecordState | None:
    """The ETCD_INITIAL_CLUSTER_STATE in an etcd.env; None when it has none."""
    raise NotImplementedError
