"""What the channel's process may ask of the one that runs the passes: a word, and nothing besides.

The channel reads what strangers send, so it may do little (keel-channel.service); what needs more
is done by keel-passes.service, from what is on this node's disk. Owns the words and the forms of
their answers; nothing that came from another node is ever in them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from keel import codec
from keel.errors import BadValue, Refused
from keel.mesh.formmsg import ForeignEtcd
from keel.mesh.refusal import Refusal

MAX_ASK_BYTES = 16
MAX_ANSWER_BYTES = 4096
MAX_MARKER_BYTES = 2048
"""Ten times as much as it has; and an answer has room for it."""
_DONE, _REFUSED = b"+", b"-"


class Ask(StrEnum):
    """The first four get no answer."""

    READY = "ready"
    """Be loaded: a confirmation is likely to come soon."""
    TEND = "tend"
    SYNC = "sync"
    FAST = "fast"
    """Let the fast timer run."""
    GROUND = "ground"
    """Measure; the answer is a Ground."""
    MARKER = "marker"
    """What lies beside etcd's data; the answer is a Beside."""
    HALT = "halt"
    """Stop an etcd that never saw a leader, and let it not start again."""


ANSWERED = frozenset({Ask.GROUND, Ask.MARKER, Ask.HALT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What stands where this node's etcd would, and the disk below it."""

    foreign: ForeignEtcd
    free_bytes: int
    sync_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """The marker's bytes as they are on disk; None when there is none. Of one that is too large to
    be one only so much as shows that."""

    marker: bytes | None = None


def parse_ask(raw: bytes) -> Ask | None:
    """None when it is no word of these."""
    try:
        return Ask(raw.decode("ascii"))
    except ValueError:
        return None


def done(body: bytes) -> bytes:
    """An answer."""
    return _DONE + body


def refused(refusal: Refusal) -> bytes:
    """A no, with its reason."""
    return _REFUSED + codec.dumps(refusal)


def open_answer(raw: bytes) -> bytes:
    """What was answered; Refused when that was a no, or nothing; BadValue when it is neither."""
    if not raw:
        raise Refused(
            "channel-busy",
            "as much of this is being done here as is done at once",
            "wait a minute, then run the same command again",
        )
    if raw.startswith(_DONE):
        return raw.removeprefix(_DONE)
    if not raw.startswith(_REFUSED):
        raise BadValue("answer", "neither an answer nor a refusal")
    said = codec.loads(Refusal, raw.removeprefix(_REFUSED), max_bytes=MAX_ANSWER_BYTES)
    raise Refused(said.rule, said.text, said.remedy)
