"""The second opinions: openssl here and now, and that a linter can't be left out quietly.

zlint and pkilint run by the same two modules in `make check` (pki.mk, and the image's layer).
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.pki import lintcheck, linters
from tests.pki.defects import CERTIFICATES, OPENSSL, PKILINT, PKILINT_CHAIN, ZLINT


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("lint") / "cases"
    linters.write_all(out)
    return out


def test_openssl_strictly_verifies_the_good_and_refuses_the_wrong(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lintcheck.main([str(written), "--need", "openssl"]) == 0, capsys.readouterr().out
    assert "FAILED" not in capsys.readouterr().out


def test_every_linter_has_good_and_wrong_cases(written: Path) -> None:
    runs = json.loads((written / "manifest.json").read_text())["runs"]
    kinds = {(run["linter"], run["complains"]) for run in runs}
    assert kinds == {
        (linter, complains)
        for linter in (OPENSSL, ZLINT, PKILINT, PKILINT_CHAIN)
        for complains in (True, False)
    }


def test_every_linter_that_a_defect_names_gets_to_see_it(written: Path) -> None:
    runs = json.loads((written / "manifest.json").read_text())["runs"]
    seen = {(run["case"], run["linter"]) for run in runs if run["complains"]}
    wanted = {(each.name, linter) for each in CERTIFICATES for linter in each.linters}
    assert wanted <= seen


@pytest.mark.parametrize("linter", ["openssl", "zlint"])
def test_a_linter_that_is_missing_is_a_failure(
    linter: str,
    written: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert lintcheck.main([str(written), "--need", linter]) == 1
    assert f"FAILED {linter}: not here: {linter}" in capsys.readouterr().out


@pytest.mark.parametrize("more", [[], ["--pkilint", "/nonexistent"]], ids=["unsaid", "absent"])
def test_a_missing_environment_of_pkilint_is_a_failure(
    more: list[str], written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lintcheck.main([str(written), "--need", "pkilint", *more]) == 1
    assert "FAILED pkilint: not here" in capsys.readouterr().out


@pytest.mark.parametrize("complains", [True, False], ids=["a complaint", "silence"])
def test_what_a_linter_should_not_have_said_is_a_failure(
    complains: bool, written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = json.loads((written / "manifest.json").read_text())
    for run in manifest["runs"]:
        if run["complains"] is complains and run["linter"] == "openssl":
            run["complains"] = not complains
            break
    copy = tmp_path / "cases"
    shutil.copytree(written, copy)
    (copy / "manifest.json").write_text(json.dumps(manifest))
    assert lintcheck.main([str(copy), "--need", "openssl"]) == 1
    assert capsys.readouterr().out.count("FAILED openssl") == 1


def test_an_empty_manifest_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"runs": []}')
    assert lintcheck.main([str(tmp_path), "--need", "openssl"]) == 1
