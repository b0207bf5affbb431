"""The trust store: this node's trust roots and its local blocks; the roster knows the keys.

Owns the state record trust.json (its edits and questions are pure; keel.mesh.store reads and
writes it). Who is a member is the roster's; nothing here decides that.

(T1) A trust root may ask this node for acts. A joiner's first root is its inviter (`joined`); all
     others are the operator's (`operator`).
(T2) Only operator-made roots go into the self record, so only they can be mutual and give the right
     to remove. What was `joined` becomes the operator's when the operator adds it, never back.
(T3) A block is local: this node heeds and reaches that key no more. It names nobody to others. A
     blocked root may ask nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from keel.types import SigningKey


class Origin(StrEnum):
    """Who made a trust root."""

    JOINED = "joined"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustRoot:
    """A key that may ask this node for acts."""

    key: SigningKey
    origin: Origin
    since: datetime
    extra: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A key that this node alone has done with."""

    key: SigningKey
    since: datetime
    why: str
    extra: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustStore:
    """trust.json; fields of a later version survive in `extra`."""

    roots: tuple[TrustRoot, ...] = ()
    blocks: tuple[Block, ...] = ()
    extra: Mapping[str, object] = field(default_factory=dict)


def is_root(store: TrustStore, key: SigningKey) -> bool:
    """Whether the key is a trust root, whoever made it one."""
    return any(one.key == key for one in store.roots)


def is_blocked(store: TrustStore, key: SigningKey) -> bool:
    """Whether this node has blocked the key (T3)."""
    return any(one.key == key for one in store.blocks)


def may_ask(store: TrustStore, key: SigningKey) -> bool:
    """Whether a live member with this key may ask this node for acts (T1, T3)."""
    return is_root(store, key) and not is_blocked(store, key)


def operator_roots(store: TrustStore) -> tuple[SigningKey, ...]:
    """What the self record lists (T2), in the order of keys."""
    return tuple(sorted(one.key for one in store.roots if one.origin is Origin.OPERATOR))


def with_root(store: TrustStore, key: SigningKey, origin: Origin, now: datetime) -> TrustStore:
    """The store with a root; adding it again changes at most `joined` to `operator` (T2)."""
    before = next((one for one in store.roots if one.key == key), None)
    if before is None:
        return replace(store, roots=(*store.roots, TrustRoot(key=key, origin=origin, since=now)))
    if before.origin is Origin.OPERATOR or origin is Origin.JOINED:
        return store
    upgraded = replace(before, origin=Origin.OPERATOR, since=now)
    return replace(store, roots=tuple(upgraded if one.key == key else one for one in store.roots))


def without_root(store: TrustStore, key: SigningKey) -> TrustStore:
    """The store without this root; unchanged when it was none."""
    return replace(store, roots=tuple(one for one in store.roots if one.key != key))


def with_block(store: TrustStore, key: SigningKey, *, why: str, now: datetime) -> TrustStore:
    """The store with a local block; the first one stays as it is (T3)."""
    if is_blocked(store, key):
        return store
    return replace(store, blocks=(*store.blocks, Block(key=key, since=now, why=why)))


def without_block(store: TrustStore, key: SigningKey) -> TrustStore:
    """The store without this block; unchanged when there was none."""
    return replace(store, blocks=tuple(one for one in store.blocks if one.key != key))
