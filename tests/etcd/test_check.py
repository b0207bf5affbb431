"""Every numbered check of etcdcheck, by a message that fails that check and no other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from keel.errors import Refused
from keel.mesh import wire
from keel.mesh.etcdcert import (
    PublicKeyHash,
    Serial,
    der,
    fingerprint,
    public_key_hash,
    serial_of,
    sign_with_root,
)
from keel.mesh.etcdcheck import (
    GrantContext,
    RecordContext,
    check_grant,
    check_holder,
    check_record,
)
from keel.mesh.etcdcrl import Reason, Revoked
from keel.mesh.etcdmsg import (
    KIND_CLUSTER,
    KIND_ENROLMENT,
    KIND_GIVEN_UP,
    KIND_REVOCATION,
    ClusterRecord,
    Enrolment,
    GivenUp,
    Grant,
    RecordState,
    Revocation,
    seal_by_root,
)
from keel.mesh.etcdpki import new_request
from keel.mesh.etcdrequests import (
    MAX_OF_BRANCH,
    MAX_UNEXPIRED,
    EnrolmentContext,
    RevocationContext,
    check_enrolment,
    check_given_up,
    check_revocation,
)
from keel.mesh.etcdstate import Cluster, mark_formed, start
from keel.mesh.keys import SigningPair
from keel.mesh.records import HOLDER
from keel.types import EtcdClusterId, EtcdMemberId, Fingerprint
from tests.etcd import make
from tests.etcd.make import F1, F2, NONCE, address, key, pair
from tests.pki import make as pki
from tests.pki.make import MESH, NOW, OTHER_MESH

HOUR = timedelta(hours=1)
SOON = timedelta(seconds=1)


def rule_of(act: Callable[[], object]) -> str:
    with pytest.raises(Refused) as caught:
        act()
    assert caught.value.remedy()
    assert caught.value.summary()
    return caught.value.rule


def by_member(kind: str, body: object, *who: SigningPair) -> bytes:
    return wire.encode(wire.seal(kind, body, *who))


# enrolment


ENROLMENT = Enrolment(
    mesh=MESH,
    address=address("c"),
    ed25519=key("c"),
    csr=new_request(pki.key("mine"), address("c")),
    nonce=NONCE,
)
ENROLMENT_CONTEXT = EnrolmentContext(
    mesh=MESH,
    admitted={key(name): address(name) for name in "abc"},
    removed=frozenset(),
    ledger=make.ledger(),
    now=NOW,
)


def enrolment(**changes: object) -> bytes:
    return by_member(KIND_ENROLMENT, replace(ENROLMENT, **changes), pair("c"))  # type: ignore[arg-type]


def test_a_good_enrolment_gives_its_request() -> None:
    found = check_enrolment(enrolment(), ENROLMENT_CONTEXT)
    assert found.enrolment == ENROLMENT
    assert found.request.der == ENROLMENT.csr


def test_the_same_key_may_be_enrolled_again_for_its_own_address() -> None:
    line = make.grant_line("c")
    csr = new_request(pki.key(f"intermediate {address('c')} 1"), address("c"))
    context = replace(ENROLMENT_CONTEXT, ledger=make.ledger(line))
    assert check_enrolment(enrolment(csr=csr), context).request.key == line.csr_key


def reused() -> EnrolmentContext:
    line = replace(
        make.grant_line("b"),
        csr_key=check_enrolment(enrolment(), ENROLMENT_CONTEXT).request.key,
    )
    return replace(ENROLMENT_CONTEXT, ledger=make.ledger(line))


def flooded(**changes: object) -> EnrolmentContext:
    """c was granted as many as one may have that have not ended; some are revoked."""
    lines = [
        replace(
            make.grant_line("c"), serial=Serial(f"{n:040x}"), csr_key=PublicKeyHash(f"{n:064x}")
        )
        for n in range(1, MAX_UNEXPIRED + 1)
    ]
    context = replace(ENROLMENT_CONTEXT, ledger=make.ledger(*lines))
    return replace(context, **changes)  # type: ignore[arg-type]


def crowded(*full: str) -> EnrolmentContext:
    """c came in through these; as many of each one's as there may be were granted, none to c."""
    lines, heads = [], {key("c"): frozenset(key(one) for one in ("p", "q")[: len(full) or 1])}
    for head in full:
        for n in range(MAX_OF_BRANCH):
            who = f"{head}{n}"
            changes = {"serial": Serial(f"{len(lines) + 1:040x}"), "ed25519": key(who)}
            csr = PublicKeyHash(f"{len(lines) + 1:064x}")
            line = replace(make.grant_line("b"), csr_key=csr, **changes)  # type: ignore[arg-type]
            lines.append(line)
            heads[key(who)] = frozenset((key(head),))
    return replace(ENROLMENT_CONTEXT, ledger=make.ledger(*lines), heads=heads)


