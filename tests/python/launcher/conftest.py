"""Fixtures of the launcher's tests, and how hypothesis runs here."""

import pytest
from hypothesis import settings
from launcher_harness import Harness

# No files in the working directory, and no limit per example: CI machines are slow at times.
settings.register_profile("launcher", database=None, deadline=None)
settings.load_profile("launcher")


@pytest.fixture
def launcher():
    """A `Harness`; the test fails if a process, directory or file of its jobs remains."""
    harness = Harness()
    yield harness
    harness.close()
