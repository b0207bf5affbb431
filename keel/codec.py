"""Dataclasses to JSON and back, by their annotations; bounded, and strict where strangers write.

Rules:
(C1) Sizes are checked before anything is parsed; duplicate keys, deep nesting, NaN and numbers that
     no machine word holds are refused.
(C2) Strict (messages, records): an unknown field is refused. Lenient (keel's own state files): it
     is kept in the record's field `extra: Mapping[str, object]` and written back unchanged.
(C3) Bytes travel as standard base64, times as RFC 3339 in UTC with a Z, addresses compressed.
     Optional fields that are None are left out, and `extra` is spread.
(C4) `dumps` is deterministic (sorted keys, no white space), so equal values give equal bytes.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import functools
import json
import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import Enum
from ipaddress import IPv4Address, IPv6Address, IPv6Network
from pathlib import Path
from typing import Any, TypeVar, Union

from keel.errors import BadValue, StateCorrupt
from keel.types import Endpoint

T = TypeVar("T")

MAX_DEPTH = 24
"""Deeper than any document of keel's; json's own recursion limit is far higher."""

MAX_STATE_BYTES = 1 << 20
"""Of a state file; the largest, the queue and the trust store, have some kilobytes."""

MAX_INTEGER = 2**64
"""etcd's numbers have 64 bits; what is larger overflows in whatever is reckoned with it."""

STATES = 128
"""State files whose record is remembered by their exact bytes: a pass reads each of its twenty
files ten times and more."""
REMEMBERED_BYTES = 8 << 10
"""Of a state file that is remembered; larger ones are parsed anew."""

ADDRESSES = 1024
"""How many addresses are remembered with their text: some for each member of the largest mesh."""

_Reader = Callable[[object, str, bool], Any]

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z")


