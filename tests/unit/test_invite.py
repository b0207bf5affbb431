"""An invite's rules I1 to I5: every transition from every phase."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import timedelta

import pytest

from keel import codec
from keel.errors import BadValue, Internal, Refused
from keel.mesh.invite import (
    LIFE,
    MAX_BAD_MACS,
    InviteState,
    Phase,
    cancel_invite,
    claim_invite,
    claimed_members,
    confirm_invite,
    count_bad_mac,
    expire_invite,
    named,
    new_invite,
    note_etcd,
    open_at,
    parse_invite,
    to_forget,
)
from keel.mesh.joinmsg import EtcdPart
from keel.mesh.token import EtcdHint
from keel.types import InviteId
from tests.channelkit import (
    CLAIMED_ADDRESS,
    INVITE,
    JOINER,
    KEYS,
    MESH,
    NOW,
    OTHER,
    PREFIX,
    SECRET,
    claim,
    claimed,
    invite,
    keys_of,
    seed,
)

SOON = NOW + timedelta(minutes=5)
LATE = NOW + LIFE

UNUSED = invite()
CLAIMED = claimed()
SPENT = confirm_invite(CLAIMED, JOINER.public, SOON)
EXPIRED = expire_invite(UNUSED, LATE)
CANCELLED = cancel_invite(UNUSED, SOON)
FROZEN = dataclasses.replace(UNUSED, bad_macs=MAX_BAD_MACS)


def test_a_new_invite_is_unused_has_its_own_address_and_lives_a_day() -> None:
    assert UNUSED.phase is Phase.UNUSED
    assert UNUSED.expires - UNUSED.made == timedelta(hours=24)
    assert UNUSED.address == KEYS.address == keys_of(UNUSED).address


def test_no_repr_of_a_record_shows_the_secret() -> None:
    assert repr(SECRET.reveal()) not in repr(CLAIMED)
    assert "secret" not in repr(CLAIMED)


def test_the_record_survives_its_file_with_fields_of_a_later_version() -> None:
    raw = codec.dumps(dataclasses.replace(CLAIMED, extra={"later": [1]}))
    assert parse_invite(raw) == dataclasses.replace(CLAIMED, extra={"later": [1]})
    assert codec.dumps(parse_invite(raw)) == raw
    with pytest.raises(BadValue):
        parse_invite(b"{}")


def test_at_most_sixteen_invites_are_open_and_closed_ones_do_not_count() -> None:
    def one_more(others: list[InviteState]) -> InviteState:
        return new_invite(
            others, invite=INVITE, secret=seed("x"), mesh=MESH, prefix=PREFIX, now=SOON
        )

    some = [invite(number) for number in range(15)]
    assert one_more([*some, SPENT, EXPIRED, CANCELLED]).phase is Phase.UNUSED
    with pytest.raises(Refused) as caught:
        one_more([*some, CLAIMED])
    assert caught.value.rule == "invite-too-many"


@pytest.mark.parametrize(
    "life",
    [
        pytest.param(timedelta(0), id="none"),
        pytest.param(timedelta(hours=25), id="more than a day"),
    ],
)
def test_an_invites_life_is_bounded(life: timedelta) -> None:
    with pytest.raises(Refused) as caught:
        new_invite((), invite=INVITE, secret=SECRET, mesh=MESH, prefix=PREFIX, now=NOW, life=life)
    assert caught.value.rule == "invite-life"


def test_a_claim_is_kept_with_its_admission() -> None:
    assert CLAIMED.phase is Phase.CLAIMED
    assert CLAIMED.claim == claim()


@pytest.mark.parametrize(
    ("state", "now"),
    [
        pytest.param(CLAIMED, SOON, id="claimed"),
        pytest.param(SPENT, SOON, id="spent"),
        pytest.param(CANCELLED, SOON, id="cancelled"),
        pytest.param(EXPIRED, SOON, id="expired"),
        pytest.param(FROZEN, SOON, id="frozen"),
        pytest.param(UNUSED, LATE, id="at the moment of its expiry"),
    ],
)
def test_only_an_unused_invite_is_claimed(state: InviteState, now: object) -> None:
    with pytest.raises(Internal):
        claim_invite(state, claim(), now)  # type: ignore[arg-type]


MADE = tuple(
    dataclasses.replace(UNUSED, invite=InviteId(id.ljust(32, "0"))) for id in ("ab1", "ab2", "ab21")
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param("ab1", MADE[0], id="the start of one"),
        pytest.param("a b", None, id="no ID"),
        pytest.param(MADE[1].invite, MADE[1], id="a whole one"),
        pytest.param("ab21", MADE[2], id="as long as it takes"),
    ],
)
def test_an_invite_is_named_by_the_start_of_its_id(text: str, found: InviteState | None) -> None:
    if found is not None:
        assert named(MADE, text) == found
        return
    with pytest.raises(Refused) as caught:
        named(MADE, text)
    assert caught.value.rule == "invite-unknown"


def test_what_may_name_several_invites_names_none() -> None:
    with pytest.raises(Refused) as caught:
        named(MADE, "ab2")
    assert caught.value.rule == "invite-ambiguous"
    assert [one.invite in caught.value.summary() for one in MADE] == [False, True, True]


def test_nothing_typed_names_no_invite_where_only_one_was_made() -> None:
    with pytest.raises(Refused) as caught:
        named(MADE[:1], "")
    assert caught.value.rule == "invite-unknown"


def test_the_etcd_part_is_kept_beside_the_claim() -> None:
    part = EtcdPart(state=EtcdHint.FORMS, grant=b"grant")
    noted = note_etcd(CLAIMED, part)
    assert noted.claim is not None
    assert noted.claim.etcd == part
    with pytest.raises(Internal):
        note_etcd(UNUSED, part)


def test_the_claimants_hello_spends_the_invite_and_may_come_twice() -> None:
    assert (SPENT.phase, SPENT.closed) == (Phase.SPENT, SOON)
    assert confirm_invite(SPENT, JOINER.public, LATE) == SPENT


def test_a_frozen_claim_may_still_be_confirmed() -> None:
    frozen = dataclasses.replace(CLAIMED, bad_macs=MAX_BAD_MACS)
    assert confirm_invite(frozen, JOINER.public, SOON).phase is Phase.SPENT


@pytest.mark.parametrize(
    "attempt",
    [
        pytest.param(lambda: confirm_invite(UNUSED, JOINER.public, SOON), id="never claimed"),
        pytest.param(lambda: confirm_invite(CLAIMED, OTHER.public, SOON), id="another key"),
        pytest.param(lambda: confirm_invite(CLAIMED, JOINER.public, LATE), id="expired"),
        pytest.param(
            lambda: confirm_invite(cancel_invite(CLAIMED, SOON), JOINER.public, SOON),
            id="cancelled",
        ),
    ],
)
def test_nothing_else_confirms(attempt: Callable[[], InviteState]) -> None:
    with pytest.raises(Refused) as caught:
        attempt()
    assert caught.value.rule == "invite-not-claimed"


@pytest.mark.parametrize(
    ("state", "phase"),
    [
        pytest.param(UNUSED, Phase.EXPIRED, id="unused"),
        pytest.param(CLAIMED, Phase.EXPIRED, id="claimed"),
        pytest.param(SPENT, Phase.SPENT, id="spent"),
        pytest.param(CANCELLED, Phase.CANCELLED, id="cancelled"),
    ],
)
def test_what_is_open_expires_at_its_time_and_not_before(state: InviteState, phase: Phase) -> None:
    assert expire_invite(state, LATE - timedelta(seconds=1)) == state
    assert expire_invite(state, LATE).phase is phase
    assert expire_invite(expire_invite(state, LATE), LATE) == expire_invite(state, LATE)


def test_a_claimed_invite_is_cancelled_with_its_claim_kept() -> None:
    gone = cancel_invite(CLAIMED, SOON)
    assert (gone.phase, gone.closed, gone.claim) == (Phase.CANCELLED, SOON, CLAIMED.claim)


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(SPENT, id="spent"),
        pytest.param(EXPIRED, id="expired"),
        pytest.param(CANCELLED, id="cancelled"),
    ],
)
def test_a_closed_invite_is_not_cancelled(state: InviteState) -> None:
    with pytest.raises(Refused) as caught:
        cancel_invite(state, SOON)
    assert caught.value.rule == "invite-closed"


def test_ten_bad_macs_freeze_and_the_count_ends_there() -> None:
    state = UNUSED
    for count in range(1, 11):
        assert not state.frozen
        state = count_bad_mac(state)
        assert state.bad_macs == count
    assert state.frozen
    assert count_bad_mac(state) == state


@pytest.mark.parametrize(
    "state", [pytest.param(SPENT, id="spent"), pytest.param(CANCELLED, id="cancelled")]
)
def test_a_closed_invite_is_forgotten_after_a_day(state: InviteState) -> None:
    day = timedelta(hours=24)
    assert not to_forget(state, SOON + day - timedelta(seconds=1))
    assert to_forget(state, SOON + day)


def test_an_open_invite_is_never_forgotten() -> None:
    assert not to_forget(CLAIMED, LATE + timedelta(days=10))
    assert open_at(CLAIMED, SOON)


def test_members_to_be_are_the_unexpired_claims() -> None:
    states = [invite(1), claimed(2), SPENT, EXPIRED, CANCELLED]
    assert claimed_members(states, SOON) == {CLAIMED_ADDRESS: claim()}
    assert claimed_members(states, LATE) == {}
