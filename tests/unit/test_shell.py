"""What the package build makes and ships in shell."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import keel
from keel.cli import manual

REPOSITORY = Path(keel.__file__).parent.parent
SHELLCHECK = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:/usr/bin:/bin")
SCRIPTS = sorted(
    path
    for path in (REPOSITORY / "debian").glob("*")
    if path.suffix in (".postinst", ".prerm", ".postrm")
)


def check(path: Path) -> str:
    assert SHELLCHECK, "shellcheck is missing: `make venv`, or apt-get install shellcheck"
    done = subprocess.run([SHELLCHECK, path], capture_output=True, text=True)
    return done.stdout


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_maintainer_script_passes_shellcheck(path: Path) -> None:
    assert check(path) == ""


def test_the_bash_completion_passes_shellcheck(tmp_path: Path) -> None:
    script = tmp_path / "keel.bash"
    script.write_text(manual.everything()["keel.bash"])
    assert check(script) == ""


def test_a_fault_would_be_found(tmp_path: Path) -> None:
    script = tmp_path / "bad.bash"
    script.write_text("# shellcheck shell=bash\nfor x in $(ls *.txt); do echo $x; done\n")
    assert "SC2" in check(script)
