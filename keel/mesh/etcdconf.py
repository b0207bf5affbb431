"""Renders what etcd is started with: etcd.env and the drop-in 50-keel.conf. Text in, text out.

(C1) Environment only: a variable and a flag of one name are fatal together, so Debian's
     DAEMON_ARGS stays empty.
(C2) Never: --listen-client-http-urls (gRPC would skip the CRL), --client-cert-allowed-hostname
     (breaks the gateway), cipher suites (fatal with TLS 1.3 alone), a wildcard address.
(C3) The same settings on every member but for its own name and address.
(C4) No value has a character that systemd would unquote: what is written is what etcd reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network

from keel.mesh.etcdids import METRICS_PORT, address_of_url, client_url, member_name, peer_url
from keel.mesh.etcdmsg import RecordState
from keel.mesh.etcdsettings import GUARD
from keel.types import LOCALHOST

QUOTA_DEFAULT_BYTES = 256 * 1024 * 1024
"""A snapshot travels at 43 KB/s to 0.75 MB/s on a bad link."""

DATA_DIR = "/var/lib/keel-etcd/data"
LAID_DIR = "/etc/etcd/keel"

ENV_FILE = "etcd.env"
MEMBER_FILE = "member.pem"
TRUST_FILE = "trust.pem"
CRL_FILE = "crl.der"

_STATE = "ETCD_INITIAL_CLUSTER_STATE"
_OWN_URL = "ETCD_INITIAL_ADVERTISE_PEER_URLS"

PROXY_VARIABLES = tuple(
    name
    for upper in ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY")
    for name in (upper, upper.lower())
)
"""Go reads them for the raft transport and for the gateway's dial to itself."""


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
    variables = {
        **_identity(settings),
        **_tls(),
        # E17: stable at 250 ms and 2 % loss; the same on every member
        "ETCD_HEARTBEAT_INTERVAL": "300",
        "ETCD_ELECTION_TIMEOUT": "5000",
        "ETCD_PRE_VOTE": "true",
        "ETCD_STRICT_RECONFIG_CHECK": "true",
        "ETCD_EXPERIMENTAL_INITIAL_CORRUPT_CHECK": "true",
        "ETCD_EXPERIMENTAL_COMPACT_HASH_CHECK_ENABLED": "true",
        "ETCD_AUTO_COMPACTION_MODE": "periodic",
        "ETCD_AUTO_COMPACTION_RETENTION": "1h",
        "ETCD_QUOTA_BACKEND_BYTES": str(settings.quota_bytes),
        "ETCD_SNAPSHOT_COUNT": "10000",
    }
    lines = ["# Written by keel from its state; a change here lasts until the next apply."]
    lines += [f"{name}={value}" for name, value in variables.items()]
    return ("\n".join(lines) + "\n").encode()


def state_of_env(env: bytes) -> RecordState | None:
    """The initial cluster state that an etcd.env asks for; None when it has none of keel's."""
    for line in env.decode(errors="replace").splitlines():
        name, _, value = line.partition("=")
        if name == _STATE and value in tuple(RecordState):
            return RecordState(value)
    return None


def with_state(env: bytes, state: RecordState) -> bytes:
    """The same etcd.env with another initial cluster state."""
    lines = env.decode().splitlines(keepends=True)
    return "".join(
        f"{_STATE}={state}\n" if line.startswith(f"{_STATE}=") else line for line in lines
    ).encode()


def address_of_env(env: bytes) -> IPv6Address | None:
    """Whose etcd.env it is; None when it does not say."""
    for line in env.decode(errors="replace").splitlines():
        name, _, value = line.partition("=")
        if name == _OWN_URL:
            return address_of_url(value)
    return None


def render_drop_in(prefix: IPv6Network) -> bytes:
    """etcd.service.d/50-keel.conf; `prefix` is the mesh's /64."""
    text = _DROP_IN.replace("@PREFIX@", prefix.compressed)
    return text.replace("@PROXIES@", " ".join(PROXY_VARIABLES)).encode()


def _identity(settings: EtcdSettings) -> dict[str, str]:
    own = client_url(settings.address)
    return {
        "ETCD_NAME": member_name(settings.address),
        "ETCD_DATA_DIR": DATA_DIR,
        "ETCD_LISTEN_PEER_URLS": peer_url(settings.address),
        "ETCD_LISTEN_CLIENT_URLS": f"{own},{client_url(LOCALHOST)}",
        "ETCD_LISTEN_METRICS_URLS": f"http://[{LOCALHOST}]:{METRICS_PORT}",
        _OWN_URL: peer_url(settings.address),
        "ETCD_ADVERTISE_CLIENT_URLS": own,
        "ETCD_INITIAL_CLUSTER": ",".join(
            f"{member_name(member)}={peer_url(member)}" for member in sorted(settings.members)
        ),
        _STATE: settings.state.value,
        "ETCD_INITIAL_CLUSTER_TOKEN": settings.token,
    }


def _tls() -> dict[str, str]:
    found = {"ETCD_TLS_MIN_VERSION": "TLS1.3"}
    for side, crl in (("ETCD", "ETCD_CLIENT_CRL_FILE"), ("ETCD_PEER", "ETCD_PEER_CRL_FILE")):
        found |= {
            # chain and key in one file: a single rename replaces both
            f"{side}_CERT_FILE": f"{LAID_DIR}/{MEMBER_FILE}",
            f"{side}_KEY_FILE": f"{LAID_DIR}/{MEMBER_FILE}",
            f"{side}_TRUSTED_CA_FILE": f"{LAID_DIR}/{TRUST_FILE}",
            f"{side}_CLIENT_CERT_AUTH": "true",
            crl: f"{LAID_DIR}/{CRL_FILE}",
        }
    # every member's leaf has ::1; this shuts the peer port to certificates without a SAN
    return found | {"ETCD_PEER_CERT_ALLOWED_HOSTNAME": LOCALHOST.compressed}


_DROP_IN = f"""\
# Written by keel; a change here lasts until the next apply.
[Unit]
# Not BindsTo: it would stop etcd whenever keel is upgraded.
After=keel-mesh.service
Wants=keel-mesh.service
# A start that failed is tried again for ever: the address or a quorum may be long in coming.
StartLimitIntervalSec=0

[Service]
EnvironmentFile=
EnvironmentFile={LAID_DIR}/{ENV_FILE}
UnsetEnvironment=@PROXIES@
PermissionsStartOnly=no
ExecStartPre=+{GUARD}
Restart=on-failure
RestartSec=5
# etcd says that it is ready only with a quorum.
TimeoutStartSec=10min
StateDirectory=keel-etcd
StateDirectoryMode=0700
UMask=0077
LimitCORE=0
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
PrivateUsers=yes
PrivateDevices=yes
PrivateTmp=yes
ProtectSystem=strict
ProtectHome=yes
ProtectClock=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectProc=invisible
ProcSubset=pid
ProtectHostname=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
SystemCallArchitectures=native
SystemCallFilter=
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
RestrictAddressFamilies=AF_UNIX AF_INET6
IPAddressDeny=any
IPAddressAllow=localhost
IPAddressAllow=@PREFIX@
"""
