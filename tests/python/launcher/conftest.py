"""Fixtures of the launcher's tests."""

import pytest
from launcher_harness import Harness


@pytest.fixture
def launcher():
    """A `Harness`; the test fails if a process, directory or file of its jobs remains."""
    harness = Harness()
    yield harness
    harness.close()