@pytest.mark.parametrize(
    "context",
    [
        replace(crowded("p"), heads={}),
        replace(crowded("p"), heads={**crowded("p").heads, key("c"): frozenset((key("q"),))}),
        replace(
            crowded("p"), heads={**crowded("p").heads, key("c"): frozenset((key("p"), key("q")))}
        ),
        replace(crowded("p"), now=make.grant_line("b").not_after),
    ],
    ids=["the holder's own invite", "another's branch", "a way with room", "they have ended"],
)
def test_a_branch_that_is_full_keeps_nobody_else_out(context: EnrolmentContext) -> None:
    assert check_enrolment(enrolment(), context)


def test_who_was_granted_many_is_granted_again_once_they_have_ended() -> None:
    later = flooded(now=make.grant_line("c").not_after)
    assert check_enrolment(enrolment(), later)


def test_who_was_granted_many_gets_what_it_was_granted_again() -> None:
    line = make.grant_line("c")
    csr = new_request(pki.key(f"intermediate {address('c')} 1"), address("c"))
    context = flooded()
    context = replace(context, ledger=make.ledger(*context.ledger.lines[1:], line))
    assert check_enrolment(enrolment(csr=csr), context).request.key == line.csr_key


@pytest.mark.parametrize(
    ("raw", "context", "rule"),
    [
        (b"{}", ENROLMENT_CONTEXT, "enrolment-malformed"),
        (
            by_member(KIND_GIVEN_UP, ENROLMENT, pair("c")),
            ENROLMENT_CONTEXT,
            "enrolment-malformed",
        ),
        (
            by_member(KIND_ENROLMENT, ENROLMENT, pair("c"), pair("b")),
            ENROLMENT_CONTEXT,
            "enrolment-malformed",
        ),
        (
            by_member(KIND_ENROLMENT, make.grant_line("c"), pair("c")),
            ENROLMENT_CONTEXT,
            "enrolment-malformed",
        ),
        (enrolment() + b" ", ENROLMENT_CONTEXT, "enrolment-malformed"),
        (make.resigned(enrolment(), pair("b")), ENROLMENT_CONTEXT, "enrolment-signature"),
        (enrolment(mesh=OTHER_MESH), ENROLMENT_CONTEXT, "enrolment-other-mesh"),
        (
            enrolment(),
            replace(ENROLMENT_CONTEXT, removed=frozenset({key("c")})),
            "enrolment-removed",
        ),
        (enrolment(), replace(ENROLMENT_CONTEXT, admitted={}), "enrolment-not-admitted"),
        (enrolment(address=address("b")), ENROLMENT_CONTEXT, "enrolment-address"),
        (enrolment(csr=b"\x30\x00"), ENROLMENT_CONTEXT, "enrolment-request"),
        (enrolment(), reused(), "enrolment-key-reused"),
        (enrolment(), flooded(), "enrolment-too-many"),
        (enrolment(), crowded("p"), "enrolment-too-many"),
        (enrolment(), crowded("p", "q"), "enrolment-too-many"),
    ],
    ids=[
        "1 form", "1 kind", "1 two signers", "1 body", "1 spelling", "2 another signer", "3 mesh",
        "4 removed", "5 not admitted", "6 address", "7 request", "8 key of another",
        "9 many", "9 many of its branch", "9 many on every way",
    ],
)  # fmt: skip
def test_an_enrolment_is_refused(raw: bytes, context: EnrolmentContext, rule: str) -> None:
    assert rule_of(lambda: check_enrolment(raw, context)) == rule


