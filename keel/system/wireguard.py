"""WireGuard interfaces, the kernel's and wireguard-go's, through `wg` and `ip` alone.

keel owns the interface and changes peers one by one. Keys go in by /dev/stdin. pyroute2's
WireGuard is not used: 0.7.7 sends REPLACE_ALLOWEDIPS with every peer change, and netlink does not
reach wireguard-go. Rules of what may be set: keel.mesh.wgconf.
"""

from __future__ import annotations

import base64
from ipaddress import IPv6Address, IPv6Interface, IPv6Network

from keel.errors import DeadlinePassed, PortTaken, ProcFailed, Refused
from keel.mesh.wgconf import LinkFacts, check_peer, find_peer, parse_dump, parse_link
from keel.ports import Clock, Deadline, Proc, Units, WgBackend, WgDevice, WgPeer
from keel.spec.model import MIN_MTU
from keel.types import Secret, WgKey

STDIN = "/dev/stdin"
NO_KEY = "/dev/null"
"""As `wg` wants it: an empty file takes a preshared key away."""
USERSPACE_SECONDS = 10.0
"""wireguard-go makes its interface within 0.1 s; a loaded machine may take longer."""
POLL_SECONDS = 0.1
IN_USE = "Address already in use"
"""wireguard-go says so of a port that it is given, the kernel when its interface is set up."""

_NO_KERNEL_WIREGUARD = ("Unknown device type", "Operation not supported")
_BACKENDS = {"wireguard": WgBackend.KERNEL, "tun": WgBackend.USERSPACE}


class WireGuardTools:
    """keel.ports.WireGuard."""

    def __init__(self, proc: Proc, units: Units, clock: Clock) -> None:
        self._proc = proc
        self._units = units
        self._clock = clock

    def show(self, interface: str) -> WgDevice | None:
        link = self._link(interface)
        if link is None:
            return None
        return self._device(interface, link)

    def _device(self, interface: str, link: LinkFacts) -> WgDevice:
        done = self._proc.run(["wg", "show", interface, "dump"])
        dump = parse_dump(done.stdout.decode("utf-8", "replace"))
        return WgDevice(
            name=interface,
            key=dump.key,
            port=dump.port,
            backend=_BACKENDS[link.kind],
            mtu=link.mtu,
            addresses=tuple(each.ip for each in link.addresses),
            peers=dump.peers,
        )

    def raise_interface(self, interface: str, *, port: int, mtu: int, private: Secret) -> WgBackend:
        mtu = max(mtu, MIN_MTU)
        there = self._link(interface)
        if there is None:
            self._make(interface)
        link, device = self._wait_until_there(interface, there)
        keys = ["private-key", STDIN]
        listen = [] if device.port == port else ["listen-port", str(port)]
        try:
            self._proc.run(["wg", "set", interface, *listen, *keys], stdin=_text(private))
            if not link.up or link.mtu != mtu:
                self._proc.run(["ip", "link", "set", "dev", interface, "mtu", str(mtu), "up"])
        except ProcFailed as error:
            if IN_USE in error.stderr_tail:
                raise PortTaken(port) from error
            raise
        return device.backend

    def set_address(self, interface: str, address: IPv6Address, prefix: IPv6Network) -> None:
        link = self._link(interface)
        wanted = IPv6Interface((address, 128))
        there = link.addresses if link is not None else ()
        for other in there:
            if other.ip == address and other != wanted:
                self._address("del", other, interface)
        if wanted not in there:
            self._proc.run(["ip", "-6", "address", "add", str(wanted), "dev", interface, "nodad"])
        self._proc.run(["ip", "-6", "route", "replace", str(prefix), "dev", interface])
        for other in there:
            if other.ip != address:
                self._address("del", other, interface)

    def set_peer(self, interface: str, peer: WgPeer) -> None:
        device = self.show(interface)
        there = None
        if device is not None:
            check_peer(device, peer)
            there = find_peer(device, peer.key)
        argv = ["wg", "set", interface, "peer", peer.key]
        if peer.preshared is not None:
            argv += ["preshared-key", STDIN]
        elif there is not None and there.has_preshared:
            argv += ["preshared-key", NO_KEY]
        if peer.endpoint is not None:
            argv += ["endpoint", str(peer.endpoint)]
        argv += ["persistent-keepalive", str(peer.keepalive_seconds)]
        argv += ["allowed-ips", f"{peer.allowed.compressed}/128"]
        secret = _text(peer.preshared) if peer.preshared is not None else b""
        self._proc.run(argv, stdin=secret)

    def remove_peer(self, interface: str, key: WgKey) -> None:
        self._proc.run(["wg", "set", interface, "peer", key, "remove"])

    def drop_interface(self, interface: str) -> None:
        link = self._link(interface)
        unit = _unit(interface)
        if self._units.state(unit).active not in ("inactive", "failed"):
            self._units.stop(unit)
        if link is not None and link.kind == "wireguard":
            self._proc.run(["ip", "link", "delete", "dev", interface])

    def _link(self, interface: str) -> LinkFacts | None:
        """None when there is no such interface; Refused when it is not WireGuard's."""
        argv = ["ip", "-j", "-d", "address", "show", "dev", interface]
        done = self._proc.run(argv, check=False)
        stderr = done.stderr.decode("utf-8", "replace")
        if done.returncode != 0:
            if "does not exist" in stderr or "Cannot find device" in stderr:
                return None
            raise ProcFailed(argv, done.returncode, stderr)
        link = parse_link(done.stdout.decode("utf-8", "replace"))
        if link.kind not in _BACKENDS:
            raise Refused(
                "interface-taken",
                f"the interface {interface} is there and is not WireGuard's",
                "choose another name in the spec: network.wireguard.interface",
            )
        return link

    def _make(self, interface: str) -> None:
        """The kernel's; where the kernel has none, wireguard-go's in its unit."""
        argv = ["ip", "link", "add", "dev", interface, "type", "wireguard"]
        done = self._proc.run(argv, check=False)
        if done.returncode == 0:
            return
        stderr = done.stderr.decode("utf-8", "replace")
        if not any(words in stderr for words in _NO_KERNEL_WIREGUARD):
            raise ProcFailed(argv, done.returncode, stderr)
        self._units.start(_unit(interface))

    def _wait_until_there(
        self, interface: str, link: LinkFacts | None
    ) -> tuple[LinkFacts, WgDevice]:
        """wireguard-go makes its interface, and then its socket, a moment after it started."""
        deadline = Deadline.after(self._clock, USERSPACE_SECONDS)
        while True:
            link = link or self._link(interface)
            try:
                if link is not None:
                    return link, self._device(interface, link)
            except ProcFailed:
                if deadline.passed(self._clock):
                    raise
            if deadline.passed(self._clock):
                raise DeadlinePassed(f"raising {interface}", _unit(interface))
            self._clock.sleep(POLL_SECONDS)

    def _address(self, verb: str, address: IPv6Interface, interface: str) -> None:
        self._proc.run(["ip", "-6", "address", verb, str(address), "dev", interface])


def _unit(interface: str) -> str:
    return f"keel-wireguard@{interface}.service"


def _text(secret: Secret) -> bytes:
    return base64.b64encode(secret.reveal()) + b"\n"
