"""What travels: bodies read back as they were written, and records carry an hour."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

import pytest

from keel import codec
from keel.mesh import etcdmsg, wire
from keel.mesh.etcdcert import fingerprint
from keel.mesh.etcdmsg import ProbeAnswer, RecordState
from keel.mesh.etcdstate import Stage
from keel.types import Capability, EtcdClusterId
from tests.etcd import make

PROBE_ANSWER = ProbeAnswer(
    capability=Capability.ETCD,
    confirmed=True,
    window_open=False,
    stage=Stage.STARTING,
    epoch=3,
    holder_epoch=1,
    crl_number=4,
    sees_leader=False,
    formation=make.F1,
    cluster_id=EtcdClusterId(2**64 - 1),
    root=fingerprint(make.root().certificate),
    given_up=(make.F2,),
)


@pytest.mark.parametrize(
    "body", [PROBE_ANSWER, make.grant(), make.record()], ids=lambda b: type(b).__name__
)
def test_bodies_read_back_equal(body: object) -> None:
    assert codec.loads(type(body), codec.dumps(body), max_bytes=1 << 16) == body


def test_every_body_can_be_read_by_the_codec() -> None:
    for kind in vars(etcdmsg).values():
        if dataclasses.is_dataclass(kind) and kind.__module__ == etcdmsg.__name__:
            with pytest.raises(codec.BadValue):
                codec.loads(kind, b'{"unknown":1}', max_bytes=99)


def test_a_record_names_its_formation_and_lives_an_hour() -> None:
    record = make.record(epoch=5, state=RecordState.EXISTING, names="cab")
    assert record.expires - record.issued == timedelta(hours=1)
    assert record.members == (make.address("a"), make.address("b"), make.address("c"))
    assert record.cluster_id == make.formation().cluster_id
    assert record.token.endswith(make.F1)


def test_members_stand_in_order_and_once() -> None:
    record = make.record()
    with pytest.raises(ValueError, match="in order of address"):
        dataclasses.replace(record, members=(record.members[1], record.members[0]))


def test_a_root_signs_under_its_fingerprint() -> None:
    envelope = wire.decode(make.sealed(make.record()), max_bytes=1 << 16)
    [(name, _)] = wire.root_signatures(envelope)
    assert name == fingerprint(make.root().certificate)
