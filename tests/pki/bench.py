"""How long issuing takes, beside the openssl command on the same machine in the same run.

    python -m tests.pki.bench

Prints milliseconds of CPU, the median of several, as JSON: keel's, then openssl's, which include
starting it: that is what issuing through the command would cost. Asserts nothing.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from keel.mesh import etcdcert, etcdcrl, etcdpki
from keel.mesh.etcdcrl import Reason, Revoked
from tests.pki import make

ENTRIES = 10_000


def main() -> None:
    root, under = make.root(), make.intermediate()
    request = etcdpki.new_request(make.key("bench"), make.ADDRESS)
    revoked = [
        Revoked(
            serial=etcdcert.format_serial(int.from_bytes(make.bytes_of(str(n), 20), "big") >> 1),
            reason=Reason.CESSATION,
            at=make.NOW,
        )
        for n in range(ENTRIES)
    ]
    with tempfile.TemporaryDirectory() as scratch:
        command = _Openssl(Path(scratch), revoked)
        rows: list[tuple[str, Callable[[], object], Callable[[], object], int]] = [
            ("a leaf", lambda: make.member(under), command.sign, 20),
            (
                "an intermediate",
                lambda: etcdpki.sign_intermediate(
                    root,
                    request,
                    address=make.ADDRESS,
                    number=1,
                    serial=make.serial("bench"),
                    now=make.NOW,
                ),
                command.sign,
                20,
            ),
            (
                f"a CRL of {ENTRIES}",
                lambda: etcdcrl.new_crl(root, revoked, number=1, now=make.NOW),
                command.revoke,
                3,
            ),
        ]
        found = {
            name: (_median(ours, times), _median(theirs, times))
            for name, ours, theirs, times in rows
        }
        print(json.dumps(found))


class _Openssl:
    """The same acts by the command, with a CA of its own in a scratch directory."""

    def __init__(self, scratch: Path, revoked: list[Revoked]) -> None:
        self.scratch = scratch
        root = make.root()
        for name, raw in (
            ("root.pem", etcdcert.pem(root.certificate)),
            ("root.key", root.key.reveal()),
            ("leaf.csr", etcdpki.new_request(make.key("bench"), make.ADDRESS)),
            ("number", b"01\n"),
        ):
            (scratch / name).write_bytes(raw)
        ends, when = f"{make.NOW + timedelta(days=365):%y%m%d%H%M%SZ}", f"{make.NOW:%y%m%d%H%M%SZ}"
        (scratch / "index").write_text(
            "".join(
                f"R\t{ends}\t{when},cessationOfOperation\t{each.serial.upper()}\tunknown\t/CN=x{n}\n"
                for n, each in enumerate(revoked)
            )
        )
        (scratch / "conf").write_text(
            "[ca]\ndefault_ca=c\n[c]\ndatabase=index\ncertificate=root.pem\nprivate_key=root.key\n"
            "crlnumber=number\ndefault_md=sha256\ndefault_crl_days=30\ncrl_extensions=e\n"
            "[e]\nauthorityKeyIdentifier=keyid\n"
        )

    def sign(self) -> None:
        self._run("x509 -req -inform der -in leaf.csr -CA root.pem -CAkey root.key -days 30")

    def revoke(self) -> None:
        self._run("ca -config conf -gencrl -out crl.pem")

    def _run(self, words: str) -> None:
        argv = ["openssl", *words.split()]
        subprocess.run(argv, cwd=self.scratch, check=True, capture_output=True)


def _median(act: Callable[[], object], times: int) -> float:
    taken = []
    for _ in range(times):
        started = _cpu()
        act()
        taken.append((_cpu() - started) * 1000)
    return statistics.median(taken)


def _cpu() -> float:
    """Seconds of this process and of those that it waited for: other work on the machine is out."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime


if __name__ == "__main__":
    main()