def dumps(value: object) -> bytes:
    """The deterministic JSON of a dataclass (C3, C4)."""
    return json.dumps(
        to_json(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    ).encode()


def loads(cls: type[T], raw: bytes, *, max_bytes: int, strict: bool = True) -> T:
    """Parse bytes into `cls`; BadValue names the path of what is wrong (C1, C2)."""
    return from_json(cls, parse(raw, max_bytes=max_bytes), strict=strict)


def parse(raw: bytes, *, max_bytes: int) -> object:
    """Bounded plain JSON: BadValue for what is too large, too deep, duplicated or not JSON (C1)."""
    if len(raw) > max_bytes:
        raise BadValue("", f"{len(raw)} bytes are more than the {max_bytes} allowed here")
    try:
        value: object = json.loads(
            raw.decode("utf-8"),
            object_pairs_hook=_no_duplicates,
            parse_constant=_no_constant,
            parse_float=_number,
            parse_int=_integer,
        )
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise BadValue("", "not JSON") from error
    except ValueError as error:  # json refuses integers of more than 4300 digits this way
        raise BadValue("", "not JSON") from error
    _check_depth(value)
    return value


def read_state(cls: type[T], path: Path, raw: bytes | None) -> T | None:
    """A state file's record; None when there is no file; StateCorrupt when it does not parse."""
    if raw is None:
        return None
    try:
        return again(cls, raw, max_bytes=MAX_STATE_BYTES)
    except BadValue as error:
        raise StateCorrupt(path, error.summary()) from error


def again(cls: type[T], raw: bytes, *, max_bytes: int, strict: bool = False) -> T:
    """As `loads`, for what is read again and again and holds no secret: the record is remembered
    by its exact bytes."""
    if len(raw) > min(max_bytes, REMEMBERED_BYTES):
        return loads(cls, raw, max_bytes=max_bytes, strict=strict)
    kind: Any = cls
    found: T = _remembered(kind, raw, strict)
    return found


@functools.lru_cache(maxsize=STATES)
def _remembered(cls: Any, raw: bytes, strict: bool) -> Any:
    """Records are frozen, so that one may serve all who ask."""
    return loads(cls, raw, max_bytes=REMEMBERED_BYTES, strict=strict)


def to_json(value: object) -> Any:
    """Plain JSON values of a dataclass tree (C3)."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type | Endpoint):
        return _dataclass_to_json(value)
    match value:
        case Enum():
            return value.value
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return base64.b64encode(value).decode()
        case datetime():
            return format_time(value)
        case IPv4Address() | IPv6Address():
            return _address_text(value)
        case IPv6Network():
            return value.compressed
        case Endpoint():
            return str(value)
        case Mapping():
            return {str(key): to_json(item) for key, item in value.items()}
        case tuple() | list():
            return [to_json(item) for item in value]
        case frozenset() | set():
            return sorted(to_json(item) for item in value)
        case _:
            raise TypeError(f"no JSON form for {type(value).__name__}")


def from_json(cls: type[T], value: object, *, path: str = "", strict: bool = True) -> T:
    """Build `cls` from plain JSON values; BadValue with the path of the first bad one."""
    kind: Any = cls
    result: T = _reader(kind)(value, path, strict)
    return result


def format_time(when: datetime) -> str:
    """RFC 3339, UTC, with microseconds only where there are any."""
    if when.tzinfo is None:
        raise TypeError("a time without a zone")
    return when.astimezone(UTC).isoformat().replace("+00:00", "Z")


def parse_time(text: str) -> datetime:
    """The inverse of format_time; ValueError for every other spelling."""
    if not _TIME.fullmatch(text):
        raise ValueError("a time is YYYY-MM-DDTHH:MM:SSZ")
    return datetime.fromisoformat(text[:-1] + "+00:00")


def _dataclass_to_json(value: Any) -> dict[str, Any]:
    out: dict[str, Any] = {}
    cls: Any = type(value)
    for name in _field_names(cls):
        item = getattr(value, name)
        if name == "extra":
            out.update({str(key): inner for key, inner in item.items()})
        elif item is not None:
            out[name] = to_json(item)
    return out


@functools.cache
def _field_names(cls: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(cls))


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BadValue("", "a key stands twice in one object")
    return found


def _no_constant(name: str) -> object:
    raise BadValue("", f"{name} is not a value")


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise BadValue("", "a number is out of range")
    return value


def _integer(text: str) -> int:
    value = int(text)
    if abs(value) > MAX_INTEGER:
        raise BadValue("", "a number is out of range")
    return value


def _check_depth(value: object) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for item in level
            if isinstance(item, dict | list)
            for child in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return
    raise BadValue("", "nested too deeply")


@functools.cache
def _reader(cls: Any) -> _Reader:
    """What builds a `cls` from (plain value, its path, strict). Made once per type: looking at
    annotations took most of the time of a parse."""
    if isinstance(cls, typing.NewType):
        return _reader(cls.__supertype__)
    origin = typing.get_origin(cls)
    if origin in (Union, types.UnionType):
        return _optional_reader(cls)
    if origin is tuple:
        return _tuple_reader(cls)
    if origin is frozenset:
        return _frozenset_reader(cls)
    if origin in (dict, Mapping):
        return _mapping_reader(cls)
    if cls is object:
        return lambda value, _path, _strict: value
    if cls is not Endpoint and dataclasses.is_dataclass(cls):
        return _dataclass_reader(cls)
    return _scalar_reader(cls)


def _optional_reader(cls: Any) -> _Reader:
    options = [option for option in typing.get_args(cls) if option is not type(None)]
    if len(options) != 1:
        raise TypeError(f"the codec knows Optional only, not {cls}")
    read = _reader(options[0])
    return lambda value, path, strict: None if value is None else read(value, path, strict)


def _tuple_reader(cls: Any) -> _Reader:
    args = typing.get_args(cls)
    if len(args) == 2 and args[1] is Ellipsis:
        each = _items_reader(args[0])
        return lambda value, path, strict: tuple(each(value, path, strict))
    readers = [_reader(kind) for kind in args]

    def read(value: object, path: str, strict: bool) -> Any:
        items = _expect(list, value, path)
        if len(items) != len(readers):
            raise BadValue(path, f"expected {len(readers)} items")
        return tuple(
            one(item, f"{path}[{n}]", strict)
            for n, (one, item) in enumerate(zip(readers, items, strict=True))
        )

    return read


def _frozenset_reader(cls: Any) -> _Reader:
    each = _items_reader(*typing.get_args(cls))
    return lambda value, path, strict: frozenset(each(value, path, strict))


def _items_reader(cls: Any) -> _Reader:
    """Reads a list whose items are all of one type."""
    one = _reader(cls)

    def read(value: object, path: str, strict: bool) -> list[Any]:
        items = _expect(list, value, path)
        return [one(item, f"{path}[{n}]", strict) for n, item in enumerate(items)]

    return read


def _mapping_reader(cls: Any) -> _Reader:
    one = _reader(typing.get_args(cls)[1])

    def read(value: object, path: str, strict: bool) -> Any:
        found = _expect(dict, value, path)
        return {key: one(item, _join(path, key), strict) for key, item in found.items()}

    return read


def _dataclass_reader(cls: Any) -> _Reader:
    hints = typing.get_type_hints(cls)
    fields = {one.name: one for one in dataclasses.fields(cls)}
    keeps_extra = fields.pop("extra", None) is not None
    readers = {name: _reader(hints[name]) for name in fields}
    optional = {name for name in fields if type(None) in typing.get_args(hints[name])}
    needed = {
        name
        for name, one in fields.items()
        if one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
    }

    def read(value: object, path: str, strict: bool) -> Any:
        found = _expect(dict, value, path)
        unknown = {key: item for key, item in found.items() if key not in readers}
        if unknown and (strict or not keeps_extra):
            raise BadValue(_join(path, min(unknown)), "unknown field")
        known: dict[str, Any] = {"extra": unknown} if keeps_extra else {}
        for name, one in readers.items():
            if name in found:
                known[name] = one(found[name], _join(path, name), strict)
            elif name in optional:
                known[name] = None
            elif name in needed:
                raise BadValue(_join(path, name), "missing")
        try:
            return cls(**known)
        except ValueError as error:  # a record's own __post_init__
            raise BadValue(path, str(error)) from error

    return read


def _scalar_reader(cls: Any) -> _Reader:
    if cls in (str, bool):
        return lambda value, path, _strict: _expect(cls, value, path)
    if cls is int:
        return _read_integer
    if cls is float:
        return _read_number
    parse_text = _text_parser(cls)

    def read(value: object, path: str, _strict: bool) -> Any:
        text = _expect(str, value, path)
        try:
            return parse_text(text)
        except (ValueError, binascii.Error) as error:
            raise BadValue(path, str(error)) from error

    return read


def _read_integer(value: object, path: str, _strict: bool) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadValue(path, "expected an integer")
    return value


def _read_number(value: object, path: str, _strict: bool) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadValue(path, "expected a number")
    return float(value)


def _text_parser(cls: Any) -> Callable[[str], Any]:
    if cls is bytes:
        return _parse_base64
    if cls is datetime:
        return parse_time
    if cls is Endpoint:
        return Endpoint.parse
    if cls in (IPv4Address, IPv6Address):
        return functools.partial(_parse_address, cls)
    if cls is IPv6Network or issubclass(cls, Enum):
        parser: Callable[[str], Any] = cls
        return parser
    raise TypeError(f"no JSON form for {cls}")


def _parse_base64(text: str) -> bytes:
    raw = base64.b64decode(text, validate=True)
    if base64.b64encode(raw).decode() != text:
        raise ValueError("not canonical base64")
    return raw


@functools.lru_cache(maxsize=ADDRESSES)
def _parse_address(cls: Any, text: str) -> Any:
    made = cls(text)
    if made.compressed != text:
        raise ValueError("an address is written in its compressed form")
    return made


@functools.lru_cache(maxsize=ADDRESSES)
def _address_text(address: IPv4Address | IPv6Address) -> str:
    return address.compressed


def _expect(cls: type[T], value: object, path: str) -> T:
    if not isinstance(value, cls):
        names = {"str": "a string", "dict": "an object", "list": "a list", "bool": "true or false"}
        raise BadValue(path, f"expected {names[cls.__name__]}")
    return value


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
