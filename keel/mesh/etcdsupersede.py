"""The holder's end of a renewal: the old intermediate is revoked once the new one was seen in use.

Owns the looking. What is superseded is keel.mesh.renewal's word, the revocation etcdrevoke's.
"""

from __future__ import annotations

from cryptography import x509

from keel.errors import EtcdError
from keel.mesh import etcdbirth, etcdcert, etcdrevoke, etcdstore, renewal, store, talk
from keel.mesh.duty import Duty, done, nothing, waits
from keel.mesh.etcdgrants import GrantLine
from keel.mesh.etcdplan import until_clock
from keel.mesh.etcdrenew import HANDSHAKE_SECONDS
from keel.mesh.etcdstate import Stage
from keel.mesh.members import Member
from keel.mesh.store import Node
from keel.outcome import Waiting
from keel.ports import Host

NAME = "superseded"
WHAT = "the revocation of an intermediate that was renewed"


def duty(host: Host, node: Node) -> Duty:
    """The holder's: revoke what a newer grant replaced, once that was seen in use
    (keel.mesh.renewal, W6)."""
    if etcdstore.load_authority(host) is None:
        return nothing(NAME, "another node holds the root")
    found = renewal.superseded(etcdstore.load_ledger(host), host.clock.now())
    live = {member.key: member for member in node.view.members}
    todo = [(live[new.ed25519], new, old) for new, old in found if new.ed25519 in live]
    if not todo:
        return nothing(NAME, "no grant was replaced by a newer one")
    if talk.clock_is_off(host):
        return waits(NAME, until_clock(WHAT))
    answers = etcdbirth.probe_capable(host, node)
    waiting = []
    for member, new, old in todo:
        if not _in_use(host, node, member, new, answers):
            why = "its new intermediate was not seen in use yet"
            waiting.append(Waiting(what=WHAT, waiting_for=member.display, why=why))
            continue
        with store.locked(host, "the mesh"):
            for serial in renewal.serials(old):
                etcdrevoke.supersede(
                    host, store.require(host), address=member.address, key=member.key, serial=serial
                )
    if waiting:
        return waits(NAME, *waiting)
    return done(NAME, "revoked the intermediates that were renewed", is_open=True)


def _in_use(
    host: Host, node: Node, member: Member, new: GrantLine, answers: etcdbirth.Answers
) -> bool:
    """By the member's word that it has it, and by a handshake where an etcd of its runs."""
    if member.key == node.key:
        held = etcdstore.load_intermediate(host)
        serial = None if held is None else etcdcert.serial_of(held[1].certificate)
        stage = etcdstore.load_cluster(host).stage
    elif (answer := answers.get(member)) is not None:
        serial, stage = answer.intermediate, answer.stage
    else:
        return False
    if serial != new.serial or new.intermediate is None:
        return False
    if stage is Stage.IDLE:
        return True
    try:
        shown = host.etcd_at(member.address).served(timeout_seconds=HANDSHAKE_SECONDS)
        leaves = [x509.load_der_x509_certificate(one) for one in shown]
    except (EtcdError, ValueError):
        return False
    return renewal.in_use(leaves, etcdcert.parse_certificate(new.intermediate))
