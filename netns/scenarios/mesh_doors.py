"""Whoever holds a token can reach one door, and whoever holds a wrong one meets silence."""

from __future__ import annotations

import json
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from netns import mesh, underlay
from netns.lab import Lab
from netns.process import PATIENCE_SECONDS
from netns.scenario import Report
from netns.topology import Mode, names, node

NAME = "mesh_doors"
ROWS = ("M2", "M3", "M7")
LINK = "125ms,12.5ms,1%"
MODE = Mode.CLOUD

A, B, C = names(3)
DOOR, SSH, ETCD = 4780, 22, (2379, 2380, 2381)
DONE, REFUSED, INCOMPLETE = 0, 3, 4
BAD_MACS = 10

LISTENERS = f"""
import socket, time
listening = [socket.create_server(("::", port), family=socket.AF_INET6) for port in {ETCD}]
print("listening", flush=True)
time.sleep(600)
"""

# What somebody with a token can do without keel's commands: raise the temporary tunnel. Everything
# goes into it, so that the inviter's own firewall has to say no.
RAISE = """
import sys
from keel.cli.compose import compose
from keel.mesh.identity import prefix_of
from keel.mesh.token import derive, parse_token
from keel.spec import apply

host = compose(verbose=False, stderr=sys.stderr)
wanted = apply.load(host).network.wireguard
token = parse_token(open("/root/token").read())
prefix = prefix_of(token.mesh)
keys = derive(token.secret, mesh=token.mesh, invite=token.invite, prefix=prefix)
host.wireguard.raise_interface(
    wanted.interface, port=wanted.port, mtu=wanted.mtu, private=keys.pair.private
)
host.wireguard.set_address(wanted.interface, keys.address, prefix)
with open("/root/psk", "w") as file:
    file.write(__import__("base64").b64encode(keys.preshared.reveal()).decode())
print(token.wireguard, token.endpoints[0], token.address)
"""

TRY = """
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor

def connects(target):
    host, port = target
    try:
        socket.create_connection((host, port), timeout=4).close()
    except OSError:
        return False
    return True

targets = [(host, int(port)) for host, port in json.loads(sys.argv[1])]
with ThreadPoolExecutor(len(targets)) as pool:
    print(json.dumps([t for t, open in zip(targets, pool.map(connects, targets)) if open]))
"""

ASK = """
import dataclasses, http.client, json, sys
from datetime import UTC, datetime
from keel.mesh.identity import prefix_of
from keel.mesh.joinmsg import JoinRequest, seal_request
from keel.mesh.keys import signing_pair, wg_pair
from keel.mesh.token import derive, parse_token
from keel.types import Capability, Nonce, Secret, parse_name

token = parse_token(open("/root/token").read())
keys = derive(
    token.secret, mesh=token.mesh, invite=token.invite, prefix=prefix_of(token.mesh)
)
signing = signing_pair(Secret(b"s" * 32))
request = JoinRequest(
    mesh=token.mesh,
    invite=token.invite,
    nonce=Nonce("00" * 16),
    ed25519=signing.public,
    wireguard=wg_pair(Secret(b"w" * 32)).public,
    name=parse_name("guest"),
    capability=Capability.NONE,
    time=datetime.now(UTC),
)
wrong = dataclasses.replace(keys, request=Secret(bytes(32)))
bodies = {
    "good": seal_request(request, keys, signing),
    "wrong": seal_request(request, wrong, signing),
}
found = []
connection = http.client.HTTPConnection(str(token.address), 4780, timeout=30)
for path, body in json.loads(sys.argv[1]):
    for _ in range(5):
        try:
            connection.request("POST", path, bodies[body])
            answer = connection.getresponse()
            found.append((answer.status, answer.read().decode()))
            break
        except OSError:
            connection.close()
print(json.dumps(found))
"""

WRONG_SECRET = """
import dataclasses
from keel.mesh.token import encode_token, parse_token
from keel.types import Secret
token = parse_token(input())
print(encode_token(dataclasses.replace(token, secret=Secret(bytes(32)))))
"""


def run(lab: Lab, report: Report) -> None:
    mesh.create(lab, A)
    token = mesh.invite(lab, A)
    capture = lab.capture(B)
    with ThreadPoolExecutor(1) as pool:
        silent = wrong_secret(lab, pool)
        address = raise_tunnel(lab, report, token)
        doors(lab, report, address)
        paths(lab, report)
        frozen(lab, report, token)
        tried = silent.result()
    causes = ("UDP port", "wrong secret", "not running there")
    explained = all(cause in str(tried.document.get("remedy")) for cause in causes)
    met = (tried.exit, tried.rule) == (INCOMPLETE, "no-answer") and explained
    report.expect(met, f"a wrong secret: {tried}")
    found = underlay.inspect(capture.stop())
    silence = not {"response", "cookie", "data"} & set(found.kinds) and not found.foreign
    report.expect(silence, f"and nothing at all came back: {found}")
    joined = mesh.try_join(lab, B, mesh.invite(lab, A))
    report.expect(joined.exit == DONE, f"the same node with a right one: {joined}")


