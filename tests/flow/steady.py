"""Status documents without what is another whenever a flow draws more or fewer random bytes."""

from __future__ import annotations

import re
from typing import Any

_SECONDS = re.compile(r"(\dT\d\d:\d\d):\d\dZ")


def steady(found: dict[str, Any]) -> dict[str, Any]:
    """The same document: digest, formation, IDs and serials by their place alone, so that a golden
    file changes only with what a person would see."""
    found["mesh"]["digest"] = "0" * 32
    etcd = found["etcd"]
    if etcd["formation"] is not None:
        etcd["formation"] = "f" * 16
        etcd["cluster_id"] = "c" * 16
    known = {}
    for number, member in enumerate(etcd["members"], 1):
        if member["id"] is not None:
            known[member["id"]] = f"{number:016x}"
            member["id"] = known[member["id"]]
    etcd["leader"] = known.get(etcd["leader"], etcd["leader"])
    for number, certificate in enumerate(etcd["certificates"], 1):
        certificate["serial"] = f"{number:040x}"
    return found


def steady_text(text: str) -> str:
    """Times to the minute: how long the world's flows take is not what is looked at."""
    return _SECONDS.sub(r"\1:00Z", text)
