"""Runs the linters over what linters.py wrote, and holds them to its manifest.

    python3 lintcheck.py DIRECTORY --need openssl zlint pkilint [--pkilint ENVIRONMENT]

Needs the standard library only, so that it runs wherever a linter is. A linter that was asked for
and is not there is a failure, and so is a run that was never made.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

LINTERS = ("openssl", "zlint", "pkilint", "pkilint-chain")
SOURCES = "RFC5280,RFC5480,RFC5891,Community"  # its full set holds web PKI rules


class Missing(Exception):
    """A linter that was asked for is not on this machine."""


def openssl(runs: list[dict[str, Any]], directory: Path) -> list[str]:
    """What it says about each run; an empty text is no complaint."""
    said = []
    for run in runs:
        done = _run([_program("openssl"), *run["arguments"]], directory)
        said.append("" if done.returncode == 0 else done.stderr + done.stdout)
    return said


def zlint(runs: list[dict[str, Any]], directory: Path) -> list[str]:
    said = []
    for run in runs:
        argv = [_program("zlint"), "-includeSources", SOURCES, *run["arguments"]]
        done = _run(argv, directory)
        if done.returncode != 0:
            raise RuntimeError(f"zlint: {done.stderr}")
        results = json.loads(done.stdout)
        bad = [
            name
            for name, each in results.items()
            if each["result"] in _ZLINT_BAD and not name.startswith(_WEB)
        ]
        said.append(", ".join(sorted(bad)))
    return said


def pkilint(runs: list[dict[str, Any]], directory: Path, environment: Path) -> list[str]:
    """All runs in one process of pkilint's own environment: starting it takes most of a second."""
    python = environment / "bin" / "python"
    if not python.exists():
        raise Missing(f"pkilint in {environment}")
    done = subprocess.run(
        [str(python), str(Path(__file__).resolve()), "--inside-pkilint"],
        input=json.dumps([run["arguments"] for run in runs]),
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"pkilint: {done.stderr}")
    said: list[str] = json.loads(done.stdout)
    return said


def judge(runs: list[dict[str, Any]], said: list[str]) -> list[str]:
    """One line per run in which the linter did not say what the manifest wants."""
    wrong = []
    for run, words in zip(runs, said, strict=True):
        if bool(words.strip()) != run["complains"]:
            wanted = "a complaint" if run["complains"] else "no complaint"
            wrong.append(f"{run['linter']}: {run['case']}: wanted {wanted}, got {words.strip()!r}")
    return wrong


def check(directory: Path, needed: list[str], environment: Path | None) -> int:
    """Run what is needed and print a line per linter; the exit status."""
    manifest = json.loads((directory / "manifest.json").read_text())
    wrong, counts = [], Counter[str]()
    for linter in LINTERS:
        if linter.split("-")[0] not in needed:
            continue
        runs = [run for run in manifest["runs"] if run["linter"] == linter]
        try:
            said = _said(linter, runs, directory, environment)
        except Missing as missing:
            wrong.append(f"{linter}: not here: {missing}")
            continue
        wrong += judge(runs, said)
        counts[linter] = len(runs)
        bad = sum(run["complains"] for run in runs)
        print(f"{linter}: {len(runs) - bad} good, {bad} deliberately wrong")
    wrong += [f"{linter}: nothing was run" for linter in needed if not counts[linter]]
    for line in wrong:
        print(f"FAILED {line}")
    return 1 if wrong else 0


def _said(
    linter: str, runs: list[dict[str, Any]], directory: Path, environment: Path | None
) -> list[str]:
    if linter == "openssl":
        return openssl(runs, directory)
    if linter == "zlint":
        return zlint(runs, directory)
    if environment is None:
        raise Missing("--pkilint says where its environment is")
    return pkilint(runs, directory, environment)


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Missing(name)
    return found


def _run(argv: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, cwd=directory, capture_output=True, text=True, check=False)


def _inside_pkilint() -> None:
    from pkilint.bin import lint_crl, lint_pkix_cert, lint_pkix_signer_signee_cert_chain

    programs = {
        "cert": lint_pkix_cert.main,
        "chain": lint_pkix_signer_signee_cert_chain.main,
        "crl": lint_crl.main,
    }
    said = []
    for program, *arguments in json.load(sys.stdin):
        words = io.StringIO()
        with contextlib.redirect_stdout(words), contextlib.redirect_stderr(words):
            status = programs[program](["lint", "-s", "WARNING", *arguments])
        said.append(words.getvalue() or "no words" if status else "")
    json.dump(said, sys.stdout)


def main(argv: list[str]) -> int:
    if argv == ["--inside-pkilint"]:
        _inside_pkilint()
        return 0
    parser = argparse.ArgumentParser(prog="lintcheck", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--need", nargs="+", choices=["openssl", "zlint", "pkilint"], required=True)
    parser.add_argument("--pkilint", type=Path, metavar="ENVIRONMENT")
    options = parser.parse_args(argv)
    return check(options.directory, options.need, options.pkilint)


_ZLINT_BAD = {"warn", "error", "fatal"}
_WEB = "e_cab_"  # web PKI rules for CRLs, which zlint 3.6 runs whatever sources are asked for

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