def test_an_enrolment_with_a_broken_signature_is_refused() -> None:
    good = wire.decode(enrolment(), max_bytes=1 << 16)
    one = good.signatures[0]
    bad = replace(good, signatures=(replace(one, value=bytes(64)),))
    raw = wire.encode(bad)
    assert rule_of(lambda: check_enrolment(raw, ENROLMENT_CONTEXT)) == "enrolment-signature"


# grant

ROOT = fingerprint(make.root().certificate)
GRANT_CONTEXT = GrantContext(
    mesh=MESH,
    address=address("c"),
    key=key("c"),
    request_key=public_key_hash(make.intermediate(address=address("c")).certificate),
    pinned=frozenset({ROOT}),
    trusted=False,
)
STRANGER = Fingerprint("0" * 64)


def revoked_grant() -> Grant:
    mine = make.intermediate(address=address("c")).certificate
    revoked = Revoked(serial=serial_of(mine), reason=Reason.SUPERSEDED, at=NOW)
    return replace(make.grant(), crl=make.crl(revoked))


def of_another_root() -> bytes:
    return der(pki.intermediate(make.root(generation=2), address=address("c")).certificate)


@pytest.mark.parametrize(
    "context",
    [
        GRANT_CONTEXT,
        replace(GRANT_CONTEXT, pinned=frozenset(), trusted=True),
        replace(GRANT_CONTEXT, pinned=frozenset({ROOT, STRANGER})),
    ],
    ids=["pinned by the token", "first one, from a trust root", "one of two pinned"],
)
def test_a_good_grant_is_taken(context: GrantContext) -> None:
    found = check_grant(make.grant(), context, NOW)
    assert found.holder.ed25519 == key("a")
    assert found.crl_number == 1
    assert [fingerprint(root) for root in found.roots] == [ROOT]


def test_a_second_root_is_taken_from_a_trust_root_beside_the_pinned_one() -> None:
    second = make.root(generation=2)
    both = replace(make.grant(), roots=(der(second.certificate), make.grant().roots[0]))
    assert len(check_grant(both, replace(GRANT_CONTEXT, trusted=True), NOW).roots) == 2
    assert rule_of(lambda: check_grant(both, GRANT_CONTEXT, NOW)) == "grant-root-unknown"


@pytest.mark.parametrize(
    ("grant", "context", "rule"),
    [
        (replace(make.grant(), mesh=OTHER_MESH), GRANT_CONTEXT, "grant-other-mesh"),
        (replace(make.grant(), address=address("b")), GRANT_CONTEXT, "grant-not-for-me"),
        (replace(make.grant(), ed25519=key("b")), GRANT_CONTEXT, "grant-not-for-me"),
        (replace(make.grant(), roots=()), GRANT_CONTEXT, "grant-roots"),
        (replace(make.grant(), roots=(b"x",)), GRANT_CONTEXT, "grant-roots"),
        (
            make.grant(),
            replace(GRANT_CONTEXT, pinned=frozenset({STRANGER}), trusted=True),
            "grant-root-unknown",
        ),
        (
            make.grant(),
            replace(GRANT_CONTEXT, pinned=frozenset(), trusted=False),
            "grant-root-unknown",
        ),
        (
            replace(make.grant(), intermediate=make.grant("b").intermediate),
            GRANT_CONTEXT,
            "grant-chain",
        ),
        (replace(make.grant(), intermediate=of_another_root()), GRANT_CONTEXT, "grant-chain"),
        (replace(make.grant(), intermediate=b""), GRANT_CONTEXT, "grant-chain"),
        (
            replace(make.grant(), crl=make.crl(by=make.root(generation=2))),
            GRANT_CONTEXT,
            "grant-crl",
        ),
        (revoked_grant(), GRANT_CONTEXT, "grant-revoked"),
        (make.grant(), replace(GRANT_CONTEXT, holder_epoch=2), "holder-old"),
        (
            make.grant(),
            replace(GRANT_CONTEXT, holder_epoch=1, holder=key("b")),
            "holder-tie",
        ),
    ],
    ids=[
        "1 mesh", "2 address", "2 key", "3 no root", "3 no certificate", "4 another root pinned",
        "4 first root from a stranger", "5 another's intermediate", "5 of another root",
        "5 no certificate", "6 CRL of another root", "7 revoked", "8 holder statement",
        "8 another holder",
    ],
)  # fmt: skip
def test_a_grant_is_refused(grant: Grant, context: GrantContext, rule: str) -> None:
    assert rule_of(lambda: check_grant(grant, context, NOW)) == rule


