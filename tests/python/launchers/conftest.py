"""Fixtures of the tests with other launchers."""

import pytest
from foreign_jobs import Bench
from slurm_cluster import SlurmCluster


@pytest.fixture
def bench():
    """Where the test's commands run; the test fails if anything of them remains."""
    with Bench() as made:
        yield made


@pytest.fixture(scope="session")
def slurm():
    """The environment of Slurm's commands, while a cluster of one node runs."""
    with SlurmCluster() as cluster:
        yield cluster.environ
