"""The trust store: rules T1 to T3, and its form on disk."""

from __future__ import annotations

import json

import pytest

from keel import codec
from keel.mesh import trust
from keel.mesh.trust import Origin, TrustStore
from tests.factories_mesh import Mesh, at, key

MESH = Mesh()
EMPTY = TrustStore()


def with_roots(**origins: Origin) -> TrustStore:
    store = EMPTY
    for name, origin in origins.items():
        store = trust.with_root(store, key(name), origin, at(0))
    return store


BOTH = with_roots(a=Origin.JOINED, b=Origin.OPERATOR)


def test_roots_may_ask_whoever_made_them_and_others_may_not() -> None:
    assert [trust.may_ask(BOTH, key(name)) for name in "abc"] == [True, True, False]


def test_only_operator_made_roots_go_into_the_self_record() -> None:
    assert trust.operator_roots(BOTH) == (key("b"),)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        pytest.param(Origin.JOINED, Origin.OPERATOR, Origin.OPERATOR, id="upgraded"),
        pytest.param(Origin.OPERATOR, Origin.JOINED, Origin.OPERATOR, id="never-back"),
        pytest.param(Origin.JOINED, Origin.JOINED, Origin.JOINED, id="again"),
    ],
)
def test_adding_a_root_again(first: Origin, second: Origin, expected: Origin) -> None:
    store = with_roots(b=Origin.OPERATOR, a=first)
    again = trust.with_root(store, key("a"), second, at(1))
    assert [(one.key, one.origin) for one in again.roots] == [
        (key("b"), Origin.OPERATOR),
        (key("a"), expected),
    ]


def test_a_dropped_root_may_ask_no_more() -> None:
    assert not trust.may_ask(trust.without_root(BOTH, key("a")), key("a"))
    assert trust.without_root(BOTH, key("c")) == BOTH


def test_a_blocked_root_may_ask_nothing_until_it_is_unblocked() -> None:
    blocked = trust.with_block(BOTH, key("a"), why="lost", now=at(1))
    assert trust.is_root(blocked, key("a"))
    assert not trust.may_ask(blocked, key("a"))
    assert trust.without_block(blocked, key("a")) == BOTH


def test_blocking_twice_keeps_the_first_reason() -> None:
    once = trust.with_block(EMPTY, key("a"), why="lost", now=at(1))
    assert trust.with_block(once, key("a"), why="stolen", now=at(2)) == once


def test_what_a_later_version_wrote_survives_a_rewrite() -> None:
    store = trust.with_block(BOTH, key("c"), why="x", now=at(1))
    document = json.loads(codec.dumps(store)) | {"later": 1}
    for name in ("roots", "blocks"):
        document[name][0]["more"] = [name]
    raw = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    back = codec.loads(TrustStore, raw, max_bytes=1 << 20, strict=False)
    assert codec.dumps(back) == raw
