"""The link for kernels that have netem: a bridge, a veth pair per appliance, and netem on each port
of the bridge.

hub namespace:   br0 -- port-a   port-b   port-c     port-a's queue towards a: `prio`, one band
                          |        |        |        per sender, chosen by the sender's MAC,
appliances:             wan0(a)  wan0(b)  wan0(c)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from netns.link import Counters, Pair
from netns.topology import INTERFACE, Name, Node, Quality, node

HUB = "hub"
Run = Callable[[Sequence[str]], str]


class NetemLink:
    """`run` runs a command in the lab's namespaces and returns what it prints; it raises when that
    fails.
    """

    name = "netem"

    def __init__(self, run: Run, seed: int) -> None:
        self._run = run
        self._seed = seed

    def create(self) -> None:
        """Make the hub, once per lab."""
        for command in hub_commands():
            self._run(command)

    def attach(self, member: Node) -> None:
        self.detach(member)
        for command in attach_commands(member):
            self._run(command)

    def detach(self, member: Node) -> None:
        ports = json.loads(self._run(["ip", "-n", HUB, "-json", "link", "show"]))
        if any(port["ifname"] == f"port-{member.name}" for port in ports):
            self._run(["ip", "-n", HUB, "link", "delete", f"port-{member.name}"])

    def shape(self, qualities: Mapping[Pair, Quality]) -> None:
        for pair, quality in qualities.items():
            for command in shape_commands(pair, quality, self._seed):
                self._run(command)

    def counters(self) -> dict[Pair, Counters]:
        found: dict[Pair, Counters] = {}
        for port in json.loads(self._run(["ip", "-n", HUB, "-json", "link", "show"])):
            if port["ifname"].startswith("port-"):
                text = self._run(
                    ["tc", "-n", HUB, "-s", "-j", "qdisc", "show", "dev", port["ifname"]]
                )
                found |= parse_counters(port["ifname"].removeprefix("port-"), text)
        return found


def hub_commands() -> list[list[str]]:
    """Make the namespace and the bridge. No snooping: it would hold back neighbour discovery."""
    return [
        ["ip", "netns", "add", HUB],
        ["ip", "-n", HUB, "link", "add", "br0", "type", "bridge", "mcast_snooping", "0"],
        ["ip", "-n", HUB, "link", "set", "br0", "up"],
    ]


def attach_commands(member: Node) -> list[list[str]]:
    """Make the pair, the addresses, and the queue with its bands, which all start as a perfect
    link.
    """
    name, port = member.name, f"port-{member.name}"
    inside, hub = ["ip", "-n", name], ["ip", "-n", HUB]
    pair = [INTERFACE, "netns", name, "address", member.mac, "type", "veth", "peer", "name", port]
    prio = ["prio", "bands", "16", "priomap", *["0"] * 16]
    commands = [
        ["ip", "link", "add", *pair, "netns", HUB],
        [*hub, "link", "set", port, "master", "br0", "up"],
        ["tc", "-n", HUB, "qdisc", "add", "dev", port, "root", "handle", "1:", *prio],
    ]
    for address in member.addresses:
        extra = ["nodad"] if ":" in address else []
        commands.append([*inside, "address", "add", address, "dev", INTERFACE, *extra])
    return [
        *commands,
        [*inside, "link", "set", INTERFACE, "up"],
        [*inside, "link", "set", "lo", "up"],
    ]


def shape_commands(pair: Pair, quality: Quality, seed: int) -> list[list[str]]:
    """Set one direction: the band of the sender on the receiver's port."""
    source, target = node(pair[0]), node(pair[1])
    band = f"1:{source.index + 1:x}"
    port = ["dev", f"port-{target.name}"]
    loss = 100.0 if quality.cut else quality.loss_percent
    netem = [
        "handle",
        f"{source.index + 16:x}:",
        "netem",
        "limit",
        "100000",
        "delay",
        f"{quality.delay_ms:g}ms",
    ]
    netem += [f"{quality.jitter_ms:g}ms"] if quality.jitter_ms else []
    netem += ["loss", f"{loss:g}%"]
    netem += ["seed", str(seed * 256 + source.index * 16 + target.index)]
    match = ["protocol", "all", "prio", str(source.index), "handle", "1"]
    match += ["flower", "src_mac", source.mac, "classid", band]
    return [
        ["tc", "-n", HUB, "qdisc", "replace", *port, "parent", band, *netem],
        ["tc", "-n", HUB, "filter", "replace", *port, "parent", "1:", *match],
        ["ip", "-n", HUB, "link", "set", f"port-{target.name}", "mtu", str(quality.mtu)],
    ]


def parse_counters(target: str, text: str) -> dict[Pair, Counters]:
    """What `tc -s -j qdisc show` says of one port; netem doesn't tell lost from cut."""
    found: dict[Pair, Counters] = {}
    for queue in json.loads(text):
        if queue["kind"] == "netem":
            source = chr(ord("a") + int(queue["parent"].split(":")[1], 16) - 2)
            found[Name(source), Name(target)] = Counters(
                carried=queue["packets"], carried_bytes=queue["bytes"], lost=queue["drops"]
            )
    return found