# holder statement


@pytest.mark.parametrize(
    ("raw", "rule"),
    [
        (b"", "holder-malformed"),
        (make.sealed(make.record()), "holder-malformed"),
        (seal_by_root(HOLDER, ENROLMENT, make.root()), "holder-malformed"),
        (make.holder_statement(make.root(generation=2)), "holder-signature"),
        (by_member(HOLDER, ENROLMENT, pair("a")), "holder-signature"),
        (make.holder_statement(mesh=OTHER_MESH), "holder-other-mesh"),
        (make.holder_statement(roots=(make.root(generation=2),)), "holder-roots"),
        (make.holder_statement(roots=(make.root(generation=2), make.root())), "holder-roots"),
        (make.holder_statement(epoch=4), "holder-old"),
    ],
    ids=[
        "1 form", "1 kind", "1 body", "2 another root", "2 a member", "3 mesh", "4 other roots",
        "4 another generation", "5 epoch",
    ],
)  # fmt: skip
def test_a_holder_statement_is_refused(raw: bytes, rule: str) -> None:
    roots = [make.root().certificate]
    assert rule_of(lambda: check_holder(raw, roots, mesh=MESH, held_epoch=5)) == rule


def test_of_two_holders_of_one_epoch_the_first_is_obeyed() -> None:
    roots = [make.root().certificate]
    raw = make.holder_statement(epoch=5)
    first = check_holder(raw, roots, mesh=MESH, held_epoch=5, held=key("a"))
    assert first.ed25519 == key("a")
    assert (
        rule_of(lambda: check_holder(raw, roots, mesh=MESH, held_epoch=5, held=key("b")))
        == "holder-tie"
    )
    moved = check_holder(raw, roots, mesh=MESH, held_epoch=4, held=key("b"))
    assert moved.ed25519 == key("a")


def test_the_same_holder_statement_is_believed_again() -> None:
    roots = [make.root().certificate]
    again = check_holder(make.holder_statement(epoch=5), roots, mesh=MESH, held_epoch=5)
    assert again.epoch == 5


# cluster record

RECORD_CONTEXT = RecordContext(
    mesh=MESH,
    address=address("c"),
    roots=(make.root().certificate,),
    cluster=Cluster(),
    holder_epoch=1,
    window_open=False,
)


def cluster_of(record: ClusterRecord, *, formed: bool = False) -> Cluster:
    """cluster.json after that record was taken."""
    begun = start(
        Cluster(),
        formation=record.formation,
        nonce=record.nonce,
        record=wire.record_hash(wire.decode(make.sealed(record), max_bytes=1 << 16)),
        epoch=record.epoch,
        cluster_id=record.cluster_id,
    )
    return mark_formed(begun) if formed else begun


def at(cluster: Cluster) -> RecordContext:
    return replace(RECORD_CONTEXT, cluster=cluster)


BIRTH = make.record()
SECOND = make.record(make.formation(name=F2), epoch=9)
LATER = make.record(epoch=2, state=RecordState.EXISTING, names="abcd")


def test_a_birth_is_taken_by_an_idle_member() -> None:
    found = check_record(make.sealed(BIRTH), RECORD_CONTEXT, NOW)
    assert found.record == BIRTH
    assert found.holder.ed25519 == key("a")
    assert not found.again


@pytest.mark.parametrize("formed", [False, True], ids=["starting", "formed"])
def test_a_newer_record_of_the_same_formation_is_taken(formed: bool) -> None:
    context = at(cluster_of(BIRTH, formed=formed))
    assert check_record(make.sealed(LATER), context, NOW).record == LATER


def test_a_birth_signed_again_is_taken_by_one_that_is_starting() -> None:
    again = make.record(epoch=2)
    assert check_record(make.sealed(again), at(cluster_of(BIRTH)), NOW).record == again


@pytest.mark.parametrize("formed", [False, True], ids=["starting", "formed"])
def test_the_very_record_that_was_taken_is_never_refused_again(formed: bool) -> None:
    context = replace(at(cluster_of(BIRTH, formed=formed)), window_open=True)
    assert check_record(make.sealed(BIRTH), context, NOW + 5 * HOUR).again


