"""Dataclasses to JSON and back, by their annotations; bounded, and strict where strangers write.

Rules:
(C1) Sizes are checked before anything is parsed; duplicate keys, NaN and deep nesting are refused.
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
import re
import types
import typing
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from ipaddress import IPv4Address, IPv6Address, IPv6Network
from typing import Any, TypeVar, Union

from keel.errors import BadValue
from keel.types import Endpoint

T = TypeVar("T")

MAX_DEPTH = 24
"""Deeper than any document of keel's; json's own recursion limit is far higher."""

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
            raw.decode("utf-8"), object_pairs_hook=_no_duplicates, parse_constant=_no_constant
        )
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise BadValue("", "not JSON") from error
    except ValueError as error:  # json refuses integers of more than 4300 digits this way
        raise BadValue("", "not JSON") from error
    _check_depth(value)
    return value


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
        case IPv4Address() | IPv6Address() | IPv6Network():
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
    result: T = _build(cls, value, path, strict)
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


def _dataclass_to_json(value: object) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for field in dataclasses.fields(value):  # type: ignore[arg-type]  # checked by the caller
        item = getattr(value, field.name)
        if field.name == "extra":
            out.update({str(key): inner for key, inner in item.items()})
        elif item is not None:
            out[field.name] = to_json(item)
    return out


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BadValue("", "a key stands twice in one object")
    return found


def _no_constant(name: str) -> object:
    raise BadValue("", f"{name} is not a value")


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


def _build(cls: Any, value: object, path: str, strict: bool) -> Any:
    if isinstance(cls, typing.NewType):
        return _build(cls.__supertype__, value, path, strict)
    origin = typing.get_origin(cls)
    if origin in (Union, types.UnionType):
        return _build_union(cls, value, path, strict)
    if origin is tuple:
        return _build_tuple(cls, value, path, strict)
    if origin is frozenset:
        (item_type,) = typing.get_args(cls)
        items = _expect(list, value, path)
        return frozenset(
            _build(item_type, item, f"{path}[{n}]", strict) for n, item in enumerate(items)
        )
    if origin in (dict, Mapping):
        _, item_type = typing.get_args(cls)
        found = _expect(dict, value, path)
        return {
            key: _build(item_type, item, _join(path, key), strict) for key, item in found.items()
        }
    if cls is object:
        return value
    if cls is not Endpoint and dataclasses.is_dataclass(cls):
        return _build_dataclass(cls, value, path, strict)
    return _build_scalar(cls, value, path)


def _build_union(cls: Any, value: object, path: str, strict: bool) -> Any:
    options = [option for option in typing.get_args(cls) if option is not type(None)]
    if value is None:
        if len(options) == len(typing.get_args(cls)):
            raise BadValue(path, "must not be null")
        return None
    if len(options) != 1:
        raise TypeError(f"the codec knows Optional only, not {cls}")
    return _build(options[0], value, path, strict)


def _build_tuple(cls: Any, value: object, path: str, strict: bool) -> Any:
    args = typing.get_args(cls)
    items = _expect(list, value, path)
    if len(args) == 2 and args[1] is Ellipsis:
        return tuple(_build(args[0], item, f"{path}[{n}]", strict) for n, item in enumerate(items))
    if len(items) != len(args):
        raise BadValue(path, f"expected {len(args)} items")
    return tuple(
        _build(kind, item, f"{path}[{n}]", strict)
        for n, (kind, item) in enumerate(zip(args, items, strict=True))
    )


def _build_dataclass(cls: Any, value: object, path: str, strict: bool) -> Any:
    found = _expect(dict, value, path)
    hints = _hints(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}
    unknown = {key: item for key, item in found.items() if key not in fields or key == "extra"}
    if unknown and (strict or "extra" not in fields):
        raise BadValue(_join(path, min(unknown)), "unknown field")
    known: dict[str, Any] = {}
    for name, field in fields.items():
        if name == "extra":
            known[name] = unknown
        elif name in found:
            known[name] = _build(hints[name], found[name], _join(path, name), strict)
        elif _is_optional(hints[name]):
            known[name] = None
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise BadValue(_join(path, name), "missing")
    try:
        return cls(**known)
    except ValueError as error:  # a record's own __post_init__
        raise BadValue(path, str(error)) from error


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
    """A class's evaluated annotations; evaluating them took half of the time of a parse."""
    return typing.get_type_hints(cls)


def _is_optional(hint: Any) -> bool:
    return type(None) in typing.get_args(hint)


def _build_scalar(cls: Any, value: object, path: str) -> Any:
    if cls in (str, bool):
        return _expect(cls, value, path)
    if cls is int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise BadValue(path, "expected an integer")
        return value
    if cls is float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BadValue(path, "expected a number")
        return float(value)
    text = _expect(str, value, path)
    try:
        return _from_text(cls, text)
    except (ValueError, binascii.Error) as error:
        raise BadValue(path, str(error)) from error


def _from_text(cls: Any, text: str) -> Any:
    if cls is bytes:
        raw = base64.b64decode(text, validate=True)
        if base64.b64encode(raw).decode() != text:
            raise ValueError("not canonical base64")
        return raw
    if cls is datetime:
        return parse_time(text)
    if cls is Endpoint:
        return Endpoint.parse(text)
    if cls in (IPv4Address, IPv6Address, IPv6Network) or issubclass(cls, Enum):
        made = cls(text)
        if isinstance(made, IPv4Address | IPv6Address) and made.compressed != text:
            raise ValueError("an address is written in its compressed form")
        return made
    raise TypeError(f"no JSON form for {cls}")


def _expect(cls: type[T], value: object, path: str) -> T:
    if not isinstance(value, cls):
        names = {"str": "a string", "dict": "an object", "list": "a list", "bool": "true or false"}
        raise BadValue(path, f"expected {names[cls.__name__]}")
    return value


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
