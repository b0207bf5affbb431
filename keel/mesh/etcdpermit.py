"""What was judged a moment ago is not judged again: the permit for etcd's first start.

The guard runs before every start in a process of its own, and loading what it needs takes longer
than its judgement. Whoever starts etcd for a birth has it loaded, judges by the same rules first,
and leaves a permit; the guard then only has to see that nothing has changed. Owns the permit.

(T1) A permit is good once, for this boot, for seconds, and while every file that the judgement
     read is the same. In any other case there is none, and the guard judges by itself.
(T2) Only for a start over no data: with data there are peers to be asked, and no hurry.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

TYPE_CHECKING = False  # the guard loads this module and as little else as can be
if TYPE_CHECKING:
    from keel.paths import Paths
    from keel.ports import Files

GOOD_SECONDS = 15.0
"""A start follows its permit at once; a busy machine may take seconds for it."""
MAX_BYTES = 1 << 20


def this_boot(files: Files, paths: Paths) -> str:
    """The kernel's name for it."""
    return (files.read(paths.boot_id) or b"").decode("ascii", "replace").strip()


def seal(files: Files, paths: Paths, *, boot: str, now: float, loads: bytes) -> None:
    """Leave a permit for what is on disk now; `now` is the monotonic clock's. `loads` is what etcd
    will have loaded: the guard tells it, because another start may have come first."""
    seen = _seen(files, paths)
    permit = {"boot": boot, "time": now, "seen": seen, "loads": json.loads(loads)}
    files.make_dir(paths.run)
    files.write(paths.etcd_permit, json.dumps(permit).encode())


def redeem(files: Files, paths: Paths, *, boot: str, now: float, invocation: str) -> bool:
    """Whether a permit says that etcd may start now; it is used up, and the judgement's
    etcd-loaded.json is that of this invocation."""
    raw = files.read(paths.etcd_permit, max_bytes=MAX_BYTES)
    if raw is None:
        return False
    files.remove(paths.etcd_permit)
    permit = _parsed(raw)
    loads = permit.get("loads")
    sealed = permit.get("time")
    timely = isinstance(sealed, float) and 0.0 <= now - sealed <= GOOD_SECONDS
    same = permit.get("boot") == boot and permit.get("seen") == _seen(files, paths)
    if not (isinstance(loads, dict) and timely and same):
        return False
    files.write(paths.etcd_loaded, json.dumps({**loads, "invocation": invocation}).encode())
    return True


def _seen(files: Files, paths: Paths) -> str:
    """A hash of all that the judgement hangs on, but for the peers' word and the clock."""
    total = hashlib.sha256()
    laid = [paths.laid / name for name in files.names(paths.laid)]
    for path in (*laid, *_state(paths)):
        content = files.read(path, max_bytes=MAX_BYTES)
        mark = "-" if content is None else hashlib.sha256(content).hexdigest()
        total.update(f"{path} {mark}\n".encode())
    total.update(" ".join(files.names(paths.etcd_data)).encode())
    return total.hexdigest()


def _state(paths: Paths) -> tuple[Path, ...]:
    return (
        paths.etcd_cluster,
        paths.etcd_record,
        paths.etcd_trust,
        paths.etcd_marker,
        paths.lived,
        paths.etcd_drop_in,
        paths.etcd_condition,
    )


def _parsed(raw: bytes | None) -> dict[str, object]:
    try:
        found = json.loads(raw or b"")
    except ValueError:
        return {}  # a hint of this boot: one that can't be read is as good as none
    return found if isinstance(found, dict) else {}
