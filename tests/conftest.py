"""What holds for every test."""

import pytest
from hypothesis import settings

# Machines are shared and noisy: no test fails for taking long, and a run is the same every time.
settings.register_profile("keel", deadline=None, derandomize=True)
settings.load_profile("keel")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: many cases of a test that `make test` samples")
    config.addinivalue_line("markers", "exhaustive: all of them, for `make kill-all`")
