from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from keel.errors import SpecError
from keel.spec.model import (
    SETTINGS,
    CommandChannel,
    MailChannel,
    Monitor,
    Overlay,
    Spec,
    TcpBound,
    WebhookChannel,
    capability,
)
from keel.spec.parse import MAX_SPEC_BYTES, as_document, parse_spec, render_spec, set_etcd_overlay
from keel.types import Capability, Endpoint, Mode

FULL = b"""\
installation: {mode: cloud_advanced}
node: {name: web-1}
network:
  wireguard:
    interface: keel1
    port: 51821
    mtu: 1400
    endpoints: ["203.0.113.7:51821", "[2001:db8::7]:51821"]
    keepalive: 15
  tcp_bound: off
overlays: {etcd: enabled}
monitor:
  channels:
    - {type: webhook, url: "https://alerts.example/keel"}
    - {type: mail, to: ops@example.org}
    - {type: command, argv: [/usr/bin/logger, -t, keel]}
"""


def test_an_empty_file_means_every_default() -> None:
    assert parse_spec(b"") == parse_spec(b"# nothing yet\n") == Spec()


def test_every_key_is_read() -> None:
    spec = parse_spec(FULL)
    wireguard = spec.network.wireguard
    assert spec.installation.mode is Mode.CLOUD_ADVANCED
    assert spec.node.name == "web-1"
    assert (wireguard.interface, wireguard.port, wireguard.mtu) == ("keel1", 51821, 1400)
    assert wireguard.endpoints == (
        Endpoint.parse("203.0.113.7:51821"),
        Endpoint.parse("[2001:db8::7]:51821"),
    )
    assert wireguard.keepalive == 15
    assert spec.network.tcp_bound is TcpBound.OFF
    assert spec.etcd_enabled
    assert spec.monitor == Monitor(
        channels=(
            WebhookChannel(url="https://alerts.example/keel"),
            MailChannel(to="ops@example.org"),
            CommandChannel(argv=("/usr/bin/logger", "-t", "keel")),
        )
    )


@pytest.mark.parametrize("raw", [b"", FULL], ids=["defaults", "full"])
def test_what_show_prints_parses_to_the_same_spec(raw: bytes) -> None:
    spec = parse_spec(raw)
    assert parse_spec(render_spec(spec).encode()) == spec


def _leaves(value: object, path: str = "") -> set[str]:
    if not isinstance(value, dict):
        return {path}
    return {
        leaf
        for key, item in value.items()
        for leaf in _leaves(item, f"{path}.{key}" if path else key)
    }


def test_the_table_of_settings_names_every_key_and_no_other() -> None:
    named = {setting.path for setting in SETTINGS}
    assert named == _leaves(as_document(parse_spec(FULL)))