def changed(**changes: object) -> bytes:
    return make.sealed(replace(BIRTH, **changes))  # type: ignore[arg-type]


def malformed_members() -> bytes:
    envelope = wire.decode(make.sealed(BIRTH), max_bytes=1 << 16)
    swapped = envelope.payload.replace(b'"members":["', b'"members":["fd0a:1b2c:3d4e::63:1","', 1)
    bare = replace(envelope, payload=swapped, signatures=())
    value = sign_with_root(make.root(), wire.message(bare))
    return wire.encode(wire.with_signature(bare, wire.root_key_id(ROOT), value))


SMALL = make.formation("ac")


@pytest.mark.parametrize(
    ("raw", "context", "rule"),
    [
        (b"[]", RECORD_CONTEXT, "record-malformed"),
        (make.holder_statement(), RECORD_CONTEXT, "record-malformed"),
        (malformed_members(), RECORD_CONTEXT, "record-malformed"),
        (make.sealed(BIRTH, make.root(generation=2)), RECORD_CONTEXT, "record-signature"),
        (by_member(KIND_CLUSTER, BIRTH, pair("a")), RECORD_CONTEXT, "record-signature"),
        (changed(mesh=OTHER_MESH), RECORD_CONTEXT, "record-other-mesh"),
        (changed(root=STRANGER), RECORD_CONTEXT, "record-root"),
        (
            changed(holder=make.holder_statement(mesh=OTHER_MESH)),
            RECORD_CONTEXT,
            "holder-other-mesh",
        ),
        (changed(), replace(RECORD_CONTEXT, holder_epoch=2), "holder-old"),
        (changed(), replace(RECORD_CONTEXT, holder=key("b")), "holder-tie"),
        (changed(token=SECOND.token), RECORD_CONTEXT, "record-token"),
        (make.sealed(make.record(SMALL, names="ac")), RECORD_CONTEXT, "record-size"),
        (changed(cluster_id=EtcdClusterId(7)), RECORD_CONTEXT, "record-cluster-id"),
        (
            make.sealed(replace(LATER, cluster_id=EtcdClusterId(7))),
            at(cluster_of(BIRTH)),
            "record-cluster-id",
        ),
        (
            make.sealed(make.record(make.formation("abe"), names="abe")),
            RECORD_CONTEXT,
            "record-not-for-me",
        ),
        (changed(expires=NOW + 2 * HOUR), RECORD_CONTEXT, "record-life"),
        (
            changed(issued=NOW + 301 * SOON, expires=NOW + HOUR + 301 * SOON),
            RECORD_CONTEXT,
            "record-from-future",
        ),
        (changed(issued=NOW - HOUR, expires=NOW), RECORD_CONTEXT, "record-expired"),
        (changed(), at(Cluster(given_up=(F1,))), "record-given-up"),
        (make.sealed(SECOND), at(cluster_of(BIRTH, formed=True)), "record-other-cluster"),
        (make.sealed(SECOND), at(cluster_of(BIRTH)), "record-other-formation"),
        (
            changed(issued=NOW + SOON, expires=NOW + HOUR + SOON),
            at(cluster_of(BIRTH)),
            "record-not-newer",
        ),
        (changed(epoch=2), at(cluster_of(BIRTH, formed=True)), "record-second-birth"),
        (changed(), replace(RECORD_CONTEXT, window_open=True), "record-window"),
    ],
    ids=[
        "1 form", "1 kind", "1 members not in order", "2 another root", "2 a member", "3 mesh",
        "4 names another root", "5 holder's mesh", "5 holder's epoch", "5 another holder",
        "6 token", "7 two members",
        "8 not the birth's", "8 not the one held", "9 names others", "10 two hours", "11 future",
        "12 expired", "13 given up", "14 in another cluster", "15 starting another",
        "16 same epoch", "17 formed already", "18 window",
    ],
)  # fmt: skip
def test_a_cluster_record_is_refused(raw: bytes, context: RecordContext, rule: str) -> None:
    assert rule_of(lambda: check_record(raw, context, NOW)) == rule


@pytest.mark.parametrize("issued", [-3599, 300])
def test_a_cluster_record_lives_for_an_hour_and_a_clock_may_be_five_minutes_off(
    issued: int,
) -> None:
    begins = NOW + issued * SOON
    found = check_record(changed(issued=begins, expires=begins + HOUR), RECORD_CONTEXT, NOW)
    assert not found.again


