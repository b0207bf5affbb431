"""The merged CRL (rules L1 to L4, row E5)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st

from keel import codec
from keel.errors import Internal, PkiRejected
from keel.mesh import etcdcert, etcdcrl
from keel.mesh.etcdcert import Authority, Serial
from keel.mesh.etcdcrl import Reason, Revoked
from tests.pki import make
from tests.pki.crldefects import CRLS, CrlDefect, crl_by_hand, crl_entry

ROOT = make.root()
TWO = make.root(generation=2)
INTERMEDIATE = make.intermediate()


def _revoked(
    number: int = 1, reason: Reason = Reason.SUPERSEDED, at: datetime = make.NOW
) -> Revoked:
    return Revoked(serial=etcdcert.format_serial(number), reason=reason, at=at)


def _crl(*revoked: Revoked, number: int = 5, root: Authority = ROOT) -> bytes:
    return etcdcrl.new_crl(root, revoked, number=number, now=make.NOW)


def test_an_empty_crl_is_one_too() -> None:
    raw = _crl()
    crl = etcdcrl.read_crl(raw, [ROOT.certificate])
    assert (crl.der, crl.number, crl.revoked) == (raw, 5, ())
    assert crl.this_update == make.NOW - timedelta(hours=1)
    assert crl.next_update == make.NOW + timedelta(days=30)
    assert crl.signer == etcdcert.fingerprint(ROOT.certificate)


def test_what_was_revoked_reads_back_equal() -> None:
    entries = etcdcrl.unite(_revoked(number, reason) for number, reason in enumerate(Reason, 1))
    crl = etcdcrl.read_crl(_crl(*entries), [ROOT.certificate])
    assert crl.revoked == entries


def test_a_crl_revokes_by_serial() -> None:
    serial = etcdcert.serial_of(INTERMEDIATE.certificate)
    entry = Revoked(serial=serial, reason=Reason.CESSATION, at=make.NOW)
    crl = etcdcrl.read_crl(_crl(entry), [ROOT.certificate])
    assert crl.revokes(INTERMEDIATE.certificate)
    assert not crl.revokes(make.member().leaf)


def test_a_crl_is_late_after_its_next_update_and_still_counts() -> None:
    crl = etcdcrl.read_crl(_crl(), [ROOT.certificate])
    assert not crl.late(crl.next_update)
    assert crl.late(crl.next_update + timedelta(seconds=1))


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param(0, id="small, many are kept in memory"),
        pytest.param(2000, id="large, the last one is"),
    ],
)
def test_a_crl_that_was_read_is_nothing_under_another_root(entries: int) -> None:
    raw = _crl(*(_revoked(number, Reason.CESSATION) for number in range(1, entries + 1)))
    assert (len(raw) > etcdcrl.REMEMBERED_BYTES) == bool(entries)
    found = etcdcrl.read_crl(raw, [ROOT.certificate])
    assert len(found.revoked) == entries
    with pytest.raises(PkiRejected, match="crl-signer"):
        etcdcrl.read_crl(raw, [TWO.certificate])
    assert etcdcrl.read_crl(raw, [ROOT.certificate]) is found


def test_the_current_root_signs_the_serials_of_every_generation() -> None:
    of_one = make.intermediate(ROOT).certificate
    entry = Revoked(serial=etcdcert.serial_of(of_one), reason=Reason.KEY_COMPROMISE, at=make.NOW)
    crl = etcdcrl.read_crl(_crl(entry, root=TWO, number=6), [TWO.certificate, ROOT.certificate])
    assert crl.revokes(of_one)
    assert crl.signer == etcdcert.fingerprint(TWO.certificate)


# -- uniting


def test_of_two_entries_the_earlier_date_and_the_graver_reason_stay() -> None:
    later = make.NOW + timedelta(days=1)
    united = etcdcrl.unite(
        [_revoked(1, Reason.KEY_COMPROMISE, later)],
        [_revoked(1, Reason.SUPERSEDED, make.NOW), _revoked(2)],
    )
    assert united == (_revoked(1, Reason.KEY_COMPROMISE, make.NOW), _revoked(2))


ENTRIES = st.builds(
    _revoked,
    st.integers(1, 6),
    st.sampled_from(list(Reason)),
    st.integers(-1000, 1000).map(lambda minutes: make.NOW + timedelta(minutes=minutes)),
)


@given(st.lists(ENTRIES, max_size=12), st.randoms(use_true_random=False))
@settings(max_examples=100)
def test_uniting_has_one_result_in_any_order_and_split(entries: list[Revoked], chance: Any) -> None:
    shuffled = list(entries)
    chance.shuffle(shuffled)
    at = len(shuffled) // 2
    united = etcdcrl.unite(entries)
    assert etcdcrl.unite(shuffled[:at], shuffled[at:]) == united
    assert etcdcrl.unite(united, entries) == united
    assert {entry.serial for entry in united} == {entry.serial for entry in entries}


def test_an_entry_is_a_record_like_any_other() -> None:
    entry = _revoked(77, Reason.CESSATION)
    raw = codec.dumps(entry)
    assert codec.loads(Revoked, raw, max_bytes=1000) == entry


# -- making


@pytest.mark.parametrize(
    ("root", "number"),
    [
        pytest.param(ROOT, 0, id="number 0"),
        pytest.param(
            Authority(certificate=ROOT.certificate, key=make.key("x")), 1, id="another key"
        ),
    ],
)
def test_a_crl_without_number_or_key_is_a_bug(root: Authority, number: int) -> None:
    with pytest.raises(Internal):
        etcdcrl.new_crl(root, (), number=number, now=make.NOW)


def test_a_root_is_never_put_on_a_crl() -> None:
    entry = Revoked(
        serial=etcdcert.serial_of(ROOT.certificate), reason=Reason.KEY_COMPROMISE, at=make.NOW
    )
    with pytest.raises(PkiRejected) as caught:
        _crl(entry)
    assert caught.value.check == "crl-root"


@pytest.mark.parametrize(
    "serial",
    [pytest.param("0" * 40, id="zero"), pytest.param("8" + "0" * 39, id="of 160 bits")],
)
def test_a_serial_that_is_none_is_not_put_on_a_crl(serial: str) -> None:
    with pytest.raises(PkiRejected) as caught:
        _crl(Revoked(serial=Serial(serial), reason=Reason.SUPERSEDED, at=make.NOW))
    assert caught.value.check == "crl-entry"


# -- reading


@pytest.mark.parametrize("defect", CRLS, ids=lambda defect: defect.name)
def test_a_wrong_crl_is_refused_by_name(defect: CrlDefect) -> None:
    with pytest.raises(PkiRejected) as caught:
        etcdcrl.read_crl(defect.make(), [ROOT.certificate])
    assert caught.value.check == defect.check


def test_the_crl_made_by_hand_is_good_but_for_what_is_changed() -> None:
    crl = etcdcrl.read_crl(crl_by_hand(entries=(crl_entry(3),)), [ROOT.certificate])
    assert crl.revoked == (_revoked(3, Reason.UNSPECIFIED),)


def test_a_root_of_another_kind_signs_no_crl() -> None:
    private = ec.generate_private_key(ec.SECP384R1())
    certificate = make.rebuilt(
        ROOT.certificate, make.Changes(public=private.public_key()), signer=private
    )
    with pytest.raises(PkiRejected) as caught:
        etcdcrl.read_crl(crl_by_hand(signer=private), [certificate])
    assert caught.value.check == "crl-signer"


GOOD = _crl(_revoked(1), _revoked(2, Reason.UNSPECIFIED))


@given(st.integers(0, len(GOOD) - 1), st.integers(1, 255))
@settings(max_examples=400)
def test_no_changed_byte_of_a_crl_goes_unnoticed(position: int, difference: int) -> None:
    changed = bytearray(GOOD)
    changed[position] ^= difference
    with pytest.raises(PkiRejected):
        etcdcrl.read_crl(bytes(changed), [ROOT.certificate])


def test_unused_bits_in_a_signature_are_no_second_spelling() -> None:
    """Half of all signatures end in a bit that may be called unused without another change."""
    while (raw := _crl(_revoked(1)))[-1] & 1:
        pass
    signature = x509.load_der_x509_crl(raw).signature
    changed = bytearray(raw)
    changed[len(raw) - len(signature) - 1] = 1
    with pytest.raises(PkiRejected, match="crl-form"):
        etcdcrl.read_crl(bytes(changed), [ROOT.certificate])


@given(st.binary(max_size=500))
@settings(max_examples=200)
def test_other_bytes_are_no_crl(raw: bytes) -> None:
    with pytest.raises(PkiRejected):
        etcdcrl.read_crl(raw, [ROOT.certificate])


def test_ten_thousand_entries_fit() -> None:
    entries = [
        _revoked(int.from_bytes(make.bytes_of(f"{number}", 20), "big") >> 1)
        for number in range(10_000)
    ]
    raw = _crl(*entries)
    assert len(raw) < etcdcrl.MAX_CRL_BYTES
    assert len(etcdcrl.read_crl(raw, [ROOT.certificate]).revoked) == 10_000
