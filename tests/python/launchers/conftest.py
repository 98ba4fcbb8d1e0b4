"""Fixtures of the tests with other launchers."""

import signal

import pytest
from foreign_jobs import Bench
from slurm_cluster import SlurmCluster

# run_tests.py ends a suite with SIGTERM. As after Ctrl-C, pytest then ends what the fixtures have started.
signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.fixture
def bench():
    """Runs the test's commands. The test fails if anything of them remains."""
    with Bench() as made:
        yield made


@pytest.fixture(scope="session")
def slurm():
    """Starts a cluster of one node, and returns the environment of Slurm's commands."""
    with SlurmCluster() as cluster:
        yield cluster.environ
