"""What members ask each other about etcd over the channel, and what this node does then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from keel.mesh import (
    etcdbirth,
    etcdcert,
    etcdcrl,
    etcdenrol,
    etcdformdoors,
    etcdgrow,
    etcdissue,
    etcdmeasure,
    etcdmemory,
    etcdown,
    etcdplace,
    etcdrecover,
    etcdrestored,
    etcdrevoke,
    etcdstore,
    etcdtaken,
    receive,
    selfrecord,
    store,
    up,
)
from keel.mesh.asked import Asked, Kind
from keel.mesh.etcdholder import held_epoch
from keel.mesh.etcdmsg import (
    PROBE,
    AskPlace,
    AskReplace,
    Enroll,
    EnrollAnswer,
    GiveUp,
    GiveUpAnswer,
    PlaceAnswer,
    Probe,
    ProbeAnswer,
    ReplaceAnswer,
    Revoke,
    TakeGrant,
    TakeGrantAnswer,
    TakeRecord,
    TakeRecordAnswer,
    Tell,
)
from keel.mesh.limits import KICKS, LASTS
from keel.mesh.store import Node
from keel.mesh.trust import may_ask
from keel.ports import Host
from keel.spec.model import Spec
from keel.unitnames import FAST_TIMER, SYNC_UNIT


def served() -> tuple[tuple[str, Kind], ...]:
    """Every kind that /v1/etcd serves, each of its own name (a test compares)."""
    return (
        (PROBE, Kind(body=Probe, act=_probe)),
        (etcdbirth.CLUSTER, Kind(body=TakeRecord, act=_take_record, bound=KICKS)),
        (etcdenrol.ENROLL, Kind(body=Enroll, act=_enroll, bound=KICKS)),
        (etcdenrol.GRANT, Kind(body=TakeGrant, act=_take_grant, bound=KICKS)),
        (etcdbirth.GIVE_UP, Kind(body=GiveUp, act=_give_up, bound=LASTS)),
        (etcdmemory.TELL, Kind(body=Tell, act=etcdrestored.tell)),
        (etcdrevoke.REVOKE, Kind(body=Revoke, act=etcdrevoke.obey, bound=KICKS)),
        *etcdformdoors.kinds().items(),
        *etcdmeasure.kinds().items(),
        (etcdplace.PLACE, Kind(body=AskPlace, act=_place, bound=KICKS)),
        (etcdrecover.REPLACE, Kind(body=AskReplace, act=_replace, bound=LASTS)),
    )


def kinds() -> Mapping[str, Kind]:
    """Who acts on each kind."""
    return dict(served())


def own_state(host: Host, spec: Spec, node: Node) -> ProbeAnswer:
    """What this node says of its own registry."""
    cluster = etcdstore.load_cluster(host)
    roots = etcdstore.load_roots(host)
    granted = etcdstore.load_intermediate(host)
    crl = etcdstore.load_crl(host)
    word = etcdown.word(host)
    return ProbeAnswer(
        capability=selfrecord.own_capability(host, spec),
        confirmed=not host.files.exists(host.paths.pending_join(node.mesh)),
        window_open=store.window_is_open(host),
        stage=cluster.stage,
        epoch=cluster.epoch if etcdtaken.record_is_newest(host, cluster) else 0,
        holder_epoch=held_epoch(host),
        crl_number=etcdcrl.read_crl(crl, roots).number if crl and roots else 0,
        sees_leader=word is not None and bool(word.leader),
        formation=cluster.formation,
        cluster_id=cluster.cluster_id,
        root=etcdcert.fingerprint(roots[0]) if roots else None,
        intermediate=etcdcert.serial_of(granted[1].certificate) if granted else None,
        given_up=cluster.given_up,
        etcd=word,
        replacing=etcdtaken.wants_replacement(host, node.key),
    )


def _probe(asked: Asked) -> ProbeAnswer:
    state = own_state(asked.host, asked.spec, asked.node)
    return replace(
        state,
        newest_of_you=selfrecord.newest_of(asked.node, asked.member.key)
        if asked.body.of_me
        else None,
        trusts_you=may_ask(asked.node.trust, asked.member.key),
    )


def _take_record(asked: Asked) -> TakeRecordAnswer:
    """Take the holder's record; the tend starts etcd with it."""
    host, wanted = asked.host, asked.body
    if wanted.introductions:
        receive.take_records(host, asked.spec, wanted.introductions, asked.member.key)
    with store.locked(host, "the mesh"):
        checked = etcdtaken.take_record(host, asked.node, wanted.record)
        cluster = etcdstore.load_cluster(host)
    if checked.again:  # a pass is at work with it already, unless a kill came in between
        host.units.start(FAST_TIMER, block=False)
    else:
        up.kick_tend(host)
    return TakeRecordAnswer(stage=cluster.stage, epoch=cluster.epoch)


def _enroll(asked: Asked) -> EnrollAnswer:
    """Grant a live member's enrolment; the birth, if it is time for one, is the tend's."""
    host, wanted = asked.host, asked.body
    with store.locked(host, "the mesh"):
        node, merged = store.merge_into(host, asked.node, wanted.admissions)
        admitted = {one.key: one.address for one in node.view.members}
        granted = etcdissue.grant(host, node, wanted.enrolment, admitted=admitted)
    if merged.added:  # a relayed one may be new here: the sync lets it in
        host.units.start(SYNC_UNIT, block=False)
    up.kick_tend(host)
    return EnrollAnswer(grant=granted)


def _take_grant(asked: Asked) -> TakeGrantAnswer:
    """Take the grant that the inviter fetched; the tend goes on with it."""
    taken = etcdenrol.take(asked.host, asked.node, asked.body.grant, asked.member.key)
    up.kick_tend(asked.host)
    return taken


def _give_up(asked: Asked) -> GiveUpAnswer:
    """Promise never to start a formation whose leader this node never saw."""
    return GiveUpAnswer(statement=etcdtaken.give_up(asked.host, asked.node, asked.body.formation))


def _place(asked: Asked) -> PlaceAnswer:
    """Where the sender stands in the holder's line; one that is in no line is looked at soon."""
    etcdissue.require_authority(asked.host)
    found = etcdgrow.place(asked.host, asked.member.key)
    if found.cluster and found.place is None:
        up.kick_tend(asked.host)
    return found


def _replace(asked: Asked) -> ReplaceAnswer:
    """Give the sender a new place in the cluster, if the others are a quorum without it."""
    wanted = asked.body
    return etcdgrow.replace_member(asked.host, asked.node, asked.member, dry_run=wanted.dry_run)
