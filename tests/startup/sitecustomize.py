"""On PYTHONPATH while coverage is measured: every Python that a test starts is measured too."""

import coverage

coverage.process_startup()
