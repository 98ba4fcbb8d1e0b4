"""Fixtures of the launcher's tests, and how hypothesis runs here."""

import os

import pytest
from hypothesis import settings
from launcher_harness import Harness

# Hypothesis writes no files into the working directory, and has no time limit for an example, since CI
# machines may be slow. By hand, a test gets as many examples as TF_SMDDP_TEST_EXAMPLES says.
EXAMPLES = int(os.environ.get("TF_SMDDP_TEST_EXAMPLES", "100"))
settings.register_profile("launcher", database=None, deadline=None, max_examples=EXAMPLES)
settings.load_profile("launcher")


@pytest.fixture
def launcher():
    """Provides a `Harness`. The test fails if a process, directory or file of its jobs remains."""
    harness = Harness()
    yield harness
    harness.close()
