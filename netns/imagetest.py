"""Runs the unit tests with Debian 13's own Python and packages (`netns/imagetest`), and zlint,
which is there alone, over every kind of certificate and CRL.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from netns import build, image
from netns.sandbox import SandboxFailed, run_in_layers

SCRIPT = """
cp -a /run/source /tmp/source
cd /tmp/source
python3 --version
python3 -m tests.pki.linters --out /tmp/pki-lint --need openssl zlint
python3 -m pytest -n 2 --dist worksteal \\
    -m "not slow and not fuzz and not tools and not long and not exhaustive" tests
"""


def main() -> int:
    """0 when all tests passed."""
    if os.geteuid() != 0:
        sys.stderr.write("netns/imagetest: error: needs root\n")
        return 77
    with tempfile.TemporaryDirectory() as scratch:
        copy_source(Path(scratch))
        try:
            run_in_layers(
                image.roots("test"),
                SCRIPT,
                what="zlint and the tests",
                binds={Path(scratch): "/run/source"},
            )
        except SandboxFailed as error:
            sys.stderr.write(f"netns/imagetest: error: {error}\n")
            return 1
    return 0


def copy_source(scratch: Path) -> None:
    """The checkout as git knows it."""
    for name in build.files(build.CHECKOUT, skipped=()):
        target = scratch / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(build.CHECKOUT / name, target, follow_symlinks=False)
