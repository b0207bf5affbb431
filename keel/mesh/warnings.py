"""The one table of warnings: status, metrics, alerts and the runbook in docs/mesh.md read it.

Owns each warning's code, severity and remedy. Which of them hold now is the caller's to find.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from keel.mesh.firewallrules import CHANNEL_PORT
from keel.mesh.wgconf import FULL_PACKET
from keel.spec.model import MIN_MTU


class Severity(StrEnum):
    WARNING = "warning"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What every warning of one code has in common; the text takes `subject` and `detail`."""

    severity: Severity
    text: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Warning:
    """A warning that holds now; fields as in status --json, and whom or what it is about."""

    code: str
    severity: Severity
    text: str
    remedy: str
    subject: str = ""


KINDS: Mapping[str, Kind] = {
    "member-down": Kind(
        severity=Severity.CRITICAL,
        text="{subject} is down: {detail}",
        remedy="see whether {subject} runs and its UDP port can be reached; then"
        " `keel mesh status` there",
    ),
    "member-suspect": Kind(
        severity=Severity.WARNING,
        text="{subject} is suspect: {detail}",
        remedy="look again in half a minute: `keel mesh status`",
    ),
    "path-mtu": Kind(
        severity=Severity.CRITICAL,
        text="{subject} answers small messages and no full packets: the network between drops them,"
        " and with them rosters, joins and etcd's larger writes",
        remedy=f"network.wireguard.mtu: {MIN_MTU} in the spec on both sides, `keel spec apply`; if"
        f" it is so already, the network between has to carry packets of {FULL_PACKET} bytes",
    ),
    "clock-off": Kind(
        severity=Severity.WARNING,
        text="the clock of {subject} differs by {detail}",
        remedy="set the wrong clock right: `timedatectl set-ntp true`",
    ),
    "clone": Kind(
        severity=Severity.CRITICAL,
        text="{subject} runs twice: {detail}",
        remedy="stop the copy, and erase /var/lib/keel and /var/lib/keel-etcd on it before it joins"
        " anew; no `keel mesh leave`: both have one key, and both would be out",
    ),
    "wireguard-key-twice": Kind(
        severity=Severity.CRITICAL,
        text="{subject} claims another member's WireGuard key: {detail}",
        remedy="`keel mesh leave` on {subject} and join it anew",
    ),
    "name-twice": Kind(
        severity=Severity.WARNING,
        text="two members are called {subject}: {detail}",
        remedy="name them by address in commands; rename one in its spec before it joins again",
    ),
    "join-unconfirmed": Kind(
        severity=Severity.WARNING,
        text="this node's join is not confirmed by {subject} yet",
        remedy="see whether {subject} can be reached: `keel mesh sync` tries again at once",
    ),
    "window-open": Kind(
        severity=Severity.WARNING,
        text="a change to the network waits: {detail}",
        remedy="`keel network confirm` keeps it, `keel network undo` takes it back at once",
    ),
    "member-blocked": Kind(
        severity=Severity.WARNING,
        text="{subject} is blocked on this node and still a member: {detail}",
        remedy="`keel mesh remove --vote {subject}` on more than half of the members removes it for"
        " all; `keel mesh trust add --root {subject}` lets it in again",
    ),
    "spec-invalid": Kind(
        severity=Severity.CRITICAL,
        text="the spec cannot be read, and what was applied last holds: {detail}",
        remedy="mend the spec, then run `keel spec check`",
    ),
    "all-silent": Kind(
        severity=Severity.CRITICAL,
        text="no other member was heard for {detail}: this node is cut off, or was removed while it"
        " could not hear of that",
        remedy="see this node's own network first; then `keel mesh status` on another member:"
        " where it does not list this node, `keel mesh leave` here (of a voter: `keel mesh leave"
        " --without-quorum --confirm {subject}`), then"
        " join with a new invite",
    ),
    "mode-kept": Kind(
        severity=Severity.WARNING,
        text="installation.mode is {detail} in the spec, and etcd still counts this node as its"
        " {subject}: a member does not leave the cluster by its mode",
        remedy="set `installation: {{mode: cloud_advanced}}` back, or nothing renews its"
        " certificates; `keel mesh leave` takes it out",
    ),
    "interface-missing": Kind(
        severity=Severity.CRITICAL,
        text="the WireGuard interface {subject} does not exist",
        remedy="`keel mesh up`; then `journalctl -u keel-mesh.service`",
    ),
    "interface-changed": Kind(
        severity=Severity.CRITICAL,
        text="the WireGuard interface {subject} is not as keel raises it: {detail}",
        remedy="`keel mesh up` puts it right, or says what keeps it from that",
    ),
    "channel-down": Kind(
        severity=Severity.CRITICAL,
        text="the channel does not listen: no member can ask this node anything",
        remedy=f"see who has TCP port {CHANNEL_PORT}, `ss -ltnp`; then `keel mesh sync` starts it",
    ),
    "file-exposed": Kind(
        severity=Severity.CRITICAL,
        text="{subject} is not secret: {detail}",
        remedy="make it its owner's alone, `chmod 600`; who could read it may have",
    ),
    "etcd-down": Kind(
        severity=Severity.CRITICAL,
        text="etcd on this node does not serve: {detail}",
        remedy="`journalctl -u etcd`; `keel mesh etcd tend` starts it when it may",
    ),
    "etcd-starting": Kind(
        severity=Severity.WARNING,
        text="etcd on this node is starting and does not serve yet",
        remedy="look again in half a minute: `keel mesh status`; if it stays so, `journalctl -u"
        " etcd` says what it waits for",
    ),
    "etcd-unguarded": Kind(
        severity=Severity.CRITICAL,
        text="etcd on this node was started without keel's guard: it may be no member of the"
        " cluster, or run with other settings than the others",
        remedy="`systemctl restart etcd`",
    ),
    "etcd-unit-changed": Kind(
        severity=Severity.CRITICAL,
        text="somebody changed how etcd is started: {detail}",
        remedy="take it out of etcd.service, then `systemctl daemon-reload`",
    ),
    "etcd-no-quorum": Kind(
        severity=Severity.CRITICAL,
        text="etcd has no leader: {detail}",
        remedy="bring the members that are down back; `keel mesh status` names them",
    ),
    "etcd-auth": Kind(
        severity=Severity.CRITICAL,
        text="etcd's users are enabled, and it refuses keel: whether it serves cannot be seen, and"
        " nobody is brought in or taken out",
        remedy="`etcdctl --user root auth disable`; docs/mesh.md says what keeps others out",
    ),
    "etcd-full": Kind(
        severity=Severity.CRITICAL,
        text="etcd's database on {subject} has reached its quota: the cluster takes no more writes",
        remedy="delete keys that nobody needs, `etcdctl compact`, `etcdctl defrag` on each member"
        " in turn, then `etcdctl alarm disarm`; docs/mesh.md has the lines",
    ),
    "etcd-corrupt": Kind(
        severity=Severity.CRITICAL,
        text="etcd found the data of {subject} corrupt: it serves nothing there",
        remedy="`keel mesh etcd recover --replace` on {subject}; the holder ends the alarm then",
    ),
    "etcd-removed": Kind(
        severity=Severity.CRITICAL,
        text="this node is no member of the cluster any more",
        remedy="if that was wanted, `keel mesh leave`; if its data was lost,"
        " `keel mesh etcd recover --replace`",
    ),
    "etcd-voter-silent": Kind(
        severity=Severity.WARNING,
        text="etcd on {subject} does not answer this node",
        remedy="`keel mesh etcd status` on {subject}; `journalctl -u etcd` there",
    ),
    "etcd-no-fault-tolerance": Kind(
        severity=Severity.WARNING,
        text="etcd has no fault tolerance: {detail}",
        remedy="bring the members that are down back; `keel mesh status` names them",
    ),
    "restored": Kind(
        severity=Severity.CRITICAL,
        text="this disk was put back or copied: its peers know a later state of it",
        remedy="put the newest disk back; if there is none, `keel mesh etcd recover --replace`",
    ),
    "etcd-still-listed": Kind(
        severity=Severity.WARNING,
        text="etcd still counts {subject}, which was removed from the mesh",
        remedy="bring the voters that are down back: any member's timer takes it out then",
    ),
    "etcd-stranger": Kind(
        severity=Severity.WARNING,
        text="etcd lists {subject}, and it is no node of the mesh: member {detail}",
        remedy="keel added no such member; if nobody needs it, `etcdctl member remove {detail}`",
    ),
    "etcd-waits": Kind(
        severity=Severity.WARNING,
        text="etcd: {subject} waits for {detail}",
        remedy="`keel mesh etcd status` says for whom; the timer goes on by itself",
    ),
    "etcd-failed": Kind(
        severity=Severity.CRITICAL,
        text="etcd: {subject} failed: {detail}",
        remedy="`keel mesh etcd tend` tries again and says what is wrong",
    ),
    "certificate-ends": Kind(
        severity=Severity.CRITICAL,
        text="the {subject} certificate ends {detail}",
        remedy="`keel mesh etcd tend` renews what is due",
    ),
    "root-not-valid": Kind(
        severity=Severity.CRITICAL,
        text="etcd's root is not valid: it {detail}",
        remedy="nothing renews a root: docs/mesh.md says how to begin anew without losing keys",
    ),
    "root-ends": Kind(
        severity=Severity.WARNING,
        text="etcd's root ends {detail}, and every certificate under it",
        remedy="nothing renews a root: docs/mesh.md says how to begin anew without losing keys",
    ),
    "tend-silent": Kind(
        severity=Severity.CRITICAL,
        text="nothing tends etcd on {subject} since {detail}",
        remedy="on {subject}: `systemctl status keel-mesh-etcd.timer`, then `keel mesh etcd tend`",
    ),
    "crl-old": Kind(
        severity=Severity.WARNING,
        text="the CRL should have been replaced by {detail}",
        remedy="see whether the holder is up: `keel mesh etcd status`",
    ),
}


def warn(code: str, *, subject: str = "", detail: str = "", remedy: str = "") -> Warning:
    """A warning of this code; `remedy` replaces the table's where a cause has a better one."""
    kind = KINDS[code]
    return Warning(
        code=code,
        severity=kind.severity,
        text=kind.text.format(subject=subject, detail=detail),
        remedy=remedy or kind.remedy.format(subject=subject, detail=detail),
        subject=subject,
    )
