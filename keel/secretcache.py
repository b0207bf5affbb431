"""What is reckoned from a secret, remembered while the work goes on that needs it.

Owns that it is forgotten. A command ends and takes it along. The processes of the channel and of
the passes stay: there whoever ends an answer or a pass forgets it all, also for a thread that goes
on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")

MOST = 32
"""Of each function: a pass needs a handful of keys, each of them a dozen times."""


class _Cache(Protocol):
    def cache_clear(self) -> None: ...
    def cache_info(self) -> functools._CacheInfo: ...


_caches: list[_Cache] = []


def remembered(reckon: Callable[[bytes], T]) -> Callable[[bytes], T]:
    """The same function of a secret's bytes; what it gave is remembered until `forget`."""
    cached = functools.lru_cache(maxsize=MOST)(reckon)
    _caches.append(cached)
    return cached


def forget() -> None:
    """Forget all of it, the secrets too."""
    for cache in _caches:
        cache.cache_clear()


def count() -> int:
    """How many secrets are remembered now."""
    return sum(cache.cache_info().currsize for cache in _caches)
