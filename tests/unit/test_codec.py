"""The codec's rules C1 to C4."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from ipaddress import IPv6Address
from pathlib import Path
from typing import NewType

import pytest

from keel import codec
from keel.errors import BadValue, StateCorrupt
from keel.types import Endpoint

Label = NewType("Label", str)


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    number: int
    raw: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    label: Label
    colour: Colour
    when: datetime
    address: IPv6Address
    endpoint: Endpoint
    inner: tuple[Inner, ...]
    maybe: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFile:
    number: int
    extra: Mapping[str, object] = field(default_factory=dict)


SAMPLE = Sample(
    label=Label("x"),
    colour=Colour.RED,
    when=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    address=IPv6Address("fd00::1"),
    endpoint=Endpoint.parse("[2001:db8::7]:51820"),
    inner=(Inner(number=1, raw=b"\x00\xff"),),
)


def test_what_is_written_reads_back_equal_and_the_bytes_are_stable() -> None:
    raw = codec.dumps(SAMPLE)
    assert codec.loads(Sample, raw, max_bytes=1000) == SAMPLE
    assert codec.dumps(codec.loads(Sample, raw, max_bytes=1000)) == raw
    assert b"maybe" not in raw


def _changed(**changes: object) -> bytes:
    import json

    value = codec.to_json(SAMPLE) | changes
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        pytest.param(_changed(surprise=1), "surprise", id="unknown field"),
        pytest.param(_changed(colour="blue"), "colour", id="not in the enumeration"),
        pytest.param(_changed(when="2026-01-02T03:04:05+00:00"), "when", id="time not in Z form"),
        pytest.param(_changed(address="fd00:0::1"), "address", id="address not compressed"),
        pytest.param(_changed(endpoint="host:1"), "endpoint", id="host name for an endpoint"),
        pytest.param(_changed(inner=[{"number": True, "raw": ""}]), "inner[0].number", id="bool"),
        pytest.param(_changed(inner=[{"number": 1, "raw": "AB"}]), "inner[0].raw", id="base64"),
        pytest.param(_changed(inner=[{"number": 1}]), "inner[0].raw", id="missing field"),
        pytest.param(_changed(label=None), "label", id="null for a string"),
        pytest.param(_changed(inner={}), "inner", id="object for a list"),
        pytest.param(b'{"label":"a","label":"b"}', "", id="duplicate key"),
        pytest.param(b'{"label":NaN}', "", id="not a number"),
        pytest.param(b"\xff", "", id="not UTF-8"),
        pytest.param(b"[" * 100_000, "", id="endless nesting"),
        pytest.param(b"[" * 30 + b"]" * 30, "", id="deep nesting"),
        pytest.param(b"9" * 5000, "", id="an integer of 5000 digits"),
        pytest.param(b'{"label":-18446744073709551617}', "", id="an integer of 65 bits"),
        pytest.param(b'{"label":1e999}', "", id="a number beyond all"),
        pytest.param(b"{}" + b" " * 200_000, "", id="too large"),
    ],
)
def test_bad_input_is_refused_with_the_path_of_the_bad_value(raw: bytes, path: str) -> None:
    with pytest.raises(BadValue) as caught:
        codec.loads(Sample, raw, max_bytes=150_000)
    assert caught.value.path == path


def test_unknown_fields_of_a_state_file_survive_a_rewrite() -> None:
    raw = b'{"later":{"a":[1]},"number":7}'
    state = codec.loads(StateFile, raw, max_bytes=100, strict=False)
    assert state == StateFile(number=7, extra={"later": {"a": [1]}})
    assert codec.dumps(state) == raw


def test_a_message_may_not_carry_extra_by_name() -> None:
    with pytest.raises(BadValue):
        codec.loads(StateFile, b'{"number":7,"extra":{}}', max_bytes=100)


def test_the_path_of_a_strangers_key_holds_nothing_that_steers_a_terminal() -> None:
    with pytest.raises(BadValue) as caught:
        codec.loads(Inner, b'{"\\u001b[2J": 1}', max_bytes=100)
    assert caught.value.path.isprintable()


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    number: int
    extra: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Another:
    number: int
    extra: Mapping[str, object] = field(default_factory=dict)


@pytest.mark.parametrize("padding", [0, codec.REMEMBERED_BYTES], ids=["remembered", "too large"])
def test_a_state_file_is_read_by_its_bytes_and_its_kind(padding: int) -> None:
    def raw(number: object) -> bytes:
        return b'{"number":%d,"pad":"%s"}' % (number, b"x" * padding)

    for _ in range(2):
        for kind in (Other, Another):
            for number in (1, 2):
                found = codec.read_state(kind, Path("state"), raw(number))
                assert (type(found), found and found.number) == (kind, number)
        with pytest.raises(StateCorrupt, match="state"):
            codec.read_state(Other, Path("state"), raw(1)[:-1])
    again = [codec.read_state(Other, Path("state"), raw(1)) for _ in range(2)]
    assert (again[0] is again[1]) == (padding == 0)


def test_what_is_read_again_strictly_is_told_from_what_is_not() -> None:
    raw = b'{"later":1,"number":1}'
    for _ in range(2):
        assert codec.again(Other, raw, max_bytes=99).extra == {"later": 1}
        with pytest.raises(BadValue, match="unknown field"):
            codec.again(Other, raw, max_bytes=99, strict=True)
    with pytest.raises(BadValue, match="more than"):
        codec.again(Other, raw, max_bytes=len(raw) - 1)
