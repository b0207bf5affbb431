from __future__ import annotations

from pathlib import Path

import keel

CHANGELOG = Path(keel.__file__).parent.parent / "debian" / "changelog"


def test_the_package_has_the_version_of_the_code() -> None:
    assert CHANGELOG.read_text().splitlines()[0].startswith(f"keel ({keel.VERSION}) ")