REJECTED = {
    "unknown-top-key": (b"nodes: {}", "nodes"),
    "unknown-inner-key": (b"network: {wireguard: {mtus: 1280}}", "network.wireguard.mtus"),
    "not-a-mapping": (b"- 1", ""),
    "section-not-a-mapping": (b"node: web-1", "node"),
    "mode": (b"installation: {mode: moon}", "installation.mode"),
    "name-form": (b"node: {name: Web_1}", "node.name"),
    "name-not-text": (b"node: {name: 7}", "node.name"),
    "interface-foreign": (b"network: {wireguard: {interface: wg0}}", "network.wireguard.interface"),
    "interface-long": (
        b"network: {wireguard: {interface: keel012345678901}}",
        "network.wireguard.interface",
    ),
    "interface-path": (
        b"network: {wireguard: {interface: keel/../x}}",
        "network.wireguard.interface",
    ),
    "port-zero": (b"network: {wireguard: {port: 0}}", "network.wireguard.port"),
    "port-text": (b"network: {wireguard: {port: '51820'}}", "network.wireguard.port"),
    "port-bool": (b"network: {wireguard: {port: true}}", "network.wireguard.port"),
    "mtu-below-ipv6": (b"network: {wireguard: {mtu: 1279}}", "network.wireguard.mtu"),
    "mtu-above-path": (b"network: {wireguard: {mtu: 1421}}", "network.wireguard.mtu"),
    "keepalive": (b"network: {wireguard: {keepalive: 26}}", "network.wireguard.keepalive"),
    "endpoint-host-name": (
        b"network: {wireguard: {endpoints: ['web.example:1']}}",
        "network.wireguard.endpoints[0]",
    ),
    "endpoint-second": (
        b"network: {wireguard: {endpoints: ['192.0.2.1:1', '192.0.2.1']}}",
        "network.wireguard.endpoints[1]",
    ),
    "endpoint-loopback": (
        b"network: {wireguard: {endpoints: ['127.0.0.1:1']}}",
        "network.wireguard.endpoints[0]",
    ),
    "endpoint-unspecified": (
        b"network: {wireguard: {endpoints: ['[::]:1']}}",
        "network.wireguard.endpoints[0]",
    ),
    "endpoint-multicast": (
        b"network: {wireguard: {endpoints: ['224.0.0.1:1']}}",
        "network.wireguard.endpoints[0]",
    ),
    "endpoint-link-local": (
        b"network: {wireguard: {endpoints: ['[fe80::1]:1']}}",
        "network.wireguard.endpoints[0]",
    ),
    "endpoint-twice": (
        b"network: {wireguard: {endpoints: ['192.0.2.1:1', '192.0.2.1:1']}}",
        "network.wireguard.endpoints",
    ),
    "endpoints-many": (
        b"network: {wireguard: {endpoints: ["
        + b", ".join(b"'192.0.2.%d:1'" % n for n in range(1, 10))
        + b"]}}",
        "network.wireguard.endpoints",
    ),
    "endpoints-not-a-list": (
        b"network: {wireguard: {endpoints: '192.0.2.1:1'}}",
        "network.wireguard.endpoints",
    ),
    "tcp-bound": (b"network: {tcp_bound: on}", "network.tcp_bound"),
    "tcp-bound-yaml-1.1": (b"%YAML 1.1\n---\nnetwork: {tcp_bound: off}", "network.tcp_bound"),
    "overlay": (b"overlays: {etcd: maybe}", "overlays.etcd"),
    "channel-type": (b"monitor: {channels: [{type: pigeon}]}", "monitor.channels[0].type"),
    "channel-not-a-mapping": (b"monitor: {channels: [mail]}", "monitor.channels[0].type"),
    "channel-key-missing": (b"monitor: {channels: [{type: mail}]}", "monitor.channels[0].to"),
    "channel-other-key": (
        b"monitor: {channels: [{type: mail, to: a@b, url: x}]}",
        "monitor.channels[0].url",
    ),
    "webhook-scheme": (
        b"monitor: {channels: [{type: webhook, url: 'file:///etc/shadow'}]}",
        "monitor.channels[0].url",
    ),
    "webhook-url": (
        b"monitor: {channels: [{type: webhook, url: 'http://[x'}]}",
        "monitor.channels[0].url",
    ),
    "mail-option": (
        b"monitor: {channels: [{type: mail, to: '-f@x'}]}",
        "monitor.channels[0].to",
    ),
    "command-relative": (
        b"monitor: {channels: [{type: command, argv: [logger]}]}",
        "monitor.channels[0].argv",
    ),
    "too-large": (b"#" * (MAX_SPEC_BYTES + 1), ""),
    "not-utf-8": (b"\xff", ""),
    "not-yaml": (b"node: {", ""),
    "deep": (b"[" * 20000, ""),
    "duplicate-key": (b"node: {}\nnode: {}", ""),
    "two-documents": (b"--- {}\n--- {}\n", ""),
    "alias": (b"node: &a {}\noverlays: *a\n", ""),
    "python-tag": (b"node: !!python/object:os.system {}", ""),
    "tag-of-an-integer": (b"node: {name: !!int ''}", ""),
    "tag-of-a-boolean": (b"node: {name: !!bool maybe}", ""),
    "no-date": (b"node: {name: 2001-13-45}", ""),
    "no-hour": (b"node: {name: 2001-01-01T99:00:00Z}", ""),
    "no-character": (b'node: {name: "\\U00110000"}', ""),
    "endless-number": (b"network: {wireguard: {port: " + b"9" * 5000 + b"}}", ""),
}


