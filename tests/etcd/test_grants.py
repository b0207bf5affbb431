"""The holder's ledger: rules L1 to L4."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from keel.errors import StateCorrupt
from keel.mesh import etcdgrants
from keel.mesh.etcdcrl import Reason, Revoked
from keel.mesh.etcdgrants import (
    Event,
    GrantLine,
    Ledger,
    dump_line,
    first_granted,
    granted_to,
    live_grant,
    owner_of,
    read_ledger,
    revoked_serials,
)
from tests.etcd.make import address, grant_line, key, ledger
from tests.pki.make import NOW

WHERE = Path("/var/lib/keel/etcd/grants.jsonl")
C1, C2, B1 = grant_line("c"), grant_line("c", number=2, seconds=9), grant_line("b", seconds=5)


def revoked(name: str, *, seconds: int, reason: Reason | None = Reason.CESSATION) -> GrantLine:
    return GrantLine(
        event=Event.REVOKED,
        address=address(name),
        ed25519=key(name),
        time=NOW + timedelta(seconds=seconds),
        reason=reason,
    )


def raw(*lines: GrantLine) -> bytes:
    return b"".join(dump_line(line) + b"\n" for line in lines)


def test_lines_read_back_in_order() -> None:
    lines = (C1, B1, C2, revoked("c", seconds=20))
    assert read_ledger(WHERE, raw(*lines)) == Ledger(lines=lines)
    assert read_ledger(WHERE, None) == read_ledger(WHERE, b"") == Ledger()


@pytest.mark.parametrize("lines", [1, 2000], ids=["remembered", "too large"])
def test_a_ledger_is_read_by_its_bytes(lines: int) -> None:
    one, other = raw(*[C1] * lines, B1), raw(*[C1] * lines, C2)
    for _ in range(2):
        assert [read_ledger(WHERE, found).lines[-1] for found in (one, other)] == [B1, C2]
    same = read_ledger(WHERE, one) is read_ledger(WHERE, one)
    assert same == (len(one) <= etcdgrants.REMEMBERED_BYTES) == (lines == 1)


@pytest.mark.parametrize(
    "torn",
    [b"", b"{", dump_line(B1)[:-1], dump_line(B1)],
    ids=["none", "one byte", "all but one byte", "all but the line break"],
)
def test_a_torn_last_line_never_left_the_holder(torn: bytes) -> None:
    assert read_ledger(WHERE, raw(C1) + torn) == ledger(C1)


@pytest.mark.parametrize(
    "bad",
    [
        b"\n",
        b"{}\n",
        dump_line(replace(C1, event=Event.REVOKED)).replace(b"revoked", b"lost") + b"\n",
    ],
    ids=["empty", "no fields", "unknown event"],
)
def test_a_bad_line_is_named(bad: bytes) -> None:
    with pytest.raises(StateCorrupt, match=r"line 2"):
        read_ledger(WHERE, raw(C1) + bad)


def test_a_grant_names_its_certificate() -> None:
    with pytest.raises(ValueError, match="a grant has"):
        replace(C1, serial=None)


def test_the_newest_grant_lives_until_its_pair_is_revoked() -> None:
    pair = (address("c"), key("c"))
    assert live_grant(ledger(), *pair) is None
    assert live_grant(ledger(C1, B1, C2), *pair) == C2
    assert live_grant(ledger(C1, revoked("c", seconds=3)), *pair) is None
    assert live_grant(ledger(C1, revoked("c", seconds=3), C2), *pair) == C2
    assert live_grant(ledger(C1, revoked("b", seconds=3)), *pair) == C1
    assert granted_to(ledger(C1, B1, revoked("c", seconds=6), C2), *pair) == (C1, C2)


def test_the_order_of_birth_is_that_of_the_first_grant_since_the_last_revocation() -> None:
    pair = (address("c"), key("c"))
    assert first_granted(ledger(B1), *pair) is None
    assert first_granted(ledger(C1, B1, C2), *pair) == C1.time
    assert first_granted(ledger(C1, revoked("c", seconds=3), C2), *pair) == C2.time
    assert first_granted(ledger(C1, revoked("c", seconds=3)), *pair) is None


def test_a_key_belongs_to_the_first_address_it_was_granted_for() -> None:
    assert C1.csr_key is not None
    stolen = replace(B1, csr_key=C1.csr_key)
    assert owner_of(ledger(C1, stolen), C1.csr_key) == address("c")
    assert owner_of(ledger(B1), C1.csr_key) is None


def test_what_was_superseded_is_revoked_alone() -> None:
    pair = (address("c"), key("c"))
    one = replace(revoked("c", seconds=20, reason=Reason.SUPERSEDED), serial=C1.serial)
    book = ledger(C1, B1, C2, one)
    assert [each.serial for each in revoked_serials(book)] == [C1.serial]
    assert revoked_serials(book)[0].reason is Reason.SUPERSEDED
    assert live_grant(book, *pair) == C2
    assert first_granted(book, *pair) == C1.time
    newest = replace(one, serial=C2.serial)
    assert live_grant(ledger(C1, C2, newest), *pair) is None
    assert live_grant(ledger(newest, C1), *pair) == C1
    everything = ledger(C1, C2, one, revoked("c", seconds=30))
    assert {each.serial for each in revoked_serials(everything)} == {C1.serial, C2.serial}


def test_a_revocation_covers_every_grant_before_it_and_none_after() -> None:
    assert C1.serial is not None
    first = revoked("c", seconds=3, reason=None)
    book = ledger(B1, C1, first, C2)
    assert revoked_serials(book) == (
        Revoked(serial=C1.serial, reason=Reason.UNSPECIFIED, at=first.time),
    )
    both = ledger(C1, first, C2, revoked("c", seconds=30))
    assert [one.reason for one in revoked_serials(both)] == [
        Reason.UNSPECIFIED,
        Reason.CESSATION,
    ]
