"""YAML text to Spec and back: strict, bounded, and with the operator's comments kept.

Rules:
(S1) At most 64 KiB of UTF-8, one YAML 1.2 document, no aliases, no tags, no depth, no duplicate or
     unknown keys.
(S2) Every fault is a SpecError with the dotted path of the bad value; the first one is reported.
(S3) `set_etcd_overlay` changes the bytes of one value; comments, order and white space stay.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import CollectionEndEvent, CollectionStartEvent
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode

from keel.errors import SpecError
from keel.spec import model
from keel.spec.model import (
    DEFAULT_INTERFACE,
    DEFAULT_KEEPALIVE,
    DEFAULT_PORT,
    MAX_ENDPOINTS,
    MAX_MTU,
    MIN_MTU,
    AlertChannel,
    CommandChannel,
    Installation,
    MailChannel,
    Monitor,
    Network,
    Overlay,
    Overlays,
    Spec,
    TcpBound,
    WebhookChannel,
    WireGuardSpec,
)
from keel.types import Endpoint, Mode, NodeName, parse_name

MAX_SPEC_BYTES = 64 * 1024
"""Far above any spec that a person writes; checked before the text is parsed."""
MAX_DEPTH = 8
"""The spec itself has five levels."""
_INTERFACE = re.compile(r"keel[a-zA-Z0-9]{0,11}")  # IFNAMSIZ leaves 15 characters
MAX_KEEPALIVE = 25
"""A member is suspect at 25 s without a packet."""

E = TypeVar("E", bound=StrEnum)
T = TypeVar("T")


def parse_spec(raw: bytes, *, file: Path | None = None) -> Spec:
    """The spec in these bytes; SpecError with the dotted path of the first fault (S1, S2)."""
    try:
        return _spec(_load(raw))
    except SpecError as error:
        raise SpecError(error.where, error.problem, file=file) from error.__cause__


def render_spec(spec: Spec) -> str:
    """The spec with every default filled in, as YAML that parses to the same spec."""
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # untyped knob
    out = io.StringIO()
    yaml.dump(as_document(spec), out)
    return out.getvalue()


def as_document(spec: Spec) -> dict[str, Any]:
    """Plain values of the spec in the file's own shape; also what `--json` shows."""
    wireguard = spec.network.wireguard
    return {
        "installation": {"mode": spec.installation.mode.value},
        "node": {"name": spec.node.name} if spec.node.name else {},
        "network": {
            "wireguard": {
                "interface": wireguard.interface,
                "port": wireguard.port,
                "mtu": wireguard.mtu,
                "endpoints": [str(endpoint) for endpoint in wireguard.endpoints],
                "keepalive": wireguard.keepalive,
            },
            "tcp_bound": spec.network.tcp_bound.value,
        },
        "overlays": {"etcd": spec.overlays.etcd.value},
        "monitor": {"channels": [_channel_document(item) for item in spec.monitor.channels]},
    }


def set_etcd_overlay(raw: bytes, state: Overlay) -> bytes:
    """The same file with overlays.etcd set; unchanged bytes when it says so already (S3)."""
    if parse_spec(raw).overlays.etcd is state:
        return raw
    text = raw.decode()
    changed = _spliced(text, YAML(pure=True).compose(text), state.value).encode()
    try:
        if parse_spec(changed).overlays.etcd is state:
            return changed
    except SpecError as error:
        raise _by_hand(state) from error
    raise _by_hand(state)


def _by_hand(state: Overlay) -> SpecError:
    return SpecError("overlays.etcd", f"set it to {state.value} by hand; this file's form is odd")


def _spliced(text: str, root: Node | None, value: str) -> str:
    """The text with one value replaced, or with one line or pair more (S3)."""
    overlays_key, overlays = _pair(root, "overlays")
    etcd_key, etcd = _pair(overlays, "etcd")
    if etcd_key and etcd:
        return _replaced(text, etcd_key, etcd, value)
    if overlays_key and isinstance(overlays, ScalarNode):  # `overlays:` with nothing behind it
        return _replaced(text, overlays_key, overlays, f"{{etcd: {value}}}")
    if isinstance(overlays, MappingNode):
        return _with_pair(text, overlays, f"etcd: {value}")
    if isinstance(root, MappingNode) and root.flow_style:
        return _with_pair(text, root, f"overlays: {{etcd: {value}}}")
    newline = "" if not text or text.endswith("\n") else "\n"
    return f"{text}{newline}overlays: {{etcd: {value}}}\n"