@pytest.mark.parametrize(("raw", "where"), REJECTED.values(), ids=REJECTED)
def test_a_fault_is_refused_with_its_path(raw: bytes, where: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(raw, file=Path("/etc/keel/spec.yaml"))
    assert caught.value.where == where
    assert str(caught.value).startswith("/etc/keel/spec.yaml: ")


COMMENTED = """\
# the operator's own words
overlays:   {etcd:   disabled}   # not yet
node: {name: "web-1"}   # quoted

network:
      wireguard: {port: 51820}
"""

EDITS = {
    "flow": (COMMENTED, COMMENTED.replace("disabled", "enabled")),
    "empty-file": ("", "overlays: {etcd: enabled}\n"),
    "only-a-comment": ("# mine", "# mine\noverlays: {etcd: enabled}\n"),
    "no-section": ("node: {}\n", "node: {}\noverlays: {etcd: enabled}\n"),
    "block": (
        "overlays:\n  etcd: disabled # soon\nnode: {}\n",
        "overlays:\n  etcd: enabled # soon\nnode: {}\n",
    ),
    "section-empty": ("overlays: # soon: yes\n", "overlays: {etcd: enabled} # soon: yes\n"),
    "section-null": ("overlays: ~\n", "overlays: {etcd: enabled}\n"),
    "section-empty-flow": ("overlays: {}\n", "overlays: {etcd: enabled}\n"),
    "value-empty": ("overlays:\n  etcd:\n", "overlays:\n  etcd: enabled\n"),
    "whole-file-flow": ("{node: {}}", "{overlays: {etcd: enabled}, node: {}}"),
    "quoted": ('"overlays": {"etcd": "disabled"}\n', '"overlays": {"etcd": enabled}\n'),
}


@pytest.mark.parametrize(("before", "after"), EDITS.values(), ids=EDITS)
def test_setting_the_overlay_changes_nothing_else(before: str, after: str) -> None:
    assert set_etcd_overlay(before.encode(), Overlay.ENABLED).decode() == after


@pytest.mark.parametrize("before", [edit[0] for edit in EDITS.values()], ids=EDITS)
def test_setting_the_overlay_twice_and_back_is_stable(before: str) -> None:
    once = set_etcd_overlay(before.encode(), Overlay.ENABLED)
    assert set_etcd_overlay(once, Overlay.ENABLED) == once
    back = set_etcd_overlay(once, Overlay.DISABLED)
    assert parse_spec(back) == parse_spec(before.encode())


def test_a_form_that_cannot_be_edited_is_left_to_the_operator() -> None:
    with pytest.raises(SpecError, match="by hand"):
        set_etcd_overlay(b"---\nnode: {}\n...\n", Overlay.ENABLED)


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("installed", [True, False])
def test_only_an_advanced_node_with_the_overlay_is_capable(mode: Mode, installed: bool) -> None:
    spec = dataclasses.replace(
        Spec(), installation=dataclasses.replace(Spec().installation, mode=mode)
    )
    expected = mode is Mode.CLOUD_ADVANCED and installed
    found = capability(spec, overlay_installed=installed)
    assert found is (Capability.ETCD if expected else Capability.NONE)


def test_what_a_channel_of_the_monitor_is_reached_by_is_in_no_repr() -> None:
    raw = b"monitor: {channels: [{type: webhook, url: 'https://h.example/T0k3n'},"
    raw += b" {type: command, argv: [/bin/page, T0k3n]}]}"
    shown = repr(parse_spec(raw))
    assert "CommandChannel" in shown
    assert "T0k3n" not in shown


ENDPOINTS = {
    "a host name": ("vpn.example.org:51820", "vpn.example.org is no address; a host name is not"),
    "no port": ("198.51.100.3", "as in 203.0.113.7:51820 or [2001:db8::7]:51820"),
    "no brackets and no port": ("2001:db8:64::3", "brackets belong around an IPv6 address"),
    "no brackets": ("2001:db8:64::3:51820", "brackets belong around an IPv6 address"),
    "brackets for nothing": ("[198.51.100.3]:51820", "and only there"),
    "half a bracket": ("[2001:db8::3:51820", "brackets belong around an IPv6 address"),
    "an empty address": (":51820", "is no address"),
    "a zone": ("[fe80::1%wan0]:51820", "means nothing to other nodes"),
    "a port too high": ("198.51.100.3:70000", "a port is a number from 1 to 65535"),
}


@pytest.mark.parametrize(("text", "said"), ENDPOINTS.values(), ids=ENDPOINTS)
def test_what_is_wrong_with_an_endpoint_is_said_and_nothing_else(text: str, said: str) -> None:
    raw = f"network: {{wireguard: {{endpoints: ['{text}']}}}}".encode()
    with pytest.raises(SpecError) as caught:
        parse_spec(raw, file=Path("spec.yaml"))
    assert said in caught.value.summary()
    assert ("host name" in caught.value.summary()) == ("no address" in said)
