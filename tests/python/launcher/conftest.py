"""Fixtures of the launcher's tests, and how hypothesis runs here."""

import pytest
from hypothesis import settings
from launcher_harness import Harness

# Hypothesis writes no files into the working directory, and has no time limit for an example, since CI
# machines may be slow.
settings.register_profile("launcher", database=None, deadline=None)
settings.load_profile("launcher")


@pytest.fixture
def launcher():
    """Provides a `Harness`. The test fails if a process, directory or file of its jobs remains."""
    harness = Harness()
    yield harness
    harness.close()
