"""The finder of secrets finds what it should, and nothing else."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from netns.secrets import files_below, search

SECRET = bytes(range(7, 39))
OTHER = bytes(range(100, 132))


def wrapped(text: bytes) -> bytes:
    return b"\n".join(text[at : at + 16] for at in range(0, len(text), 16))


@pytest.mark.parametrize(
    ("text", "form"),
    [
        (b"..." + SECRET + b"...", "raw bytes"),
        (SECRET.hex().encode(), "hex"),
        (SECRET.hex().upper().encode(), "hex"),
        (base64.b64encode(SECRET), "base64"),
        (base64.b64encode(b"x" + SECRET + b"y"), "base64"),
        (base64.b64encode(b"xx" + SECRET), "base64"),
        (base64.urlsafe_b64encode(b"xxxx" + SECRET + b"yy"), "base64"),
        (wrapped(base64.b64encode(b"xx" + SECRET)), "base64"),
        (wrapped(base64.b64encode(SECRET)).replace(b"\n", b"\\n"), "base64"),
        (f"token={SECRET!r}".encode(), "a repr"),
    ],
    ids=[
        "raw", "hex", "upper hex", "base64", "base64 at 1", "base64 at 2", "base64url at 4",
        "in lines", "in lines inside JSON", "repr",
    ],
)  # fmt: skip
def test_a_secret_is_found_in_each_form(text: bytes, form: str) -> None:
    found = {one.form for one in search({"it": SECRET, "other": OTHER}, [("here", text)])}
    assert form in found
    assert not list(search({"other": OTHER}, [("here", text)]))


def test_files_are_searched_wherever_they_stand(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/wal").write_bytes(b"put " + SECRET.hex().encode() + b"\0" * 4096)
    (tmp_path / "a/link").symlink_to("/etc/passwd")
    (hit,) = search({"it": SECRET}, files_below(tmp_path))
    assert str(hit) == "it as hex in a/b/wal"
