"""What holds for every test."""

from hypothesis import settings

# Machines are shared and noisy: no test fails for taking long, and a run is the same every time.
settings.register_profile("keel", deadline=None, derandomize=True)
settings.load_profile("keel")