def wrong_secret(lab: Lab, pool: ThreadPoolExecutor) -> Future[mesh.Tried]:
    """b joins with a token whose secret is wrong, while the rest goes on."""
    argv = ["python3", "-c", WRONG_SECRET]
    wrong = lab.exec(B, argv, input=f"{mesh.invite(lab, A)}\n").stdout.strip()
    return pool.submit(mesh.try_join, lab, B, wrong)


def raise_tunnel(lab: Lab, report: Report, token: str) -> str:
    """The temporary tunnel from c, by hand; returns the inviter's overlay address."""
    lab.put(C, "/root/token", token, mode=0o600)
    made = lab.exec(C, ["python3", "-c", RAISE])
    key, endpoint, address = made.stdout.split()
    lab.exec(
        C,
        [
            *("wg", "set", "keel0", "peer", key, "preshared-key", "/root/psk"),
            *("endpoint", endpoint, "allowed-ips", "::/0", "persistent-keepalive", "5"),
        ],
    )
    underlay = node(A).hosts[1]
    lab.exec(C, ["ip", "-6", "route", "replace", f"{underlay}/128", "dev", "keel0"])
    lab.wait(partial(door_opens, lab, address), PATIENCE_SECONDS, "the door to be reached")
    report.note("c reaches the door from the temporary address")
    return address


def door_opens(lab: Lab, address: str) -> bool:
    return connects(lab, address, [DOOR]) == [DOOR]


def connects(lab: Lab, address: str, ports: list[int], *, source: str = "c") -> list[int]:
    """Which of these ports a TCP connection can be made to."""
    targets = json.dumps([(address, port) for port in ports])
    name = A if source == "a" else C
    found = json.loads(lab.exec(name, ["python3", "-c", TRY, targets]).stdout)
    return [port for _, port in found]


def doors(lab: Lab, report: Report, address: str) -> None:
    """Ports that are open, and a's other address, cannot be reached from the temporary one."""
    listening = lab.popen(A, ["python3", "-c", LISTENERS])
    assert listening.stdout
    listening.stdout.readline()
    every = [SSH, *ETCD, DOOR]
    open_here = connects(lab, address, every, source="a")
    report.expect(open_here == every, f"a itself reaches {open_here}")
    reached = [port for _ in range(3) for port in connects(lab, address, [SSH, *ETCD])]
    report.expect(not reached, f"c reaches none of {[SSH, *ETCD]} in three tries: {reached}")
    underlay = node(A).hosts[1]
    reached = connects(lab, underlay, every)
    report.expect(not reached, f"nor anything at a's other address: {reached}")
    ping = ["ping", "-c", "5", "-i", "0.2", "-W", "2", address]
    report.expect(lab.exec(C, ping, check=False).returncode == 1, "nor does a answer its pings")
    lab.wait(partial(door_opens, lab, address), PATIENCE_SECONDS, "the door to be reached")
    report.note("the door can still be reached")
    listening.kill()


def paths(lab: Lab, report: Report) -> None:
    """Behind the door only `/v1/join` is answered."""
    tried = ["/v1/hello", "/v1/roster", "/v1/etcd", "/", "/v1/join/../hello", "/metrics"]
    answers = ask(lab, [(path, "good") for path in tried])
    refused = [status for status, _ in answers]
    fine = len(answers) == len(tried) and all(400 <= status < 500 for status in refused)
    same = len({body for _, body in answers}) == 1
    report.expect(fine and same, f"{', '.join(tried)}: {refused}, all in the same words")


def frozen(lab: Lab, report: Report, token: str) -> None:
    """Ten bad MACs freeze the invite; then the right token is refused as well, and told why."""
    answers = ask(lab, [("/v1/join", "wrong")] * BAD_MACS)
    report.expect(len(answers) == BAD_MACS, f"{BAD_MACS} bad MACs: {sorted(set(answers))}")
    alike = len(set(answers)) == 1 and "mac" not in str(answers).lower()
    report.expect(alike, "each is refused, in words that do not tell why")
    states = {row["invite"]: row["state"] for row in mesh.invites(lab, A)}
    report.expect(states[mesh.invite_of(token)] == "frozen", "the invite is frozen")
    tried = mesh.try_join(lab, C, token)
    report.expect((tried.exit, tried.rule) == (REFUSED, "join-frozen"), f"c: {tried}")


def ask(lab: Lab, requests: list[tuple[str, str]]) -> list[tuple[int, str]]:
    """POST each body to its path from c; returns statuses and what was said."""
    argv = ["python3", "-c", ASK, json.dumps(requests)]
    return [(status, said) for status, said in json.loads(lab.exec(C, argv).stdout)]
