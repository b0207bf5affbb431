"""What else etcd would be started with: settings that somebody added to keel's, in a drop-in of
etcd.service or in a file that is read after etcd.env; or another program, user or guard.

Pure: the environment that systemd made, and what it would run, come in. Most additions are
harmless, and the operator's own affair (a log level); these are not, and neither is another value
for most of keel's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

TYPE_CHECKING = False  # the guard loads this module and as little else as can be
if TYPE_CHECKING:
    from keel.ports import UnitRuns

HARM: Mapping[str, str] = {
    "ETCD_FORCE_NEW_CLUSTER": "makes a cluster of its own of this member, beside the others'",
    "ETCD_WAL_DIR": "has etcd look for its log where keel does not, and begin anew without it",
    "ETCD_CONFIG_FILE": "has etcd read that file, and nothing of keel's",
    "ETCD_UNSAFE_NO_FSYNC": "has etcd acknowledge what is not on the disk",
    "ETCD_LISTEN_CLIENT_HTTP_URLS": "lets revoked certificates in",
    "ETCD_EXPERIMENTAL_PEER_SKIP_CLIENT_SAN_VERIFICATION": "lets any member speak for another",
    "ETCD_CLIENT_CERT_ALLOWED_HOSTNAME": "shuts keel out",
}
ARGUMENTS = "DAEMON_ARGS"
"""What Debian's unit puts behind the program's name."""
FREE = frozenset(
    {
        "ETCD_INITIAL_CLUSTER_STATE",  # the guard itself may write another one
        "ETCD_QUOTA_BACKEND_BYTES",  # one that is reached is told, whatever it is
        # a certificate that etcd reads elsewhere harms nobody, and is told: `renewal-not-served`
        *(f"ETCD_{side}{what}_FILE" for side in ("", "PEER_") for what in ("CERT", "KEY")),
    }
)
"""Of keel's own settings those that may have another value."""
PROGRAM = "/usr/bin/etcd"
GUARD = "/usr/libexec/keel/etcd-guard"
USER = "etcd"

_RUN = re.compile(r"path=(?P<path>\S+) ; argv\[\]=(?P<argv>.*?) ;")
_UNHEEDED = "ignore_errors=yes"
"""Of a command with `-` before it: whatever it says, etcd starts."""


def harmful(environment: Mapping[str, str]) -> str | None:
    """The first setting that would do harm, and which."""
    given = {**_variables(environment.get(ARGUMENTS, "").split()), **environment}
    for name, harm in HARM.items():
        if given.get(name, "") not in ("", "false"):
            return f"{name}, which {harm}"
    return None


def foreign(environment: Mapping[str, str], etcd_env: bytes) -> str | None:
    """The same, or the first of keel's own that has another value than etcd.env gives it, and is
    not FREE to have one."""
    found = harmful(environment)
    for name, value in _pairs(etcd_env.decode(errors="replace").splitlines()):
        if found is None and name not in FREE and environment.get(name, value) != value:
            found = f"another {name} than keel's"
    return found


def foreign_runs(runs: UnitRuns) -> str | None:
    """What etcd.service would run otherwise than keel has it; None too where there is no unit."""
    if not runs.start:
        return None
    found = _RUN.search(runs.start)
    if found is None or found["path"] != PROGRAM:
        return f"another program, {found['path'] if found else runs.start}"
    harm = harmful({ARGUMENTS: found["argv"]})
    if harm is not None:
        return harm
    if runs.user != USER:
        return f"the user {runs.user or 'root'}, whose files etcd itself cannot read later"
    guarded = any(GUARD in one and _UNHEEDED not in one for one in runs.before.splitlines())
    return None if guarded else "no guard of keel's before it"


def _pairs(lines: Iterable[str]) -> Iterable[tuple[str, str]]:
    for line in lines:
        name, found, value = line.partition("=")
        if found and not line.startswith("#"):
            yield name, value


def _variables(words: Iterable[str]) -> Mapping[str, str]:
    """Flags as the variables that mean the same; a flag without a value is true."""
    flags = (word.lstrip("-").partition("=") for word in words if word.startswith("-"))
    return {"ETCD_" + name.upper().replace("-", "_"): value or "true" for name, _, value in flags}
