"""What counts as a sign of life."""

from __future__ import annotations

from datetime import UTC, datetime

from keel.errors import BadSignature, PeerError
from keel.mesh import spread

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_signed_refusal_is_an_answer_and_silence_or_a_forged_word_is_none() -> None:
    assert spread.said_at(PeerError("b", "channel-stale", "old", said_at=NOW)) == NOW
    assert spread.said_at(PeerError("b", "timeout", "no answer")) is None
    assert spread.said_at(BadSignature("the answer")) is None
