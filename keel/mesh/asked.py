"""What a kind of message is to whoever serves it: a question that passed every check, and an act.

Owns the types alone, so that a pass which serves nothing loads none of the channel's doors
(keel.mesh.receive).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from keel.mesh.limits import QUICK, Bound
from keel.mesh.members import Member
from keel.mesh.store import Node
from keel.ports import Host
from keel.spec.model import Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A message of a live member that passed every check, on this node as it was then."""

    host: Host
    spec: Spec
    node: Node
    member: Member
    body: Any


Act = Callable[[Asked], object]
"""What a kind does; the body of the answer comes back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of message that a path serves."""

    body: type
    act: Act | None = None
    """None: hello, which a claimant may say as well, has a way of its own."""
    fresh: bool = True
    obeys: bool = True
    """Whether the sender's standing matters; records prove themselves."""
    bound: Bound = QUICK
    """How many at once, and how often (keel.mesh.limits, L1)."""
