"""Finds secrets in whatever was written: raw, as hex, as base64 at any alignment, as Python shows
bytes.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

SPACE = re.compile(rb"\\n|\s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A secret that stands somewhere."""

    secret: str
    form: str
    where: str

    def __str__(self) -> str:
        return f"{self.secret} as {self.form} in {self.where}"


def forms(secret: bytes) -> dict[str, tuple[bytes, ...]]:
    """How the bytes may have been written."""
    shown = repr(secret)[2:-1].encode()
    return {
        "raw bytes": (secret,),
        "hex": (secret.hex().encode(), secret.hex().upper().encode()),
        "base64": tuple(dict.fromkeys(_base64(secret))),
        "a repr": (shown,),
    }


def search(secrets: Mapping[str, bytes], places: Iterable[tuple[str, bytes]]) -> Iterator[Found]:
    """Every secret in every place, once a form. White space is looked through: PEM has lines."""
    wanted = [
        (what, form, pattern)
        for what, secret in secrets.items()
        for form, patterns in forms(secret).items()
        for pattern in patterns
    ]
    for where, data in places:
        texts = (data, SPACE.sub(b"", data))
        hits = {
            (what, form) for what, form, pattern in wanted if any(pattern in text for text in texts)
        }
        for what, form in sorted(hits):
            yield Found(secret=what, form=form, where=where)


def files_below(directory: Path) -> Iterator[tuple[str, bytes]]:
    """Every regular file with its content; of preallocated ones what was written."""
    for path in sorted(directory.rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield str(path.relative_to(directory)), path.read_bytes().rstrip(b"\0")


def _base64(secret: bytes) -> Iterator[bytes]:
    """The characters that the bytes alone decide, wherever in a longer text they begin."""
    for shift in range(3):
        padded = b"\0" * shift + secret
        padded += b"\0" * (-len(padded) % 3)
        first, last = -(-shift * 8 // 6), (shift + len(secret)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(padded)[first:last]