def test_an_epoch_has_an_end() -> None:
    with pytest.raises(ValueError, match="out of range"):
        replace(BIRTH, epoch=2**63)


def test_a_birth_replaces_nobody() -> None:
    with pytest.raises(ValueError, match="replaces nobody"):
        replace(BIRTH, replaces=EtcdMemberId(1))
    assert replace(LATER, replaces=EtcdMemberId(1)).replaces == 1


# revocation

REVOCATION = Revocation(
    mesh=MESH,
    address=address("c"),
    ed25519=key("c"),
    by=key("c"),
    reason=Reason.CESSATION,
    time=NOW,
    nonce=NONCE,
)
REVOCATION_CONTEXT = RevocationContext(
    mesh=MESH,
    admitters={key("c"): frozenset({key("b")})},
    trust_roots=frozenset({key("a")}),
    ledger=make.ledger(make.grant_line("c")),
)


def revocation(who: str, **changes: object) -> bytes:
    body = replace(REVOCATION, by=key(who), **changes)  # type: ignore[arg-type]
    return by_member(KIND_REVOCATION, body, pair(who))


@pytest.mark.parametrize("who", ["a", "b", "c"], ids=["trust root", "admitter", "itself"])
def test_those_who_may_ask_are_obeyed(who: str) -> None:
    assert check_revocation(revocation(who), REVOCATION_CONTEXT).by == key(who)


def test_for_a_removed_node_anybody_s_word_is_enough() -> None:
    removed = replace(REVOCATION_CONTEXT, removed=frozenset({key("c")}))
    assert check_revocation(revocation("d"), removed).by == key("d")


@pytest.mark.parametrize(
    ("raw", "context", "rule"),
    [
        (b"\xff", REVOCATION_CONTEXT, "revocation-malformed"),
        (make.resigned(revocation("c"), pair("a")), REVOCATION_CONTEXT, "revocation-signature"),
        (revocation("c", mesh=OTHER_MESH), REVOCATION_CONTEXT, "revocation-other-mesh"),
        (revocation("d"), REVOCATION_CONTEXT, "revocation-not-yours"),
        (
            revocation("a", ed25519=key("d"), address=address("d")),
            REVOCATION_CONTEXT,
            "revocation-unknown",
        ),
        (
            revocation("c"),
            replace(
                REVOCATION_CONTEXT,
                ledger=make.ledger(make.grant_line("c"), make.grant_line("c", seconds=301)),
            ),
            "revocation-old",
        ),
    ],
    ids=["1 form", "2 another signer", "3 mesh", "4 another member", "5 no grant", "6 older"],
)
def test_a_revocation_is_refused(raw: bytes, context: RevocationContext, rule: str) -> None:
    assert rule_of(lambda: check_revocation(raw, context)) == rule


# given up

GIVEN_UP = GivenUp(mesh=MESH, formation=F1, ed25519=key("c"), time=NOW, nonce=NONCE)


def given_up(who: str = "c", **changes: object) -> bytes:
    body = replace(GIVEN_UP, ed25519=key(who), **changes)  # type: ignore[arg-type]
    return by_member(KIND_GIVEN_UP, body, pair(who))


def test_a_member_s_word_that_it_gave_up_is_believed() -> None:
    found = check_given_up(given_up(), mesh=MESH, formation=make.formation(), key=key("c"))
    assert found == GIVEN_UP


@pytest.mark.parametrize(
    ("raw", "who", "rule"),
    [
        (b"{", "c", "given-up-malformed"),
        (make.resigned(given_up(), pair("b")), "c", "given-up-signature"),
        (given_up("b"), "c", "given-up-signature"),
        (given_up(mesh=OTHER_MESH), "c", "given-up-other-mesh"),
        (given_up(formation=F2), "c", "given-up-other-formation"),
        (given_up("d"), "d", "given-up-not-a-member"),
    ],
    ids=["1 form", "2 names another", "2 another member's", "3 mesh", "4 formation", "5 stranger"],
)
def test_a_given_up_statement_is_refused(raw: bytes, who: str, rule: str) -> None:
    formation = make.formation()
    found = rule_of(lambda: check_given_up(raw, mesh=MESH, formation=formation, key=key(who)))
    assert found == rule
