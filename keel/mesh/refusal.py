"""How one node tells another no: the verdict of a numbered check, and its two forms on the wire.

A Rejection is made by the pure checks of the channel and of `/v1/join`. Once the asker is proven
(its MAC or signature verified) the rejection goes back as a Refusal inside a signed answer; before
that everybody hears the same plain bytes, which reveal neither the check nor the state behind it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from keel import codec
from keel.errors import BadValue, KeelError, Refused

MAX_PLAIN_BYTES = 4096
_RULE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_MAX_TEXT = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A proven no, as it travels. Its text is shown to a person, so only printable ASCII."""

    rule: str
    text: str
    remedy: str
    details: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        texts = (self.rule, self.text, self.remedy, *self.details.keys(), *self.details.values())
        if not all(len(text) <= _MAX_TEXT and text.isascii() for text in texts):
            raise ValueError("a refusal is short ASCII text")
        if not all(text.isprintable() for text in texts):
            raise ValueError("a refusal is printable")
        if not _RULE.fullmatch(self.rule) or len(self.details) > 8:
            raise ValueError("a refusal has a rule in kebab case and few details")

    def as_error(self) -> Refused:
        """What the asker raises: the same rule, text and remedy."""
        return Refused(self.rule, self.text, self.remedy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """One check said no and nothing was changed. `rule` is stable; `proven` says whether the asker
    was authenticated by then; `status` is the HTTP status of the plain form."""

    rule: str
    text: str
    remedy: str
    proven: bool
    status: int = 403
    details: Mapping[str, str] = field(default_factory=dict)

    def refusal(self) -> Refusal:
        """The form for a signed answer."""
        return _refusal(self.rule, self.text, self.remedy, self.details)

    def as_error(self) -> Refused:
        return Refused(self.rule, self.text, self.remedy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """An answer that nothing proves: a code and a sentence, for logs and for `no answer`."""

    code: str
    summary: str


def refusal_of(error: KeelError) -> Refusal:
    """The form for a signed answer of an error that a handler came to."""
    rule = error.rule if isinstance(error, Refused) else error.code
    if not is_private(error):
        return _refusal(rule, error.summary(), error.remedy(), {})
    return _refusal(rule, for_others(error), error.for_others_remedy or _OWN_REMEDY, {})


def is_private(error: KeelError) -> bool:
    """Whether its text is this node's own business: paths, other programs' words. Then it
    belongs into the own journal, and others learn of what kind it is."""
    return error.for_others is not None


def for_others(error: KeelError) -> str:
    """What another node is told of it."""
    return error.for_others or error.summary()


def plain(code: str, summary: str) -> bytes:
    return codec.dumps(Plain(code=code, summary=summary))


def parse_plain(raw: bytes) -> Plain | None:
    """None when it is not a plain answer; what it says is not to be trusted."""
    try:
        found = codec.loads(Plain, raw, max_bytes=MAX_PLAIN_BYTES)
    except BadValue:
        return None
    text = found.code + found.summary
    return found if text.isascii() and text.isprintable() and len(text) <= _MAX_TEXT else None


UNPROVEN_ANSWER = plain("refused", "the request was refused")
"""What `/v1/join` says to everybody who is not proven, whichever check failed."""


def both_clocks(*, ours: datetime, theirs: datetime) -> Mapping[str, str]:
    """The details of a refusal over clocks: the refuser's own, and the asker's as it came."""
    return {
        "our_clock": codec.format_time(ours.replace(microsecond=0)),
        "your_clock": codec.format_time(theirs.replace(microsecond=0)),
    }


_OWN_REMEDY = "`keel mesh status` and `journalctl -u keel-channel` on that member say more"


def _refusal(rule: str, text: str, remedy: str, details: Mapping[str, str]) -> Refusal:
    cleaned = {_printable(key): _printable(value) for key, value in details.items()}
    return Refusal(rule=rule, text=_printable(text), remedy=_printable(remedy), details=cleaned)


def _printable(text: str) -> str:
    """Short printable ASCII; what else stood in it (a name that came from outside) shows as ?."""
    cut = text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 3] + "..."
    return "".join(char if char.isascii() and char.isprintable() else "?" for char in cut)