def _replaced(text: str, key: Node, value: Node, new: str) -> str:
    start, end = value.start_mark.index, value.end_mark.index
    if start == end:  # an empty value; its mark may stand behind a comment
        start = end = text.index(":", key.end_mark.index) + 1
        new = f" {new}"
    return text[:start] + new + text[end:]


def _with_pair(text: str, mapping: MappingNode, pair: str) -> str:
    """A flow mapping gets its pair in front; a block mapping a line of its own, likewise."""
    if mapping.flow_style:
        at = mapping.start_mark.index + 1
        return text[:at] + pair + (", " if mapping.value else "") + text[at:]
    first = mapping.value[0][0].start_mark
    return text[: first.index] + f"{pair}\n{' ' * first.column}" + text[first.index :]


def _pair(node: Node | None, key: str) -> tuple[Node | None, Node | None]:
    if isinstance(node, MappingNode):
        for name, value in node.value:
            if name.value == key:
                return name, value
    return None, None


def _load(raw: bytes) -> object:
    if len(raw) > MAX_SPEC_BYTES:
        raise SpecError("", f"{len(raw)} bytes are more than the {MAX_SPEC_BYTES} allowed")
    try:
        text = raw.decode("utf-8")
        _check_form(text)
        return YAML(typ="safe", pure=True).load(text)
    except UnicodeDecodeError as error:
        raise SpecError("", "not UTF-8") from error
    except YAMLError as error:
        raise SpecError("", f"not YAML: {_first_line(error)}") from error
    except ValueError as error:  # ruamel, of what looks like a date, a number or a character
        raise SpecError("", f"not YAML: {ascii(str(error))[1:-1]}") from error


def _check_form(text: str) -> None:
    """No aliases, tags and deep nesting (S1); stops at the first, for ruamel slows with depth."""
    depth = 0
    for event in YAML(typ="safe", pure=True).parse(text):
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise SpecError("", "nested too deeply")
        if getattr(event, "anchor", None):
            raise SpecError("", "anchors and aliases are not allowed")
        if getattr(event, "tag", None):
            raise SpecError("", "tags are not allowed")


