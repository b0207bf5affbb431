"""Facts and knobs of this machine that are neither files of keel's nor units."""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from keel.errors import BadValue, DeadlinePassed
from keel.ports import Proc
from keel.types import Endpoint

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TcpSetting:
    """A sysctl below net.ipv4, the value keel wants at most, and the kernel's own."""

    name: str
    bound: int
    default: int


TCP_SETTINGS = (TcpSetting("tcp_rto_max_ms", 2000, 120_000), TcpSetting("tcp_retries2", 5, 15))
"""The first that the kernel has (6.15 brought tcp_rto_max_ms); with either, a connection that was
cut for 120 s is back, or given up, 2 to 8 s after the path is."""

NTP_SECONDS = 5.0
"""It answers at once, or D-Bus is not there."""

_TUNNELS = frozenset(
    {"wireguard", "vxlan", "geneve", "gre", "gretap", "ip6gre", "ip6gretap", "ipip", "sit"}
    | {"ip6tnl", "vti", "vti6", "xfrm", "dummy"}
)
_PASSING = ("temporary", "deprecated", "tentative", "dadfailed")
"""Flags of addresses that are not there to stay."""


class LinuxMachine:
    """keel.ports.Machine."""

    def __init__(self, proc: Proc, *, root: Path = Path("/")) -> None:
        self._proc = proc
        self._root = root

    def hostname(self) -> str:
        """The first label, in lower case."""
        return socket.gethostname().partition(".")[0].lower()

    def underlay_endpoints(self, port: int) -> tuple[Endpoint, ...]:
        wireguards = self._proc.run(["wg", "show", "interfaces"]).stdout.decode().split()
        listed = self._proc.run(["ip", "-j", "-d", "address", "show", "up"]).stdout
        found = underlay_addresses(listed.decode("utf-8", "replace"), overlays=wireguards)
        return tuple(Endpoint(host=address, port=port) for address in found)

    def is_root(self) -> bool:
        return os.geteuid() == 0

    def ssh_sessions(self) -> tuple[IPv4Address | IPv6Address, ...]:
        listed = self._proc.run(["ss", "-H", "-t", "-n", "-p", "state", "established"]).stdout
        return far_ends(listed.decode("utf-8", "replace"), program="sshd")

    def clock_synchronized(self) -> bool:
        """Asked of systemd, which may look: keel's own units have no right to the clock."""
        argv = ["timedatectl", "show", "--property=NTPSynchronized", "--value"]
        try:
            shown = self._proc.run(argv, timeout_seconds=NTP_SECONDS, check=False)
        except DeadlinePassed:
            return False
        return shown.returncode == 0 and shown.stdout.strip() == b"yes"

    def bound_tcp(self) -> str:
        """A lower value is left alone; where /proc/sys is read-only nothing changes, and what is
        returned says so."""
        setting = self._tcp_setting()
        if setting is not None and self._value(setting) > setting.bound:
            self._write(setting, setting.bound)
        return self.tcp_bound_now()

    def tcp_bound_now(self) -> str:
        setting = self._tcp_setting()
        if setting is None or self._value(setting) > setting.bound:
            return "off"
        return f"{setting.name}={self._value(setting)}"

    def unbound_tcp(self) -> None:
        """Only where it has the value that keel set: another's is left alone."""
        setting = self._tcp_setting()
        if setting is not None and self._value(setting) == setting.bound:
            self._write(setting, setting.default)

    def _tcp_setting(self) -> TcpSetting | None:
        return next((each for each in TCP_SETTINGS if self._file(each).exists()), None)

    def _file(self, setting: TcpSetting) -> Path:
        return self._root / "proc/sys/net/ipv4" / setting.name

    def _value(self, setting: TcpSetting) -> int:
        return int(self._file(setting).read_text())

    def _write(self, setting: TcpSetting, value: int) -> None:
        try:
            self._file(setting).write_text(f"{value}\n")
        except OSError as error:
            # A container with a read-only /proc/sys: the caller reads back what holds.
            log.warning("%s stays as it is: %s", setting.name, error.strerror)


def underlay_addresses(
    text: str, *, overlays: Collection[str]
) -> tuple[IPv4Address | IPv6Address, ...]:
    """The lasting global addresses in `ip -j -d address show up`, public ones first: without
    tunnels and `overlays`, and without TUN devices unless nothing else has an address."""
    try:
        links = [link for link in json.loads(text) if link.get("ifname") not in overlays]
        kinds = [(link, link.get("linkinfo", {}).get("info_kind", "")) for link in links]
        plain = [
            each for link, kind in kinds if kind not in _TUNNELS for each in _global(link, kind)
        ]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise BadValue("ip", "not what `ip -j address show` prints") from error
    solid = [address for address, kind in plain if kind != "tun"]
    chosen = solid or [address for address, _ in plain]
    return tuple(sorted(dict.fromkeys(chosen), key=lambda address: not address.is_global))


def far_ends(text: str, *, program: str) -> tuple[IPv4Address | IPv6Address, ...]:
    """Whom programs of a name (`sshd`, `sshd-session`) are connected with, in `ss -H -t -n -p
    state established`; BadValue when it is written otherwise."""
    found = []
    for line in text.splitlines():
        if f'(("{program}' not in line:
            continue
        try:
            host = line.split()[3].rpartition(":")[0].strip("[]").partition("%")[0]
            address = ip_address(host)
        except (IndexError, ValueError) as error:
            raise BadValue("ss", "not what `ss -t -n -p` prints") from error
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        found.append(mapped or address)
    return tuple(dict.fromkeys(found))


def _global(link: dict[str, object], kind: str) -> Iterator[tuple[IPv4Address | IPv6Address, str]]:
    info = link.get("addr_info", [])
    for each in info if isinstance(info, list) else []:
        if each.get("scope") == "global" and not any(each.get(flag) for flag in _PASSING):
            yield ip_address(each["local"]), kind