def _first_line(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "cannot be read"
    return f"line {mark.line + 1}: {problem}" if mark else str(problem)


class _Section:
    """One mapping of the spec; hands its values out by key and refuses what is left over."""

    def __init__(self, value: object, path: str, keys: tuple[str, ...]) -> None:
        if value is None:
            value = {}
        if not isinstance(value, Mapping):
            raise SpecError(path, "expected a mapping")
        self._path = path
        self._value = value
        for key in value:
            if key not in keys:
                raise SpecError(_join(path, str(key)), f"unknown key; known are {', '.join(keys)}")

    def section(self, key: str, keys: tuple[str, ...]) -> _Section:
        return _Section(self._value.get(key), _join(self._path, key), keys)

    def take(self, key: str, read: Callable[[object, str], T], default: T) -> T:
        value = self._value.get(key)
        return default if value is None else read(value, _join(self._path, key))

    def need(self, key: str, read: Callable[[object, str], T]) -> T:
        if self._value.get(key) is None:
            raise SpecError(_join(self._path, key), "missing")
        return read(self._value[key], _join(self._path, key))


def _spec(value: object) -> Spec:
    top = _Section(value, "", ("installation", "node", "network", "overlays", "monitor"))
    network = top.section("network", ("wireguard", "tcp_bound"))
    return Spec(
        installation=_installation(top.section("installation", ("mode",))),
        node=model.Node(name=top.section("node", ("name",)).take("name", _name, None)),
        network=Network(
            wireguard=_wireguard(
                network.section("wireguard", ("interface", "port", "mtu", "endpoints", "keepalive"))
            ),
            tcp_bound=network.take("tcp_bound", _choice(TcpBound), TcpBound.AUTO),
        ),
        overlays=Overlays(
            etcd=top.section("overlays", ("etcd",)).take("etcd", _choice(Overlay), Overlay.DISABLED)
        ),
        monitor=Monitor(
            channels=top.section("monitor", ("channels",)).take("channels", _list_of(_channel), ())
        ),
    )


def _installation(section: _Section) -> Installation:
    mode = section.take("mode", _choice(Mode), None)
    return Installation() if mode is None else Installation(mode=mode, stated=True)


def _wireguard(section: _Section) -> WireGuardSpec:
    return WireGuardSpec(
        interface=section.take("interface", _interface, DEFAULT_INTERFACE),
        port=section.take("port", _number(1, 65535), DEFAULT_PORT),
        mtu=section.take("mtu", _number(MIN_MTU, MAX_MTU), MIN_MTU),
        endpoints=section.take("endpoints", _endpoints, ()),
        keepalive=section.take("keepalive", _number(1, MAX_KEEPALIVE), DEFAULT_KEEPALIVE),
    )


def _text(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise SpecError(path, "expected a text; put it in quotes")
    return value


def _name(value: object, path: str) -> NodeName | None:
    try:
        return parse_name(_text(value, path))
    except ValueError as error:
        raise SpecError(path, str(error)) from error


def _interface(value: object, path: str) -> str:
    name = _text(value, path)
    if not _INTERFACE.fullmatch(name):
        raise SpecError(path, "an interface of keel's is keel and up to 11 letters or digits")
    return name


def _number(low: int, high: int) -> Callable[[object, str], int]:
    def read(value: object, path: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise SpecError(path, f"expected a number from {low} to {high}")
        return value

    return read


def _choice(kind: type[E]) -> Callable[[object, str], E]:
    def read(value: object, path: str) -> E:
        if not isinstance(value, str) or value not in list(kind):
            raise SpecError(path, f"expected one of {', '.join(kind)}")
        return kind(value)

    return read


def _list_of(item: Callable[[object, str], T]) -> Callable[[object, str], tuple[T, ...]]:
    def read(value: object, path: str) -> tuple[T, ...]:
        if not isinstance(value, list):
            raise SpecError(path, "expected a list")
        return tuple(item(entry, f"{path}[{number}]") for number, entry in enumerate(value))

    return read


def _endpoint(value: object, path: str) -> Endpoint:
    try:
        endpoint = Endpoint.parse(_text(value, path))
    except ValueError as error:
        raise SpecError(path, str(error)) from error
    if endpoint.is_special():
        raise SpecError(path, "other nodes cannot reach that address")
    return endpoint


def _endpoints(value: object, path: str) -> tuple[Endpoint, ...]:
    found = _list_of(_endpoint)(value, path)
    if len(found) > MAX_ENDPOINTS:
        raise SpecError(path, f"at most {MAX_ENDPOINTS}")
    if len(set(found)) != len(found):
        raise SpecError(path, "the same endpoint stands twice")
    return found


def _channel(value: object, path: str) -> AlertChannel:
    keys = {"webhook": "url", "mail": "to", "command": "argv"}
    kind = value.get("type") if isinstance(value, Mapping) else None
    if not isinstance(kind, str) or kind not in keys:
        raise SpecError(_join(path, "type"), f"expected one of {', '.join(keys)}")
    section = _Section(value, path, ("type", keys[kind]))
    if kind == "webhook":
        return WebhookChannel(url=section.need("url", _url))
    if kind == "mail":
        return MailChannel(to=section.need("to", _mail_address))
    argv = section.need("argv", _list_of(_text))
    if not argv or not argv[0].startswith("/"):
        raise SpecError(_join(path, "argv"), "begins with the absolute path of a program")
    return CommandChannel(argv=argv)


def _url(value: object, path: str) -> str:
    text = _text(value, path)
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise SpecError(path, "not a URL") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SpecError(path, "expected an http or https URL")
    return text


def _mail_address(value: object, path: str) -> str:
    text = _text(value, path)
    local, at, domain = text.rpartition("@")
    if (
        not (local and at and domain)
        or text.startswith("-")
        or not text.isprintable()
        or " " in text
    ):
        raise SpecError(path, "expected a mail address")
    return text


def _channel_document(channel: AlertChannel) -> dict[str, Any]:
    match channel:
        case WebhookChannel():
            return {"type": "webhook", "url": channel.url}
        case MailChannel():
            return {"type": "mail", "to": channel.to}
        case CommandChannel():
            return {"type": "command", "argv": list(channel.argv)}


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
